//! The distinct values of a field.

use frond_bson::{ArrayBuf, Collator, Doc, FieldFinder, MAX_DOCUMENT_BYTES, RawElement, Value};
use frond_query::paths::{Path, distinct_values};
use frond_query::spill::key_prefix;

use super::Planned;
use crate::exec::operator::Flow;
use crate::memory::{make_room, take};
use frond_error::ErrorCode;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::MemoryBudget;

/// Bytes of a reply beside the values.
const REPLY_BYTES: usize = 16 * 1024;

/// Maximum bytes of the values.
const BYTES_MAX: usize = MAX_DOCUMENT_BYTES - REPLY_BYTES;

/// Collects the values, in MongoDB's order.
///
/// # Errors
/// 17217 if they are larger than one document, 146 beyond what other operations leave; errors of the plan.
pub(crate) fn values(
    planned: Planned,
    path: &str,
    memory: &MemoryBudget,
    context: &OpContext,
) -> Result<ArrayBuf> {
    let mut executor = planned.rows(&planned.wanted(), context);
    let mut distinct = Distinct::new(path, planned.question.sort.collator());
    // Its snapshot belongs to the executor, which may release memtables.
    drop(planned);
    let mut reserved = None;
    executor.for_each(&mut |row| {
        // Before its buffer grows.
        let bytes = distinct.bytes_with(row.doc);
        take(&mut reserved, Some(memory), bytes, "distinct")?;
        distinct.add(row.doc)?;
        Ok(Flow::Continue)
    })?;
    Ok(distinct.into_array())
}

/// Values that are collected before duplicates are removed.
const GATHERED_MIN: usize = 512;
/// The key and the value of a document rarely take more.
const VALUES_BYTES: usize = 512;

/// A value and its key together take at most about this multiple of the bytes of the value.
const KEY_BYTES: usize = 2;

/// The buffer of keys and values grows to at most this in its first steps.
const STORE_MIN: usize = 28 << 10;

/// The values seen so far.
pub(crate) struct Distinct {
    path: Path,
    /// Finds the field of a path without dots.
    finder: Option<FieldFinder>,
    collator: Collator,
    /// Equal values, as 1 and 1.0, have the same key; the first of them is returned. They are sorted and deduplicated
    /// in groups, so that most values need no search.
    found: Vec<Found>,
    /// The number of values before the next sort.
    found_max: usize,
    /// Keys and values of all entries.
    store: Vec<u8>,
    bytes: usize,
}

/// The place of a value in the buffer: its key, followed by its element.
#[derive(Clone, Copy)]
struct Found {
    /// The first bytes of the key, which decide most comparisons.
    prefix: u64,
    key: usize,
    element: usize,
    end: usize,
}

impl Found {
    fn key<'a>(&self, store: &'a [u8]) -> &'a [u8] {
        store.get(self.key..self.element).unwrap_or_default()
    }

    fn element<'a>(&self, store: &'a [u8]) -> Option<RawElement<'a>> {
        let element = RawElement::split(store.get(self.element..self.end)?)?;
        Some(element.0)
    }

    fn value_bytes(&self) -> usize {
        // Without type and name.
        self.end - self.element - 2
    }
}

