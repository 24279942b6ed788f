//! From a plan to the documents that pass the filter.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use frond_bson::{Doc, DocBuf, Value};
use frond_query::error::ErrorCode;
use frond_query::matcher::Filter;
use frond_query::meta::{MetaField, MetaFields, Metadata};
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;

use super::ExecStats;
use super::key_scan::KeyScan;
use super::near::{NearSearch, Place};
use crate::catalog::Collection;
use crate::context::OpContext;
use crate::error::{Result, command, corrupt};
use crate::index::entry::{self, EntryParts};
use crate::index::{Index, covered};
use crate::intervals::Intervals;
use crate::keyspace::{Direction, Snapshot};
use crate::plan::required_fields;
use crate::plan::{Access, IndexAccess, primary_range};
use crate::record::field_set::{EVERYTHING, FieldSet};
use crate::record::{self, load};

/// Most bytes that an operation keeps to recognise documents it has seen.
const SEEN_BYTES_MAX: usize = 100 * 1024 * 1024;
/// What one remembered document costs beside its key.
const SEEN_OVERHEAD_BYTES: usize = 48;

/// A document that passed.
#[derive(Debug)]
pub struct Row {
    /// The encoded `_id`: its key in the primary tree. Empty unless it was asked for.
    pub key: Vec<u8>,
    /// The document; of a covered plan only the fields of the index.
    pub doc: DocBuf,
    /// The record of a large document, if keys were asked for. Then `doc` can be a part of it.
    pub stored: Option<Vec<u8>>,
    /// The array element that the filter matched, for the positional operator.
    pub positional: Option<usize>,
    /// The fields of the index that led here; `None` unless they were asked for, and if no index
    /// did.
    pub index_key: Option<DocBuf>,
    /// Its metadata; `None` unless some was asked for.
    pub meta: Option<Box<Metadata>>,
}

/// Where candidates come from.
enum Source {
    Eof,
    /// A key to look up.
    Id(Vec<u8>),
    /// Several keys to look up, in reverse order.
    Ids(Vec<Vec<u8>>),
    /// Documents in the order of `_id`.
    Primary(KeyScan),
    /// Entries of an index.
    Index {
        scan: KeyScan,
        index: Arc<Index>,
        covered: bool,
    },
    /// Around a point, nearest first.
    Near(Box<NearSearch>),
}

/// Documents seen so far, by their keys.
#[derive(Default)]
pub(super) struct Seen {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
}

impl Seen {
    /// Whether the key is new.
    pub(super) fn insert(&mut self, key: &[u8]) -> Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        self.bytes += key.len() + SEEN_OVERHEAD_BYTES;
        if self.bytes > SEEN_BYTES_MAX {
            return Err(command(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!("the query exceeded {SEEN_BYTES_MAX} bytes for telling documents apart"),
            ));
        }
        self.keys.insert(key.into());
        Ok(true)
    }
}

/// What is put together of large documents that pass.
#[derive(Debug)]
pub enum Loading {
    /// All of them.
    Everything,
    /// These fields, and what the sort looks at.
    Shown(Arc<BTreeSet<String>>, Option<SortSpec>),
    /// No more than what the filter and the sort look at.
    ForFilter(Option<SortSpec>),
}

/// What is wanted of large documents: for the filter, and then for the row.
struct Wants {
    filter: FieldSet,
    row: FieldSet,
}

impl Wants {
    fn new(filter: &Filter, loading: &Loading) -> Wants {
        let filter_only = required_fields::of_query(filter, None, []);
        let row = match loading {
            Loading::Everything => EVERYTHING.clone(),
            Loading::ForFilter(None) => filter_only.clone(),
            Loading::Shown(shown, sort) => {
                required_fields::of_query(filter, sort.as_ref(), shown.iter().map(String::as_str))
            }
            Loading::ForFilter(sort) => required_fields::of_query(filter, sort.as_ref(), []),
        };
        Wants {
            filter: filter_only,
            row,
        }
    }
}

