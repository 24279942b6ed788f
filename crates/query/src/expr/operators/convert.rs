//! Conversion between types: `$convert` and its short forms.

use super::binary::{self, Format};
use super::{Arguments, Entry, lazy, one};
use crate::bounds;
use crate::expr::node::{Context, Node};
use crate::expr::parse::{optional, required};
use crate::expr::value::Val;
use crate::expr::zone::Zone;
use frond_bson::{
    Decimal128, ObjectId, OwnedValue, Value, tag, type_code_of_name, type_name_of_code,
};
use frond_error::{Error, ErrorCode, Result};

pub(super) const OPERATORS: &[Entry] = &[
    lazy(
        "$convert",
        Arguments::Named(&[
            required("input"),
            required("to"),
            optional("format"),
            optional("onError"),
            optional("onNull"),
        ]),
        convert,
    ),
    one("$toBool", |v| short(v, tag::BOOL)),
    one("$toInt", |v| short(v, tag::INT32)),
    one("$toLong", |v| short(v, tag::INT64)),
    one("$toDouble", |v| short(v, tag::DOUBLE)),
    one("$toDecimal", |v| short(v, tag::DECIMAL128)),
    one("$toString", |v| short_with(v, tag::STRING, Format::Auto)),
    one("$toUUID", to_uuid),
    one("$toDate", |v| short(v, tag::DATE_TIME)),
    one("$toObjectId", |v| short(v, tag::OBJECT_ID)),
];

fn short<'a>(value: Val<'a>, to: u8) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    to_type(&value.or_null(), Target::from_code(to), None)
}

fn short_with<'a>(value: Val<'a>, to: u8, format: Format) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    to_type(&value.or_null(), Target::from_code(to), Some(format))
}

fn to_uuid<'a>(value: Val<'a>) -> Result<Val<'a>> {
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let to = Target {
        code: tag::BINARY,
        subtype: binary::UUID,
    };
    to_type(&value.or_null(), to, Some(Format::Uuid))
}

/// A type to convert to.
#[derive(Clone, Copy, Debug)]
struct Target {
    code: u8,
    subtype: u8,
}

impl Target {
    fn from_code(code: u8) -> Target {
        Target { code, subtype: 0 }
    }
}

fn convert<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Val<'a>> {
    let [input, to, format, on_error, on_null] = nodes else {
        return Ok(Val::NULL);
    };
    let input = input.eval(context)?;
    let to = to.eval(context)?;
    if input.is_nullish() && !on_null.is_absent() {
        return on_null.eval(context);
    }
    if input.is_nullish() || to.is_nullish() {
        return Ok(Val::NULL);
    }
    let to = target(&to.or_null())?;
    let format = format.eval(context)?;
    let format = match format.or_null() {
        nothing if nothing.is_nullish() => None,
        Value::String(name) => Some(Format::parse(name)?),
        other => {
            return Err(Error::location(
                4_341_106,
                format!(
                    "$convert requires that 'format' be a string, found: {}",
                    other.type_name()
                ),
            ));
        }
    };
    match to_type(&input.or_null(), to, format) {
        Err(error) if error.code() == ErrorCode::ConversionFailure && !on_error.is_absent() => {
            on_error.eval(context)
        }
        result => result,
    }
}

/// The type that `to` names, as a name, a number, or a document with a subtype.
fn target(to: &Value<'_>) -> Result<Target> {
    let Value::Document(parts) = to else {
        return type_code(to).map(Target::from_code);
    };
    let mut target = Target::from_code(0);
    for (name, value) in parts.iter() {
        match (name, value.as_i64_lossless()) {
            ("type", _) => target.code = type_code(&value)?,
            ("subtype", Some(subtype)) => {
                target.subtype = u8::try_from(subtype).map_err(|_| {
                    Error::bad_value(format!(
                        "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {subtype}"
                    ))
                })?;
            }
            ("subtype", None) => {
                return Err(Error::bad_value(format!(
                    "$convert's 'subtype' argument must be a number, but is {}",
                    value.type_name()
                )));
            }
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "$convert found an unknown argument in 'to': {name}"
                )));
            }
        }
    }
    if target.code == 0 {
        return Err(Error::failed_to_parse(
            "Missing 'type' parameter to $convert's 'to'",
        ));
    }
    Ok(target)
}