impl Distinct {
    pub fn new(path: &str, collator: &Collator) -> Distinct {
        Distinct {
            collator: collator.clone(),
            path: Path::new(path),
            finder: (!path.contains('.')).then(|| FieldFinder::new(vec![path.into()])),
            found: Vec::new(),
            found_max: GATHERED_MIN,
            store: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// 17217 if there are too many.
    pub fn add(&mut self, doc: &Doc) -> Result<()> {
        let Distinct {
            path,
            finder,
            collator,
            found,
            store,
            bytes,
            ..
        } = self;
        make_room(store, doc.len_bytes().min(VALUES_BYTES));
        let mut last = found.last().copied();
        let mut visit = |value: Value<'_>| {
            let key = store.len();
            collator.encode(&value, store);
            let element = store.len();
            let same = |last: Found| last.key(store) == store.get(key..).unwrap_or_default();
            if last.is_some_and(same) {
                store.truncate(key);
                return;
            }
            // An element without a name.
            store.extend_from_slice(&[value.type_code(), 0]);
            value.write_to(store);
            let new = Found {
                prefix: key_prefix(store.get(key..element).unwrap_or_default()),
                key,
                element,
                end: store.len(),
            };
            *bytes += new.value_bytes() + 8;
            last = Some(new);
            found.push(new);
        };
        match finder {
            Some(finder) => {
                let mut field = [None];
                finder.find(doc, &mut field);
                let [field] = field;
                match field.and_then(|field: RawElement<'_>| field.value()) {
                    Some(Value::Array(items)) => items.values().for_each(visit),
                    Some(value) => visit(value),
                    None => {}
                }
            }
            None => distinct_values(doc, path, visit),
        }
        if self.found.len() >= self.found_max || self.bytes > BYTES_MAX {
            self.tell_apart();
            self.found_max = GATHERED_MIN.max(2 * self.found.len());
        }
        if self.bytes > BYTES_MAX {
            return Err(command(
                ErrorCode::Location(17217),
                "distinct too big, 16mb cap",
            ));
        }
        Ok(())
    }

    /// Sorts the values, and drops all but the first of equal ones.
    fn tell_apart(&mut self) {
        self.sort();
        let mut kept = Vec::with_capacity(self.store.len().min(2 * BYTES_MAX));
        for found in &mut self.found {
            let (key, len) = (kept.len(), found.element - found.key);
            kept.extend_from_slice(self.store.get(found.key..found.end).unwrap_or_default());
            *found = Found {
                key,
                prefix: found.prefix,
                element: key + len,
                end: kept.len(),
            };
        }
        self.store = kept;
        self.bytes = self.found.iter().map(|f| f.value_bytes() + 8).sum();
    }

    /// Sorts the places of the values, and drops those of all but the first of equal ones.
    fn sort(&mut self) {
        let store = &self.store;
        // Of equal keys the one found first is first in the buffer.
        let order = |a: &Found, b: &Found| {
            let keys = || a.key(store).cmp(b.key(store)).then(a.key.cmp(&b.key));
            a.prefix.cmp(&b.prefix).then_with(keys)
        };
        self.found.sort_unstable_by(order);
        (self.found).dedup_by(|b, a| a.prefix == b.prefix && a.key(store) == b.key(store));
    }

    /// The most bytes that it holds after it has added a document, with the copy that it makes without duplicates.
    pub fn bytes_with(&self, doc: &Doc) -> usize {
        // A key of another collation than the binary one may be longer than its value.
        let used = self.store.len() + KEY_BYTES * doc.len_bytes();
        let grown = |capacity: usize, used: usize, least: usize| {
            if used > capacity {
                used.max(2 * capacity).max(least)
            } else {
                capacity
            }
        };
        let found = grown(self.found.capacity(), self.found.len() + 1, 4);
        grown(self.store.capacity(), used, STORE_MIN) + used + found * size_of::<Found>()
    }

    pub fn into_array(mut self) -> ArrayBuf {
        self.sort();
        let mut array = ArrayBuf::new();
        let values = self.found.iter().map(|found| found.value_bytes() + 8);
        array.reserve(values.sum());
        for found in &self.found {
            if let Some(element) = found.element(&self.store) {
                array.push_raw(&element);
            }
        }
        array
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn values_come_once_in_order_and_the_first_of_equal_ones_counts() {
        let mut distinct = Distinct::new("a", Collator::BINARY);
        for round in 0..3000 {
            let number = (round * 7) % 600;
            match round {
                0..600 => distinct.add(&doc! {"a": number}).unwrap(),
                _ => distinct.add(&doc! {"a": [f64::from(number), "x"]}).unwrap(),
            }
            assert!(distinct.found.len() <= 2 * 601 + 2);
        }
        distinct.add(&doc! {"b": 1}).unwrap();
        let found = distinct.into_array();
        assert_eq!(found.len(), 601);
        for (at, (_, value)) in found.as_doc().iter().enumerate() {
            match at {
                600 => assert_eq!(value, Value::String("x")),
                _ => assert_eq!(value, Value::Int32(at as i32)),
            }
        }
    }

    /// The buffer grew to twice its size before its new size was counted: 30 at a time took 500 MiB that nothing counted.
    #[test]
    fn the_memory_for_a_value_is_counted_before_it_is_taken() {
        let mut distinct = Distinct::new("a", Collator::BINARY);
        for number in 0..5_000 {
            let doc = doc! {"a": format!("{number:0300}")};
            let counted = distinct.bytes_with(&doc);
            distinct.add(&doc).unwrap();
            let held = distinct.store.capacity() + distinct.found.capacity() * size_of::<Found>();
            assert!(held <= counted, "{number}: {held} of {counted}");
        }
    }

    #[test]
    fn too_much_is_refused_and_repetitions_are_not() {
        let mut distinct = Distinct::new("a", Collator::BINARY);
        let text = |number: i32| format!("{number:01000}");
        for number in 0..40_000 {
            distinct.add(&doc! {"a": text(number % 10_000)}).unwrap();
        }
        let refused = (10_000..20_000).any(|n| distinct.add(&doc! {"a": text(n)}).is_err());
        assert!(refused);
    }
}
