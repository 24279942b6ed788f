//! `cloneCollectionAsCapped`

use frond_bson::{DocBuf, Value};
use frond_error::Result;

use super::convert_to_capped::size;
use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// Copies a collection into a capped one.
pub struct CloneCollectionAsCapped;

impl Command for CloneCollectionAsCapped {
    fn names(&self) -> &'static [&'static str] {
        &["cloneCollectionAsCapped"]
    }

    fn doc(&self) -> &'static str {
        "Copies the documents of a collection into a new capped one."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["toCollection", "size"]
    }

    fn traits(&self) -> Traits {
        Traits::CATALOG_WRITE.stable(false)
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
