//! A merging iterator over sources of messages, newest first.

use std::sync::Arc;

use frond_kv::Direction;

use crate::memtable::MemSource;
use crate::merge::{Fold, Resolver};
use crate::range::{Coverage, KeyRange, RangeSet};
use crate::run::PartsCursor;
use crate::{Error, Kind, Result};

/// Steps through deleted keys before a source seeks to the end of the range that covers them.
const STEPS_MAX: usize = 4;

/// A source of messages, and its range deletes: they cover keys in all older sources, not in this one.
pub(crate) struct Source {
    messages: Messages,
    pub(crate) ranges: RangeSet,
}

enum Messages {
    Mem(MemSource),
    Runs(PartsCursor),
}

impl Source {
    pub(crate) fn memtable(source: MemSource) -> Source {
        Source {
            ranges: source.ranges(),
            messages: Messages::Mem(source),
        }
    }

    pub(crate) fn runs(source: PartsCursor, ranges: RangeSet) -> Source {
        Source {
            ranges,
            messages: Messages::Runs(source),
        }
    }

    /// Goes on with the read-ahead of the leaf before.
    pub(crate) fn continue_after(&mut self, before: Source) {
        if let (Messages::Runs(leaf), Messages::Runs(before)) =
            (&mut self.messages, before.messages)
        {
            leaf.continue_after(before);
        }
    }

    /// Expects that everything will be read, and not soon again.
    pub(crate) fn expect_long(&mut self) {
        if let Messages::Runs(leaf) = &mut self.messages {
            leaf.expect_long();
        }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        match &self.messages {
            Messages::Mem(source) => source.key(),
            Messages::Runs(source) => source.key(),
        }
    }

    /// The key and its newest message.
    fn entry(&self) -> Option<(&[u8], Kind, &[u8])> {
        match &self.messages {
            Messages::Mem(source) => source.entry(),
            Messages::Runs(source) => {
                let (kind, value) = source.message();
                Some((source.key()?, kind, value))
            }
        }
    }

    /// Adds all messages of the key. True when nothing older matters.
    fn gather(&self, resolver: &Resolver, key: &[u8], fold: &mut Fold) -> bool {
        match &self.messages {
            Messages::Mem(source) => source.gather(fold),
            Messages::Runs(source) => {
                let (kind, value) = source.message();
                fold.add(resolver, key, kind, value)
            }
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &mut self.messages {
            Messages::Mem(source) => source.seek(Some(key)),
            Messages::Runs(source) => source.seek(key)?,
        }
        Ok(())
    }

    pub(crate) fn seek_before(&mut self, key: Option<&[u8]>) -> Result<()> {
        match &mut self.messages {
            Messages::Mem(source) => source.seek_before(key),
            Messages::Runs(source) => source.seek_before(key)?,
        }
        Ok(())
    }

    fn step(&mut self, direction: Direction) -> Result<()> {
        match (&mut self.messages, direction) {
            (Messages::Mem(source), Direction::Forward) => source.step(),
            (Messages::Mem(source), Direction::Backward) => source.step_back(),
            (Messages::Runs(source), Direction::Forward) => source.step()?,
            (Messages::Runs(source), Direction::Backward) => source.step_back()?,
        }
        Ok(())
    }

    /// Moves on to the first key that is not in `range`.
    fn pass(&mut self, range: &KeyRange, direction: Direction) -> Result<()> {
        for _ in 0..STEPS_MAX {
            self.step(direction)?;
            if self.key().is_none_or(|key| !range.contains(key)) {
                return Ok(());
            }
        }
        match (direction, &range.upper) {
            (Direction::Forward, Some(upper)) => self.seek(upper),
            // There is no key below the empty one, so this ends the walk.
            (Direction::Forward, None) => self.seek_before(Some(&[])),
            (Direction::Backward, _) => self.seek_before(Some(&range.lower)),
        }
    }
}

/// A binary heap of sources by their keys; of equal keys the source with the lowest index, the newest, is on top.
/// A key that a range delete of a newer source covers is never on top.
pub(crate) struct Merger {
    pub(crate) sources: Vec<Source>,
    heap: Vec<usize>,
    direction: Direction,
    /// The sources with range deletes.
    ranged: Vec<usize>,
    /// A gap between all their ranges: no key in it is deleted.
    gap: Option<Gap>,
    /// The upper bound of the walk; `None` is no bound.
    bound: Option<Vec<u8>>,
    /// The number of entries of the source on top, the current one included, that are known to come before the bound
    /// and before all other sources, without range deletes between them.
    clear: usize,
}

/// From one key on and below another; `None` where nothing bounds it.
type Gap = (Option<Arc<[u8]>>, Option<Arc<[u8]>>);

impl Merger {
    /// A merger of positioned sources, newest first.
    pub(crate) fn new(sources: Vec<Source>, direction: Direction) -> Result<Merger> {
        let mut merger = Merger {
            sources,
            ..Merger::empty(direction)
        };
        merger.rebuild()?;
        Ok(merger)
    }

