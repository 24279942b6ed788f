//! A tailable cursor: reads a capped collection to its end, and later continues from there.

use std::sync::Arc;

use frond_error::ErrorCode;
use frond_query::matcher::Filter;

use super::ExecStats;
use super::coll_scan::CollScan;
use super::executor::{TailScan, TailSource};
use super::operator::Row;
use super::oplog_scan::{OplogScan, time_of_key};
use super::reader::{Loading, Reader as DocReader};
use super::record_id::record_id;
use crate::catalog::{Catalog, Uuid};
use crate::coordination::TailWatch;
use crate::oplog::readers::{Place, Reader};
use crate::plan::oplog::TimeBounds;
use crate::signal::TailSignal;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Direction;
use frond_storage::namespace::Namespace;

/// Reads a capped collection, and what is inserted later.
pub struct Tail {
    catalog: Arc<Catalog>,
    ns: Namespace,
    uuid: Uuid,
    filter: Arc<Filter>,
    context: OpContext,
    signal: Arc<TailSignal>,
    /// Insertions before the last scan began; later ones are not read yet.
    seen: u64,
    /// The last document examined.
    position: Option<Vec<u8>>,
    scan: Option<Box<TailScan>>,
    /// Whether the last scan was not at its end: the next one does not wait for an insertion.
    is_interrupted: bool,
    stats: ExecStats,
    keeps_keys: bool,
    /// Keeps the signal of the oplog alive, if that is read.
    _reader: Option<Reader>,
    /// Extends the signal to documents of other servers, if there are any.
    watch: Option<TailWatch>,
}

impl Tail {
    /// Begins at the oldest document. `None` if there is no such collection, or no document in it.
    ///
    /// # Errors
    /// `BadValue` (2) if the collection is not capped.
    pub fn open(
        catalog: Arc<Catalog>,
        ns: &Namespace,
        filter: Arc<Filter>,
        context: &OpContext,
    ) -> Result<Option<Tail>> {
        let Some(collection) = catalog.collection(ns) else {
            return Ok(None);
        };
        if collection.settings.capped.is_none() {
            return Err(command(
                ErrorCode::BadValue,
                format!(
                    "error processing query: ns={ns} planner returned error :: caused by :: tailable \
                     cursor requested on non capped collection"
                ),
            ));
        }
        if collection.counts().documents == 0 {
            return Ok(None);
        }
        let reader = match collection.oplog() {
            None => None,
            Some(oplog) => {
                oplog.make_durable()?;
                let last = || oplog.last().to_u64();
                Some(oplog.readers().watch(Place::Everything, last))
            }
        };
        let signal = match &reader {
            Some(reader) => reader.signal(),
            None => collection.tail(),
        };
        let watch = match reader {
            Some(_) => None,
            None => (catalog.coordination()).watch_tail(collection.uuid, signal),
        };
        Ok(Some(Tail {
            catalog,
            watch,
            ns: ns.clone(),
            uuid: collection.uuid,
            filter,
            context: context.clone(),
            signal: signal.clone(),
            _reader: reader,
            seen: 0,
            position: None,
            scan: None,
            is_interrupted: false,
            stats: ExecStats::default(),
            keeps_keys: false,
        }))
    }

    /// From here on rows come with their keys.
    pub fn with_keys(self) -> Tail {
        Tail {
            keeps_keys: true,
            ..self
        }
    }

    /// Sets the limits for what follows.
    pub fn set_context(&mut self, context: OpContext) {
        if let Some(scan) = &mut self.scan {
            scan.set_context(context.clone());
        }
        self.context = context;
    }

    /// Bytes of memtables that a scan which has begun keeps in memory.
    pub fn retained_bytes(&self) -> u64 {
        let engine = self.catalog.engine();
        let snapshot = self.scan.as_ref().and_then(|scan| scan.snapshot());
        snapshot.map_or(0, |snapshot| engine.retained_by(snapshot))
    }

    /// Ends the scan. The next one begins behind the last document examined, and sees what was inserted meanwhile, as after
    /// the end of the collection.
    pub fn release_memory(&mut self) {
        if let Some(scan) = self.scan.take() {
            self.stats = scan.stats();
            self.is_interrupted = true;
        }
    }

    /// The statistics so far.
    pub fn stats(&self) -> ExecStats {
        self.stats
    }

    /// The signal of insertions that this cursor has not seen, and how many it has seen.
    pub fn signal(&self) -> (Arc<TailSignal>, u64) {
        (self.signal.clone(), self.seen)
    }

    /// The next document that passes; `None` if there is none for now.
    ///
    /// # Errors
    /// `QueryPlanKilled` (175) if the collection was dropped, `CappedPositionLost` (136) if the last document
    /// examined was removed.
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        let is_at_end = self.scan.is_none() && self.position.is_some() && !self.is_interrupted;
        // Documents of other servers may be there before the signal is set.
        if is_at_end && self.watch.is_none() && self.seen == self.signal.insertions() {
            return Ok(None);
        }
        let scan = match &mut self.scan {
            Some(scan) => scan,
            empty => {
                self.is_interrupted = false;
                self.seen = self.signal.insertions();
                let durable = self.catalog.oplog_durable();
                let read = self.catalog.read(&self.ns)?;
                let Some((collection, snapshot)) = read.filter(|(now, _)| now.uuid == self.uuid)
                else {
                    return Err(gone(&self.uuid));
                };
                if let Some(position) = &self.position
                    && !snapshot.contains(collection.primary, position)?
                {
                    return Err(lost(position));
                }
                let position = self.position.as_deref();
                let behind = match collection.oplog() {
                    Some(_) => {
                        let bounds = TimeBounds::from_filter(self.filter.predicates());
                        let (tree, direction) = (collection.primary, Direction::Forward);
                        let access = bounds.access(tree, durable, direction);
                        let position = position.and_then(time_of_key);
                        let scan = OplogScan::behind(access, position, &self.filter);
                        TailSource::Oplog(scan)
                    }
                    None => {
                        let filter = self.filter.clone();
                        let reader =
                            DocReader::new(filter.clone(), Some(filter), Loading::Everything);
                        let scan = CollScan::behind(collection.primary, position, reader);
                        TailSource::Documents(scan)
                    }
                };
                empty.insert(Box::new(TailScan::new(
                    behind,
                    collection,
                    snapshot,
                    self.context.clone(),
                    self.keeps_keys,
                )))
            }
        };
        let row = scan.next_row()?;
        if let Some(position) = scan.position() {
            self.position = Some(position.to_vec());
        }
        if row.is_none() {
            self.stats = scan.stats();
            self.scan = None;
        }
        Ok(row)
    }
}

fn gone(uuid: &Uuid) -> Error {
    command(
        ErrorCode::QueryPlanKilled,
        format!("collection dropped. UUID {}", frond_bson::hex(uuid)),
    )
}

fn lost(position: &[u8]) -> Error {
    let record = record_id(position, true);
    command(
        ErrorCode::CappedPositionLost,
        format!(
            "CollectionScan died due to position in capped collection being deleted. Last seen record \
             id: RecordId({record})"
        ),
    )
}
