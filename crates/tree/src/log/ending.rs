//! Ending a log earlier: a store that is restored gets the commits up to a moment.

use std::sync::Arc;

use frond_kv::operation::{is_sound, with_stamps};

use super::buffer::BUFFER_FILE;
use super::frame::FRAME_HEADER_BYTES;
use super::group::{self, HEADER_BYTES, Place};
use super::segment::{open_existing, segment_name, segments};
use super::segment_reader::Segment;
use crate::disk::Disk;
use crate::{Error, Result};

/// Which moment a restored store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestorePoint {
    /// All of the log.
    End,
    /// The commits before this position of the log.
    Position(u64),
    /// The commits before the first one with a stamp above this one.
    Stamp(u64),
}

/// The end of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The position after the last frame.
    pub(crate) end: u64,
    /// The last stamp of the commits that are left, if there is one.
    pub(crate) last_stamp: Option<u64>,
    /// Frames that a replay finds.
    pub(crate) frames: u64,
    /// The place of the cut, if there is one: the segment and the offset.
    cut: Option<Cut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    segment: u64,
    /// The offset of the first group that loses frames, and the number of bytes of its frames that stay.
    offset: u64,
    kept_bytes: usize,
}

/// Reads the log from `from` on, all of which must be sound, and finds where it is to end.
///
/// # Errors
/// [`Error::Corrupt`] where a group is missing or damaged, also at the end: what a backup has was durable.
/// [`Error::InvalidOption`] if the log ends before the position that is asked for.
pub(crate) fn end_at(disk: &Arc<dyn Disk>, from: u64, point: RestorePoint) -> Result<Ending> {
    let mut ending = Ending {
        end: from,
        ..Ending::default()
    };
    let starts = segments(&**disk)?;
    let first = starts
        .partition_point(|start| *start <= from)
        .saturating_sub(1);
    let starts = &starts[first..];
    let mut position = starts.first().copied().unwrap_or(from);
    for start in starts {
        let Some(file) = open_existing(&**disk, *start)? else {
            continue;
        };
        let segment = Segment::of(&**disk, file, *start)?;
        if *start != position || (*start == starts[0] && *start > from) {
            return Err(segment.corrupt(0, "the log before this segment is missing"));
        }
        let mut at = 0;
        while at < segment.len {
            let header = segment.header(at)?;
            let header = header.filter(|header| header.position == position);
            let damaged = || segment.corrupt(at, "a group of the log is missing or damaged");
            let header = header.ok_or_else(damaged)?;
            let frames = segment.frames(at, &header)?.ok_or_else(damaged)?;
            let mut kept_bytes = 0;
            if header.is_padding() {
                // An entry without frames, which a member of a replica set has.
                if position >= from {
                    if matches!(point, RestorePoint::Position(last) if header.end() > last) {
                        ending.cut = Some(Cut {
                            segment: *start,
                            offset: at,
                            kept_bytes,
                        });
                        return Ok(ending);
                    }
                    ending.end = header.end();
                }
                position = header.end();
                at += HEADER_BYTES as u64 + u64::from(header.stored_bytes);
                continue;
            }
            for payload in group::payloads(&frames) {
                let payload = payload.filter(|payload| is_sound(payload));
                let payload = payload.ok_or_else(damaged)?;
                let bytes = FRAME_HEADER_BYTES + payload.len();
                let end = position + bytes as u64;
                let stamp = with_stamps(payload).1;
                let is_after = match point {
                    RestorePoint::End => false,
                    RestorePoint::Position(last) => end > last,
                    RestorePoint::Stamp(last) => stamp.is_some_and(|stamp| stamp > last),
                };
                if position >= from {
                    if is_after {
                        ending.cut = Some(Cut {
                            segment: *start,
                            offset: at,
                            kept_bytes,
                        });
                        return Ok(ending);
                    }
                    ending.frames += 1;
                    ending.last_stamp = stamp.or(ending.last_stamp);
                    ending.end = end;
                }
                kept_bytes += bytes;
                position = end;
            }
            position = header.end();
            at += HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        }
    }
    if position < from {
        let text =
            format!("the log ends at position {position}; the checkpoint needs it from {from} on");
        return Err(Error::InvalidOption(text));
    }
    match point {
        RestorePoint::Position(last) if last > ending.end => {
            let text = format!("the log ends at position {}, before {last}", ending.end);
            Err(Error::InvalidOption(text))
        }
        _ => Ok(ending),
    }
}

impl Ending {
    /// Removes what comes after the end, durably. After an error or a crash the files have to be restored again.
    pub(crate) fn apply(&self, disk: &Arc<dyn Disk>) -> Result<()> {
        let names = disk.list().map_err(Error::io("listing the log"))?;
        if names.iter().any(|name| name == BUFFER_FILE) {
            // Its frames would continue the log.
            let context = Error::io(format!("removing {BUFFER_FILE}"));
            disk.remove(BUFFER_FILE).map_err(context)?;
        }
        if let Some(cut) = &self.cut {
            let starts = segments(&**disk)?;
            for later in starts.into_iter().rev().filter(|at| *at > cut.segment) {
                let name = segment_name(later);
                let context = Error::io(format!("removing {name}"));
                disk.remove(&name).map_err(context)?;
            }
            if let Some(file) = open_existing(&**disk, cut.segment)? {
                cut.apply(&Segment::of(&**disk, file, cut.segment)?)?;
            }
        }
        disk.sync_directory()
            .map_err(Error::io("syncing the store's directory"))
    }
}

impl Cut {
    fn apply(&self, segment: &Segment) -> Result<()> {
        let what = "a group of the log has changed while it was read";
        let mut end = self.offset;
        let context = || {
            let name = segment_name(self.segment);
            Error::io(format!("ending {name} at {}", self.offset))
        };
        if self.kept_bytes > 0 {
            let header = segment.header(self.offset)?;
            let header = header.ok_or_else(|| segment.corrupt(self.offset, what))?;
            let frames = segment.frames(self.offset, &header)?;
            let frames = frames
                .as_deref()
                .and_then(|frames| frames.get(..self.kept_bytes));
            let frames = frames.ok_or_else(|| segment.corrupt(self.offset, what))?;
            let place = Place {
                position: header.position,
                durable: header.durable,
                sequence: header.sequence,
            };
            let mut packed = Vec::new();
            let whole = group::seal(frames, &mut packed, place);
            let written = segment.rewrite(self.offset, whole);
            end += written.map_err(context())?;
        }
        segment.file.set_len(end).map_err(context())?;
        segment.file.sync().map_err(context())
    }
}
