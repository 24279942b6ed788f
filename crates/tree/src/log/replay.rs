//! Replay of the log when a store is opened.

use std::collections::VecDeque;
use std::sync::Arc;

use frond_kv::operation::{is_sound, numbers_of};
use xxhash_rust::xxh3::xxh3_64;

use super::buffer;
use super::entries::{CommitPoint, Entries};
use super::frame::FRAME_HEADER_BYTES;
use super::group::{self, HEADER_BYTES};
use super::recovered::{LeftFrames, Recovered, RecoveredMember, Unwritten};
use super::scan::scan;
use super::segment::{Failure, SegmentWriter, segment_name, segments};
use super::segment_reader::{MISSING, Segment};
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};

/// Frames of the buffer are written to a segment in groups of about this size.
const GROUP_BYTES: usize = 1 << 20;

/// Calls `visit` with position, first sequence number and payload of every frame from `from` on; it returns the
/// next sequence number. Truncates a torn end, and adds the frames that a killed process left in the buffer. Returns the
/// position after the last complete frame. All visited frames are durable then.
///
/// # Errors
/// [`Error::Corrupt`] if frames are missing or damaged anywhere but at the end, where they were not durable yet.
pub(crate) fn replay(
    disk: &Arc<dyn Disk>,
    from: u64,
    visit: impl FnMut(u64, u64, &[u8]) -> Result<u64>,
) -> Result<u64> {
    let recovered = replay_giving_room(disk, from, || {}, visit)?;
    match recovered.unwritten {
        Some(unwritten) => Err(unwritten.error),
        None => Ok(recovered.end),
    }
}

/// As [`replay`]. Calls `give_room` if the disk is too full to write what is in the buffer to a segment, and tries again. If
/// that does not help, the frames stay in the buffer: it is durable, and [`super::Log::open`] gets the task to write them later.
///
/// # Errors
/// As [`replay`].
pub(crate) fn replay_giving_room(
    disk: &Arc<dyn Disk>,
    from: u64,
    give_room: impl Fn(),
    mut visit: impl FnMut(u64, u64, &[u8]) -> Result<u64>,
) -> Result<Recovered> {
    let walked = walk_segments(disk, from, &mut visit)?;
    let found = buffer::Found::read(&**disk)?;
    let frames = found.after(walked.position, walked.sequence, walked.last)?;
    let mut writer = walked.writer(disk);
    // The durable position of a group holds for all groups before it in its segment. Groups before `from` were not read, and
    // may have been lost.
    if let Some((file, start, len)) = walked.tail.filter(|(_, start, _)| *start >= from) {
        writer.resume(file, start, len);
    }
    let unwritten = move_to_segment(disk, writer, &frames, give_room)?;
    let mut end = walked.position;
    for (position, sequence, payload) in frames {
        end = position + (FRAME_HEADER_BYTES + payload.len()) as u64;
        visit(position, sequence, payload)?;
    }
    assert!(
        end >= from && end >= walked.position,
        "R3: a replay ends before it begins"
    );
    Ok(Recovered {
        from,
        end,
        unwritten,
        member: None,
        writer: None,
        applied: end,
    })
}

