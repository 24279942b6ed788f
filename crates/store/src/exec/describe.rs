//! Operators as `explain` shows them, in MongoDB's shape: a stage inside of a stage, in one walk over the tree.

use std::cell::Cell;
use std::sync::Arc;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc, key};
use frond_query::Environment;
use frond_query::matcher::{Filter, canonical_conditions, together};

use super::stats::OperatorStats;
use crate::plan::IndexAccess;
use crate::plan::residual::{Checked, checked, is_said_by_id};
use frond_storage::intervals::{Interval, Intervals, Label};
use frond_storage::keyspace::Direction;
use frond_storage::record_layout::PartitionId;
use frond_storage::text;

/// Maximum bytes of the parts of an explanation that grow with the query. The rest, some KiB, fits beside them
/// into a reply of 16 MiB.
const BUDGET_BYTES: usize = 15 << 20;

/// Bytes of the bounds of one index scan, as in MongoDB (`internalQueryExplainSizeThresholdBytes`).
const BOUNDS_BYTES_MAX: usize = 10 << 20;

/// Approximate bytes of a stage without its filter and its bounds.
const STAGE_BYTES: usize = 512;

/// The bytes that are left for an explanation.
#[derive(Debug)]
pub struct ExplainBudget(Cell<usize>);

impl Default for ExplainBudget {
    fn default() -> ExplainBudget {
        ExplainBudget(Cell::new(BUDGET_BYTES))
    }
}

impl ExplainBudget {
    /// Takes `bytes`, if they are left.
    fn take(&self, bytes: usize) -> bool {
        let rest = self.0.get().checked_sub(bytes);
        self.0.set(rest.unwrap_or(self.0.get()));
        rest.is_some()
    }

    /// Adds a document to another one; a warning in its place if the budget does not cover it.
    pub fn push(&self, out: &mut DocBuf, name: &str, part: &Doc) {
        if self.take(part.len_bytes()) {
            out.push(name, part);
        } else {
            warn(
                out,
                &format!("'{name}' has been omitted due to BSON size limit"),
            );
        }
    }
}

/// Warns that a stage leaves something out.
fn warn(out: &mut DocBuf, text: &str) {
    if !out.contains_key("warning") {
        out.push("warning", text);
    }
}

/// A number: an int if it fits, else a long.
pub fn count(n: impl TryInto<i64>) -> Value<'static> {
    let n = n.try_into().unwrap_or(i64::MAX);
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

/// The direction of a scan.
pub fn direction_text(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// Which of the conditions of a query a stage tests.
pub enum Part {
    Nothing,
    All,
    /// Those that are tested on the fields of an entry.
    Keys(Arc<IndexAccess>),
    /// Those that neither the bounds nor the entry decide.
    Documents(Arc<IndexAccess>),
    /// Those that the bounds do not decide.
    BesideBounds(Arc<IndexAccess>),
    /// Those that ranges of `_id` do not decide.
    BesideId,
    /// All but `$text`.
    NotText,
    /// All but `$near`.
    NotNear,
}

/// A query as its stages show it.
pub struct Describer<'a> {
    /// The filter, as [`frond_query::matcher::canonical`] has it.
    pub filter: &'a Doc,
    /// The order that was asked for.
    pub sort: &'a Doc,
    /// The projection, empty for none.
    pub projection: &'a Doc,
    /// The collation of the query.
    pub collator: &'a Collator,
    /// The collation of the collection, and so of the index on `_id`.
    pub id_collator: &'a Collator,
    /// The partitions that the query reads, if the collection has some.
    pub partitions: &'a [PartitionId],
    /// Whether the stages have run, so that they have statistics.
    pub executed: bool,
    /// Shared by all stages of the explanation.
    pub budget: &'a ExplainBudget,
}

