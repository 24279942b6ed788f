//! Reading a store that may be damaged: problems are recorded, and the walk continues.
//!
//! Nothing is written, and only bytes with a valid checksum are trusted.

use std::fmt;

use crate::block::Place;
use crate::data_file::{DATA_FILE, DataFile, block_extent};
use crate::disk::{ALIGNMENT, AlignedBuf, Disk};
use crate::free_map::{DATA_START, FreeMap};
use crate::manifest::{self, Manifest, Superblock, TreeRef};
use crate::metadata::Copies;
use crate::node::{NodeRef, RunRef};
use crate::page::Page;
use crate::run_index::RunIndex;
use crate::{Error, Result, TreeId};

/// The kind of a problem in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The disk failed to read the bytes.
    Unreadable,
    /// A checksum does not match, or a superblock is missing.
    Damaged,
    /// The checksum matches, but the content is invalid.
    Malformed,
    /// Keys, pivots or run numbers are not in ascending order.
    Order,
    /// Keys are outside of their recorded range, or figures differ from the recorded ones.
    Bounds,
    /// A filter lacks a key of its run.
    Filter,
    /// Bytes after the last block of an extent are not zero.
    Padding,
    /// Two extents have some bytes in common.
    Overlap,
    /// The log cannot be replayed.
    Log,
}

/// A problem in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of the file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The tree that it concerns, if it is one.
    pub tree: Option<TreeId>,
    /// The kind of problem that it is.
    pub kind: ProblemKind,
    /// A description of the problem.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.file, self.offset)?;
        if let Some(tree) = self.tree {
            write!(f, ", tree {}", tree.0)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// The progress of a walk over a store, in bytes of its data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read so far.
    pub done_bytes: u64,
    /// Total bytes. Free space is included, so the walk may end before.
    pub total_bytes: u64,
}

/// Reads a store and records its problems.
pub(crate) struct Inspector<'a> {
    pub(crate) data: DataFile,
    pub(crate) file_len: u64,
    pub(crate) problems: Vec<Problem>,
    /// The tree that problems belong to.
    pub(crate) tree: Option<TreeId>,
    progress: &'a mut dyn FnMut(Progress),
    done: u64,
}

