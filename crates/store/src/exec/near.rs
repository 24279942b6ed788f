//! Documents near a point, the nearest first.
//!
//! The index is read ring by ring around the point. The documents of a ring are held until it has been
//! read, and are then returned in the order of their distance. A ring with too many documents ends at a
//! smaller distance, so that few are held however many there are; one with few documents is followed
//! by a wider one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use frond_bson::DocBuf;
use frond_error::ErrorCode;

use super::describe::{Describer, Part, count};
use super::index_scan::{damaged, orphan, parts_of};
use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Row, RowRef, Sink};
use super::reader::Reader;
use super::seen::Seen;
use super::stats::OperatorStats;
use crate::memory;
use crate::plan::near::NearAccess;
use frond_storage::error::{Result, command};
use frond_storage::index::covered;
use frond_storage::keyspace::{Reservation, Snapshot, TreeId};

/// Maximum documents of a ring that are held, unless all have the same distance.
const HELD_MAX: usize = 1000;
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum bytes of documents that all have the same distance.
const TIED_BYTES_MAX: usize = 100 * 1024 * 1024;
/// A ring with fewer documents is followed by one of twice the width.
const FEW: usize = 50;
/// A ring with more documents is followed by one of half the width.
const MANY: usize = 600;

/// A document and its distance.
struct Found {
    /// Radians on the sphere, or the numbers of the plane.
    distance: f64,
    /// The order in which it was found, which documents of equal distances keep.
    number: u64,
    row: Row,
    bytes: usize,
}

impl PartialEq for Found {
    fn eq(&self, other: &Found) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Found) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, other: &Found) -> Ordering {
        let distance = self.distance.total_cmp(&other.distance);
        distance.then(self.number.cmp(&other.number))
    }
}

/// Reads an index around a point, and returns documents in the order of their distance.
pub struct NearScan {
    access: NearAccess,
    reader: Reader,
    keeps_keys: bool,
    /// Whether rows come with the fields of their entry.
    shows_key: bool,
    /// The ring: from this distance to below that one, which is inside of the last ring.
    from: f64,
    to: f64,
    /// The maximum distance of the query.
    end: f64,
    /// The width of the next ring. `None` before the first one.
    step: Option<f64>,
    scan: Option<KeyScan>,
    seen: Option<Seen>,
    held: BinaryHeap<Found>,
    held_bytes: usize,
    reserved: Option<Reservation>,
    /// The number of documents that are held before the ring shrinks.
    held_max: usize,
    /// The last ring that was read, the nearest last.
    ready: Vec<Found>,
    numbered: u64,
    ended: bool,
    /// The statistics of the scans of all rings.
    scanned: OperatorStats,
    /// The statistics of the fetched documents.
    fetched: OperatorStats,
}

impl NearScan {
    /// A search by this access; `reader` tests the other conditions of the query.
    pub fn new(access: NearAccess, reader: Reader, keeps_keys: bool, shows_key: bool) -> NearScan {
        let (from, to) = access.near.range();
        let end = to.min(access.field.farthest(&access.near));
        NearScan {
            reader,
            keeps_keys,
            shows_key,
            from,
            to: from,
            end,
            step: None,
            scan: None,
            seen: None,
            held: BinaryHeap::new(),
            held_bytes: 0,
            reserved: None,
            held_max: HELD_MAX,
            ready: Vec::new(),
            numbered: 0,
            ended: from > end,
            scanned: OperatorStats::default(),
            fetched: OperatorStats::default(),
            access,
        }
    }

    /// Reads ring by ring, and hands the documents of each on.
    fn read_rings(
        &mut self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        loop {
            while let Some(found) = self.ready.pop() {
                stats.advanced += 1;
                if sink(found.row.as_ref())? == Flow::Pause {
                    return Ok(Pulled::Paused);
                }
            }
            if self.scan.is_none() {
                if self.ended {
                    return Ok(Pulled::End);
                }
                if stats.works == 0 {
                    self.access.scan.index.uses().add();
                }
                stats.works += 1;
                self.open_ring(cx)?;
            }
            if self.read_ring(cx)? == Pulled::Paused {
                return Ok(Pulled::Paused);
            }
            self.close_ring();
        }
    }

    fn open_ring(&mut self, cx: &ExecContext) -> Result<()> {
        let step = match self.step {
            Some(step) => step,
            None => self.first_step(cx)?,
        };
        // Never so narrow that its two distances are equal.
        let step = step.max(self.from * 1e-12).max(1e-15);
        self.to = (self.from + step).min(self.end);
        let range = self.access.ring_range(self.from, self.to);
        self.scan = Some(KeyScan::new(range));
        self.seen = self.access.scan.may_repeat.then(Seen::default);
        self.held_max = HELD_MAX;
        Ok(())
    }

    /// The width of the first ring: the narrowest one that has any entry.
    fn first_step(&mut self, cx: &ExecContext) -> Result<f64> {
        let mut step = self.access.field.finest(&self.access.near);
        while self.from + step < self.end {
            cx.step()?;
            let range = self.access.ring_range(self.from, self.from + step);
            let mut scan = KeyScan::new(range);
            let pulled = scan.for_each(cx, &mut self.scanned, |_, _, _, _| Ok(Step::Pause))?;
            if pulled == Pulled::Paused {
                break;
            }
            step *= 8.0;
        }
        Ok(step)
    }

    /// Reads the ring to its end, or to the end of the work of a trial run.
    fn read_ring(&mut self, cx: &ExecContext) -> Result<Pulled> {
        loop {
            let mut found = None;
            let pulled = self.read(cx, &mut found)?;
            match found {
                Some(found) => self.hold(cx, found)?,
                None => return Ok(pulled),
            }
        }
    }

