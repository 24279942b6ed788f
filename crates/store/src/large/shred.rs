//! Taking a document apart.

use std::borrow::Cow;

use frond_bson::{Doc, RawElement, tag};
use xxhash_rust::xxh3::xxh3_64;

use super::LargeDocuments;
use super::edit::{self, Typed};
use super::header::{Container, Header};
use super::segment::{self, Builder};

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
    // Other documents written anew are to have other headers: who read this one must see that it is gone.
    let revision = xxh3_64(doc.as_bytes()) as u32;
    let header = Header {
        revision,
        based: revision,
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
        let id = self.next_id()?;
        let doc = Doc::from_trusted(&skeleton.bytes);
        let bytes = doc.elements_bytes().len();
        let bits = bits_for(bytes, self.limits.segment_bytes);
        let mut flags = Container::INTEGERS;
        let mut magnitude = 0;
        let mut elements = Vec::with_capacity(bytes / 32);
        for element in doc.iter_raw() {
            let value = Typed {
                tag: element.tag(),
                bytes: element.value_bytes(),
            };
            match edit::integer(value) {
                Some(integer) => magnitude = integer.unsigned_abs().max(magnitude),
                None => flags &= !Container::INTEGERS,
            }
            elements.push(element);
        }
        if skeleton.has_stubs {
            flags |= Container::NESTED;
        }
        let mut spread = Spread::new(&elements, bits, true);
        if spread.is_even(self.limits.segment_bytes) {
            flags |= Container::NUMBERED;
        } else {
            spread = Spread::new(&elements, bits, false);
        }
        self.bytes.reserve(bytes + elements.len() * 2);
        let mut builder = Builder::default();
        for (number, members) in spread.segments() {
            if has_twins(members, &elements) {
                return None;
            }
            for &ordinal in members {
                if let Some(element) = elements.get(ordinal as usize) {
                    builder.push(ordinal, element.as_bytes(), &mut self.bytes);
                }
            }
            builder.finish(&mut self.bytes);
            self.ends.push((id, number, self.bytes.len()));
        }
        self.containers.push(Container {
            id,
            bits,
            flags,
            next_ordinal: u32::try_from(elements.len()).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            magnitude,
        });
        Some(id)
    }
}

/// Which elements lie in which segment.
struct Spread {
    /// The elements, by segment and then in their order.
    members: Vec<u32>,
    /// Where each segment ends in them.
    ends: Vec<u32>,
    /// Bytes of the largest segment.
    bytes_max: usize,
}

impl Spread {
    fn new(elements: &[RawElement<'_>], bits: u8, is_numbered: bool) -> Spread {
        let count = 1 << bits.min(BITS_MAX);
        let mut bytes = vec![0_usize; count];
        let mut ends = vec![0_u32; count];
        let places: Vec<u16> = (elements.iter())
            .map(|element| {
                let place = segment::place(element.name_bytes(), bits, is_numbered);
                let at = usize::from(place);
                bytes[at] += element.as_bytes().len();
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
        // Each end is first where the segment begins, and is moved by its members.
        let mut members = vec![0; elements.len()];
        for (ordinal, place) in places.into_iter().enumerate() {
            let end = &mut ends[usize::from(place)];
            members[*end as usize] = ordinal as u32;
            *end += 1;
        }
        Spread {
            members,
            ends,
            bytes_max: bytes.into_iter().max().unwrap_or(0),
        }
    }

    /// Whether no segment is far larger than it is meant to be.
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

/// Whether two of these elements may have one name.
fn has_twins(members: &[u32], elements: &[RawElement<'_>]) -> bool {
    let names = members
        .iter()
        .filter_map(|&at| Some(elements.get(at as usize)?.name_bytes()));
    // Mostly numbers ascend, and then nothing need be compared.
    let mut last = None;
    let ascends = names.clone().all(|name| {
        let number = segment::number(name);
        let ascends = number.is_some() && number > last;
        last = number;
        ascends
    });
    if ascends {
        return false;
    }
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

/// How many bits make segments of at most this size, on average.
fn bits_for(bytes: usize, segment_bytes: usize) -> u8 {
    let mut bits = 0;
    while bits < BITS_MAX && bytes >> bits > segment_bytes {
        bits += 1;
    }
    bits
}
