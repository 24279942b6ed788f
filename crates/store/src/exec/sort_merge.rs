//! Merges inputs that are each in the order of the sort.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::seen::Seen;
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// The next row of an input.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    /// Bytes that compare as the sort does.
    order: Vec<u8>,
    /// The position of the input.
    input: usize,
    key: Vec<u8>,
    /// The fields of the index, if they were asked for.
    index_key: Option<Vec<u8>>,
}

/// Returns the rows of its inputs, always the smallest of all heads first. They are rows of indexes: documents are
/// fetched above it.
pub struct SortMerge {
    heads: BinaryHeap<Reverse<Head>>,
    /// The inputs without a head, whose next row must be read.
    wanted: Vec<usize>,
    /// Set if inputs can find the same document.
    seen: Option<Seen>,
}

impl SortMerge {
    /// The merge of `inputs`, whose rows come with a sort key.
    pub fn new(inputs: usize, may_repeat: bool) -> SortMerge {
        SortMerge {
            heads: BinaryHeap::with_capacity(inputs),
            wanted: (0..inputs).collect(),
            seen: may_repeat.then(Seen::default),
        }
    }

    /// Reads the next row of each input without a head. False if a trial run is out of work.
    fn fill(&mut self, cx: &ExecContext, inputs: &mut Inputs) -> Result<bool> {
        while let Some(&position) = self.wanted.last() {
            let mut head = None;
            let pulled = inputs.pull_from(position, cx, &mut |row| {
                head = Some(Head {
                    order: row.order.to_vec(),
                    input: position,
                    key: row.key.to_vec(),
                    index_key: row.index_key.map(|key| key.as_bytes().to_vec()),
                });
                Ok(Flow::Pause)
            })?;
            match head {
                Some(head) => self.heads.push(Reverse(head)),
                None if pulled == Pulled::Paused => return Ok(false),
                None => {}
            }
            self.wanted.pop();
        }
        Ok(true)
    }
}

impl Operator for SortMerge {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        loop {
            if !self.fill(cx, inputs)? {
                return Ok(Pulled::Paused);
            }
            let Some(Reverse(head)) = self.heads.pop() else {
                return Ok(Pulled::End);
            };
            self.wanted.push(head.input);
            if let Some(seen) = &mut self.seen
                && !seen.is_new(cx, &head.key, stats)?
            {
                continue;
            }
            stats.advanced += 1;
            let index_key = head.index_key.map(DocBuf::from_vec_trusted);
            let row = RowRef {
                index_key: index_key.as_deref(),
                ..RowRef::of_key(&head.key)
            };
            if sink(row)? == Flow::Pause {
                return Ok(Pulled::Paused);
            }
        }
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("SORT_MERGE")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        stage.push("sortPattern", describer.sort);
        if describer.executed {
            stage.push("dupsTested", count(stats.dups_tested));
            stage.push("dupsDropped", count(stats.dups_dropped));
        }
    }

    fn works(&self, stats: &OperatorStats, inputs: u64) -> u64 {
        inputs + stats.advanced
    }
}
