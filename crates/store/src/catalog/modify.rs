//! Changes of an existing index: `collMod`.

use std::sync::Arc;

use frond_bson::{ArrayBuf, DocBuf, Value, doc, key};
use frond_error::{Error as CommandError, ErrorCode};

use super::building::check_not_replaced;
use super::ddl::name_of_key;
use super::{Catalog, Collection, IndexSelector, logged, persist};
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::index::spec::{ID_INDEX_NAME, IndexSpec};
use frond_storage::index::{Index, entry, ttl};
use frond_storage::keyspace::{Direction, Engine};
use frond_storage::namespace::Namespace;

/// Entries between two checks for interruption.
const ENTRIES_BETWEEN_LOOKS: u64 = 1024;
/// The number of duplicate groups that are listed when an index cannot become unique.
const VIOLATIONS_MAX: usize = 1000;

/// The changes to an index.
#[derive(Clone, Debug)]
pub struct IndexChange {
    /// Which index: a name or a key pattern.
    pub which: IndexSelector,
    /// Seconds after which documents expire.
    pub expire_after: Option<i64>,
    /// Whether the planner does not see it.
    pub hidden: Option<bool>,
    /// Whether writes that add to duplicates fail.
    pub prepare_unique: Option<bool>,
    /// Whether to make it unique.
    pub unique: bool,
    /// Whether only to check if it can be made unique.
    pub dry_run: bool,
}

/// The options that were to change, each with its value before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexChanged {
    /// Seconds after which documents expire.
    pub expire_after: Option<(Option<i64>, i64)>,
    /// Whether the planner does not see it.
    pub hidden: Option<(bool, bool)>,
    /// Whether writes that add to duplicates fail.
    pub prepare_unique: Option<(bool, bool)>,
    /// Whether it became unique.
    pub became_unique: bool,
}

/// The changes, and the remaining work.
pub(crate) struct IndexModified {
    pub changed: IndexChanged,
    /// Set if nothing is changed before the index is unique.
    pub to_unique: Option<ToUnique>,
}

/// An index that is to become unique.
pub(crate) struct ToUnique {
    pub collection: Arc<Collection>,
    pub index: Arc<Index>,
    pub spec: IndexSpec,
}

impl From<IndexChanged> for IndexModified {
    fn from(changed: IndexChanged) -> IndexModified {
        IndexModified {
            changed,
            to_unique: None,
        }
    }
}

fn invalid(message: impl Into<String>) -> Error {
    command(ErrorCode::InvalidOptions, message)
}

