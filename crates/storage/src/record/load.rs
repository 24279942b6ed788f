//! Reading documents: whole records, and shredded documents or parts of them put together.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, MAX_DOCUMENT_BYTES, RawElement, tag};

use super::edit;
use super::fast_update;
use super::field_set::{ChangeFields, EVERYTHING, FieldSet, Increment, NOTHING};
use super::header::{self, Container, Header};
use super::segment;
use crate::error::{Error, Result, corrupt};
use crate::keyspace::after_prefix;
use crate::keyspace::{Direction, Snapshot, TreeId};

/// The containers of the parts of a document, by their paths, see [`edit`].
pub type Containers = BTreeMap<Vec<u8>, u16>;

/// The parts of a shredded document that were read, for a change of it.
#[derive(Debug)]
pub struct Parts {
    /// The record they come from.
    pub stored: Vec<u8>,
    /// The containers encountered, including those left out.
    pub containers: Containers,
    /// The paths of blind additions. These fields are not in the document that was read.
    pub blind: Arc<BTreeSet<Vec<u8>>>,
}

impl Parts {
    /// Whether a container lies at a path, or below it: then all of the value may not have been read.
    pub fn leads_to_container(&self, path: &[u8]) -> bool {
        let mut behind = self.containers.range(path.to_vec()..);
        behind
            .next()
            .is_some_and(|(found, _)| found.starts_with(path))
    }
}

/// Reads documents from their records in a snapshot.
#[derive(Clone, Copy)]
pub struct DocumentReader<'a> {
    pub snapshot: &'a Snapshot,
    /// The tree of the segments.
    pub segments: Option<TreeId>,
}

impl DocumentReader<'_> {
    /// The whole document of a record.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301), errors of the engine.
    pub fn whole<'d>(&self, key: &[u8], stored: &'d [u8]) -> Result<Cow<'d, Doc>> {
        if !header::is_header(stored) {
            return Ok(Cow::Borrowed(Doc::from_trusted(stored)));
        }
        let (doc, _) = self.load(key, stored, &EVERYTHING, false)?;
        Ok(Cow::Owned(doc))
    }

    /// These parts of the document of a record. Other parts may be present, too.
    ///
    /// # Errors
    /// As [`DocumentReader::whole`].
    pub fn parts<'d>(&self, key: &[u8], stored: &'d [u8], want: &FieldSet) -> Result<Cow<'d, Doc>> {
        if !header::is_header(stored) {
            return Ok(Cow::Borrowed(Doc::from_trusted(stored)));
        }
        let (doc, _) = self.load(key, stored, want, false)?;
        Ok(Cow::Owned(doc))
    }

    /// The parts that a change requires.
    ///
    /// # Errors
    /// As [`DocumentReader::whole`].
    pub fn for_change(
        &self,
        key: &[u8],
        stored: &[u8],
        wanted: &ChangeFields,
    ) -> Result<(DocBuf, Parts)> {
        let (header, skeleton) = Header::read(stored).ok_or_else(damaged)?;
        let (want, blind) = if wanted.increments.is_empty() || !header.pending.is_empty() {
            (Cow::Borrowed(&wanted.want), Arc::default())
        } else {
            let mut sums = BTreeMap::new();
            wanted.split(|one| {
                let sum = sums.entry(one.parent()).or_insert(0_u64);
                *sum = sum.saturating_add(one.magnitude);
                can_be_blind(&header, skeleton, one, *sum)
            })
        };
        let (doc, containers) = self.load(key, stored, &want, true)?;
        let parts = Parts {
            stored: stored.to_vec(),
            containers,
            blind,
        };
        Ok((doc, parts))
    }

    fn load(
        &self,
        key: &[u8],
        stored: &[u8],
        want: &FieldSet,
        tracks: bool,
    ) -> Result<(DocBuf, Containers)> {
        let (header, skeleton) = Header::read(stored).ok_or_else(damaged)?;
        // The fast updates that wait may concern any part.
        let want = if header.pending.is_empty() {
            want
        } else {
            &EVERYTHING
        };
        let room = if want.is_all() {
            header.bytes_max().min(MAX_DOCUMENT_BYTES)
        } else {
            stored.len() + 256
        };
        let mut loader = Loader {
            reader: *self,
            segments: self.segments.ok_or_else(damaged)?,
            key,
            header: &header,
            buffers: Vec::new(),
            pieces: HashMap::new(),
            out: Vec::with_capacity(room),
            tracks,
            path: Vec::new(),
            containers: Containers::new(),
        };
        if want.is_all() {
            loader.load_all()?;
        }
        let start = loader.open();
        match header.root {
            0 => {
                for element in skeleton.iter_raw() {
                    let want = want.field(element.name_bytes());
                    loader.put(&element, want.unwrap_or(&NOTHING), true, want.is_some())?;
                }
            }
            root => {
                loader.note(root);
                loader.put_container(root, want)?;
            }
        }
        loader.close(start);
        let mut doc = DocBuf::from_vec_trusted(loader.out);
        if !header.pending.is_empty()
            && let Some(changed) =
                fast_update::message::apply_pending(&doc, &header.pending).map_err(|_| damaged())?
        {
            doc = DocBuf::from_vec_trusted(changed);
        }
        Ok((doc, loader.containers))
    }
}

