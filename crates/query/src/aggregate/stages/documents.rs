//! `$documents`: documents that are written in the pipeline.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Docs, ExecContext, Fault, Source};
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
            .eval(&Context::new(Doc::empty(), context.now_ms))?;
        let Some(array) = value.as_array() else {
            return Err(not_documents(value.type_name()));
        };
        let docs: Vec<DocBuf> = (array.values())
            .map(|v| match v {
                Value::Document(doc) => Ok(doc.to_owned()),
                other => Err(not_documents(other.type_name())),
            })
            .collect::<Result<_>>()?;
        Ok(Box::new(Docs::new(docs)))
    }
}
