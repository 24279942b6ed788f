//! The options of a collection, checked by MongoDB's rules.

mod bucket_filter;
mod capped;
mod clustered;
mod modify;
pub mod read;
mod series_update;
mod time_series;
mod validator;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;
use frond_query::collation;

use crate::error::{Result, command};
use crate::keyspace::{Compression, TreeOptions};
use crate::tree_options;
pub use capped::Capped;
pub use modify::modify;
use read::Given;
pub use time_series::TimeSeries;
pub use validator::Invalid;
pub use validator::{Validation, ValidationAction, ValidationLevel, Validator};

/// Options that work, for the page on compatibility.
pub const SUPPORTED: &[&str] = &[
    "capped",
    "changeStreamPreAndPostImages",
    "clusteredIndex",
    "collation",
    "compression",
    "expireAfterSeconds",
    "fastUpdates",
    "idIndex",
    "indexOptionDefaults (block_compressor)",
    "max",
    "naturalOrder",
    "pageSize",
    "pipeline",
    "readPageSize",
    "size",
    "storageEngine (block_compressor)",
    "timeseries (kept as ordinary documents, not in buckets)",
    "validationAction",
    "validationLevel",
    "validator",
    "viewOn",
];

/// Options that MongoDB has and this server lacks. The value that switches such an option off is accepted.
pub const NOT_SUPPORTED: [&str; 1] = ["encryptedFields"];

/// Options that old drivers send, or that ask for what is always so.
const IGNORED: [&str; 4] = ["autoIndexId", "idIndex", "flags", "temp"];

/// The options of `create`, parsed.
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    /// Compression and sizes of the collection's trees.
    pub tree: TreeOptions,
    /// Compression of indexes that do not set their own.
    pub index_compression: Option<Compression>,
    pub collator: Collator,
    pub validation: Validation,
    /// Its limits, if it is capped.
    pub capped: Option<Capped>,
    /// The index on `_id` as it is shown, if `create` had `clusteredIndex`.
    pub clustered: Option<DocBuf>,
    /// The order of a scan, if `create` set one.
    pub natural_order: Option<NaturalOrder>,
    /// The options of a time series, if it is one.
    pub time_series: Option<TimeSeries>,
    /// Seconds after which documents of a time series, or of a collection clustered by a date, expire.
    pub expire_after_seconds: Option<i64>,
    /// The query that it shows, if it is a view.
    pub view: Option<ViewOptions>,
    pre_images: bool,
    /// Whether updates by primary key may be sent as messages that read nothing: their results are not known.
    pub fast_updates: bool,
}

/// The order in which a collection's documents are stored, and so that of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NaturalOrder {
    /// By `_id`: documents are stored in the index on `_id` (a clustered index).
    #[default]
    Id,
    /// The order of insertion: documents are keyed by ascending record ids. The index on `_id` is an ordinary unique
    /// index.
    Insertion,
}

impl NaturalOrder {
    /// The values of the option `naturalOrder`.
    const WORDS: &[(&'static str, NaturalOrder)] = &[
        ("_id", NaturalOrder::Id),
        ("insertion", NaturalOrder::Insertion),
    ];

    /// The order of this name.
    pub fn named(name: &str) -> Option<NaturalOrder> {
        let found = NaturalOrder::WORDS.iter().find(|(word, _)| *word == name);
        found.map(|(_, order)| *order)
    }

    /// Its name in options and settings.
    pub fn name(self) -> &'static str {
        validator::word(NaturalOrder::WORDS, &self)
    }
}

/// The query behind a view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewOptions {
    /// The collection or view that is read.
    pub on: String,
    pub pipeline: ArrayBuf,
}

/// Whether a value switches its option off.
fn is_off(value: Value<'_>) -> bool {
    match value {
        Value::Null | Value::Undefined => true,
        Value::Document(doc) | Value::Array(doc) => doc.is_empty(),
        Value::Bool(_) => !value.truthy(),
        _ => false,
    }
}

