//! `$sort`; with a limit behind it only the first documents are kept.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{Deferred, ExecContext, Fault, InOrder, Source};
use crate::meta::MetaFields;
use crate::sort::SortSpec;
use crate::spill::Sorter;
use frond_bson::{Collator, DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$sort: <specification>}`.
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) spec: DocBuf,
    order: SortSpec,
    /// Upper bound on the documents that later stages read, which allows a top-k sort.
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

    /// The metadata that is sorted by.
    pub(crate) fn meta(&self) -> MetaFields {
        self.order.meta()
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
    let budget = context.budget("$sort", context.limits.sort);
    let limit = stage.limit;
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let mut sorter = Sorter::new(budget, limit);
        let mut key = Vec::new();
        while let Some(doc) = input.next()? {
            stage.order.key_with(&doc, input.meta(), &mut key)?;
            if sorter.wants(&key) {
                sorter.push(key.clone(), doc)?;
            }
        }
        drop(input);
        Ok(Box::new(InOrder::new(sorter.finish()?)) as Source<E>)
    }))
}
