//! `$out` and `$merge`: the host writes what the pipeline gives.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Deferred, Docs, ExecContext, Fault, Source};
use crate::error::{Error, ErrorCode, Result};
use frond_bson::{DocBuf, Value, doc};
use std::sync::Arc;

/// A stage that writes to a collection.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) stage: &'static str,
    /// `{db: .., coll: ..}` for `$out`; `{into: ..}` and options for `$merge`.
    pub(crate) spec: DocBuf,
}

pub(super) fn parse(
    stage: &'static str,
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = match (stage, argument) {
        ("$out", Value::String(collection)) => doc! {"coll": collection},
        (_, Value::String(collection)) => doc! {"into": collection},
        (_, Value::Document(spec)) => spec.to_owned(),
        (_, other) => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "{stage} only supports a string or object argument, but found {}",
                    other.type_name()
                ),
            ));
        }
    };
    let known: &[&str] = match stage {
        "$out" => &["db", "coll"],
        _ => &["into", "on", "let", "whenMatched", "whenNotMatched"],
    };
    if let Some((name, _)) = spec.iter().find(|(name, _)| !known.contains(name)) {
        return Err(Error::new(
            ErrorCode::IDLUnknownField,
            format!("BSON field '{stage}.{name}' is an unknown field."),
        ));
    }
    for required in known
        .iter()
        .filter(|name| matches!(**name, "coll" | "into"))
    {
        if !spec.contains_key(required) {
            return Err(Error::new(
                ErrorCode::IDLFailedToParse,
                format!("BSON field '{stage}.{required}' is missing but a required field"),
            ));
        }
    }
    out.push(Stage::Write(Arc::new(Write { stage, spec })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Write>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let host = context.host.clone();
    Box::new(Deferred::new(input, move |input: Source<E>| {
        host.write(stage.stage, &stage.spec, input)?;
        Ok(Box::new(Docs::new(Vec::new())) as Source<E>)
    }))
}