fn invalid(message: impl Into<String>) -> crate::error::Error {
    command(ErrorCode::InvalidOptions, message)
}

/// Refuses a field that is given twice: whoever looks at one of them, such as a check of privileges, must not see another
/// value than the one that takes effect.
///
/// # Errors
/// `IDLDuplicateField` (40413).
pub fn check_each_once(owner: &str, fields: &Doc) -> Result<()> {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    let mut pairs = names.iter().zip(names.iter().skip(1));
    match pairs.find(|(name, next)| name == next) {
        Some((name, _)) => Err(command(
            ErrorCode::IDLDuplicateField,
            format!("BSON field '{owner}.{name}' is a duplicate field"),
        )),
        None => Ok(()),
    }
}

impl CollectionOptions {
    /// Compression and sizes of the tree of the segments of large documents. The default is pages of 16 KiB: in
    /// measurements single segments are read as fast as with 8 KiB, and the file is a fifth smaller.
    pub fn segments_tree(&self) -> TreeOptions {
        const PAGE_BYTES: u32 = 16 * 1024;
        let is_default = self.tree.page_bytes == TreeOptions::default().page_bytes;
        TreeOptions {
            page_bytes: if is_default {
                PAGE_BYTES
            } else {
                self.tree.page_bytes
            },
            ..self.tree
        }
    }

    /// Checks the options of `create`.
    ///
    /// # Errors
    /// `InvalidOptions` (72) for options that exclude each other, and for one that MongoDB has and
    /// this server lacks, `IDLUnknownField` (40415) for one that neither has, `TypeMismatch` (14)
    /// and others for wrong values.
    pub fn parse(options: &Doc) -> Result<CollectionOptions> {
        let mut parsed = CollectionOptions::default();
        let mut is_capped = false;
        let (mut size, mut max, mut pipeline, mut compressor) = (None, None, None, None);
        let mut validator = None;
        for (name, value) in options.iter() {
            if tree_options::parse(&mut parsed.tree, name, value)? {
                continue;
            }
            if value.is_nullish() {
                continue;
            }
            if name == "collation" {
                let Value::Document(spec) = value else {
                    return Err(command(
                        ErrorCode::TypeMismatch,
                        format!(
                            "BSON field 'create.collation' is the wrong type '{}', expected type \
                             'object'",
                            value.type_name()
                        ),
                    ));
                };
                parsed.collator = collation::parse_in("create.collation", spec)?;
                continue;
            }
            if NOT_SUPPORTED.contains(&name) {
                if !is_off(value) {
                    return Err(command(
                        ErrorCode::Location(6346402),
                        "Encrypted collections are not supported on standalone",
                    ));
                }
                continue;
            }
            let given = Given {
                owner: "create",
                name,
                value,
            };
            match name {
                "capped" => is_capped = given.flag()?,
                "size" => size = Some(capped::size(&given)?),
                "max" => max = Some(capped::max(&given)?),
                "validator" => validator = Some(given.doc()?),
                "validationLevel" => {
                    parsed.validation.level = Some(given.choice(validator::LEVELS)?);
                }
                "validationAction" => {
                    parsed.validation.action = Some(given.choice(validator::ACTIONS)?);
                }
                "naturalOrder" => {
                    parsed.natural_order = Some(given.choice(NaturalOrder::WORDS)?);
                }
                "viewOn" => {
                    parsed.view = Some(ViewOptions {
                        on: given.str()?.to_owned(),
                        pipeline: ArrayBuf::new(),
                    });
                }
                "pipeline" => pipeline = Some(array_of(&given)?),
                "clusteredIndex" if is_off(value) => {}
                "clusteredIndex" => parsed.clustered = Some(clustered::parse(&given)?),
                "timeseries" => parsed.time_series = Some(TimeSeries::parse(&given)?),
                "expireAfterSeconds" => {
                    parsed.expire_after_seconds = Some(expire_after(&given)?);
                }
                "changeStreamPreAndPostImages" => parsed.pre_images = enabled(&given)?,
                "fastUpdates" => parsed.fast_updates = given.flag()?,
                "storageEngine" => compressor = tree_options::block_compressor(given.doc()?)?,
                "indexOptionDefaults" => parsed.index_compression = index_defaults(&given)?,
                "idIndex" => clustered::check_id_index(&given)?,
                "autoIndexId" if !value.truthy() => {
                    return Err(invalid(
                        "The collection option 'autoIndexId: false' is not supported by this server",
                    ));
                }
                _ if IGNORED.contains(&name) => {}
                _ => return Err(given.unknown()),
            }
        }
        // The collation may come after the validator, which compares strings by it.
        if let Some(filter) = validator {
            parsed.set_validator(filter)?;
        }
        if let Some(compressor) = compressor {
            if options.contains_key("compression") && compressor != parsed.tree.compression {
                return Err(invalid(
                    "'compression' and the block_compressor of 'storageEngine' differ",
                ));
            }
            parsed.tree.compression = compressor;
        }
        parsed.capped = together(is_capped, size, max)?;
        match (&mut parsed.view, pipeline) {
            (Some(view), Some(pipeline)) => view.pipeline = pipeline,
            (None, Some(_)) => {
                return Err(invalid("'pipeline' requires 'viewOn' to also be specified"));
            }
            _ => {}
        }
        parsed.check(options)?;
        Ok(parsed)
    }

