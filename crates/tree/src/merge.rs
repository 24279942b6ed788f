//! The messages of one key, folded into one by the merge operator.
//!
//! # Rules
//!
//! `WriteSet::merge` sends a delta to a key and reads nothing.
//!
//! - A reader gathers the messages of a key, from the newest to the oldest, and the operator gets the deltas all at
//!   once (`apply_all`) when their base is found. Where there is no base in reach, as in a buffer, they are combined
//!   into one delta (`combine_all`). So k pending messages cost O(k) to read.
//! - A flush writes a memtable's messages of a key to the tree as one.
//! - Hot keys: when a key has 16 consecutive update messages in a memtable, the committer folds those that are visible
//!   (`memtable/hot.rs`). The newest of them is replaced in the index by an entry with the effect of all, at which
//!   readers stop. The others stay below it, for older snapshots. A large value is folded again only after as many
//!   bytes of new deltas, so reads cost at most twice the minimum, and so does the memory.
//! - A cursor skips a few versions of a key one by one; then it seeks to the next key.

use std::sync::Arc;

use crate::{Error, Kind, Malformed, MergeOperator, Result, TreeId};

/// The merge operator, bound to a tree.
#[derive(Clone)]
pub(crate) struct Resolver {
    pub(crate) tree: TreeId,
    pub(crate) operator: Arc<dyn MergeOperator>,
    /// Whether what it resolves is stored in place of the messages.
    pub(crate) settles: bool,
}

/// Gathered deltas are combined when they take more memory than this, in bytes.
const GATHER_BYTES: usize = 1 << 20;

/// The messages of one key, gathered from the newest to the oldest. The operator gets the deltas all at once: when
/// their base is found, or when there is nothing older.
#[derive(Default)]
pub(crate) struct Fold {
    /// The deltas, one after another, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// They are combined when they take more bytes than this.
    limit: usize,
    resolved: Option<(Kind, Vec<u8>)>,
    damage: Option<Damage>,
}

/// Messages that cannot be combined.
struct Damage {
    what: Malformed,
    /// A delta that cannot be read: one of the messages, or an empty one if it is the base that cannot be read.
    delta: Vec<u8>,
}

impl Damage {
    fn error(&self, resolver: &Resolver, key: &[u8]) -> Error {
        Error::CorruptMessage {
            tree: resolver.tree,
            key: key.to_vec(),
            what: self.what.0,
        }
    }
}

fn operator_refuses(resolver: &Resolver, key: &[u8], delta: &[u8]) -> bool {
    let Resolver { tree, operator, .. } = resolver;
    operator.check(*tree, key, delta).is_err()
}

impl Fold {
    /// Adds the next older message. True when nothing older matters.
    pub(crate) fn add(
        &mut self,
        resolver: &Resolver,
        key: &[u8],
        kind: Kind,
        value: &[u8],
    ) -> bool {
        if self.damage.is_some() {
            return true;
        }
        let base = match kind {
            Kind::Merge => {
                self.push(value);
                let limit = self.limit.max(GATHER_BYTES);
                if self.bytes.len() + self.ends.len() * size_of::<usize>() > limit {
                    match self.combine(resolver, key) {
                        Ok(combined) => {
                            self.bytes.clear();
                            self.ends.clear();
                            self.push(&combined);
                            self.limit = 2 * combined.len();
                        }
                        Err(damage) => self.damage = Some(damage),
                    }
                }
                return self.damage.is_some();
            }
            kind if self.ends.is_empty() => {
                self.resolved = Some((kind, value.to_vec()));
                return true;
            }
            Kind::Put => Some(value),
            Kind::Delete => None,
        };
        match self.apply(resolver, key, base) {
            Ok(resolved) => self.resolved = Some(resolved),
            Err(damage) => self.damage = Some(damage),
        }
        true
    }

    fn push(&mut self, delta: &[u8]) {
        self.bytes.extend_from_slice(delta);
        self.ends.push(self.bytes.len());
    }

