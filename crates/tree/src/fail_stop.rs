//! Ends the process where going on would lie.
//!
//! Some steps leave a state between their beginning and their end that no later operation may see: a sequence number
//! that was taken and will never be published, a frame that is in the log but not in the memtable, a sync of which
//! it is not known whether it succeeded. A panic in such a step would leave the store in that state, so it ends the process:
//! what is on disk is consistent at any moment, and the next start recovers from there.
//!
//! # Rules
//!
//! - **The process ends** where going on would lie: in a commit from its reservation of memtable space until its
//!   publication, while a version is replaced or a memtable is sealed, anywhere in the log thread or while the log is
//!   written, during a sync, and between the write of a superblock and its bookkeeping. Such a panic would leave a
//!   sequence number that is never published, so that every later commit waits for ever, frames that are in no file, or
//!   a sync of unknown outcome. The message on stderr says what was interrupted. The next start recovers from the log,
//!   as after a crash.
//! - **It is contained** everywhere else: flushes, compactions, bulk loads, checkpoints before their superblock,
//!   backups and reads build something new and publish it in one step at the end, so a panic before that changes
//!   nothing. The background thread treats it as a full disk: it notes a stall and tries again after a pause.

//! - **A broken invariant ends the process**, wherever it is found. Each assertion of the engine begins with the name of its
//!   invariant, such as "S1: ", which stands at the field or type that it constrains. [`contain`] and [`watch`] distinguish such a panic
//!   from others. So an assertion must not depend on what was read from the disk or came from a client: that is checked where it
//!   is read, and is an error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::abort;

use frond_kv::PANICKED;

use crate::{Error, Result};

thread_local! {
    /// The action of a simulation in place of ending the process.
    static SIMULATED: Cell<Option<fn(&'static str)>> = const { Cell::new(None) };
}

/// For simulations, which take the end of the process for one of their crashes: calls `handler` in place of ending the
/// process, on this thread. The store must not be used or dropped afterwards.
#[doc(hidden)]
pub fn simulate_fail_stops(handler: Option<fn(&'static str)>) {
    SIMULATED.set(handler);
}

/// A step that must not be left halfway. It is over with [`FailStop::finish`]; a drop before that, by a panic or by an
/// early return that forgot it, ends the process.
#[must_use = "a step must be finished"]
pub(crate) struct FailStop {
    doing: &'static str,
}

impl FailStop {
    /// Begins a step; `doing` completes "while it was".
    #[inline]
    pub(crate) fn begin(doing: &'static str) -> FailStop {
        FailStop { doing }
    }

    /// The step is complete.
    #[inline]
    pub(crate) fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for FailStop {
    #[cold]
    fn drop(&mut self) {
        if let Some(handler) = SIMULATED.get() {
            return handler(self.doing);
        }
        eprintln!(
            "fatal: an internal error interrupted the storage engine while it was {}. The process ends here, because \
             its state in memory can no longer be trusted. Nothing that was acknowledged is lost: the store \
             recovers from its log at the next start. This is a bug; please report it, with the panic message above.",
            self.doing
        );
        abort();
    }
}

/// Runs work whose panics are contained: they are errors, unless they name a broken invariant.
pub(crate) fn contain<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        end_if_broken(&*panic);
        Err(Error::Internal(PANICKED))
    })
}

/// Runs work on the thread of a caller, who may contain panics: a broken invariant ends the process before that.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        end_if_broken(&*panic);
        resume_unwind(panic)
    })
}

/// Ends the process if a panic names an invariant.
fn end_if_broken(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    if text.is_some_and(names_invariant) {
        drop(FailStop::begin("checking its invariants"));
    }
}