    /// Sets or removes the validator; an empty filter is none.
    fn set_validator(&mut self, filter: &Doc) -> Result<()> {
        self.validation.validator = if filter.is_empty() {
            None
        } else {
            Some(Validator::parse(filter, &self.collator)?)
        };
        Ok(())
    }

    /// Refuses options that exclude each other.
    fn check(&self, options: &Doc) -> Result<()> {
        let given = || {
            let on = options.iter().filter(|(_, value)| !is_off(*value));
            on.map(|(name, _)| name)
        };
        if let Some(view) = &self.view {
            if view.on.is_empty() {
                return Err(command(ErrorCode::BadValue, "'viewOn' cannot be empty"));
            }
            let allowed = ["viewOn", "pipeline", "collation", "temp", "flags"];
            if let Some(other) = given().find(|name| !allowed.contains(name)) {
                return Err(invalid(format!(
                    "Cannot specify both 'viewOn' and '{other}' when creating a view"
                )));
            }
        }
        if self.time_series.is_some() {
            let refused = [
                "capped",
                "size",
                "max",
                "validator",
                "validationLevel",
                "validationAction",
                "idIndex",
                "clusteredIndex",
                "changeStreamPreAndPostImages",
                "naturalOrder",
                "fastUpdates",
            ];
            if let Some(other) = given().find(|name| refused.contains(name)) {
                return Err(invalid(format!(
                    "{other} is not allowed with the timeseries option"
                )));
            }
        }
        if self.clustered.is_some() {
            for other in ["capped", "idIndex", "autoIndexId"] {
                if given().any(|name| name == other) {
                    return Err(invalid(format!(
                        "The 'clusteredIndex' option is not supported with '{other}'"
                    )));
                }
            }
        }
        if self.natural_order.is_some() {
            for (other, set) in [
                ("capped", self.capped.is_some()),
                ("clusteredIndex", self.clustered.is_some()),
            ] {
                if set {
                    return Err(invalid(format!(
                        "'naturalOrder' is not allowed with '{other}', which sets the order of documents"
                    )));
                }
            }
        }
        self.check_fast_updates()?;
        if self.expire_after_seconds.is_some()
            && self.clustered.is_none()
            && self.time_series.is_none()
        {
            return Err(invalid(
                "'expireAfterSeconds' is only supported on time-series collections or when the \
                 'clusteredIndex' option is specified",
            ));
        }
        Ok(())
    }