/// Pulls documents out of a collection.
pub struct Executor {
    collection: Arc<Collection>,
    snapshot: Snapshot,
    filter: Arc<Filter>,
    /// What the filter has left to say; false if every candidate passes.
    needs_filter: bool,
    /// Whether rows come with their keys.
    keeps_keys: bool,
    /// Whether rows come with their documents.
    wants_docs: bool,
    /// Whether rows come with the fields of their index.
    keeps_index_keys: bool,
    /// The metadata that rows come with.
    meta: MetaFields,
    source: Source,
    /// The branches of a union that are still to come, in reverse order.
    branches: Vec<Access>,
    /// Set if documents can come twice.
    seen: Option<Seen>,
    context: OpContext,
    stats: ExecStats,
    /// The last document that was looked at, for whoever goes on behind it.
    position: Option<Vec<u8>>,
    /// What is put together of large documents.
    loading: Loading,
    /// The same, ready when the first one is met.
    wants: OnceLock<Wants>,
    /// What rows show of their documents, if that is made at once.
    shape: Option<Projection>,
}

/// What a candidate is tested with.
pub(super) struct Test<'a> {
    filter: &'a Filter,
    needs_filter: bool,
    keeps_keys: bool,
    place: load::DocumentReader<'a>,
    loading: &'a Loading,
    wants: &'a OnceLock<Wants>,
    shape: Option<&'a Projection>,
}

impl Test<'_> {
    /// Tests the document of a record.
    pub(super) fn record(&self, key: &[u8], stored: &[u8]) -> Result<Option<Row>> {
        if record::is_in_parts(stored) {
            return self.large(key, stored);
        }
        self.row(key, Doc::from_trusted(stored))
    }

    fn large(&self, key: &[u8], stored: &[u8]) -> Result<Option<Row>> {
        let wants = (self.wants).get_or_init(|| Wants::new(self.filter, self.loading));
        let mut positional = None;
        if self.needs_filter && wants.filter != wants.row {
            let part = self.place.parts(key, stored, &wants.filter)?;
            match self.filter.run(&part)? {
                (false, _) => return Ok(None),
                (true, found) => positional = found,
            }
        }
        let doc = self.place.parts(key, stored, &wants.row)?.into_owned();
        if self.needs_filter && wants.filter == wants.row {
            match self.filter.run(&doc)? {
                (false, _) => return Ok(None),
                (true, found) => positional = found,
            }
        }
        let doc = match self.shape {
            Some(shape) => shape.apply_with(&doc, positional, None)?,
            None => doc,
        };
        let (key, stored) = match self.keeps_keys {
            true => (key.to_vec(), Some(stored.to_vec())),
            false => (Vec::new(), None),
        };
        Ok(Some(Row {
            key,
            doc,
            stored,
            positional,
            index_key: None,
            meta: None,
        }))
    }

    pub(super) fn row(&self, key: &[u8], doc: &Doc) -> Result<Option<Row>> {
        let positional = if self.needs_filter {
            match self.filter.run(doc)? {
                (false, _) => return Ok(None),
                (true, positional) => positional,
            }
        } else {
            None
        };
        Ok(Some(Row {
            key: if self.keeps_keys {
                key.to_vec()
            } else {
                Vec::new()
            },
            doc: match self.shape {
                Some(shape) => shape.apply_with(doc, positional, None)?,
                None => doc.to_owned(),
            },
            stored: None,
            positional,
            index_key: None,
            meta: None,
        }))
    }
}

impl Executor {
    /// Opens the cursors of a plan on a snapshot.
    pub fn open(
        collection: Arc<Collection>,
        snapshot: Snapshot,
        access: Access,
        filter: Arc<Filter>,
        context: OpContext,
    ) -> Result<Executor> {
        let may_repeat = match &access {
            Access::Or(_) => true,
            Access::Index(access) => access.may_repeat,
            _ => false,
        };
        let mut executor = Executor {
            needs_filter: !filter.is_empty() && !access.is_exact(),
            wants_docs: true,
            keeps_keys: false,
            keeps_index_keys: false,
            meta: MetaFields::default(),
            collection,
            snapshot,
            filter,
            source: Source::Eof,
            branches: Vec::new(),
            seen: may_repeat.then(Seen::default),
            context,
            stats: ExecStats::default(),
            position: None,
            loading: Loading::Everything,
            wants: OnceLock::new(),
            shape: None,
        };
        match access {
            Access::Or(mut branches) => {
                branches.reverse();
                executor.branches = branches;
            }
            access => executor.source = executor.open_source(access)?,
        }
        Ok(executor)
    }

