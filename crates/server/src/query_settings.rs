//! Query settings: which indexes the queries of a shape may use, and whether they are refused. They are stored, and
//! hold for all clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc, hex_upper, unhex_array};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{AllowedIndexes, DocumentStore, PlanRules};
use parking_lot::RwLock;

use crate::arguments::Arguments;
use crate::internal_collections::{find_one, replace_one};
use crate::observability::query_stats::{ShapeHash, query_shape};

/// Where they are stored, as in MongoDB.
const COLLECTION: (&str, &str) = ("config", "clusterParameters");

/// The document that has all of them.
const ID: &str = "querySettings";

/// The most bytes of all settings, so that they fit into one document.
const BYTES_MAX: usize = 15 << 20;

/// `QueryRejectedBySettings`
const REJECTED: i32 = 438;

/// The settings of one shape.
#[derive(Clone, Debug)]
struct Entry {
    /// The settings, as they are shown.
    settings: DocBuf,
    /// A query of this shape, with its database.
    representative: DocBuf,
    reject: bool,
    rules: Arc<PlanRules>,
}

impl Entry {
    fn new(settings: DocBuf, representative: DocBuf) -> Result<Entry> {
        let args = Arguments::new("setQuerySettings.settings", &settings);
        args.only(&["indexHints", "queryFramework", "reject", "comment"])?;
        let reject = args.bool("reject")?.unwrap_or(false);
        if let Some(framework) = args.str("queryFramework")?
            && !matches!(framework, "classic" | "sbe")
        {
            return Err(Error::bad_value(format!(
                "Enumeration value '{framework}' for field 'queryFramework' is not a valid value."
            )));
        }
        let rules = PlanRules {
            index_hints: index_hints(&args)?,
            shown: Some(settings.clone()),
            ..PlanRules::default()
        };
        Ok(Entry {
            settings,
            representative,
            reject,
            rules: Arc::new(rules),
        })
    }

    fn to_doc(&self, hash: &ShapeHash) -> DocBuf {
        doc! {
            "queryShapeHash": hex(hash),
            "settings": &self.settings,
            "representativeQuery": &self.representative,
        }
    }
}

/// A hash as it is shown: in capital letters, as in MongoDB.
pub fn hex(hash: &ShapeHash) -> String {
    hex_upper(hash)
}

/// Reads a hash of a shape.
///
/// # Errors
/// `BadValue` (2).
pub fn parse_hash(text: &str) -> Result<ShapeHash> {
    unhex_array(text).ok_or_else(|| {
        Error::bad_value(format!(
            "the hash of a query shape has {} hexadecimal digits: '{text}'",
            2 * size_of::<ShapeHash>()
        ))
    })
}

/// Reads `indexHints`: one document, or an array of them, one for each collection.
fn index_hints(args: &Arguments<'_>) -> Result<Vec<(String, AllowedIndexes)>> {
    let given: Vec<&Doc> = match args.get("indexHints") {
        None => Vec::new(),
        Some(Value::Document(one)) => vec![one],
        Some(Value::Array(list)) => list.values().filter_map(|one| one.as_doc()).collect(),
        Some(other) => {
            let expected = "types '[array, object]'";
            return Err(args.wrong_type("indexHints", &other, expected));
        }
    };
    let mut hints: Vec<(String, AllowedIndexes)> = Vec::new();
    for one in given {
        let hint = Arguments::new("setQuerySettings.settings.indexHints", one);
        hint.only(&["ns", "allowedIndexes"])?;
        let ns = hint.doc_field("ns")?.ok_or_else(|| hint.missing("ns"))?;
        let named = Arguments::new("setQuerySettings.settings.indexHints.ns", ns);
        named.only(&["db", "coll"])?;
        let part = |name, code, what: &str| {
            let part = named.str(name)?.filter(|part| !part.is_empty());
            part.ok_or_else(|| {
                Error::location(
                    code,
                    format!("invalid index hint: {what} name is missing in 'ns'"),
                )
            })
        };
        let (db, coll) = (
            part("db", 8_727_500, "the database")?,
            part("coll", 8_727_501, "the collection")?,
        );
        let allowed = hint
            .array("allowedIndexes")?
            .ok_or_else(|| hint.missing("allowedIndexes"))?;
        let ns = format!("{db}.{coll}");
        if hints.iter().any(|(other, _)| *other == ns) {
            return Err(Error::location(
                7_746_608,
                format!("Collection '{ns}' has already index hints specified"),
            ));
        }
        let allowed = AllowedIndexes::parse(allowed)?;
        if !allowed.is_empty() {
            hints.push((ns, allowed));
        }
    }
    Ok(hints)
}

/// Whether settings say nothing.
fn are_default(settings: &Doc) -> bool {
    settings.iter().all(|(name, value)| match name {
        "comment" => true,
        "reject" => !value.truthy(),
        "indexHints" => value.as_doc().is_some_and(Doc::is_empty),
        _ => false,
    })
}

