//! Arrays: elements, slices, ranges, order, conversion from and to documents.

use super::comparison::order;
use super::fields::Fields;
use super::object::invalid_field_name;
use super::{Arguments, Entry, collated, many, named, named_collated, one, two};
use crate::bounded_sort::sort_values;
use crate::bounds;
use crate::expr::parse::required;
use crate::expr::value::Val;
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, RawElement, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    two("$arrayElemAt", array_elem_at),
    many("$concatArrays", 0, Arguments::MANY, concat_arrays),
    collated("$in", 2, 2, is_in),
    one("$isArray", |v| Ok(v.as_array().is_some().into())),
    one("$size", size),
    many("$slice", 2, 3, slice),
    many("$range", 2, 3, range),
    one("$reverseArray", reverse),
    one("$first", |v| {
        end("$first", v, |array| array.values().next())
    }),
    one("$last", |v| end("$last", v, |array| array.values().last())),
    named("$firstN", &[required("n"), required("input")], |a| {
        some("$firstN", a, |values, n| {
            values.truncate(n);
            Ok(())
        })
    }),
    named("$lastN", &[required("n"), required("input")], |a| {
        some("$lastN", a, |values, n| {
            values.drain(..values.len().saturating_sub(n));
            Ok(())
        })
    }),
    named_collated("$minN", &[required("n"), required("input")], |a, c| {
        some("$minN", a, |values, n| {
            values.retain(|v| !v.is_nullish());
            sort_values(values, |a, b| c.compare(a, b))?;
            values.truncate(n);
            Ok(())
        })
    }),
    named_collated("$maxN", &[required("n"), required("input")], |a, c| {
        some("$maxN", a, |values, n| {
            values.retain(|v| !v.is_nullish());
            sort_values(values, |a, b| c.compare(b, a))?;
            values.truncate(n);
            Ok(())
        })
    }),
    collated("$indexOfArray", 2, 4, index_of_array),
    one("$arrayToObject", array_to_object),
    one("$objectToArray", object_to_array),
];

/// The number that an argument is, as a 32-bit integer.
pub(super) fn integer(value: &Val<'_>) -> Option<i64> {
    value
        .get()
        .and_then(|v| v.as_i64_lossless())
        .filter(|v| i32::try_from(*v).is_ok())
}

/// The position that an index names; negative ones count from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    if index >= 0 {
        return usize::try_from(index).ok();
    }
    length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
}

/// A copy of an element that does not borrow from the array.
fn owned<'a>(value: Option<Value<'_>>) -> Result<Val<'a>> {
    value.map_or(Ok(Val::Missing), Val::copy_of)
}

fn array_elem_at<'a>(array: Val<'a>, index: Val<'a>) -> Result<Val<'a>> {
    if array.is_nullish() || index.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(elements) = array.as_array() else {
        return Err(Error::location(
            28689,
            format!(
                "$arrayElemAt's first argument must be an array, but is {}",
                array.type_name()
            ),
        ));
    };
    if !index.or_null().is_number() {
        return Err(Error::location(
            28690,
            format!(
                "$arrayElemAt's second argument must be a numeric value, but is {}",
                index.type_name()
            ),
        ));
    }
    let Some(index) = integer(&index) else {
        return Err(Error::location(
            28691,
            format!(
                "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                crate::display::computed(&index.or_null())
            ),
        ));
    };
    // Counting the elements is needed only for negative indexes.
    let length = if index < 0 { elements.count() } else { 0 };
    let element = position(index, length).and_then(|at| elements.values().nth(at));
    owned(element)
}

fn concat_arrays<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let mut all = ArrayBuf::new();
    for value in values {
        if value.is_nullish() {
            return Ok(Val::NULL);
        }
        let Some(array) = value.as_array() else {
            return Err(Error::location(
                28664,
                format!(
                    "$concatArrays only supports arrays, not {}",
                    value.type_name()
                ),
            ));
        };
        for element in array.iter_raw() {
            bounds::push_raw(&mut all, &element)?;
        }
    }
    Ok(Val::array(all))
}

