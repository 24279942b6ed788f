//! A server of a cluster: to clients it is a router of a sharded cluster, as MongoDB's mongos. It has the times and the concerns of a
//! replica set, because the cluster replicates what it commits, but no configuration and no members.

use std::sync::Arc;

use frond_error::Result;
use frond_replset::SetConfig;
use frond_store::DocumentStore;

use super::Replication;
use super::member::alone;

/// The name that stands for the cluster where a set's is needed.
const NAME: &str = "tikv";

impl Replication {
    /// That of a server which clients reach at `host`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn open_router(store: &DocumentStore, host: String) -> Result<Replication> {
        let mut config = SetConfig::parse(&SetConfig::default_doc(NAME, &host))?;
        config.term = Some(1);
        let mut set = Replication::new(store, NAME, host)?;
        set.is_router = true;
        *set.member.write() = Some(Arc::new(alone(config)));
        Ok(set)
    }

    /// Whether the server is one of a cluster.
    pub fn is_router(&self) -> bool {
        self.is_router
    }
}