    /// Opens a scan of the documents behind a key, or of all; it remembers how far it came.
    pub fn open_behind(
        collection: Arc<Collection>,
        snapshot: Snapshot,
        position: Option<&[u8]>,
        filter: Arc<Filter>,
        context: OpContext,
    ) -> Result<Executor> {
        let mut range = primary_range(collection.primary, Intervals::all(), Direction::Forward);
        // No encoding of a value is the beginning of another one.
        range.interval.low = position.map(|position| [position, &[0]].concat());
        let scan = KeyScan::open(&snapshot, range)?.of_collection();
        let eof = Access::Eof;
        let mut executor = Executor::open(collection, snapshot, eof, filter, context)?;
        executor.needs_filter = !executor.filter.is_empty();
        executor.source = Source::Primary(scan);
        executor.position = Some(Vec::new());
        Ok(executor)
    }

    /// The last document that was looked at, if that is remembered and there was one.
    pub fn position(&self) -> Option<&[u8]> {
        self.position.as_deref().filter(|key| !key.is_empty())
    }

    fn open_source(&mut self, access: Access) -> Result<Source> {
        let primary = self.collection.primary;
        Ok(match access {
            Access::Eof => Source::Eof,
            Access::Id(key) => {
                self.collection.id_uses().add();
                Source::Id(key)
            }
            Access::IdRange {
                ranges, direction, ..
            } if ranges.all_points() => {
                self.collection.id_uses().add();
                Source::Ids(points(&ranges, direction))
            }
            Access::CollScan(direction) => {
                let range = primary_range(primary, Intervals::all(), direction);
                Source::Primary(KeyScan::open(&self.snapshot, range)?.of_collection())
            }
            Access::IdRange {
                ranges, direction, ..
            } => {
                self.collection.id_uses().add();
                self.stats.seeks += 1;
                let range = primary_range(primary, ranges, direction);
                Source::Primary(KeyScan::open(&self.snapshot, range)?)
            }
            Access::Index(access) => {
                access.index.uses().add();
                self.stats.seeks += 1;
                Source::Index {
                    scan: KeyScan::open(&self.snapshot, access.key_range())?,
                    covered: access.covered,
                    index: access.index,
                }
            }
            Access::Near(access) => {
                access.scan.index.uses().add();
                Source::Near(Box::new(NearSearch::new(*access)))
            }
            // A union inside of a union is not planned.
            Access::Or(_) => Source::Eof,
        })
    }

    /// What was looked at so far.
    pub fn stats(&self) -> ExecStats {
        self.stats
    }

    /// From here on rows come without documents, where an index can do without them: for counting.
    pub fn without_docs(mut self) -> Executor {
        self.wants_docs = false;
        self
    }

    /// What is put together of large documents from here on.
    pub fn loading(mut self, loading: Loading) -> Executor {
        self.loading = loading;
        self.wants = OnceLock::new();
        self
    }

    /// From here on rows come with what a projection shows of their documents, which then are not copied before.
    /// Gives the projection back if something else looks at the documents.
    pub fn shaped(mut self, shape: Projection) -> (Executor, Option<Projection>) {
        let is_near = matches!(self.source, Source::Near(_));
        if is_near || !self.meta.is_empty() || self.keeps_index_keys || !shape.meta().is_empty() {
            return (self, Some(shape));
        }
        self.shape = Some(shape);
        (self, None)
    }

    /// From here on rows come with their keys, which a writer needs.
    pub fn with_keys(mut self) -> Executor {
        self.keeps_keys = true;
        self
    }

    /// From here on rows come with the fields of the index that led to them.
    pub fn with_index_keys(mut self) -> Executor {
        self.keeps_index_keys = true;
        self
    }

    /// From here on rows come with this metadata, as far as there is any.
    pub fn with_meta(mut self, meta: MetaFields) -> Executor {
        self.meta = meta;
        self.keeps_index_keys |= meta.has(MetaField::IndexKey);
        self
    }