    /// The messages as one: a put or a delete if the base was among them.
    pub(crate) fn finish(self, resolver: &Resolver, key: &[u8]) -> Result<(Kind, Vec<u8>)> {
        let one = self.into_one(resolver, key);
        one.map_err(|damage| damage.error(resolver, key))
    }

    /// As [`Fold::finish`], for a flush into a buffer, which must not stop for ever at a malformed message: a delta that
    /// cannot be read then stands for all of them, so that readers of the key get the error until a put or a delete
    /// replaces it. `note` gets it now.
    pub(crate) fn finish_in_buffer(
        self,
        resolver: &Resolver,
        key: &[u8],
        note: impl FnOnce(&Error),
    ) -> Result<(Kind, Vec<u8>)> {
        self.into_one(resolver, key).or_else(|damage| {
            let error = damage.error(resolver, key);
            note(&error);
            if operator_refuses(resolver, key, &damage.delta) {
                Ok((Kind::Merge, damage.delta))
            } else {
                Err(error)
            }
        })
    }

    /// The messages as one, when there is nothing older.
    pub(crate) fn finish_at_bottom(
        self,
        resolver: &Resolver,
        key: &[u8],
    ) -> Result<(Kind, Vec<u8>)> {
        let one = if self.damage.is_none() && self.resolved.is_none() {
            self.apply(resolver, key, None)
        } else {
            self.into_one(resolver, key)
        };
        one.map_err(|damage| damage.error(resolver, key))
    }

    fn into_one(self, resolver: &Resolver, key: &[u8]) -> Result<(Kind, Vec<u8>), Damage> {
        if let Some(damage) = self.damage {
            return Err(damage);
        }
        match self.resolved {
            Some(resolved) => Ok(resolved),
            None if self.ends.len() == 1 => Ok((Kind::Merge, self.bytes)),
            None => Ok((Kind::Merge, self.combine(resolver, key)?)),
        }
    }

    fn combine(&self, resolver: &Resolver, key: &[u8]) -> Result<Vec<u8>, Damage> {
        let Resolver { tree, operator, .. } = resolver;
        let combined = operator.combine_all(*tree, key, &self.deltas());
        combined.map_err(|what| self.damage(resolver, key, what))
    }

    fn apply(
        &self,
        resolver: &Resolver,
        key: &[u8],
        base: Option<&[u8]>,
    ) -> Result<(Kind, Vec<u8>), Damage> {
        let Resolver { tree, operator, .. } = resolver;
        let value = match self.ends.as_slice() {
            _ if resolver.settles => operator.settle(*tree, key, base, &self.deltas()),
            [_] => operator.apply(*tree, key, base, &self.bytes),
            _ => operator.apply_all(*tree, key, base, &self.deltas()),
        };
        match value {
            Ok(Some(value)) => Ok((Kind::Put, value)),
            Ok(None) => Ok((Kind::Delete, Vec::new())),
            Err(what) => Err(self.damage(resolver, key, what)),
        }
    }

    /// Finds the delta that cannot be read.
    #[cold]
    fn damage(&self, resolver: &Resolver, key: &[u8], what: Malformed) -> Damage {
        let deltas = self.deltas();
        let malformed = deltas.iter().find(|it| operator_refuses(resolver, key, it));
        let delta = malformed.map_or_else(Vec::new, |delta| delta.to_vec());
        Damage { what, delta }
    }

