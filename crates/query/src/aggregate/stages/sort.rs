//! `$sort`; with a limit behind it only so many documents are kept.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Blocking, ExecContext, Fault, Memory, Source};
use crate::error::{Error, Result};
use crate::sort::SortSpec;
use frond_bson::{Collator, DocBuf, Value};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// `{$sort: <specification>}`.
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) spec: DocBuf,
    order: SortSpec,
    /// How many documents the stages behind take at most.
    pub(crate) limit: Option<u64>,
}

impl Sort {
    /// A stage by a specification that was checked before or is refused here.
    pub(super) fn new(spec: DocBuf, collator: &Collator) -> Result<Sort> {
        Ok(Sort {
            order: SortSpec::parse(&spec)?.collated(collator),
            spec,
            limit: None,
        })
    }

    /// The same order for at most `limit` documents.
    pub(crate) fn limited(&self, limit: u64) -> Sort {
        Sort {
            spec: self.spec.clone(),
            order: self.order.clone(),
            limit: Some(self.limit.map_or(limit, |l| l.min(limit))),
        }
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            15973,
            "the $sort key specification must be an object",
        ));
    };
    if spec.is_empty() {
        return Err(Error::location(
            15976,
            "$sort stage must have at least one sort key",
        ));
    }
    if spec.contains_key("$natural") {
        return Err(Error::not_supported(
            "the order '$natural' of the stage '$sort'",
        ));
    }
    let sort = Sort::new(spec.to_owned(), context.environment.collator)?;
    out.push(Stage::Sort(Arc::new(sort)));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Sort>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let memory = Memory::new("$sort", context.memory_bytes_max);
    Box::new(Blocking::new(
        input,
        move |mut input: Source<E>| match stage.limit {
            Some(limit) => top(&stage.order, limit, &mut input, memory),
            None => all(&stage.order, &mut input, memory),
        },
    ))
}

/// Bytes beside key and document that one entry takes.
const ENTRY_BYTES: usize = 64;

fn all<E: Fault>(
    order: &SortSpec,
    input: &mut Source<E>,
    mut memory: Memory,
) -> Result<Vec<DocBuf>, E> {
    let mut entries: Vec<(Vec<u8>, DocBuf)> = Vec::new();
    while let Some(doc) = input.next()? {
        let key = order.key(&doc)?;
        memory.add(key.len() + doc.len_bytes() + ENTRY_BYTES)?;
        entries.push((key, doc));
    }
    // Stable: equal documents keep their order.
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries.into_iter().map(|(_, doc)| doc).collect())
}

/// The key, the number of the document, and the document; the greatest goes first from the heap.
struct Entry(Vec<u8>, u64, DocBuf);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (&self.0, self.1).cmp(&(&other.0, other.1))
    }
}

fn top<E: Fault>(
    order: &SortSpec,
    limit: u64,
    input: &mut Source<E>,
    mut memory: Memory,
) -> Result<Vec<DocBuf>, E> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut heap: BinaryHeap<Entry> = BinaryHeap::new();
    let mut number = 0;
    let mut key = Vec::new();
    while let Some(doc) = input.next()? {
        order.key_into(&doc, &mut key)?;
        number += 1;
        if heap.len() >= limit {
            // Of equal documents the earlier one stays.
            match heap.peek() {
                Some(worst) if key < worst.0 => {}
                _ => continue,
            }
            if let Some(gone) = heap.pop() {
                memory.sub(gone.0.len() + gone.2.len_bytes() + ENTRY_BYTES);
            }
        }
        memory.add(key.len() + doc.len_bytes() + ENTRY_BYTES)?;
        heap.push(Entry(key.clone(), number, doc));
    }
    let sorted = heap.into_sorted_vec();
    Ok(sorted.into_iter().map(|entry| entry.2).collect())
}