/// The type byte of a name or a number.
fn type_code(to: &Value<'_>) -> Result<u8> {
    match to {
        Value::String(name) => type_code_of_name(name)
            .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}"))),
        number => {
            let Some(code) = number.as_i64_lossless() else {
                return Err(Error::failed_to_parse(format!(
                    "$convert's 'to' argument must be a string or number, but is {}",
                    number.type_name()
                )));
            };
            let code = match code {
                -1 => Some(tag::MIN_KEY),
                other => u8::try_from(other).ok(),
            };
            code.filter(|code| type_name_of_code(*code).is_some())
                .ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "In $convert, numeric value for 'to' does not correspond to a BSON type: {}",
                        crate::display::computed(to)
                    ))
                })
        }
    }
}

fn failure(why: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!("{why} in $convert with no onError value"),
    )
}

fn failure_of(why: impl std::fmt::Display, value: &Value<'_>) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!(
            "{why} in $convert with no onError value: {}",
            crate::display::computed(value)
        ),
    )
}

/// Converts a value that is not null.
fn to_type<'a>(value: &Value<'_>, target: Target, format: Option<Format>) -> Result<Val<'a>> {
    let to = target.code;
    if value.type_code() == to {
        return match value {
            Value::Binary { subtype, .. } if *subtype != target.subtype => Err(failure(
                "Conversions between different binData subtypes are not supported",
            )),
            _ => Val::copy_of(*value),
        };
    }
    // Invalid UTF-8 becomes U+FFFD, which no number, date or ObjectId contains: the conversion fails.
    if matches!(value, Value::NotUtf8(_))
        && value.is_string()
        && to != tag::BINARY
        && let Some(text) = {
            bounds::reserve(3 * value.len_bytes())?;
            value.characters()
        }
    {
        return to_type(&Value::String(&text), target, format);
    }
    let unsupported = || {
        failure(format!(
            "Unsupported conversion from {} to {}",
            value.type_name(),
            type_name_of_code(to).unwrap_or("unknown")
        ))
    };
    match to {
        tag::BOOL => match value.type_code() {
            tag::JAVASCRIPT | tag::SYMBOL => Err(unsupported()),
            _ => Ok(value.truthy().into()),
        },
        tag::INT32 => whole(value, unsupported)
            .and_then(|v| i32::try_from(v).map_err(|_| overflow(value)))
            .map(Val::from),
        tag::INT64 => match value {
            Value::DateTime(ms) => Ok((*ms).into()),
            other => whole(other, unsupported).map(Val::from),
        },
        tag::DOUBLE => match value {
            Value::Bool(v) => Ok(f64::from(u8::from(*v)).into()),
            Value::DateTime(ms) => Ok((*ms as f64).into()),
            Value::String(text) => parse_double(text, value).map(Val::from),
            Value::Decimal128(v) if v.is_finite() && v.to_f64().is_infinite() => {
                Err(overflow(value))
            }
            other => other.as_f64().map(Val::from).ok_or_else(unsupported),
        },
        tag::DECIMAL128 => match value {
            Value::Bool(v) => Ok(Decimal128::from(i32::from(*v)).into()),
            Value::DateTime(ms) => Ok(Decimal128::from(*ms).into()),
            Value::Int32(v) => Ok(Decimal128::from(*v).into()),
            Value::Int64(v) => Ok(Decimal128::from(*v).into()),
            Value::Double(v) => Ok(Decimal128::from_f64(*v).into()),
            Value::String(text) => text
                .parse::<Decimal128>()
                .map(Val::from)
                .map_err(|_| bad_number(text, value)),
            _ => Err(unsupported()),
        },
        tag::BINARY => {
            let text = value.string_bytes().filter(|_| value.is_string());
            let text = text.ok_or_else(unsupported)?;
            let format = format.ok_or_else(|| binary::format_missing("string", "binData"))?;
            bounds::reserve(binary::BYTES_PER_BYTE * text.len())?;
            Ok(Val::Owned(OwnedValue::Binary {
                subtype: target.subtype,
                bytes: binary::from_text(text, target.subtype, format)?,
            }))
        }
        tag::STRING => Ok(Val::string(match value {
            Value::Binary { subtype, bytes } => {
                let format = format.ok_or_else(|| binary::format_missing("binData", "string"))?;
                bounds::reserve(binary::BYTES_PER_BYTE * bytes.len())?;
                binary::to_text(bytes, *subtype, format)?
            }
            Value::Bool(v) => v.to_string(),
            Value::Int32(v) => v.to_string(),
            Value::Int64(v) => v.to_string(),
            Value::Double(v) => double_text(*v),
            Value::Decimal128(v) => v.to_string(),
            Value::ObjectId(v) => v.to_string(),
            Value::DateTime(ms) => super::date::iso_text(*ms)
                .ok_or_else(|| failure_of("Date is out of the range of years 0-9999", value))?,
            _ => return Err(unsupported()),
        })),
        tag::DATE_TIME => {
            let ms = match value {
                Value::Int64(v) => Some(*v),
                Value::Double(_) | Value::Decimal128(_) => Some(whole(value, unsupported)?),
                Value::Timestamp(t) => Some(i64::from(t.time) * 1000),
                Value::ObjectId(id) => Some(i64::from(id.seconds()) * 1000),
                Value::String(text) => Some(crate::expr::date_parse::parse(text, &Zone::UTC)?),
                _ => None,
            };
            ms.map(|ms| Val::Ref(Value::DateTime(ms)))
                .ok_or_else(unsupported)
        }
        tag::OBJECT_ID => match value {
            Value::String(text) => match text.parse::<ObjectId>() {
                Ok(id) => Ok(Val::Ref(Value::ObjectId(id))),
                Err(_) => Err(failure_of(
                    format!("Failed to parse objectId '{}'", shown(text)),
                    value,
                )),
            },
            _ => Err(unsupported()),
        },
        _ => Err(unsupported()),
    }
}