    /// A walk over nothing.
    pub(crate) fn empty(direction: Direction) -> Merger {
        Merger {
            sources: Vec::new(),
            heap: Vec::new(),
            direction,
            ranged: Vec::new(),
            gap: None,
            bound: None,
            clear: 0,
        }
    }

    /// Sets the upper bound of a forward walk, before [`Merger::rebuild`]. It is a hint: the walk may go past it.
    pub(crate) fn set_bound(&mut self, bound: Option<&[u8]>) {
        self.bound = bound.map(<[u8]>::to_vec);
    }

    /// Rebuilds the heap, after sources were moved from outside.
    pub(crate) fn rebuild(&mut self) -> Result<()> {
        self.clear = 0;
        self.heap.clear();
        self.ranged.clear();
        self.gap = None;
        for (index, source) in self.sources.iter().enumerate() {
            if source.key().is_some() {
                self.heap.push(index);
            }
            if !source.ranges.is_empty() {
                self.ranged.push(index);
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.pass_deleted()
    }

    /// Moves the sources on top on until the first key is one that no newer source has deleted.
    fn pass_deleted(&mut self) -> Result<()> {
        if self.ranged.is_empty() {
            return Ok(());
        }
        while let Some(top) = self.heap.first().copied() {
            let Some(range) = self.range_over(top) else {
                break;
            };
            self.sources[top].pass(&range, self.direction)?;
            self.sift_top();
        }
        Ok(())
    }

    /// A range of a newer source that covers the key of `source`.
    fn range_over(&mut self, source: usize) -> Option<KeyRange> {
        let key = self.sources[source].key()?;
        if let Some((after, before)) = &self.gap
            && after.as_deref().is_none_or(|after| key >= after)
            && before.as_deref().is_none_or(|before| key < before)
        {
            return None;
        }
        let (mut after, mut before): Gap = (None, None);
        let mut is_gap = true;
        for ranged in &self.ranged {
            match self.sources[*ranged].ranges.coverage(key) {
                Coverage::Covered(range) if *ranged < source => return Some(range.clone()),
                Coverage::Covered(_) => is_gap = false,
                Coverage::Gap(from, to) => {
                    if from > after.as_ref() {
                        after = from.cloned();
                    }
                    if let Some(to) = to
                        && before.as_ref().is_none_or(|before| to < before)
                    {
                        before = Some(to.clone());
                    }
                }
            }
        }
        if is_gap {
            self.gap = Some((after, before));
        }
        None
    }

    /// Restores the heap after its first source has moved.
    fn sift_top(&mut self) {
        if let Some(top) = self.heap.first()
            && self.sources[*top].key().is_none()
        {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
    }

    /// The first key and its newest message.
    pub(crate) fn peek(&self) -> Option<(&[u8], Kind, &[u8])> {
        self.sources[*self.heap.first()?].entry()
    }

    /// Moves the source on top. The next older message of the same key may come next.
    pub(crate) fn step(&mut self) -> Result<()> {
        let Some(top) = self.heap.first().copied() else {
            return Ok(());
        };
        self.sources[top].step(self.direction)?;
        if self.clear > 1 {
            self.clear -= 1;
            return Ok(());
        }
        self.clear = 0;
        self.sift_top();
        self.pass_deleted()?;
        if self.heap.first() == Some(&top) {
            self.look_ahead();
        }
        Ok(())
    }

    /// Counts the entries of the source on top that come before all other sources, so that they need no comparison: a
    /// leaf has far more keys than there are messages pending for it. Pays off for a source that stays on top.
    fn look_ahead(&mut self) {
        if self.direction != Direction::Forward || !self.ranged.is_empty() {
            return;
        }
        let Some((top, others)) = self.heap.split_first() else {
            return;
        };
        if let Messages::Runs(runs) = &self.sources[*top].messages {
            let others = others.iter().take(2);
            let next = others.filter_map(|other| self.sources[*other].key());
            let limit = next.chain(self.bound.as_deref()).min();
            self.clear = runs.entries_below(limit);
        }
    }

    /// Moves on while the first key is `key`.
    pub(crate) fn skip(&mut self, key: &[u8]) -> Result<()> {
        while self.peek_key() == Some(key) {
            self.step()?;
        }
        Ok(())
    }

    pub(crate) fn peek_key(&self) -> Option<&[u8]> {
        self.sources[*self.heap.first()?].key()
    }

    /// Whether no other source has the first key.
    pub(crate) fn is_alone(&self) -> bool {
        self.clear > 0 || self.heap.len() <= 1
    }

    /// Whether the first key is known to lie below the bound.
    pub(crate) fn is_below_bound(&self) -> bool {
        self.clear > 0
    }

    /// Folds the update messages of `key`, which is first, with older ones; nothing is below them. Afterwards the position
    /// may be at the key or after it.
    pub(crate) fn fold(&mut self, key: &[u8], resolver: &Resolver) -> Result<(Kind, Vec<u8>)> {
        self.gather(key, resolver)?.finish_at_bottom(resolver, key)
    }

    /// As [`Merger::fold`], but the result goes into a buffer. Messages that cannot be read are reported to `note`.
    pub(crate) fn fold_for_buffer(
        &mut self,
        key: &[u8],
        resolver: &Resolver,
        note: impl FnOnce(&Error),
    ) -> Result<(Kind, Vec<u8>)> {
        self.gather(key, resolver)?
            .finish_in_buffer(resolver, key, note)
    }

    fn gather(&mut self, key: &[u8], resolver: &Resolver) -> Result<Fold> {
        let mut fold = Fold::default();
        while let Some(top) = self.heap.first().map(|top| &self.sources[*top])
            && top.key() == Some(key)
        {
            if top.gather(resolver, key, &mut fold) {
                return Ok(fold);
            }
            self.step()?;
        }
        // The older sources are hidden by a range delete that covers the key, so that is the base of the messages.
        let ranged = self.ranged.iter();
        let mut ranges = ranged.map(|ranged| &self.sources[*ranged].ranges);
        if ranges.any(|ranges| ranges.covering(key).is_some()) {
            fold.add(resolver, key, Kind::Delete, &[]);
        }
        Ok(fold)
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let (key_a, key_b) = (self.sources[a].key(), self.sources[b].key());
        let order = match self.direction {
            Direction::Forward => key_a.cmp(&key_b),
            Direction::Backward => key_b.cmp(&key_a),
        };
        order.then(a.cmp(&b)).is_lt()
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.before(self.heap[right], self.heap[left])
            {
                right
            } else {
                left
            };
            if !self.before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::{NoMerge, TreeId, WriteSet};
    use frond_kv::operation::decode;

    const TREE: TreeId = TreeId(1);

    fn resolver() -> Resolver {
        Resolver {
            tree: TREE,
            operator: Arc::new(NoMerge),
            settles: false,
        }
    }

    /// A memtable of operations like `+a` (put), `-a` (delete), `~a` (update message) and `x a c` (range delete).
    fn source(operations: &str) -> Source {
        let mut set = WriteSet::new();
        for operation in operations.split(", ") {
            let (code, key) = operation.split_at(1);
            match code {
                "+" => set.put(TREE, key.as_bytes(), b"v"),
                "-" => set.delete(TREE, key.as_bytes()),
                "~" => set.merge(TREE, key.as_bytes(), b"d"),
                _ => {
                    let (lower, upper) = key.trim().split_once(' ').unwrap_or((key.trim(), ""));
                    let upper = (!upper.is_empty()).then_some(upper.as_bytes());
                    set.delete_range(TREE, lower.as_bytes(), upper);
                }
            }
        }
        let memtable = Arc::new(Memtable::new(1 << 20, 0, &Arc::default()));
        assert!(memtable.reserve(Memtable::set_bytes_max(&set)));
        let hot = memtable.insert(
            decode(set.payload()),
            set.len(),
            1,
            Memtable::set_bytes_max(&set),
        );
        assert!(hot.is_empty());
        Source::memtable(MemSource::new(&memtable, TREE, u64::MAX, resolver()).unwrap())
    }

    /// The rest of the sources, newest first, as a flush to a buffer sees it.
    fn walk(sources: &[&str], direction: Direction) -> String {
        let mut sources: Vec<Source> = sources.iter().map(|text| source(text)).collect();
        for source in &mut sources {
            match direction {
                Direction::Forward => source.seek(&[]).unwrap(),
                Direction::Backward => source.seek_before(None).unwrap(),
            }
        }
        let mut merger = Merger::new(sources, direction).unwrap();
        let mut found = Vec::new();
        while let Some((key, kind, _)) = merger.peek() {
            let key = key.to_vec();
            let kind = match kind {
                Kind::Merge => merger.fold_for_buffer(&key, &resolver(), |_| {}).unwrap().0,
                kind => kind,
            };
            merger.skip(&key).unwrap();
            let code = match kind {
                Kind::Put => '+',
                Kind::Delete => '-',
                Kind::Merge => '~',
            };
            found.push(format!("{code}{}", String::from_utf8(key).unwrap()));
        }
        if direction == Direction::Backward {
            found.reverse();
        }
        found.join(" ")
    }

    #[test]
    fn range_deletes_hide_what_is_older() {
        for (sources, expected) in [
            (&["+a, +b, +c"][..], "+a +b +c"),
            // In one memtable the order counts.
            (&["+a, +b, +c, x b c"], "+a +c"),
            (&["+a, x a b, +b, +a"], "+a +b"),
            (&["+a, +b, x  , +c"], "+c"),
            // Between sources it is the newer one that deletes.
            (&["x b d", "+a, +b, +c, +d"], "+a +d"),
            (&["+a, +b, +c, +d", "x b d"], "+a +b +c +d"),
            (&["+c, x b", "+a, +b, +d"], "+a"),
            (&["x b, +c", "+a, +b, +d"], "+a +c"),
            (&["+a", "x a c, +b", "+a, +b, +c"], "+a +b +c"),
            (&["x a b", "x b c", "x c d", "+a, +b, +c, +d"], "+d"),
            (
                &["x b y", "+a, +b, +c, +d, +e, +f, +g, +h, +i, +j, +z"],
                "+a +z",
            ),
            (&["x b", "+a, +b, +c, +d, +e, +f, +g, +h, +i, +j"], "+a"),
            // Update messages stop at a range delete, and are no update messages any more.
            (&["~a, ~z", "+b"], "~a +b ~z"),
            (&["+a, x a b, ~a"], "+a"),
            (&["~a, x a b"], ""),
            (&["~a", "x a b, +b"], "+a +b"),
            (&["~a", "~a, x a b, ~a", "-a"], "+a"),
            (&["~a", "~a", "~a"], "~a"),
            (&["~c", "x a b", "~c"], "~c"),
        ] {
            for direction in [Direction::Forward, Direction::Backward] {
                let found = walk(sources, direction);
                assert_eq!(found, expected, "{sources:?} {direction:?}");
            }
        }
    }

    #[test]
    fn a_memtable_resolves_update_messages_above_its_range_deletes() {
        // When a memtable is flushed, its range deletes may go ahead of its messages.
        let mut source = source("+a, x a b, ~a, ~c");
        source.ranges = RangeSet::default();
        source.seek(&[]).unwrap();
        let mut merger = Merger::new(vec![source], Direction::Forward).unwrap();
        for (key, expected) in [(b"a", Kind::Put), (b"c", Kind::Merge)] {
            assert_eq!(merger.peek_key(), Some(&key[..]));
            let folded = merger.fold_for_buffer(key, &resolver(), |_| {}).unwrap();
            assert_eq!(folded, (expected, b"d".to_vec()));
            merger.skip(key).unwrap();
        }
        assert_eq!(merger.peek_key(), None);
    }
}
