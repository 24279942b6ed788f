//! The wait of a reply until enough members have what it is about.

use std::sync::Arc;

use frond_error::{Error, Result};
use frond_replset::{SetConfig, Wanted};
use frond_store::DocumentStore;

use super::Consensus;

/// The condition under which a reply may be sent.
#[derive(Clone, Debug)]
pub enum Acknowledgment {
    /// The log of this server is synced.
    Journal,
    /// A majority of the voters has everything before a position, durably: of a write with `majority`, and of a read that must not
    /// return what may be lost.
    Committed(u64),
    /// Members that satisfy a write concern have everything before a position, durably.
    Spread {
        position: u64,
        wanted: Wanted,
        config: Arc<SetConfig>,
    },
    /// Everything before a position is committed, on a server that was the primary: what it has accepted then may be replaced.
    Settled(u64),
    /// This server was still the primary after the read, and everything before the position that it ended at is committed.
    Confirmed(u64),
}

impl Acknowledgment {
    /// The condition of a write before a position, if it is one about other members. `config` is that of the set.
    pub fn of_write(
        wanted: &Wanted,
        position: u64,
        config: impl FnOnce() -> Option<Arc<SetConfig>>,
    ) -> Option<Acknowledgment> {
        match wanted {
            Wanted::Members(0 | 1) => None,
            Wanted::Majority => Some(Acknowledgment::Committed(position)),
            wanted => Some(Acknowledgment::Spread {
                position,
                wanted: wanted.clone(),
                config: config()?,
            }),
        }
    }

    /// Its description in `currentOp`.
    pub fn description(&self) -> &'static str {
        match self {
            Acknowledgment::Journal => "the journal",
            Acknowledgment::Committed(_)
            | Acknowledgment::Settled(_)
            | Acknowledgment::Spread { .. } => "replication",
            Acknowledgment::Confirmed(_) => "the confirmation that this server is the primary",
        }
    }

    /// Waits for it. `consensus` is that of the server's set, if it has one.
    ///
    /// # Errors
    /// `PrimarySteppedDown` (189), `InterruptedDueToReplStateChange` (11602), errors of the log.
    pub async fn wait(self, store: &DocumentStore, consensus: Option<&Consensus>) -> Result<()> {
        match (self, consensus) {
            (Acknowledgment::Committed(position), Some(consensus)) => {
                consensus.committed(position).await
            }
            (
                Acknowledgment::Spread {
                    position,
                    wanted,
                    config,
                },
                Some(consensus),
            ) => consensus.acknowledged(position, wanted, config).await,
            (Acknowledgment::Settled(position), Some(consensus)) => {
                consensus.settled(position).await
            }
            (Acknowledgment::Confirmed(position), Some(consensus)) => {
                consensus.confirmed(position).await
            }
            (_, _) => store.log_flushed().await.map_err(Error::from),
        }
    }
}
