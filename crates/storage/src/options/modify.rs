//! `collMod`: changes of the options of a collection or a view.

use frond_bson::{Doc, DocBuf, Value};
use frond_error::ErrorCode;

use super::read::Given;
use super::{CollectionOptions, array_of, capped, enabled, expire_after, invalid, validator};
use crate::error::{Result, command};

/// The options of a collection after `changes`, fields of `collMod`; `before` are its stored ones.
///
/// # Errors
/// `InvalidOptions` (72) for a field that does not apply to this kind of collection, `IDLUnknownField`
/// (40415) for one that no collection has, those of each option.
pub fn modify(before: &Doc, changes: &Doc) -> Result<(CollectionOptions, DocBuf)> {
    super::check_each_once("collMod", changes)?;
    let mut options = CollectionOptions::parse(before)?;
    let is_view = options.view.is_some();
    for (name, value) in changes.iter() {
        if value.is_nullish() {
            continue;
        }
        let given = Given {
            owner: "collMod",
            name,
            value,
        };
        if is_view && !matches!(name, "viewOn" | "pipeline") {
            return Err(invalid(format!("option not supported on a view: {name}")));
        }
        match name {
            "validator" => options.set_validator(given.doc()?)?,
            "validationLevel" => {
                options.validation.level = Some(given.choice(validator::LEVELS)?);
            }
            "validationAction" => {
                options.validation.action = Some(given.choice(validator::ACTIONS)?);
            }
            "viewOn" | "pipeline" => {
                let Some(view) = &mut options.view else {
                    return Err(invalid(format!("option only supported on a view: {name}")));
                };
                if name == "viewOn" {
                    view.on = given.str()?.to_owned();
                } else {
                    view.pipeline = array_of(&given)?;
                }
            }
            "cappedSize" | "cappedMax" => {
                let Some(capped) = &mut options.capped else {
                    return Err(invalid("Collection must be capped."));
                };
                if name == "cappedSize" {
                    capped.bytes = capped::size(&given)?;
                } else {
                    capped.documents = capped::max(&given)?;
                }
            }
            "expireAfterSeconds" => {
                let expires = options.clustered.is_some() || options.time_series.is_some();
                if !expires && options.partition_period().is_none() {
                    return Err(invalid(
                        "'expireAfterSeconds' option is only supported on collections clustered by \
                         _id",
                    ));
                }
                options.expire_after_seconds = match value {
                    Value::String("off") => None,
                    Value::String(other) => {
                        return Err(invalid(format!(
                            "Invalid string value for the 'clusteredIndex::expireAfterSeconds' \
                             option. Got: '{other}'. Accepted value is 'off'"
                        )));
                    }
                    _ => Some(expire_after(&given)?),
                };
            }
            "timeseries" => match &mut options.time_series {
                Some(time_series) => time_series.modify(given.doc()?)?,
                None => {
                    return Err(invalid(
                        "option only supported on a time-series collection: timeseries",
                    ));
                }
            },
            "changeStreamPreAndPostImages" => options.pre_images = enabled(&given)?,
            "fastUpdates" => {
                options.fast_updates = given.flag()?;
                options.check_fast_updates()?;
            }
            _ => return Err(given.unknown()),
        }
    }
    if options.view.as_ref().is_some_and(|view| view.on.is_empty()) {
        return Err(command(ErrorCode::BadValue, "'viewOn' cannot be empty"));
    }
    let stored = options.stored(before);
    Ok((options, stored))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn options_change() {
        let validated =
            doc! {"validator": {"a": 1}, "validationLevel": "strict", "validationAction": "error"};
        for (before, changes, after) in [
            (doc! {}, doc! {"validator": {"a": 1}}, validated.clone()),
            (
                validated.clone(),
                doc! {"validationLevel": "off", "validationAction": "warn"},
                doc! {"validator": {"a": 1}, "validationLevel": "off", "validationAction": "warn"},
            ),
            (
                validated.clone(),
                doc! {"validator": {}},
                doc! {"validationLevel": "strict", "validationAction": "error"},
            ),
            (
                doc! {"compression": "lz4"},
                doc! {"changeStreamPreAndPostImages": {"enabled": true}},
                doc! {"changeStreamPreAndPostImages": {"enabled": true}, "compression": "lz4"},
            ),
            (
                doc! {"compression": "lz4"},
                doc! {"fastUpdates": true},
                doc! {"fastUpdates": true, "compression": "lz4"},
            ),
            (
                doc! {"fastUpdates": true},
                doc! {"fastUpdates": false},
                doc! {},
            ),
        ] {
            let (_, stored) = modify(&before, &changes).unwrap();
            assert_eq!(stored, after, "{changes:?}");
        }
        for (changes, code) in [
            (doc! {"viewOn": "x"}, 72),
            (doc! {"cappedSize": 100}, 72),
            (doc! {"expireAfterSeconds": 100}, 72),
            (doc! {"timeseries": {"granularity": "hours"}}, 72),
            (doc! {"validator": {"a": {"$near": 1}}}, 2),
            (doc! {"nonsense": 1}, 40415),
        ] {
            let error = modify(&doc! {}, &changes).unwrap_err();
            assert_eq!(error.code().code(), code, "{changes:?}");
        }
        for before in [
            doc! {"capped": true, "size": 1000i64},
            doc! {"naturalOrder": "insertion"},
            doc! {"timeseries": {"timeField": "t"}},
            doc! {"collation": {"locale": "de"}},
        ] {
            let error = modify(&before, &doc! {"fastUpdates": true}).unwrap_err();
            assert_eq!(error.code().code(), 72, "{before:?}");
        }
    }
}
