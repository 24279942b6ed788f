//! One document by its `_id`, without a search for plans. MongoDB calls this plan `IDHACK`.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, OpStats, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use crate::error::Result;

/// Looks one key up in the tree of the collection.
pub struct IdLookup {
    /// The encoded `_id`; taken when it is looked up.
    key: Option<Vec<u8>>,
    reader: Reader,
    stats: OpStats,
}

impl IdLookup {
    /// A look-up of the document with this encoded `_id`.
    pub fn new(key: Vec<u8>, reader: Reader) -> IdLookup {
        IdLookup {
            key: Some(key),
            reader,
            stats: OpStats::default(),
        }
    }
}

impl Operator for IdLookup {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        if let Some(key) = self.key.take() {
            cx.collection.id_uses().add();
            self.stats.works += 1;
            self.stats.keys_examined += 1;
            cx.spend();
            if let Some(record) = cx.snapshot.get(cx.collection.primary, &key)? {
                let row = RowRef::of_key(&key);
                // It is the only row, so it does not matter whether more are wanted.
                self.reader.read(cx, row, &record, &mut self.stats, sink)?;
            }
        }
        Ok(self.stats.end())
    }

    fn stats(&self) -> OpStats {
        self.stats
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        Vec::new()
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("IDHACK")
    }

    fn describe(&self, stage: &mut DocBuf, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("keysExamined", count(self.stats.keys_examined));
            stage.push("docsExamined", count(self.stats.docs_examined));
        }
    }

    fn works(&self) -> u64 {
        self.stats.works
    }
}
