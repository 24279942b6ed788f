//! Progress of a migration, in documents of the target, so that it continues after a kill.

use frond_bson::{Doc, DocBuf, OwnedValue, doc};
use frond_client::{BulkOptions, Client, Collection};

use crate::error::{Error, Result};
use crate::inventory::{self, in_database};
use crate::names::STATE_DATABASE;
use crate::ranges::{Range, opaque, push_opaque};
use crate::write::{self, Run};

/// The steps that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Documents are being copied.
    Copy,
    /// All is copied; changes are applied.
    Follow,
}

/// A range and how far it is.
#[derive(Clone, Debug)]
pub struct RangeState {
    pub range: Range,
    /// The `_id` up to which it is copied.
    pub last: Option<OwnedValue>,
    /// Whether all of it is copied.
    pub done: bool,
    pub copied: u64,
}

/// A collection and how far it is.
#[derive(Clone, Debug)]
pub struct CollectionState {
    pub ranges: Vec<RangeState>,
    /// Whether its indexes are built, too.
    pub done: bool,
}

/// The state of one migration, which is named after its source.
#[derive(Clone, Debug)]
pub struct State {
    key: String,
    collection: Collection,
}

impl State {
    /// The state of the migration from a server.
    pub fn new(source: &str) -> State {
        State {
            key: source.to_owned(),
            collection: in_database(STATE_DATABASE, "state"),
        }
    }

    /// Writes a document. Journaled, it says that all that was written before it is kept, too.
    fn put(&self, client: &mut Client, document: &Doc, journal: bool) -> Result<()> {
        let mut run = Run::default();
        run.push(&write::upsert(document)?);
        let failed = write::write_all(
            client,
            &self.collection,
            "update",
            &run,
            BulkOptions {
                journal,
                ..BulkOptions::default()
            },
        )?;
        write::first_failure("update", &failed)
    }

    fn get(&self, client: &mut Client, id: &str) -> Result<Option<DocBuf>> {
        let mut found = None;
        inventory::all_of(
            client,
            &self.collection,
            &doc! { "_id": id },
            &mut |document| {
                found = Some(document.to_owned());
            },
        )?;
        Ok(found)
    }

    /// The phase, and where the changes go on; none if there is no migration from this source.
    pub fn read(&self, client: &mut Client) -> Result<Option<(Phase, DocBuf)>> {
        let Some(found) = self.get(client, &self.key)? else {
            return Ok(None);
        };
        let phase = match found.get_str("phase") {
            Some("follow") => Phase::Follow,
            _ => Phase::Copy,
        };
        let position = found.get_doc("position").unwrap_or(Doc::empty()).to_owned();
        Ok(Some((phase, position)))
    }

    /// Keeps phase and position.
    pub fn write(
        &self,
        client: &mut Client,
        phase: Phase,
        position: &Doc,
        phase_is_new: bool,
    ) -> Result<()> {
        let phase = match phase {
            Phase::Copy => "copy",
            Phase::Follow => "follow",
        };
        self.put(
            client,
            &doc! { "_id": self.key.as_str(), "phase": phase, "position": position },
            phase_is_new,
        )
    }

    fn collection_key(&self, collection: &Collection) -> String {
        format!("{}/{collection}", self.key)
    }

    /// Keeps how a collection is divided, and whether it is done.
    pub fn write_collection(
        &self,
        client: &mut Client,
        collection: &Collection,
        state: &CollectionState,
    ) -> Result<()> {
        let mut document = doc! {
            "_id": self.collection_key(collection),
            "migration": self.key.as_str(),
            "done": state.done,
        };
        document.push_array("ranges", |ranges| {
            for range in &state.ranges {
                ranges.push(&range.range.to_doc());
            }
        });
        self.put(client, &document, true)
    }

    /// The ranges of a collection and their progress.
    pub fn read_collection(
        &self,
        client: &mut Client,
        collection: &Collection,
    ) -> Result<Option<CollectionState>> {
        let key = self.collection_key(collection);
        let Some(found) = self.get(client, &key)? else {
            return Ok(None);
        };
        let broken = || {
            Error::Data(format!(
                "the state {key:?} of the migration cannot be read; use --restart"
            ))
        };
        let mut ranges = Vec::new();
        for range in found.get_array("ranges").ok_or_else(broken)?.values() {
            let range = range
                .as_doc()
                .and_then(Range::from_doc)
                .ok_or_else(broken)?;
            ranges.push(RangeState {
                range,
                last: None,
                done: false,
                copied: 0,
            });
        }
        let of = doc! { "range_of": key.as_str() };
        inventory::all_of(client, &self.collection, &of, &mut |document| {
            let at = document.get_i64("n").and_then(|n| usize::try_from(n).ok());
            if let Some(range) = at.and_then(|at| ranges.get_mut(at)) {
                range.last = opaque(document, "last");
                range.done = document.get_bool("done") == Some(true);
                range.copied = document
                    .get_i64("copied")
                    .and_then(|n| u64::try_from(n).ok())
                    .unwrap_or(0);
            }
        })?;
        Ok(Some(CollectionState {
            ranges,
            done: found.get_bool("done") == Some(true),
        }))
    }

    /// Keeps how far a range is.
    pub fn write_range(
        &self,
        client: &mut Client,
        collection: &Collection,
        at: usize,
        range: &RangeState,
    ) -> Result<()> {
        let key = self.collection_key(collection);
        let mut document = doc! {
            "_id": format!("{key}/{at}"),
            "migration": self.key.as_str(),
            "range_of": key.as_str(),
            "n": i64::try_from(at).unwrap_or(i64::MAX),
            "done": range.done,
            "copied": i64::try_from(range.copied).unwrap_or(i64::MAX),
        };
        if let Some(last) = &range.last {
            push_opaque(&mut document, "last", &last.as_value());
        }
        self.put(client, &document, range.done)
    }

    /// Removes all that is known of this migration, and the database if nothing else is in it.
    pub fn forget(&self, client: &mut Client) -> Result<()> {
        for filter in [
            doc! { "migration": self.key.as_str() },
            doc! { "_id": self.key.as_str() },
        ] {
            let statement = doc! { "q": &filter, "limit": 0 };
            let mut run = Run::default();
            run.push(&statement);
            let failed = write::write_all(
                client,
                &self.collection,
                "delete",
                &run,
                BulkOptions {
                    journal: true,
                    ..BulkOptions::default()
                },
            )?;
            write::first_failure("delete", &failed)?;
        }
        if client.count(&self.collection)? == 0 {
            crate::schema::drop_database(client, STATE_DATABASE)?;
        }
        Ok(())
    }
}
