//! Indexes: listed, created, changed, rebuilt, dropped.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use crate::catalog::{Collection, CreateIndexesInfo, IndexChange, IndexChanged, IndexSelector};
use crate::index_build;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::error::{Result, command};
use frond_storage::index::spec::IndexSpec;
use frond_storage::index::{Index, Usage};
use frond_storage::namespace::Namespace;

/// The result of resuming interrupted index builds of a collection.
#[derive(Debug)]
pub struct ResumedBuild {
    pub ns: Namespace,
    /// The names of the indexes.
    pub indexes: Vec<String>,
    /// Whether the builds succeeded.
    pub outcome: Result<()>,
}

/// The interval at which a command checks whether another build of its index has ended.
const BUILD_WAIT: Duration = Duration::from_millis(20);

/// A collation as messages show it.
fn collation_text(collator: &Collator) -> String {
    let simple = doc! {"locale": "simple"};
    frond_storage::text::document(collator.spec().unwrap_or(&simple))
}

impl DocumentStore {
    /// Creates indexes over existing and future documents. The collection is created if
    /// necessary. Writes continue meanwhile. Existing indexes are no error.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67), `IndexOptionsConflict` (85), `IndexKeySpecsConflict` (86),
    /// `IndexBuildAlreadyInProgress` (285), `DuplicateKey` (11000) and others, see [`IndexSpec::parse`]. Then no index is created.
    pub fn create_indexes(&self, ns: &Namespace, specs: &[&Doc]) -> Result<CreateIndexesInfo> {
        self.begin_indexes(ns, specs, &OpContext::new())
    }

    /// As [`DocumentStore::create_indexes`], within limits. Shows its progress in the context. Outside of a transaction it waits for
    /// the end of another build of the same index.
    ///
    /// # Errors
    /// As there, and the limits of the context.
    pub fn build_indexes(
        &self,
        ns: &Namespace,
        specs: &[&Doc],
        context: &OpContext,
    ) -> Result<CreateIndexesInfo> {
        loop {
            match self.begin_indexes(ns, specs, context) {
                Err(error)
                    if error.code() == ErrorCode::IndexBuildAlreadyInProgress
                        && !self.catalog().is_in_transaction() =>
                {
                    context.check()?;
                    std::thread::sleep(BUILD_WAIT);
                }
                done => return done,
            }
        }
    }

    fn begin_indexes(
        &self,
        ns: &Namespace,
        specs: &[&Doc],
        context: &OpContext,
    ) -> Result<CreateIndexesInfo> {
        if specs.is_empty() {
            return Err(command(
                ErrorCode::BadValue,
                "Must specify at least one index to create",
            ));
        }
        let default = self.catalog().collator(ns, None);
        let collection = self.catalog().collection(ns);
        let compression = collection.and_then(|there| there.settings.index_compression);
        let specs: Vec<IndexSpec> = specs
            .iter()
            .map(|spec| IndexSpec::parse(&IndexSpec::inheriting(spec, &default, compression)))
            .collect::<Result<_>>()?;
        if let Some(spec) = specs
            .iter()
            .find(|spec| spec.is_id_index() && spec.collator != default)
        {
            return Err(command(
                ErrorCode::BadValue,
                format!(
                    "The _id index must have the same collation as the collection. Index collation: \
                     {}, collection collation: {}",
                    collation_text(&spec.collator),
                    collation_text(&default)
                ),
            ));
        }
        index_build::create(self.catalog(), ns, specs, context)
    }

    /// Resumes the index builds that a crash or a shutdown interrupted. Call it once after opening the store; until it
    /// is done, no query uses these indexes. Returns the result for each collection. An index that cannot be built
    /// is dropped, unless the build was interrupted again.
    ///
    /// With several servers over one keyspace it goes on with the builds of servers that are gone. Call it every few seconds then.
    pub fn resume_index_builds(&self, context: &OpContext) -> Vec<ResumedBuild> {
        let mut unfinished = self.catalog().unfinished_indexes();
        if self.is_shared() {
            unfinished.retain_mut(|(collection, indexes)| {
                // The next look comes soon.
                let taken = index_build::take_over(self.catalog(), collection, indexes);
                *indexes = taken.unwrap_or_default();
                !indexes.is_empty()
            });
        }
        let resume = |(collection, indexes): (Arc<Collection>, Vec<Arc<Index>>)| {
            let outcome = index_build::resume(self.catalog(), &collection, &indexes, context);
            ResumedBuild {
                ns: collection.ns.clone(),
                indexes: indexes
                    .iter()
                    .map(|index| index.spec.name.clone())
                    .collect(),
                outcome,
            }
        };
        unfinished.into_iter().map(resume).collect()
    }

