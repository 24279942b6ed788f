//! `$top`, `$bottom`, `$topN`, `$bottomN`: the output of the documents that sort first or last.

use super::{Accumulator, Count, Operator, Plan, Start, check_names, number};
use crate::expr::{Context, Parser, Val};
use crate::sort::SortSpec;
use frond_bson::{ArrayBuf, Doc, OwnedValue, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$top",
        parse: |p, name, v| parse(p, name, v, false, false),
    },
    Operator {
        name: "$bottom",
        parse: |p, name, v| parse(p, name, v, true, false),
    },
    Operator {
        name: "$topN",
        parse: |p, name, v| parse(p, name, v, false, true),
    },
    Operator {
        name: "$bottomN",
        parse: |p, name, v| parse(p, name, v, true, true),
    },
];

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) sort: std::sync::Arc<SortSpec>,
    pub(crate) bottom: bool,
    /// Number of results to keep; without it the result is a single value instead of an array.
    pub(crate) n: Option<Count>,
}

fn parse(
    parser: &mut Parser<'_>,
    name: &'static str,
    argument: Value<'_>,
    bottom: bool,
    several: bool,
) -> Result<Plan> {
    let Value::Document(doc) = argument else {
        return Err(Error::location(
            5788001,
            format!("specification must be an object; found {name}"),
        ));
    };
    let known: &[&str] = if several {
        &["sortBy", "output", "n"]
    } else {
        &["sortBy", "output"]
    };
    check_names(name, doc, known, 5788002)?;
    let Some(Value::Document(sort)) = doc.get("sortBy") else {
        return Err(Error::location(
            5788005,
            format!("{name} requires a 'sortBy' object"),
        ));
    };
    let output = doc
        .get("output")
        .ok_or_else(|| Error::location(5788004, format!("{name} requires an 'output' field")))?;
    let n = if several {
        Some(number(parser, name, doc)?)
    } else {
        None
    };
    Ok(Plan {
        input: parser.parse(output)?,
        start: Start::Sorted(Box::new(Order {
            sort: std::sync::Arc::new(SortSpec::parse(sort)?.collated(parser.collator())),
            bottom,
            n,
        })),
    })
}

impl Order {
    pub(super) fn begin(&self, group: &Doc, now_ms: i64) -> Result<Box<dyn Accumulator>> {
        let n = self.n.as_ref().map(|n| n.get(group, now_ms)).transpose()?;
        Ok(Box::new(Ordered {
            sort: self.sort.clone(),
            bottom: self.bottom,
            n,
            kept: Vec::new(),
        }))
    }
}

/// The best outputs with their sort keys, in sort order.
struct Ordered {
    sort: std::sync::Arc<SortSpec>,
    bottom: bool,
    n: Option<usize>,
    kept: Vec<(Vec<u8>, OwnedValue)>,
}

impl Accumulator for Ordered {
    fn add(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize> {
        let n = self.n.unwrap_or(1);
        let key = self.sort.key(context.root)?;
        let at = self.kept.partition_point(|(other, _)| *other <= key);
        let full = self.kept.len() == n;
        // Of the bottom the first in the list goes, of the top the last.
        if full && if self.bottom { at == 0 } else { at == n } {
            return Ok(0);
        }
        let value = value.or_null();
        let size = key.len() + value.len_bytes();
        self.kept.insert(at, (key, value.to_owned()));
        let mut freed = 0;
        if full {
            let gone = if self.bottom {
                Some(self.kept.remove(0))
            } else {
                self.kept.pop()
            };
            freed = gone.map_or(0, |(key, value)| key.len() + value.as_value().len_bytes());
        }
        Ok(size.saturating_sub(freed))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        let mut values = self.kept.iter().map(|(_, value)| value);
        Ok(Some(match self.n {
            None => values.next().cloned().unwrap_or(OwnedValue::Null),
            Some(_) => values.collect::<ArrayBuf>().into(),
        }))
    }
}
