use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors;

pub struct ConvertToCapped;

const SPEC: Spec = Spec {
    names: &["convertToCapped"],
    audits: Audited::Catalog,
    doc: "Makes a collection capped; its indexes are dropped.",
    fields: &["size"],
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for ConvertToCapped {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::ConvertToCapped)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let size = size(&cx.args())?;
        let store = &cx.server.store;
        let uuid = store.uuid_of(&namespace);
        store.convert_to_capped(&namespace, size, &cx.limits)?;
        if let Some(uuid) = uuid {
            let why = cursors::dropped(&uuid);
            cx.server.clients.cursors.end(namespace.as_str(), &why);
        }
        Ok(DocBuf::new())
    }
}

/// The `size` of the capped collection, in bytes.
pub fn size(args: &Arguments<'_>) -> Result<i64> {
    match args.i64("size")? {
        Some(size) if size > 0 => Ok(size),
        _ => Err(Error::new(
            ErrorCode::InvalidOptions,
            "Capped collection size must be greater than zero",
        )),
    }
}
