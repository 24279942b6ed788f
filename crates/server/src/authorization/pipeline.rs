//! The privileges that a pipeline needs: each stage names what it reads or writes.

use std::borrow::Cow;

use frond_auth::{Action, ActionSet, UserName};
use frond_bson::{Doc, Value};
use frond_error::Result;
use frond_query::aggregate::is_stage;

use super::{Needs, Place, Requested, sole};

/// Stages that make their own documents instead of reading the collection.
const SOURCES: &[&str] = &[
    "$backupStream",
    "$changeStream",
    "$collStats",
    "$currentOp",
    "$documents",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$shardedDataDistribution",
];

/// Stages that see nothing but the documents of the stage before.
const PURE: &[&str] = &[
    "$addFields",
    "$bucket",
    "$bucketAuto",
    "$changeStreamSplitLargeEvent",
    "$count",
    "$densify",
    "$documents",
    "$fill",
    "$geoNear",
    "$group",
    "$limit",
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$search",
    "$searchMeta",
    "$set",
    "$setWindowFields",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unset",
    "$unwind",
    "$vectorSearch",
];

/// The collection of a pipeline that has none.
pub const NO_COLLECTION: &str = "$cmd.aggregate";

/// The privileges that a pipeline over a collection of the command's database needs.
///
/// # Errors
/// If a stage has a field twice.
pub fn of_pipeline<'a>(
    request: &Requested<'a>,
    collection: Cow<'a, str>,
    stages: &'a Doc,
) -> Result<Needs<'a>> {
    let mut pipeline = Pipeline {
        user: request.user,
        bypasses_validation: request.bypasses_validation(),
        needs: Vec::new(),
    };
    pipeline.read(
        Place::collection(request.db, collection),
        request.db,
        stages,
    )?;
    Ok(Needs::all(pipeline.needs))
}

/// The privileges needed to define the view that the command's first field names. A user who may read the view must be
/// able to read its sources.
///
/// # Errors
/// As for a pipeline.
pub fn of_view<'a>(request: &Requested<'a>, source: &'a str, stages: &'a Doc) -> Result<Needs<'a>> {
    let reading = Needs::on_collection(request, Action::Find)?;
    let shown = of_pipeline(request, source.into(), stages)?;
    Ok(shown.if_allowed(reading))
}

struct Pipeline<'a> {
    user: Option<&'a UserName>,
    bypasses_validation: bool,
    needs: Vec<Needs<'a>>,
}

impl<'a> Pipeline<'a> {
    /// A pipeline over a collection of a database.
    fn read(&mut self, here: Place<'a>, db: &'a str, stages: &'a Doc) -> Result<()> {
        let first = stages.values().next().and_then(|stage| stage.as_doc());
        let makes_own = first
            .and_then(Doc::first)
            .is_some_and(|(name, _)| SOURCES.contains(&name));
        if !makes_own {
            self.add(here.clone(), Action::Find);
        }
        self.stages(&here, db, stages)
    }

    fn add(&mut self, place: Place<'a>, actions: impl Into<ActionSet>) {
        let needs = Needs::on(place, actions);
        if !self.needs.contains(&needs) {
            self.needs.push(needs);
        }
    }

    fn stages(&mut self, here: &Place<'a>, db: &'a str, stages: &'a Doc) -> Result<()> {
        for stage in stages.values().filter_map(|stage| stage.as_doc()) {
            for (name, spec) in stage.iter() {
                self.stage(here, db, name, spec)?;
            }
        }
        Ok(())
    }

