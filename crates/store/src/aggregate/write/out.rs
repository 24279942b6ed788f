//! `$out`: the documents replace a collection, all at once.

use frond_bson::{Doc, ObjectId, doc};
use frond_error::ErrorCode;
use frond_query::aggregate::{Out, Source};

use super::{BATCH_BYTES, BATCH_DOCUMENTS, Reserved, Target};
use crate::catalog::{Collection, Uuid};
use frond_storage::error::{Error, Result, command};
use frond_storage::keyspace::Interrupt;
use frond_storage::namespace::Namespace;
use frond_storage::options::{CollectionOptions, NaturalOrder};
use frond_storage::points::point;
use frond_storage::text;

const RESERVED: Reserved = Reserved {
    special: (17385, "Can't $out to special collection"),
    internal: (31321, "Can't $out to internal database"),
};

impl Target<'_> {
    /// Runs `$out`. The indexes and options of the collection stay.
    pub fn out(&self, out: &Out, mut docs: Source<Error>) -> Result<()> {
        let target = self.namespace(out.db.as_deref(), &out.coll, &RESERVED)?;
        if let Some(options) = &out.time_series {
            self.check_time_series(&target, options)?;
        }
        self.store.catalog().check_writable(&target)?;
        let temporary = format!("tmp.agg_out.{}", ObjectId::new());
        let temporary = Namespace::new(target.db(), &temporary)?;
        let existing = self.store.catalog().collection(&target);
        if existing
            .as_ref()
            .is_some_and(|existing| existing.settings.capped.is_some())
        {
            return Err(command(
                ErrorCode::Location(17152),
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let filled = self
            .prepare(&temporary, existing.as_deref(), out.time_series.as_deref())
            .and_then(|()| self.store.catalog().existing(&temporary))
            .and_then(|created| self.fill(&temporary, &created.uuid, &mut docs))
            .and_then(|()| self.context.check())
            .and_then(|()| self.check_unchanged(&target, existing.as_deref()))
            .and_then(|()| {
                Interrupt::shielded(|| self.store.rename_collection(&temporary, &target, true))
            });
        if filled.is_err() {
            // The first error is the one to report. What interrupted the operation must not interrupt this.
            let _ = Interrupt::shielded(|| self.store.drop_collection(&temporary));
        }
        filled
    }

    /// Checks that the target can be the time series with these options: it is one already, or does not exist.
    fn check_time_series(&self, target: &Namespace, options: &Doc) -> Result<()> {
        let asked = CollectionOptions::parse(&doc! {"timeseries": options})?.time_series;
        let catalog = self.store.catalog();
        let existing = catalog.collection(target);
        let series = existing
            .as_ref()
            .and_then(|existing| existing.settings.time_series.as_ref());
        if series.is_none() && (existing.is_some() || catalog.is_view(target)) {
            return Err(command(
                ErrorCode::Location(7_268_700),
                "Cannot create a time-series collection from a non time-series collection or view.",
            ));
        }
        if series.is_some() && series != asked.as_ref() {
            let found = existing
                .as_ref()
                .and_then(|existing| existing.options.get_doc("timeseries"));
            return Err(command(
                ErrorCode::Location(7_406_103),
                format!(
                    "Time-series options inputted must match the existing time-series collection. \
                     Received: {} Found: {}",
                    text::document(options),
                    text::document(found.unwrap_or(Doc::empty()))
                ),
            ));
        }
        Ok(())
    }

    /// Refuses to replace a collection that was created or changed after its options and indexes were copied: they would
    /// be lost.
    fn check_unchanged(&self, target: &Namespace, before: Option<&Collection>) -> Result<()> {
        let now = self.store.catalog().collection(target);
        let options =
            |one: Option<&Collection>| one.map(|one| one.options.clone()).unwrap_or_default();
        let (old, new) = (options(before), options(now.as_deref()));
        if old != new {
            return Err(command(
                ErrorCode::CommandFailed,
                format!(
                    "collection options of target collection {target} changed during processing. \
                     Original options: {}, new options: {}",
                    text::document(&old),
                    text::document(&new)
                ),
            ));
        }
        if indexes_of(before).ne(indexes_of(now.as_deref())) || now.is_some() != before.is_some() {
            return Err(command(
                ErrorCode::CommandFailed,
                format!("indexes of target collection {target} changed during processing"),
            ));
        }
        Ok(())
    }

    /// Creates a collection like another one, or a new one.
    fn prepare(
        &self,
        ns: &Namespace,
        like: Option<&Collection>,
        time_series: Option<&Doc>,
    ) -> Result<()> {
        match (like, time_series) {
            // Without an order in its options it is older than the setting, and so in the order of `_id`.
            (Some(like), _) => {
                let catalog = self.store.catalog();
                catalog.create_ordered(ns, &like.options, NaturalOrder::Id)?;
            }
            (None, Some(options)) => {
                let options = doc! {"timeseries": options};
                self.store.create_collection(ns, &options)?;
            }
            (None, None) => self.store.create_collection(ns, Doc::empty())?,
        }
        let specs: Vec<&Doc> = indexes_of(like).collect();
        if !specs.is_empty() {
            self.store.create_indexes(ns, &specs)?;
        }
        Ok(())
    }

    /// Inserts into the collection with that UUID. If it is dropped meanwhile, none of the documents may be lost in
    /// silence with it.
    fn fill(&self, ns: &Namespace, uuid: &Uuid, docs: &mut Source<Error>) -> Result<()> {
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
                let Some(doc) = docs.next()? else { break };
                bytes += doc.len_bytes();
                batch.push(doc);
            }
            if batch.is_empty() {
                return Ok(());
            }
            let batch: Vec<&Doc> = batch.iter().map(|doc| &**doc).collect();
            if let Some(refused) = self.insert(ns, Some(uuid), &batch)? {
                return Err(refused);
            }
            point("a part of a result is written");
        }
    }
}

/// The specifications of a collection's indexes, except one on `_id` that is the collection itself.
fn indexes_of(collection: Option<&Collection>) -> impl Iterator<Item = &Doc> {
    let indexes = collection.into_iter().flat_map(Collection::ready_indexes);
    indexes.map(|index| &*index.spec.doc)
}
