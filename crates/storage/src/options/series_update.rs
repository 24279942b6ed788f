//! Which updates a time series takes: those of the field with the metadata, found by it, as in MongoDB.

use frond_bson::{Doc, Value};

use super::TimeSeries;
use super::time_series::invalid;
use crate::error::Result;

impl TimeSeries {
    /// Checks an update.
    ///
    /// # Errors
    /// `InvalidOptions` (72).
    pub fn check_update(
        &self,
        filter: &Doc,
        update: &Value<'_>,
        multi: bool,
        upsert: bool,
    ) -> Result<()> {
        if !multi {
            return Err(invalid(
                "Cannot perform a non-multi update on a time-series collection",
            ));
        }
        if upsert {
            return Err(invalid(
                "Cannot perform an upsert on a time-series collection",
            ));
        }
        let Some(meta) = &self.meta_field else {
            return Err(invalid(
                "Cannot perform an update on a time-series collection that does not have a metaField",
            ));
        };
        if !is_filter_of(meta, filter) {
            return Err(invalid(&format!(
                "Cannot perform an update or delete on a time-series collection when querying on a field that is not the \
                 metaField '{meta}'"
            )));
        }
        let Value::Document(update) = update else {
            return Err(invalid(
                "Cannot perform an update on a time-series collection using a pipeline update",
            ));
        };
        let is_of_operators = update
            .first()
            .is_some_and(|(name, _)| name.starts_with('$'));
        if !is_of_operators {
            return Err(invalid(
                "Cannot perform an update on a time-series collection using a replacement document",
            ));
        }
        let is_changed = |(operator, fields): (&str, Value<'_>)| {
            let Value::Document(fields) = fields else {
                // It is refused as what it is.
                return true;
            };
            fields.iter().all(|(path, value)| {
                let is_target = operator != "$rename"
                    || value.as_str().is_none_or(|target| is_of(meta, target));
                is_of(meta, path) && is_target
            })
        };
        if !update.iter().all(is_changed) {
            return Err(invalid(&format!(
                "Cannot perform an update on a time-series collection which updates a field that is not the metaField \
                 '{meta}'"
            )));
        }
        Ok(())
    }
}

/// Whether a path is the metadata, or in it.
fn is_of(meta: &str, path: &str) -> bool {
    path.strip_prefix(meta)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a filter looks at nothing but the metadata.
fn is_filter_of(meta: &str, filter: &Doc) -> bool {
    filter.iter().all(|(name, value)| match name {
        "$and" | "$or" | "$nor" => match value {
            Value::Array(list) => list.values().all(|one| match one {
                Value::Document(one) => is_filter_of(meta, one),
                _ => true,
            }),
            _ => true,
        },
        "$comment" | "$alwaysTrue" | "$alwaysFalse" | "$sampleRate" => true,
        "$expr" => is_expression_of(meta, &value),
        name => !name.starts_with('$') && is_of(meta, name),
    })
}

/// Whether an expression reads nothing but the metadata.
fn is_expression_of(meta: &str, value: &Value<'_>) -> bool {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            // The whole document is in some of the variables.
            Some(path) => {
                !path.starts_with("$ROOT")
                    && !path.starts_with("$CURRENT")
                    && (path.starts_with('$') || is_of(meta, path))
            }
            None => true,
        },
        Value::Document(inner) => inner
            .iter()
            .all(|(name, value)| name == "$literal" || is_expression_of(meta, &value)),
        Value::Array(list) => list.values().all(|value| is_expression_of(meta, &value)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn filters_and_expressions_are_of_the_metadata() {
        let own = [
            doc! {},
            doc! {"m": 1},
            doc! {"m.a": {"$gt": 1}, "$comment": "x"},
            doc! {"$or": [{"m": 1}, {"$and": [{"m.b.c": 2}]}]},
            doc! {"$expr": {"$eq": ["$m.a", {"$literal": "$x"}]}},
            doc! {"$expr": {"$gt": ["$m", "$$NOW"]}},
        ];
        for filter in own {
            assert!(is_filter_of("m", &filter), "{filter:?}");
        }
        let others = [
            doc! {"x": 1},
            doc! {"mm": 1},
            doc! {"m": 1, "t": 1},
            doc! {"$or": [{"m": 1}, {"v": 1}]},
            doc! {"$expr": {"$eq": ["$v", 1]}},
            doc! {"$expr": {"$eq": ["$$ROOT.v", 1]}},
            doc! {"$jsonSchema": {}},
        ];
        for filter in others {
            assert!(!is_filter_of("m", &filter), "{filter:?}");
        }
    }
}
