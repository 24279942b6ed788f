//! Update messages: deltas that a merge operator of the store's user resolves.

use std::sync::Arc;

use crate::{Kind, TreeId};

/// Gives deltas their meaning. Both functions must be pure: they may run any number of times, at any time
/// between the commit and the last read, and `apply(apply(b, x), y)` must equal `apply(b, combine(x, y))`.
pub trait MergeOperator: Send + Sync {
    /// The value of a key after a delta; `base` is `None` when the key is absent, and so is the
    /// result when the key is to be absent afterwards.
    fn apply(&self, tree: TreeId, key: &[u8], base: Option<&[u8]>, delta: &[u8])
    -> Option<Vec<u8>>;
    /// One delta that does what `older` and then `newer` do.
    fn combine(&self, tree: TreeId, key: &[u8], older: &[u8], newer: &[u8]) -> Vec<u8>;
}

/// The operator of a store without update messages: the newest delta is the value.
pub struct NoMerge;

impl MergeOperator for NoMerge {
    fn apply(&self, _: TreeId, _: &[u8], _: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some(delta.to_vec())
    }

    fn combine(&self, _: TreeId, _: &[u8], _: &[u8], newer: &[u8]) -> Vec<u8> {
        newer.to_vec()
    }
}

/// The merge operator, bound to a tree.
#[derive(Clone)]
pub(crate) struct Resolver {
    pub(crate) tree: TreeId,
    pub(crate) operator: Arc<dyn MergeOperator>,
}

impl Resolver {
    /// Starts to fold the messages of a key, newest first, with an update message.
    pub(crate) fn fold(&self, newest: &[u8]) -> Fold {
        Fold {
            resolver: self.clone(),
            delta: newest.to_vec(),
            base: None,
        }
    }
}

/// The messages of one key, folded from the newest to the oldest.
pub(crate) struct Fold {
    resolver: Resolver,
    delta: Vec<u8>,
    base: Option<(Kind, Vec<u8>)>,
}

impl Fold {
    /// Adds the next older message. True when nothing older matters.
    pub(crate) fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) -> bool {
        match kind {
            Kind::Merge => {
                let Resolver { tree, operator } = &self.resolver;
                self.delta = operator.combine(*tree, key, value, &self.delta);
                false
            }
            Kind::Put | Kind::Delete => {
                self.base = Some((kind, value.to_vec()));
                true
            }
        }
    }

    /// What the messages amount to: a put or a delete if the base was among them.
    pub(crate) fn finish(self, key: &[u8]) -> (Kind, Vec<u8>) {
        match &self.base {
            None => (Kind::Merge, self.delta),
            Some((Kind::Put, base)) => self.resolve(key, Some(base)),
            Some(_) => self.resolve(key, None),
        }
    }

    /// What the messages amount to when there is nothing older.
    pub(crate) fn finish_at_bottom(self, key: &[u8]) -> (Kind, Vec<u8>) {
        match &self.base {
            None => self.resolve(key, None),
            Some(_) => self.finish(key),
        }
    }

    fn resolve(&self, key: &[u8], base: Option<&[u8]>) -> (Kind, Vec<u8>) {
        let Resolver { tree, operator } = &self.resolver;
        match operator.apply(*tree, key, base, &self.delta) {
            Some(value) => (Kind::Put, value),
            None => (Kind::Delete, Vec::new()),
        }
    }
}