    /// Refuses fast updates where no update could be one.
    ///
    /// # Errors
    /// `InvalidOptions` (72).
    fn check_fast_updates(&self) -> Result<()> {
        if !self.fast_updates {
            return Ok(());
        }
        if self.is_by_record() || self.view.is_some() {
            return Err(invalid(
                "'fastUpdates' requires documents that are stored by their primary key: it is not allowed for views, \
                 capped collections, time series and 'naturalOrder: \"insertion\"'",
            ));
        }
        if !self.collator.is_binary() {
            return Err(invalid(
                "'fastUpdates' is not allowed for a collection with a collation",
            ));
        }
        Ok(())
    }

    /// Whether documents are kept for change streams as they were before a change.
    pub fn keeps_pre_images(&self) -> bool {
        self.pre_images
    }

    /// Whether documents lie under record ids in the order of insertion, and not under their `_id`.
    pub fn is_by_record(&self) -> bool {
        self.capped.is_some()
            || self.time_series.is_some()
            || self.natural_order == Some(NaturalOrder::Insertion)
    }

    /// Whether the index on `_id` is an ordinary unique index: documents lie under record ids, and it is not a time
    /// series, which has no such index.
    pub fn has_id_index(&self) -> bool {
        self.is_by_record() && self.time_series.is_none()
    }

    /// The options as they are stored and shown, in MongoDB's order. `given` is what they were
    /// parsed from.
    pub fn stored(&self, given: &Doc) -> DocBuf {
        let mut out = DocBuf::new();
        let keep = |out: &mut DocBuf, name: &str| {
            if let Some(value) = given.get(name).filter(|value| !is_off(*value)) {
                out.push(name, value);
            }
        };
        if let Some(capped) = self.capped {
            out.push("capped", true);
            out.push("size", capped.bytes as i64);
            if let Some(documents) = capped.documents {
                out.push("max", documents as i64);
            }
        }
        if self.pre_images {
            out.push("changeStreamPreAndPostImages", &doc! {"enabled": true});
        }
        if self.fast_updates {
            out.push("fastUpdates", true);
        }
        keep(&mut out, "storageEngine");
        keep(&mut out, "indexOptionDefaults");
        self.store_validation(&mut out);
        if let Some(view) = &self.view {
            out.push("viewOn", &view.on);
            out.push("pipeline", &view.pipeline);
        }
        if let Some(collation) = self.collator.spec() {
            out.push("collation", collation);
        }
        if let Some(seconds) = self.expire_after_seconds {
            out.push("expireAfterSeconds", seconds);
        }
        if let Some(time_series) = &self.time_series {
            out.push("timeseries", &time_series.to_doc());
        }
        if let Some(clustered) = &self.clustered {
            out.push("clusteredIndex", clustered);
        }
        for name in ["naturalOrder", "compression", "pageSize", "readPageSize"] {
            keep(&mut out, name);
        }
        out
    }

    fn store_validation(&self, out: &mut DocBuf) {
        let Validation {
            validator,
            level,
            action,
        } = &self.validation;
        // A validator is shown with its level and action.
        let (level, action) = match validator {
            None => (*level, *action),
            Some(validator) => {
                out.push("validator", &validator.doc);
                let (level, action) = (level.unwrap_or_default(), action.unwrap_or_default());
                (Some(level), Some(action))
            }
        };
        if let Some(level) = level {
            out.push(
                "validationLevel",
                validator::word(validator::LEVELS, &level),
            );
        }
        if let Some(action) = action {
            out.push(
                "validationAction",
                validator::word(validator::ACTIONS, &action),
            );
        }
    }
}

