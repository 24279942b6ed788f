//! The prefix of a pipeline that a collection can execute with its indexes: filter, sort, skip and limit.

use super::Pipeline;
use super::stages::{Stage, transform::Transform};
use crate::matcher::Filter;
use crate::meta::MetaFields;
use crate::paths::Path;
use crate::required_fields::RequiredFields;
use frond_bson::{ArrayBuf, DocBuf};
use frond_error::{Error, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The beginning of a pipeline as a query.
#[derive(Clone, Debug)]
pub struct Front {
    /// The filter of all `$match` stages at the front, with the values of variables in it.
    pub filter: Filter,
    /// The same filter as it was written; empty if there is none.
    pub spec: DocBuf,
    /// The order of a `$sort` after them.
    pub sort: Option<DocBuf>,
    /// Documents to leave out after sorting.
    pub skip: u64,
    /// Documents to give at most, after skipping; unlike in a `find`, 0 gives none.
    pub limit: Option<u64>,
    /// Number of `$match` stages that were taken; some may have been moved forward.
    pub matches: usize,
}

impl Front {
    /// Whether all documents are requested, in any order.
    pub fn is_everything(&self) -> bool {
        self.filter.is_empty() && self.sort.is_none() && self.skip == 0 && self.limit.is_none()
    }
}

impl Pipeline {
    /// Splits off the leading stages that a collection can execute itself. Running the
    /// rest over the result of the query is the same as running the whole pipeline.
    ///
    /// A `$match` behind a `$sort` goes before it. A pipeline with a source of its own has no front.
    pub fn split_front(self) -> (Front, Pipeline) {
        self.optimized().split()
    }

    fn split(self) -> (Front, Pipeline) {
        let mut front = Front {
            filter: Filter::all(),
            spec: DocBuf::new(),
            sort: None,
            skip: 0,
            limit: None,
            matches: 0,
        };
        if self.has_own_source() {
            return (front, self);
        }
        if let Some(Stage::GeoNear(near)) = self.stages.first() {
            // Later stages may read the distances that the stage writes.
            if let Some((filter, spec)) = near.front() {
                (front.filter, front.spec) = (filter, spec);
            }
            return (front, self.limited_sorts());
        }
        let mut filters = Vec::new();
        let mut taken = 0;
        for stage in &self.stages {
            let ranged = front.skip > 0 || front.limit.is_some();
            match stage {
                Stage::Filter(filter) if !ranged => filters.push(&**filter),
                // The order of the last sort holds; one before it only breaks ties.
                Stage::Sort(sort) if front.sort.is_none() && !ranged => {
                    front.sort = Some(sort.spec.clone());
                    front.limit = sort.limit;
                }
                Stage::Skip(count) => match front.skip.checked_add(*count) {
                    Some(skip) => {
                        front.skip = skip;
                        front.limit = front.limit.map(|limit| limit.saturating_sub(*count));
                    }
                    None => break,
                },
                Stage::Limit(count) => {
                    front.limit = Some(front.limit.map_or(*count, |limit| limit.min(*count)));
                }
                _ => break,
            }
            taken += 1;
        }
        front.matches = filters.len();
        front.filter = Filter::all_of(filters.iter().map(|stage| &stage.filter));
        front.spec = match &*filters {
            [] => DocBuf::new(),
            [only] => only.spec.clone(),
            several => {
                let mut all = DocBuf::new();
                let branches: ArrayBuf = several.iter().map(|stage| &stage.spec).collect();
                all.push("$and", &branches);
                all
            }
        };
        let rest = Pipeline {
            stages: self.stages.into_iter().skip(taken).collect(),
            collator: self.collator,
        };
        (front, rest.limited_sorts())
    }

    /// The path that a `$geoNear` at the front names; `Some(None)` if it names none, `None` if there is no
    /// such stage.
    pub fn geo_near_key(&self) -> Option<Option<&str>> {
        match self.stages.first()? {
            Stage::GeoNear(near) => Some(near.key.as_ref().map(Path::as_str)),
            _ => None,
        }
    }

    /// The same pipeline, with the path of the geometries that the `$geoNear` at its front looks at.
    pub fn with_geo_near_key(mut self, path: &str) -> Pipeline {
        if let Some(Stage::GeoNear(near)) = self.stages.first_mut() {
            let mut named = (**near).clone();
            named.key = Some(Path::new(path));
            *near = Arc::new(named);
        }
        self
    }

    /// Passes to each `$sort` how many documents the `$skip` and `$limit` behind it leave, so that it
    /// keeps no more. [`Pipeline::split_front`] does this too.
    pub fn limited_sorts(mut self) -> Pipeline {
        for at in 0..self.stages.len() {
            let Some(Stage::Sort(sort)) = self.stages.get(at) else {
                continue;
            };
            let mut skipped: u64 = 0;
            let mut limit = None;
            for stage in self.stages.iter().skip(at + 1) {
                match stage {
                    Stage::Skip(count) => skipped = skipped.saturating_add(*count),
                    Stage::Limit(count) => {
                        limit = Some(skipped.saturating_add(*count));
                        break;
                    }
                    _ => break,
                }
            }
            if let Some(limit) = limit {
                let limited = Arc::new(sort.limited(limit));
                if let Some(slot) = self.stages.get_mut(at) {
                    *slot = Stage::Sort(limited);
                }
            }
        }
        self
    }

    /// The metadata that the stages read from their input documents with `$meta`.
    ///
    /// # Errors
    /// 40218 and 238 if a stage reads metadata that those before it do not hand on.
    pub fn meta(&self) -> Result<MetaFields> {
        let mut found = MetaFields::default();
        let mut is_lost = false;
        for stage in &self.stages {
            let mut is_blind = is_lost;
            let read = match stage {
                Stage::Sort(sort) => sort.meta(),
                Stage::Group(group) => group.meta(),
                Stage::Transform(transform) => transform.meta(),
                other => {
                    is_blind = true;
                    other.blind_meta()
                }
            };
            if is_blind && !read.is_empty() {
                read.check(!is_lost, !is_lost)?;
                return Err(Error::not_supported(
                    "'$meta' in or behind a stage that does not hand metadata on",
                ));
            }
            found = found | read;
            is_lost |= !matches!(
                stage,
                Stage::Filter(_)
                    | Stage::GeoNear(_)
                    | Stage::Limit(_)
                    | Stage::Skip(_)
                    | Stage::Transform(_)
            );
        }
        Ok(found)
    }

    /// The dotted paths that the stages read from their input documents, if that is known: a plan
    /// that has these fields can leave out the rest. `None` if whole documents are needed.
    ///
    /// No path leads to or below another one in the result.
    pub fn needed_fields(&self) -> Option<BTreeSet<String>> {
        let mut required = RequiredFields::none();
        let mut ends = false;
        for stage in &self.stages {
            let mut found = |path: String| required.add(&path);
            match stage {
                Stage::Filter(stage) => required.extend(&stage.filter.required_fields()),
                Stage::Sort(sort) => {
                    let paths = sort.spec.iter().filter(|(_, order)| order.is_number());
                    paths.for_each(|(path, _)| required.add(path));
                }
                Stage::Limit(_) | Stage::Skip(_) | Stage::Sample(_) => {}
                Stage::Unwind(unwind) => found(unwind.path()),
                Stage::Lookup(lookup) | Stage::LookupUnwind(lookup, _) => {
                    lookup.reads(&mut found);
                }
                Stage::Group(group) => {
                    group.reads(&mut found);
                    ends = true;
                }
                Stage::BucketAuto(buckets) => {
                    buckets.reads(&mut found);
                    ends = true;
                }
                Stage::GraphLookup(lookup) => lookup.reads(&mut found),
                Stage::SetWindowFields(window) => window.reads(&mut found),
                Stage::Transform(transform) => match &**transform {
                    Transform::Project(projection) if projection.is_inclusion() => {
                        projection.needed_paths()?.into_iter().for_each(&mut found);
                        ends = true;
                    }
                    Transform::Project(_) => {}
                    Transform::Add(fields) => fields.reads(&mut found),
                    Transform::Replace(node, _) => {
                        node.fields(&mut |path| found(path.dotted()));
                        ends = true;
                    }
                },
                _ => return None,
            }
            if ends || required.is_whole() {
                return required.into_set();
            }
        }
        None
    }
}
