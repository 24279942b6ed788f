//! Random documents are shredded, changed by messages and read again.

use std::collections::BTreeMap;

use frond_bson::{Doc, DocBuf, Value};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::diff::{self, Difference};
use super::edit::Action;
use super::header::Header;
use super::load::{Containers, Parts};
use super::message::{self, Numbers, Operation};
use super::{LargeDocuments, segment, shred};

/// A small generator of pseudo-random numbers (xorshift).
struct Random(SmallRng);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }
}

const LIMITS: LargeDocuments = LargeDocuments {
    threshold_bytes: 64,
    segment_bytes: 16,
};

fn put_random(random: &mut Random, out: &mut DocBuf, name: &str, depth: u64) {
    match random.below(if depth > 3 { 6 } else { 9 }) {
        0 => out.push(name, random.below(100) as i32),
        1 => out.push(name, random.below(100) as i64),
        2 => out.push(name, "a text of some length"),
        3 => out.push(name, Value::Null),
        4 => out.push(name, 1.5),
        5 => out.push(name, true),
        6 => out.push_array(name, |array| {
            for _ in 0..random.below(8) {
                array.push(random.below(9) as i32);
            }
        }),
        _ => {
            let inner = random_doc(random, depth + 1);
            out.push(name, &inner);
        }
    }
}

fn random_doc(random: &mut Random, depth: u64) -> DocBuf {
    let mut out = DocBuf::new();
    for _ in 0..random.below(9) {
        let name = format!("f{}", random.below(20) * 40);
        if !out.contains_key(&name) {
            put_random(random, &mut out, &name, depth);
        }
    }
    out
}

/// A document with fields changed, removed, appended and moved.
fn mutated(random: &mut Random, doc: &Doc, depth: u64) -> DocBuf {
    let mut out = DocBuf::new();
    let mut moved = Vec::new();
    for element in doc.iter_raw() {
        match (random.below(12), element.value()) {
            (0, _) => {}
            (1, _) => put_random(random, &mut out, element.name(), depth),
            (2, _) => moved.push(element),
            (3..=8, Some(Value::Document(inner))) => {
                let inner = mutated(random, inner, depth + 1);
                out.push(element.name(), &inner);
            }
            _ => out.push_raw(&element),
        }
    }
    moved.iter().for_each(|element| out.push_raw(element));
    for _ in 0..random.below(3) {
        let name = format!("f{}", random.below(30) * 40);
        if !out.contains_key(&name) {
            put_random(random, &mut out, &name, depth);
        }
    }
    out
}

/// A stored document, without an engine.
#[derive(Clone)]
struct Stored {
    header: Vec<u8>,
    segments: BTreeMap<(u16, u16), Vec<u8>>,
}

impl Stored {
    fn new(doc: &Doc) -> Option<Stored> {
        let shredded = shred::shred(doc, LIMITS)?;
        let segments = shredded.segments();
        Some(Stored {
            header: shredded.header.clone(),
            segments: segments
                .map(|(c, n, bytes)| ((c, n), bytes.to_vec()))
                .collect(),
        })
    }

    /// Reads the document in the simplest way.
    fn doc(&self, containers: &mut Containers) -> DocBuf {
        let (header, skeleton) = Header::read(&self.header).unwrap();
        let mut path = Vec::new();
        match header.root {
            0 => self.part(skeleton, &mut path, containers),
            root => self.container(root, &mut path, containers),
        }
    }

    fn container(&self, id: u16, path: &mut Vec<u8>, containers: &mut Containers) -> DocBuf {
        containers.insert(path.clone(), id);
        let mut found = Vec::new();
        for ((container, _), bytes) in &self.segments {
            if *container == id {
                found.extend(segment::entries(bytes).map(|one| (one.ordinal, one.element)));
            }
        }
        found.sort_by_key(|(ordinal, _)| *ordinal);
        let mut out = DocBuf::new();
        found.iter().for_each(|(_, element)| out.push_raw(element));
        self.part(&out, path, containers)
    }

    fn part(&self, doc: &Doc, path: &mut Vec<u8>, containers: &mut Containers) -> DocBuf {
        let mut out = DocBuf::new();
        for element in doc.iter_raw() {
            let depth = path.len();
            path.extend_from_slice(element.name_bytes());
            path.push(0);
            if element.tag() == frond_bson::tag::ELSEWHERE {
                let id = u16::from_le_bytes(element.value_bytes()[..2].try_into().unwrap());
                let (header, _) = Header::read(&self.header).unwrap();
                if header
                    .container(id)
                    .unwrap()
                    .is(super::header::Container::VALUE)
                {
                    containers.insert(path.clone(), id);
                    let bytes = &self.segments[&(id, 0)];
                    let mut raw = vec![bytes[0]];
                    raw.extend_from_slice(b"x\0");
                    raw.extend_from_slice(&bytes[1..]);
                    let (value, _) = frond_bson::RawElement::split(&raw).unwrap();
                    out.push_raw_as(element.name(), &value);
                } else {
                    let inner = self.container(id, path, containers);
                    out.push(element.name(), &inner);
                }
            } else if let Some(Value::Document(inner)) = element.value() {
                let inner = self.part(inner, path, containers);
                out.push(element.name(), &inner);
            } else {
                out.push_raw(&element);
            }
            path.truncate(depth);
        }
        out
    }

