//! The server that builds an index, and its progress. If the builder ends, another server continues.

use frond_bson::{DocBuf, Value};

use super::registry::{binary, id_of};
use super::{BUILD, Cluster, ServerId, read_doc};
use frond_storage::error::{Result, write_conflict};
use frond_storage::keyspace::{CATALOG_TREE, Snapshot, TreeId, WriteSet};

/// The build of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildState {
    /// The builder; `None` after it has given up.
    pub builder: Option<ServerId>,
    /// The key of the last document whose entries are stored.
    pub after: Option<Vec<u8>>,
    /// All documents have their entries.
    pub is_filled: bool,
}

fn build_key(uuid: &[u8; 16], tree: TreeId) -> Vec<u8> {
    let mut key = vec![BUILD];
    key.extend_from_slice(uuid);
    key.extend_from_slice(&tree.0.to_be_bytes());
    key
}

impl BuildState {
    fn to_doc(&self) -> DocBuf {
        let mut doc = DocBuf::new();
        if let Some(builder) = &self.builder {
            doc.push("id", binary(builder));
        }
        if let Some(after) = &self.after {
            let (subtype, bytes) = (0, after.as_slice());
            doc.push("after", Value::Binary { subtype, bytes });
        }
        if self.is_filled {
            doc.push("filled", true);
        }
        doc
    }
}

/// Ends the build of an index, in the commit that makes it ready or drops it.
pub(crate) fn stage_end_of_build(batch: &mut WriteSet, uuid: &[u8; 16], tree: TreeId) {
    batch.delete(CATALOG_TREE, &build_key(uuid, tree));
}

impl Cluster {
    /// Notes in the commit that registers an index that this server builds it.
    pub fn stage_build(&self, batch: &mut WriteSet, uuid: &[u8; 16], tree: TreeId) {
        let state = BuildState {
            builder: Some(self.id()),
            ..BuildState::default()
        };
        let key = build_key(uuid, tree);
        batch.put(CATALOG_TREE, &key, state.to_doc().as_bytes());
    }

    /// The build of an index in a snapshot.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn build(
        &self,
        snapshot: &Snapshot,
        uuid: &[u8; 16],
        tree: TreeId,
    ) -> Result<Option<BuildState>> {
        let stored = read_doc(snapshot, &build_key(uuid, tree))?;
        Ok(stored.map(|stored| BuildState {
            builder: id_of(&stored, "id"),
            after: stored.get_binary("after").map(<[u8]>::to_vec),
            is_filled: stored.get_bool("filled").unwrap_or(false),
        }))
    }

    /// A write set with the operations of another one, whose commit fails if this server does not build all of these indexes any
    /// more. `progress` is stored with it, if there is some.
    ///
    /// # Errors
    /// `WriteConflict` (112) if it does not; errors of the engine.
    pub fn as_builder(
        &self,
        snapshot: &Snapshot,
        set: &WriteSet,
        uuid: &[u8; 16],
        trees: impl Iterator<Item = TreeId>,
        progress: Option<&BuildState>,
    ) -> Result<WriteSet> {
        let me = self.id();
        let mut all = WriteSet::with_snapshot(snapshot);
        all.append(set);
        for tree in trees {
            let state = self.build(snapshot, uuid, tree)?;
            if state.is_none_or(|state| state.builder != Some(me)) {
                return Err(write_conflict());
            }
            let key = build_key(uuid, tree);
            match progress {
                None => all.guard(CATALOG_TREE, &key),
                Some(progress) => {
                    let state = BuildState {
                        builder: Some(me),
                        ..progress.clone()
                    };
                    all.put_guarded(CATALOG_TREE, &key, state.to_doc().as_bytes());
                }
            }
        }
        Ok(all)
    }

    /// Whether this server builds an index now: it did before, or no live server does.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn take_build(&self, uuid: &[u8; 16], tree: TreeId) -> Result<bool> {
        let snapshot = self.engine.snapshot();
        let Some(mut state) = self.build(&snapshot, uuid, tree)? else {
            return Ok(false);
        };
        if let Some(builder) = &state.builder
            && self.is_live(builder)?
        {
            return Ok(false);
        }
        state.builder = Some(self.id());
        let mut batch = WriteSet::with_snapshot(&snapshot);
        let key = build_key(uuid, tree);
        batch.put_guarded(CATALOG_TREE, &key, state.to_doc().as_bytes());
        match self.commit(batch) {
            Ok(()) => Ok(true),
            // Another server was faster.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Leaves the build of an index to others, or to a later try.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn give_up_build(&self, uuid: &[u8; 16], tree: TreeId) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let state = self.build(&snapshot, uuid, tree)?;
        let Some(state) = state.filter(|state| state.builder == Some(self.id())) else {
            return Ok(());
        };
        let given_up = BuildState {
            builder: None,
            ..state
        };
        let mut batch = WriteSet::with_snapshot(&snapshot);
        let key = build_key(uuid, tree);
        batch.put_guarded(CATALOG_TREE, &key, given_up.to_doc().as_bytes());
        self.commit(batch)
    }
}
