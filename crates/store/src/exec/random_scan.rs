//! Documents that are chosen at random, for a `$sample` of a small part of a collection.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use super::seen::Seen;
use super::stats::OperatorStats;
use crate::plan::primary_range;
use frond_storage::error::Result;
use frond_storage::intervals::Intervals;
use frond_storage::keyspace::{Direction, Snapshot, TreeId};

/// After this many choices in a row without a further document the whole collection is read: most keys of such a tree were
/// deleted.
const MISSES_MAX: u32 = 1000;

/// Reads documents whose keys are chosen at random, until it has enough. Every document is chosen with the same probability. The `$sample` above
/// it takes its number of them, since the last choice may bring more.
pub struct RandomScan {
    tree: TreeId,
    reader: Reader,
    /// The number of documents that are still needed.
    missing: u64,
    /// Keys that were chosen and not read yet.
    chosen: Vec<Vec<u8>>,
    seen: Seen,
    misses: u32,
    /// Reads all documents, once `misses` has reached its limit.
    rest: Option<KeyScan>,
}

impl RandomScan {
    /// A scan for `size` documents in the tree `primary`.
    pub fn new(primary: TreeId, size: u64, reader: Reader) -> RandomScan {
        RandomScan {
            tree: primary,
            reader,
            missing: size,
            chosen: Vec::new(),
            seen: Seen::default(),
            misses: 0,
            rest: None,
        }
    }

    /// Chooses some keys at random, or else all.
    fn choose(&mut self, cx: &ExecContext) -> Result<()> {
        self.misses += 1;
        let chooses = match cx.snapshot().files() {
            Some(files) if self.misses <= MISSES_MAX => {
                files.choose_keys(self.tree, rand::random, &mut self.chosen)?
            }
            _ => false,
        };
        if !chooses {
            let all = primary_range(self.tree, Intervals::all(), Direction::Forward);
            self.rest = Some(KeyScan::new(all).of_collection().long());
        }
        cx.step()
    }

    /// Passes on the documents whose keys were chosen.
    fn read_chosen(
        &mut self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Flow> {
        while let Some(key) = self.chosen.pop() {
            cx.step()?;
            stats.works += 1;
            if !self.seen.is_new(cx, &key, stats)? {
                continue;
            }
            let Some(record) = cx.snapshot().get(self.tree, &key)? else {
                continue;
            };
            self.missing = self.missing.saturating_sub(1);
            self.misses = 0;
            let row = RowRef::of_key(&key);
            if self.reader.read(cx, row, &record, stats, sink)? == Flow::Pause {
                return Ok(Flow::Pause);
            }
        }
        Ok(Flow::Continue)
    }
}

impl Operator for RandomScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        loop {
            if self.read_chosen(cx, stats, sink)? == Flow::Pause {
                return Ok(Pulled::Paused);
            }
            if let Some(rest) = &mut self.rest {
                let (reader, seen) = (&self.reader, &mut self.seen);
                return rest.for_each(cx, stats, |key, record, _, stats| {
                    if seen.has(key) {
                        return Ok(Step::Next);
                    }
                    let flow = reader.read(cx, RowRef::of_key(key), record, stats, sink)?;
                    Ok(flow.into())
                });
            }
            if self.missing == 0 {
                return Ok(Pulled::End);
            }
            if cx.must_stop() {
                return Ok(Pulled::Paused);
            }
            self.choose(cx)?;
        }
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.tree);
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        if let Some(rest) = &mut self.rest {
            rest.continue_on(snapshot);
        }
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("MULTI_ITERATOR")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
            stage.push("dupsDropped", count(stats.dups_dropped));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}