/// Whether a message begins with the name of an invariant: a capital letter, a number and a colon.
fn names_invariant(message: &str) -> bool {
    let name = message.split_once(": ").map_or("", |(name, _)| name);
    let number = name.strip_prefix(|first: char| first.is_ascii_uppercase());
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// A step of a commit, a flush or a checkpoint by its name. In tests it may panic.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn step(_: &str) {}

#[cfg(test)]
pub(crate) use tests::{at_steps, step};

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Mutex;

    use super::*;
    use crate::{Durability, Options, Snapshot, Store, TreeId, TreeOptions, WriteSet};

    /// The step at which this process panics once.
    static CHOSEN: Mutex<Option<String>> = Mutex::new(None);

    type Act = Box<dyn FnMut(&str)>;

    thread_local! {
        static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// Calls `act` at each step of this thread.
    pub(crate) fn at_steps(act: impl FnMut(&str) + 'static) {
        ACT.set(Some(Box::new(act)));
    }

    pub(crate) fn step(name: &str) {
        ACT.with_borrow_mut(|act| {
            if let Some(act) = act {
                act(name);
            }
        });
        let mut chosen = CHOSEN.lock().unwrap();
        if chosen.as_deref() == Some(name) {
            *chosen = None;
            drop(chosen);
            panic!("a panic at the step \"{name}\", as the test asked for");
        }
    }

    thread_local! {
        static ENDED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn only_a_broken_invariant_ends_the_process_where_panics_are_contained() {
        simulate_fail_stops(Some(|_| ENDED.set(ENDED.get() + 1)));
        for (message, ends) in [
            ("S1: an extent is outside of the file", 1),
            ("C12: a number", 1),
            ("a defect", 0),
            ("S: no number", 0),
            ("s1: no name", 0),
            ("S1x: no number", 0),
        ] {
            ENDED.set(0);
            let contained: Result<()> = contain(|| panic!("{message}"));
            assert!(matches!(contained, Err(Error::Internal(_))));
            let watched = std::panic::catch_unwind(|| watch(|| panic!("{message}")));
            assert!(watched.is_err());
            assert_eq!(ENDED.get(), 2 * ends, "{message}");
        }
        simulate_fail_stops(None);
    }

    fn choose(step: &str) {
        *CHOSEN.lock().unwrap() = Some(step.to_owned());
    }

    const STEP: &str = "FROND_TEST_PANICS_AT";
    const DIRECTORY: &str = "FROND_TEST_DIRECTORY";
    const TREE: TreeId = TreeId(1);
    const ACKNOWLEDGED: u32 = 50;

    fn key(number: u32, part: u32) -> Vec<u8> {
        format!("{number:04} {part}").into_bytes()
    }

    /// A commit of several keys.
    fn pair(number: u32) -> WriteSet {
        let mut set = WriteSet::new();
        (0..2).for_each(|part| set.put(TREE, &key(number, part), &[b'v'; 100]));
        set
    }

    fn options(directory: &str) -> Options {
        let mut options = Options::new(directory);
        options.cache_bytes = 8 << 20;
        options.flush_threads = 2;
        options
    }

    /// Runs a test of this module again, alone in a process of its own; returns its signal and what it printed.
    fn run_alone(test: &str, step: &str, directory: &Path) -> (Option<i32>, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                &format!("fail_stop::tests::{test}"),
            ])
            .env(STEP, step)
            .env(DIRECTORY, directory)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.signal(), text)
    }

    /// Commits, then panics at a step of the next commit, or of what it causes.
    fn commit_until_the_panic(step: &str, directory: &str) {
        let store = Store::open(options(directory)).unwrap();
        let mut set = WriteSet::new();
        set.create_tree(store.allocate_tree(), &TreeOptions::default());
        store.commit(set, Durability::Synced).unwrap();
        for number in 0..ACKNOWLEDGED {
            store.commit(pair(number), Durability::Logged).unwrap();
        }
        choose(step);
        let mut last = pair(ACKNOWLEDGED);
        if step == "a commit changes trees" {
            last.create_tree(store.allocate_tree(), &TreeOptions::default());
        }
        let _ = store.commit(last, Durability::Synced);
        let _ = store.checkpoint();
    }

    fn has(snapshot: &Snapshot, number: u32, part: u32) -> bool {
        snapshot.contains(TREE, &key(number, part)).unwrap()
    }

    #[test]
    fn a_panic_where_going_on_would_lie_ends_the_process() {
        if let (Ok(step), Ok(directory)) = (std::env::var(STEP), std::env::var(DIRECTORY)) {
            commit_until_the_panic(&step, &directory);
            return;
        }
        for step in [
            "a commit has reserved its room",
            "a commit is in the log",
            "a commit changes trees",
            "a commit has its numbers",
            "a commit is in the memtable",
            "a group of the log is written",
            "the log is synced",
            "a memtable is sealed",
            "a version is published",
            "the data file is synced",
            "a superblock is written",
        ] {
            let directory = tempfile::tempdir().unwrap();
            let test = "a_panic_where_going_on_would_lie_ends_the_process";
            let (signal, text) = run_alone(test, step, directory.path());
            assert_eq!(signal, Some(6), "{step}: {text}");
            assert!(text.contains(step), "{text}");
            assert!(
                text.contains("fatal: an internal error interrupted"),
                "{text}"
            );
            assert!(text.contains("recovers from its log"), "{text}");

            let store = Store::open(options(directory.path().to_str().unwrap())).unwrap();
            let snapshot = store.snapshot();
            for number in 0..ACKNOWLEDGED {
                assert!(
                    has(&snapshot, number, 0) && has(&snapshot, number, 1),
                    "{step}"
                );
            }
            let halves = [0, 1].map(|part| has(&snapshot, ACKNOWLEDGED, part));
            assert_eq!(halves[0], halves[1], "{step}: half of a commit");
            store
                .commit(pair(ACKNOWLEDGED + 1), Durability::Synced)
                .unwrap();
            store.checkpoint().unwrap();
        }
    }
}
