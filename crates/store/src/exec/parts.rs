//! The output of the helpers of a scan: copies of rows, or groups of a `$group`.

use frond_bson::Doc;
use frond_query::aggregate::{GroupParts, Groups};

use super::operator::{Flow, RowRef, Sink};
use super::parallel::{Collect, Handed, Take};
use frond_storage::error::Result;
use frond_storage::keyspace::{MemoryBudget, MemoryUse, Reservation};
use frond_storage::record;

/// The most bytes of a part.
const PART_BYTES_MAX: usize = 4 << 20;
/// The memory of a part is reserved in steps of this size.
const STEP_BYTES: usize = 256 << 10;

pub struct CopyRows {
    memory: MemoryBudget,
    /// Whether the consumer looks at documents and keys. A count does not.
    documents: bool,
}

impl CopyRows {
    /// Copies within a budget.
    pub fn new(memory: MemoryBudget, documents: bool) -> CopyRows {
        CopyRows { memory, documents }
    }
}

#[derive(Default)]
pub struct Rows {
    /// Of each row its key, the record of a large document, and its document.
    bytes: Vec<u8>,
    rows: Vec<RowEnds>,
    memory: Option<Reservation>,
    /// Rows that were handed on, and their bytes.
    handed: usize,
    handed_bytes: usize,
}

/// Where the parts of a row end.
struct RowEnds {
    key: usize,
    record: usize,
    doc: usize,
    examined: u64,
}

impl Rows {
    fn bytes(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<RowEnds>()
    }

    fn push(&mut self, row: RowRef<'_>, examined: u64) {
        self.bytes.extend_from_slice(row.key);
        let key = self.bytes.len();
        if let Some(record) = row.record.filter(|record| record::is_in_parts(record)) {
            self.bytes.extend_from_slice(record);
        }
        let record = self.bytes.len();
        self.bytes.extend_from_slice(row.doc.as_bytes());
        self.rows.push(RowEnds {
            key,
            record,
            doc: self.bytes.len(),
            examined,
        });
    }

    /// Hands the rest of the rows on, until the sink asks for a pause.
    fn hand_on(&mut self, sink: Sink<'_>) -> Result<(Flow, Handed)> {
        let mut handed = Handed::default();
        while let Some(ends) = self.rows.get(self.handed) {
            let range = |from: usize, to: usize| self.bytes.get(from..to).unwrap_or_default();
            let doc = range(ends.record, ends.doc);
            let row = RowRef {
                record: Some(if ends.record > ends.key {
                    range(ends.key, ends.record)
                } else {
                    doc
                }),
                doc: if doc.is_empty() {
                    Doc::empty()
                } else {
                    Doc::from_trusted(doc)
                },
                ..RowRef::of_key(range(self.handed_bytes, ends.key))
            };
            let flow = sink(row)?;
            (self.handed, self.handed_bytes) = (self.handed + 1, ends.doc);
            (handed.rows, handed.examined) = (self.handed as u64, ends.examined);
            if flow == Flow::Pause {
                return Ok((Flow::Pause, handed));
            }
        }
        Ok((Flow::Continue, handed))
    }
}

impl Collect for CopyRows {
    type Part = Rows;

    fn begin(&self) -> Rows {
        Rows::default()
    }

    fn add(&self, part: &mut Rows, row: RowRef<'_>, examined: u64) -> Result<Flow> {
        let row = if self.documents {
            row
        } else {
            RowRef::of_key(&[])
        };
        part.push(row, examined);
        let memory = part
            .memory
            .get_or_insert_with(|| self.memory.reserve(MemoryUse::Queries, 0));
        let bytes = part.bytes.len() + part.rows.len() * size_of::<RowEnds>();
        let has_room = bytes <= memory.bytes()
            || memory.try_grow_fairly((bytes - memory.bytes()).next_multiple_of(STEP_BYTES));
        Ok(if has_room && part.bytes() < PART_BYTES_MAX {
            Flow::Continue
        } else {
            Flow::Pause
        })
    }
}

/// Takes copied rows, and passes them to a sink.
pub struct ToSink<'s>(pub Sink<'s>);

impl Take<Rows> for ToSink<'_> {
    fn takes_parts(&self) -> bool {
        true
    }

    fn row(&mut self, row: RowRef<'_>) -> Result<Flow> {
        (self.0)(row)
    }

    fn part(&mut self, part: &mut Rows) -> Result<(Flow, Handed)> {
        part.hand_on(self.0)
    }
}

impl Collect for GroupParts {
    type Part = Groups;

    fn begin(&self) -> Groups {
        GroupParts::begin(self)
    }

    fn add(&self, part: &mut Groups, row: RowRef<'_>, _: u64) -> Result<Flow> {
        Ok(if part.add_while_room(row.doc, row.meta)? {
            Flow::Continue
        } else {
            Flow::Pause
        })
    }
}

/// Takes groups, and adds them to those of the whole scan.
pub struct ToGroups<'g>(pub &'g mut Groups);

impl Take<Groups> for ToGroups<'_> {
    fn takes_parts(&self) -> bool {
        self.0.has_room()
    }

    fn row(&mut self, row: RowRef<'_>) -> Result<Flow> {
        self.0.add(row.doc, row.meta)?;
        Ok(Flow::Continue)
    }

    fn part(&mut self, part: &mut Groups) -> Result<(Flow, Handed)> {
        self.0.absorb(part)?;
        Ok((Flow::Continue, Handed::default()))
    }
}