/// As [`replay_giving_room`], for a member of a replica set, whose checkpoint has `point`. Only what is known to be committed is
/// visited, and frames that are in no entry are kept apart. Before the first visit `found` gets what is committed, which a checkpoint
/// during the replay needs.
///
/// # Errors
/// As [`replay`]; [`Error::InvalidOption`] if the store was written to outside of its replica set.
pub(crate) fn replay_member(
    disk: &Arc<dyn Disk>,
    from: u64,
    point: Option<CommitPoint>,
    found: impl FnOnce(CommitPoint),
    give_room: impl Fn(),
    mut visit: impl FnMut(u64, u64, &[u8]) -> Result<u64>,
) -> Result<Recovered> {
    let (mut entries, committed) = match (scan(&**disk)?, &point) {
        (Some(scanned), _) => (scanned.entries, scanned.committed),
        (None, Some(point)) => (Entries::new(Some(point.id), point.to), 0),
        (None, None) => {
            // The store becomes a member. All that it has comes before the first entry.
            let mut recovered = replay_giving_room(disk, from, give_room, visit)?;
            if recovered.unwritten.is_none() {
                recovered.member = Some(RecoveredMember {
                    entries: Entries::new(None, recovered.end),
                    committed: None,
                    committed_to: recovered.end,
                    left: None,
                });
            }
            return Ok(recovered);
        }
    };
    let marked = committed
        .checked_sub(1)
        .and_then(|last| entries.id(last.min(entries.next() - 1)));
    let committed = marked.max(point.as_ref().map(|point| point.id));
    let known = point.as_ref().map_or(0, |point| point.to);
    let end = committed.and_then(|committed| entries.end_of(committed.index));
    // Frames before the first entry were there when the store became a member's, or their entries were purged.
    let limit = end.unwrap_or(entries.start()).max(known).min(entries.end());
    if let Some((id, note)) = point.and_then(|point| point.note) {
        entries.add_note(id, note);
    }
    if let Some(id) = committed {
        found(CommitPoint {
            id,
            to: limit,
            note: entries.note_by(id.index),
        });
    }
    let walked = walk_segments(disk, from, &mut |position, sequence, payload: &[u8]| {
        if position < limit {
            visit(position, sequence, payload)
        } else {
            Ok(sequence + numbers_of(payload))
        }
    })?;
    if walked.position != entries.end() || entries.end() < known {
        return Err(Error::Corrupt {
            file: segment_name(walked.position),
            offset: 0,
            what: "the log lacks entries that were committed",
        });
    }
    let buffers = buffer::Found::read(&**disk)?;
    let frames = buffers.after(walked.position, walked.sequence, walked.last)?;
    let mut left: Option<LeftFrames> = None;
    for (_, sequence, payload) in frames {
        let left = left.get_or_insert_with(|| LeftFrames {
            sequence,
            frames: Vec::new(),
        });
        group::push_frame(&mut left.frames, payload);
    }
    if left.is_none() && disk.ciphers().is_some() && buffer::is_plain(&**disk)? {
        // All of its frames are in the segments, which are synced. A member makes an encrypted buffer when it leads.
        buffer::remove(&**disk)?;
    }
    let mut writer = walked.writer(disk);
    // Entries are synced before a checkpoint relies on them, so none before `from` was lost.
    if let Some((file, start, len)) = walked.tail {
        writer.resume(file, start, len);
    }
    Ok(Recovered {
        from,
        end: walked.position + left.as_ref().map_or(0, |left| left.frames.len() as u64),
        unwritten: None,
        member: Some(RecoveredMember {
            entries,
            committed,
            committed_to: limit,
            left,
        }),
        writer: Some(writer),
        applied: limit,
    })
}

/// The end of the segments.
struct Walked {
    position: u64,
    sequence: Option<u64>,
    last: Option<u64>,
    /// The last segment, where it begins, and the bytes of its groups.
    tail: Option<(Arc<dyn DiskFile>, u64, u64)>,
}

impl Walked {
    /// The writer of the next group.
    fn writer(&self, disk: &Arc<dyn Disk>) -> SegmentWriter {
        SegmentWriter::new(Arc::clone(disk), self.position, usize::MAX, Arc::default())
    }
}

