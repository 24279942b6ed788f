//! The entries of the replicated log, and their places in the segments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use frond_kv::EntryId;

/// The commit point of a replica set, as a checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CommitPoint {
    pub(crate) id: EntryId,
    /// The position after the entry.
    pub(crate) to: u64,
    /// The last note up to there.
    pub(crate) note: Option<(EntryId, Arc<[u8]>)>,
}

/// The place of a group in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlace {
    /// The position at which the segment begins.
    pub(super) segment: u64,
    /// Where in the file, and how many bytes.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    term: u64,
    /// The position after the last frame.
    to: u64,
    /// `None` until the entry is in a segment.
    place: Option<GroupPlace>,
}

/// The entries that the log has, in their order.
///
/// N1: their numbers have no gaps, their terms do not decrease, and each begins at the position where the one before ends.
#[derive(Default)]
pub(super) struct Entries {
    /// The entry before the first one. Without it the first one has the number 0.
    purged: Option<EntryId>,
    /// The position at which the first one begins.
    from: u64,
    known: VecDeque<Known>,
    /// The notes of all entries that have one, of the newest purged one, too.
    notes: BTreeMap<u64, (EntryId, Arc<[u8]>)>,
}

impl Entries {
    /// No entries: the next one begins at a position.
    pub(super) fn new(purged: Option<EntryId>, from: u64) -> Entries {
        Entries {
            purged,
            from,
            ..Entries::default()
        }
    }

    /// The number of the first entry that is there.
    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    pub(super) fn purged(&self) -> Option<EntryId> {
        self.purged
    }

    /// The number of the next entry.
    pub(super) fn next(&self) -> u64 {
        self.first() + self.known.len() as u64
    }

    pub(super) fn last(&self) -> Option<EntryId> {
        match self.known.back() {
            Some(last) => Some(EntryId {
                term: last.term,
                index: self.next() - 1,
            }),
            None => self.purged,
        }
    }

    /// The position after the last entry.
    pub(super) fn end(&self) -> u64 {
        self.known.back().map_or(self.from, |last| last.to)
    }

    fn at(&self, index: u64) -> Option<&Known> {
        let at = index.checked_sub(self.first())?;
        self.known.get(usize::try_from(at).ok()?)
    }

    pub(super) fn id(&self, index: u64) -> Option<EntryId> {
        if let Some(purged) = self.purged.filter(|purged| purged.index == index) {
            return Some(purged);
        }
        self.at(index).map(|known| EntryId {
            term: known.term,
            index,
        })
    }

    /// The positions of the first frame of an entry and after its last one.
    pub(super) fn span(&self, index: u64) -> Option<(u64, u64)> {
        let to = self.at(index)?.to;
        let from = match index.checked_sub(1).and_then(|before| self.at(before)) {
            Some(before) => before.to,
            None => self.from,
        };
        Some((from, to))
    }

    /// The position after an entry that may have been purged.
    pub(super) fn end_of(&self, index: u64) -> Option<u64> {
        if self.purged.is_some_and(|purged| purged.index == index) {
            return Some(self.from);
        }
        self.span(index).map(|(_, to)| to)
    }

    /// The position at which the first entry begins.
    pub(super) fn start(&self) -> u64 {
        self.from
    }

    pub(super) fn place(&self, index: u64) -> Option<GroupPlace> {
        self.at(index)?.place
    }

    /// The last entry that ends at or before a position.
    pub(super) fn ending_by(&self, position: u64) -> Option<EntryId> {
        let count = self.known.partition_point(|known| known.to <= position);
        match count.checked_sub(1) {
            Some(last) => self.id(self.first() + last as u64),
            None => self.purged.filter(|_| self.from <= position),
        }
    }

    /// The number of the first entry that ends after a position.
    pub(super) fn first_after(&self, position: u64) -> u64 {
        self.first() + self.known.partition_point(|known| known.to <= position) as u64
    }

    /// Whether an entry may follow the last one.
    pub(super) fn follows(&self, id: EntryId) -> bool {
        let term = self.last().map_or(0, |last| last.term);
        id.index == self.next() && id.term >= term
    }