/// Whether an addition cannot fail and changes the document whatever the stored value is.
fn can_be_blind(header: &Header, skeleton: &Doc, one: &Increment, sum: u64) -> bool {
    let Some(container) = container_at(header, skeleton, one.parent()) else {
        return false;
    };
    one.magnitude > 0
        && container.is(Container::INTEGERS)
        && !container.is(Container::VALUE)
        && container.next_ordinal < u32::MAX / 2
        && container.magnitude.saturating_add(sum) < i64::MAX as u64
        && header.bytes_max() < MAX_DOCUMENT_BYTES / 2
}

/// The container at a path, if nothing but the header is needed to find it.
fn container_at<'h>(header: &'h Header, skeleton: &Doc, path: &[u8]) -> Option<&'h Container> {
    if path.is_empty() {
        return header.container(header.root);
    }
    let mut doc = skeleton;
    let mut path = path;
    loop {
        let (name, rest) = edit::split_path(path)?;
        let mut elements = doc.iter_raw();
        let element = elements.find(|element| element.name_bytes() == name)?;
        match element.tag() {
            tag::ELSEWHERE if rest.is_empty() => return header.container(stub(&element)?),
            tag::DOCUMENT if !rest.is_empty() => {
                doc = Doc::from_trusted(element.value_bytes());
                path = rest;
            }
            _ => return None,
        }
    }
}

fn stub(element: &RawElement<'_>) -> Option<u16> {
    let id = u32::from_le_bytes(*element.value_bytes().first_chunk()?);
    u16::try_from(id).ok()
}

#[cold]
pub fn damaged() -> Error {
    corrupt("a large document; run validate")
}

/// An element of a container, or several consecutive ones.
#[derive(Clone, Copy)]
struct ElementRun {
    ordinal: u32,
    buffer: u32,
    start: u32,
    len: u32,
}

struct Loader<'a> {
    reader: DocumentReader<'a>,
    segments: TreeId,
    key: &'a [u8],
    header: &'a Header,
    /// Segments as they were read.
    buffers: Vec<Rc<Vec<u8>>>,
    /// Parts of containers that were read in advance.
    pieces: HashMap<u16, Vec<ElementRun>>,
    out: Vec<u8>,
    /// Whether containers are recorded in `containers`; then `path` is that of the output so far.
    tracks: bool,
    path: Vec<u8>,
    containers: Containers,
}

