use frond_bson::{DocBuf, Value};
use frond_error::Result;

use super::convert_to_capped::size;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct CloneCollectionAsCapped;

const SPEC: Spec = Spec {
    names: &["cloneCollectionAsCapped"],
    audits: Audited::Catalog,
    doc: "Copies the documents of a collection into a new capped one.",
    fields: &["toCollection", "size"],
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for CloneCollectionAsCapped {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let written = [Action::Insert, Action::CreateIndex, Action::ConvertToCapped];
        let to = request.args().get("toCollection").unwrap_or(Value::Null);
        let written = Needs::on_collection_of(request, &to, written)?;
        Ok(Needs::on_collection(request, Action::Find)?.and(written))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let from = cx.namespace()?;
        let args = cx.args();
        let to = args
            .str("toCollection")?
            .ok_or_else(|| args.missing("toCollection"))?;
        let to = cx.namespace_of(&Value::String(to))?;
        cx.store().clone_as_capped(&from, &to, size(&args)?)?;
        Ok(DocBuf::new())
    }
}
