//! Finds the entries of the replicated log that the segments have.

use frond_kv::EntryId;

use super::entries::{Entries, GroupPlace};
use super::group::{HEADER_BYTES, Header, MARK_BYTES, Mark};
use super::segment::{open_existing, segments};
use super::segment_reader::Segment;
use crate::disk::Disk;
use crate::{Error, Result};

/// The entries that the segments of a disk have. Those with lower numbers than `committed` are known to be committed.
pub(super) struct Scanned {
    pub(super) entries: Entries,
    pub(super) committed: u64,
}

/// Reads the marks of all groups. A group that is not complete ends the log, as in a replay, which finds out whether that is
/// damage. Entries before a gap between segments are of no use: the segments between them were deleted.
///
/// # Errors
/// [`Error::InvalidOption`] if groups that are no entries follow entries: the store was written to outside of its replica set.
pub(super) fn scan(disk: &dyn Disk) -> Result<Option<Scanned>> {
    let starts = segments(disk)?;
    let mut scanned: Option<Scanned> = None;
    let mut position = starts.first().copied().unwrap_or(0);
    for start in starts {
        let Some(file) = open_existing(disk, start)? else {
            continue;
        };
        if start != position {
            (scanned, position) = (None, start);
        }
        let segment = Segment::of(disk, file, start)?;
        let mut at = 0;
        while at < segment.len {
            let wanted = (segment.len - at).min((HEADER_BYTES + MARK_BYTES) as u64);
            let bytes = segment.read(at, wanted as usize)?;
            let header = Header::decode(&bytes).filter(|header| header.position == position);
            let Some(header) = header else {
                break;
            };
            let len = HEADER_BYTES as u64 + u64::from(header.stored_bytes);
            if at + len > segment.len {
                break;
            }
            segment.check_form(at, &header)?;
            match (header.is_entry, &mut scanned) {
                (true, _) => {
                    let Some(mark) = Mark::decode(&bytes[HEADER_BYTES..], position) else {
                        break;
                    };
                    let note_at = HEADER_BYTES + MARK_BYTES;
                    let note = if mark.note_bytes > 0 && header.is_sealed {
                        match segment.group(at, len as usize)? {
                            Some(group) => {
                                let note = group.get(note_at..note_at + mark.note_bytes as usize);
                                let damaged = "an entry of the log is damaged";
                                note.ok_or_else(|| segment.corrupt(at, damaged))?.to_vec()
                            }
                            // As in a replay.
                            None => break,
                        }
                    } else {
                        segment.read(at + note_at as u64, mark.note_bytes as usize)?
                    };
                    let place = GroupPlace {
                        segment: start,
                        offset: at,
                        bytes: len,
                    };
                    add(&mut scanned, position, header.end(), &mark, &note, place)
                        .ok_or_else(|| segment.corrupt(at, "an entry of the log is missing"))?;
                }
                (false, Some(_)) => {
                    let text = "the store was written to outside of its replica set; start it with an empty directory, \
                                so that it copies another member";
                    return Err(Error::InvalidOption(text.to_owned()));
                }
                (false, None) => {}
            }
            at += len;
            position = header.end();
        }
    }
    Ok(scanned)
}

/// Adds an entry. What came before the first one that is found was purged.
fn add(
    scanned: &mut Option<Scanned>,
    from: u64,
    to: u64,
    mark: &Mark,
    note: &[u8],
    place: GroupPlace,
) -> Option<()> {
    let scanned = scanned.get_or_insert_with(|| Scanned {
        entries: Entries::new(
            mark.id.index.checked_sub(1).map(|index| EntryId {
                term: mark.previous_term,
                index,
            }),
            from,
        ),
        committed: 0,
    });
    let entries = &mut scanned.entries;
    if !entries.follows(mark.id) || entries.end() != from {
        return None;
    }
    entries.push(mark.id, to, note);
    entries.set_place(mark.id.index, place);
    scanned.committed = scanned.committed.max(mark.committed);
    Some(())
}
