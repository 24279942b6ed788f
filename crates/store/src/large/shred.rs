//! Taking a document apart.

use std::borrow::Cow;

use frond_bson::{Doc, RawElement, tag};

use super::LargeDocuments;
use super::edit::{self, Typed};
use super::header::{Container, Header};
use super::segment::{self, ORDINAL_BYTES};

/// Most containers of a document.
const CONTAINERS_MAX: u16 = u16::MAX - 1;
/// Most bits of a hash that say in which segment a field is.
const BITS_MAX: u8 = 16;

/// A document in parts.
pub struct Shredded {
    /// The record.
    pub header: Vec<u8>,
    bytes: Vec<u8>,
    /// Container, segment and where it ends in the bytes.
    ends: Vec<(u16, u16, usize)>,
}

impl Shredded {
    /// The segments: container, number, content.
    pub fn segments(&self) -> impl Iterator<Item = (u16, u16, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(container, number, end)| {
            let bytes = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            (container, number, bytes)
        })
    }
}

/// Takes a document apart. `None` if it is to be stored whole: it is small, or no sub-document of it is large, or
/// a large one has two fields of one name.
pub fn shred(doc: &Doc, limits: LargeDocuments) -> Option<Shredded> {
    if doc.len_bytes() < limits.threshold_bytes {
        return None;
    }
    let mut shredder = Shredder {
        limits,
        containers: Vec::new(),
        bytes: Vec::new(),
        ends: Vec::new(),
    };
    let mut skeleton = shredder.skeleton(doc.as_bytes())?;
    let mut root = 0;
    if skeleton.bytes.len() >= limits.part_bytes() {
        root = shredder.contain(&skeleton)?;
        skeleton.bytes = Cow::Borrowed(Doc::empty().as_bytes());
    }
    if (shredder.containers.iter()).all(|container| container.is(Container::VALUE)) {
        return None;
    }
    let header = Header {
        revision: 1,
        based: 1,
        counted: doc.len_bytes() as u32,
        slack: 0,
        next_container: shredder.next_id()?,
        root,
        containers: shredder.containers,
    };
    Some(Shredded {
        header: header.write(&skeleton.bytes),
        bytes: shredder.bytes,
        ends: shredder.ends,
    })
}

/// A document without its large parts.
struct Skeleton<'a> {
    bytes: Cow<'a, [u8]>,
    has_stubs: bool,
}

struct Shredder {
    limits: LargeDocuments,
    containers: Vec<Container>,
    bytes: Vec<u8>,
    ends: Vec<(u16, u16, usize)>,
}

impl Shredder {
    fn next_id(&self) -> Option<u16> {
        let id = u16::try_from(self.containers.len() + 1).ok()?;
        (id <= CONTAINERS_MAX).then_some(id)
    }

