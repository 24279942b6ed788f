//! Ids of trees, and which trees there are.

use frond_kv::{Error, Result, TreeId};
use parking_lot::Mutex;

use crate::client::connection::{Connection, Kind, options};
use crate::client::keys::Keys;

/// The number of ids that are reserved at once. A server that stops leaves the rest unused.
const RESERVED_AT_ONCE: u32 = 64;
/// Attempts to add to a number that others add to as well.
const ATTEMPTS_MAX: usize = 100;

/// Ids of trees that are reserved for this instance of a server.
#[derive(Default)]
pub(crate) struct TreeIds {
    /// The next one, and the first one that is not reserved.
    reserved: Mutex<(u32, u32)>,
}

impl TreeIds {
    /// An id that was never used.
    pub(crate) fn allocate(&self, connection: &Connection, keys: &Keys) -> Result<TreeId> {
        let mut reserved = self.reserved.lock();
        if reserved.0 >= reserved.1 {
            // The tree 0 has a fixed meaning.
            let end = add(connection, keys.next_tree(), RESERVED_AT_ONCE, 1)?;
            *reserved = (end - RESERVED_AT_ONCE, end);
        }
        let id = TreeId(reserved.0);
        reserved.0 += 1;
        Ok(id)
    }
}

/// Adds to a number that all servers share; `first` is its value before the first addition. Returns the sum.
pub(crate) fn add(connection: &Connection, key: Vec<u8>, by: u32, first: u32) -> Result<u32> {
    for _ in 0..ATTEMPTS_MAX {
        let key = key.clone();
        let deadline = connection.deadline();
        let added = connection.read(Kind::Commit, move |client| {
            let key = key.clone();
            async move {
                let mut transaction = client.begin_with_options(options()).await?;
                let stored = transaction.get(key.clone()).await?;
                let stored =
                    stored.and_then(|stored| Some(u32::from_be_bytes(stored.try_into().ok()?)));
                let Some(sum) = stored.unwrap_or(first).checked_add(by) else {
                    return Ok(None);
                };
                transaction.put(key, sum.to_be_bytes().to_vec()).await?;
                // An addition whose outcome is not known is repeated: some numbers stay unused.
                match transaction.commit().await {
                    Ok(_) => Ok(Some(sum)),
                    Err(error) => {
                        let _ =
                            tokio::time::timeout_at(deadline.into(), transaction.rollback()).await;
                        match error {
                            tikv::Error::KeyError(_)
                            | tikv::Error::MultipleKeyErrors(_)
                            | tikv::Error::ExtractedErrors(_) => Ok(Some(0)),
                            error => Err(error),
                        }
                    }
                }
            }
        })?;
        match added {
            Some(0) => std::thread::sleep(std::time::Duration::from_millis(2)),
            Some(sum) => return Ok(sum),
            None => break,
        }
    }
    Err(Error::Unavailable(
        "a number that all servers share cannot be raised".to_owned(),
    ))
}