fn is_in<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let [value, array] = values else {
        return Ok(false.into());
    };
    let Some(elements) = array.as_array() else {
        return Err(Error::location(
            40081,
            format!(
                "$in requires an array as a second argument, found: {}",
                array.type_name()
            ),
        ));
    };
    let bytes = bytes_compared(value);
    for element in elements.values() {
        bounds::work_on(element.len_bytes().max(bytes))?;
        if order(&Val::Ref(element), value, collator).is_eq() {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn size<'a>(value: Val<'a>) -> Result<Val<'a>> {
    match value.as_array() {
        Some(array) => Ok((array.count() as i32).into()),
        None => Err(Error::location(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                value.type_name()
            ),
        )),
    }
}

fn slice<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [array, second, third @ ..] = values else {
        return Ok(Val::NULL);
    };
    if array.is_nullish() || second.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(elements) = array.as_array() else {
        return Err(Error::location(
            28724,
            format!(
                "First argument to $slice must be an array, but is of type: {}",
                array.type_name()
            ),
        ));
    };
    let number = |value: &Val<'_>, name: &str, code: i32| {
        if !value.or_null().is_number() {
            return Err(Error::location(
                code,
                format!(
                    "{name} argument to $slice must be a numeric value, but is of type: {}",
                    value.type_name()
                ),
            ));
        }
        integer(value).ok_or_else(|| {
            Error::location(
                code + 1,
                format!(
                    "{name} argument to $slice can't be represented as a 32-bit integer: {}",
                    crate::display::computed(&value.or_null())
                ),
            )
        })
    };
    let second = number(second, "Second", 28725)?;
    let length = elements.count();
    let magnitude = |n: i64| usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
    let (start, count) = match third {
        [] if second >= 0 => (0, magnitude(second)),
        [] => (length.saturating_sub(magnitude(second)), usize::MAX),
        [third, ..] if third.is_nullish() => return Ok(Val::NULL),
        [third, ..] => {
            let count = number(third, "Third", 28727)?;
            if count <= 0 {
                return Err(Error::location(
                    28729,
                    format!("Third argument to $slice must be positive: {count}"),
                ));
            }
            (position(second, length).unwrap_or(0), magnitude(count))
        }
    };
    let mut part = ArrayBuf::new();
    for element in elements.iter_raw().skip(start).take(count) {
        bounds::push_raw(&mut part, &element)?;
    }
    Ok(Val::array(part))
}

/// Most numbers that `$range` makes, so that the array stays small.
const MAX_RANGE: i64 = 4_000_000;

fn range<'a>(values: &[Val<'a>]) -> Result<Val<'a>> {
    let [start, end, step @ ..] = values else {
        return Ok(Val::NULL);
    };
    let number = |value: &Val<'_>, name: &str, code: i32| {
        if !value.or_null().is_number() {
            return Err(Error::location(
                code,
                format!(
                    "$range requires a numeric {name} value, found value of type:{}",
                    value.type_name()
                ),
            ));
        }
        integer(value).ok_or_else(|| {
            Error::location(
                code + 1,
                format!(
                    "$range requires a {name} value that can be represented as a 32-bit integer, \
                     found value: {}",
                    crate::display::computed(&value.or_null())
                ),
            )
        })
    };
    let start = number(start, "starting", 34443)?;
    let end = number(end, "ending", 34445)?;
    let step = match step.first() {
        None => 1,
        Some(step) => number(step, "step", 34447)?,
    };
    if step == 0 {
        return Err(Error::location(
            34449,
            "$range requires a non-zero step value",
        ));
    }
    if (end - start) / step > MAX_RANGE {
        return Err(Error::new(
            frond_error::ErrorCode::ExceededMemoryLimit,
            format!("$range would exceed the limit of {MAX_RANGE} numbers"),
        ));
    }
    let mut numbers = ArrayBuf::new();
    let mut at = start;
    while if step > 0 { at < end } else { at > end } {
        bounds::work(1)?;
        bounds::push(&mut numbers, &Value::Int32(at as i32))?;
        at += step;
    }
    Ok(Val::array(numbers))
}