    /// The metadata of a row.
    fn metadata(&self, row: &Row) -> Result<Metadata> {
        let mut meta = Metadata::default();
        if self.meta.has(MetaField::TextScore)
            && let Some(text) = self.filter.text_match()
        {
            meta.text_score = Some(text.score(&row.doc)?);
        }
        let wants_distance = self.meta.has(MetaField::GeoNearDistance);
        if (wants_distance || self.meta.has(MetaField::GeoNearPoint))
            && let Some((path, near)) = self.filter.near()
            && let Some(nearest) = near.nearest(&row.doc, path)
        {
            meta.geo_near_distance = Some(nearest.distance);
            meta.geo_near_point = Some(nearest.location.to_owned());
        }
        if self.meta.has(MetaField::RandVal) {
            meta.rand_val = Some(rand::random());
        }
        if self.meta.has(MetaField::IndexKey) {
            meta.index_key.clone_from(&row.index_key);
        }
        Ok(meta)
    }

    /// Lets a trial run pause after this much work.
    pub(crate) fn set_work_max(&mut self, work_max: u64) {
        self.stats.work_max = Some(work_max);
    }

    /// Whether a trial run paused.
    pub(crate) fn is_out_of_work(&self) -> bool {
        self.stats.is_out_of_work()
    }

    /// Sets the limits for what follows.
    pub fn set_context(&mut self, context: OpContext) {
        self.context = context;
    }

    /// The snapshot that is read.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The collection that is read.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// The next document that passes.
    ///
    /// # Errors
    /// The limits of the context; errors of the filter and the engine.
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(row) = self.next_of_source()? {
                self.stats.passed += 1;
                return Ok(Some(row));
            }
            if self.is_out_of_work() {
                return Ok(None);
            }
            match self.branches.pop() {
                Some(access) => self.source = self.open_source(access)?,
                None => return Ok(None),
            }
        }
    }

    /// The next row of the source. Where the `_id` is the index, its field is added here.
    fn next_of_source(&mut self) -> Result<Option<Row>> {
        let by_id = self.keeps_index_keys
            && match &self.source {
                Source::Id(_) | Source::Ids(_) => true,
                Source::Primary(scan) => scan.counts_keys(),
                Source::Eof | Source::Index { .. } | Source::Near(_) => false,
            };
        let mut row = self.pull_source()?;
        if by_id && let Some(row) = &mut row {
            let mut fields = DocBuf::new();
            if let Some(id) = row.doc.get("_id") {
                fields.push("_id", id);
            }
            row.index_key = Some(fields);
        }
        if !self.meta.is_empty()
            && let Some(row) = &mut row
        {
            row.meta = Some(Box::new(self.metadata(row)?));
        }
        Ok(row)
    }

    fn pull_source(&mut self) -> Result<Option<Row>> {
        let Executor {
            collection,
            snapshot,
            filter,
            needs_filter,
            keeps_keys,
            wants_docs,
            keeps_index_keys,
            source,
            seen,
            context,
            stats,
            position,
            meta,
            loading,
            wants,
            shape,
            ..
        } = self;
        let everything = Loading::Everything;
        let test = Test {
            filter,
            needs_filter: *needs_filter,
            keeps_keys: *keeps_keys,
            place: collection.document_reader(snapshot),
            // What metadata is made of is not known here.
            loading: if meta.is_empty() {
                loading
            } else {
                &everything
            },
            wants,
            shape: shape.as_ref(),
        };
        let found = match source {
            Source::Eof => return Ok(None),
            Source::Id(key) => {
                let key = std::mem::take(key);
                *source = Source::Eof;
                return look_up(snapshot, collection, &key, &test, seen, stats);
            }
            Source::Ids(keys) => {
                while let Some(key) = keys.pop() {
                    if stats.is_out_of_work() {
                        return Ok(None);
                    }
                    context.step()?;
                    if let Some(row) = look_up(snapshot, collection, &key, &test, seen, stats)? {
                        return Ok(Some(row));
                    }
                }
                None
            }
            Source::Near(search) => {
                let place = Place {
                    snapshot,
                    collection,
                    test: &test,
                    keeps_index_keys: *keeps_index_keys,
                };
                search.next(&place, context, stats)?
            }
            Source::Primary(scan) => scan.next(stats, |key, value, _, stats| {
                context.step()?;
                stats.examine(value);
                if let Some(position) = position {
                    position.clear();
                    position.extend_from_slice(key);
                }
                let row = test.record(key, value)?;
                keep_new(key, row, seen, stats)
            })?,
            Source::Index {
                scan,
                index,
                covered,
            } => scan.next(stats, |key, value, fields_end, stats| {
                context.step()?;
                let parts = if index.spec.unique {
                    entry::split_at(&index.spec, key, value, key.len())
                } else {
                    entry::split_at(&index.spec, key, value, fields_end)
                };
                let parts = parts.ok_or_else(|| damaged(index))?;
                if let Some(seen) = seen
                    && !seen.insert(parts.id)?
                {
                    stats.dups_dropped += 1;
                    return Ok(None);
                }
                if !*wants_docs && !*needs_filter {
                    return test.row(parts.id, Doc::empty());
                }
                let covering = if *covered {
                    rebuild(collection, index, &parts)?
                } else {
                    None
                };
                let mut row = match (covering, parts.doc) {
                    (Some(doc), _) => test.row(parts.id, &doc)?,
                    // A writer has to know how the document is stored.
                    (None, Some(doc)) if !*keeps_keys => test.row(parts.id, doc)?,
                    (None, _) => {
                        let stored = snapshot.get(collection.primary, parts.id)?;
                        let stored = stored.ok_or_else(|| orphan(index))?;
                        stats.examine(&stored);
                        test.record(parts.id, &stored)?
                    }
                };
                if *keeps_index_keys && let Some(row) = &mut row {
                    let fields = covered::fields_document(&index.spec, parts.fields, parts.lost);
                    row.index_key = Some(fields.ok_or_else(|| damaged(index))?);
                }
                Ok(row)
            })?,
        };
        if found.is_none() && !stats.is_out_of_work() {
            *source = Source::Eof;
        }
        Ok(found)
    }
}