impl Describer<'_> {
    /// Takes the bytes of a further stage, if they are left.
    pub fn takes_stage(&self) -> bool {
        self.budget.take(STAGE_BYTES)
    }

    /// Begins a stage; if it has run, with the statistics that every stage has.
    pub fn begin(&self, name: &str, stats: &OperatorStats, works: u64) -> DocBuf {
        let mut stage = doc! {"stage": name};
        self.takes_stage();
        if self.executed {
            // A stage that returned more rows than its inputs worked for each of them.
            let works = works.max(stats.advanced);
            stage.push("nReturned", count(stats.advanced));
            let millis = stats.time.as_millis();
            stage.push("executionTimeMillisEstimate", count(millis));
            stage.push("works", count(works + u64::from(stats.ended)));
            stage.push("advanced", count(stats.advanced));
            stage.push("needTime", count(works - stats.advanced));
            stage.push("needYield", 0);
            stage.push("saveState", 0);
            stage.push("restoreState", 0);
            stage.push("isEOF", i32::from(stats.ended));
        }
        stage
    }

    /// Adds the conditions that a stage tests, if there are any.
    pub fn push_filter(&self, stage: &mut DocBuf, part: &Part) {
        let checks = |access: &IndexAccess, kept: &[Checked]| {
            self.conditions(|one| {
                let filter = Filter::parse_collated(one, self.collator);
                let place = filter.map(|filter| checked(filter.predicates(), access));
                kept.contains(&place.unwrap_or(Checked::OnDocument))
            })
        };
        let kept = match part {
            Part::Nothing => return,
            Part::All => self.filter.to_owned(),
            Part::Keys(access) => checks(access, &[Checked::OnEntry]),
            Part::Documents(access) => checks(access, &[Checked::OnDocument]),
            Part::BesideBounds(access) => checks(access, &[Checked::OnEntry, Checked::OnDocument]),
            Part::BesideId => self.conditions(|one| {
                !Filter::parse_collated(one, self.collator)
                    .is_ok_and(|filter| is_said_by_id(filter.predicates(), self.id_collator))
            }),
            Part::NotText => self.conditions(|one| !one.contains_key("$text")),
            Part::NotNear => self.conditions(|one| {
                let environment = Environment {
                    collator: self.collator,
                    ..Environment::default()
                };
                !Filter::parse_with(one, &environment).is_ok_and(|filter| filter.near().is_some())
            }),
        };
        if !kept.is_empty() {
            self.budget.push(stage, "filter", &kept);
        }
    }

    fn conditions(&self, keep: impl Fn(&Doc) -> bool) -> DocBuf {
        let conditions = canonical_conditions(self.filter).into_iter();
        together(conditions.filter(|one| keep(one)).collect())
    }

    /// Adds the collation of an index, unless it is the simple one.
    pub fn push_collation(&self, stage: &mut DocBuf, collator: &Collator) {
        if let Some(collation) = collator.spec() {
            stage.push("collation", collation);
        }
    }

    /// Adds which index a scan reads, and its bounds.
    pub fn push_index(&self, stage: &mut DocBuf, access: &IndexAccess) {
        let spec = &access.index.spec;
        let shown_key = access
            .expanded
            .as_ref()
            .map_or(&spec.key, |expanded| &expanded.key);
        stage.push("keyPattern", shown_key);
        stage.push("indexName", spec.name.as_str());
        self.push_collation(stage, &spec.collator);
        stage.push("isMultiKey", !access.multikey.is_empty());
        let parts: Vec<(&str, key::Direction)> = match &access.expanded {
            Some(expanded) => {
                let fields = expanded.fields.iter();
                fields
                    .map(|field| (field.path.as_str(), field.direction))
                    .collect()
            }
            None => {
                let fields = spec.fields.iter();
                fields
                    .map(|field| (field.path.as_str(), field.direction))
                    .collect()
            }
        };
        stage.push_doc("multiKeyPaths", |paths| {
            for (position, (path, _)) in parts.iter().enumerate() {
                let ends = path.match_indices('.').map(|(dot, _)| dot);
                let components = ends.chain([path.len()]).enumerate();
                let arrays: ArrayBuf = components
                    .filter(|(component, _)| access.multikey.contains(position, *component))
                    .map(|(_, end)| Value::String(path.get(..end).unwrap_or(path)))
                    .collect();
                paths.push(path, &arrays);
            }
        });
        stage.push("isUnique", spec.unique);
        stage.push("isSparse", spec.sparse);
        stage.push("isPartial", spec.partial.is_some());
        if let Some(partitions) = &access.partitions {
            let of_index = spec.records.partitions();
            let is_read = |id: &&PartitionId| {
                partitions
                    .iter()
                    .any(|(first, last)| first <= *id && *id <= last)
            };
            let shown: ArrayBuf = (of_index.into_iter())
                .flat_map(|all| {
                    let read = self.partitions.iter().filter(is_read);
                    read.map(|id| all.shown(*id))
                })
                .collect();
            stage.push("partitions", &shown);
        }
        if spec.clustering {
            stage.push("isClustering", true);
        }
        let parts = parts.into_iter().zip(&access.bounds.fields);
        let bounds = parts.map(|((path, direction), ranges)| (path, ranges, direction));
        self.push_bounds(stage, access.direction, bounds, &spec.collator);
    }

    /// Adds the bounds of a scan, by field.
    pub fn push_bounds<'a>(
        &self,
        stage: &mut DocBuf,
        direction: Direction,
        fields: impl Iterator<Item = (&'a str, &'a Intervals, key::Direction)>,
        collator: &Collator,
    ) {
        stage.push("indexVersion", 2);
        stage.push("direction", direction_text(direction));
        match bounds_within(fields, direction, self.budget.0.get(), collator) {
            Some(bounds) => self.budget.push(stage, "indexBounds", &bounds),
            None => warn(
                stage,
                "index bounds omitted due to BSON size limit for explain",
            ),
        }
    }

    /// Adds the statistics of an index scan, if it has run.
    pub fn push_scan_stats(&self, stage: &mut DocBuf, stats: &OperatorStats) {
        if self.executed {
            stage.push("keysExamined", count(stats.keys_examined));
            stage.push("seeks", count(stats.seeks));
            stage.push("dupsTested", count(stats.dups_tested));
            stage.push("dupsDropped", count(stats.dups_dropped));
        }
    }
}