fn reverse<'a>(value: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(array) = value.as_array() else {
        return Err(Error::location(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                value.type_name()
            ),
        ));
    };
    let count = array.count();
    bounds::reserve_list::<RawElement<'_>>(count)?;
    let mut elements = Vec::with_capacity(count);
    elements.extend(array.iter_raw());
    let mut reversed = ArrayBuf::new();
    for element in elements.iter().rev() {
        bounds::push_raw(&mut reversed, element)?;
    }
    Ok(Val::array(reversed))
}

fn end<'a>(
    operator: &str,
    value: Val<'a>,
    pick: for<'d> fn(&'d Doc) -> Option<Value<'d>>,
) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    match value.as_array() {
        Some(array) => owned(pick(array)),
        None => Err(Error::location(
            28689,
            format!(
                "{operator}'s argument must be an array, but is {}",
                value.type_name()
            ),
        )),
    }
}

/// The operators that take `n` and `input`.
fn some<'a>(
    operator: &str,
    values: &[Val<'a>],
    keep: impl FnOnce(&mut Vec<Value<'_>>, usize) -> Result<()>,
) -> Result<Val<'a>> {
    let [n, input] = values else {
        return Ok(Val::NULL);
    };
    let n = positive_n(operator, n)?;
    let Some(array) = input.as_array() else {
        return Err(Error::location(
            5788200,
            format!("Input must be an array, not {}", input.type_name()),
        ));
    };
    let mut elements = bounds::elements_of(array)?;
    keep(&mut elements, n)?;
    Ok(Val::array(bounds::array_of(elements)?))
}

/// The `n` of `$firstN` and its kin.
pub(crate) fn positive_n(operator: &str, n: &Val<'_>) -> Result<usize> {
    match n.get().and_then(|v| v.as_i64_lossless()) {
        Some(n) if n > 0 => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
        Some(n) => Err(Error::location(
            5787908,
            format!("'n' must be greater than 0, found {n} in {operator}"),
        )),
        None => Err(Error::location(
            5787902,
            format!(
                "Value for 'n' must be of integral type, but found {} in {operator}",
                crate::display::computed(&n.or_null())
            ),
        )),
    }
}

fn index_of_array<'a>(values: &[Val<'a>], collator: &Collator) -> Result<Val<'a>> {
    let [array, value, bounds @ ..] = values else {
        return Ok(Val::NULL);
    };
    if array.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(elements) = array.as_array() else {
        return Err(Error::location(
            40090,
            format!(
                "$indexOfArray requires an array as a first argument, found: {}",
                array.type_name()
            ),
        ));
    };
    let (start, end) = search_bounds("$indexOfArray", bounds)?;
    // A missing value equals no element, not even null.
    let range = (elements.values().enumerate())
        .skip(start)
        .take(end.saturating_sub(start));
    let bytes = bytes_compared(value);
    for (at, element) in range {
        bounds::work_on(element.len_bytes().max(bytes))?;
        if order(&Val::Ref(element), value, collator).is_eq() {
            return Ok((at as i32).into());
        }
    }
    Ok((-1).into())
}

/// The bytes of a value that a comparison may read: all of a document or an array, whose strings are checked to be UTF-8.
fn bytes_compared(value: &Val<'_>) -> usize {
    match value.get() {
        Some(value @ (Value::Document(_) | Value::Array(_))) => value.len_bytes(),
        _ => 0,
    }
}