/// Looks up one document.
fn look_up(
    snapshot: &Snapshot,
    collection: &Collection,
    key: &[u8],
    test: &Test<'_>,
    seen: &mut Option<Seen>,
    stats: &mut ExecStats,
) -> Result<Option<Row>> {
    stats.keys_examined += 1;
    let Some(stored) = snapshot.get(collection.primary, key)? else {
        return Ok(None);
    };
    stats.examine(&stored);
    let row = test.record(key, &stored)?;
    keep_new(key, row, seen, stats)
}

/// Drops a row that was seen before.
fn keep_new(
    key: &[u8],
    row: Option<Row>,
    seen: &mut Option<Seen>,
    stats: &mut ExecStats,
) -> Result<Option<Row>> {
    if row.is_some()
        && let Some(seen) = seen
        && !seen.insert(key)?
    {
        stats.dups_dropped += 1;
        return Ok(None);
    }
    Ok(row)
}

/// The keys of single values, so that the last one comes first in the direction of the scan.
fn points(ranges: &Intervals, direction: Direction) -> Vec<Vec<u8>> {
    let keys = ranges.as_slice().iter().map(|point| point.low.clone());
    match direction {
        Direction::Forward => keys.rev().collect(),
        Direction::Backward => keys.collect(),
    }
}

/// The document that an entry shows. `None` if a field is null: then the document itself tells
/// whether it is null or missing.
fn rebuild(
    collection: &Collection,
    index: &Index,
    parts: &EntryParts<'_>,
) -> Result<Option<DocBuf>> {
    let doc = if collection.is_by_record() {
        covered::fields_document(&index.spec, parts.fields, parts.lost)
    } else {
        covered::document(&index.spec, parts)
    };
    let doc = doc.ok_or_else(|| damaged(index))?;
    let is_null = |(name, value): (&str, Value<'_>)| name != "_id" && value.is_nullish();
    Ok((!doc.iter().any(is_null)).then_some(doc))
}

#[cold]
pub(super) fn damaged(index: &Index) -> crate::error::Error {
    corrupt(format!("an entry of index '{}'", index.spec.name))
}

#[cold]
pub(super) fn orphan(index: &Index) -> crate::error::Error {
    corrupt(format!(
        "an entry of index '{}' leads to no document; run validate",
        index.spec.name
    ))
}

impl IndexAccess {
    /// The name of the index.
    pub fn name(&self) -> &str {
        &self.index.spec.name
    }
}
