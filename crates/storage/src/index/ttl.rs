//! The option `expireAfterSeconds`.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use crate::error::{Result, command};
use crate::text;

/// Checks a number of seconds.
///
/// # Errors
/// `InvalidOptions` (72).
pub fn check_seconds(seconds: i64) -> Result<i32> {
    if seconds < 0 {
        return Err(command(
            ErrorCode::InvalidOptions,
            "TTL index 'expireAfterSeconds' option cannot be less than 0",
        ));
    }
    i32::try_from(seconds).map_err(|_| {
        command(
            ErrorCode::InvalidOptions,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower \
             number",
        )
    })
}

/// Reads the option `expireAfterSeconds` of a specification.
///
/// # Errors
/// `CannotCreateIndex` (67).
pub(super) fn parse(spec: &Doc, value: Value<'_>) -> Result<i32> {
    let refuse = |what: String| {
        command(
            ErrorCode::CannotCreateIndex,
            format!("{what}. Index spec: {}", text::document(spec)),
        )
    };
    if !value.is_number() {
        return Err(refuse(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
            value.type_name()
        )));
    }
    if value.is_nan() {
        return Err(refuse(
            "TTL index 'expireAfterSeconds' option must not be NaN".to_owned(),
        ));
    }
    if spec.get_doc("key").is_some_and(|key| key.count() != 1) {
        return Err(refuse(
            "TTL indexes are single-field indexes, compound indexes do not support TTL".to_owned(),
        ));
    }
    let whole = match value {
        Value::Int32(seconds) => i64::from(seconds),
        Value::Int64(seconds) => seconds,
        // The conversion saturates.
        other => other.as_f64().unwrap_or(0.0) as i64,
    };
    if i32::try_from(whole).is_err() {
        return Err(refuse(
            "TTL index 'expireAfterSeconds' must be within the range of a 32-bit integer"
                .to_owned(),
        ));
    }
    check_seconds(whole).map_err(|error| refuse(error.message()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::index::spec::IndexSpec;
    use frond_bson::doc;

    #[test]
    fn seconds_are_checked() {
        for (spec, expected) in [
            (doc! {"key": {"a": 1}, "expireAfterSeconds": 0}, Ok(Some(0))),
            (
                doc! {"key": {"a": -1}, "expireAfterSeconds": 3600.5},
                Ok(Some(3600)),
            ),
            (
                doc! {"key": {"a": 1}, "expireAfterSeconds": i32::MAX},
                Ok(Some(i32::MAX)),
            ),
            (doc! {"key": {"a": 1}}, Ok(None)),
            (doc! {"key": {"a": 1}, "expireAfterSeconds": -1}, Err(67)),
            (
                doc! {"key": {"a": 1}, "expireAfterSeconds": 1i64 << 31},
                Err(67),
            ),
            (
                doc! {"key": {"a": 1}, "expireAfterSeconds": f64::NAN},
                Err(67),
            ),
            (doc! {"key": {"a": 1}, "expireAfterSeconds": "1"}, Err(67)),
            (
                doc! {"key": {"a": 1, "b": 1}, "expireAfterSeconds": 1},
                Err(67),
            ),
            (doc! {"key": {"$**": 1}, "expireAfterSeconds": 1}, Err(67)),
            (doc! {"key": {"_id": 1}, "expireAfterSeconds": 1}, Err(197)),
        ] {
            let parsed = IndexSpec::parse(&spec);
            let found = parsed
                .map(|spec| spec.expire_after)
                .map_err(|error| error.code().code());
            assert_eq!(found, expected, "{spec:?}");
        }
    }
}