    fn stage(&mut self, here: &Place<'a>, db: &'a str, name: &str, spec: Value<'a>) -> Result<()> {
        match name {
            _ if PURE.contains(&name) => {}
            // The role `backup` has these privileges; a user without the right to read everything does not.
            "$backupStream" => {
                self.add(Place::Cluster, Action::AppendOplogNote);
                self.add(Place::AnyNormal, Action::Find);
                self.add(Place::collection("admin", "system.users"), Action::Find);
            }
            "$changeStream" => {
                let place = match here {
                    Place::Collection(_, name) if name != NO_COLLECTION => here.clone(),
                    _ if db == "admin" => Place::AnyNormal,
                    _ => Place::database(db),
                };
                let reads = [Action::Find, Action::ChangeStream];
                self.add(place, reads);
                if is_set(spec, "allChangesForCluster")? {
                    self.add(Place::AnyNormal, reads);
                }
            }
            "$collStats" => self.add(here.clone(), Action::CollStats),
            "$currentOp" => {
                if is_set(spec, "allUsers")? {
                    self.add(Place::Cluster, Action::Inprog);
                }
            }
            "$facet" => {
                let facets = spec.as_doc().unwrap_or(Doc::empty());
                for facet in facets.values().filter_map(|facet| facet.as_array()) {
                    self.stages(here, db, facet)?;
                }
            }
            "$graphLookup" | "$lookup" => {
                let spec = spec.as_doc().unwrap_or(Doc::empty());
                let from = foreign(db, sole(spec, "from")?)?;
                self.joined(db, from, sole(spec, "pipeline")?)?;
            }
            "$unionWith" => {
                let (from, stages) = match spec {
                    Value::Document(spec) => (sole(spec, "coll")?, sole(spec, "pipeline")?),
                    other => (Some(other), None),
                };
                let from = foreign(db, from)?;
                self.joined(db, from, stages)?;
            }
            "$indexStats" => self.add(here.clone(), Action::IndexStats),
            "$listLocalSessions" | "$listSessions" => {
                if !self.asks_for_own_sessions(spec)? {
                    self.add(Place::Cluster, Action::ListSessions);
                }
            }
            "$listSampledQueries" => self.add(Place::Cluster, Action::ListSampledQueries),
            "$listSearchIndexes" => self.add(here.clone(), Action::ListSearchIndexes),
            "$merge" => {
                let place = written(db, spec, "into")?;
                self.write(place, merge_actions(spec)?);
            }
            "$out" => {
                let place = written(db, spec, "coll")?;
                self.write(place, [Action::Insert, Action::Remove].into());
            }
            "$planCacheStats" => self.add(here.clone(), Action::PlanCacheRead),
            "$querySettings" => self.add(Place::Cluster, Action::QuerySettings),
            "$queryStats" => self.add(Place::Cluster, Action::QueryStatsRead),
            "$shardedDataDistribution" => self.add(Place::Cluster, Action::ShardedDataDistribution),
            // The parser refuses it.
            _ if !is_stage(name) => {}
            // This table lacks a stage.
            _ => self.needs.push(Needs::superuser()),
        }
        Ok(())
    }

    /// The collection and the pipeline of a join.
    fn joined(
        &mut self,
        db: &'a str,
        from: Option<(&'a str, &'a str)>,
        stages: Option<Value<'a>>,
    ) -> Result<()> {
        let stages = stages.and_then(|stages| stages.as_array());
        match (from, stages) {
            (Some((db, name)), stages) => {
                let place = Place::collection(db, name);
                self.read(place, db, stages.unwrap_or(Doc::empty()))
            }
            (None, Some(stages)) => self.read(Place::collection(db, NO_COLLECTION), db, stages),
            (None, None) => Ok(()),
        }
    }

    fn write(&mut self, place: Place<'a>, actions: ActionSet) {
        let actions = if self.bypasses_validation {
            actions.with(Action::BypassDocumentValidation)
        } else {
            actions
        };
        self.add(place, actions);
    }

    fn asks_for_own_sessions(&self, spec: Value<'_>) -> Result<bool> {
        if is_set(spec, "allUsers")? {
            return Ok(false);
        }
        let spec = spec.as_doc().unwrap_or(Doc::empty());
        let Some(users) = sole(spec, "users")? else {
            return Ok(true);
        };
        let is_own = |asked: Value<'_>| {
            let (Some(asked), Some(own)) = (asked.as_doc(), self.user) else {
                return false;
            };
            asked.get_str("user") == Some(&own.name) && asked.get_str("db") == Some(&own.db)
        };
        Ok(users
            .as_array()
            .is_some_and(|users| users.values().all(is_own)))
    }
}

/// Whether a stage has a field that is on.
fn is_set(spec: Value<'_>, field: &str) -> Result<bool> {
    let spec = spec.as_doc().unwrap_or(Doc::empty());
    Ok(sole(spec, field)?.is_some_and(|value| value.truthy()))
}

/// The collection that a join names.
fn foreign<'a>(db: &'a str, from: Option<Value<'a>>) -> Result<Option<(&'a str, &'a str)>> {
    Ok(match from {
        Some(Value::String(name)) => Some((db, name)),
        Some(Value::Document(spec)) => {
            let db = sole(spec, "db")?.and_then(|db| db.as_str()).unwrap_or(db);
            let name = sole(spec, "coll")?.and_then(|name| name.as_str());
            name.map(|name| (db, name))
        }
        _ => None,
    })
}

/// The collection that a stage writes to.
fn written<'a>(db: &'a str, spec: Value<'a>, field: &str) -> Result<Place<'a>> {
    let target = match spec {
        Value::Document(spec) if field == "into" => foreign(db, sole(spec, field)?)?,
        other => foreign(db, Some(other))?,
    };
    let (db, name) = target.unwrap_or((db, ""));
    Ok(Place::collection(db, name))
}

/// The actions of `$merge` on its target collection.
fn merge_actions(spec: Value<'_>) -> Result<ActionSet> {
    let spec = spec.as_doc().unwrap_or(Doc::empty());
    let matched = sole(spec, "whenMatched")?.and_then(|mode| mode.as_str());
    let not_matched = sole(spec, "whenNotMatched")?.and_then(|mode| mode.as_str());
    let updates = matched != Some("fail");
    let inserts = !matches!(not_matched, Some("discard" | "fail"));
    Ok(match (updates, inserts) {
        (true, false) => Action::Update.into(),
        (false, true) => Action::Insert.into(),
        _ => [Action::Insert, Action::Update].into(),
    })
}
