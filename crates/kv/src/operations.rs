//! The operations of one commit, encoded once, as the payload of a frame of the log.

use std::ops::Range;

use crate::budget::{MemoryBudget, MemoryUse, Reservation};
use crate::operation::{
    ENTRY_HEADER_BYTES, LONG_ENTRY_HEADER_BYTES, LONG_KEYS, OP_CREATE_TREE, OP_CREATE_TREE_TO_LOAD,
    OP_DELETE_RANGE, OP_DROP_TREE, OP_PUT_STAMPED, Op, Ops, SHORT_KEY_BYTES_MAX, STAMP_BYTES,
    add_stamp, check_sizes, decode, encode_options,
};
use crate::options::{KEY_BYTES_MAX, TreeOptions, WRITE_SET_BYTES_MAX};
use crate::{Error, Kind, Result, TreeId};

/// Only buffers of write sets between these sizes are kept for reuse.
const SPARE_BYTES_MIN: usize = 64 << 10;
const SPARE_BYTES_MAX: usize = 5 << 20;

/// A range delete counts as this many bytes and its bounds, which limits how many there are in one write set.
const RANGE_DELETE_BYTES: usize = 4096;
/// At most this many trees are remembered. One beyond them may be counted twice.
const TREES_MAX: usize = 256;

/// Operations that are committed together or not at all, and the keys that must not have changed since a snapshot. Later
/// operations on a key win over earlier ones.
#[derive(Default)]
pub struct Operations {
    payload: Vec<u8>,
    ops: u64,
    /// Messages for single keys, and the bytes of their keys and values.
    entries: usize,
    entry_bytes: usize,
    /// The bytes that range deletes count as.
    range_bytes: usize,
    /// Trees that have operations here, and how many: an upper bound if they are very many.
    trees: Vec<TreeId>,
    tree_count: usize,
    /// For each guarded key its hash and its location: in the payload or in `extra`.
    guards: Vec<Guard>,
    extra: Vec<u8>,
    /// The operations that create and drop trees, as places in the payload: the commit looks at no other operations for that.
    tree_ops: Vec<Range<usize>>,
    /// The places of stamped puts in the payload, and how many stamps the commit takes.
    stamped: Vec<usize>,
    stamps: u32,
    frees_space: bool,
    failure: Option<Error>,
    /// The buffers' part of the memory budget, if they are large.
    reserved: Option<Reservation>,
}

/// From this size on, the buffers are counted in the memory budget.
const COUNTED_BYTES_MIN: usize = 256 << 10;

/// A key that must not have changed since the snapshot.
pub struct Guard {
    /// The hash of the key, [`key_hash`].
    pub hash: u64,
    /// The tree of the key.
    pub tree: TreeId,
    range: Range<usize>,
    in_extra: bool,
}

/// A hash of a key of one tree.
///
/// XXH3 combines a short key and the seed by XOR and subtraction, so that keys and ids that differ in few bits can cancel each
/// other out. The ids, which are small numbers, are spread over all bits.
pub fn key_hash(tree: TreeId, key: &[u8]) -> u64 {
    let seed = u64::from(tree.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

/// Bytes before the key of an operation.
fn header_bytes(key_len: usize) -> usize {
    if key_len > SHORT_KEY_BYTES_MAX {
        LONG_ENTRY_HEADER_BYTES
    } else {
        ENTRY_HEADER_BYTES
    }
}

/// Makes room for `more` items, with a quarter to spare: a large buffer that doubles would take far more than it holds.
fn grow<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more + items.len() / 4);
    }
}

/// The bytes that a range delete counts as.
pub fn range_delete_bytes(lower: &[u8], upper: Option<&[u8]>) -> usize {
    RANGE_DELETE_BYTES + lower.len() + upper.map_or(0, <[u8]>::len)
}

