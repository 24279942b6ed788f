//! Views: queries with a name, kept as documents of the collection `system.views` of their database,
//! as in MongoDB, and in memory in the catalog's view.

use std::sync::Arc;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf};
use frond_error::ErrorCode;
use frond_query::aggregate::Pipeline;

use super::view_definition::{
    SYSTEM_PROFILE, SYSTEM_VIEWS, ViewDefinition, is_a_view, read_by, same_collation,
};
use super::{Catalog, View, logged, persist};
use frond_storage::environment::environment;
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Snapshot;
use frond_storage::merge::Counts;
use frond_storage::namespace::Namespace;
use frond_storage::options::{CollectionOptions, ViewOptions};

/// The maximum depth of views over views, as in MongoDB.
const DEPTH_MAX: usize = 20;

/// A view, resolved to a pipeline over a collection.
#[derive(Clone, Debug)]
pub struct ResolvedView {
    /// The collection, which need not exist.
    pub collection: Namespace,
    /// The stages of all views between them.
    pub pipeline: ArrayBuf,
    /// The collation of the view.
    pub collation: Option<DocBuf>,
}

impl Catalog {
    /// Whether a name is that of a view.
    pub fn is_view(&self, ns: &Namespace) -> bool {
        self.view().definition(ns).is_some()
    }

    /// The definition of a view.
    pub fn definition(&self, ns: &Namespace) -> Option<Arc<ViewDefinition>> {
        self.view().definition(ns).cloned()
    }

    /// The pipeline over a collection that a view stands for; `None` if this is no view.
    ///
    /// # Errors
    /// `ViewDepthLimitExceeded` (165).
    pub fn resolve(&self, ns: &Namespace) -> Result<Option<ResolvedView>> {
        let view = self.view();
        let Some(mut definition) = view.definition(ns) else {
            return Ok(None);
        };
        let mut parts = vec![&definition.pipeline];
        let collation = definition.collation.clone();
        let mut source = definition.source()?;
        while let Some(next) = view.definition(&source) {
            definition = next;
            parts.push(&definition.pipeline);
            source = definition.source()?;
            if parts.len() > DEPTH_MAX {
                return Err(too_deep());
            }
        }
        let mut pipeline = ArrayBuf::new();
        for stage in parts.iter().rev().flat_map(|part| part.values()) {
            pipeline.push_value(&stage);
        }
        Ok(Some(ResolvedView {
            collection: source,
            pipeline,
            collation,
        }))
    }

