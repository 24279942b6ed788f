//! Generators of documents. Document `n` of a seed is always the same bytes, so runs can be repeated
//! and compared; none of them allocates for a document.

pub mod everyday;
pub mod groups;
pub mod indexcost;
pub mod insertion;
pub mod manykeys;
pub mod sysbench;
pub mod updates;

use crate::random::SplitMix64;

/// 2020-01-01T00:00:00Z, the first second of the generated ids and dates.
const EPOCH_S: u32 = 1_577_836_800;

/// Documents that share the second in their `_id`, as if they were inserted at this rate.
const DOCUMENTS_PER_SECOND: u64 = 10_000;

/// Documents by number, all of the same length.
pub trait Source: Sync {
    fn document_bytes(&self) -> usize;

    fn append(&self, number: u64, out: &mut Vec<u8>);
}

/// An ObjectId as a driver would generate it: seconds, five bytes of the process, a counter. Ids
/// grow with the number (but for the second in which the counter wraps), and no two numbers
/// below 2^32 * 10,000 share one.
pub fn object_id(seed: u64, number: u64) -> [u8; 12] {
    let seconds = EPOCH_S.wrapping_add((number / DOCUMENTS_PER_SECOND) as u32);
    let process = SplitMix64::new(seed, u64::MAX).next().to_be_bytes();
    let counter = (number as u32).to_be_bytes();
    let mut id = [0; 12];
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    id[4..9].copy_from_slice(&process[..5]);
    id[9..].copy_from_slice(&counter[1..]);
    id
}

/// The bytes of a document in which each generated document overwrites some values.
#[derive(Clone, Debug)]
struct Template(Vec<u8>);

impl Template {
    fn new() -> Template {
        Template(vec![0; 4])
    }

    /// Appends a field. Returns the offset of its value.
    fn field(&mut self, tag: u8, name: &str, value: &[u8]) -> usize {
        self.0.push(tag);
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        let at = self.0.len();
        self.0.extend_from_slice(value);
        at
    }

    /// Appends a string. Returns the offset of its characters.
    fn string(&mut self, name: &str, text: &str) -> usize {
        let length = (text.len() as u32 + 1).to_le_bytes();
        let value = [&length, text.as_bytes(), &[0]].concat();
        self.field(0x02, name, &value) + 4
    }

    /// Begins an embedded document or array, by its type tag. Returns what [`Template::close`] needs.
    fn open(&mut self, tag: u8, name: &str) -> usize {
        self.field(tag, name, &[0; 4])
    }

    /// Ends the document whose length is at `at`.
    fn close(&mut self, at: usize) {
        self.0.push(0);
        let length = (self.0.len() - at) as u32;
        self.0[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Ends the whole document.
    fn finish(mut self) -> Template {
        self.close(0);
        self
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a copy to `out`, and returns it.
    fn copy_to<'o>(&self, out: &'o mut Vec<u8>) -> &'o mut [u8] {
        let start = out.len();
        out.extend_from_slice(&self.0);
        &mut out[start..]
    }
}

/// Overwrites the bytes at an offset.
fn put(document: &mut [u8], at: usize, bytes: &[u8]) {
    document[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use frond_bson::{Doc, DocBuf, Value};

    /// Document `number` of a source.
    pub fn document(source: &dyn Source, number: u64) -> DocBuf {
        let mut bytes = vec![9];
        source.append(number, &mut bytes);
        assert_eq!(bytes.len(), source.document_bytes() + 1);
        Doc::validate(&bytes[1..]).unwrap().to_owned()
    }

    #[test]
    fn documents_are_valid_and_depend_on_seed_and_number_only() {
        use manykeys::Schema::{Bucketed, Plain};
        type Make = fn(u64) -> Box<dyn Source>;
        let insertion = "_id URI name origin creation expiration";
        let keys = "_id appver deploytype g guid timeslice random stats";
        let sources: [(Make, &str); 8] = [
            (
                |seed| Box::new(insertion::Generator::new(seed, 0)),
                insertion,
            ),
            (
                |seed| Box::new(insertion::Generator::new(seed, 100)),
                insertion,
            ),
            (
                |seed| Box::new(groups::Documents::new(seed)),
                "_id k v date city",
            ),
            (
                |seed| Box::new(everyday::Documents::new(seed)),
                "_id k v u m city w",
            ),
            (
                |seed| Box::new(sysbench::Documents::new(seed, 3, 1000)),
                "_id k c pad",
            ),
            (
                |seed| Box::new(indexcost::Documents::new(seed)),
                "_id name someId1 str1 date1 bio",
            ),
            (
                |seed| Box::new(manykeys::Documents::new(Plain, seed, 30, true)),
                keys,
            ),
            (
                |seed| Box::new(manykeys::Documents::new(Bucketed, seed, 30, false)),
                keys,
            ),
        ];
        for (make, fields) in sources {
            let (source, other) = (make(7), make(8));
            let mut batch = Vec::new();
            for number in 0..10 {
                source.append(number, &mut batch);
            }
            let each = source.document_bytes();
            for number in [0, 5, 998, 10_000, 16_777_216, u64::from(u32::MAX / 2)] {
                let doc = document(source.as_ref(), number);
                let names: Vec<&str> = doc.iter().map(|(name, _)| name).collect();
                assert_eq!(names.join(" "), fields);
                assert_eq!(doc, document(make(7).as_ref(), number), "{fields}");
                assert_ne!(doc, document(other.as_ref(), number), "{fields}");
                let next = document(source.as_ref(), number + 1);
                // Behind the `_id` too.
                assert_ne!(doc.as_bytes()[40..], next.as_bytes()[40..], "{fields}");
                if number < 10 {
                    let at = each * number as usize;
                    assert_eq!(&batch[at..at + each], doc.as_bytes());
                }
                let id = doc.get("_id");
                assert!(matches!(id, Some(Value::ObjectId(_) | Value::Int32(_))));
            }
        }
    }
}
