//! Shredding: dividing a document into a header and segments.

use std::borrow::Cow;

use frond_bson::{Doc, RawElement, tag};
use xxhash_rust::xxh3::xxh3_64;

use super::LargeDocuments;
use super::edit::{self, Typed};
use super::header::{Container, Header};
use super::segment;

/// The most containers of a document.
const CONTAINERS_MAX: u16 = u16::MAX - 1;
/// Bytes of a document before its elements.
const LENGTH_BYTES: usize = 4;
/// The most bits of a hash that determine a segment.
const BITS_MAX: u8 = 16;

/// A document in parts.
pub struct Shredded {
    pub header: Vec<u8>,
    bytes: Vec<u8>,
    /// Container, segment, and the end of its content in the bytes.
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

/// Shreds a document. `None` if it is to be stored whole: it is small, or has no large sub-document, or a large one
/// has two fields of the same name.
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
    // Another document under this key must get another header, so that whoever read this one notices the change.
    let revision = xxh3_64(doc.as_bytes()) as u32;
    let header = Header {
        revision,
        based: revision,
        counted: doc.len_bytes() as u32,
        slack: 0,
        next_container: shredder.next_id()?,
        root,
        containers: shredder.containers,
        pending: Vec::new(),
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
    elements: Vec<Element>,
    /// The greatest absolute value of its integers; `None` if there are values of other types.
    magnitude: Option<u64>,
}

/// The position of an element in a skeleton; it begins where the previous one ends.
struct Element {
    end: u32,
    name_len: u32,
}

impl Skeleton<'_> {
    fn start(&self, ordinal: usize) -> usize {
        let before = ordinal.checked_sub(1).and_then(|at| self.elements.get(at));
        before.map_or(LENGTH_BYTES, |before| before.end as usize)
    }

    fn name(&self, ordinal: usize) -> &[u8] {
        let name_len = self
            .elements
            .get(ordinal)
            .map_or(0, |one| one.name_len as usize);
        let start = self.start(ordinal) + 1;
        self.bytes.get(start..start + name_len).unwrap_or_default()
    }

    fn slice(&self, first: usize, last: usize) -> &[u8] {
        let end = self.elements.get(last).map_or(0, |one| one.end as usize);
        self.bytes.get(self.start(first)..end).unwrap_or_default()
    }
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
        // Filled from the first element that changes.
        let mut out: Option<Vec<u8>> = None;
        let mut has_stubs = false;
        let mut elements: Vec<Element> = Vec::with_capacity(doc.len() / 32);
        let mut magnitude = Some(0);
        let mut at = LENGTH_BYTES;
        for element in trusted.iter_raw() {
            let start = at;
            at += element.as_bytes().len();
            let value = Typed {
                tag: element.tag(),
                bytes: element.value_bytes(),
            };
            magnitude = magnitude
                .and_then(|most: u64| Some(edit::integer(value)?.unsigned_abs().max(most)));
            let mut note = |end: usize| {
                elements.push(Element {
                    end: end as u32,
                    name_len: element.name_bytes().len() as u32,
                });
            };
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
                    note(out.len());
                } else {
                    note(at);
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
            note(out.len());
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
        Some(Skeleton {
            bytes,
            has_stubs,
            elements,
            magnitude,
        })
    }

    /// Moves a value that is no document into a container of its own.
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

