//! `$out` and `$merge`: the host writes the results of the pipeline.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Deferred, Docs, ExecContext, Fault, Source};
use crate::expr::{Context, MISSING, Node, Parser, check_variable_name};
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// A stage that writes to a collection.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) stage: &'static str,
    /// `{db: .., coll: ..}` for `$out`; `{into: ..}` and options for `$merge`.
    pub(crate) spec: DocBuf,
    /// The variables of `$merge`.
    bindings: Vec<(String, Node)>,
    /// Values of the command's `let`.
    outer: Option<DocBuf>,
}

/// The argument of [`super::Host::write`].
#[derive(Clone, Copy, Debug)]
pub struct Writing<'w> {
    write: &'w Write,
    now_ms: i64,
}

impl Writing<'_> {
    /// `$out` or `$merge`.
    pub fn stage(&self) -> &'static str {
        self.write.stage
    }

    /// The argument of the stage.
    pub fn spec(&self) -> &Doc {
        &self.write.spec
    }

    /// The variables of the pipeline that merges a document: `new` is the document itself.
    ///
    /// # Errors
    /// Those of their expressions.
    pub fn variables(&self, doc: &Doc) -> Result<DocBuf> {
        let context = Context::new(doc, self.now_ms);
        let mut variables = doc! {"new": doc};
        for (name, node) in &self.write.bindings {
            let value = node.eval(&context)?;
            variables.push_value(name, &value.get().unwrap_or(MISSING));
        }
        // Inner names hide outer ones, which come later.
        if let Some(outer) = &self.write.outer {
            variables.push_all(outer);
        }
        Ok(variables)
    }
}

pub(super) fn parse(
    stage: &'static str,
    argument: Value<'_>,
    context: &ParseContext<'_>,
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
    if stage == "$out" && spec.contains_key("timeseries") {
        return Err(Error::not_supported("the option 'timeseries' of $out"));
    }
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
    let mut parser = Parser::new(&context.environment);
    let mut bindings = Vec::new();
    for (name, value) in spec.get_doc("let").unwrap_or(Doc::empty()).iter() {
        if name == "new" {
            if value.as_str() == Some("$$ROOT") {
                continue;
            }
            return Err(Error::location(
                51273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
            ));
        }
        check_variable_name(name)?;
        bindings.push((name.to_owned(), parser.parse(value)?));
    }
    out.push(Stage::Write(Arc::new(Write {
        stage,
        spec,
        bindings,
        outer: context.environment.variables.map(Doc::to_owned),
    })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Write>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let host = context.host.clone();
    let now_ms = context.now_ms;
    Box::new(Deferred::new(input, move |input: Source<E>| {
        let writing = Writing {
            write: &stage,
            now_ms,
        };
        host.write(writing, input)?;
        Ok(Box::new(Docs::new(Vec::new())) as Source<E>)
    }))
}
