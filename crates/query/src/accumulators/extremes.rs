//! `$min`, `$max`, `$minN`, `$maxN`.

use super::{Accumulator, Operator, collated, counted_collated, same};
use crate::bounds;
use crate::expr::{Context, Val};
use frond_bson::{ArrayBuf, Collator, OwnedValue, Value};
use frond_error::Result;
use std::cmp::Ordering;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$min",
        parse: |p, _, v| collated(p, v, |c| Box::new(Best::new(Ordering::Less, c))),
    },
    Operator {
        name: "$max",
        parse: |p, _, v| collated(p, v, |c| Box::new(Best::new(Ordering::Greater, c))),
    },
    Operator {
        name: "$minN",
        parse: |p, name, v| {
            counted_collated(p, name, v, |n, c| {
                Box::new(BestN::new(Ordering::Less, n, c))
            })
        },
    },
    Operator {
        name: "$maxN",
        parse: |p, name, v| {
            counted_collated(p, name, v, |n, c| {
                Box::new(BestN::new(Ordering::Greater, n, c))
            })
        },
    },
];

/// The value that goes first; null and missing values do not take part.
struct Best {
    wanted: Ordering,
    collator: Collator,
    value: Option<OwnedValue>,
}

impl Best {
    fn new(wanted: Ordering, collator: Collator) -> Best {
        Best {
            wanted,
            collator,
            value: None,
        }
    }
}

impl Best {
    /// Takes a value if it goes before the one that is kept.
    fn offer(&mut self, value: &Value<'_>) -> Result<usize> {
        let better = match &self.value {
            None => true,
            Some(best) => bounds::compare(&self.collator, value, &best.as_value())? == self.wanted,
        };
        if !better {
            return Ok(0);
        }
        let before = self.value.as_ref().map_or(0, |v| v.as_value().len_bytes());
        self.value = Some(value.to_owned());
        Ok(value.len_bytes().saturating_sub(before))
    }
}

impl Accumulator for Best {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if value.is_nullish() {
            return Ok(0);
        }
        self.offer(&value.or_null())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.value.clone().unwrap_or(OwnedValue::Null)))
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<usize> {
        match same::<Best>(other)?.value {
            // Of equal values the first one stays.
            Some(value) => self.offer(&value.as_value()),
            None => Ok(0),
        }
    }
}

/// The `n` values that go first, best first.
struct BestN {
    wanted: Ordering,
    collator: Collator,
    n: usize,
    values: Vec<OwnedValue>,
}

impl BestN {
    fn new(wanted: Ordering, n: usize, collator: Collator) -> BestN {
        BestN {
            wanted,
            collator,
            n,
            values: Vec::new(),
        }
    }
}

impl Accumulator for BestN {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if value.is_nullish() {
            return Ok(0);
        }
        let value = value.or_null();
        // After its equals, so that the first come stay.
        let (mut at, mut end) = (0, self.values.len());
        while let Some(kept) = self
            .values
            .get(at..end)
            .and_then(|part| part.get(part.len() / 2))
        {
            let order = bounds::compare(&self.collator, &value, &kept.as_value())?;
            let middle = at + (end - at) / 2;
            if order == self.wanted {
                end = middle;
            } else {
                at = middle + 1;
            }
        }
        if at >= self.n {
            return Ok(0);
        }
        self.values.insert(at, value.to_owned());
        self.values.truncate(self.n);
        Ok(value.len_bytes())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.values.iter().collect::<ArrayBuf>().into()))
    }
}
