//! The stamps that readers may rely on, and the listener that is notified of new ones.
//!
//! # Stamped keys
//!
//! - **The stamps follow the operations in the log's frame.** So the checksum of the operations is computed before the
//!   commit lock, and under it only the stamp is added to it. The keys are made when the lock is released, in the write
//!   set's own buffer, before the insert into the memtable. A replay makes the same keys.
//! - **Ascending keys are cheap.** The memtable adds them at the end of its order, and a flush writes them to new
//!   leaves. A range delete at the left end drops whole leaves unread.
//! - **`Store::durable_stamp`** is the end of what readers of such a log may pass on: everything up to it survives a
//!   crash of the machine, is in every snapshot taken from then on, and is complete. The log's thread notes the last
//!   stamp when it takes frames from the buffer; after the sync the publisher raises the durable stamp, at once or when
//!   this commit becomes visible. The commit path has nothing to do for it.
//! - `Store::request_sync` requests a sync of the log's thread before its interval is over, at most one in 10 ms. No
//!   caller waits for it.
//! - In a transaction, stamped keys belong to the operations that come with the commit. `Transaction::stage` refuses
//!   them: its reads could not see keys that have no stamp yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::publisher::Publisher;

type Listener = Arc<dyn Fn(u64) + Send + Sync>;

/// The durable stamp of a store, which its publisher has, and its listener.
pub(crate) struct DurableStamp {
    publisher: Arc<Publisher>,
    listener: RwLock<Option<Listener>>,
    /// The last stamp that the listener was notified of.
    notified: AtomicU64,
}

impl DurableStamp {
    pub(crate) fn new(publisher: Arc<Publisher>) -> DurableStamp {
        DurableStamp {
            publisher,
            listener: RwLock::default(),
            notified: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_listener(&self, listener: Listener) {
        *self.listener.write() = Some(listener);
    }

    /// Records that the log of a stamped commit is synced. The next [`DurableStamp::notify`] notifies the listener.
    pub(crate) fn note_synced(&self, sequence: u64, stamp: u64) {
        self.publisher.note_synced(sequence, stamp);
    }

    /// Notifies the listener if the stamp has grown. The caller holds no locks.
    pub(crate) fn notify(&self) {
        let stamp = self.publisher.durable_stamp();
        if self.notified.load(Ordering::Acquire) < stamp
            && self.notified.fetch_max(stamp, Ordering::AcqRel) < stamp
        {
            let listener = self.listener.read().clone();
            if let Some(listener) = listener {
                listener(stamp);
            }
        }
    }
}