/// The start and the end of the `$indexOf` operators, as far as they are given.
pub(super) fn search_bounds(operator: &str, given: &[Val<'_>]) -> Result<(usize, usize)> {
    let bound = |value: Option<&Val<'_>>, name: &str, default: usize| match value {
        None => Ok(default),
        Some(value) => match integer(value) {
            Some(at) => usize::try_from(at).map_err(|_| {
                Error::location(
                    40097,
                    format!("{operator} requires a nonnegative {name} index, found: {at}"),
                )
            }),
            None => Err(Error::location(
                40096,
                format!(
                    "{operator} requires an integral {name} index, found a value of type: {}, \
                     with value: {}",
                    value.type_name(),
                    crate::display::computed(&value.or_null())
                ),
            )),
        },
    };
    Ok((
        bound(given.first(), "starting", 0)?,
        bound(given.get(1), "ending", usize::MAX)?,
    ))
}

fn array_to_object<'a>(value: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(array) = value.as_array() else {
        return Err(Error::location(
            40386,
            format!(
                "$arrayToObject requires an array input, found: {}",
                value.type_name()
            ),
        ));
    };
    let mut fields = Fields::new();
    for item in array.values() {
        let (key, value) = match item {
            Value::Array(pair) => key_and_value_of_pair(pair)?,
            Value::Document(pair) => key_and_value_of_document(pair)?,
            other => {
                return Err(Error::location(
                    40398,
                    format!(
                        "Unrecognised input type format for $arrayToObject: {}",
                        other.type_name()
                    ),
                ));
            }
        };
        if key.contains('\0') {
            return Err(Error::location(
                4940400,
                "Key field cannot contain an embedded null byte",
            ));
        }
        bounds::work_on(value.len_bytes())?;
        fields.set(key, value)?;
    }
    let mut doc = DocBuf::new();
    for (key, value) in fields.iter() {
        bounds::push_field(&mut doc, key, value)?;
    }
    Ok(Val::doc(doc))
}

fn key_and_value_of_pair(pair: &Doc) -> Result<(&str, Value<'_>)> {
    let mut values = pair.values();
    match (values.next(), values.next(), values.next()) {
        (Some(Value::String(key)), Some(value), None) => Ok((key, value)),
        (Some(key), Some(_), None) if key.is_string() => Err(invalid_field_name("$arrayToObject")),
        (Some(key), Some(_), None) => Err(Error::location(
            40395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of \
                 type string. Found key type: {}",
                key.type_name()
            ),
        )),
        _ => Err(Error::location(
            40397,
            format!(
                "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
                pair.count()
            ),
        )),
    }
}

fn key_and_value_of_document(pair: &Doc) -> Result<(&str, Value<'_>)> {
    if pair.count() != 2 {
        return Err(Error::location(
            40392,
            format!(
                "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of \
                 keys:{}",
                pair.count()
            ),
        ));
    }
    match (pair.get("k"), pair.get("v")) {
        (Some(Value::String(key)), Some(value)) => Ok((key, value)),
        (Some(key), Some(_)) if key.is_string() => Err(invalid_field_name("$arrayToObject")),
        (Some(key), Some(_)) => Err(Error::location(
            40394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' \
                 must be of type string. Found type: {}",
                key.type_name()
            ),
        )),
        _ => Err(Error::location(
            40393,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both \
                 keys from: {}",
                crate::display::computed(&Value::Document(pair))
            ),
        )),
    }
}

fn object_to_array<'a>(value: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(doc) = value.as_doc() else {
        return Err(Error::location(
            40390,
            format!(
                "$objectToArray requires a document input, found: {}",
                value.type_name()
            ),
        ));
    };
    let mut array = ArrayBuf::new();
    // The head of the element and of the document, the two names, and the length and the end of the string.
    const PAIR_HEAD_BYTES: usize = 32;
    for element in doc.iter_raw() {
        bounds::make_room(&mut array, element.as_bytes().len() + PAIR_HEAD_BYTES)?;
        array.push_doc(|pair| {
            pair.push("k", element.name());
            pair.push_raw_as("v", &element);
        });
    }
    Ok(Val::array(array))
}
