//! Plans as `explain` shows them, in MongoDB's shape: a stage inside of a stage.

use std::cell::Cell;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc, key};
use frond_query::Environment;
use frond_query::matcher::{Filter, canonical_conditions, together};
use frond_query::text::TextMatch;

use crate::exec::ExecStats;
use crate::index::spec::ID_INDEX_NAME;
use crate::intervals::conditions::Conditions;
use crate::intervals::{Interval, Intervals, Label};
use crate::keyspace::Direction;
use crate::plan::{Access, IndexAccess};
use crate::text;

/// Bytes that the parts of an explanation may take which grow with the query. The rest, some KiB, fits beside them
/// into a reply of 16 MiB.
const ROOM_BYTES: usize = 15 << 20;

/// Bytes of the bounds of one index scan, as in MongoDB (`internalQueryExplainSizeThresholdBytes`).
const BOUNDS_BYTES_MAX: usize = 10 << 20;

/// About what a stage takes, without its filter and its bounds.
const STAGE_BYTES: usize = 512;

/// The bytes that are left for an explanation.
#[derive(Debug)]
pub struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Room {
        Room(Cell::new(ROOM_BYTES))
    }
}

impl Room {
    /// Takes so many bytes, if they are left.
    fn take(&self, bytes: usize) -> bool {
        let rest = self.0.get().checked_sub(bytes);
        self.0.set(rest.unwrap_or(self.0.get()));
        rest.is_some()
    }

    /// Adds a document to another one; a warning in its place if there is no room for it.
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

/// Says what a stage leaves out.
fn warn(out: &mut DocBuf, text: &str) {
    if !out.contains_key("warning") {
        out.push("warning", text);
    }
}

/// A figure: an int if it fits, else a long.
pub fn int(n: impl TryInto<i64>) -> Value<'static> {
    let n = n.try_into().unwrap_or(i64::MAX);
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

/// What a plan did, if it was run.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// What was looked at.
    pub stats: ExecStats,
    /// Documents returned in the end.
    pub returned: u64,
    /// Time, in milliseconds.
    pub millis: u64,
    /// Documents that an update would change.
    pub modified: u64,
    /// How often the sort wrote to temporary files.
    pub spills: u64,
    /// Bytes that the sort wrote.
    pub spilled_bytes: u64,
}

/// What is done with the documents that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// They are returned.
    Find,
    /// They are counted.
    Count,
    /// They are changed; with `upsert` one is inserted if there is none.
    Update {
        /// Whether to insert.
        upsert: bool,
    },
    /// They are deleted.
    Delete,
}

/// A query as its stages show it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// What it is for.
    pub task: Task,
    /// The filter, as [`frond_query::matcher::canonical`] has it.
    pub filter: &'a Doc,
    /// Whether the query has none of the options with which MongoDB does not take its short way to one `_id`.
    pub by_id_only: bool,
    /// Whether the query named its index.
    pub hinted: bool,
    /// The projection, empty for none.
    pub projection: &'a Doc,
    /// Whether the fields of the index are returned, in place of the projection.
    pub return_key: bool,
    /// The sort that has to be done, empty if the plan is in order.
    pub sort: &'a Doc,
    /// Bytes that a sort may hold.
    pub sort_bytes: usize,
    /// How the query compares strings.
    pub collator: &'a Collator,
    /// How the collection, and so the index on `_id`, compares strings.
    pub id_collator: &'a Collator,
    /// Documents passed over.
    pub skip: u64,
    /// Most documents returned.
    pub limit: Option<u64>,
    /// What was measured.
    pub measured: Option<Measured>,
    /// `$text`, if the filter has it.
    pub text: Option<&'a TextMatch>,
    /// Shared by all stages of the explanation.
    pub room: &'a Room,
}

fn names_other_fields(filter: &Doc) -> bool {
    filter.first().is_some_and(|(name, _)| name != "_id")
}