impl<'a> Inspector<'a> {
    /// Opens the data file of a disk, which must be there.
    pub(crate) fn open(
        disk: &dyn Disk,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Inspector<'a>> {
        let names = disk
            .list()
            .map_err(Error::io("listing the store's files"))?;
        if !names.iter().any(|name| name == DATA_FILE) {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::io(format!("opening {DATA_FILE}"))(missing));
        }
        let file = disk
            .open(DATA_FILE, true)
            .map_err(Error::io(format!("opening {DATA_FILE}")))?;
        let data = DataFile::new(disk, file);
        Ok(Inspector {
            file_len: data.len()?,
            data,
            problems: Vec::new(),
            tree: None,
            progress,
            done: 0,
        })
    }

    /// Records a problem of the data file.
    pub(crate) fn note(&mut self, offset: u64, kind: ProblemKind, what: impl Into<String>) {
        let problem = Problem {
            file: DATA_FILE.to_owned(),
            offset,
            tree: self.tree,
            kind,
            what: what.into(),
        };
        // A block that is reached by several paths is reported once.
        if self.problems.last() != Some(&problem) {
            self.problems.push(problem);
        }
    }

    /// Records an error that a reader returned.
    fn note_error(&mut self, offset: u64, error: &Error) {
        match error {
            Error::Corrupt { offset, what, .. } => {
                self.note(*offset, ProblemKind::Damaged, *what);
            }
            other => self.note(offset, ProblemKind::Unreadable, other.to_string()),
        }
    }

    /// Records an error of the log.
    pub(crate) fn note_log(&mut self, error: Error) {
        let (file, offset, what) = match error {
            Error::Corrupt { file, offset, what } => (file, offset, what.to_owned()),
            other => ("the log".to_owned(), 0, other.to_string()),
        };
        self.problems.push(Problem {
            file,
            offset,
            tree: None,
            kind: ProblemKind::Log,
            what,
        });
    }

    /// The bytes of an extent. Parts that cannot be read are recorded, and filled with zeros.
    fn extent(&mut self, offset: u64, len: u64) -> Option<AlignedBuf> {
        let unit = ALIGNMENT as u64;
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= self.file_len);
        if offset < DATA_START
            || !offset.is_multiple_of(unit)
            || !len.is_multiple_of(unit)
            || !inside
        {
            let what = format!("an extent of {len} bytes is impossible here");
            self.note(offset, ProblemKind::Malformed, what);
            return None;
        }
        let mut bytes = AlignedBuf::default();
        if self.data.read(offset, len as usize, &mut bytes).is_err() {
            bytes.clear();
            let mut piece = AlignedBuf::with_capacity(ALIGNMENT);
            for at in (offset..offset + len).step_by(ALIGNMENT) {
                if let Err(error) = self.data.read(at, ALIGNMENT, &mut piece) {
                    self.note(at, ProblemKind::Unreadable, error.to_string());
                    piece.clear();
                    piece.resize(ALIGNMENT);
                }
                bytes.extend_from_slice(&piece);
            }
        }
        self.done += len;
        (self.progress)(Progress {
            done_bytes: self.done,
            total_bytes: self.file_len,
        });
        Some(bytes)
    }

    /// Records bytes that are not zero; `from` is the offset of the first in the file.
    fn check_zeros(&mut self, bytes: &[u8], from: u64) {
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            let what = "unused bytes are not zero";
            self.note(from + at as u64, ProblemKind::Padding, what);
        }
    }

    /// The payload of a block that has an extent of its own.
    fn block(&mut self, place: Place, len: u32) -> Option<Vec<u8>> {
        let offset = place.offset;
        let bytes = self.extent(offset, block_extent(len))?;
        let (block, padding) = bytes.split_at_checked(len as usize)?;
        self.check_zeros(padding, offset + u64::from(len));
        match self.data.form.decode(block, place, <[u8]>::to_vec) {
            Ok(payload) => Some(payload),
            Err(error) => {
                self.note_error(offset, &error);
                None
            }
        }
    }

    /// The superblocks that can be read, the newest one first.
    pub(crate) fn superblocks(&mut self) -> Vec<Superblock> {
        let mut found: Vec<Superblock> = Vec::new();
        let mut empty = Vec::new();
        if self.file_len < DATA_START {
            // The store opens it as a new one: all its data is in the log.
            return found;
        }
        for slot in 0..2 {
            let at = slot * ALIGNMENT as u64;
            let mut raw = AlignedBuf::with_capacity(ALIGNMENT);
            if let Err(error) = self.data.read(at, ALIGNMENT, &mut raw) {
                self.note_error(at, &error);
                continue;
            }
            match manifest::read_superblock(&self.data, slot) {
                Ok(Some(superblock)) if superblock.generation % 2 == slot => {
                    let (first, second) = raw.split_at(manifest::SUPERBLOCK_COPY_BYTES);
                    if first != second {
                        self.note(
                            at,
                            ProblemKind::Damaged,
                            "one of the two copies of a superblock is damaged",
                        );
                    }
                    found.push(superblock);
                }
                Ok(None) if raw.iter().all(|byte| *byte == 0) => empty.push(at),
                Ok(_) => self.note(at, ProblemKind::Damaged, "a superblock is damaged"),
                Err(error) => self.note_error(at, &error),
            }
        }
        found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
        // Only after the first checkpoint is the other superblock still empty.
        if let (Some(newest), Some(at)) = (found.first(), empty.first())
            && newest.generation > 1
        {
            self.note(*at, ProblemKind::Damaged, "a superblock is missing");
        }
        found
    }

    /// The payload of a block that is stored twice; all copies are checked.
    fn copies(&mut self, copies: &Copies) -> Option<Vec<u8>> {
        let mut found: Option<Vec<u8>> = None;
        for at in copies.offsets() {
            let payload = self.block(Place::new(at, copies.birth), copies.len);
            match (&found, payload) {
                (None, payload) => found = payload,
                (Some(first), Some(second)) if *first != second => {
                    let what = "the copies of a block differ";
                    self.note(at, ProblemKind::Malformed, what);
                }
                (Some(_), _) => {}
            }
        }
        found
    }

    pub(crate) fn manifest(&mut self, superblock: &Superblock) -> Option<Manifest> {
        let payload = self.copies(&superblock.manifest)?;
        let manifest = Manifest::parse(&payload);
        let what = "the manifest is malformed";
        self.parsed(superblock.manifest.at[0], manifest, what)
    }

    /// The free space at the time of the checkpoint.
    pub(crate) fn free_map(&mut self, copies: &Copies) -> Option<FreeMap> {
        let payload = self.copies(copies)?;
        let map = FreeMap::parse(&payload);
        let what = "the map of the free space is malformed";
        self.parsed(copies.at[0], map, what)
    }

    /// The trees of a page of the manifest.
    pub(crate) fn trees(&mut self, copies: &Copies) -> Option<Vec<TreeRef>> {
        let payload = self.copies(copies)?;
        let trees = manifest::parse_page(&payload);
        self.parsed(copies.at[0], trees, "a page of trees is malformed")
    }

    pub(crate) fn node(&mut self, place: Place, len: u32) -> Option<NodeRef> {
        let payload = self.block(place, len)?;
        let node = NodeRef::parse(&payload);
        self.parsed(place.offset, node, "an internal node is malformed")
    }

    fn parsed<T>(&mut self, at: u64, value: Option<T>, what: &str) -> Option<T> {
        if value.is_none() {
            self.note(at, ProblemKind::Malformed, what);
        }
        value
    }

    /// A run, if its index can be read.
    pub(crate) fn run(&mut self, run: &RunRef) -> Option<RunImage> {
        let bytes = self.extent(run.offset, run.len)?;
        let info = &run.info;
        let (at, len) = (info.index_at as usize, info.index_len as usize);
        let offset = run.offset + u64::from(info.index_at);
        let block = bytes.get(at..at + len);
        let block = self.parsed(offset, block, "the index of a run is outside of its extent")?;
        let decode = |payload: &[u8]| RunIndex::decode(payload, info.pages, info.index_at);
        let place = Place::new(offset, run.birth);
        let index = match self.data.form.decode(block, place, decode) {
            Ok(index) => self.parsed(offset, index, "the index of a run is malformed")?,
            Err(error) => {
                self.note_error(offset, &error);
                return None;
            }
        };
        Some(RunImage {
            bytes,
            place: Place::new(run.offset, run.birth),
            index,
        })
    }

    /// A page of a run.
    pub(crate) fn page(&mut self, image: &RunImage, page: usize) -> Option<Page> {
        let (at, len) = image.index.block(page);
        let place = image.place.plus(u64::from(at));
        let offset = place.offset;
        let block = (image.bytes.get(at as usize..(at + len) as usize)).unwrap_or_default();
        match (self.data.form).decode(block, place, Page::decode_any_order) {
            Ok(Ok(page)) => Some(page),
            Ok(Err(what)) => {
                self.note(offset, ProblemKind::Malformed, what);
                None
            }
            Err(error) => {
                self.note_error(offset, &error);
                None
            }
        }
    }

    /// The filter of a run. Also checks the bytes between and after the run's blocks.
    pub(crate) fn filter(&mut self, run: &RunRef, image: &RunImage) -> Option<Vec<u8>> {
        let info = &run.info;
        let (last_at, last_len) = image.index.block(image.index.pages() - 1);
        let pages_end = (last_at + last_len) as usize;
        let gap = image.bytes.get(pages_end..info.index_at as usize);
        self.check_zeros(gap.unwrap_or_default(), run.offset + pages_end as u64);
        let padding = image.bytes.get(info.end() as usize..);
        self.check_zeros(padding.unwrap_or_default(), run.offset + info.end());
        let at = u64::from(info.index_at) + u64::from(info.index_len);
        let block = image.bytes.get(at as usize..info.end() as usize);
        let place = image.place.plus(at);
        let offset = place.offset;
        match (self.data.form).decode(block.unwrap_or_default(), place, <[u8]>::to_vec) {
            Ok(filter) => Some(filter),
            Err(error) => {
                self.note_error(offset, &error);
                None
            }
        }
    }
}

/// A run in memory, as its extent holds it.
pub(crate) struct RunImage {
    bytes: AlignedBuf,
    place: Place,
    pub(crate) index: RunIndex,
}