impl<'a> Loader<'a> {
    /// Reads all segments in one scan.
    fn load_all(&mut self) -> Result<()> {
        let end = after_prefix(self.key);
        let mut cursor = self.reader.snapshot.cursor(
            self.segments,
            Bound::Included(self.key),
            end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            Direction::Forward,
        )?;
        let expected: usize = (self.header.containers.iter())
            .map(|one| one.bytes as usize + one.bytes as usize / 16)
            .sum();
        let mut buffer = Vec::with_capacity(expected.min(2 * MAX_DOCUMENT_BYTES));
        for container in &self.header.containers {
            self.pieces.insert(container.id, Vec::new());
        }
        while let Some((key, value)) = cursor.next()? {
            let (id, _) = segment::split_key(self.key, key).ok_or_else(damaged)?;
            let (Some(container), Some(pieces)) =
                (self.header.container(id), self.pieces.get_mut(&id))
            else {
                return Err(damaged());
            };
            let base = buffer.len();
            buffer.extend_from_slice(value);
            if container.is(Container::VALUE) {
                pieces.push(ElementRun {
                    ordinal: 0,
                    buffer: 0,
                    start: base as u32,
                    len: value.len() as u32,
                });
                continue;
            }
            add_pieces(container, value, 0, base, pieces);
        }
        self.buffers.push(Rc::new(buffer));
        for pieces in self.pieces.values_mut() {
            order(pieces);
        }
        Ok(())
    }

    /// The required elements of a container, in order.
    fn pieces_of(&mut self, container: &Container, want: &FieldSet) -> Result<Vec<ElementRun>> {
        if let Some(pieces) = self.pieces.remove(&container.id) {
            return Ok(pieces);
        }
        let mut pieces = Vec::new();
        if want.is_all() {
            for number in 0..container.segments() {
                let Some(buffer) = self.read(container.id, number as u16)? else {
                    continue;
                };
                let bytes = self.buffer(buffer);
                add_pieces(container, &bytes, buffer, 0, &mut pieces);
            }
        } else {
            let mut known: HashMap<u16, Option<u32>> = HashMap::new();
            for name in want.names() {
                let number = segment::of_name(name, container);
                let buffer = match known.get(&number) {
                    Some(buffer) => *buffer,
                    None => {
                        let buffer = self.read(container.id, number)?;
                        known.insert(number, buffer);
                        buffer
                    }
                };
                if let Some(buffer) = buffer
                    && let Some(entry) = segment::find(&self.buffer(buffer), name)
                {
                    pieces.push(piece(buffer, &entry));
                }
            }
        }
        order(&mut pieces);
        Ok(pieces)
    }

    fn read(&mut self, container: u16, number: u16) -> Result<Option<u32>> {
        let mut key = Vec::with_capacity(self.key.len() + 4);
        segment::write_key(self.key, container, number, &mut key);
        let found = self.reader.snapshot.get(self.segments, &key)?;
        Ok(found.map(|value| {
            self.buffers.push(Rc::new(value.to_vec()));
            self.buffers.len() as u32 - 1
        }))
    }

    fn buffer(&self, buffer: u32) -> Rc<Vec<u8>> {
        self.buffers
            .get(buffer as usize)
            .cloned()
            .unwrap_or_default()
    }

    fn open(&mut self) -> usize {
        self.out.extend_from_slice(&[0; 4]);
        self.out.len() - 4
    }

