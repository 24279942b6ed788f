//! `$mergeObjects`.

use super::{Accumulator, Operator, plain};
use crate::bounds;
use crate::expr::operators::{merge, merge_input};
use crate::expr::{Context, Val};
use frond_bson::{DocBuf, OwnedValue};
use frond_error::Result;

pub(super) const OPERATORS: &[Operator] = &[Operator {
    name: "$mergeObjects",
    parse: |p, _, v| plain(p, v, || Box::new(MergeObjects(DocBuf::new()))),
}];

struct MergeObjects(DocBuf);

impl Accumulator for MergeObjects {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(doc) = merge_input(value.or_null())? else {
            return Ok(0);
        };
        let before = self.0.len_bytes();
        self.0 = bounds::releasing(|| merge(&self.0, doc))?;
        Ok(self.0.len_bytes().saturating_sub(before))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.0.clone().into()))
    }
}
