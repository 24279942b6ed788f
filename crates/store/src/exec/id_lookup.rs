//! One document by its `_id`, without a search for plans. MongoDB calls this plan `IDHACK`.

use frond_bson::DocBuf;

use super::describe::{Describer, count};
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, RowRef, Sink};
use super::reader::Reader;
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// Looks one key up in the tree of the collection.
pub struct IdLookup {
    /// The encoded `_id`; taken when it is looked up.
    key: Option<Vec<u8>>,
    reader: Reader,
}

impl IdLookup {
    /// A look-up of the document with this encoded `_id`.
    pub fn new(key: Vec<u8>, reader: Reader) -> IdLookup {
        IdLookup {
            key: Some(key),
            reader,
        }
    }
}

impl Operator for IdLookup {
    fn pull(
        &mut self,
        cx: &ExecContext,
        _: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        if let Some(key) = self.key.take() {
            cx.collection.id_uses().add();
            stats.works += 1;
            stats.keys_examined += 1;
            cx.spend();
            if let Some(record) = cx.snapshot().get(cx.collection.primary, &key)? {
                let row = RowRef::of_key(&key);
                let flow = self.reader.read(cx, row, &record, stats, sink)?;
                if flow == Flow::Pause {
                    return Ok(Pulled::Paused);
                }
            }
        }
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("IDHACK")
    }

    fn describe(&self, stage: &mut DocBuf, stats: &OperatorStats, describer: &Describer<'_>) {
        if describer.executed {
            stage.push("keysExamined", count(stats.keys_examined));
            stage.push("docsExamined", count(stats.docs_examined));
        }
    }

    fn works(&self, stats: &OperatorStats, _: u64) -> u64 {
        stats.works
    }
}