/// As much of a text as belongs into a message.
fn shown(text: &str) -> &str {
    const BYTES_MAX: usize = 1024;
    text.get(..text.floor_char_boundary(BYTES_MAX))
        .unwrap_or_default()
}

fn overflow(value: &Value<'_>) -> Error {
    failure_of("Conversion would overflow target type", value)
}

fn bad_number(text: &str, value: &Value<'_>) -> Error {
    failure_of(format!("Failed to parse number '{}'", shown(text)), value)
}

/// The integer that a value stands for, its fraction cut off.
fn whole(value: &Value<'_>, unsupported: impl Fn() -> Error) -> Result<i64> {
    match value {
        Value::Bool(v) => Ok(i64::from(*v)),
        Value::Int32(v) => Ok(i64::from(*v)),
        Value::Int64(v) => Ok(*v),
        Value::Double(v) if !v.is_finite() => Err(failure(
            "Attempt to convert NaN or infinity value to integer type",
        )),
        Value::Double(v) => Value::Double(v.trunc())
            .as_i64_lossless()
            .ok_or_else(|| overflow(value)),
        Value::Decimal128(v) if !v.is_finite() => Err(failure(
            "Attempt to convert NaN or infinity value to integer type",
        )),
        Value::Decimal128(v) => v.to_i64_truncated().ok_or_else(|| overflow(value)),
        Value::String(text) => text.parse::<i64>().map_err(|_| bad_number(text, value)),
        _ => Err(unsupported()),
    }
}

fn parse_double(text: &str, value: &Value<'_>) -> Result<f64> {
    // Rust also reads names such as "infinity", as MongoDB does; white space it refuses.
    match text.parse::<f64>() {
        Ok(number) if number.is_infinite() && !text.to_ascii_lowercase().contains("inf") => {
            Err(failure_of(
                format!("Failed to parse number '{}'; Out of range", shown(text)),
                value,
            ))
        }
        Ok(number) => Ok(number),
        Err(_) => Err(bad_number(text, value)),
    }
}

/// Significant digits of a double as text, as in MongoDB (C's `%.16g`).
const DOUBLE_DIGITS: i32 = 16;

/// A double as text: 16 significant digits, trailing zeros cut, exponents as in `1e+20`.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .to_owned();
    }
    let scientific = format!("{number:.15e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..DOUBLE_DIGITS).contains(&exponent) {
        let places = usize::try_from(DOUBLE_DIGITS - 1 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}
