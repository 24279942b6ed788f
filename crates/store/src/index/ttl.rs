//! `expireAfterSeconds`: checked here, and the documents that have expired deleted.
//!
//! A document expires so many seconds after the date in its indexed field, or after the lowest of an array of
//! dates. One without a date never does. The dates that lie far enough back are one range of the index. The same
//! option of a collection is about the date that is the `_id` of a clustered collection, or the time of a
//! measurement; without an index on that time the measurements are scanned.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_query::error::ErrorCode;

use super::spec::IndexSpec;
use crate::catalog::Collection;
use crate::context::OpContext;
use crate::error::{Error, Result, command};
use crate::index::Index;
use crate::keyspace::Durability;
use crate::namespace::Namespace;
use crate::plan::Hint;
use crate::store::DocumentStore;
use crate::text;

/// What a pass over all TTL indexes did.
#[derive(Debug, Default)]
pub struct TtlPass {
    /// Documents deleted.
    pub deleted: u64,
    /// Indexes whose documents could not be deleted, with the reason.
    pub failed: Vec<(Namespace, String, Error)>,
}

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
        // The conversion stays within the range.
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

/// The documents whose date is so many seconds before a time in milliseconds since 1970.
fn expired_by(path: &str, seconds: i64, now_ms: i64) -> DocBuf {
    let until = now_ms.saturating_sub(seconds.saturating_mul(1000));
    let mut filter = DocBuf::new();
    filter.push(path, &doc! {"$lte": Value::DateTime(until)});
    filter
}

/// The documents of a TTL index that have expired at a time in milliseconds since 1970.
fn expired(spec: &IndexSpec, seconds: i32, now_ms: i64) -> DocBuf {
    let path = spec.fields.first().map_or("_id", |field| &field.path);
    let filter = expired_by(path, i64::from(seconds), now_ms);
    match &spec.partial {
        None => filter,
        Some(partial) => doc! {"$and": [&filter, &partial.doc]},
    }
}

impl DocumentStore {
    /// Deletes the documents that have expired by a TTL index. `now_ms` is the time in milliseconds since 1970.
    /// An index whose documents cannot be deleted does not keep others from their turn.
    pub fn delete_expired(&self, now_ms: i64, context: &OpContext) -> TtlPass {
        let mut pass = TtlPass::default();
        let collections: Vec<_> = self.catalog().view().iter().cloned().collect();
        for collection in collections {
            if context.check().is_err() {
                return pass;
            }
            match self.delete_expired_of(&collection, now_ms, context) {
                Ok(deleted) => pass.deleted += deleted,
                Err(error) => pass
                    .failed
                    .push((collection.ns.clone(), "_id_".to_owned(), error)),
            }
            for index in collection.ready_indexes() {
                let (Some(seconds), None) = (index.spec.expire_after, &index.spec.method) else {
                    continue;
                };
                if context.check().is_err() {
                    return pass;
                }
                match self.delete_expired_in(&collection, index, seconds, now_ms, context) {
                    Ok(deleted) => pass.deleted += deleted,
                    Err(error) => {
                        pass.failed
                            .push((collection.ns.clone(), index.spec.name.clone(), error))
                    }
                }
            }
        }
        pass
    }

    /// Deletes what a collection's own `expireAfterSeconds` lets go: measurements of a time series by their
    /// time, documents of a clustered collection by the date that is their `_id`.
    fn delete_expired_of(
        &self,
        collection: &Collection,
        now_ms: i64,
        context: &OpContext,
    ) -> Result<u64> {
        let Some(seconds) = collection.settings.expire_after_seconds else {
            return Ok(0);
        };
        let series = collection.settings.time_series.as_ref();
        let path = series.map_or("_id", |series| &series.time_field);
        crate::write::delete::delete_through(
            self.catalog(),
            &collection.ns,
            &expired_by(path, seconds, now_ms),
            None,
            Durability::Logged,
            context,
        )
    }

    fn delete_expired_in(
        &self,
        collection: &Collection,
        index: &Index,
        seconds: i32,
        now_ms: i64,
        context: &OpContext,
    ) -> Result<u64> {
        let filter = expired(&index.spec, seconds, now_ms);
        crate::write::delete::delete_through(
            self.catalog(),
            &collection.ns,
            &filter,
            Some(Hint::Tree(index.tree)),
            Durability::Logged,
            context,
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
