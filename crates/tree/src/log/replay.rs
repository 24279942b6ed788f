//! Reading the log after a start.

use super::frame::{self, HEADER_BYTES};
use super::{open_segment, segment_name, segments};
use crate::disk::Disk;
use crate::{Error, Result};

/// Calls `visit` with position, first sequence number and payload of every frame from `from` on,
/// cuts a torn end off, and returns the position behind the last whole frame.
///
/// # Errors
/// [`Error::Corrupt`] if frames are missing or damaged anywhere but at the very end.
pub(crate) fn replay(
    disk: &dyn Disk,
    from: u64,
    mut visit: impl FnMut(u64, u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let starts = segments(disk)?;
    let first = starts
        .partition_point(|start| *start <= from)
        .saturating_sub(1);
    let mut position = from;
    let Some(starts) = starts.get(first..) else {
        return Ok(from);
    };
    for (index, start) in starts.iter().enumerate() {
        let is_last = index + 1 == starts.len();
        let gap = |offset| Error::Corrupt {
            file: segment_name(*start),
            offset,
            what: "a frame of the log is missing or damaged, and later ones follow",
        };
        if index == 0 && *start > position || index > 0 && *start != position {
            return Err(gap(0));
        }
        let file = open_segment(disk, *start)?;
        let context = || format!("reading {}", segment_name(*start));
        let len = file.len().map_err(Error::io(context()))?;
        let mut at = if index == 0 { position - start } else { 0 };
        let mut buffer = Vec::new();
        loop {
            let mut header = [0; HEADER_BYTES];
            let available = len.saturating_sub(at);
            if available < HEADER_BYTES as u64 {
                break;
            }
            file.read_at(&mut header, at)
                .map_err(Error::io(context()))?;
            let Some(payload_len) = frame::payload_len(&header, start + at) else {
                break;
            };
            let frame_len = HEADER_BYTES + payload_len;
            if available < frame_len as u64 {
                break;
            }
            buffer.resize(frame_len, 0);
            file.read_at(&mut buffer, at)
                .map_err(Error::io(context()))?;
            let Some(frame) = frame::decode(&buffer, start + at) else {
                break;
            };
            visit(start + at, frame.sequence, frame.payload)?;
            at += frame_len as u64;
        }
        position = start + at;
        if at < len {
            if !is_last {
                return Err(gap(at));
            }
            file.set_len(at).map_err(Error::io(context()))?;
            file.sync().map_err(Error::io(context()))?;
        }
    }
    Ok(position)
}