fn direction_text(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// Begins a stage; with measurements, the figures that every stage has.
fn begin(name: &str, shown: &Shown<'_>, returned: impl FnOnce(&Measured) -> u64) -> DocBuf {
    let mut stage = doc! {"stage": name};
    shown.room.take(STAGE_BYTES);
    if let Some(measured) = &shown.measured {
        let returned = returned(measured);
        let stats = &measured.stats;
        let works = returned.max(stats.keys_examined).max(stats.docs_examined) + 1;
        stage.push("nReturned", int(returned));
        stage.push("executionTimeMillisEstimate", int(measured.millis));
        stage.push("works", int(works));
        stage.push("advanced", int(returned));
        stage.push("needTime", int(works - returned - 1));
        stage.push("needYield", 0);
        stage.push("saveState", 0);
        stage.push("restoreState", 0);
        stage.push("isEOF", 1);
    }
    stage
}

/// All stages of a query, the outermost one first.
pub fn stages(access: &Access, shown: &Shown<'_>) -> DocBuf {
    let only_or = shown.filter.count() == 1 && shown.filter.contains_key("$or");
    let mut inner = query_stages(access, shown);
    if only_or && !shown.hinted && !matches!(access, Access::Eof) {
        let mut outer = begin("SUBPLAN", shown, |measured| measured.returned);
        outer.push("inputStage", &inner);
        inner = outer;
    }
    let name = match shown.task {
        Task::Find => return inner,
        Task::Count => "COUNT",
        Task::Update { .. } => "UPDATE",
        Task::Delete => "DELETE",
    };
    let mut outer = begin(name, shown, |_| 0);
    if let Some(measured) = &shown.measured {
        let found = measured.returned;
        match shown.task {
            Task::Find => {}
            Task::Count => counted(&mut outer, measured, shown.skip),
            Task::Update { upsert } => {
                outer.push("nMatched", int(found));
                outer.push("nWouldModify", int(measured.modified));
                outer.push("nWouldUpsert", i32::from(upsert && found == 0));
            }
            Task::Delete => outer.push("nWouldDelete", int(found)),
        }
    }
    outer.push("inputStage", &inner);
    outer
}

fn counted(stage: &mut DocBuf, measured: &Measured, skip: u64) {
    let skipped = skip.min(measured.stats.passed);
    stage.push("nCounted", int(measured.returned));
    stage.push("nSkipped", int(skipped));
}

/// The stage of a count that asks the counter of the collection.
pub fn counter_stage(shown: &Shown<'_>) -> DocBuf {
    let mut stage = begin("RECORD_STORE_FAST_COUNT", shown, |_| 0);
    if let Some(measured) = &shown.measured {
        counted(&mut stage, measured, shown.skip);
    }
    stage
}

/// The stages that find, order and project.
fn query_stages(access: &Access, shown: &Shown<'_>) -> DocBuf {
    let mut stage = access_stage(access, shown);
    if shown.task != Task::Find && shown.sort.is_empty() {
        // Counting, changing and deleting end by themselves.
        return stage;
    }
    let wrap = |name: &str, inner: &DocBuf, returned: u64, fill: &dyn Fn(&mut DocBuf)| {
        let mut outer = begin(name, shown, |_| returned);
        fill(&mut outer);
        outer.push("inputStage", inner);
        outer
    };
    let passed = shown.measured.map_or(0, |measured| measured.stats.passed);
    let mut returned = passed;
    if !shown.sort.is_empty() {
        let limit = shown.limit.map(|limit| limit.saturating_add(shown.skip));
        returned = limit.map_or(passed, |limit| limit.min(passed));
        stage = wrap("SORT", &stage, returned, &|outer| {
            shown.room.push(outer, "sortPattern", shown.sort);
            outer.push("memLimit", int(shown.sort_bytes));
            if let Some(limit) = limit {
                outer.push("limitAmount", int(limit));
            }
            outer.push("type", "simple");
            if let Some(measured) = &shown.measured {
                outer.push("usedDisk", measured.spills > 0);
                outer.push("spills", int(measured.spills));
                outer.push("spilledDataStorageSize", int(measured.spilled_bytes));
            }
        });
    }
    if shown.skip > 0 {
        returned = returned.saturating_sub(shown.skip);
        stage = wrap("SKIP", &stage, returned, &|outer| {
            outer.push("skipAmount", int(shown.skip));
        });
    }
    let returned = shown.measured.map_or(0, |measured| measured.returned);
    if let Some(limit) = shown.limit
        && shown.sort.is_empty()
    {
        stage = wrap("LIMIT", &stage, returned, &|outer| {
            outer.push("limitAmount", int(limit));
        });
    }
    if shown.return_key {
        return wrap("RETURN_KEY", &stage, returned, &|_| ());
    }
    if !shown.projection.is_empty() {
        let is_covered = matches!(access, Access::Index(access) if access.covered);
        let is_simple = shown.projection.iter().all(|(name, value)| {
            !name.contains('.') && (value.is_number() || matches!(value, Value::Bool(_)))
        });
        let name = match (is_covered, is_simple) {
            (true, _) => "PROJECTION_COVERED",
            (false, true) => "PROJECTION_SIMPLE",
            (false, false) => "PROJECTION_DEFAULT",
        };
        stage = wrap(name, &stage, returned, &|outer| {
            shown.room.push(outer, "transformBy", shown.projection);
        });
    }
    stage
}

/// The stages that find documents.
pub fn access_stage(access: &Access, shown: &Shown<'_>) -> DocBuf {
    let passed = |measured: &Measured| measured.stats.passed;
    let docs_examined = |stage: &mut DocBuf| {
        if let Some(measured) = &shown.measured {
            stage.push("docsExamined", int(measured.stats.docs_examined));
        }
    };
    match access {
        Access::Eof => begin("EOF", shown, |_| 0),
        Access::CollScan(direction) => {
            let mut stage = begin("COLLSCAN", shown, passed);
            if !shown.filter.is_empty() {
                shown.room.push(&mut stage, "filter", shown.filter);
            }
            stage.push("direction", direction_text(*direction));
            docs_examined(&mut stage);
            stage
        }
        Access::Id(_) if !shown.by_id_only || names_other_fields(shown.filter) => {
            let mut scan = begin("IXSCAN", shown, |measured| measured.stats.docs_examined);
            let conditions = canonical_conditions(shown.filter);
            let of_id = |one: &&DocBuf| one.get_doc("_id").is_some_and(|c| c.contains_key("$eq"));
            let parsed = conditions.iter().find(of_id);
            let parsed = parsed.map(|one| Filter::parse_collated(one, shown.collator));
            let ranges = match &parsed {
                Some(Ok(filter)) => {
                    Conditions::of(filter.predicates(), shown.id_collator).ranges_of("_id")
                }
                _ => Intervals::all(),
            };
            let bounds = [("_id", &ranges, key::Direction::Ascending)];
            scan.push("keyPattern", &doc! {"_id": 1});
            scan.push("indexName", ID_INDEX_NAME);
            scan.push("isMultiKey", false);
            scan.push("multiKeyPaths", &doc! {"_id": []});
            scan.push("isUnique", true);
            scan.push("isSparse", false);
            scan.push("isPartial", false);
            write_bounds(
                &mut scan,
                Direction::Forward,
                bounds.into_iter(),
                shown,
                shown.id_collator,
            );
            let rest = conditions.iter().filter(|one| !of_id(one)).cloned();
            fetch(scan, &together(rest.collect()), shown)
        }
        Access::Id(_) => {
            let mut stage = begin("IDHACK", shown, passed);
            if let Some(measured) = &shown.measured {
                stage.push("keysExamined", int(measured.stats.keys_examined));
            }
            docs_examined(&mut stage);
            stage
        }
        Access::IdRange {
            ranges, direction, ..
        } => {
            let mut scan = begin("IXSCAN", shown, |measured| measured.stats.docs_examined);
            let bounds = [("_id", ranges, key::Direction::Ascending)];
            scan.push("keyPattern", &doc! {"_id": 1});
            scan.push("indexName", ID_INDEX_NAME);
            push_collation(&mut scan, shown.id_collator);
            scan.push("isMultiKey", false);
            scan.push("multiKeyPaths", &doc! {"_id": []});
            scan.push("isUnique", true);
            scan.push("isSparse", false);
            scan.push("isPartial", false);
            write_bounds(
                &mut scan,
                *direction,
                bounds.into_iter(),
                shown,
                shown.id_collator,
            );
            let rest = if access.is_exact() {
                DocBuf::new()
            } else {
                rest_of(shown, shown.id_collator, |path| path == "_id")
            };
            fetch(scan, &rest, shown)
        }
        Access::Index(access) if shown.task == Task::Count && access.exact => {
            index_scan(access, "COUNT_SCAN", shown)
        }
        Access::Index(access) => {
            let scan = index_scan(access, "IXSCAN", shown);
            if access.reads_no_documents() {
                return scan;
            }
            let is_text =
                (access.index.spec.method.as_ref()).is_some_and(|method| method.text().is_some());
            if let Some(text) = shown.text.filter(|_| is_text) {
                let others = canonical_conditions(shown.filter).into_iter();
                let others = others.filter(|one| !one.contains_key("$text"));
                let stage = fetch(scan, &together(others.collect()), shown);
                return text_match(text, access, &stage, shown);
            }
            let rest = if access.exact {
                DocBuf::new()
            } else if access.multikey.is_empty() && access.expanded.is_none() {
                let spec = &access.index.spec;
                rest_of(shown, &spec.collator, |path| {
                    spec.value_fields().any(|field| field.path == path)
                })
            } else {
                shown.filter.to_owned()
            };
            fetch(scan, &rest, shown)
        }
        Access::Near(access) => {
            let spec = &access.scan.index.spec;
            let mut stage = begin(access.field.stage(), shown, passed);
            stage.push("keyPattern", &spec.key);
            stage.push("indexName", spec.name.as_str());
            stage.push("indexVersion", 2);
            let scan = index_scan(&access.scan, "IXSCAN", shown);
            // The index finds what is near; the other conditions are left.
            let conditions = canonical_conditions(shown.filter).into_iter();
            let asks_near = |one: &DocBuf| {
                let environment = Environment {
                    collator: shown.collator,
                    ..Environment::default()
                };
                Filter::parse_with(one, &environment).is_ok_and(|filter| filter.near().is_some())
            };
            let rest = together(conditions.filter(|one| !asks_near(one)).collect());
            let inner = fetch(scan, &rest, shown);
            stage.push_array("inputStages", |stages| stages.push(&inner));
            stage
        }
        Access::Or(branches) => {
            // The figures are those of the union: branches are not measured one by one.
            let unmeasured = Shown {
                measured: None,
                filter: Doc::empty(),
                ..*shown
            };
            let mut union = begin("OR", shown, |measured| {
                measured.stats.docs_examined - measured.stats.dups_dropped
            });
            if let Some(measured) = &shown.measured {
                union.push("dupsDropped", int(measured.stats.dups_dropped));
            }
            union.push_array("inputStages", |stages| {
                for branch in branches {
                    if !shown.room.take(STAGE_BYTES) {
                        let text = "stats tree exceeded BSON size limit for explain";
                        stages.push(&doc! {"warning": text});
                        break;
                    }
                    let stage = match branch {
                        Access::Index(access) => index_scan(access, "IXSCAN", &unmeasured),
                        other => access_stage(other, &unmeasured),
                    };
                    stages.push(&stage);
                }
            });
            fetch(union, shown.filter, shown)
        }
    }
}

/// The stage of `$text` around the one that reads the documents.
fn text_match(text: &TextMatch, access: &IndexAccess, input: &DocBuf, shown: &Shown<'_>) -> DocBuf {
    let mut stage = begin("TEXT_MATCH", shown, |measured| measured.stats.passed);
    let mut prefix = DocBuf::new();
    let fields = access.index.spec.fields.iter().zip(&access.bounds.fields);
    for (field, ranges) in fields.take_while(|(field, _)| field.path != "_fts") {
        if let Some(value) = ranges.as_slice().last().and_then(Interval::value) {
            prefix.push_value(&field.path, &value);
        }
    }
    shown.room.push(&mut stage, "indexPrefix", &prefix);
    stage.push("indexName", access.index.spec.name.as_str());
    (shown.room).push(&mut stage, "parsedTextQuery", &text.describe());
    stage.push("textIndexVersion", 3);
    stage.push("inputStage", input);
    stage
}

/// The conditions of a filter that bounds on the paths of an index, which has no arrays, do not say
/// exactly.
fn rest_of(shown: &Shown<'_>, collator: &Collator, has: impl Fn(&str) -> bool) -> DocBuf {
    let said = |one: &DocBuf| {
        Filter::parse_collated(one, shown.collator)
            .is_ok_and(|filter| Conditions::of(filter.predicates(), collator).are_exact_for(&has))
    };
    let conditions = canonical_conditions(shown.filter);
    together(conditions.into_iter().filter(|one| !said(one)).collect())
}

/// A stage that reads the documents that `input` names, and filters them.
fn fetch(input: DocBuf, filter: &Doc, shown: &Shown<'_>) -> DocBuf {
    let mut stage = begin("FETCH", shown, |measured| measured.stats.passed);
    if !filter.is_empty() {
        shown.room.push(&mut stage, "filter", filter);
    }
    if let Some(measured) = &shown.measured {
        stage.push("docsExamined", int(measured.stats.docs_examined));
        stage.push("alreadyHasObj", 0);
    }
    stage.push("inputStage", &input);
    stage
}

fn index_scan(access: &IndexAccess, name: &str, shown: &Shown<'_>) -> DocBuf {
    let spec = &access.index.spec;
    let mut stage = begin(name, shown, |measured| {
        if access.reads_no_documents() || name == "COUNT_SCAN" {
            measured.stats.passed
        } else {
            measured.stats.docs_examined
        }
    });
    if access.reads_no_documents() && !access.exact && !shown.filter.is_empty() {
        shown.room.push(&mut stage, "filter", shown.filter);
    }
    let shown_key = access
        .expanded
        .as_ref()
        .map_or(&spec.key, |expanded| &expanded.key);
    stage.push("keyPattern", shown_key);
    stage.push("indexName", spec.name.as_str());
    push_collation(&mut stage, &spec.collator);
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
    if spec.clustering {
        stage.push("isClustering", true);
    }
    let parts = parts.into_iter().zip(&access.bounds.fields);
    let bounds = parts.map(|((path, direction), ranges)| (path, ranges, direction));
    write_bounds(&mut stage, access.direction, bounds, shown, &spec.collator);
    stage
}

fn write_bounds<'a>(
    stage: &mut DocBuf,
    direction: Direction,
    fields: impl Iterator<Item = (&'a str, &'a Intervals, key::Direction)>,
    shown: &Shown<'_>,
    collator: &Collator,
) {
    stage.push("indexVersion", 2);
    stage.push("direction", direction_text(direction));
    match bounds_within(fields, direction, shown.room.0.get(), collator) {
        Some(bounds) => shown.room.push(stage, "indexBounds", &bounds),
        None => warn(
            stage,
            "index bounds omitted due to BSON size limit for explain",
        ),
    }
    if let Some(measured) = &shown.measured {
        stage.push("keysExamined", int(measured.stats.keys_examined));
        stage.push("seeks", int(measured.stats.seeks));
        stage.push("dupsTested", 0);
        stage.push("dupsDropped", int(measured.stats.dups_dropped));
    }
}

/// The bounds of an index scan as text, unless they take more than `room` bytes.
fn bounds_within<'a>(
    fields: impl Iterator<Item = (&'a str, &'a Intervals, key::Direction)>,
    direction: Direction,
    room: usize,
    collator: &Collator,
) -> Option<DocBuf> {
    let mut room = room.min(BOUNDS_BYTES_MAX);
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
            room = room.checked_sub(text.len() + 16)?;
            list.push(text.as_str());
        }
        bounds.push(path, &list);
    }
    Some(bounds)
}

/// The collation of an index, unless it is the simple one.
fn push_collation(stage: &mut DocBuf, collator: &Collator) {
    if let Some(collation) = collator.spec() {
        stage.push("collation", collation);
    }
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
