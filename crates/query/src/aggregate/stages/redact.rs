//! `$redact`: leaves out parts of documents, level by level.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, ExecContext, Fault, Source};
use crate::expr::{Context, Node, Parser};
use crate::meta::MetaFields;
use frond_bson::{ArrayBuf, Doc, DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$redact: <expression that gives $$KEEP, $$PRUNE or $$DESCEND>}`.
#[derive(Debug)]
pub(crate) struct Redact {
    node: Node,
}

impl Redact {
    /// The metadata that the stage asks for.
    pub(crate) fn meta(&self) -> MetaFields {
        self.node.meta()
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let node = Parser::new(&context.environment)
        .redacting()
        .parse(argument)?;
    out.push(Stage::Redact(Arc::new(Redact { node })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Redact>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Redacting {
        stage: stage.clone(),
        now_ms: context.now_ms,
        input,
    })
}

struct Redacting<E> {
    stage: Arc<Redact>,
    now_ms: i64,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Redacting<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        while let Some(doc) = self.input.next()? {
            let whole = Context::new(&doc, self.now_ms);
            if let Some(kept) = self.stage.apply(&doc, &whole)? {
                return Ok(Some(kept));
            }
        }
        Ok(None)
    }
}

impl Redact {
    /// Redacts a document; `None` if nothing remains. `whole` is the context of the outermost document.
    fn apply(&self, doc: &Doc, whole: &Context<'_>) -> Result<Option<DocBuf>> {
        let verdict = self.node.evaluate(&whole.below(doc))?;
        match verdict.get() {
            Some(Value::String("keep")) => Ok(Some(doc.to_owned())),
            Some(Value::String("prune")) => Ok(None),
            Some(Value::String("descend")) => {
                let mut kept = DocBuf::with_capacity(doc.len_bytes());
                for element in doc.iter_raw() {
                    match element.value() {
                        Some(Value::Document(inner)) => {
                            if let Some(inner) = self.apply(inner, whole)? {
                                kept.push(element.name(), &inner);
                            }
                        }
                        Some(Value::Array(inner)) => {
                            kept.push(element.name(), &self.array(inner, whole)?);
                        }
                        _ => kept.push_raw(&element),
                    }
                }
                Ok(Some(kept))
            }
            other => Err(Error::location(
                17053,
                format!(
                    "$redact's expression should not return anything aside from the variables \
                     $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                    other.map_or("MISSING".to_owned(), |v| crate::display::computed(&v))
                ),
            )),
        }
    }

    fn array(&self, items: &Doc, whole: &Context<'_>) -> Result<ArrayBuf> {
        let mut kept = ArrayBuf::new();
        for item in items.values() {
            match item {
                Value::Document(inner) => {
                    if let Some(inner) = self.apply(inner, whole)? {
                        kept.push(&inner);
                    }
                }
                Value::Array(inner) => kept.push(&self.array(inner, whole)?),
                other => kept.push_value(&other),
            }
        }
        Ok(kept)
    }
}
