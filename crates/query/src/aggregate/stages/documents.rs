//! `$documents`: documents that are written in the pipeline.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Docs, ExecContext, Fault, Source};
use crate::bounds;
use crate::expr::{Context, Node, Parser};
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$documents: <expression that gives an array of documents>}`.
#[derive(Debug)]
pub(crate) struct Documents {
    node: Node,
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let node = Parser::new(&context.environment).parse(argument)?;
    out.push(Stage::Documents(Arc::new(Documents { node })));
    Ok(())
}

impl Documents {
    pub(super) fn open<E: Fault>(&self, context: &ExecContext<E>) -> Result<Source<E>> {
        let not_documents = |found: &str| {
            Error::location(
                5858203,
                format!(
                    "an array is expected in $documents, and its elements must be objects; found {found}"
                ),
            )
        };
        let value = self
            .node
            .evaluate(&Context::new(Doc::empty(), context.now_ms))?;
        let Some(array) = value.as_array() else {
            return Err(not_documents(value.type_name()));
        };
        let mut held = context.held();
        let mut docs = Vec::new();
        for value in array.values() {
            let Value::Document(doc) = value else {
                return Err(not_documents(value.type_name()));
            };
            bounds::work_on(doc.len_bytes())?;
            // The list doubles when it is full.
            let bytes = held.bytes() + doc.len_bytes() + 2 * size_of::<DocBuf>();
            held.require(bytes, "$documents")?;
            docs.push(doc.to_owned());
        }
        Ok(Box::new(Docs::counted(docs, held)))
    }
}