    fn parts(&self) -> (DocBuf, Parts) {
        let mut containers = Containers::new();
        let doc = self.doc(&mut containers);
        let parts = Parts {
            stored: self.header.clone(),
            containers,
            blind: Default::default(),
        };
        (doc, parts)
    }

    /// The messages that make it into another document; `None` if that has to be rewritten.
    fn messages(&self, new: &Doc) -> Option<BTreeMap<(u16, u16), Vec<u8>>> {
        let (old, parts) = self.parts();
        let Difference::Changes(changes) = diff::diff(&old, new, &parts, LIMITS.part_bytes())
        else {
            return None;
        };
        let (mut header, _) = Header::read(&self.header).unwrap();
        let mut groups: BTreeMap<(u16, u16), Vec<Operation<'_>>> = BTreeMap::new();
        for change in changes {
            let mut operation = change.operation;
            let mut place = (change.container, 0);
            if change.container != 0 && !operation.path.is_empty() {
                let container = header.container_mut(change.container).unwrap();
                let (name, rest) = super::edit::split_path(&operation.path).unwrap();
                place.1 = segment::of_name(name, container);
                if rest.is_empty() && (change.appends || operation.action == Action::Move) {
                    operation.ordinal = container.next_ordinal;
                    container.next_ordinal += 1;
                }
            }
            groups.entry(place).or_default().push(operation);
        }
        let numbers = Numbers {
            revision: header.revision.wrapping_add(1),
            containers: header.containers.clone(),
            ..Numbers::default()
        };
        let mut messages = BTreeMap::new();
        messages.insert(
            (0, 0),
            message::to_header(&numbers, groups.get(&(0, 0)).map_or(&[], |v| v)),
        );
        for (place, operations) in groups {
            if place == (0, 0) {
                continue;
            }
            // A value is put, not changed: that is no message, and ends the run.
            if operations[0].path.is_empty() {
                return None;
            }
            let mut out = Vec::new();
            message::to_segment(&operations, &mut out);
            messages.insert(place, out);
        }
        Some(messages)
    }

    fn apply(&mut self, messages: &BTreeMap<(u16, u16), Vec<Vec<u8>>>) {
        for (place, list) in messages {
            let list = list.iter().map(Vec::as_slice);
            if *place == (0, 0) {
                self.header = message::apply(Some(&self.header), list).unwrap().unwrap();
                continue;
            }
            match message::apply(self.segments.get(place).map(Vec::as_slice), list).unwrap() {
                Some(bytes) => drop(self.segments.insert(*place, bytes)),
                None => drop(self.segments.remove(place)),
            }
        }
    }
}

#[test]
fn a_document_in_parts_is_what_it_was() {
    let mut random = Random(SmallRng::seed_from_u64(7));
    let mut shredded = 0;
    for round in 0..3000 {
        let doc = random_doc(&mut random, 0);
        let Some(stored) = Stored::new(&doc) else {
            continue;
        };
        shredded += 1;
        assert_eq!(stored.parts().0, doc, "round {round}");
    }
    assert!(shredded > 500, "{shredded}");
}

#[test]
fn messages_make_one_document_into_another_one_by_one_and_combined() {
    let mut random = Random(SmallRng::seed_from_u64(11));
    let mut changed = 0;
    for round in 0..4000 {
        let first = random_doc(&mut random, 0);
        let Some(base) = Stored::new(&first) else {
            continue;
        };
        let mut one_by_one = base.clone();
        let mut all: BTreeMap<(u16, u16), Vec<Vec<u8>>> = BTreeMap::new();
        let mut doc = first.clone();
        for _ in 0..4 {
            let new = mutated(&mut random, &doc, 0);
            let Some(messages) = one_by_one.messages(&new) else {
                continue;
            };
            changed += 1;
            let single = messages
                .iter()
                .map(|(place, one)| (*place, vec![one.clone()]));
            let before = one_by_one.clone();
            one_by_one.apply(&single.collect());
            let got = one_by_one.parts().0;
            assert_eq!(
                got, new,
                "round {round}: from {doc:?} {:?}",
                before.segments
            );
            for (place, message) in messages {
                all.entry(place).or_default().push(message);
            }
            doc = new;
        }
        let mut together = base.clone();
        together.apply(&all);
        assert_eq!(together.parts().0, doc, "round {round}: all from {first:?}");
        let combined =
            |list: &Vec<Vec<u8>>| message::combine(list.iter().map(Vec::as_slice)).unwrap();
        let mut by_combined = base.clone();
        by_combined.apply(
            &all.iter()
                .map(|(place, list)| (*place, vec![combined(list)]))
                .collect(),
        );
        assert_eq!(
            by_combined.parts().0,
            doc,
            "round {round}: combined from {first:?}"
        );
        if let [_, _, ..] = all.get(&(0, 0)).map_or(&[][..], |list| list) {
            let pairs = |list: &Vec<Vec<u8>>| {
                let (older, newer) = list.split_at(list.len() / 2);
                match older {
                    [] => combined(&newer.to_vec()),
                    _ => combined(&vec![combined(&older.to_vec()), combined(&newer.to_vec())]),
                }
            };
            let mut by_pairs = base.clone();
            by_pairs.apply(
                &all.iter()
                    .map(|(place, list)| (*place, vec![pairs(list)]))
                    .collect(),
            );
            assert_eq!(
                by_pairs.parts().0,
                doc,
                "round {round}: in pairs from {first:?}"
            );
        }
    }
    assert!(changed > 2000, "{changed}");
}
