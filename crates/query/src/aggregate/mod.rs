//! Aggregation pipelines: `[{$match: ..}, {$group: ..}, {$sort: ..}]`.
//!
//! [`Pipeline::parse`] reads the stages once. [`Pipeline::split_front`] splits off the prefix that a collection
//! can execute itself: filter, sort, skip and limit. [`Pipeline::execute`] chains the rest behind a
//! [`DocSource`]; documents are pulled through it one by one. Every stage has one file in `stages/`
//! and one line in the table there.

mod add_fields;
mod exec;
mod front;
mod groups;
mod optimize;
pub(crate) mod stages;
mod update;

#[cfg(test)]
mod tests;

pub use exec::{
    DocSource, Docs, ExecContext, Fault, Host, NoHost, STAGE_MEMORY_BYTES_MAX, Source, StageLimits,
};
pub use front::Front;
pub use groups::{GroupParts, Groups};
pub use stages::is_stage;
pub use stages::{Merge, Out, WhenMatched, WhenNotMatched, WriteTarget, Writing};
pub use update::{UpdatePipeline, check_stage_names};

use crate::bounds;
use crate::environment::Environment;
use frond_bson::{Collator, Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use stages::{Position, Stage};

/// Most stages of a pipeline, as in MongoDB.
pub const MAX_STAGES: usize = 1000;

/// Pipelines inside pipelines are followed this deep, as in MongoDB.
const MAX_NESTED_PIPELINES: usize = 20;

#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    stages: Vec<Stage>,
    collator: Collator,
}

/// The context of parsing a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParseContext<'v> {
    /// Values of `let`, and the time.
    pub(crate) environment: Environment<'v>,
    /// The number of enclosing pipelines.
    pub(crate) depth: usize,
}

impl Pipeline {
    /// Reads the stages of an array. `environment` has the values of a command's `let`, and the time
    /// for expressions in filters; [`ExecContext::now_ms`] should be the same.
    ///
    /// # Errors
    /// MongoDB's: 40324 for unknown stages, 40323 for stages that are not one field, 14 for elements
    /// that are no documents, 40601 and 40602 for stages in the wrong place, 238 for stages that
    /// this server lacks, and those of each stage.
    pub fn parse(stages: &Doc, environment: &Environment<'_>) -> Result<Pipeline> {
        let context = ParseContext {
            environment: *environment,
            depth: 0,
        };
        bounds::parsing(|| Pipeline::parse_in(stages, &context))
    }

    /// As [`Pipeline::parse`], from documents.
    ///
    /// # Errors
    /// As [`Pipeline::parse`].
    pub fn parse_stages(stages: &[&Doc], environment: &Environment<'_>) -> Result<Pipeline> {
        let array: frond_bson::ArrayBuf = stages.iter().copied().collect();
        Pipeline::parse(&array, environment)
    }

    pub(crate) fn parse_in(array: &Doc, context: &ParseContext<'_>) -> Result<Pipeline> {
        if context.depth > MAX_NESTED_PIPELINES {
            return Err(Error::new(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is \
                     {MAX_NESTED_PIPELINES}"
                ),
            ));
        }
        let count = array.count();
        if count > MAX_STAGES {
            return Err(Error::location(
                7749501,
                format!("Pipeline length must be no longer than {MAX_STAGES} stages."),
            ));
        }
        let mut stages = Vec::with_capacity(count);
        for (at, stage) in array.values().enumerate() {
            let Value::Document(stage) = stage else {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            };
            let mut fields = stage.iter();
            let (Some((name, argument)), None) = (fields.next(), fields.next()) else {
                return Err(Error::location(
                    40323,
                    "A pipeline stage specification object must contain exactly one field.",
                ));
            };
            let operator = stages::find(name)?;
            match operator.position {
                Position::First if at > 0 => {
                    return Err(Error::location(
                        40602,
                        format!("{name} is only valid as the first stage in a pipeline."),
                    ));
                }
                Position::Last if at + 1 < count => {
                    return Err(Error::location(
                        40601,
                        format!("{name} can only be the final stage in the pipeline"),
                    ));
                }
                Position::Last if context.depth > 0 => {
                    return Err(Error::location(
                        51047,
                        format!("{name} is not allowed within a pipeline inside another stage"),
                    ));
                }
                _ => {}
            }
            (operator.parse)(argument, context, &mut stages)?;
        }
        let has_text =
            |stage: &Stage| matches!(stage, Stage::Filter(stage) if stage.filter.text().is_some());
        if stages.iter().skip(1).any(has_text) {
            return Err(Error::location(
                17313,
                "$match with $text is only allowed as the first pipeline stage",
            ));
        }
        Ok(Pipeline {
            stages,
            collator: context.environment.collator.clone(),
        })
    }

    pub fn collator(&self) -> &Collator {
        &self.collator
    }

    /// The stages of this pipeline followed by those of another one.
    pub fn followed_by(mut self, other: Pipeline) -> Pipeline {
        self.stages.extend(other.stages);
        self
    }

    /// The number of stages after parsing; some stages of the user are two here.
    pub fn len(&self) -> usize {
        self.stages.len()
    }

    /// Whether there are no stages.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Whether the pipeline makes its own documents or describes the collection, so that its input
    /// is not read: `$documents`, `$collStats`, `$indexStats`.
    pub fn has_own_source(&self) -> bool {
        self.stages.first().is_some_and(Stage::is_source)
    }

    /// The number of documents that a `$sample` at the front takes.
    pub fn sample_size(&self) -> Option<u64> {
        match self.stages.first()? {
            Stage::Sample(size) => Some(*size),
            _ => None,
        }
    }

    /// Whether the pipeline begins with `$documents`, which needs no collection at all.
    pub fn has_documents(&self) -> bool {
        matches!(self.stages.first(), Some(Stage::Documents(_)))
    }

    /// The name of the last stage if it writes to a collection: `$out` or `$merge`.
    pub fn writes(&self) -> Option<&'static str> {
        match self.stages.last() {
            Some(Stage::Write(write)) => Some(write.stage),
            _ => None,
        }
    }

    /// Chains the stages behind `input`. Nothing is read before the first call of
    /// [`DocSource::next`]; a pipeline that writes does so then, and gives no documents.
    ///
    /// # Errors
    /// Those of opening other collections; all others come from `next`.
    pub fn execute<E: Fault>(
        &self,
        input: Source<E>,
        context: &ExecContext<E>,
    ) -> Result<Source<E>, E> {
        let mut source = input;
        for stage in &self.stages {
            source = stage.open(source, context)?;
        }
        Ok(source)
    }
}
