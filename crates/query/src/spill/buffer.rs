//! A buffer of documents by position, of which blocks may be spilled to disk.

use super::{BLOCK_BYTES, Budget, File, put, take};
use crate::memory::{Fit, StageMemory};
use frond_bson::DocBuf;
use frond_error::{Error, Result};
use std::collections::VecDeque;

/// Spilled blocks that are cached in memory.
const CACHED_BLOCKS: usize = 8;
const CACHED_BYTES_MAX: usize = 2 << 20;
/// Memory of a document beside its bytes.
const DOC_BYTES: usize = 40;

/// A list of documents. They are appended, and read at any position.
pub struct SpillBuffer {
    budget: Budget,
    blocks: Vec<Block>,
    len: usize,
    /// The blocks in memory, and those that are cached.
    held: StageMemory,
    /// The first block that is in memory only.
    in_memory: usize,
    file: Option<File>,
    /// Spilled blocks that were read, the latest last.
    cache: VecDeque<(usize, Vec<DocBuf>)>,
}

struct Block {
    /// The position of the first document.
    first: usize,
    docs: Vec<DocBuf>,
    bytes: usize,
    /// The location of the block on disk.
    place: Option<u64>,
}

impl SpillBuffer {
    pub fn new(budget: Budget) -> SpillBuffer {
        SpillBuffer {
            held: budget.held(),
            blocks: Vec::new(),
            len: 0,
            in_memory: 0,
            file: None,
            cache: VecDeque::new(),
            budget,
        }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a document at the end.
    ///
    /// # Errors
    /// 292 beyond the budget, 146 beyond what others leave, if nothing may be written; those of files.
    pub fn push(&mut self, doc: DocBuf) -> Result<()> {
        let bytes = doc.len_bytes();
        match self.blocks.last_mut() {
            Some(block) if block.place.is_none() && block.bytes < BLOCK_BYTES => {
                block.docs.push(doc);
                block.bytes += bytes;
            }
            _ => self.blocks.push(Block {
                first: self.len,
                docs: vec![doc],
                bytes,
                place: None,
            }),
        }
        self.len += 1;
        let mut fit = self.held.add(bytes + DOC_BYTES);
        while fit != Fit::Fits {
            if self.budget.space.is_none() {
                return Err(self.budget.refused(fit));
            }
            if !self.spill_block()? {
                break;
            }
            fit = self.held.add(0);
        }
        Ok(())
    }

    /// Moves the first block that is in memory to disk. False if there is none.
    fn spill_block(&mut self) -> Result<bool> {
        let Some(block) = self.blocks.get_mut(self.in_memory) else {
            return Ok(false);
        };
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(self.budget.file()?),
        };
        let mut bytes = Vec::with_capacity(block.bytes + 4 * block.docs.len());
        for doc in &block.docs {
            put(&mut bytes, doc.as_bytes());
        }
        block.place = Some(file.append(&bytes)?);
        let documents = block.docs.len();
        block.docs = Vec::new();
        self.held.remove(block.bytes + documents * DOC_BYTES);
        self.in_memory += 1;
        self.budget.note(bytes.len());
        Ok(true)
    }

    /// The document at a position.
    ///
    /// # Errors
    /// Those of files.
    pub fn get(&mut self, position: usize) -> Result<&DocBuf> {
        let outside = || Error::internal("a position is beyond the end of a buffer");
        let at = self.blocks.partition_point(|block| block.first <= position);
        let at = at.checked_sub(1).ok_or_else(outside)?;
        let block = self.blocks.get(at).ok_or_else(outside)?;
        let within = position - block.first;
        let Some(place) = block.place else {
            return block.docs.get(within).ok_or_else(outside);
        };
        let cached = match self.cache.iter().position(|(cached, _)| *cached == at) {
            Some(cached) => cached,
            None => {
                let docs = match &mut self.file {
                    Some(file) => read_docs(&file.read(place)?)?,
                    None => Vec::new(),
                };
                if self.cache.len() == CACHED_BLOCKS {
                    self.cache.pop_front();
                }
                // Blocks of large documents are large.
                while self.cache.len() > 1 && self.cached_bytes() > CACHED_BYTES_MAX {
                    self.cache.pop_front();
                }
                self.cache.push_back((at, docs));
                self.cache.len() - 1
            }
        };
        let (_, docs) = self.cache.get(cached).ok_or_else(outside)?;
        docs.get(within).ok_or_else(outside)
    }

    fn cached_bytes(&self) -> usize {
        let docs = self.cache.iter().flat_map(|(_, docs)| docs);
        docs.map(|doc| doc.len_bytes()).sum()
    }

    pub fn clear(&mut self) {
        let empty = SpillBuffer::new(self.budget.clone());
        *self = empty;
    }
}

fn read_docs(mut block: &[u8]) -> Result<Vec<DocBuf>> {
    let mut docs = Vec::new();
    while !block.is_empty() {
        docs.push(DocBuf::from_vec_trusted(take(&mut block)?.to_vec()));
    }
    Ok(docs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::Files;
    use super::*;
    use frond_bson::doc;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn documents_are_where_they_were_put() {
        let text = "x".repeat(10_000);
        let wanted = |n: usize| doc! {"n": n as i64, "text": text.as_str()};
        for bytes_max in [0, 100_000, 10_000_000] {
            let files = Arc::new(Files::default());
            let mut buffer = SpillBuffer::new(files.budget("$facet", bytes_max));
            for n in 0..200 {
                buffer.push(wanted(n)).unwrap();
            }
            assert_eq!(buffer.len(), 200);
            let used = files.made.load(Ordering::Relaxed) > 0;
            assert_eq!(used, bytes_max < 10_000_000, "{bytes_max}");
            for n in (0..200).chain((0..200).rev()).chain([5, 150, 6, 151]) {
                assert_eq!(*buffer.get(n).unwrap(), wanted(n));
            }
            assert!(buffer.get(200).is_err());
            buffer.clear();
            assert!(buffer.is_empty() && files.open.load(Ordering::Relaxed) == 0);
        }
        let mut buffer = SpillBuffer::new(Budget::in_memory("$facet", 50_000));
        let mut all = (0..200).map(|n| buffer.push(wanted(n)));
        assert!(all.any(|result| result.is_err_and(|error| error.code().code() == 292)));
    }
}
