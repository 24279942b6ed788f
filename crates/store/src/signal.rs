//! Notifies readers that wait at an end, of a capped collection or of the oplog, that there is more.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Notifies tailable cursors of insertions, and change streams of new entries of the oplog.
#[derive(Debug, Default)]
pub struct TailSignal {
    insertions: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: HashMap<u64, Waker>,
    next: u64,
}

/// A future that waits for insertions; dropping it cancels the wait.
#[derive(Debug)]
pub struct Newer {
    signal: Arc<TailSignal>,
    seen: u64,
    id: Option<u64>,
}

impl TailSignal {
    /// The number of insertions so far.
    pub fn insertions(&self) -> u64 {
        self.insertions.load(Ordering::SeqCst)
    }

    /// Ready when there are more insertions than `seen`, or the collection is gone.
    pub fn newer(self: &Arc<TailSignal>, seen: u64) -> Newer {
        Newer {
            signal: self.clone(),
            seen,
            id: None,
        }
    }

    /// Whether a cursor waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.lock().wakers.is_empty()
    }

    /// Wakes all waiting cursors. Returns how many there were.
    pub(crate) fn notify(&self) -> usize {
        let wakers = {
            let mut waiting = self.waiting.lock();
            self.insertions.fetch_add(1, Ordering::SeqCst);
            std::mem::take(&mut waiting.wakers)
        };
        let woken = wakers.len();
        wakers.into_values().for_each(Waker::wake);
        woken
    }
}

impl Future for Newer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let signal = self.signal.clone();
        let mut waiting = signal.waiting.lock();
        if signal.insertions() != self.seen {
            return Poll::Ready(());
        }
        let id = self.id.unwrap_or(waiting.next);
        if self.id.is_none() {
            waiting.next += 1;
            self.id = Some(id);
        }
        waiting.wakers.insert(id, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Newer {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.signal.waiting.lock().wakers.remove(&id);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_waits_is_woken_once() {
        let signal = Arc::new(TailSignal::default());
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        let mut context = Context::from_waker(&waker);
        let mut first = signal.newer(signal.insertions());
        let mut second = signal.newer(signal.insertions());
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        assert!(Pin::new(&mut second).poll(&mut context).is_pending());
        assert_eq!(signal.waiting.lock().wakers.len(), 2);
        drop(second);
        assert_eq!(signal.waiting.lock().wakers.len(), 1);
        signal.notify();
        assert!(flag.0.load(Ordering::SeqCst));
        assert!(Pin::new(&mut first).poll(&mut context).is_ready());
    }
}