    fn close(&mut self, start: usize) {
        self.out.push(0);
        let length = (self.out.len() - start) as u32;
        if let Some(place) = self.out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    fn begin(&mut self, tag: u8, name: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(name);
        self.out.push(0);
    }

    fn note(&mut self, id: u16) {
        if self.tracks {
            self.containers.insert(self.path.clone(), id);
        }
    }

    /// Appends an element to the output. `mixed` says that it may be a stub, or have stubs inside.
    fn put(
        &mut self,
        element: &RawElement<'_>,
        want: &FieldSet,
        mixed: bool,
        is_wanted: bool,
    ) -> Result<()> {
        let name = element.name_bytes();
        match element.tag() {
            tag::ELSEWHERE if mixed => {
                let id = stub(element).ok_or_else(damaged)?;
                let depth = self.enter(name);
                // Containers left out count, too: a document around one cannot be written as it was read.
                self.note(id);
                if !is_wanted {
                    self.path.truncate(depth);
                    return Ok(());
                }
                let container = self.header.container(id).ok_or_else(damaged)?;
                if container.is(Container::VALUE) {
                    self.put_value(container, name)?;
                } else {
                    self.begin(tag::DOCUMENT, name);
                    let start = self.open();
                    self.put_container(id, want)?;
                    self.close(start);
                }
                self.path.truncate(depth);
            }
            tag::DOCUMENT if mixed => {
                let depth = self.enter(name);
                self.begin(tag::DOCUMENT, name);
                let start = self.open();
                for inner in Doc::from_trusted(element.value_bytes()).iter_raw() {
                    let want = want.field(inner.name_bytes());
                    self.put(&inner, want.unwrap_or(&NOTHING), true, want.is_some())?;
                }
                self.close(start);
                self.path.truncate(depth);
            }
            _ => self.out.extend_from_slice(element.as_bytes()),
        }
        Ok(())
    }

    fn enter(&mut self, name: &[u8]) -> usize {
        let depth = self.path.len();
        self.path.extend_from_slice(name);
        self.path.push(0);
        depth
    }

    fn put_value(&mut self, container: &Container, name: &[u8]) -> Result<()> {
        let piece = match self.pieces.remove(&container.id) {
            Some(pieces) => pieces.first().copied(),
            None => self.read(container.id, 0)?.map(|buffer| ElementRun {
                ordinal: 0,
                buffer,
                start: 0,
                len: self.buffer(buffer).len() as u32,
            }),
        };
        let piece = piece.ok_or_else(damaged)?;
        let buffer = self.buffer(piece.buffer);
        let bytes = slice(&buffer, &piece).ok_or_else(damaged)?;
        let (&tag, value) = bytes.split_first().ok_or_else(damaged)?;
        self.begin(tag, name);
        self.out.extend_from_slice(value);
        Ok(())
    }

    /// Appends the required elements of a container to the output.
    fn put_container(&mut self, id: u16, want: &FieldSet) -> Result<()> {
        let container = *self.header.container(id).ok_or_else(damaged)?;
        let pieces = self.pieces_of(&container, want)?;
        let mixed = container.is(Container::NESTED);
        let mut last: Option<(u32, Rc<Vec<u8>>)> = None;
        for piece in &pieces {
            let buffer = match &last {
                Some((number, buffer)) if *number == piece.buffer => buffer,
                _ => &last.insert((piece.buffer, self.buffer(piece.buffer))).1,
            };
            let bytes = slice(buffer, piece).ok_or_else(damaged)?;
            if !mixed {
                self.out.extend_from_slice(bytes);
                continue;
            }
            let buffer = buffer.clone();
            let bytes = slice(&buffer, piece).ok_or_else(damaged)?;
            let (element, _) = RawElement::split(bytes).ok_or_else(damaged)?;
            let want = want.field(element.name_bytes());
            self.put(&element, want.unwrap_or(&NOTHING), true, want.is_some())?;
        }
        Ok(())
    }
}

fn piece(buffer: u32, entry: &segment::Entry<'_>) -> ElementRun {
    ElementRun {
        ordinal: entry.ordinal,
        buffer,
        start: entry.at as u32,
        len: entry.element.as_bytes().len() as u32,
    }
}

/// Adds the pieces of a segment that begins at `base` of a buffer: runs, or elements if each has to be examined.
fn add_pieces(
    container: &Container,
    bytes: &[u8],
    buffer: u32,
    base: usize,
    pieces: &mut Vec<ElementRun>,
) {
    let mut add = |ordinal, at: usize, len: usize| {
        pieces.push(ElementRun {
            ordinal,
            buffer,
            start: (base + at) as u32,
            len: len as u32,
        });
    };
    if container.is(Container::NESTED) {
        for entry in segment::entries(bytes) {
            add(entry.ordinal, entry.at, entry.element.as_bytes().len());
        }
    } else {
        for run in segment::runs(bytes) {
            add(run.ordinal, run.at, run.elements.len());
        }
    }
}

fn slice<'b>(buffer: &'b [u8], piece: &ElementRun) -> Option<&'b [u8]> {
    let start = piece.start as usize;
    buffer.get(start..start + piece.len as usize)
}

/// Sorts pieces in the order of the document.
fn order(pieces: &mut [ElementRun]) {
    pieces.sort_unstable_by_key(|piece| piece.ordinal);
}
