//! `$push`, `$addToSet`, `$first`, `$last`, `$firstN`, `$lastN`.

use super::{Accumulator, Operator, collated, counted, plain, same};
use crate::expr::{Context, Val};
use frond_bson::{ArrayBuf, Collator, OwnedValue, Value};
use frond_error::Result;
use std::collections::{HashSet, VecDeque};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$push",
        parse: |p, _, v| plain(p, v, || Box::new(Push(ArrayBuf::new()))),
    },
    Operator {
        name: "$addToSet",
        parse: |p, _, v| collated(p, v, |c| Box::new(AddToSet::new(c))),
    },
    Operator {
        name: "$first",
        parse: |p, _, v| plain(p, v, || Box::new(First(None))),
    },
    Operator {
        name: "$last",
        parse: |p, _, v| plain(p, v, || Box::new(Last(OwnedValue::Null))),
    },
    Operator {
        name: "$firstN",
        parse: |p, name, v| {
            counted(p, name, v, |n| {
                Box::new(FirstN {
                    n,
                    values: ArrayBuf::new(),
                })
            })
        },
    },
    Operator {
        name: "$lastN",
        parse: |p, name, v| {
            counted(p, name, v, |n| {
                Box::new(LastN {
                    n,
                    values: VecDeque::new(),
                })
            })
        },
    },
];

struct Push(ArrayBuf);

impl Accumulator for Push {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        // Missing values add nothing, null does.
        let Some(value) = value.get() else {
            return Ok(0);
        };
        let before = self.0.len_bytes();
        self.0.push_value(&value);
        Ok(self.0.len_bytes() - before)
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.0.clone().into()))
    }
}

struct AddToSet {
    collator: Collator,
    /// Keys of the values, which are the same for equal numbers of different types.
    seen: HashSet<Vec<u8>>,
    values: ArrayBuf,
}

impl AddToSet {
    fn new(collator: Collator) -> AddToSet {
        AddToSet {
            collator,
            seen: HashSet::new(),
            values: ArrayBuf::new(),
        }
    }
}

impl Accumulator for AddToSet {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(value) = value.get() else {
            return Ok(0);
        };
        let mut bytes = Vec::new();
        self.collator.encode(&value, &mut bytes);
        let size = bytes.len();
        if !self.seen.insert(bytes) {
            return Ok(0);
        }
        self.values.push_value(&value);
        Ok(size + value.len_bytes())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.values.clone().into()))
    }
}

/// The first value; `None` before the first document.
struct First(Option<OwnedValue>);

impl Accumulator for First {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        if self.0.is_some() {
            return Ok(0);
        }
        let value = value.or_null();
        self.0 = Some(value.to_owned());
        Ok(value.len_bytes())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.0.clone().unwrap_or(OwnedValue::Null)))
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<usize> {
        match (&self.0, same::<First>(other)?.0) {
            (None, Some(value)) => {
                let bytes = value.as_value().len_bytes();
                self.0 = Some(value);
                Ok(bytes)
            }
            _ => Ok(0),
        }
    }

    fn wants_more(&self) -> bool {
        self.0.is_none()
    }
}

struct Last(OwnedValue);

impl Accumulator for Last {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let before = self.0.as_value().len_bytes();
        let value = value.or_null();
        self.0 = value.to_owned();
        Ok(value.len_bytes().saturating_sub(before))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.0.clone()))
    }

    fn can_merge(&self) -> bool {
        true
    }

    fn merge(&mut self, other: Box<dyn Accumulator>) -> Result<usize> {
        // A group has at least one document.
        let before = self.0.as_value().len_bytes();
        self.0 = same::<Last>(other)?.0;
        Ok(self.0.as_value().len_bytes().saturating_sub(before))
    }
}

struct FirstN {
    n: usize,
    values: ArrayBuf,
}

impl Accumulator for FirstN {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let value: Value<'_> = value.or_null();
        self.values.push_value(&value);
        Ok(value.len_bytes())
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.values.clone().into()))
    }

    fn wants_more(&self) -> bool {
        self.values.len() < self.n
    }
}

struct LastN {
    n: usize,
    values: VecDeque<OwnedValue>,
}

impl Accumulator for LastN {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let value = value.or_null();
        let gone = if self.values.len() == self.n {
            self.values.pop_front()
        } else {
            None
        };
        self.values.push_back(value.to_owned());
        let freed = gone.map_or(0, |v| v.as_value().len_bytes());
        Ok(value.len_bytes().saturating_sub(freed))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        Ok(Some(self.values.iter().collect::<ArrayBuf>().into()))
    }
}
