//! All documents of a collection, in the order in which they are stored.

use frond_bson::DocBuf;
use frond_query::aggregate::{GroupParts, Groups};

use super::describe::{Describer, Part, count, direction_text};
use super::key_scan::{KeyScan, Step};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::parallel::{ParallelScan, Purpose, START_BYTES, has_helpers};
use super::parts::{CopyRows, Rows, ToGroups, ToSink};
use super::reader::Reader;
use super::stats::OperatorStats;
use crate::plan::{KeyInterval, primary_range};
use frond_storage::error::Result;
use frond_storage::intervals::Intervals;
use frond_storage::keyspace::{Direction, Snapshot, TreeId};

/// Reads a collection and tests its documents. A scan that proves to be long is divided between threads.
pub struct CollScan {
    scan: KeyScan,
    direction: Direction,
    reader: Reader,
    /// The key of the last document examined, if a tailable cursor continues behind it.
    position: Option<Vec<u8>>,
    /// Whether the consumer looks at rows, and does not only count them.
    documents: bool,
    /// Replaces `scan` when it proves to be long.
    divided: Option<Box<Divided>>,
}

/// A scan that several threads may work at.
enum Divided {
    Rows(ParallelScan<Rows>, CopyRows),
    Groups(ParallelScan<Groups>, GroupParts),
}

impl CollScan {
    /// A scan of the whole collection whose documents are in the tree `primary`.
    pub fn new(primary: TreeId, direction: Direction, reader: Reader) -> CollScan {
        let range = primary_range(primary, Intervals::all(), direction);
        CollScan {
            scan: KeyScan::new(range).of_collection(),
            direction,
            reader,
            position: None,
            documents: true,
            divided: None,
        }
    }

    /// The same scan for a consumer that counts its rows.
    pub fn counting(self) -> CollScan {
        CollScan {
            documents: false,
            ..self
        }
    }

    /// A scan of the documents behind a key, or of all; it records its position.
    pub fn behind(primary: TreeId, position: Option<&[u8]>, reader: Reader) -> CollScan {
        let mut range = primary_range(primary, Intervals::all(), Direction::Forward);
        range.interval = KeyInterval {
            // No encoded value is the prefix of another one.
            low: position.map(|position| [position, &[0]].concat()),
            high: None,
        };
        CollScan {
            scan: KeyScan::new(range).of_collection(),
            position: Some(Vec::new()),
            ..CollScan::new(primary, Direction::Forward, reader)
        }
    }

    /// The last document examined, if the position is recorded and there was one.
    pub fn position(&self) -> Option<&[u8]> {
        self.position.as_deref().filter(|key| !key.is_empty())
    }

    /// Scans by one thread. If that takes long, and `divides`, it stops and returns the first key that it has not read.
    fn scan_alone(
        &mut self,
        cx: &ExecContext,
        stats: &mut OperatorStats,
        divides: bool,
        sink: Sink<'_>,
    ) -> Result<(Pulled, Option<Vec<u8>>)> {
        let CollScan {
            scan,
            reader,
            position,
            ..
        } = self;
        let (mut bytes, mut rest) = (0, None);
        let pulled = scan.for_each(cx, stats, |key, record, _, stats| {
            if let Some(position) = position {
                position.clear();
                position.extend_from_slice(key);
            }
            let flow = reader.read(cx, RowRef::of_key(key), record, stats, sink)?;
            bytes += record.len();
            if bytes >= START_BYTES && divides && flow == Flow::Continue {
                if has_helpers() {
                    rest = Some([key, &[0]].concat());
                    return Ok(Step::Pause);
                }
                bytes = 0;
            }
            Ok(flow.into())
        })?;
        if rest.is_some() {
            // Its cursor would keep memtables in memory.
            scan.close();
        }
        Ok((pulled, rest))
    }

    /// Whether the scan may be divided. That of a trial run is short.
    fn divides(&self, cx: &ExecContext) -> bool {
        self.direction == Direction::Forward && self.position.is_none() && cx.memory().is_some()
    }
}

impl Operator for CollScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        if self.divided.is_none() {
            let divides = self.divides(cx);
            let (pulled, rest) = self.scan_alone(cx, stats, divides, sink)?;
            let (Some(rest), Some(memory)) = (rest, cx.memory()) else {
                return Ok(pulled);
            };
            self.divided = Some(Box::new(Divided::Rows(
                ParallelScan::new(self.scan.tree(), rest),
                CopyRows::new(memory.clone(), self.documents),
            )));
        }
        let reader = &self.reader;
        match self.divided.as_deref_mut() {
            Some(Divided::Rows(scan, collect)) => {
                let purpose = Purpose { reader, collect };
                scan.pull(cx, &purpose, stats, &mut ToSink(sink))
            }
            // It was begun for groups, and is continued for them.
            Some(Divided::Groups(..)) | None => Ok(Pulled::End),
        }
    }

    fn group(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        groups: &mut Groups,
    ) -> Result<Pulled> {
        if self.divided.is_none() {
            let parts = groups.parts().filter(|_| self.divides(cx));
            let (pulled, rest) = self.scan_alone(cx, stats, parts.is_some(), &mut |row| {
                groups.add(row.doc, row.meta)?;
                Ok(Flow::Continue)
            })?;
            let (Some(rest), Some(parts)) = (rest, parts) else {
                return Ok(pulled);
            };
            let scan = ParallelScan::new(self.scan.tree(), rest);
            self.divided = Some(Box::new(Divided::Groups(scan, parts)));
        }
        let reader = &self.reader;
        match self.divided.as_deref_mut() {
            Some(Divided::Groups(scan, collect)) => {
                let purpose = Purpose { reader, collect };
                scan.pull(cx, &purpose, stats, &mut ToGroups(groups))
            }
            // Some of its rows were pulled before.
            Some(Divided::Rows(scan, collect)) => {
                let purpose = Purpose { reader, collect };
                let sink = &mut |row: RowRef<'_>| {
                    groups.add(row.doc, row.meta)?;
                    Ok(Flow::Continue)
                };
                scan.pull(cx, &purpose, stats, &mut ToSink(sink))
            }
            None => Ok(Pulled::End),
        }
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.scan.tree());
    }

    fn continue_on(&mut self, snapshot: &Snapshot) {
        match self.divided.as_deref_mut() {
            None => self.scan.continue_on(snapshot),
            Some(Divided::Rows(scan, _)) => scan.continue_on(snapshot),
            Some(Divided::Groups(scan, _)) => scan.continue_on(snapshot),
        }
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("COLLSCAN")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &Part::All);
        stage.push("direction", direction_text(self.direction));
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}
