//! The options of a collection, checked by MongoDB's rules.

mod bucket_filter;
mod capped;
mod clustered;
mod modify;
mod partitioned;
mod primary_key;
pub mod read;
mod series_update;
mod time_series;
mod validator;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc, key};
use frond_error::ErrorCode;
use frond_query::collation;

use crate::error::{Result, command};
use crate::keyspace::{Compression, TreeOptions};
use crate::record_layout::RecordLayout;
use crate::tree_options;
pub use capped::Capped;
pub use modify::modify;
use partitioned::GivenPartitions;
pub use partitioned::{Division, ListedPartition, PARTITIONS_MAX, Partitioned};
pub use primary_key::{PRIMARY_KEY_NAME, PrimaryKey};
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
    "partitioned",
    "pipeline",
    "primaryKey",
    "readPageSize",
    "size",
    "storageEngine (block_compressor)",
    "timeseries (kept as ordinary documents in partitions by time, not in buckets)",
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
    /// The fields by which documents are stored, if `create` set others than `_id`.
    pub primary_key: Option<PrimaryKey>,
    /// Its partitions, if it has some.
    pub partitioned: Option<Partitioned>,
    /// The options of a time series, if it is one.
    pub time_series: Option<TimeSeries>,
    /// Seconds after which documents of a time series, or of a collection clustered by a date, expire.
    pub expire_after_seconds: Option<i64>,
    /// The query that it shows, if it is a view.
    pub view: Option<ViewOptions>,
    pre_images: bool,
    records: RecordLayout,
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
        let (mut validator, mut primary_key) = (None, None);
        let mut partitioned = GivenPartitions::Off;
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
                "partitioned" => partitioned = partitioned::parse(&given)?,
                "primaryKey" => primary_key = primary_key::parse(&given)?,
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
        // The collation may come after what compares strings by it.
        if let Some(filter) = validator {
            parsed.set_validator(filter)?;
        }
        let pattern = match (primary_key, &partitioned) {
            (None, GivenPartitions::Division(Some(by), _))
                if by != "_id" && !options.contains_key("primaryKey") =>
            {
                let mut pattern = DocBuf::new();
                pattern.push(by, 1);
                pattern.push("_id", 1);
                Some(pattern)
            }
            (pattern, _) => pattern,
        };
        parsed.set_keys(pattern, partitioned)?;
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

    /// Sets the keys under which documents are stored.
    fn set_keys(&mut self, pattern: Option<DocBuf>, partitioned: GivenPartitions) -> Result<()> {
        if let Some(time_series) = &self.time_series {
            return match partitioned {
                // A time series of an earlier version lies in the order of insertion.
                GivenPartitions::Off => Ok(()),
                GivenPartitions::Division(by, division @ Division::Periods { .. })
                    if by.as_ref() == Some(&time_series.time_field) =>
                {
                    self.divide_series(division)
                }
                GivenPartitions::Division(..) => Err(invalid(
                    "a time series can only be partitioned by periods of its 'timeField'",
                )),
            };
        }
        if let Some(pattern) = pattern {
            self.primary_key = Some(PrimaryKey::new(pattern, &self.collator)?);
        }
        if let GivenPartitions::Division(by, division) = partitioned {
            let primary_key = self.primary_key.as_ref();
            self.partitioned = Some(Partitioned::new(by, division, primary_key, &self.collator)?);
        }
        self.set_layout()
    }

    fn divide_series(&mut self, division: Division) -> Result<()> {
        let Some(time_series) = &self.time_series else {
            return Ok(());
        };
        let key = PrimaryKey::of_series(&time_series.time_field, &self.collator)?;
        self.partitioned = Some(Partitioned::new(
            None,
            division,
            Some(&key),
            &self.collator,
        )?);
        self.primary_key = Some(key);
        self.set_layout()
    }

    /// Completes the options of a new collection. A new time series is divided by the span of its buckets; those of earlier versions are not, so
    /// stored options are left alone.
    ///
    /// # Errors
    /// The errors of [`CollectionOptions::parse`].
    pub fn for_new_collection(mut self) -> Result<CollectionOptions> {
        if let (Some(time_series), None) = (&self.time_series, &self.partitioned) {
            let division = Division::seconds(time_series.bucket_span());
            self.divide_series(division)?;
        }
        Ok(self)
    }

    /// Returns the options as clients see them. Partitions in seconds are those that Frond gave to a time series by itself. They are hidden,
    /// because MongoDB's tools would refuse the option.
    pub fn shown(&self, stored: &Doc) -> DocBuf {
        let is_implied = self
            .partitioned
            .as_ref()
            .is_some_and(Partitioned::is_in_seconds);
        if self.time_series.is_none() || !is_implied {
            return stored.to_owned();
        }
        let mut out = DocBuf::new();
        for (name, value) in stored.iter().filter(|(name, _)| *name != "partitioned") {
            out.push(name, value);
        }
        out
    }

    /// Composes the keys of documents out of the primary key and the partitions.
    fn set_layout(&mut self) -> Result<()> {
        if self.primary_key.is_none() && self.partitioned.is_none() {
            return Ok(());
        }
        let ascending = || vec![key::Direction::Ascending];
        let directions = self
            .primary_key
            .as_ref()
            .map_or_else(ascending, PrimaryKey::directions);
        let partitions = match &self.partitioned {
            Some(partitioned) => Some(partitioned.partitions(&self.collator)?),
            None => None,
        };
        self.records = RecordLayout::new(directions, partitions);
        Ok(())
    }

    /// Returns these options with other partitions.
    ///
    /// # Errors
    /// `InvalidOptions` (72) if they overlap.
    pub fn with_partitions(&self, division: Division) -> Result<CollectionOptions> {
        let mut changed = self.clone();
        let primary_key = self.primary_key.as_ref();
        changed.partitioned = Some(Partitioned::new(
            None,
            division,
            primary_key,
            &self.collator,
        )?);
        changed.set_layout()?;
        Ok(changed)
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
                "primaryKey",
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
        for (own, set) in [
            ("primaryKey", self.primary_key.is_some()),
            ("partitioned", self.partitioned.is_some()),
        ] {
            for other in ["capped", "clusteredIndex", "naturalOrder"] {
                if set && given().any(|name| name == other) {
                    return Err(invalid(format!(
                        "'{own}' is not allowed with '{other}', which sets the order of documents"
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
            && self.partition_period().is_none()
        {
            return Err(invalid(
                "'expireAfterSeconds' is only supported on time-series collections or when the \
                 'clusteredIndex' option is specified",
            ));
        }
        Ok(())
    }

    /// The length of the periods by which it is divided, in milliseconds.
    pub fn partition_period(&self) -> Option<i64> {
        self.partitioned.as_ref()?.period_millis()
    }

    /// Refuses fast updates where no update could be one.
    ///
    /// # Errors
    /// `InvalidOptions` (72).
    fn check_fast_updates(&self) -> Result<()> {
        if !self.fast_updates {
            return Ok(());
        }
        if self.numbers_records() || self.view.is_some() || self.partitioned.is_some() {
            return Err(invalid(
                "'fastUpdates' requires documents that are stored by _id or a primary key, and no partitions: it is not allowed \
                 for views, capped collections, time series, 'partitioned' and 'naturalOrder: \"insertion\"'",
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

    /// Whether documents lie under other keys than their `_id`: record ids or a primary key.
    pub fn is_by_record(&self) -> bool {
        self.numbers_records() || self.primary_key.is_some()
    }

    /// The composition of the keys of documents.
    pub fn records(&self) -> &RecordLayout {
        &self.records
    }

    /// Whether documents lie under record ids, which count up.
    pub fn numbers_records(&self) -> bool {
        let series = self.time_series.is_some() && self.partitioned.is_none();
        self.capped.is_some() || series || self.natural_order == Some(NaturalOrder::Insertion)
    }

    /// Whether the index on `_id` is an ordinary unique index: documents lie under other keys, and it is not a time
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
        keep(&mut out, "primaryKey");
        if let Some(partitioned) = &self.partitioned {
            let is_implied = self.time_series.is_none() && !given.contains_key("primaryKey");
            if self.primary_key.is_some() && is_implied {
                let key = self.primary_key.as_ref().map(|one| &*one.doc);
                out.push("primaryKey", key.unwrap_or(Doc::empty()));
            }
            partitioned.stored(&mut out);
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
mod tests;
