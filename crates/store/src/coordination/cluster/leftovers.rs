//! Objects that a command needs only while it runs, and the server that owns them. If its server ends in the middle of the command, a server that leads removes
//! it.

use frond_bson::{DocBuf, doc};

use super::registry::{binary, id_of};
use super::{Cluster, ServerId, TEMPORARY, Uuid};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{CATALOG_TREE, Direction, Snapshot, WriteSet};

fn temporary_key(uuid: &Uuid) -> [u8; 17] {
    let mut key = [TEMPORARY; 17];
    key[1..].copy_from_slice(uuid);
    key
}

/// Ends that a collection is temporary, in the commit that drops it or gives it another name.
pub(crate) fn stage_end_of_temporary(batch: &mut WriteSet, uuid: &Uuid) {
    batch.delete(CATALOG_TREE, &temporary_key(uuid));
}

/// The server that an entry names.
pub(crate) fn owner_of(entry: &frond_bson::Doc) -> Option<ServerId> {
    id_of(entry, "id")
}

impl Cluster {
    /// The entry of something that belongs to this server.
    pub fn owned(&self) -> DocBuf {
        doc! {"id": binary(&self.id())}
    }

    /// Notes in the commit that creates a collection that a command of this server removes it.
    pub fn stage_temporary(&self, batch: &mut WriteSet, uuid: &Uuid) {
        batch.put(CATALOG_TREE, &temporary_key(uuid), self.owned().as_bytes());
    }

    /// The collections of [`Cluster::stage_temporary`], and whose they are.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub fn temporary(&self, snapshot: &Snapshot) -> Result<Vec<(Uuid, ServerId)>> {
        let mut cursor = snapshot.cursor(
            CATALOG_TREE,
            std::ops::Bound::Included(&[TEMPORARY]),
            std::ops::Bound::Excluded(&[TEMPORARY + 1]),
            Direction::Forward,
        )?;
        let wrong = || corrupt("the entry of a temporary collection");
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            let uuid = key.get(1..).and_then(|uuid| uuid.try_into().ok());
            let entry = frond_bson::Doc::validate(value).map_err(|_| wrong())?;
            found.push(uuid.zip(owner_of(entry)).ok_or_else(wrong)?);
        }
        Ok(found)
    }

    /// The servers that others have to wait for.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn live(&self) -> Result<Vec<ServerId>> {
        self.remove_dead()?;
        let servers = self.registered(&self.engine.snapshot())?;
        Ok(servers.iter().map(|server| server.id).collect())
    }
}