/// A specification with other values of some options; `None` takes an option away.
fn with_options(spec: &IndexSpec, changes: &[(&str, Option<Value<'_>>)]) -> Result<IndexSpec> {
    let mut doc = DocBuf::new();
    for (option, value) in spec.doc.iter() {
        if !changes.iter().any(|(changed, _)| *changed == option) {
            doc.push(option, value);
        }
    }
    for (option, value) in changes {
        if let Some(value) = value {
            doc.push(option, *value);
        }
    }
    Ok(IndexSpec::parse(&doc)?.over(&spec.records))
}

impl Catalog {
    /// Changes options of an index. Whether it becomes unique, too, is left to the caller, as that takes long.
    ///
    /// # Errors
    /// See [`crate::DocumentStore::modify_index`].
    pub(crate) fn modify_index(
        &self,
        ns: &Namespace,
        change: &IndexChange,
    ) -> Result<IndexModified> {
        let _changing = self.begin_change()?;
        self.check_no_oplog(ns)?;
        let collection = self.existing(ns)?;
        let name = selected(&collection, change)?;
        let mut changed = IndexChanged::default();
        if name == ID_INDEX_NAME {
            check_id_index(change)?;
            return Ok(changed.into());
        }
        let index = collection
            .index(&name)
            .ok_or_else(|| not_found(ns, &name))?;
        let mut options: Vec<(&str, Option<Value<'_>>)> = Vec::new();
        let flag = |on: bool| on.then_some(Value::Bool(true));
        if let Some(seconds) = change.expire_after {
            let checked = ttl::check_seconds(seconds)?;
            if collection.settings.capped.is_some() {
                return Err(invalid(
                    "TTL indexes are not supported for capped collections.",
                ));
            }
            if index.spec.fields.len() != 1 || index.spec.method.is_some() {
                return Err(invalid(
                    "TTL indexes are single-field indexes, compound indexes do not support TTL",
                ));
            }
            changed.expire_after = Some((index.spec.expire_after.map(i64::from), seconds));
            options.push(("expireAfterSeconds", Some(Value::Int32(checked))));
        }
        if let Some(hidden) = change.hidden {
            changed.hidden = Some((index.spec.hidden, hidden));
            options.push(("hidden", flag(hidden)));
        }
        if let Some(prepare) = change.prepare_unique {
            changed.prepare_unique = Some((index.spec.prepare_unique, prepare));
            options.push(("prepareUnique", flag(prepare && !index.spec.unique)));
        }
        let to_unique = change.unique && !index.spec.unique;
        if to_unique {
            if !index.spec.prepare_unique {
                return Err(invalid(
                    "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it \
                     before converting the index to unique.",
                ));
            }
            options.retain(|(option, _)| *option != "prepareUnique");
            options.push(("prepareUnique", None));
            options.push(("unique", flag(true)));
            changed.became_unique = true;
        }
        let spec = with_options(&index.spec, &options)?;
        check_not_replaced(&collection, index)?;
        if to_unique {
            let index = index.clone();
            let to_unique = Some(ToUnique {
                collection,
                index,
                spec,
            });
            return Ok(IndexModified { changed, to_unique });
        }
        if !change.dry_run && spec.doc != index.spec.doc {
            self.replace_with(&collection, || {
                let after = index.with_spec(spec);
                let mut batch = self.batch(ns);
                let mut changes = DocBuf::new();
                for (option, value) in &options {
                    changes.push(option, value.unwrap_or(Value::Bool(false)));
                }
                logged::log_modify_index(&mut batch, &collection, index, &changes);
                persist::put_index(&mut batch, &collection.uuid, &after);
                Ok((Some(collection.with_index(index, after)), batch))
            })?;
        }
        Ok(changed.into())
    }
}

impl ToUnique {
    /// Reads the entries of the index, for two of the same key.
    ///
    /// # Errors
    /// `CannotConvertIndexToUnique` (359), with the documents that have the same key; the limits of the context.
    pub(crate) fn check(&self, engine: &Engine, context: &OpContext) -> Result<()> {
        let snapshot = engine.snapshot();
        let (low, high) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut cursor = snapshot.cursor(self.index.tree, low, high, Direction::Forward)?;
        let mut violations = ArrayBuf::new();
        let mut fields: Vec<u8> = Vec::new();
        let mut ids: Vec<Vec<u8>> = Vec::new();
        let wrong = || corrupt(format!("an entry of index '{}'", self.spec.name));
        let mut entries: u64 = 0;
        while let Some((key, _)) = cursor.next()? {
            if entries.is_multiple_of(ENTRIES_BETWEEN_LOOKS) {
                context.check()?;
            }
            entries += 1;
            let end = entry::fields_end(&self.index.spec, key).ok_or_else(wrong)?;
            let (here, id) = key.split_at_checked(end).ok_or_else(wrong)?;
            if ids.is_empty() || here != fields {
                add_violation(&mut violations, &ids);
                fields.clear();
                fields.extend_from_slice(here);
                ids.clear();
            }
            if ids.len() < VIOLATIONS_MAX {
                ids.push(id.to_vec());
            }
            if violations.count() >= VIOLATIONS_MAX {
                break;
            }
        }
        add_violation(&mut violations, &ids);
        if violations.is_empty() {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::CannotConvertIndexToUnique,
            "Cannot convert the index to unique. Please resolve conflicting documents before running \
             collMod again.",
        )
        .with_details(doc! {"violations": &violations})
        .into())
    }
}

/// Adds a group of documents with the same key.
fn add_violation(violations: &mut ArrayBuf, ids: &[Vec<u8>]) {
    if ids.len() < 2 {
        return;
    }
    let mut group = DocBuf::new();
    group.push_array("ids", |out| {
        for id in ids {
            let mut decoded = DocBuf::new();
            let mut bits = key::TypeBitsReader::new(&[]);
            let direction = key::Direction::Ascending;
            if key::decode_into(id, direction, &mut bits, "_id", &mut decoded).is_ok()
                && let Some(id) = decoded.get("_id")
            {
                out.push(id);
            }
        }
    });
    violations.push(&group);
}

impl Collection {
    /// The next version, with another index in the place of one.
    fn with_index(&self, before: &Arc<Index>, after: Index) -> Collection {
        let after = Arc::new(after);
        let replaced = |index: &Arc<Index>| {
            if Arc::ptr_eq(index, before) {
                after.clone()
            } else {
                index.clone()
            }
        };
        self.with_indexes(self.indexes.iter().map(replaced).collect())
    }
}

fn not_found(ns: &Namespace, index: &str) -> Error {
    command(
        ErrorCode::IndexNotFound,
        format!("cannot find index {index} for ns {ns}"),
    )
}

/// The name of the index to change.
fn selected(collection: &Collection, change: &IndexChange) -> Result<String> {
    match &change.which {
        IndexSelector::Name(name) => Ok(name.clone()),
        IndexSelector::Key(key) => {
            name_of_key(collection, key).map_err(|error| match error.code() {
                ErrorCode::IndexNotFound => {
                    not_found(&collection.ns, &frond_storage::text::document(key))
                }
                _ => error,
            })
        }
        IndexSelector::All | IndexSelector::Names(_) => {
            Err(invalid("Must specify either index name or key pattern."))
        }
    }
}

fn check_id_index(change: &IndexChange) -> Result<()> {
    if change.hidden.is_some() {
        return Err(command(ErrorCode::BadValue, "can't hide _id index"));
    }
    if change.expire_after.is_some() {
        return Err(invalid("the _id field does not support TTL indexes"));
    }
    if change.prepare_unique == Some(true) {
        return Err(invalid("the _id index is unique"));
    }
    Ok(())
}
