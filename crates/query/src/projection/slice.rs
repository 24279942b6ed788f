//! `$slice` in a projection: a part of an array.

use frond_bson::{ArrayBuf, Doc, Value};

use frond_error::{Error, Result};

/// Which elements of an array to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Number of elements to skip; a negative one is a start position, counted from the end.
    skip: i64,
    /// The most elements to keep.
    limit: usize,
}

impl Slice {
    /// Parses `n` (the first `n`, or the last `-n`) or `[skip, limit]`.
    pub(super) fn parse(argument: Value<'_>) -> Result<Slice> {
        if argument.is_number() {
            let count = clamp(&argument);
            let limit = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            return Ok(Slice {
                skip: count.min(0),
                limit,
            });
        }
        let Value::Array(items) = argument else {
            return Err(Error::location(
                31273,
                "$slice only supports numbers and [skip, limit] arrays",
            ));
        };
        let mut items = items.values();
        let (Some(skip), Some(limit), None) = (items.next(), items.next(), items.next()) else {
            return Err(Error::location(
                31272,
                "$slice array argument should be of form [skip, limit]",
            ));
        };
        for (code, name, number) in [(31257, "skip", &skip), (31258, "limit", &limit)] {
            if !number.is_number() {
                let got = number.type_name();
                return Err(Error::location(
                    code,
                    format!("$slice expects the {name} argument to be a number, got {got}"),
                ));
            }
        }
        let limit = clamp(&limit);
        match usize::try_from(limit) {
            Ok(count) if count > 0 => Ok(Slice {
                skip: clamp(&skip),
                limit: count,
            }),
            _ => Err(Error::location(
                31259,
                format!("$slice limit must be positive, got {limit}"),
            )),
        }
    }

    /// Copies the part of `items` to `out`.
    pub(super) fn copy(self, items: &Doc, out: &mut ArrayBuf) {
        let skip = match usize::try_from(self.skip) {
            Ok(skip) => skip,
            Err(_) => {
                let from_end = usize::try_from(self.skip.unsigned_abs()).unwrap_or(usize::MAX);
                items.count().saturating_sub(from_end)
            }
        };
        items
            .iter_raw()
            .skip(skip)
            .take(self.limit)
            .for_each(|item| out.push_raw(&item));
    }
}

/// A number as a 32-bit integer: fractions cut off, limits for what does not fit, 0 for NaN.
fn clamp(number: &Value<'_>) -> i64 {
    i64::from(number.as_f64().unwrap_or(0.0) as i32)
}
