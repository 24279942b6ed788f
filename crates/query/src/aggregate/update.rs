//! Updates given as a pipeline.

use super::{ParseContext, stages};
use crate::aggregate::stages::{Stage, transform::Transform};
use crate::environment::Environment;
use crate::expr::Context;
use crate::required_fields::RequiredFields;
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// The stages that an update may have: `$addFields`, `$set`, `$project`, `$unset`, `$replaceRoot` and
/// `$replaceWith`.
#[derive(Debug)]
pub struct UpdatePipeline {
    transforms: Vec<Arc<Transform>>,
}

/// Checks that an array names stages only, which MongoDB does before it runs any statement of a command.
///
/// # Errors
/// 40324 for unknown stages, 14 for elements that are no documents, 238 for stages that this server lacks.
pub fn check_stage_names(array: &Doc) -> Result<()> {
    for stage in array.values() {
        let Value::Document(stage) = stage else {
            return Err(not_an_object());
        };
        stages::find(stage.first().map_or("", |(name, _)| name))?;
    }
    Ok(())
}

fn not_an_object() -> Error {
    Error::type_mismatch("Each element of the 'pipeline' array must be an object")
}

impl UpdatePipeline {
    /// Reads the stages.
    ///
    /// # Errors
    /// 72 for stages that an update may not have, else as [`super::Pipeline::parse`].
    pub fn parse(array: &Doc, environment: &Environment<'_>) -> Result<UpdatePipeline> {
        let context = ParseContext {
            environment: *environment,
            depth: 0,
        };
        let mut parsed = Vec::new();
        for stage in array.values() {
            let Value::Document(stage) = stage else {
                return Err(not_an_object());
            };
            let mut fields = stage.iter();
            let (Some((name, argument)), None) = (fields.next(), fields.next()) else {
                return Err(Error::location(
                    40323,
                    "A pipeline stage specification object must contain exactly one field.",
                ));
            };
            let operator = stages::find(name)?;
            if !operator.in_updates {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    format!("{name} is not allowed to be used within an update"),
                ));
            }
            (operator.parse)(argument, &context, &mut parsed)?;
        }
        let mut transforms = Vec::with_capacity(parsed.len());
        for stage in parsed {
            match stage {
                Stage::Transform(transform) => transforms.push(transform),
                other => {
                    return Err(Error::internal(format!(
                        "{other:?} was allowed within an update"
                    )));
                }
            }
        }
        Ok(UpdatePipeline { transforms })
    }

    /// The parts of a document that the stages read or write.
    pub(crate) fn required_fields(&self) -> RequiredFields {
        let mut required = RequiredFields::none();
        let mut written = RequiredFields::none();
        for transform in &self.transforms {
            let mut writes = RequiredFields::none();
            match &**transform {
                Transform::Add(fields) => fields.each("", &mut |path, node| {
                    writes.add(path);
                    node.fields(&mut |path| required.add(&path.dotted()));
                }),
                Transform::Project(projection) => match projection.excluded_paths() {
                    Some(paths) => paths.iter().for_each(|path| writes.add(path)),
                    None => return RequiredFields::whole(),
                },
                Transform::Replace(..) => return RequiredFields::whole(),
            }
            // A field that one stage takes away and another one adds moves behind all others.
            if writes.meets(&written) {
                return RequiredFields::whole();
            }
            written.extend(&writes);
        }
        required.extend(&written);
        required
    }

    /// The document after all stages. `now_ms` is `$$NOW` in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of the expressions.
    pub fn apply(&self, doc: &Doc, now_ms: i64) -> Result<DocBuf> {
        let mut current: Option<DocBuf> = None;
        for transform in &self.transforms {
            let input = current.as_deref().unwrap_or(doc);
            current = Some(transform.apply(input, &Context::new(input, now_ms))?);
        }
        Ok(current.unwrap_or_else(|| doc.to_owned()))
    }
}
