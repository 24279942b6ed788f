//! The stamps that readers may rely on, and the listener that is told when there are more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::publisher::Publisher;

type Listener = Arc<dyn Fn(u64) + Send + Sync>;

/// The durable stamp of a store, which its publisher has, and its listener.
pub(crate) struct DurableStamp {
    publisher: Arc<Publisher>,
    listener: RwLock<Option<Listener>>,
    /// The last stamp that the listener was told.
    told: AtomicU64,
}

impl DurableStamp {
    pub(crate) fn new(publisher: Arc<Publisher>) -> DurableStamp {
        DurableStamp {
            publisher,
            listener: RwLock::default(),
            told: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_listener(&self, listener: Listener) {
        *self.listener.write() = Some(listener);
    }

    /// Called when the log of a stamped commit is synced. The listener is told by the next [`DurableStamp::tell`].
    pub(crate) fn note_synced(&self, sequence: u64, stamp: u64) {
        self.publisher.note_synced(sequence, stamp);
    }

    /// Tells the listener if the stamp has grown. The caller holds no locks.
    pub(crate) fn tell(&self) {
        let stamp = self.publisher.durable_stamp();
        if self.told.load(Ordering::Acquire) < stamp
            && self.told.fetch_max(stamp, Ordering::AcqRel) < stamp
        {
            let listener = self.listener.read().clone();
            if let Some(listener) = listener {
                listener(stamp);
            }
        }
    }
}