/// Visits the frames in segments from `from` on, and truncates and syncs the last segment.
fn walk_segments(
    disk: &Arc<dyn Disk>,
    from: u64,
    visit: &mut impl FnMut(u64, u64, &[u8]) -> Result<u64>,
) -> Result<Walked> {
    let starts = segments(&**disk)?;
    let first = starts
        .partition_point(|start| *start <= from)
        .saturating_sub(1);
    let starts = &starts[first..];
    let mut walk = Walk {
        from,
        position: starts.first().copied().unwrap_or(from),
        sequence: None,
        last: None,
        visit,
    };
    let mut tail = None;
    for (index, start) in starts.iter().enumerate() {
        let segment = Segment::open(&**disk, *start)?;
        if *start != walk.position || (*start > from && index == 0) {
            return Err(segment.corrupt(0, MISSING));
        }
        let mut at = 0;
        while let Step::To(next) = walk.step(&segment, at)? {
            at = next;
        }
        if at < segment.len {
            if index + 1 < starts.len() {
                return Err(segment.corrupt(at, MISSING));
            }
            let context = format!("truncating {} to {at}", segment_name(*start));
            segment.file.set_len(at).map_err(Error::io(context))?;
        }
        if index + 1 == starts.len() {
            // After a crash of the process alone, unsynced frames can be read here but are not durable.
            let context = format!("syncing {}", segment_name(*start));
            segment.file.sync().map_err(Error::io(context))?;
            tail = Some((segment.file, *start, at));
        }
    }
    if walk.position < from {
        // The end of the log is lost, so nothing is known of the frame before.
        return Ok(Walked {
            position: from,
            sequence: None,
            last: None,
            tail: None,
        });
    }
    Ok(Walked {
        position: walk.position,
        sequence: walk.sequence,
        last: walk.last,
        tail,
    })
}

/// Writes frames of the buffer to the log and syncs it. Returns those for which there is no room.
fn move_to_segment(
    disk: &Arc<dyn Disk>,
    mut writer: SegmentWriter,
    frames: &[(u64, u64, &[u8])],
    give_room: impl Fn(),
) -> Result<Option<Unwritten>> {
    let is_full = |written: &Result<(), Failure>| {
        let failure = written.as_ref().err();
        failure.is_some_and(|failure| failure.error().is_disk_full())
    };
    let mut groups = groups(frames);
    while let Some((sequence, group)) = groups.front() {
        let mut written = writer.write(group, *sequence);
        // The reserve of the process that was killed may be there still.
        if is_full(&written) && writer.make_reserve().is_ok() {
            written = writer.write(group, *sequence);
        }
        if is_full(&written) {
            give_room();
            written = writer.write(group, *sequence);
        }
        match written {
            Ok(()) => groups.pop_front(),
            Err(Failure::Retryable(error)) if error.is_disk_full() => {
                buffer::sync(&**disk)?;
                return Ok(Some(Unwritten {
                    writer,
                    groups,
                    error,
                }));
            }
            Err(failure) => return Err(failure.into_error()),
        };
    }
    assert!(
        groups.is_empty(),
        "R5: frames of the buffer are in no segment"
    );
    // The segment is left. On a full disk the next one needs what was allocated for this one.
    writer.trim();
    if !frames.is_empty() {
        writer.sync().map_err(Failure::into_error)?;
    }
    Ok(None)
}

/// Joins frames to groups: the number of the first operation, and the frames.
fn groups(frames: &[(u64, u64, &[u8])]) -> VecDeque<(u64, Vec<u8>)> {
    let mut groups: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    for (_, sequence, payload) in frames {
        match groups.back_mut() {
            Some((_, group)) if group.len() < GROUP_BYTES => {
                group::push_frame(group, payload);
            }
            _ => {
                let mut group = Vec::new();
                group::push_frame(&mut group, payload);
                groups.push_back((*sequence, group));
            }
        }
    }
    groups
}

/// Checks the groups before `start`, which a replay skips. Each segment is checked on its own: after a crash some deleted
/// segments may be back. Calls `note` for damaged groups that were durable once, and returns the number of bytes
/// that are no groups and may never have been durable.
pub(crate) fn check_passed(disk: &dyn Disk, start: u64, mut note: impl FnMut(Error)) -> u64 {
    let mut lost = 0;
    let starts = segments(disk).unwrap_or_else(|error| {
        note(error);
        Vec::new()
    });
    for first in starts.into_iter().take_while(|first| *first < start) {
        let segment = Segment::open(disk, first);
        match segment.and_then(|segment| segment.check_passed(start)) {
            Ok(bytes) => lost += bytes,
            Err(error) => note(error),
        }
    }
    lost
}