    /// Refuses views, and the collection that holds the definitions of views, which only the catalog writes.
    ///
    /// # Errors
    /// `CommandNotSupportedOnView` (166), `InvalidNamespace` (73). In a transaction and at a fixed moment what these do not
    /// take: `OperationNotSupportedInTransaction` (263), 50791 for system collections, `IllegalOperation` (20).
    pub fn check_writable(&self, ns: &Namespace) -> Result<()> {
        if !self.is_live() {
            self.check_scope_writable(ns)?;
        }
        self.check_no_oplog(ns)?;
        if self.oplog().is_following() && crate::oplog::has_entries(ns) {
            return Err(command(
                ErrorCode::NotWritablePrimary,
                "not primary: this member of the replica set does not lead",
            ));
        }
        if self.view().definition(ns).is_some() {
            return Err(is_a_view(ns));
        }
        if ns.coll() == SYSTEM_PROFILE {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("cannot write to {ns}"),
            ));
        }
        if ns.coll() == SYSTEM_VIEWS {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("cannot write to {ns}; use create, collMod and drop"),
            ));
        }
        Ok(())
    }

    /// Creates a view. The lock on changes is held.
    pub(super) fn create_view(
        &self,
        ns: &Namespace,
        settings: &ViewOptions,
        options: &Doc,
    ) -> Result<()> {
        if ns.coll().starts_with("system.") {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("View name cannot start with 'system.': {ns}"),
            ));
        }
        let definition = ViewDefinition::new(ns, settings, options);
        self.check_definition(&definition)?;
        self.store_definition(definition)
    }

    /// Changes a view. The lock on changes is held.
    pub(super) fn modify_view(&self, before: &ViewDefinition, changes: &Doc) -> Result<()> {
        let (settings, stored) = frond_storage::options::modify(&before.options(), changes)?;
        let Some(view) = &settings.view else {
            return Ok(());
        };
        let after = ViewDefinition::new(&before.ns, view, &stored);
        self.check_definition(&after)?;
        self.store_definition(after)
    }

    fn check_definition(&self, definition: &ViewDefinition) -> Result<()> {
        let ns = &definition.ns;
        definition.source()?;
        let pipeline = Pipeline::parse(&definition.pipeline, &environment(None, Collator::BINARY))?;
        if let Some(stage) = pipeline.writes() {
            return Err(command(
                ErrorCode::OptionNotSupportedOnView,
                format!(
                    "The aggregation stage {stage} in location {} of the pipeline cannot be used in \
                     the view definition of {ns} because it writes to disk",
                    definition.pipeline.count().saturating_sub(1)
                ),
            ));
        }
        let view = self.view();
        let reads = definition.reads();
        let below = reads.iter().filter_map(|read| view.definition(read));
        let of_db = view.definitions(ns.db());
        let above = of_db.iter().filter(|one| one.reads().contains(ns));
        if let Some(other) = below
            .chain(above)
            .find(|one| !one.has_collation_of(definition))
        {
            return Err(command(
                ErrorCode::OptionNotSupportedOnView,
                format!("View {ns} has conflicting collation with view {}", other.ns),
            ));
        }
        check_graph(&view, definition, &mut vec![ns.clone()])
    }

    /// Refuses a pipeline over `db` whose stages read a view with another collation than the pipeline's: there would be
    /// two collations for one filter.
    ///
    /// # Errors
    /// `OptionNotSupportedOnView` (167).
    pub(crate) fn check_collation_of_views(
        &self,
        db: &str,
        pipeline: &Doc,
        collator: &Collator,
    ) -> Result<()> {
        let view = self.view();
        if view.definition_count() == 0 {
            return Ok(());
        }
        for name in read_by(db, pipeline) {
            if let Some(definition) = view.definition(&name)
                && !same_collation(definition.collation.as_deref(), collator.spec())
            {
                return Err(command(
                    ErrorCode::OptionNotSupportedOnView,
                    format!("Cannot override default collation of view {name}"),
                ));
            }
        }
        Ok(())
    }

    /// Stores a view and publishes it.
    fn store_definition(&self, definition: ViewDefinition) -> Result<()> {
        let ns = Namespace::new(definition.ns.db(), SYSTEM_VIEWS)?;
        if self.collection(&ns).is_none() {
            self.create_unchecked(&ns, Doc::empty(), CollectionOptions::default())?;
        }
        let before = self.definition(&definition.ns);
        self.write_definition(&ns, before.as_deref(), Some(&definition))?;
        self.publish(|view| view.define(Arc::new(definition)));
        Ok(())
    }

    /// Drops a view. The lock on changes is held.
    pub(super) fn drop_view(&self, definition: &ViewDefinition) -> Result<()> {
        let ns = Namespace::new(definition.ns.db(), SYSTEM_VIEWS)?;
        self.write_definition(&ns, Some(definition), None)?;
        self.publish(|view| view.undefine(|ns| *ns == definition.ns));
        Ok(())
    }

    /// Writes the document of a view into `system.views`, or deletes it. Only the catalog writes to that collection:
    /// its documents lie whole under their `_id`, and it has no further indexes.
    fn write_definition(
        &self,
        system_views: &Namespace,
        before: Option<&ViewDefinition>,
        after: Option<&ViewDefinition>,
    ) -> Result<()> {
        let written = self.write(system_views, |collection| {
            let mut batch = self.batch(system_views);
            let mut change = Counts::default();
            if let Some(before) = before {
                batch.delete(collection.primary, &before.key());
                change.remove_document(before.to_doc().len_bytes());
            }
            if let Some(after) = after {
                let stored = after.to_doc();
                batch.put(collection.primary, &after.key(), stored.as_bytes());
                change.add_document(stored.len_bytes());
            } else {
                batch.set_frees_space();
            }
            persist::change_counter(&mut batch, &collection.uuid, change);
            if batch.is_logged() {
                let (before, after) = (
                    before.map(ViewDefinition::to_doc),
                    after.map(ViewDefinition::to_doc),
                );
                logged::log_view(&mut batch, collection, before.as_deref(), after.as_deref());
            }
            let (set, log) = batch.into_parts();
            self.commit_beside_view(set, log.as_ref())?;
            collection.count(change);
            Ok(())
        });
        written?.unwrap_or_else(|| Err(super::not_found(system_views)))
    }
}

/// Whether two collations are the same; none is the simple one.
fn too_deep() -> Error {
    command(
        ErrorCode::ViewDepthLimitExceeded,
        format!("View depth limit exceeded; maximum depth is {DEPTH_MAX}"),
    )
}

/// Checks the graph of what a view reads. `path` holds the views that led here, this one included.
fn check_graph(view: &View, definition: &ViewDefinition, path: &mut Vec<Namespace>) -> Result<()> {
    if path.len() > DEPTH_MAX {
        return Err(too_deep());
    }
    for ns in definition.reads() {
        if path.contains(&ns) {
            let names: Vec<&str> = path.iter().chain([&ns]).map(Namespace::as_str).collect();
            return Err(command(
                ErrorCode::GraphContainsCycle,
                format!("View cycle detected: {}", names.join(" => ")),
            ));
        }
        if let Some(next) = view.definition(&ns) {
            path.push(ns);
            check_graph(view, next, path)?;
            path.pop();
        }
    }
    Ok(())
}

/// Loads the views of all databases. A damaged definition is skipped.
pub(super) fn load(snapshot: &Snapshot, view: &mut View) -> Result<()> {
    let holders: Vec<_> = view
        .iter()
        .filter(|collection| collection.ns.coll() == SYSTEM_VIEWS)
        .cloned()
        .collect();
    for collection in holders {
        let (low, high) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let forward = frond_storage::keyspace::Direction::Forward;
        let mut cursor = snapshot.cursor(collection.primary, low, high, forward)?;
        while let Some((_, stored)) = cursor.next()? {
            let definition = ViewDefinition::of_doc(Doc::from_trusted(stored));
            if let Some(definition) = definition.filter(|view| view.ns.db() == collection.ns.db()) {
                view.define(Arc::new(definition));
            }
        }
    }
    Ok(())
}
