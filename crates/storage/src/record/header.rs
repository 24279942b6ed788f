//! The record of a shredded document.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `01 00 00 80`: the version, and a sign bit that no document has in its length |
//! | 4 | revision: begins with a hash of the document, grows with each change |
//! | 4 | the revision that was written whole; later ones are messages on top of it |
//! | 4 | length of the document, as the collection's counter has it |
//! | 4 | slack: bytes that blind additions may have added |
//! | 2 | the next container's number |
//! | 2 | the container of the document itself, 0 if its skeleton is here |
//! | 2 | number of containers |
//! | 20 each | containers, see [`Container`] |
//! | as it says | the skeleton |
//! | rest | a message of fast updates that wait for the document to be written whole, see [`super::fast_update`] |
//!
//! Numbers are little-endian.

use frond_bson::Doc;

const MARKER: [u8; 4] = [1, 0, 0, 0x80];
const FIXED_BYTES: usize = 26;

/// The facts about a container that are known without reading its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its number within the document, from 1 on.
    pub id: u16,
    /// The number of bits of a name's hash or number that determine the segment of a field.
    pub bits: u8,
    /// [`Container::VALUE`] and others.
    pub flags: u8,
    /// The ordinal of the next element.
    pub next_ordinal: u32,
    /// Upper bound of the bytes of its elements.
    pub bytes: u32,
    /// Upper bound of the absolute values of its integers; valid if [`Container::INTEGERS`] is set.
    pub magnitude: u64,
}

impl Container {
    /// It holds one value that is no document.
    pub const VALUE: u8 = 1;
    /// All elements are integers of 32 or 64 bits.
    pub const INTEGERS: u8 = 2;
    /// Some element is a stub, or has stubs inside.
    pub const NESTED: u8 = 4;
    /// The number at the end of a name determines the segment, see [`super::segment`].
    pub const NUMBERED: u8 = 8;
    pub const BYTES: usize = 20;

    /// Whether a flag is set.
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Number of its segments.
    pub fn segments(&self) -> u32 {
        1 << self.bits.min(16)
    }

    /// Appends the stored form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&[self.bits, self.flags]);
        out.extend_from_slice(&self.next_ordinal.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.magnitude.to_le_bytes());
    }

    /// Reads the stored form.
    pub fn read(bytes: &[u8]) -> Option<(Container, &[u8])> {
        let (own, rest) = bytes.split_at_checked(Self::BYTES)?;
        let [bits, flags] = *own.get(2..4)?.first_chunk()?;
        let container = Container {
            id: u16::from_le_bytes(*own.first_chunk()?),
            bits,
            flags,
            next_ordinal: u32::from_le_bytes(*own.get(4..)?.first_chunk()?),
            bytes: u32::from_le_bytes(*own.get(8..)?.first_chunk()?),
            magnitude: u64::from_le_bytes(*own.get(12..)?.first_chunk()?),
        };
        Some((container, rest))
    }
}

/// The numbers of a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Begins with a hash of the document and grows with each change, wrapping around, so that two states of a
    /// document have different headers.
    pub revision: u32,
    /// The revision that was written whole.
    pub based: u32,
    /// Length of the document in the collection's counter: exact except for the slack.
    pub counted: u32,
    /// Bytes that blind additions may have added.
    pub slack: u32,
    /// The next container's number.
    pub next_container: u16,
    /// The container of the document itself; 0 for none.
    pub root: u16,
    /// The containers, by number.
    pub containers: Vec<Container>,
    /// A message of fast updates that are not applied to the parts yet, or nothing.
    pub pending: Vec<u8>,
}

/// Whether a record is the header of a shredded document.
pub fn is_header(stored: &[u8]) -> bool {
    stored.starts_with(&MARKER)
}

impl Header {
    /// Parses a record. `None` if it is no header, or a damaged one.
    pub fn read(stored: &[u8]) -> Option<(Header, &Doc)> {
        let rest = stored.strip_prefix(&MARKER)?;
        let number = |at: usize| Some(u32::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let short = |at: usize| Some(u16::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let count = usize::from(short(20)?);
        let mut header = Header {
            revision: number(0)?,
            based: number(4)?,
            counted: number(8)?,
            slack: number(12)?,
            next_container: short(16)?,
            root: short(18)?,
            containers: Vec::with_capacity(count),
            pending: Vec::new(),
        };
        let mut rest = rest.get(FIXED_BYTES - MARKER.len()..)?;
        for _ in 0..count {
            let (container, after) = Container::read(rest)?;
            header.containers.push(container);
            rest = after;
        }
        let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
        let (skeleton, pending) = rest.split_at_checked(length)?;
        header.pending.extend_from_slice(pending);
        (skeleton.len() >= 5).then(|| (header, Doc::from_trusted(skeleton)))
    }

    pub fn write(&self, skeleton: &[u8]) -> Vec<u8> {
        let tables = self.containers.len() * Container::BYTES;
        let mut out = Vec::with_capacity(FIXED_BYTES + tables + skeleton.len());
        out.extend_from_slice(&MARKER);
        for number in [self.revision, self.based, self.counted, self.slack] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.next_container, self.root, self.containers.len() as u16] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for container in &self.containers {
            container.write(&mut out);
        }
        out.extend_from_slice(skeleton);
        out.extend_from_slice(&self.pending);
        out
    }

    pub fn container(&self, id: u16) -> Option<&Container> {
        self.containers.iter().find(|one| one.id == id)
    }

    /// A container, for a change.
    pub fn container_mut(&mut self, id: u16) -> Option<&mut Container> {
        self.containers.iter_mut().find(|one| one.id == id)
    }

    /// Upper bound of the document's length.
    pub fn bytes_max(&self) -> usize {
        self.counted as usize + self.slack as usize
    }
}

/// The fast updates that a header keeps, or nothing. `None` for a damaged header.
pub fn pending(stored: &[u8]) -> Option<&[u8]> {
    let (header, _) = Header::read(stored)?;
    stored.get(stored.len() - header.pending.len()..)
}

/// The header with other fast updates in place of those that it keeps.
pub fn with_pending(stored: &[u8], pending: &[u8]) -> Option<Vec<u8>> {
    let before = self::pending(stored)?.len();
    let rest = stored.get(..stored.len() - before)?;
    Some([rest, pending].concat())
}

/// The length of a stored document in the collection's counter.
pub fn counted_bytes(stored: &[u8]) -> usize {
    if is_header(stored)
        && let Some(counted) = stored.get(12..).and_then(<[u8]>::first_chunk)
    {
        return u32::from_le_bytes(*counted) as usize;
    }
    stored.len()
}

/// Whether a document of this length can be that of this record. If not, segments are missing.
pub fn may_have_bytes(stored: &[u8], bytes: usize) -> bool {
    match Header::read(stored) {
        // The fast updates add an unknown number of bytes.
        Some((header, _)) if !header.pending.is_empty() => true,
        Some((header, _)) => (header.counted as usize..=header.bytes_max()).contains(&bytes),
        None => stored.len() == bytes,
    }
}