/// The bounds of an index scan as text, unless they take more than `budget` bytes.
fn bounds_within<'a>(
    fields: impl Iterator<Item = (&'a str, &'a Intervals, key::Direction)>,
    direction: Direction,
    budget: usize,
    collator: &Collator,
) -> Option<DocBuf> {
    let mut budget = budget.min(BOUNDS_BYTES_MAX);
    let mut bounds = DocBuf::new();
    for (path, ranges, stored) in fields {
        let falling = (stored == key::Direction::Descending) != (direction == Direction::Backward);
        let ranges = ranges.as_slice();
        let mut list = ArrayBuf::new();
        for at in 0..ranges.len() {
            let at = if falling { ranges.len() - 1 - at } else { at };
            let text = ranges
                .get(at)
                .map(|one| interval_text(one, falling, collator))?;
            // Each element also has a type, a number as its name, a length and two zero bytes.
            budget = budget.checked_sub(text.len() + 16)?;
            list.push(text.as_str());
        }
        bounds.push(path, &list);
    }
    Some(bounds)
}

/// A string as an index with a collation holds it.
fn collation_key(text: &str, collator: &Collator) -> String {
    let mut key = Vec::new();
    collator.sort_key(text, &mut key);
    format!("CollationKey(0x{})", frond_bson::hex(&key))
}

/// An interval as `(5, inf.0]`; `falling` begins with the upper end.
pub fn interval_text(interval: &Interval, falling: bool, collator: &Collator) -> String {
    let end = |label: &Label| match label {
        Label::Value { value, .. }
            if !collator.is_binary()
                && value.as_value().is_string()
                && let Some(text) = value.as_value().characters() =>
        {
            collation_key(&text, collator)
        }
        Label::Value { value, .. } => text::value(value.as_value()),
        Label::Edge { text, .. } => (*text).to_owned(),
    };
    let (first, last) = if falling {
        (&interval.high_label, &interval.low_label)
    } else {
        (&interval.low_label, &interval.high_label)
    };
    let open = if first.inclusive() { '[' } else { '(' };
    let close = if last.inclusive() { ']' } else { ')' };
    format!("{open}{}, {}{close}", end(first), end(last))
}
