//! The record of each instance of a server: the number of its slots and the timestamp of its last fence.

use std::time::{Duration, Instant};

use frond_kv::{Error, Interrupt, Result};
use tikv::TimestampExt;

use crate::client::connection::{Connection, Kind, options};
use crate::client::failure::{CommitFailure, of_commit};
use crate::client::keys::Keys;

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The record of an instance of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    /// The slots that it may use.
    pub(crate) slots: u32,
    /// The timestamp of the last fence; 0 if there was none.
    pub(crate) fenced_at: u64,
}

impl Instance {
    pub(crate) fn to_value(self) -> Vec<u8> {
        let mut value = self.slots.to_be_bytes().to_vec();
        value.extend_from_slice(&self.fenced_at.to_be_bytes());
        value
    }

    pub(crate) fn read(stored: &[u8]) -> Option<Instance> {
        let (slots, fenced_at) = stored.split_first_chunk()?;
        Some(Instance {
            slots: u32::from_be_bytes(*slots),
            fenced_at: u64::from_be_bytes(fenced_at.try_into().ok()?),
        })
    }
}

/// The result of an attempt to change shared records.
pub(crate) enum Attempt<T> {
    Done(T),
    /// They were changed meanwhile, or a commit holds a lock.
    Again,
}

/// Reserves some more slots for an instance.
pub(crate) fn reserve(
    connection: &Connection,
    keys: &Keys,
    instance: u32,
    more: u32,
) -> Result<Instance> {
    let key = keys.instance(instance);
    again(connection, || {
        let key = key.clone();
        connection.read(Kind::Commit, move |client| {
            let key = key.clone();
            async move {
                let mut transaction = client.begin_with_options(options()).await?;
                let stored = transaction.get(key.clone()).await?;
                let mut after = stored
                    .as_deref()
                    .and_then(Instance::read)
                    .unwrap_or_default();
                after.slots = after.slots.saturating_add(more);
                transaction.put(key, after.to_value()).await?;
                finish(transaction, after).await
            }
        })
    })
}

pub(crate) async fn finish<T>(
    mut transaction: tikv::Transaction,
    done: T,
) -> tikv::Result<Attempt<T>> {
    let at = transaction.start_timestamp().version();
    let Err(error) = transaction.commit().await else {
        return Ok(Attempt::Done(done));
    };
    // Its own locks are rolled back, so that no transaction waits for them.
    let _ = tokio::time::timeout(PAUSE_MAX, transaction.rollback()).await;
    match of_commit(&error, at) {
        CommitFailure::Conflict(_) | CommitFailure::Blocked(_) => Ok(Attempt::Again),
        // It is repeated: doing it twice does no harm.
        CommitFailure::Unknown(_) => Err(error),
    }
}

/// Repeats an attempt until it is done, or the operation's time is over.
pub(crate) fn again<T>(
    connection: &Connection,
    mut attempt: impl FnMut() -> Result<Attempt<T>>,
) -> Result<T> {
    let deadline = connection.deadline();
    let mut pause = PAUSE_MIN;
    loop {
        if let Attempt::Done(done) = attempt()? {
            return Ok(done);
        }
        Interrupt::check_current()?;
        if Instant::now() + pause >= deadline {
            let text = "other servers keep changing the records of a server";
            return Err(Error::Unavailable(text.to_owned()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_instance_is_read_as_it_was_written() {
        let instance = Instance {
            slots: 128,
            fenced_at: 1 << 60,
        };
        assert_eq!(Instance::read(&instance.to_value()), Some(instance));
        assert_eq!(Instance::read(&[1, 2]), None);
    }
}