/// The limits of a capped collection, from `capped`, `size` and `max`.
fn together(
    is_capped: bool,
    size: Option<u64>,
    max: Option<Option<u64>>,
) -> Result<Option<Capped>> {
    match (is_capped, size) {
        (true, Some(bytes)) => Ok(Some(Capped {
            bytes,
            documents: max.flatten(),
        })),
        (true, None) => Err(invalid(
            "the 'size' field is required when 'capped' is true",
        )),
        (false, None) if max.is_none() => Ok(None),
        (false, _) => Err(invalid(
            "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
        )),
    }
}

fn array_of(given: &Given<'_>) -> Result<ArrayBuf> {
    let mut copy = ArrayBuf::new();
    for value in given.array()?.values() {
        copy.push_value(&value);
    }
    Ok(copy)
}

/// Seconds after which documents expire.
fn expire_after(given: &Given<'_>) -> Result<i64> {
    let seconds = given.integer()?;
    if seconds < 0 {
        return Err(invalid(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a higher \
             number than 0",
        ));
    }
    if seconds > i64::from(i32::MAX) {
        return Err(invalid(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower \
             number",
        ));
    }
    Ok(seconds)
}

/// Reads `{enabled: true}`.
fn enabled(given: &Given<'_>) -> Result<bool> {
    let owner = format!("{}.{}", given.owner, given.name);
    match Given::each(&owner, given.doc()?, &["enabled"])?.first() {
        Some(enabled) => enabled.boolean(),
        None => Err(read::missing(&owner, "enabled")),
    }
}

