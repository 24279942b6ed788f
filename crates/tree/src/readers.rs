//! Threads that make several reads side by side, because a device serves several in the time of one.
//!
//! They read for the caches only: the caller makes each read again, and gets its errors then. All stores of a process share them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use parking_lot::{Condvar, Mutex};

use crate::fail_stop::contain;

/// Threads beside that of the caller. They wait for the device most of the time, so their number does not depend on the processors.
const THREADS: usize = 8;

/// Reads that are independent of each other.
struct Batch {
    /// Makes the read with a number below `count`.
    read: Box<dyn Fn(usize) + Send + Sync>,
    count: usize,
    /// The first one that no thread has taken.
    next: AtomicUsize,
}

impl Batch {
    /// Makes reads until none is left.
    fn run(&self) {
        let read = || {
            let next = || self.next.fetch_add(1, Ordering::Relaxed);
            let mut number = next();
            while number < self.count {
                (self.read)(number);
                number = next();
            }
            Ok(())
        };
        // The caller makes each read again, and gets what failed then.
        drop(contain(read));
    }
}

/// Counts the threads that are done with a batch.
#[derive(Default)]
struct Done {
    count: Mutex<usize>,
    changed: Condvar,
}

struct Readers {
    /// A batch is in here once for each thread that may join in.
    queue: Mutex<VecDeque<(Arc<Batch>, Arc<Done>)>>,
    added: Condvar,
}

impl Readers {
    /// Returns the readers of this process, and starts their threads with the first use. If a thread cannot be started, the others
    /// do its work.
    fn shared() -> &'static Readers {
        static READERS: Readers = Readers {
            queue: Mutex::new(VecDeque::new()),
            added: Condvar::new(),
        };
        static START: Once = Once::new();
        START.call_once(|| {
            for _ in 0..THREADS {
                let thread = std::thread::Builder::new().name("frond-reader".to_owned());
                drop(thread.spawn(|| READERS.serve()));
            }
        });
        &READERS
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue.lock();
            let (batch, done) = loop {
                match queue.pop_front() {
                    Some(next) => break next,
                    None => self.added.wait(&mut queue),
                }
            };
            drop(queue);
            batch.run();
            // Callers rely on it that no thread keeps their snapshot.
            drop(batch);
            *done.count.lock() += 1;
            done.changed.notify_one();
        }
    }

    /// Makes the reads on this thread and on those that are free.
    fn run(&self, batch: Batch) {
        let others = THREADS.min(batch.count - 1);
        let (batch, done) = (Arc::new(batch), Arc::<Done>::default());
        let copies = (0..others).map(|_| (batch.clone(), done.clone()));
        self.queue.lock().extend(copies);
        for _ in 0..others {
            self.added.notify_one();
        }
        batch.run();
        let mut queue = self.queue.lock();
        let before = queue.len();
        queue.retain(|(other, _)| !Arc::ptr_eq(other, &batch));
        let joined = others - (before - queue.len());
        drop(queue);
        let mut count = done.count.lock();
        while *count < joined {
            done.changed.wait(&mut count);
        }
    }
}

/// Calls `read` with each number below `count`, on several threads. When this returns, no thread holds `read` any more.
pub(crate) fn side_by_side(count: usize, read: impl Fn(usize) + Send + Sync + 'static) {
    if count < 2 {
        (0..count).for_each(read);
        return;
    }
    Readers::shared().run(Batch {
        read: Box::new(read),
        count,
        next: AtomicUsize::new(0),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_is_made_once_and_nothing_of_it_is_kept() {
        for count in [0, 1, 2, 7, 500] {
            let made: Arc<Vec<AtomicUsize>> =
                Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
            let counted = made.clone();
            side_by_side(count, move |number| {
                counted[number].fetch_add(1, Ordering::Relaxed);
            });
            assert!(made.iter().all(|made| made.load(Ordering::Relaxed) == 1));
            assert_eq!(Arc::strong_count(&made), 1);
        }
    }

    #[test]
    fn a_read_that_panics_ends_no_thread() {
        for _ in 0..3 * THREADS {
            side_by_side(20, |number| assert!(number != 5, "one read panics"));
        }
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        side_by_side(20, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(made.load(Ordering::Relaxed), 20);
    }
}