    /// A document without its large parts, which are put into containers.
    fn skeleton<'a>(&mut self, doc: &'a [u8]) -> Option<Skeleton<'a>> {
        let part_bytes = self.limits.part_bytes();
        let trusted = Doc::from_trusted(doc);
        // Filled from the first element on that does not stay as it is.
        let mut out: Option<Vec<u8>> = None;
        let mut has_stubs = false;
        let mut at = 4;
        for element in trusted.iter_raw() {
            let start = at;
            at += element.as_bytes().len();
            let mut replaced = None;
            if element.value_bytes().len() >= part_bytes {
                if element.tag() == tag::DOCUMENT {
                    let inner = self.skeleton(element.value_bytes())?;
                    if inner.bytes.len() >= part_bytes {
                        replaced = Some(Replaced::Stub(self.contain(&inner)?));
                    } else {
                        has_stubs |= inner.has_stubs;
                        replaced = Some(Replaced::Document(inner.bytes));
                    }
                } else {
                    replaced = Some(Replaced::Stub(self.keep_value(&element)?));
                }
            }
            let Some(replaced) = replaced else {
                if let Some(out) = &mut out {
                    out.extend_from_slice(element.as_bytes());
                }
                continue;
            };
            let out = out.get_or_insert_with(|| doc.get(..start).unwrap_or_default().to_vec());
            let name = element.name_bytes();
            match replaced {
                Replaced::Stub(id) => {
                    has_stubs = true;
                    let stub = u32::from(id).to_le_bytes();
                    let value = Typed {
                        tag: tag::ELSEWHERE,
                        bytes: &stub,
                    };
                    edit::push_element(name, value, out);
                }
                Replaced::Document(bytes) => {
                    let value = Typed {
                        tag: tag::DOCUMENT,
                        bytes: &bytes,
                    };
                    edit::push_element(name, value, out);
                }
            }
        }
        let bytes = match out {
            None => Cow::Borrowed(doc),
            Some(mut out) => {
                out.push(0);
                let length = u32::try_from(out.len()).ok()?.to_le_bytes();
                out.get_mut(..4)?.copy_from_slice(&length);
                Cow::Owned(out)
            }
        };
        Some(Skeleton { bytes, has_stubs })
    }

    /// Puts a value that is no document into a container of its own.
    fn keep_value(&mut self, element: &RawElement<'_>) -> Option<u16> {
        let id = self.next_id()?;
        self.bytes.push(element.tag());
        self.bytes.extend_from_slice(element.value_bytes());
        self.ends.push((id, 0, self.bytes.len()));
        self.containers.push(Container {
            id,
            bits: 0,
            flags: Container::VALUE,
            next_ordinal: 0,
            bytes: u32::try_from(element.value_bytes().len()).ok()?,
            magnitude: 0,
        });
        Some(id)
    }

    /// Puts the elements of a document into the segments of a new container. `None` if two have one name.
    fn contain(&mut self, skeleton: &Skeleton<'_>) -> Option<u16> {
        struct Placed<'a> {
            hash: u64,
            ordinal: u32,
            element: &'a [u8],
        }
        let id = self.next_id()?;
        let doc = Doc::from_trusted(&skeleton.bytes);
        let bytes = doc.elements_bytes().len();
        let bits = bits_for(bytes, self.limits.segment_bytes);
        let mut placed = Vec::with_capacity(bytes / 32);
        let mut integers = true;
        let mut magnitude = 0;
        for element in doc.iter_raw() {
            let value = Typed {
                tag: element.tag(),
                bytes: element.value_bytes(),
            };
            match edit::integer(value) {
                Some(integer) => magnitude = integer.unsigned_abs().max(magnitude),
                None => integers = false,
            }
            placed.push(Placed {
                hash: segment::hash(element.name_bytes()),
                ordinal: placed.len() as u32,
                element: element.as_bytes(),
            });
        }
        let count = placed.len() as u32;
        // The segments are the high bits, so this sorts by segment, and brings equal names together.
        placed.sort_unstable_by_key(|one| one.hash);
        if (placed.windows(2)).any(|pair| matches!(pair, [a, b] if a.hash == b.hash)) {
            return None;
        }
        self.bytes.reserve(bytes + placed.len() * ORDINAL_BYTES);
        for part in placed
            .chunk_by_mut(|a, b| segment::of_hash(a.hash, bits) == segment::of_hash(b.hash, bits))
        {
            // In the order of the document they compress better, and are put together faster.
            part.sort_unstable_by_key(|one| one.ordinal);
            for one in part.iter() {
                self.bytes.extend_from_slice(&one.ordinal.to_le_bytes());
                self.bytes.extend_from_slice(one.element);
            }
            let number = part
                .first()
                .map_or(0, |one| segment::of_hash(one.hash, bits));
            self.ends.push((id, number, self.bytes.len()));
        }
        let mut flags = 0;
        if integers {
            flags |= Container::INTEGERS;
        }
        if skeleton.has_stubs {
            flags |= Container::NESTED;
        }
        self.containers.push(Container {
            id,
            bits,
            flags,
            next_ordinal: count,
            bytes: u32::try_from(bytes).ok()?,
            magnitude,
        });
        Some(id)
    }
}

enum Replaced<'a> {
    Stub(u16),
    Document(Cow<'a, [u8]>),
}

/// How many bits make segments of at most this size, on average.
fn bits_for(bytes: usize, segment_bytes: usize) -> u8 {
    let mut bits = 0;
    while bits < BITS_MAX && bytes >> bits > segment_bytes {
        bits += 1;
    }
    bits
}