    /// The next document of the ring.
    fn read(&mut self, cx: &ExecContext, next: &mut Option<Found>) -> Result<Pulled> {
        let is_first = self.from <= self.access.near.range().0;
        let is_last = self.to >= self.end;
        let NearScan {
            access,
            reader,
            keeps_keys,
            shows_key,
            from,
            to,
            scan,
            seen,
            numbered,
            scanned,
            fetched,
            ..
        } = self;
        let Some(scan) = scan else {
            return Ok(Pulled::End);
        };
        let index = &access.scan.index;
        let unit = access.near.unit();
        scan.for_each(cx, scanned, |key, value, fields_end, scanned| {
            let parts = parts_of(index, key, value, fields_end)?;
            if let Some(seen) = seen
                && !seen.is_new(cx, parts.id, scanned)?
            {
                return Ok(Step::Next);
            }
            scanned.advanced += 1;
            let record = cx.snapshot().get(cx.collection.primary, parts.id)?;
            let record = record.ok_or_else(|| orphan(index))?;
            let documents = cx.collection.document_reader(cx.snapshot());
            let doc = documents.whole(parts.id, &record)?;
            let nearest = access.near.nearest(&doc, &access.path);
            let distance = nearest.filter(|nearest| {
                let distance = nearest.distance / unit;
                nearest.is_wanted && (is_first || distance >= *from) && (is_last || distance < *to)
            });
            let Some(distance) = distance.map(|nearest| nearest.distance / unit) else {
                fetched.examine(&record);
                cx.spend();
                return Ok(Step::Next);
            };
            let shown;
            let mut row = RowRef::of_key(parts.id);
            if *shows_key {
                shown = covered::fields_document(&index.spec, parts.fields, parts.lost)
                    .ok_or_else(|| damaged(index))?;
                row.index_key = Some(&shown);
            }
            reader
                .read(cx, row, &record, fetched, &mut |row| {
                    let row = row.to_row(*keeps_keys);
                    *numbered += 1;
                    *next = Some(Found {
                        distance,
                        number: *numbered,
                        bytes: row.doc.len_bytes() + row.key.len() + size_of::<Found>(),
                        row,
                    });
                    Ok(Flow::Pause)
                })
                .map(Step::from)
        })
    }

    /// Keeps a document of the ring. With too many, the ring is narrowed: the farthest documents are left for
    /// the next ring.
    fn hold(&mut self, cx: &ExecContext, found: Found) -> Result<()> {
        self.held_bytes += found.bytes;
        let what = "a search by distance";
        memory::take(&mut self.reserved, cx.memory(), self.held_bytes, what)?;
        self.held.push(found);
        while self.held.len() > self.held_max || self.held_bytes > HELD_BYTES_MAX {
            let Some(farthest) = self.held.peek().map(|found| found.distance) else {
                break;
            };
            let mut dropped = Vec::new();
            while self
                .held
                .peek()
                .is_some_and(|found| found.distance >= farthest)
            {
                dropped.extend(self.held.pop());
            }
            if self.held.is_empty() {
                // All have the same distance, so the ring cannot be narrowed.
                self.held.extend(dropped);
                self.held_max = self.held.len() * 2;
                if self.held_bytes > TIED_BYTES_MAX {
                    return Err(command(
                        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                        format!(
                            "the documents at one distance from the point have more than \
                             {TIED_BYTES_MAX} bytes"
                        ),
                    ));
                }
                break;
            }
            self.held_bytes -= dropped.iter().map(|found| found.bytes).sum::<usize>();
            self.to = farthest;
        }
        Ok(())
    }

    fn close_ring(&mut self) {
        self.scan = None;
        self.ready = std::mem::take(&mut self.held).into_sorted_vec();
        self.ready.reverse();
        self.held_bytes = 0;
        if self.ready.is_empty() {
            self.reserved = None;
        }
        self.ended = self.to >= self.end;
        let width = self.to - self.from;
        self.step = Some(match self.ready.len() {
            0 => width * 4.0,
            count if count < FEW => width * 2.0,
            count if count > MANY => width / 2.0,
            _ => width,
        });
        self.from = self.to;
    }
}

impl Operator for NearScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let pulled = self.read_rings(cx, stats, sink)?;
        // Its own figures are those of its scans and of what they fetched.
        stats.keys_examined = self.scanned.keys_examined;
        stats.docs_examined = self.fetched.docs_examined;
        stats.large_examined = self.fetched.large_examined;
        Ok(pulled)
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.access.scan.index.tree);
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        if let Some(scan) = &mut self.scan {
            scan.continue_on(snapshot);
        }
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some(self.access.field.stage())
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        let spec = &self.access.scan.index.spec;
        stage.push("keyPattern", &spec.key);
        stage.push("indexName", spec.name.as_str());
        stage.push("indexVersion", 2);
        let mut scan = describer.begin("IXSCAN", &self.scanned, self.scanned.works);
        describer.push_index(&mut scan, &self.access.scan);
        describer.push_scan_stats(&mut scan, &self.scanned);
        let mut fetch = describer.begin("FETCH", &self.fetched, self.scanned.works);
        describer.push_filter(&mut fetch, &Part::NotNear);
        if describer.executed {
            fetch.push("docsExamined", count(self.fetched.docs_examined));
            fetch.push("alreadyHasObj", 0);
        }
        fetch.push("inputStage", &scan);
        stage.push_array("inputStages", |stages| stages.push(&fetch));
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        self.scanned.works + stats.advanced
    }
}