/// The position at which the oldest segment starts, if there is one.
pub(crate) fn oldest_position(disk: &dyn Disk) -> Result<Option<u64>> {
    Ok(segments(disk)?.first().copied())
}

/// The result of reading one group of a segment.
enum Step {
    To(u64),
    /// There are no more valid groups in the segment.
    End,
}

struct Walk<'a, F> {
    from: u64,
    /// R3: position of the next group: the end of the one before.
    position: u64,
    /// R4: the next sequence number, once one was seen. Another one in the log is damage.
    sequence: Option<u64>,
    /// Checksum of the payload of the frame before `position`, if that one was read.
    last: Option<u64>,
    visit: &'a mut F,
}

impl<F: FnMut(u64, u64, &[u8]) -> Result<u64>> Walk<'_, F> {
    /// Handles the group at `at`.
    fn step(&mut self, segment: &Segment, at: u64) -> Result<Step> {
        if at >= segment.len {
            return Ok(Step::End);
        }
        let header = segment
            .header(at)?
            .filter(|header| header.position == self.position);
        let Some(header) = header else {
            return self.resume(segment, at, at + 1);
        };
        let end = at + HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        if header.end() <= self.from && end <= segment.len {
            self.position = header.end();
            self.last = None;
            return Ok(Step::To(end));
        }
        let Some(frames) = segment.frames(at, &header)? else {
            return self.resume(segment, at, end);
        };
        if header.is_padding() {
            self.position = header.end();
            return Ok(Step::To(end));
        }
        if self.sequence.is_some_and(|next| next != header.sequence) {
            return Err(segment.corrupt(at, "the sequence numbers of the log have a gap"));
        }
        let (mut sequence, mut last) = (header.sequence, None);
        for payload in group::payloads(&frames) {
            let payload = (payload.filter(|payload| is_sound(payload)))
                .ok_or_else(|| segment.corrupt(at, "a frame of the log is malformed"))?;
            let position = self.position;
            self.position += (FRAME_HEADER_BYTES + payload.len()) as u64;
            last = Some(xxh3_64(payload));
            if position >= self.from {
                sequence = (self.visit)(position, sequence, payload)?;
            } else {
                sequence += numbers_of(payload);
            }
        }
        assert!(
            self.position == header.end(),
            "R3: the frames of a group do not fill it"
        );
        assert!(end <= segment.len, "R3: a group ends behind its segment");
        (self.sequence, self.last) = (Some(sequence), last);
        Ok(Step::To(end))
    }

    /// Decides whether a damaged group at `at` is a torn end or a loss, and searches for later groups from `scan` on.
    fn resume(&mut self, segment: &Segment, at: u64, mut scan: u64) -> Result<Step> {
        let lost = self.position.max(self.from);
        while let Some((found_at, header)) = segment.find_header(scan, self.position)? {
            if header.position <= self.from {
                // The lost groups are before the start of the replay.
                (self.position, self.last) = (header.position, None);
                return Ok(Step::To(found_at));
            }
            // Unsynced writes may reach the disk in any order, so a later group proves a loss only if it was
            // written after a sync of the damaged one.
            if header.durable > lost {
                return Err(segment.corrupt(at, MISSING));
            }
            scan = found_at + 1;
        }
        Ok(Step::End)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::disk::FsDisk;
    use crate::log::frame::{Checksum, Frame};
    use crate::log::segment::SegmentWriter;
    use crate::{TreeId, WriteSet};

    /// Positions and sequence numbers.
    type Frames = Vec<(u64, u64)>;

    /// A log on a disk.
    struct Written {
        directory: tempfile::TempDir,
        frames: Frames,
        end: u64,
        /// Where each group starts in the file, and the end.
        groups: Vec<u64>,
    }

    /// Two operations, or guards only.
    fn payload(number: u64) -> Vec<u8> {
        let mut set = WriteSet::new();
        if !number.is_multiple_of(3) {
            set.put(TreeId(1), &number.to_be_bytes(), &[number as u8; 400]);
            set.delete(TreeId(1), b"gone");
        }
        set.payload().to_vec()
    }

    /// Three groups of three frames, each synced before the next one is written, if `synced`.
    fn write_log(synced: bool) -> Written {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Written {
            directory,
            frames: Vec::new(),
            end: 0,
            groups: vec![0],
        };
        let bytes = Arc::default();
        let mut writer = SegmentWriter::new(log.disk(), 0, 1 << 20, Arc::clone(&bytes));
        writer.begin().unwrap();
        let mut sequence = 1;
        for group in 0..3 {
            let (mut buffer, first) = (Vec::new(), sequence);
            for frame in 0..3 {
                let payload = payload(group * 3 + frame);
                log.frames.push((log.end, sequence));
                log.end += group::push_frame(&mut buffer, &payload) as u64;
                sequence += numbers_of(&payload);
            }
            writer.write(&buffer, first).unwrap();
            if synced {
                writer.sync().unwrap();
            }
            log.groups
                .push(bytes.load(std::sync::atomic::Ordering::Relaxed));
        }
        log
    }

    impl Written {
        fn disk(&self) -> Arc<dyn Disk> {
            Arc::new(FsDisk::new(self.directory.path().to_owned(), false))
        }

        fn file(&self) -> PathBuf {
            self.directory.path().join(segment_name(0))
        }

        fn flip(&self, at: u64) {
            let mut bytes = std::fs::read(self.file()).unwrap();
            bytes[at as usize] ^= 4;
            std::fs::write(self.file(), bytes).unwrap();
        }

        /// The frames from `from` on, and the end of the log; or where it is damaged.
        fn replay(&self, from: u64) -> Result<(Frames, u64), u64> {
            let mut frames = Vec::new();
            let end = replay(&self.disk(), from, |position, sequence, payload| {
                frames.push((position, sequence));
                Ok(sequence + numbers_of(payload))
            });
            match end {
                Ok(end) => Ok((frames, end)),
                Err(Error::Corrupt { offset, .. }) => Err(offset),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn starts_at_any_frame() {
        let log = write_log(true);
        for (index, (position, _)) in log.frames.iter().enumerate() {
            let rest = log.frames[index..].to_vec();
            assert_eq!(log.replay(*position), Ok((rest, log.end)));
        }
        assert_eq!(log.replay(log.end), Ok((Vec::new(), log.end)));
        let behind = log.end + 1000;
        assert_eq!(
            log.replay(behind),
            Ok((Vec::new(), behind)),
            "its end is lost"
        );
    }

    #[test]
    fn a_damaged_group_is_an_error_if_it_was_durable() {
        // Of each group a byte of the header, one of the position in it, and the last one.
        for group in 0..3 {
            for from in 0..3 {
                for synced in [true, false] {
                    for place in [0, 9, u64::MAX] {
                        let log = write_log(synced);
                        let (start, next) = (log.groups[group], log.groups[group + 1]);
                        log.flip(start + place.min(next - start - 1));
                        let whole = log.frames[from * 3..].to_vec();
                        let expected = match group {
                            _ if group < from => Ok((whole, log.end)),
                            0 | 1 if synced => Err(start),
                            _ => {
                                let kept = log.frames[from * 3..group * 3].to_vec();
                                Ok((kept, log.frames[group * 3].0))
                            }
                        };
                        assert_eq!(
                            log.replay(log.frames[from * 3].0),
                            expected,
                            "group {group}, byte {place}, from {from}, synced {synced}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_malformed_frame_is_an_error_and_never_shortened() {
        // All frames pass their checksums; one has bytes that no write set encodes.
        let sound = payload(1);
        let malformed = [
            // Cut within an operation, also right after its code.
            sound[..sound.len() - 1].to_vec(),
            [&sound[..], &[0]].concat(),
            // An operation that no version has.
            [&sound[..], &[200; 40]].concat(),
        ];
        for (bad, from_bad) in malformed.iter().flat_map(|bad| [(bad, true), (bad, false)]) {
            let directory = tempfile::tempdir().unwrap();
            let disk: Arc<dyn Disk> = Arc::new(FsDisk::new(directory.path().to_owned(), false));
            let mut writer = SegmentWriter::new(Arc::clone(&disk), 0, 1 << 20, Arc::default());
            writer.begin().unwrap();
            let mut at = 0;
            let mut write = |frames: &[&[u8]], sequence| {
                let mut buffer = Vec::new();
                for frame in frames {
                    at += group::push_frame(&mut buffer, frame) as u64;
                }
                writer.write(&buffer, sequence).unwrap();
                at
            };
            let first = write(&[&sound], 1);
            write(&[bad, &sound], 3);
            drop(writer);
            let mut frames = 0;
            let from = if from_bad { first } else { 0 };
            let replayed = replay(&disk, from, |_, sequence, payload| {
                frames += 1;
                Ok(sequence + numbers_of(payload))
            });
            assert_eq!(frames, u64::from(!from_bad));
            match replayed {
                Err(Error::Corrupt { file, what, .. }) => {
                    assert_eq!(file, segment_name(0));
                    assert_eq!(what, "a frame of the log is malformed");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_malformed_frame_of_the_buffer_is_an_error_too() {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(FsDisk::new(directory.path().to_owned(), false));
        let [mut buffer, _] = buffer::open(&*disk, 64 << 10).unwrap().unwrap();
        let (mut position, mut previous) = (0, 0);
        let malformed = [&payload(1)[..], &[0]].concat();
        for (number, payload) in [payload(1), malformed].iter().enumerate() {
            let checksum = Checksum::of(payload, false);
            let frame = Frame::new(payload, checksum, 1 + 2 * number as u64, None);
            buffer.push(&frame, position, previous);
            position += frame.len() as u64;
            previous = frame.hash;
        }
        drop(buffer);
        match replay(&disk, 0, |_, sequence, _| Ok(sequence + 2)) {
            Err(Error::Corrupt { file, what, .. }) => {
                assert_eq!(file, "log-buffer.frond");
                assert_eq!(what, "a frame of the log is malformed");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_torn_end_is_cut_off_once() {
        for cut in 0..5 {
            let log = write_log(true);
            let (start, end) = (log.groups[2], log.groups[3]);
            let len = start + (end - start) * cut / 5;
            let file = std::fs::OpenOptions::new().write(true).open(log.file());
            file.unwrap().set_len(len).unwrap();
            let expected = Ok((log.frames[..6].to_vec(), log.frames[6].0));
            assert_eq!(log.replay(0), expected);
            assert_eq!(std::fs::metadata(log.file()).unwrap().len(), start);
            assert_eq!(log.replay(0), expected);
        }
    }

    #[test]
    fn a_missing_segment_is_an_error() {
        let log = write_log(true);
        let mut writer = SegmentWriter::new(log.disk(), log.end, 1 << 20, Arc::default());
        writer.begin().unwrap();
        assert_eq!(log.replay(0), Ok((log.frames.clone(), log.end)));
        std::fs::remove_file(log.file()).unwrap();
        assert_eq!(log.replay(0), Err(0));
        assert_eq!(log.replay(log.end), Ok((Vec::new(), log.end)));
        let log = write_log(true);
        let mut writer = SegmentWriter::new(log.disk(), log.end, 1 << 20, Arc::default());
        writer.begin().unwrap();
        log.flip(log.groups[2]);
        assert_eq!(
            log.replay(0),
            Err(log.groups[2]),
            "a group that is not at the end"
        );
    }
}
