//! Stages that turn each document into one other: `$project`, `$addFields`, `$set`, `$unset`,
//! `$replaceRoot`, `$replaceWith`.

use super::Stage;
use super::add_fields::{AddFields, check_depth};
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, ExecContext, Fault, Source};
use crate::bounds;
use crate::display;
use crate::expr::{Context, Node, Parser};
use crate::meta::{MetaFields, Metadata};
use crate::projection::Projection;
use frond_bson::{Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// A function from documents to documents.
#[derive(Debug)]
pub(crate) enum Transform {
    Project(Projection),
    Add(AddFields),
    /// The document that an expression gives; the text names it in errors.
    Replace(Node, &'static str),
}

impl Transform {
    /// The metadata that it reads.
    pub(crate) fn meta(&self) -> MetaFields {
        match self {
            Transform::Project(projection) => projection.meta(),
            Transform::Add(fields) => fields.meta(),
            Transform::Replace(node, _) => node.meta(),
        }
    }

    /// The document that `doc` becomes; `context` has it as its root.
    pub(crate) fn apply(&self, doc: &Doc, context: &Context<'_>) -> Result<DocBuf> {
        match self {
            Transform::Project(projection) => {
                let new = projection.apply_in(doc, *context)?;
                if projection.computes() {
                    check_depth(&Value::Document(&new))?;
                }
                Ok(new)
            }
            Transform::Add(fields) => bounds::releasing(|| fields.apply(doc, context)),
            Transform::Replace(node, what) => bounds::releasing(|| replaced(node, what, context)),
        }
    }
}

/// The document that an expression gives in place of the root of `context`.
fn replaced(node: &Node, what: &str, context: &Context<'_>) -> Result<DocBuf> {
    let result = node.eval_part(context)?;
    let Some(new) = result.as_doc() else {
        return Err(Error::location(
            40228,
            format!(
                "{what} must evaluate to an object, but resulting value was: {}. Type \
                 of resulting value: '{}'. Input document: {}",
                result
                    .get()
                    .map_or("MISSING".to_owned(), |v| display::computed(&v)),
                result.type_name(),
                display::computed(&Value::Document(context.root))
            ),
        ));
    };
    check_depth(&Value::Document(new))?;
    Ok(match result.into_value() {
        Some(OwnedValue::Document(new)) => new,
        _ => DocBuf::new(),
    })
}

fn push(transform: Transform, out: &mut Vec<Stage>) {
    out.push(Stage::Transform(Arc::new(transform)));
}

pub(super) fn project(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            15969,
            "$project specification must be an object",
        ));
    };
    push(
        Transform::Project(parse_project("$project", spec, context)?),
        out,
    );
    Ok(())
}

fn parse_project(stage: &str, spec: &Doc, context: &ParseContext<'_>) -> Result<Projection> {
    Projection::parse_stage(spec, &context.environment)
        .map_err(|error| error.context(format!("Invalid {stage}")))
}

pub(super) fn add_fields(
    stage: &str,
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            40272,
            format!(
                "{stage} specification stage must be an object, got {}",
                argument.type_name()
            ),
        ));
    };
    let fields = AddFields::parse(stage, spec, &context.environment)?;
    push(Transform::Add(fields), out);
    Ok(())
}

/// `{$unset: ["a", "b.c"]}` is a projection that leaves these out.
pub(super) fn unset(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let not_text = || {
        Error::location(
            31002,
            "$unset specification must be a string or an array containing only string values",
        )
    };
    let mut spec = DocBuf::new();
    match argument {
        Value::String(path) => spec.push(path, 0),
        Value::Array(paths) => {
            for path in paths.values() {
                spec.push(path.as_str().ok_or_else(not_text)?, 0);
            }
        }
        _ => return Err(not_text()),
    }
    if spec.is_empty() {
        return Err(Error::location(
            31119,
            "$unset specification must be a string or an array with at least one field",
        ));
    }
    push(
        Transform::Project(parse_project("$unset", &spec, context)?),
        out,
    );
    Ok(())
}

pub(super) fn replace_root(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            40229,
            format!(
                "expected an object as specification for $replaceRoot stage, got {}",
                argument.type_name()
            ),
        ));
    };
    if let Some((name, _)) = spec.iter().find(|(name, _)| *name != "newRoot") {
        return Err(Error::location(
            40415,
            format!("BSON field '$replaceRoot.{name}' is an unknown field."),
        ));
    }
    let Some(new_root) = spec.get("newRoot") else {
        return Err(Error::location(
            40414,
            "BSON field '$replaceRoot.newRoot' is missing but a required field",
        ));
    };
    let node = Parser::new(&context.environment).parse(new_root)?;
    push(Transform::Replace(node, "'newRoot' expression "), out);
    Ok(())
}

pub(super) fn replace_with(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let node = Parser::new(&context.environment).parse(argument)?;
    push(Transform::Replace(node, "'replacement document' "), out);
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Transform>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Transforming {
        transform: stage.clone(),
        now_ms: context.now_ms,
        input,
    })
}

struct Transforming<E> {
    transform: Arc<Transform>,
    now_ms: i64,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Transforming<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        let Some(doc) = self.input.next()? else {
            return Ok(None);
        };
        bounds::work_on_large(doc.len_bytes())?;
        let context = Context::new(&doc, self.now_ms).with_meta(self.input.meta());
        Ok(Some(self.transform.apply(&doc, &context)?))
    }

    fn meta(&self) -> Option<&Metadata> {
        self.input.meta()
    }
}