/// Stages of the server, whose queries are never refused.
const SYSTEM_STAGES: [&str; 9] = [
    "$collStats",
    "$currentOp",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$listSampledQueries",
];

/// A query that settings are for.
#[derive(Debug)]
struct Representative {
    hash: ShapeHash,
    query: DocBuf,
    system_stage: Option<String>,
}

impl Representative {
    /// Reads a `find`, `aggregate` or `distinct` with its `$db`.
    fn parse(query: &Doc) -> Result<Representative> {
        let name = query.first().map_or("", |(name, _)| name);
        if !matches!(name, "find" | "aggregate" | "distinct") {
            return Err(Error::location(
                7_746_402,
                format!("QueryShape can not be computed for command: {name}"),
            ));
        }
        let db = query.get_str("$db").ok_or_else(|| {
            Error::new(
                ErrorCode::IDLFailedToParse,
                "BSON field '$db' is missing but a required field",
            )
        })?;
        if matches!(db, "admin" | "config" | "local") {
            return Err(Error::location(
                8_584_900,
                "setQuerySettings command cannot be used on internal databases",
            ));
        }
        let collection = query.first().and_then(|(_, value)| value.as_str());
        if collection.is_some_and(|collection| collection.starts_with("system.")) {
            return Err(Error::location(
                8_584_901,
                "setQuerySettings command cannot be used on system collections",
            ));
        }
        if name == "find" && query.get_doc("filter").is_some_and(is_by_id) {
            return Err(Error::location(
                7_746_606,
                "setQuerySettings command cannot be used on find queries eligible for IDHACK",
            ));
        }
        let (hash, _) = query_shape(db, name, query)
            .ok_or_else(|| Error::bad_value("the query has no shape, or is too long"))?;
        let first = query
            .get_array("pipeline")
            .and_then(|stages| stages.values().next()?.as_doc()?.first());
        let stage = first.map(|(name, _)| name.to_owned());
        Ok(Representative {
            hash,
            query: query.to_owned(),
            system_stage: stage.filter(|stage| SYSTEM_STAGES.contains(&stage.as_str())),
        })
    }
}

/// Whether a filter is one `_id` that is looked up.
fn is_by_id(filter: &Doc) -> bool {
    let mut fields = filter.iter();
    match (fields.next(), fields.next()) {
        (Some(("_id", Value::Document(value))), None) => {
            let operator = value.first().map(|(name, _)| name);
            operator.is_none_or(|name| !name.starts_with('$') || name == "$eq")
        }
        (Some(("_id", value)), None) => !matches!(value, Value::Regex { .. } | Value::Array(_)),
        _ => false,
    }
}

/// The settings of all shapes.
#[derive(Default)]
pub struct AllQuerySettings {
    /// Whether there are any.
    is_used: AtomicBool,
    by_hash: RwLock<BTreeMap<ShapeHash, Entry>>,
}

impl AllQuerySettings {
    /// Those of a store.
    ///
    /// # Errors
    /// Errors of the store. A stored entry that cannot be read is left out.
    pub fn load(store: &DocumentStore) -> Result<AllQuerySettings> {
        let stored = find_one(store, COLLECTION, doc! {"_id": ID})?;
        let mut by_hash = BTreeMap::new();
        let list = stored
            .as_ref()
            .and_then(|doc| doc.get_array("settingsArray"));
        for one in list.into_iter().flat_map(|list| list.values()) {
            let read = || {
                let one = one.as_doc()?;
                let hash = parse_hash(one.get_str("queryShapeHash")?).ok()?;
                let representative = one.get_doc("representativeQuery")?.to_owned();
                let settings = one.get_doc("settings")?.to_owned();
                Some((hash, Entry::new(settings, representative).ok()?))
            };
            by_hash.extend(read());
        }
        Ok(AllQuerySettings {
            is_used: AtomicBool::new(!by_hash.is_empty()),
            by_hash: RwLock::new(by_hash),
        })
    }

