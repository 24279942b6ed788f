//! Records whose `_id` lies in some ranges. The collection is its own index on `_id`: the scan finds the records
//! themselves, so the fetch above it looks nothing up.

use frond_bson::{DocBuf, doc, key};

use super::describe::Describer;
use super::fetch::{DEVICE_ROWS, DEVICE_WAITS};
use super::key_scan::KeyScan;
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::stats::OperatorStats;
use crate::plan::primary_range;
use frond_storage::error::Result;
use frond_storage::index::spec::ID_INDEX_NAME;
use frond_storage::intervals::{Intervals, invert};
use frond_storage::keyspace::{Direction, Snapshot, TreeId};

/// The way to the records.
enum Search {
    /// Look-ups of single keys.
    Points(Points),
    Ranges(Box<KeyScan>),
}

/// Keys that are looked up.
struct Points {
    /// The next one is the last.
    keys: Vec<Vec<u8>>,
    /// The number of the next keys that were announced to the engine.
    ahead: usize,
    /// Look-ups that waited for the device.
    waits: u32,
}

impl Points {
    fn new(keys: Vec<Vec<u8>>) -> Points {
        Points {
            keys,
            ahead: 0,
            waits: 0,
        }
    }

    /// Announces the next keys, if that saves time. Returns whether the next one was announced.
    fn look_ahead(&mut self, snapshot: &Snapshot, tree: TreeId) -> Result<bool> {
        if !snapshot.gathers_reads() && self.waits < DEVICE_WAITS {
            return Ok(false);
        }
        if self.ahead == 0 {
            let next = self.keys.len().saturating_sub(*DEVICE_ROWS.end());
            let next = self.keys[next..].iter().rev();
            let wanted: Vec<(TreeId, &[u8])> = next.map(|key| (tree, key.as_slice())).collect();
            snapshot.prefetch(&wanted)?;
            self.ahead = wanted.len();
        }
        self.ahead = self.ahead.saturating_sub(1);
        Ok(true)
    }
}

/// Reads the records in ranges of `_id`, in its order.
pub struct IdScan {
    search: Search,
    ranges: Intervals,
    direction: Direction,
    /// Whether rows come with their key as sort key for a merge; true if its bytes are inverted.
    order: Option<bool>,
    /// Whether rows are only counted.
    counts: bool,
}

impl IdScan {
    /// A scan of these ranges of the tree `primary`.
    pub fn new(primary: TreeId, ranges: Intervals, direction: Direction) -> IdScan {
        IdScan {
            search: if ranges.all_points() {
                Search::Points(Points::new(points(&ranges, direction)))
            } else {
                Search::Ranges(Box::new(KeyScan::new(primary_range(
                    primary,
                    ranges.clone(),
                    direction,
                ))))
            },
            ranges,
            direction,
            order: None,
            counts: false,
        }
    }
}

/// The keys of single values, so that the last one comes first in the direction of the scan.
fn points(ranges: &Intervals, direction: Direction) -> Vec<Vec<u8>> {
    let keys = ranges.as_slice().iter().map(|point| point.low.clone());
    match direction {
        Direction::Forward => keys.rev().collect(),
        Direction::Backward => keys.collect(),
    }
}

impl IdScan {
    /// From here on rows come with a sort key for a merge: their `_id`, in this direction.
    pub fn ordered(mut self, descending: bool) -> IdScan {
        self.order = Some(descending);
        self
    }

    /// `explain` shows that the rows are only counted.
    pub fn counting(mut self) -> IdScan {
        self.counts = true;
        self
    }

    /// Passes one record to the sink.
    fn hand_on(
        key: &[u8],
        record: &[u8],
        order: Option<bool>,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Flow> {
        stats.advanced += 1;
        let row = RowRef {
            record: Some(record),
            ..RowRef::of_key(key)
        };
        match order {
            None => sink(row),
            Some(false) => sink(RowRef { order: key, ..row }),
            Some(true) => {
                let mut order = key.to_vec();
                invert(&mut order);
                sink(RowRef {
                    order: &order,
                    ..row
                })
            }
        }
    }
}

impl Operator for IdScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let IdScan { search, order, .. } = self;
        if stats.works == 0 {
            cx.collection.id_uses().add();
        }
        match search {
            Search::Ranges(scan) => scan.for_each(cx, stats, |key, record, _, stats| {
                Ok(IdScan::hand_on(key, record, *order, stats, sink)?.into())
            }),
            Search::Points(points) => {
                let (snapshot, tree) = (cx.snapshot(), cx.collection.primary);
                while !points.keys.is_empty() {
                    if cx.is_out_of_work() {
                        return Ok(Pulled::Paused);
                    }
                    let is_announced = points.look_ahead(snapshot, tree)?;
                    let Some(key) = points.keys.pop() else {
                        break;
                    };
                    cx.step()?;
                    cx.spend();
                    stats.works += 1;
                    stats.keys_examined += 1;
                    stats.seeks += 1;
                    let before = snapshot.waits_of_thread();
                    // If it was announced, its page was read, but no filter.
                    let record = if is_announced {
                        snapshot.get_expected(tree, &key)?
                    } else {
                        snapshot.get(tree, &key)?
                    };
                    points.waits += u32::from(snapshot.waits_of_thread() != before);
                    if let Some(record) = record
                        && IdScan::hand_on(&key, &record, *order, stats, sink)? == Flow::Pause
                    {
                        return Ok(Pulled::Paused);
                    }
                }
                Ok(Pulled::End)
            }
        }
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        match &mut self.search {
            Search::Points(_) => {}
            Search::Ranges(scan) => scan.continue_on(snapshot),
        }
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some(if self.counts { "COUNT_SCAN" } else { "IXSCAN" })
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        stage.push("keyPattern", &doc! {"_id": 1});
        stage.push("indexName", ID_INDEX_NAME);
        describer.push_collation(stage, describer.id_collator);
        stage.push("isMultiKey", false);
        stage.push("multiKeyPaths", &doc! {"_id": []});
        stage.push("isUnique", true);
        stage.push("isSparse", false);
        stage.push("isPartial", false);
        let bounds = [("_id", &self.ranges, key::Direction::Ascending)];
        let collator = describer.id_collator;
        describer.push_bounds(stage, self.direction, bounds.into_iter(), collator);
        describer.push_scan_stats(stage, stats);
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}