    /// Adds an entry that ends at `to`.
    pub(super) fn push(&mut self, id: EntryId, to: u64, note: &[u8]) {
        assert!(
            self.follows(id) && to >= self.end(),
            "N1: an entry does not follow the one before"
        );
        self.known.push_back(Known {
            term: id.term,
            to,
            place: None,
        });
        if !note.is_empty() {
            self.notes.insert(id.index, (id, note.into()));
        }
    }

    /// Sets where the last entry ends, which is known once its frames are gathered.
    pub(super) fn set_end(&mut self, index: u64, to: u64) {
        let first = self.first();
        let at = index - first;
        for known in self.known.iter_mut().skip(at as usize) {
            known.to = known.to.max(to);
        }
    }

    pub(super) fn set_place(&mut self, index: u64, place: GroupPlace) {
        let at = index.checked_sub(self.first());
        if let Some(known) = at.and_then(|at| self.known.get_mut(at as usize)) {
            known.place = Some(place);
        }
    }

    /// Removes the entries after one.
    pub(super) fn truncate_after(&mut self, index: Option<u64>) {
        let kept = index.map_or(0, |index| (index + 1).saturating_sub(self.first()));
        self.known.truncate(kept as usize);
        let next = self.next();
        self.notes.split_off(&next);
    }

    /// Forgets the entries up to and with one.
    pub(super) fn purge(&mut self, through: u64) {
        while let Some(id) = self.id(self.first()).filter(|id| id.index <= through) {
            let Some(known) = self.known.pop_front() else {
                break;
            };
            (self.purged, self.from) = (Some(id), known.to);
        }
        let newest = self.notes.range(..=through).next_back();
        if let Some(newest) = newest.map(|(index, _)| *index) {
            self.notes = self.notes.split_off(&newest);
        }
    }

    /// The newest note at or before an entry.
    pub(super) fn note_by(&self, index: u64) -> Option<(EntryId, Arc<[u8]>)> {
        let newest = self.notes.range(..=index).next_back();
        newest.map(|(_, note)| note.clone())
    }

    /// Adds a note that is known from the checkpoint.
    pub(super) fn add_note(&mut self, id: EntryId, note: Arc<[u8]>) {
        self.notes.insert(id.index, (id, note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(term: u64, index: u64) -> EntryId {
        EntryId { term, index }
    }

    fn three() -> Entries {
        let mut entries = Entries::new(Some(id(1, 4)), 100);
        entries.push(id(1, 5), 110, b"note 5");
        entries.push(id(2, 6), 110, b"");
        entries.push(id(2, 7), 130, b"note 7");
        entries
    }

    #[test]
    fn entries_are_found_by_number_and_by_position() {
        let entries = three();
        assert_eq!(entries.last(), Some(id(2, 7)));
        assert_eq!((entries.next(), entries.end()), (8, 130));
        assert_eq!(entries.span(5), Some((100, 110)));
        assert_eq!(entries.span(6), Some((110, 110)));
        assert_eq!(entries.span(7), Some((110, 130)));
        assert_eq!((entries.span(4), entries.span(8)), (None, None));
        let cases = [
            (99, None),
            (100, Some(id(1, 4))),
            (109, Some(id(1, 4))),
            (110, Some(id(2, 6))),
            (129, Some(id(2, 6))),
            (500, Some(id(2, 7))),
        ];
        for (position, expected) in cases {
            assert_eq!(entries.ending_by(position), expected, "{position}");
        }
        assert!(entries.follows(id(2, 8)) && entries.follows(id(5, 8)));
        assert!(!entries.follows(id(1, 8)) && !entries.follows(id(2, 9)));
    }

    #[test]
    fn truncation_removes_notes_and_purging_keeps_the_newest() {
        let mut entries = three();
        entries.truncate_after(Some(6));
        assert_eq!((entries.last(), entries.end()), (Some(id(2, 6)), 110));
        assert_eq!(entries.note_by(9).map(|note| note.0), Some(id(1, 5)));
        entries.push(id(3, 7), 111, b"");
        entries.purge(6);
        assert_eq!(
            (entries.purged(), entries.span(7)),
            (Some(id(2, 6)), Some((110, 111)))
        );
        assert_eq!(entries.note_by(6).map(|note| note.0), Some(id(1, 5)));
        entries.truncate_after(Some(6));
        assert_eq!((entries.last(), entries.end()), (Some(id(2, 6)), 110));
        entries.purge(100);
        assert_eq!((entries.last(), entries.end()), (Some(id(2, 6)), 110));
    }
}
