//! The locks and atomics of the parts that are also run under a model checker, which brings its own:
//! `tests/loom` compiles those files again with a module of this name.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
}
