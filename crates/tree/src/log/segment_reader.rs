//! Reads the groups of a segment.

use std::sync::Arc;

use frond_encryption::Ciphers;

use super::group::{self, HEADER_BYTES, Header};
use super::sealing;
use super::segment::{open_segment, segment_name};
use crate::block::needs_key;
use crate::disk::{Disk, DiskFile};
use crate::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are read at once in the search for a valid header.
const SCAN_BYTES: usize = 1 << 20;

pub(super) const MISSING: &str = "a group of the log is missing or damaged, and later ones follow";

/// A segment that is read.
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) len: u64,
    ciphers: Option<Arc<Ciphers>>,
}

impl Segment {
    pub(super) fn open(disk: &dyn Disk, start: u64) -> Result<Segment> {
        Segment::of(disk, open_segment(disk, start)?, start)
    }

    /// A segment that is open.
    pub(super) fn of(disk: &dyn Disk, file: Arc<dyn DiskFile>, start: u64) -> Result<Segment> {
        let context = format!("getting the length of {}", segment_name(start));
        let len = file.len().map_err(Error::io(context))?;
        Ok(Segment {
            start,
            file,
            len,
            ciphers: disk.ciphers().cloned(),
        })
    }

    pub(super) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.file.read_at(&mut bytes, at) {
            Ok(()) => Ok(bytes),
            Err(source) => Err(Error::Unreadable {
                file: segment_name(self.start),
                offset: at,
                bytes: len,
                source,
            }),
        }
    }

    /// The header at `at`, if it is valid and its position is possible here.
    pub(super) fn header(&self, at: u64) -> Result<Option<Header>> {
        if self.len.saturating_sub(at) < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let header = Header::decode(&self.read(at, HEADER_BYTES)?);
        if let Some(header) = &header {
            self.check_form(at, header)?;
        }
        Ok(header)
    }

    /// Fails for an encrypted group without keys, and for an unencrypted group with keys unless the store is being encrypted.
    pub(super) fn check_form(&self, at: u64, header: &Header) -> Result<()> {
        match (header.is_sealed, &self.ciphers) {
            (true, None) => Err(needs_key()),
            (false, Some(ciphers)) if !ciphers.accepts_plain() => {
                Err(self.corrupt(at, "a group of the log is not encrypted, but the store is"))
            }
            _ => Ok(()),
        }
    }

    /// The usual form of a whole group that was read at `at`, and whose header was decoded. `None` if its checksum does not match.
    fn opened(
        &self,
        at: u64,
        header: &Header,
        group: Vec<u8>,
    ) -> Result<Option<(Header, Vec<u8>)>> {
        if !header.matches(&group[HEADER_BYTES..]) {
            return Ok(None);
        }
        match &self.ciphers {
            Some(ciphers) if header.is_sealed || !ciphers.accepts_plain() => {
                let opened = sealing::open(ciphers, header, group);
                opened.map(Some).map_err(|what| self.corrupt(at, what))
            }
            _ => Ok(Some((*header, group))),
        }
    }

    /// The usual form of the group of `len` bytes at `at`, with its header, if it is complete.
    pub(super) fn group(&self, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let group = self.read(at, len)?;
        let Some(header) = Header::decode(&group) else {
            return Ok(None);
        };
        self.check_form(at, &header)?;
        let Some((mut header, mut group)) = self.opened(at, &header, group)? else {
            return Ok(None);
        };
        if self.ciphers.is_some() {
            header.checksum = xxh3_64(&group[HEADER_BYTES..]);
            header.encode(&mut group);
        }
        Ok(Some(group))
    }

    /// Replaces the group at `at`, of which nothing follows, by another one in its usual form. Returns the bytes of its stored form.
    pub(super) fn rewrite(&self, at: u64, group: &[u8]) -> std::io::Result<u64> {
        let mut sealed = Vec::new();
        let stored = match &self.ciphers {
            None => group,
            Some(ciphers) => {
                let malformed = std::io::ErrorKind::InvalidData;
                sealing::seal(ciphers, &[group], &mut sealed).ok_or(malformed)?;
                &sealed
            }
        };
        self.file.write_at(stored, at)?;
        Ok(stored.len() as u64)
    }

    /// The frames of the group at `at`, if it is complete.
    pub(super) fn frames(&self, at: u64, header: &Header) -> Result<Option<Vec<u8>>> {
        let end = at + HEADER_BYTES as u64 + u64::from(header.stored_bytes);
        if end > self.len {
            return Ok(None);
        }
        if self.ciphers.is_none() {
            let stored = self.read(at + HEADER_BYTES as u64, header.stored_bytes as usize)?;
            return Ok(header.frames(&stored));
        }
        let group = self.read(at, HEADER_BYTES + header.stored_bytes as usize)?;
        let opened = self.opened(at, header, group)?;
        Ok(opened.and_then(|(header, group)| header.frames_of(&group[HEADER_BYTES..])))
    }

    /// The first valid header from `at` on whose position is above `above`, and its offset.
    pub(super) fn find_header(&self, mut at: u64, above: u64) -> Result<Option<(u64, Header)>> {
        while at + HEADER_BYTES as u64 <= self.len {
            let wanted = (self.len - at).min(SCAN_BYTES as u64) as usize;
            let bytes = self.read(at, wanted)?;
            let starts = bytes.len() - HEADER_BYTES + 1;
            for start in 0..starts {
                let bytes = &bytes[start..];
                // Checking the position first avoids most of the checksums.
                let position = Header::claimed_position(bytes).unwrap_or(0);
                if position > above
                    && position - above < 1 << 40
                    && let Some(header) = Header::decode(bytes)
                {
                    if header.is_sealed && self.ciphers.is_none() {
                        return Err(needs_key());
                    }
                    return Ok(Some((at + start as u64, header)));
                }
            }
            at += starts as u64;
        }
        Ok(None)
    }

    /// Reads the groups before `end`, and returns the number of bytes that are no groups.
    pub(super) fn check_passed(&self, end: u64) -> Result<u64> {
        let (mut at, mut position, mut lost) = (0, self.start, 0);
        while at < self.len && position < end {
            let header = self.header(at)?.filter(|found| found.position == position);
            let mut scan = at + 1;
            if let Some(header) = header {
                scan = at + HEADER_BYTES as u64 + u64::from(header.stored_bytes);
                let frames = self.frames(at, &header)?;
                if frames.is_some_and(|frames| group::payloads(&frames).all(|it| it.is_some())) {
                    (at, position) = (scan, header.end());
                    continue;
                }
            }
            let mut next = None;
            while let Some((found_at, header)) = self.find_header(scan, position)? {
                if header.durable > position {
                    return Err(self.corrupt(at, MISSING));
                }
                next = next.or(Some((found_at, header.position)));
                scan = found_at + 1;
            }
            let (next_at, next_position) = next.unwrap_or((self.len, end));
            lost += next_at - at;
            (at, position) = (next_at, next_position);
        }
        Ok(lost)
    }

    pub(super) fn corrupt(&self, offset: u64, what: &'static str) -> Error {
        Error::Corrupt {
            file: segment_name(self.start),
            offset,
            what,
        }
    }
}