    /// The deltas, oldest first.
    fn deltas(&self) -> Vec<&[u8]> {
        let start = |index: usize| index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let places = self.ends.iter().enumerate().rev();
        places
            .map(|(index, end)| &self.bytes[start(index)..*end])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use frond_kv_testing::{Appends, Careful};

    use super::*;

    #[test]
    fn deltas_meet_in_their_order() {
        let resolver = Resolver {
            tree: TreeId(1),
            operator: Arc::new(Appends),
            settles: false,
        };
        // The last ones are more than is gathered.
        for (count, len) in [(1, 3), (2, 3), (7, 3), (100, 3), (9, GATHER_BYTES / 4)] {
            let deltas: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8; len]).collect();
            let whole = deltas.concat();
            let gathered = || {
                let mut fold = Fold::default();
                for delta in deltas.iter().rev() {
                    assert!(!fold.add(&resolver, b"k", Kind::Merge, delta));
                    assert!(fold.bytes.len() <= fold.limit.max(GATHER_BYTES) + len);
                }
                fold
            };
            let merged = (Kind::Merge, whole.clone());
            assert!(gathered().finish(&resolver, b"k").unwrap() == merged);
            let put = (Kind::Put, whole.clone());
            assert!(gathered().finish_at_bottom(&resolver, b"k").unwrap() == put);
            for (kind, base) in [(Kind::Put, &b"base"[..]), (Kind::Delete, b"")] {
                let mut fold = gathered();
                assert!(fold.add(&resolver, b"k", kind, base));
                let value = [base, &whole].concat();
                assert!(fold.finish(&resolver, b"k").unwrap() == (Kind::Put, value));
            }
        }
    }

    /// Appends texts, and refuses those with a question mark.
    const CAREFUL: Careful = Careful {
        refuses_delta: |delta| match delta {
            [] => Some("empty"),
            delta => question_mark(delta),
        },
        refuses_base: question_mark,
    };

    fn question_mark(text: &[u8]) -> Option<&'static str> {
        text.contains(&b'?').then_some("a question mark")
    }

    type Message<'a> = (Kind, &'a [u8]);

    #[test]
    fn malformed_messages_stay_damage() {
        let resolver = Resolver {
            tree: TreeId(7),
            operator: Arc::new(CAREFUL),
            settles: false,
        };
        let large = vec![b'l'; GATHER_BYTES];
        // Messages from the newest to the oldest, and the one that cannot be read.
        let cases: [(&[Message<'_>], Message<'_>); 4] = [
            (
                &[
                    (Kind::Merge, b"a"),
                    (Kind::Merge, b"?"),
                    (Kind::Merge, b"b"),
                ],
                (Kind::Merge, b"?"),
            ),
            (
                &[(Kind::Merge, b"a"), (Kind::Merge, b"?"), (Kind::Put, b"b")],
                (Kind::Merge, b"?"),
            ),
            (
                &[(Kind::Merge, b"a"), (Kind::Put, b"base?")],
                (Kind::Merge, b""),
            ),
            (
                &[
                    (Kind::Merge, b"?"),
                    (Kind::Merge, &large),
                    (Kind::Put, b"b"),
                ],
                (Kind::Merge, b"?"),
            ),
        ];
        for (messages, (kind, culprit)) in cases {
            let gathered = || {
                let mut fold = Fold::default();
                for (kind, value) in messages {
                    fold.add(&resolver, b"key", *kind, value);
                }
                fold
            };
            let mut noted = 0;
            let kept = gathered().finish_in_buffer(&resolver, b"key", |_| noted += 1);
            let kept = kept.unwrap();
            assert_eq!(noted, 1);
            assert!(kept == (kind, culprit.to_vec()));
            for failed in [
                gathered().finish(&resolver, b"key"),
                gathered().finish_at_bottom(&resolver, b"key"),
            ] {
                let error = failed.unwrap_err();
                assert!(error.is_damage());
                let text = "the messages of a key of tree 7 are damaged: a question mark; the key is 0x6b6579";
                assert_eq!(error.to_string(), text);
            }
        }
        // Only messages that are newer than a put or a delete matter.
        let mut fold = Fold::default();
        assert!(fold.add(&resolver, b"key", Kind::Put, b"?"));
        assert_eq!(fold.finish(&resolver, b"key").unwrap().1, b"?");
    }

    #[test]
    fn a_base_alone_is_what_it_is() {
        let resolver = Resolver {
            tree: TreeId(1),
            operator: Arc::new(Appends),
            settles: false,
        };
        for (kind, value) in [(Kind::Put, &b"v"[..]), (Kind::Delete, b"")] {
            let mut fold = Fold::default();
            assert!(fold.add(&resolver, b"k", kind, value));
            assert_eq!(
                fold.finish(&resolver, b"k").unwrap(),
                (kind, value.to_vec())
            );
        }
    }
}
