//! All documents of a collection, in the order in which they are stored.

use frond_bson::DocBuf;

use super::describe::{Describer, Part, count, direction_text};
use super::key_scan::KeyScan;
use super::operator::{ExecContext, Inputs, OpStats, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use crate::error::Result;
use crate::intervals::Intervals;
use crate::keyspace::{Direction, Snapshot, TreeId};
use crate::plan::{KeyInterval, primary_range};

/// Reads a collection and tests its documents.
pub struct CollScan {
    scan: KeyScan,
    direction: Direction,
    reader: Reader,
    /// The key of the last document examined, if a tailable cursor continues behind it.
    position: Option<Vec<u8>>,
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
}

impl Operator for CollScan {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OpStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let CollScan {
            scan,
            reader,
            position,
            ..
        } = self;
        scan.for_each(cx, stats, |key, record, _, stats| {
            if let Some(position) = position {
                position.clear();
                position.extend_from_slice(key);
            }
            let flow = reader.read(cx, RowRef::of_key(key), record, stats, sink)?;
            Ok(flow.into())
        })
    }

    fn add_trees(&self, trees: &mut Vec<TreeId>) {
        trees.push(self.scan.tree());
    }

    fn continue_on(&mut self, snapshot: &Snapshot) -> Result<()> {
        self.scan.continue_on(snapshot)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("COLLSCAN")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OpStats, describer: &Describer<'_>) {
        describer.push_filter(stage, &Part::All);
        stage.push("direction", direction_text(self.direction));
        if describer.executed {
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OpStats, _: u64) -> u64 {
        stats.works
    }
}
