//! Documents near a point, the nearest first.
//!
//! The index is read ring by ring around the point. The documents of a ring are held until it has been
//! read, and are then given in the order of their distance. A ring with too many documents ends at a
//! smaller distance, so that few are held however many there are; one with few documents is followed
//! by a wider one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use frond_query::error::ErrorCode;

use super::ExecStats;
use super::access::{Row, Seen, Test, damaged, orphan};
use super::key_scan::KeyScan;
use crate::catalog::Collection;
use crate::context::OpContext;
use crate::error::{Result, command};
use crate::index::{covered, entry};
use crate::keyspace::Snapshot;
use crate::plan::near::NearAccess;

/// Documents of a ring that are held at most, unless they are all as far away.
const HELD_MAX: usize = 1000;
/// Their bytes.
const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of documents that are all as far away.
const TIED_BYTES_MAX: usize = 100 * 1024 * 1024;
/// A ring with fewer documents is followed by one of twice the width.
const FEW: usize = 50;
/// A ring with more documents is followed by one of half the width.
const MANY: usize = 600;

/// A document and how far away it is.
struct Found {
    /// Radians on the sphere, or the numbers of the plane.
    distance: f64,
    /// Which one it was, so that documents as far away keep their order.
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

/// What a search reads.
pub(super) struct Place<'a> {
    pub snapshot: &'a Snapshot,
    pub collection: &'a Collection,
    pub test: &'a Test<'a>,
    pub keeps_index_keys: bool,
}

/// A search in progress.
pub(super) struct NearSearch {
    access: NearAccess,
    /// The ring: from this distance to below that one, which is inside of the last ring.
    from: f64,
    to: f64,
    /// Beyond it nothing is wanted.
    end: f64,
    /// The width of the next ring. `None` before the first one.
    step: Option<f64>,
    scan: Option<KeyScan>,
    seen: Option<Seen>,
    held: BinaryHeap<Found>,
    held_bytes: usize,
    /// How many may be held before the ring is made smaller.
    held_max: usize,
    /// The last ring that was read, the nearest last.
    ready: Vec<Found>,
    numbered: u64,
    ended: bool,
}

impl NearSearch {
    pub fn new(access: NearAccess) -> NearSearch {
        let (from, to) = access.near.range();
        let end = to.min(access.field.farthest(&access.near));
        NearSearch {
            from,
            to: from,
            end,
            step: None,
            scan: None,
            seen: None,
            held: BinaryHeap::new(),
            held_bytes: 0,
            held_max: HELD_MAX,
            ready: Vec::new(),
            numbered: 0,
            ended: from > end,
            access,
        }
    }

    /// The next document; `None` at the end, and when a trial run is out of work.
    pub fn next(
        &mut self,
        place: &Place<'_>,
        context: &mut OpContext,
        stats: &mut ExecStats,
    ) -> Result<Option<Row>> {
        loop {
            if let Some(found) = self.ready.pop() {
                return Ok(Some(found.row));
            }
            if self.scan.is_none() {
                if self.ended {
                    return Ok(None);
                }
                self.open_ring(place.snapshot, context, stats)?;
            }
            while let Some(found) = self.read(place, context, stats)? {
                self.hold(found)?;
            }
            if stats.is_out_of_work() {
                return Ok(None);
            }
            self.close_ring();
        }
    }

    fn open_ring(
        &mut self,
        snapshot: &Snapshot,
        context: &mut OpContext,
        stats: &mut ExecStats,
    ) -> Result<()> {
        let step = match self.step {
            Some(step) => step,
            None => self.first_step(snapshot, context, stats)?,
        };
        // Never so narrow that it ends where it begins.
        let step = step.max(self.from * 1e-12).max(1e-15);
        self.to = (self.from + step).min(self.end);
        let range = self.access.ring_range(self.from, self.to);
        self.scan = Some(KeyScan::open(snapshot, range)?);
        stats.seeks += 1;
        self.seen = self.access.scan.may_repeat.then(Seen::default);
        self.held_max = HELD_MAX;
        Ok(())
    }

    /// How far from the nearest possible document the first one may be: the narrowest ring with any
    /// entry at all.
    fn first_step(
        &self,
        snapshot: &Snapshot,
        context: &mut OpContext,
        stats: &mut ExecStats,
    ) -> Result<f64> {
        let mut step = self.access.field.finest(&self.access.near);
        while self.from + step < self.end {
            context.step()?;
            let range = self.access.ring_range(self.from, self.from + step);
            let mut scan = KeyScan::open(snapshot, range)?;
            stats.seeks += 1;
            if scan.next(stats, |_, _, _, _| Ok(Some(())))?.is_some() {
                break;
            }
            step *= 8.0;
        }
        Ok(step)
    }

    /// The next document of the ring.
    fn read(
        &mut self,
        place: &Place<'_>,
        context: &mut OpContext,
        stats: &mut ExecStats,
    ) -> Result<Option<Found>> {
        let is_first = self.from <= self.access.near.range().0;
        let is_last = self.to >= self.end;
        let NearSearch {
            access,
            from,
            to,
            scan,
            seen,
            numbered,
            ..
        } = self;
        let Some(scan) = scan else { return Ok(None) };
        let index = &access.scan.index;
        let unit = access.near.unit();
        scan.next(stats, |key, value, fields_end, stats| {
            context.step()?;
            let end = if index.spec.unique {
                key.len()
            } else {
                fields_end
            };
            let parts = entry::split_at(&index.spec, key, value, end);
            let parts = parts.ok_or_else(|| damaged(index))?;
            if let Some(seen) = seen
                && !seen.insert(parts.id)?
            {
                stats.dups_dropped += 1;
                return Ok(None);
            }
            let stored = place.snapshot.get(place.collection.primary, parts.id)?;
            let stored = stored.ok_or_else(|| orphan(index))?;
            stats.examine(&stored);
            let documents = place.collection.document_reader(place.snapshot);
            let doc = documents.whole(parts.id, &stored)?;
            let Some(nearest) = access.near.nearest(&doc, &access.path) else {
                return Ok(None);
            };
            let distance = nearest.distance / unit;
            let inside =
                nearest.is_wanted && (is_first || distance >= *from) && (is_last || distance < *to);
            if !inside {
                return Ok(None);
            }
            let Some(mut row) = place.test.record(parts.id, &stored)? else {
                return Ok(None);
            };
            if place.keeps_index_keys {
                let fields = covered::fields_document(&index.spec, parts.fields, parts.lost);
                row.index_key = Some(fields.ok_or_else(|| damaged(index))?);
            }
            *numbered += 1;
            Ok(Some(Found {
                distance,
                number: *numbered,
                bytes: row.doc.len_bytes() + row.key.len() + size_of::<Found>(),
                row,
            }))
        })
    }

    /// Keeps a document of the ring. With too many, the ring is made smaller: those that are farthest
    /// away are left for the next one.
    fn hold(&mut self, found: Found) -> Result<()> {
        self.held_bytes += found.bytes;
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
                // All are as far away; there is no smaller ring.
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