/// Appends a key and its length before it.
fn put_key(out: &mut Vec<u8>, key: &[u8], is_long: bool) {
    if is_long {
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    } else {
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    }
    out.extend_from_slice(key);
}

impl Operations {
    /// Makes room for operations of about `bytes` bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.payload.reserve_exact(bytes.min(SPARE_BYTES_MAX));
    }

    /// Drops all operations, and keeps the buffers for reuse. `None` if they are too small or too large.
    pub(crate) fn into_spare(mut self) -> Option<Operations> {
        let is_worth_it = (SPARE_BYTES_MIN..=SPARE_BYTES_MAX).contains(&self.payload.capacity());
        self.clear();
        self.reserved = None;
        is_worth_it.then_some(self)
    }

    /// Fails if the operations of another set, and `more` bytes, are too many for this one.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn check_room_for(&self, other: &Operations, more: usize) -> Result<()> {
        let bytes = self.bytes_counted() + other.bytes_counted() + more;
        if bytes > WRITE_SET_BYTES_MAX {
            return Err(Error::TooLarge {
                what: "write set",
                bytes,
                limit: WRITE_SET_BYTES_MAX,
            });
        }
        Ok(())
    }

    /// Adds the operations and guards of another set, which come after those of this one. Both must have the same snapshot, if
    /// any. A set that becomes too large is refused by the commit.
    pub fn append(&mut self, other: &Operations) {
        let (payload_at, extra_at) = (self.payload.len(), self.extra.len());
        grow(&mut self.payload, other.payload.len());
        self.payload.extend_from_slice(&other.payload);
        grow(&mut self.extra, other.extra.len());
        self.extra.extend_from_slice(&other.extra);
        grow(&mut self.guards, other.guards.len());
        self.guards.extend(other.guards.iter().map(|guard| {
            let by = if guard.in_extra { extra_at } else { payload_at };
            Guard {
                range: guard.range.start + by..guard.range.end + by,
                ..*guard
            }
        }));
        if other.ops > 0 {
            // Only if all of it does.
            self.frees_space = other.frees_space && (self.frees_space || self.ops == 0);
        }
        self.ops += other.ops;
        self.entries += other.entries;
        self.entry_bytes += other.entry_bytes;
        // Those that `other` remembers are counted by this set.
        self.tree_count += other.tree_count - other.trees.len();
        for tree in &other.trees {
            self.note_tree(*tree);
        }
        self.range_bytes += other.range_bytes;
        let tree_ops = other.tree_ops.iter();
        self.tree_ops
            .extend(tree_ops.map(|at| at.start + payload_at..at.end + payload_at));
        grow(&mut self.stamped, other.stamped.len());
        self.stamped
            .extend(other.stamped.iter().map(|at| at + payload_at));
        self.stamps = self.stamps.max(other.stamps);
    }

    /// Memory of the buffers, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        let guards = self.guards.capacity() * size_of::<Guard>();
        let stamped = self.stamped.capacity() * size_of::<usize>();
        self.payload.capacity() + self.extra.capacity() + guards + stamped
    }

    /// Size of the guarded keys that have no operation.
    pub fn extra_bytes(&self) -> usize {
        self.extra.len()
    }

    /// Counts the buffers in the memory budget, if they are large, until the set is dropped or its buffers are spare.
    pub fn count_in(&mut self, budget: &MemoryBudget) {
        let bytes = self.buffer_bytes();
        match &mut self.reserved {
            Some(reserved) => reserved.resize(bytes),
            None if bytes >= COUNTED_BYTES_MIN => {
                self.reserved = Some(budget.reserve(MemoryUse::WriteSets, bytes));
            }
            None => {}
        }
    }

    /// Number of operations, guards not counted.
    pub fn len(&self) -> usize {
        self.ops as usize
    }

    /// Size of the operations in bytes.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Removes all operations and guards, and keeps the capacity.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.extra.clear();
        self.guards.clear();
        self.ops = 0;
        self.entries = 0;
        self.entry_bytes = 0;
        self.range_bytes = 0;
        self.trees.clear();
        self.tree_count = 0;
        self.tree_ops.clear();
        self.stamped.clear();
        self.stamps = 0;
        self.frees_space = false;
        self.failure = None;
    }

    /// Marks the commit as one that is to free space in the end, as deletes and drops do, or that is needed for that. It is not
    /// refused while the disk is nearly full, and may use the reserve.
    pub fn set_frees_space(&mut self) {
        self.frees_space = true;
    }

    /// See [`Operations::set_frees_space`].
    pub fn frees_space(&self) -> bool {
        self.frees_space
    }

    /// Sets the value of a key.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.push(Kind::Put.to_byte(), tree, [key, &[]], value);
    }

    /// Sets the value of a key that is given in two parts.
    pub fn put_joined(&mut self, tree: TreeId, key: [&[u8]; 2], value: &[u8]) {
        self.push(Kind::Put.to_byte(), tree, key, value);
    }

    /// Sets the value of a key that the commit makes: a stamp (8 bytes, big-endian), and then `suffix`. The commit takes
    /// consecutive stamps from the engine's source ([`crate::Stamps`]), one more than the greatest offset of the write set; the stamp of
    /// this key is the first one plus `offset`. Stamps are taken in the order in which commits become visible. So the keys of a
    /// tree that has only stamped keys are in the order of their commits, and each snapshot sees a prefix of them.
    ///
    /// In a transaction stamped keys can only be part of the commit's extra operations: reads of the transaction could not
    /// see them.
    pub fn put_stamped(&mut self, tree: TreeId, offset: u32, suffix: &[u8], value: &[u8]) {
        let Some(stamps) = offset.checked_add(1) else {
            self.failure.get_or_insert(Error::TooLarge {
                what: "offset of a stamp",
                bytes: offset as usize,
                limit: offset as usize - 1,
            });
            return;
        };
        let stamp: [u8; STAMP_BYTES] = u64::from(offset).to_be_bytes();
        if let Some(key) = self.push(OP_PUT_STAMPED, tree, [&stamp, suffix], value) {
            self.stamped.push(key.start - header_bytes(key.len()));
            self.stamps = self.stamps.max(stamps);
        }
    }

    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.push(Kind::Delete.to_byte(), tree, [key, &[]], &[]);
    }

    /// Applies a delta to the value of a key, without reading it.
    pub fn merge(&mut self, tree: TreeId, key: &[u8], delta: &[u8]) {
        self.push(Kind::Merge.to_byte(), tree, [key, &[]], delta);
    }

    /// Removes every key from `lower` on and below `upper`, or every key from `lower` on for `None`. The cost does
    /// not depend on the number of keys: nothing is read, and one message is written. An empty range has no effect.
    ///
    /// The delete is blind: it never conflicts, not even over keys that others guard. Writers that need conflicts
    /// guard a common key that represents the range.
    ///
    /// A range delete counts as 4 KiB against the limit of a write set.
    pub fn delete_range(&mut self, tree: TreeId, lower: &[u8], upper: Option<&[u8]>) {
        if upper.is_some_and(|upper| lower >= upper) {
            return;
        }
        let key_len = lower.len().max(upper.map_or(0, <[u8]>::len));
        let range_bytes = range_delete_bytes(lower, upper);
        let bytes = self.bytes_counted() + range_bytes;
        let failure = if key_len > KEY_BYTES_MAX {
            Some(("key", key_len, KEY_BYTES_MAX))
        } else if bytes > WRITE_SET_BYTES_MAX {
            Some(("write set", bytes, WRITE_SET_BYTES_MAX))
        } else {
            None
        };
        if let Some((what, bytes, limit)) = failure {
            let error = Error::TooLarge { what, bytes, limit };
            self.failure.get_or_insert(error);
            return;
        }
        let is_long = key_len > SHORT_KEY_BYTES_MAX;
        let flag = if is_long { LONG_KEYS } else { 0 };
        self.payload.push(OP_DELETE_RANGE | flag);
        self.payload.extend_from_slice(&tree.0.to_le_bytes());
        put_key(&mut self.payload, lower, is_long);
        self.payload.push(u8::from(upper.is_some()));
        if let Some(upper) = upper {
            put_key(&mut self.payload, upper, is_long);
        }
        self.range_bytes += range_bytes;
        self.ops += 1;
        self.note_tree(tree);
    }

    /// Sets the value of a key that must not have changed since the snapshot.
    pub fn put_guarded(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        if let Some(range) = self.push(Kind::Put.to_byte(), tree, [key, &[]], value) {
            self.push_guard(tree, key, range, false);
        }
    }

    /// Removes a key that must not have changed since the snapshot.
    pub fn delete_guarded(&mut self, tree: TreeId, key: &[u8]) {
        if let Some(range) = self.push(Kind::Delete.to_byte(), tree, [key, &[]], &[]) {
            self.push_guard(tree, key, range, false);
        }
    }

    /// Fails the commit if the key was changed by a guarded call since the snapshot, and makes later
    /// guards of others see this commit as a change of it. The key need not exist.
    pub fn guard(&mut self, tree: TreeId, key: &[u8]) {
        let start = self.extra.len();
        self.extra.extend_from_slice(key);
        self.push_guard(tree, key, start..self.extra.len(), true);
    }

    /// Creates a tree with an id from [`crate::Engine::allocate_tree`].
    pub fn create_tree(&mut self, tree: TreeId, options: &TreeOptions) {
        self.push_new_tree(OP_CREATE_TREE, tree, options);
    }

    /// Creates a tree with an id from [`crate::Engine::allocate_tree`] that a bulk loader will fill. Commits to
    /// it meanwhile go on top of the load, as if the load had been there before. Until the load is finished, reads see
    /// only these commits, and apply update messages as if their keys were absent.
    pub fn create_tree_to_load(&mut self, tree: TreeId, options: &TreeOptions) {
        self.push_new_tree(OP_CREATE_TREE_TO_LOAD, tree, options);
    }

    fn push_new_tree(&mut self, op: u8, tree: TreeId, options: &TreeOptions) {
        if let Err(error) = options.check() {
            self.failure.get_or_insert(error);
            return;
        }
        let start = self.payload.len();
        self.payload.push(op);
        self.payload.extend_from_slice(&tree.0.to_le_bytes());
        encode_options(options, &mut self.payload);
        self.ops += 1;
        self.tree_ops.push(start..self.payload.len());
    }

    /// Drops a tree and everything in it.
    pub fn drop_tree(&mut self, tree: TreeId) {
        let start = self.payload.len();
        self.payload.push(OP_DROP_TREE);
        self.payload.extend_from_slice(&tree.0.to_le_bytes());
        self.ops += 1;
        self.tree_ops.push(start..self.payload.len());
    }

    fn push(
        &mut self,
        code: u8,
        tree: TreeId,
        key: [&[u8]; 2],
        value: &[u8],
    ) -> Option<Range<usize>> {
        let key_len = key[0].len() + key[1].len();
        let bytes = self.bytes_counted() + key_len + value.len();
        let failure = if let Err(error) = check_sizes(key_len, value.len()) {
            Some(error)
        } else if bytes > WRITE_SET_BYTES_MAX {
            Some(Error::TooLarge {
                what: "write set",
                bytes,
                limit: WRITE_SET_BYTES_MAX,
            })
        } else {
            None
        };
        if let Some(error) = failure {
            self.failure.get_or_insert(error);
            return None;
        }
        if key_len > SHORT_KEY_BYTES_MAX {
            self.push_long_header(code, tree, key_len, value.len());
        } else {
            let mut header = [0; ENTRY_HEADER_BYTES];
            header[0] = code;
            header[1..5].copy_from_slice(&tree.0.to_le_bytes());
            header[5..7].copy_from_slice(&(key_len as u16).to_le_bytes());
            header[7..].copy_from_slice(&(value.len() as u32).to_le_bytes());
            (self.payload).reserve(ENTRY_HEADER_BYTES + key_len + value.len());
            self.payload.extend_from_slice(&header);
        }
        let start = self.payload.len();
        for part in [key[0], key[1], value] {
            self.payload.extend_from_slice(part);
        }
        self.ops += 1;
        self.entries += 1;
        self.entry_bytes += key_len + value.len();
        self.note_tree(tree);
        Some(start..start + key_len)
    }

    /// The header of an operation with a long key.
    #[cold]
    fn push_long_header(&mut self, code: u8, tree: TreeId, key_len: usize, value_len: usize) {
        let operation = LONG_ENTRY_HEADER_BYTES + key_len + value_len;
        // A large buffer that doubles would take far more than it holds.
        self.payload.reserve_exact(operation);
        self.payload.push(code | LONG_KEYS);
        for field in [tree.0, key_len as u32, value_len as u32] {
            self.payload.extend_from_slice(&field.to_le_bytes());
        }
    }

    /// Bytes that count against the limit of a write set.
    fn bytes_counted(&self) -> usize {
        self.payload.len() + self.range_bytes
    }

    fn note_tree(&mut self, tree: TreeId) {
        if !self.trees.contains(&tree) {
            self.tree_count += 1;
            if self.trees.len() < TREES_MAX {
                self.trees.push(tree);
            }
        }
    }

    fn push_guard(&mut self, tree: TreeId, key: &[u8], range: Range<usize>, in_extra: bool) {
        self.guards.push(Guard {
            hash: key_hash(tree, key),
            tree,
            range,
            in_extra,
        });
    }

    /// The keys that must not have changed since the snapshot.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Iterates over the guarded keys with their trees.
    pub fn guarded_keys(&self) -> impl Iterator<Item = (TreeId, &[u8])> {
        let guards = self.guards.iter();
        guards.map(|guard| (guard.tree, self.guarded_key(guard)))
    }

    /// The key of one of [`Operations::guards`].
    pub fn guarded_key(&self, guard: &Guard) -> &[u8] {
        let bytes = if guard.in_extra {
            &self.extra
        } else {
            &self.payload
        };
        &bytes[guard.range.clone()]
    }

    /// The operations as bytes.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The operations, in their order.
    #[inline]
    pub fn iter(&self) -> Ops<'_> {
        decode(&self.payload)
    }

    /// The number of stamps that the commit takes.
    pub fn stamps(&self) -> u32 {
        self.stamps
    }

    /// Makes the keys of the stamped puts, which are ordinary ones from then on.
    pub fn add_stamps(&mut self, first: u64) {
        for at in self.stamped.drain(..) {
            add_stamp(&mut self.payload, at, first);
        }
        self.stamps = 0;
    }

    /// The number of messages for single keys.
    #[inline]
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of the keys and values of these messages.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// The bytes that the range deletes count as: [`range_delete_bytes`].
    #[inline]
    pub fn range_bytes(&self) -> usize {
        self.range_bytes
    }

    /// The number of trees with such messages or range deletes; an upper bound, if they are very many.
    #[inline]
    pub fn tree_count(&self) -> usize {
        self.tree_count
    }

    /// Whether trees are created or dropped.
    #[inline]
    pub fn changes_trees(&self) -> bool {
        !self.tree_ops.is_empty()
    }

    /// The operations that create and drop trees.
    pub fn tree_ops(&self) -> impl Iterator<Item = Op<'_>> {
        let ranges = self.tree_ops.iter();
        ranges.flat_map(|at| decode(&self.payload[at.clone()]))
    }

    /// The first error of the calls that built the write set.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::InvalidOption`].
    pub fn take_failure(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{encode_stamp, is_sound, numbers_of, with_stamps};
    use crate::options::VALUE_BYTES_MAX;

    /// Equal hashes are taken for conflicts. Integers as `_id` had them in collections that were created one after the other:
    /// transactions in one failed with conflicts while others wrote to the next one.
    #[test]
    fn similar_keys_of_neighbouring_trees_have_different_hashes() {
        let mut seen = std::collections::HashSet::new();
        for tree in 200..216 {
            for id in 0..4000_u16 {
                for len in 3..10 {
                    let mut key = vec![0x2b];
                    key.extend(id.to_be_bytes());
                    key.resize(len, 0);
                    assert!(seen.insert(key_hash(TreeId(tree), &key)), "{tree} {key:?}");
                }
            }
        }
    }

    #[test]
    fn decodes_what_was_encoded() {
        let mut set = Operations::default();
        set.create_tree(TreeId(7), &TreeOptions::default());
        set.put(TreeId(7), b"key", b"value");
        set.delete_guarded(TreeId(7), b"gone");
        set.merge(TreeId(8), b"", b"+1");
        set.drop_tree(TreeId(9));
        set.create_tree_to_load(TreeId(10), &TreeOptions::default());
        set.delete_range(TreeId(7), b"a", Some(b"k"));
        set.delete_range(TreeId(7), b"", None);
        set.delete_range(TreeId(7), b"k", Some(b"k"));
        assert_eq!(set.len(), 8);
        assert_eq!(set.guarded_key(&set.guards()[0]), b"gone");
        let text: Vec<String> = set
            .iter()
            .map(|op| match op {
                Op::Entry {
                    tree,
                    kind,
                    key,
                    value,
                } => {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    format!("{} {kind:?} {}={}", tree.0, text(key), text(value))
                }
                Op::CreateTree(tree, options, state) => {
                    format!("create {} {} {state:?}", tree.0, options.node_bytes)
                }
                Op::DropTree(tree) => format!("drop {}", tree.0),
                Op::DeleteRange { tree, lower, upper } => {
                    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                    let upper = upper.map_or("the end".to_owned(), text);
                    format!("{} delete {} to {upper}", tree.0, text(lower))
                }
            })
            .collect();
        let expected = [
            "create 7 4194304 Empty",
            "7 Put key=value",
            "7 Delete gone=",
            "8 Merge =+1",
            "drop 9",
            "create 10 4194304 ToBeLoaded",
            "7 delete a to k",
            "7 delete  to the end",
        ];
        assert_eq!(text, expected);
        // Only where an operation ends is a cut payload one that a write set could have.
        let sound = (0..=set.payload().len()).filter(|cut| is_sound(&set.payload()[..*cut]));
        let mut ends: Vec<usize> = sound.collect();
        assert_eq!(ends.len(), set.len() + 1);
        assert_eq!((ends[0], ends.pop()), (0, Some(set.payload().len())));
    }

    #[test]
    fn stamps_are_added_by_the_commit_and_by_the_replay_alike() {
        const FIRST: u64 = u64::MAX / 3;
        let mut staged = Operations::default();
        staged.put(TreeId(1), b"12345678", b"an ordinary key");
        let mut extra = Operations::default();
        extra.put_stamped(TreeId(2), 300, b" and more", b"value");
        extra.delete_guarded(TreeId(1), b"gone");
        extra.put_stamped(TreeId(2), 0, b"", b"");
        staged.append(&extra);
        assert_eq!((staged.stamps(), extra.stamps()), (301, 301));
        let bare = staged.payload().to_vec();
        staged.add_stamps(FIRST);
        assert_eq!(staged.stamps(), 0);
        let keys: Vec<Vec<u8>> = staged
            .iter()
            .map(|op| match op {
                Op::Entry { key, .. } => key.to_vec(),
                _ => panic!("only entries"),
            })
            .collect();
        let second = [&(FIRST + 300).to_be_bytes()[..], b" and more"].concat();
        let expected = [&b"12345678"[..], &second, b"gone", &FIRST.to_be_bytes()];
        assert_eq!(keys, expected);
        let logged = [&bare[..], &encode_stamp(FIRST)].concat();
        assert!(is_sound(&logged));
        assert_eq!(numbers_of(&logged), 4);
        let (replayed, last) = with_stamps(&logged);
        assert_eq!((&*replayed, last), (staged.payload(), Some(FIRST + 300)));
        let (same, none) = with_stamps(staged.payload());
        assert_eq!((&*same, none), (staged.payload(), None));

        // A stamp and stamped puts belong together, the stamp is the end, and a stamped key has room for it.
        let stamp = encode_stamp(FIRST);
        let short = [&[OP_PUT_STAMPED, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0][..], &[0; 7]].concat();
        for unsound in [
            bare.clone(),
            [staged.payload(), &stamp].concat(),
            stamp.to_vec(),
            [&logged[..], &stamp].concat(),
            [&stamp[..], &bare, &stamp].concat(),
            [&short[..], &stamp].concat(),
            logged[..logged.len() - 1].to_vec(),
        ] {
            assert!(!is_sound(&unsound), "{unsound:?}");
        }
        let mut set = Operations::default();
        set.put_stamped(TreeId(1), 0, &vec![0; KEY_BYTES_MAX - 7], b"");
        let refused = set.take_failure();
        assert!(matches!(refused, Err(Error::TooLarge { what: "key", .. })));
        assert_eq!((set.stamps(), set.is_empty()), (0, true));
    }

    /// Engines reserve memory by these counts.
    #[test]
    fn counts_entries_ranges_and_trees_also_of_appended_sets() {
        let mut first = Operations::default();
        first.put(TreeId(1), b"key", b"value");
        first.delete(TreeId(1), b"key");
        first.guard(TreeId(9), b"not an operation");
        let mut second = Operations::default();
        second.merge(TreeId(1), b"key", b"+");
        second.delete_range(TreeId(2), b"a", Some(b"bc"));
        second.create_tree(TreeId(3), &TreeOptions::default());
        let counts = |set: &Operations| {
            (
                set.len(),
                set.entries(),
                set.entry_bytes(),
                set.range_bytes(),
                set.tree_count(),
            )
        };
        let range = range_delete_bytes(b"a", Some(b"bc"));
        assert_eq!(counts(&first), (2, 2, 11, 0, 1));
        assert_eq!(counts(&second), (3, 1, 4, range, 2));
        first.append(&second);
        assert_eq!(counts(&first), (5, 3, 15, range, 2));
        first.clear();
        assert_eq!(counts(&first), (0, 0, 0, 0, 0));
    }

    #[test]
    fn refuses_what_is_too_large() {
        let mut set = Operations::default();
        set.put(TreeId(1), &vec![0; KEY_BYTES_MAX + 1], b"");
        assert!(matches!(
            set.take_failure(),
            Err(Error::TooLarge { what: "key", .. })
        ));
        set.put(TreeId(1), b"", &vec![0; VALUE_BYTES_MAX + 1]);
        assert!(matches!(
            set.take_failure(),
            Err(Error::TooLarge { what: "value", .. })
        ));
        set.delete_range(TreeId(1), b"", Some(&vec![0; KEY_BYTES_MAX + 1]));
        assert!(matches!(
            set.take_failure(),
            Err(Error::TooLarge { what: "key", .. })
        ));
        assert!(set.is_empty() && set.take_failure().is_ok());
        for _ in 0..=WRITE_SET_BYTES_MAX / 4096 {
            set.delete_range(TreeId(1), b"", None);
        }
        assert!(matches!(
            set.take_failure(),
            Err(Error::TooLarge {
                what: "write set",
                ..
            })
        ));
    }
}
