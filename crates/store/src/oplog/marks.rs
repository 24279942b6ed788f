//! The sizes of sections of the oplog, so that the oldest ones can be removed without reading them.
//!
//! A mark is the end of a section: its last timestamp, how many entries and bytes it has, and when it ended. A commit adds to
//! the open section, and ends it when it is large enough. The marks are stored by the next step of trimming; what is not
//! stored at a crash is counted again when the oplog is opened. A commit counts after it is visible, so a mark may be off by
//! the commits of that moment.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_bson::{Doc, Timestamp, doc};
use parking_lot::Mutex;

use super::{Added, OplogSettings, timestamp_of_key};
use frond_oplog::entry::RawEntry;
use frond_storage::clock::now_ms;
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{
    CATALOG_TREE, Direction, Durability, Engine, Snapshot, TreeId, WriteSet,
};

/// The first byte of the keys of marks in the catalog tree; then comes the timestamp.
const KIND: u8 = 10;

/// The least number of sections of an oplog at its full size.
const SECTIONS: u64 = 64;

/// The smallest and the largest section.
const SECTION_BYTES_MIN: u64 = 64 << 10;
const SECTION_BYTES_MAX: u64 = 64 << 20;

/// Milliseconds of an hour.
const HOUR_MS: f64 = 3_600_000.0;

/// A section of the oplog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    last: u64,
    size: Size,
    ended_ms: i64,
    is_stored: bool,
}

/// Entries and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub entries: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// The entries that a step of trimming removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// About how many entries.
    pub entries: u64,
    /// About how many bytes.
    pub bytes: u64,
    /// The timestamp of the last one.
    pub to: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct Marks {
    entries: AtomicU64,
    bytes: AtomicU64,
    /// At this size it ends.
    section_bytes: AtomicU64,
    sections: Mutex<Sections>,
}

#[derive(Debug, Default)]
struct Sections {
    kept: VecDeque<Mark>,
    total: Size,
}

impl Sections {
    fn push(&mut self, mark: Mark) {
        self.total.entries += mark.size.entries;
        self.total.bytes += mark.size.bytes;
        self.kept.push_back(mark);
    }

    fn pop(&mut self) -> Option<Mark> {
        let mark = self.kept.pop_front()?;
        self.total.entries -= mark.size.entries;
        self.total.bytes -= mark.size.bytes;
        Some(mark)
    }
}

fn key(last: u64) -> [u8; 9] {
    let mut key = [KIND; 9];
    key[1..].copy_from_slice(&last.to_be_bytes());
    key
}

/// Whether a key of the catalog tree is that of a mark.
pub fn is_key(key: &[u8]) -> bool {
    key.first() == Some(&KIND)
}

/// Adds the removal of all marks to a write set.
pub fn stage_removal(batch: &mut WriteSet) {
    batch.delete_range(CATALOG_TREE, &[KIND], Some(&[KIND + 1]));
}

fn section_bytes(bytes_max: u64) -> u64 {
    (bytes_max / SECTIONS).clamp(SECTION_BYTES_MIN, SECTION_BYTES_MAX)
}

impl Marks {
    pub fn clear(&self) {
        let mut sections = self.sections.lock();
        *sections = Sections::default();
        self.entries.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        let least = SECTION_BYTES_MIN;
        self.section_bytes.store(least, Ordering::Relaxed);
    }