/// The compression of indexes that `indexOptionDefaults` names.
fn index_defaults(given: &Given<'_>) -> Result<Option<Compression>> {
    let options = given.doc()?;
    if let Some((name, _)) = options.iter().find(|(name, _)| *name != "storageEngine") {
        return Err(Given {
            owner: "create.indexOptionDefaults",
            name,
            ..*given
        }
        .unknown());
    }
    tree_options::block_compressor(options.get_doc("storageEngine").unwrap_or(Doc::empty()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn options_are_taken_or_refused_by_name() {
        for (options, code) in [
            (doc! {}, None),
            (doc! {"capped": false}, None),
            (doc! {"validator": {}, "validationLevel": "strict"}, None),
            (
                doc! {"validator": {"a": 1}, "validationAction": "warn"},
                None,
            ),
            (doc! {"validator": 1}, Some(14)),
            (doc! {"validator": {"$where": "1"}}, Some(2)),
            (doc! {"validationLevel": "x"}, Some(2)),
            (doc! {"validationAction": true}, Some(14)),
            (doc! {"collation": {"locale": "simple"}}, None),
            (
                doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}},
                None,
            ),
            (
                doc! {"clusteredIndex": {"key": {"a": 1}, "unique": true}},
                Some(197),
            ),
            (doc! {"clusteredIndex": {"key": {"_id": 1}}}, Some(40414)),
            (
                doc! {"storageEngine": {"wiredTiger": {"configString": ""}}},
                None,
            ),
            (doc! {"storageEngine": {"mmapv2": {}}}, Some(72)),
            (
                doc! {"storageEngine": {"wiredTiger": {"configString": "block_compressor=best"}}},
                Some(2),
            ),
            (
                doc! {"compression": "lz4",
                "storageEngine": {"wiredTiger": {"configString": "block_compressor=zlib"}}},
                Some(72),
            ),
            (
                doc! {"indexOptionDefaults": {"storageEngine": {"wiredTiger": {}}}},
                None,
            ),
            (
                doc! {"changeStreamPreAndPostImages": {"enabled": true}},
                None,
            ),
            (
                doc! {"changeStreamPreAndPostImages": {"enabled": 1}},
                Some(14),
            ),
            (
                doc! {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}},
                None,
            ),
            (doc! {"idIndex": {"key": {"a": 1}}}, Some(2)),
            (doc! {"capped": true, "size": 1000, "max": 5.0}, None),
            (doc! {"capped": true}, Some(72)),
            (doc! {"size": 1000}, Some(72)),
            (doc! {"max": 10}, Some(72)),
            (doc! {"capped": true, "size": 0}, Some(51024)),
            (doc! {"capped": true, "size": 1i64 << 51}, Some(51024)),
            (
                doc! {"capped": true, "size": 1000, "max": 1i64 << 31},
                Some(2),
            ),
            (doc! {"capped": "yes", "size": 1000}, Some(14)),
            (doc! {"timeseries": {"timeField": "t"}}, None),
            (
                doc! {"timeseries": {"timeField": "t", "metaField": "t"}},
                Some(72),
            ),
            (
                doc! {"timeseries": {"timeField": "t", "granularity": "days"}},
                Some(2),
            ),
            (doc! {"timeseries": {"metaField": "t"}}, Some(40414)),
            (
                doc! {"timeseries": {"timeField": "t"}, "validator": {"a": 1}},
                Some(72),
            ),
            (
                doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 9},
                None,
            ),
            (doc! {"expireAfterSeconds": 9}, Some(72)),
            (doc! {"collation": {"locale": "de"}}, None),
            (doc! {"collation": {"locale": "xx"}}, Some(2)),
            (doc! {"collation": {}}, Some(40414)),
            (doc! {"collation": "de"}, Some(14)),
            (doc! {"viewOn": "x"}, None),
            (doc! {"viewOn": "x", "pipeline": [{"$match": {}}]}, None),
            (doc! {"viewOn": ""}, Some(2)),
            (doc! {"viewOn": "x", "validator": {"a": 1}}, Some(72)),
            (doc! {"pipeline": []}, Some(72)),
            (doc! {"autoIndexId": false}, Some(72)),
            (doc! {"encryptedFields": {"fields": []}}, Some(6346402)),
            (doc! {"nonsense": 1}, Some(40415)),
            (doc! {"compression": "best"}, Some(2)),
        ] {
            let parsed = CollectionOptions::parse(&options);
            assert_eq!(
                parsed.err().map(|error| error.code().code()),
                code,
                "{options:?}"
            );
        }
        let zlib = doc! {"wiredTiger": {"configString": "block_compressor=zlib"}};
        let given = doc! {"storageEngine": &zlib, "indexOptionDefaults": {"storageEngine": &zlib}};
        let parsed = CollectionOptions::parse(&given).unwrap();
        assert_eq!(parsed.tree.compression, Compression::Zlib);
        assert_eq!(parsed.index_compression, Some(Compression::Zlib));
        let parsed = CollectionOptions::parse(&doc! {"compression": "lz4"}).unwrap();
        assert_eq!(parsed.tree.compression, Compression::Lz4);
    }

    #[test]
    fn options_are_stored_as_they_are_shown() {
        for (given, stored) in [
            (
                doc! {"capped": false, "compression": "lz4", "flags": 1},
                doc! {"compression": "lz4"},
            ),
            (
                doc! {"validationLevel": "moderate", "validator": {"a": 1}},
                doc! {"validator": {"a": 1}, "validationLevel": "moderate", "validationAction": "error"},
            ),
            (
                doc! {"capped": true, "size": 1000, "max": 0},
                doc! {"capped": true, "size": 1000i64},
            ),
            (
                doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 5},
                doc! {"expireAfterSeconds": 5i64, "timeseries": {
                    "timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600,
                }},
            ),
            (
                doc! {"clusteredIndex": {"unique": true, "key": {"_id": 1}, "name": "x"}},
                doc! {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "x", "unique": true}},
            ),
        ] {
            let parsed = CollectionOptions::parse(&given).unwrap();
            assert_eq!(parsed.stored(&given), stored);
            // The stored form is parsed again at each start.
            let again = CollectionOptions::parse(&stored).unwrap();
            assert_eq!(again.stored(&stored), stored);
        }
    }
}