    /// Reads them again: another member of the replica set may have changed them.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn reload(&self, store: &DocumentStore) -> Result<()> {
        let read = AllQuerySettings::load(store)?;
        let is_used = read.is_used.load(Ordering::Relaxed);
        *self.by_hash.write() = read.by_hash.into_inner();
        self.is_used.store(is_used, Ordering::Relaxed);
        Ok(())
    }

    /// Stores other settings, and uses them from then on.
    fn replace(
        &self,
        store: &DocumentStore,
        current: &mut BTreeMap<ShapeHash, Entry>,
        new: BTreeMap<ShapeHash, Entry>,
    ) -> Result<()> {
        let mut list = ArrayBuf::new();
        for (hash, entry) in &new {
            list.push(&entry.to_doc(hash));
        }
        let at = store.cluster_time().tick()?;
        let stored = doc! {"_id": ID, "clusterParameterTime": at, "settingsArray": &list};
        if stored.len_bytes() > BYTES_MAX {
            return Err(Error::new(
                ErrorCode::BSONObjectTooLarge,
                "cannot modify query settings: the total size exceeds the maximum allowed size",
            ));
        }
        replace_one(store, COLLECTION, ID, &stored)?;
        self.is_used.store(!new.is_empty(), Ordering::Relaxed);
        *current = new;
        Ok(())
    }

    /// Sets the settings of a shape, given by a query or by its hash; what is not given stays as it is. Returns the entry as it
    /// is shown.
    ///
    /// # Errors
    /// As in MongoDB, and errors of the store.
    pub fn set(&self, store: &DocumentStore, target: &Value<'_>, given: &Doc) -> Result<DocBuf> {
        let mut current = self.by_hash.write();
        let mut system_stage = None;
        let (hash, representative) = match target {
            Value::Document(query) => {
                let found = Representative::parse(query)?;
                system_stage = found.system_stage;
                (found.hash, found.query)
            }
            target => {
                let hash = hash_of(target)?;
                let known = current.get(&hash).ok_or_else(|| {
                    Error::location(
                        7_746_401,
                        "New query settings can only be created with a query instance, but a query hash was given.",
                    )
                })?;
                (hash, known.representative.clone())
            }
        };
        let mut merged = DocBuf::new();
        if let Some(known) = current.get(&hash) {
            for (name, value) in known.settings.iter() {
                if !given.contains_key(name) {
                    merged.push(name, value);
                }
            }
        }
        merged.push_all(given);
        let entry = Entry::new(merged, representative)?;
        if are_default(&entry.settings) {
            return Err(Error::location(
                7_746_604,
                "the resulting settings cannot be empty or contain only default values",
            ));
        }
        if entry.reject
            && let Some(stage) = system_stage
        {
            return Err(Error::location(
                8_705_200,
                format!("Setting {{reject:true}} is forbidden for query containing stage: {stage}"),
            ));
        }
        let mut new = current.clone();
        new.insert(hash, entry.clone());
        self.replace(store, &mut current, new)?;
        Ok(entry.to_doc(&hash))
    }

    /// Removes the settings of a shape, given by a query or by its hash.
    ///
    /// # Errors
    /// 7746701 if there are none, errors of the store.
    pub fn remove(&self, store: &DocumentStore, target: &Value<'_>) -> Result<()> {
        let hash = match target {
            Value::Document(query) => Representative::parse(query)?.hash,
            target => hash_of(target)?,
        };
        let mut current = self.by_hash.write();
        let mut new = current.clone();
        if new.remove(&hash).is_none() {
            return Err(Error::location(
                7_746_701,
                "A matching query settings entry does not exist",
            ));
        }
        self.replace(store, &mut current, new)
    }

    /// The documents of the stage `$querySettings`.
    pub fn to_docs(&self, shows_shape: bool) -> Vec<DocBuf> {
        let entries = self.by_hash.read();
        let shown = entries.iter().map(|(hash, entry)| {
            let mut out = entry.to_doc(hash);
            if shows_shape
                && let Some(db) = entry.representative.get_str("$db")
                && let Some((name, _)) = entry.representative.first()
                && let Some((_, shape)) = query_shape(db, name, &entry.representative)
            {
                out.push("debugQueryShape", &shape);
            }
            out
        });
        shown.collect()
    }

    /// The rules for a query.
    ///
    /// # Errors
    /// `QueryRejectedBySettings` (438), unless it is only explained.
    #[inline]
    pub fn rules(
        &self,
        db: &str,
        command: &str,
        body: &Doc,
        is_explained: bool,
    ) -> Result<Option<Arc<PlanRules>>> {
        if !self.is_used.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some((hash, _)) = query_shape(db, command, body) else {
            return Ok(None);
        };
        match self.by_hash.read().get(&hash) {
            Some(entry) if entry.reject && !is_explained => Err(Error::new(
                ErrorCode::from_code(REJECTED),
                "Query rejected by admin query settings",
            )),
            Some(entry) => Ok(Some(entry.rules.clone())),
            None => Ok(None),
        }
    }
}

fn hash_of(target: &Value<'_>) -> Result<ShapeHash> {
    match target {
        Value::String(hash) => parse_hash(hash),
        other => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "query settings are for a query or for the hash of its shape, not for a {}",
                other.type_name()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hashes_are_read_as_they_are_shown() {
        let hash: ShapeHash = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(parse_hash(&hex(&hash)).unwrap(), hash);
        assert_eq!(parse_hash(&hex(&hash).to_lowercase()).unwrap(), hash);
        for wrong in ["", "00", &hex(&hash)[1..], &"g".repeat(64), &"0".repeat(66)] {
            assert!(parse_hash(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_look_up_by_id_is_recognized() {
        for (filter, expected) in [
            (doc! {"_id": 5}, true),
            (doc! {"_id": {"$eq": 5}}, true),
            (doc! {"_id": {"x": 5}}, true),
            (doc! {"_id": {"$gt": 5}}, false),
            (doc! {"_id": 5, "a": 1}, false),
            (doc! {}, false),
        ] {
            assert_eq!(is_by_id(&filter), expected, "{filter:?}");
        }
    }
}
