//! The damage that was met while a store is open.

use parking_lot::Mutex;

use crate::{Error, TreeId};

/// More damaged blocks than this are not listed.
const NOTED_MAX: usize = 1000;

/// Blocks that could not be read, each once.
#[derive(Default)]
pub(crate) struct Damage {
    noted: Mutex<Vec<(Option<TreeId>, String)>>,
}

impl Damage {
    /// Notes damage, of a tree if it is known which. It is listed also if a second copy made up for it.
    pub(crate) fn note(&self, tree: Option<TreeId>, error: &Error) {
        let entry = (tree, error.to_string());
        let mut noted = self.noted.lock();
        if noted.len() < NOTED_MAX && !noted.contains(&entry) {
            noted.push(entry);
        }
    }

    /// All that was noted.
    pub(crate) fn list(&self) -> Vec<(Option<TreeId>, String)> {
        self.noted.lock().clone()
    }
}