    /// Reads the stored marks, and counts the entries behind the last one.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of the engine.
    pub fn load(&self, snapshot: &Snapshot, tree: TreeId, bytes_max: u64) -> Result<()> {
        self.clear();
        let each = section_bytes(bytes_max);
        self.section_bytes.store(each, Ordering::Relaxed);
        let mut sections = self.sections.lock();
        let forward = Direction::Forward;
        let (low, high) = (
            Bound::Included(&[KIND][..]),
            Bound::Excluded(&[KIND + 1][..]),
        );
        let mut cursor = snapshot.cursor(CATALOG_TREE, low, high, forward)?;
        while let Some((key, value)) = cursor.next()? {
            let mark = || {
                let value = Doc::validate(value).ok()?;
                let count = |name| u64::try_from(value.get_i64(name)?).ok();
                Some(Mark {
                    last: timestamp_of_key(key.get(1..)?)?,
                    size: Size {
                        entries: count("entries")?,
                        bytes: count("bytes")?,
                    },
                    ended_ms: value.get_i64("endedMs")?,
                    is_stored: true,
                })
            };
            sections.push(mark().ok_or_else(|| corrupt("a mark of the oplog"))?);
        }
        let behind = sections.kept.back().map_or(0, |mark| mark.last) + 1;
        let low = behind.to_be_bytes();
        let mut cursor = snapshot.cursor(tree, Bound::Included(&low), Bound::Unbounded, forward)?;
        let mut open = Size::default();
        while let Some((key, value)) = cursor.next()? {
            open.entries += 1;
            open.bytes += value.len() as u64;
            if open.bytes < each {
                continue;
            }
            let entry = RawEntry::read(value)?;
            // The entries of a transaction are removed together.
            if !entry.is_partial() {
                sections.push(Mark {
                    last: timestamp_of_key(key).unwrap_or(0),
                    size: std::mem::take(&mut open),
                    ended_ms: entry.wall_ms(),
                    is_stored: false,
                });
            }
        }
        self.entries.store(open.entries, Ordering::Relaxed);
        self.bytes.store(open.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the entries of a commit, the last of which has the timestamp `last`.
    pub fn add(&self, last: u64, added: Added) {
        let entries = u64::from(added.entries);
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(added.bytes, Ordering::Relaxed);
        if self.is_full() {
            self.end_section(last);
        }
    }

    /// Whether the open section is to end.
    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.section_bytes.load(Ordering::Relaxed)
    }

    #[cold]
    fn end_section(&self, last: u64) {
        // If the lock is taken, a later commit ends the section, or the next step of trimming does.
        let Some(mut sections) = self.sections.try_lock() else {
            return;
        };
        // Another commit may have been faster.
        if self.is_full() {
            self.end_section_locked(&mut sections, last);
        }
    }

    fn end_section_locked(&self, sections: &mut Sections, last: u64) {
        let size = Size {
            entries: self.entries.swap(0, Ordering::Relaxed),
            bytes: self.bytes.swap(0, Ordering::Relaxed),
        };
        match sections.kept.back_mut() {
            // A later commit has ended a section before this one was counted. The entries are before that end.
            Some(mark) if mark.last >= last => {
                mark.size.entries += size.entries;
                mark.size.bytes += size.bytes;
                mark.is_stored = false;
                sections.total.entries += size.entries;
                sections.total.bytes += size.bytes;
            }
            _ => sections.push(Mark {
                last,
                size,
                ended_ms: now_ms(),
                is_stored: false,
            }),
        }
    }

    pub fn total(&self) -> Size {
        let sections = self.sections.lock();
        Size {
            entries: sections.total.entries + self.entries.load(Ordering::Relaxed),
            bytes: sections.total.bytes + self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Stores new marks, and removes the oldest sections beyond the settings. One section always stays. `last` is the timestamp
    /// of the last entry. `removing` is called before entries are removed, with the timestamp of the last one.
    ///
    /// # Errors
    /// Errors of the engine: then nothing has changed.
    pub fn trim(
        &self,
        engine: &Engine,
        tree: TreeId,
        settings: OplogSettings,
        last: &AtomicU64,
        now_ms: i64,
        removing: impl FnOnce(Timestamp),
    ) -> Result<Trimmed> {
        let each = section_bytes(settings.bytes_max);
        self.section_bytes.store(each, Ordering::Relaxed);
        let retention_ms = (settings.min_retention_hours * HOUR_MS) as i64;
        let mut batch = WriteSet::new();
        let (mut trimmed, mut removed) = (Trimmed::default(), 0);
        let mut sections = self.sections.lock();
        // The size of sections may be smaller now.
        if self.is_full() {
            self.end_section_locked(&mut sections, last.load(Ordering::Acquire));
        }
        let total = sections.total.bytes + self.bytes.load(Ordering::Relaxed);
        for (at, mark) in sections.kept.iter().enumerate() {
            let is_last = at + 1 == sections.kept.len();
            let is_old = now_ms.saturating_sub(mark.ended_ms) >= retention_ms;
            if is_last || !is_old || total - trimmed.bytes <= settings.bytes_max {
                break;
            }
            removed += 1;
            trimmed.entries += mark.size.entries;
            trimmed.bytes += mark.size.bytes;
            trimmed.to = Some(Timestamp::from_u64(mark.last));
            batch.delete(CATALOG_TREE, &key(mark.last));
        }
        for mark in sections.kept.iter().skip(removed) {
            if !mark.is_stored {
                let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
                let value = doc! {
                    "entries": count(mark.size.entries),
                    "bytes": count(mark.size.bytes),
                    "endedMs": mark.ended_ms,
                };
                batch.put(CATALOG_TREE, &key(mark.last), value.as_bytes());
            }
        }
        if let Some(to) = trimmed.to {
            let behind = (to.to_u64() + 1).to_be_bytes();
            batch.delete_range(tree, &[], Some(&behind));
            removing(to);
        }
        if batch.is_empty() {
            return Ok(trimmed);
        }
        batch.set_frees_space();
        // The lock is held, so that no section ends meanwhile: commits do not wait for it.
        engine.commit(batch, Durability::Logged)?;
        for _ in 0..removed {
            sections.pop();
        }
        for mark in &mut sections.kept {
            mark.is_stored = true;
        }
        Ok(trimmed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn added(bytes: u64) -> Added {
        Added { entries: 1, bytes }
    }

    #[test]
    fn sections_end_at_their_size() {
        let marks = Marks::default();
        marks.clear();
        for at in 1..=10 {
            marks.add(at, added(SECTION_BYTES_MIN / 4));
        }
        let kept: Vec<u64> = (marks.sections.lock().kept.iter())
            .map(|mark| mark.last)
            .collect();
        assert_eq!(kept, [4, 8]);
        let total = Size {
            entries: 10,
            bytes: SECTION_BYTES_MIN / 4 * 10,
        };
        assert_eq!(marks.total(), total);
    }

    #[test]
    fn sections_end_when_commits_are_counted_in_another_order_and_when_they_become_smaller() {
        let marks = Marks::default();
        marks.clear();
        let large = added(SECTION_BYTES_MIN * 3 / 2);
        marks.add(10, large);
        marks.add(5, large);
        assert_eq!(marks.bytes.load(Ordering::Relaxed), 0);
        marks.add(11, large);
        let kept = || -> Vec<(u64, u64)> {
            let sections = marks.sections.lock();
            let kept = sections.kept.iter();
            kept.map(|mark| (mark.last, mark.size.entries)).collect()
        };
        assert_eq!(kept(), [(10, 2), (11, 1)]);
        // The open section is larger than its new size.
        marks.section_bytes.store(1 << 20, Ordering::Relaxed);
        marks.add(12, large);
        let least = SECTION_BYTES_MIN;
        marks.section_bytes.store(least, Ordering::Relaxed);
        marks.add(13, added(1));
        assert_eq!(kept(), [(10, 2), (11, 1), (13, 2)]);
        let total = Size {
            entries: 5,
            bytes: large.bytes * 4 + 1,
        };
        assert_eq!(marks.total(), total);
    }
}
