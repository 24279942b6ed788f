//! Runs a pipeline and measures each of its stages, for `explain`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, Value};
use frond_query::aggregate::{DocSource, Pipeline, Source};
use frond_query::meta::Metadata;
use parking_lot::Mutex;

use super::{AggregateRequest, QuerySource, Runner};
use crate::plan::Hint;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::{Error, Result};
use frond_storage::namespace::Namespace;

/// The figures of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageStats {
    /// Documents that it returned.
    pub returned: u64,
    /// The time that it took, including the stages before it.
    pub time: Duration,
}

/// A stage that is measured.
struct Metered {
    source: Source<Error>,
    stage_stats: Arc<Mutex<StageStats>>,
}

impl DocSource<Error> for Metered {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        let start = Instant::now();
        let next = self.source.next();
        let mut stage_stats = self.stage_stats.lock();
        stage_stats.time += start.elapsed();
        stage_stats.returned += u64::from(matches!(next, Ok(Some(_))));
        next
    }

    fn meta(&self) -> Option<&Metadata> {
        self.source.meta()
    }
}

impl DocumentStore {
    /// Runs a pipeline to its end. The first figures are those of the query made from its first stages, the
    /// others those of `behind`, the remaining stages. A stage that would write does not run, and has no figures.
    ///
    /// # Errors
    /// As [`DocumentStore::aggregate`], and those of its cursor.
    pub fn measure_stages(
        &self,
        ns: &Namespace,
        request: &AggregateRequest<'_>,
        behind: &[Value<'_>],
        context: &OpContext,
    ) -> Result<Vec<StageStats>> {
        let collator = self.catalog().collator(ns, request.collation.as_ref());
        let environment = environment(request.variables, &collator);
        let runner = Runner::new(self, ns.db(), request, context);
        let stages = runner.context(Some(ns));
        let pipeline = Pipeline::parse(request.pipeline, &environment)?;
        let pipeline = self.with_geo_near_key(ns, pipeline)?;
        let is_near = pipeline.geo_near_key().is_some();
        let (front, rest) = pipeline.split_front();
        let cursor = runner.query(ns, front, &rest, Hint::parse(request.hint)?)?;
        let mut source: Source<Error> = Box::new(QuerySource::new(cursor, runner.limits.clone()));
        if is_near {
            // The stage computes distances, so it is part of the query.
            let first: Vec<_> = request.pipeline.values().take(1).collect();
            source = self
                .near_stage(ns, &first, &environment)?
                .execute(source, &stages)?;
        }
        let mut stage_stats = Vec::with_capacity(behind.len() + 1);
        let mut metered = |source: Source<Error>| -> Source<Error> {
            let of_stage = Arc::new(Mutex::new(StageStats::default()));
            stage_stats.push(of_stage.clone());
            Box::new(Metered {
                source,
                stage_stats: of_stage,
            })
        };
        source = metered(source);
        for stage in behind {
            // Each stage is parsed by itself, so that the figures belong to the stages as they are shown.
            let one = Pipeline::parse_stages(stage.as_doc().as_slice(), &environment)?;
            if one.writes().is_some() {
                break;
            }
            source = metered(one.execute(source, &stages)?);
        }
        while source.next()?.is_some() {
            runner.limits.get().check()?;
        }
        Ok(stage_stats
            .iter()
            .map(|stage_stats| *stage_stats.lock())
            .collect())
    }

    /// A pipeline of a `$geoNear` only.
    fn near_stage(
        &self,
        ns: &Namespace,
        stage: &[Value<'_>],
        environment: &frond_query::Environment<'_>,
    ) -> Result<Pipeline> {
        let stage: Vec<_> = stage.iter().filter_map(Value::as_doc).collect();
        let pipeline = Pipeline::parse_stages(&stage, environment)?;
        Ok(self.with_geo_near_key(ns, pipeline)?.split_front().1)
    }
}