    /// Moves the elements of a document into the segments of a new container. `None` if two have the same name.
    fn contain(&mut self, skeleton: &Skeleton<'_>) -> Option<u16> {
        let id = self.next_id()?;
        let bytes = skeleton.bytes.len();
        let bits = bits_for(bytes, self.limits.segment_bytes);
        let mut flags = 0;
        if skeleton.magnitude.is_some() {
            flags |= Container::INTEGERS;
        }
        if skeleton.has_stubs {
            flags |= Container::NESTED;
        }
        let mut spread = Spread::new(skeleton, bits, true);
        if spread.is_even(self.limits.segment_bytes) {
            flags |= Container::NUMBERED;
        } else {
            spread = Spread::new(skeleton, bits, false);
        }
        self.bytes.reserve(bytes + skeleton.elements.len());
        for (number, members) in spread.segments() {
            if !spread.ascends && has_twins(members, skeleton) {
                return None;
            }
            for run in members.chunk_by(|a, b| a + 1 == *b) {
                let (Some(&first), Some(&last)) = (run.first(), run.last()) else {
                    continue;
                };
                let elements = skeleton.slice(first as usize, last as usize);
                segment::push_run(first, elements, &mut self.bytes);
            }
            self.ends.push((id, number, self.bytes.len()));
        }
        self.containers.push(Container {
            id,
            bits,
            flags,
            next_ordinal: u32::try_from(skeleton.elements.len()).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            magnitude: skeleton.magnitude.unwrap_or(0),
        });
        Some(id)
    }
}

/// The assignment of elements to segments.
struct Spread {
    /// The elements, by segment and then in their order.
    members: Vec<u32>,
    /// The end of each segment among them.
    ends: Vec<u32>,
    /// Bytes of the largest segment.
    bytes_max: usize,
    /// Whether all names end with numbers that ascend, so that no two are equal.
    ascends: bool,
}

impl Spread {
    fn new(skeleton: &Skeleton<'_>, bits: u8, is_numbered: bool) -> Spread {
        let count = 1 << bits.min(BITS_MAX);
        let mut bytes = vec![0_usize; count];
        let mut ends = vec![0_u32; count];
        let (mut ascends, mut last) = (true, None);
        let places: Vec<u16> = (0..skeleton.elements.len())
            .map(|ordinal| {
                let name = skeleton.name(ordinal);
                let number = segment::number(name);
                ascends &= number.is_some() && number > last;
                last = number;
                let place = segment::number_of(name, number.filter(|_| is_numbered), bits);
                let at = usize::from(place);
                bytes[at] += skeleton.slice(ordinal, ordinal).len();
                ends[at] += 1;
                place
            })
            .collect();
        let mut sum = 0;
        for end in &mut ends {
            let members = *end;
            *end = sum;
            sum += members;
        }
        // Each end starts at the beginning of its segment and is advanced by its members.
        let mut members = vec![0; skeleton.elements.len()];
        for (ordinal, place) in places.into_iter().enumerate() {
            let end = &mut ends[usize::from(place)];
            members[*end as usize] = ordinal as u32;
            *end += 1;
        }
        Spread {
            members,
            ends,
            bytes_max: bytes.into_iter().max().unwrap_or(0),
            ascends,
        }
    }

    /// Whether no segment far exceeds the target size.
    fn is_even(&self, segment_bytes: usize) -> bool {
        self.bytes_max <= segment_bytes.saturating_mul(4)
    }

    /// The segments that have elements, with them.
    fn segments(&self) -> impl Iterator<Item = (u16, &[u32])> {
        let mut start = 0;
        let ends = self.ends.iter().enumerate();
        let all = ends.map(move |(number, &end)| {
            let members = self.members.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            (number as u16, members)
        });
        all.filter(|(_, members)| !members.is_empty())
    }
}

/// Whether two of these elements may have the same name.
fn has_twins(members: &[u32], skeleton: &Skeleton<'_>) -> bool {
    let names = members
        .iter()
        .map(|&ordinal| skeleton.name(ordinal as usize));
    let mut hashes: Vec<u64> = names.map(segment::hash).collect();
    hashes.sort_unstable();
    hashes
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a == b))
}

enum Replaced<'a> {
    Stub(u16),
    Document(Cow<'a, [u8]>),
}

/// The number of bits for which segments have at most this size on average.
fn bits_for(bytes: usize, segment_bytes: usize) -> u8 {
    let mut bits = 0;
    while bits < BITS_MAX && bytes >> bits > segment_bytes {
        bits += 1;
    }
    bits
}