    /// Drops indexes. Returns how many there were before.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72),
    /// `AmbiguousIndexKeyPattern` (181).
    pub fn drop_indexes(&self, ns: &Namespace, which: &IndexSelector) -> Result<usize> {
        self.catalog().drop_indexes(ns, which)
    }

    /// Changes options of an index. It becomes unique by being built again, while writes continue.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexNotFound` (27), `InvalidOptions` (72),
    /// `CannotConvertIndexToUnique` (359), `IndexBuildAlreadyInProgress` (285) if it is being made unique;
    /// `IndexBuildAborted` (276) if it is dropped meanwhile; the limits of the context.
    pub fn modify_index(
        &self,
        ns: &Namespace,
        change: &IndexChange,
        context: &OpContext,
    ) -> Result<IndexChanged> {
        let modified = self.catalog().modify_index(ns, change)?;
        if let Some(to_unique) = modified.to_unique {
            to_unique.check(self.engine(), context)?;
            if !change.dry_run {
                index_build::make_unique(self.catalog(), &to_unique, context)?;
            }
        }
        Ok(modified.changed)
    }

    /// Rebuilds all indexes of a collection while writes continue. If the operation is killed, the build is resumed
    /// when the store is next opened.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26), `IndexBuildAlreadyInProgress` (285), the limits of the context.
    pub fn rebuild_indexes(&self, ns: &Namespace, context: &OpContext) -> Result<()> {
        index_build::rebuild(self.catalog(), ns, context)
    }

    /// The specifications of a collection's indexes, the one on `_id` first.
    ///
    /// # Errors
    /// `NamespaceNotFound` (26).
    pub fn list_indexes(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let collection = self
            .catalog()
            .existing(ns)
            .map_err(|error| match error.code() {
                ErrorCode::NamespaceNotFound => command(
                    ErrorCode::NamespaceNotFound,
                    format!("ns does not exist: {ns}"),
                ),
                _ => error,
            })?;
        let ready = collection
            .ready_indexes()
            .map(|index| index.spec.doc.clone());
        // A collection in the order of insertion has it among the others, or none.
        let own = collection.lists_id_index().then(|| collection.id_index());
        let primary = collection
            .shown_primary_key()
            .into_iter()
            .map(|index| index.spec.doc.clone());
        Ok(own.into_iter().chain(primary).chain(ready).collect())
    }

    /// The use of each index since the server started: for `$indexStats`. A missing collection has none.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166).
    pub fn index_usage(&self, ns: &Namespace) -> Result<Vec<DocBuf>> {
        let collection = match self.catalog().existing(ns) {
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => return Ok(Vec::new()),
            existing => existing?,
        };
        let host = self.catalog().hooks().host();
        let describe = |spec: &Doc, uses: &Usage| {
            let mut out = doc! {"name": spec.get("name"), "key": spec.get("key")};
            if let Some(host) = host {
                out.push("host", host);
            }
            let since = Value::DateTime(uses.since_ms);
            out.push(
                "accesses",
                &doc! {"ops": uses.queries() as i64, "since": since},
            );
            out.push("spec", spec);
            out
        };
        let id_index = describe(&collection.id_index(), collection.id_uses());
        let shown = |index: &&Arc<Index>| index.replaces.is_none();
        let others = (collection.shown_primary_key().into_iter()).chain(&collection.indexes);
        let others = others.filter(shown).map(|index| {
            let mut described = describe(&index.spec.doc, index.uses());
            if !index.ready {
                described.push("building", true);
            }
            described
        });
        let own = (!collection.is_by_record()).then_some(id_index);
        Ok(own.into_iter().chain(others).collect())
    }
}
