//! `$match`.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, Fault, Source};
use crate::matcher::Filter;
use crate::meta::Metadata;
use frond_bson::{DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$match: <filter>}`.
#[derive(Debug)]
pub(crate) struct Match {
    pub(crate) spec: DocBuf,
    pub(crate) filter: Filter,
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            15959,
            "the match filter must be an expression in an object",
        ));
    };
    out.push(Stage::Filter(Arc::new(Match {
        spec: spec.to_owned(),
        filter: Filter::parse_in_pipeline(spec, &context.environment)?,
    })));
    Ok(())
}

pub(super) fn open<E: Fault>(stage: &Arc<Match>, input: Source<E>) -> Source<E> {
    Box::new(Matching {
        stage: stage.clone(),
        input,
    })
}

struct Matching<E> {
    stage: Arc<Match>,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Matching<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        while let Some(doc) = self.input.next()? {
            if self.stage.filter.try_matches(&doc)? {
                return Ok(Some(doc));
            }
        }
        Ok(None)
    }

    fn meta(&self) -> Option<&Metadata> {
        self.input.meta()
    }
}
