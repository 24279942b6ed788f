//! Random values and documents: unusual names, every type, sub-documents and arrays of any size.

use frond_bson::{ArrayBuf, DocBuf, ObjectId, OwnedValue, Timestamp, Value};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Names that are difficult to divide into segments.
const ODD_NAMES: &[&str] = &[
    "",
    "0",
    "1",
    "2",
    "10",
    "007",
    "-1",
    "a.b",
    ".",
    "..",
    "x.",
    "$x",
    "$id",
    "$ref",
    "é",
    "日本語",
    "\u{1}",
    "\u{10FFFF}",
    " ",
    "_id",
    "a b",
    "$[]",
    "$",
    "id",
    "length",
];

/// The long prefix that the keys of the workload share.
const LONG_PREFIX: &str = "a_rather_long_prefix_that_all_the_keys_of_a_sub_document_share_";

/// A source of randomness.
pub struct Random(pub SmallRng);

/// The kind of values in a sub-document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Int64,
    Integers,
    Numbers,
    Anything,
    Documents,
    Arrays,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SmallRng::seed_from_u64(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end.max(1))
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// A name; the numbered ones are below `range`.
    pub fn name(&mut self, range: usize) -> String {
        let n = self.below(range);
        match self.below(40) {
            0 => self.pick(ODD_NAMES).to_owned(),
            1 => format!("{}{n}", "n".repeat(self.below(700))),
            2..=9 => format!("{LONG_PREFIX}{n}"),
            10..=13 => n.to_string(),
            14..=17 => self.pick(&["a", "b", "c", "d", "e"]).to_owned(),
            _ => format!("k{n}"),
        }
    }

    pub fn text(&mut self) -> String {
        match self.below(12) {
            0 => "x\u{0}y".to_owned(),
            1 => "y".repeat(self.below(1500)),
            2 | 3 => ["a red fox", "the red tree", "green trees", "blue"][self.below(4)].to_owned(),
            n => ["", "a", "ab", "abc", "b", "é", "A", "日本"][n % 8].to_owned(),
        }
    }

    pub fn integer(&mut self) -> i64 {
        let small = self.below(8) as i64;
        match self.below(24) {
            0 => i64::from(i32::MAX) - small,
            1 => i64::from(i32::MIN) + small,
            2 => i64::MAX - small,
            3 => i64::MIN + small,
            4 => i64::from(i32::MAX) + small,
            5 => 1 << (8 * small).min(62),
            6 => -small,
            _ => small,
        }
    }

    /// A number, mostly an integer.
    pub fn number(&mut self) -> OwnedValue {
        let n = self.integer();
        match self.below(20) {
            0 => OwnedValue::Double(n as f64),
            1 => OwnedValue::Double([0.5, -0.0, f64::NAN, f64::INFINITY, 1e300][self.below(5)]),
            2 => {
                let text = [
                    "1.5",
                    "0",
                    "-0.00",
                    "NaN",
                    "9.999999999999999999999999999999999E6144",
                ];
                OwnedValue::Decimal128(text[self.below(5)].parse().unwrap())
            }
            3..=9 => OwnedValue::Int64(n),
            _ => i32::try_from(n).map_or(OwnedValue::Int64(n), OwnedValue::Int32),
        }
    }

    pub fn scalar(&mut self) -> OwnedValue {
        let small = self.below(6);
        match self.below(30) {
            0..=11 => self.number(),
            12..=16 => self.text().into(),
            17 => OwnedValue::Null,
            18 => OwnedValue::Bool(small.is_multiple_of(2)),
            19 => OwnedValue::DateTime(small as i64 * 1000),
            20 => OwnedValue::ObjectId(ObjectId([small as u8; 12])),
            21 => OwnedValue::Binary {
                subtype: [0, 2, 4, 5, 128, 255][small],
                // Subtype 2 has a second length in front.
                bytes: match small {
                    1 => vec![3, 0, 0, 0, 1, 2, 3],
                    2 => vec![7; 16],
                    _ => vec![small as u8; self.below(90)],
                },
            },
            22 => OwnedValue::Undefined,
            23 => OwnedValue::Regex {
                pattern: "^a.*$".to_owned(),
                options: ["", "i", "imsx"][small % 3].to_owned(),
            },
            24 => OwnedValue::DbPointer {
                ns: "db.c".to_owned(),
                id: ObjectId([small as u8; 12]),
            },
            // Not UTF-8, or code.
            25 if small > 2 => OwnedValue::string([b"a\xFF".as_slice(), &[small as u8]].concat()),
            25 => OwnedValue::JavaScript("f()".to_owned()),
            26 => OwnedValue::Symbol("symbol".to_owned()),
            27 => OwnedValue::JavaScriptWithScope {
                code: "g()".to_owned(),
                scope: frond_bson::doc! {"v": small as i32},
            },
            28 => OwnedValue::Timestamp(Timestamp {
                time: small as u32,
                increment: 1 + small as u32,
            }),
            _ => [OwnedValue::MinKey, OwnedValue::MaxKey][small % 2].clone(),
        }
    }

    /// A value with documents nested at most `depth` deep.
    pub fn value(&mut self, depth: usize) -> OwnedValue {
        match self.below(10) {
            0 | 1 if depth > 0 => {
                let count = self.below(5);
                self.array(count, depth - 1).into()
            }
            2 | 3 if depth > 0 => {
                let count = self.below(5);
                self.container(count, Content::Anything, depth - 1).into()
            }
            _ => self.scalar(),
        }
    }

    pub fn array(&mut self, count: usize, depth: usize) -> ArrayBuf {
        let of_numbers = self.one_in(2);
        let mut out = ArrayBuf::new();
        for _ in 0..count {
            let value = if of_numbers {
                self.number()
            } else {
                self.value(depth)
            };
            out.push(&value);
        }
        out
    }

    pub fn content(&mut self) -> Content {
        match self.below(12) {
            0..=2 => Content::Int64,
            3..=5 => Content::Integers,
            6 => Content::Numbers,
            7 => Content::Documents,
            8 => Content::Arrays,
            _ => Content::Anything,
        }
    }

    /// A sub-document of this many elements.
    pub fn container(&mut self, count: usize, content: Content, depth: usize) -> DocBuf {
        let duplicates = self.one_in(15);
        let counted = self.one_in(2);
        let mut out = DocBuf::new();
        let mut names = std::collections::BTreeSet::new();
        for n in 0..count {
            let mut name = if counted {
                format!("k{n}")
            } else {
                self.name(count * 2 + 4)
            };
            if !duplicates && !names.insert(name.clone()) {
                name = format!("u{n}");
            }
            let value = match content {
                Content::Int64 => OwnedValue::Int64(self.integer()),
                Content::Integers => match self.integer() {
                    n if self.one_in(2) => OwnedValue::Int64(n),
                    n => i32::try_from(n).map_or(OwnedValue::Int64(n), OwnedValue::Int32),
                },
                Content::Numbers => self.number(),
                Content::Documents => {
                    let (count, content) = (self.below(6), self.content());
                    self.container(count, content, depth.saturating_sub(1))
                        .into()
                }
                Content::Arrays => {
                    let count = self.below(6);
                    self.array(count, depth.saturating_sub(1)).into()
                }
                Content::Anything => self.value(depth),
            };
            out.push(&name, &value);
        }
        out
    }

    /// A document of about `bytes`.
    pub fn document(&mut self, id: &OwnedValue, bytes: usize) -> DocBuf {
        let mut out = DocBuf::new();
        out.push("_id", id);
        for name in ["a", "b", "s"] {
            if !self.one_in(4) {
                let value = self.scalar();
                out.push(name, &value);
            }
        }
        let parts = 1 + self.below(3);
        for part in 0..parts {
            let content = self.content();
            // The approximate size of an element.
            let each = match content {
                Content::Int64 | Content::Integers => 24,
                Content::Numbers => 30,
                _ => 70,
            };
            let count = bytes / parts / each;
            let name = ["n", "m", "p", "tags"][(part + self.below(2)) % 4];
            if out.contains_key(name) && !self.one_in(20) {
                continue;
            }
            match self.below(9) {
                0 => {
                    let list = self.array(count, 2);
                    out.push(name, &list);
                }
                // A large one in a large one, or in a small one.
                1 | 2 => {
                    let mut outer = self.container(count / 2, content, 1);
                    let inner = self.container(count / 2, Content::Int64, 1);
                    let nested = frond_bson::doc! {"x": &inner, "y": 1};
                    match self.below(3) {
                        0 => outer.push("in", &inner),
                        1 => outer.push("in", &nested),
                        _ => outer = nested,
                    }
                    let tail = self.scalar();
                    outer.push("tail", &tail);
                    out.push(name, &outer);
                }
                // A large one in an array.
                3 => {
                    let mut list = ArrayBuf::new();
                    for _ in 0..1 + self.below(3) {
                        list.push(&self.container(count / 3, content, 1));
                    }
                    out.push(name, &list);
                }
                // Many fields in the document itself.
                4 => {
                    for element in self.container(count, content, 2).iter_raw() {
                        let taken = out.contains_key(element.name()) && !self.one_in(30);
                        if !taken && element.name() != "_id" {
                            out.push_raw(&element);
                        }
                    }
                }
                _ => out.push(name, &self.container(count, content, 2)),
            }
        }
        if self.one_in(2) {
            let value = self.value(3);
            out.push("z", &value);
        }
        out
    }

    /// An `_id`: few different ones, of several types.
    pub fn id(&mut self, range: usize) -> OwnedValue {
        id_of(self.below(range))
    }

    /// Sizes around a threshold: mostly near it, rarely tiny or several times larger.
    pub fn size_around(&mut self, threshold: usize) -> usize {
        match self.below(10) {
            0 | 1 => self.below(threshold / 2 + 1),
            2 => threshold * (2 + self.below(4)),
            _ => threshold * (60 + self.below(120)) / 100,
        }
    }
}

/// The `_id` with number `n`. Some of them are prefixes of others.
pub fn id_of(n: usize) -> OwnedValue {
    let value = n as i32;
    match n % 8 {
        0..=3 => OwnedValue::Int32(value),
        4 => OwnedValue::String(format!("id{}", "x".repeat(n))),
        5 => OwnedValue::ObjectId(ObjectId([n as u8; 12])),
        6 => OwnedValue::Document(frond_bson::doc! {"a": value, "b": {"c": "d"}}),
        _ => OwnedValue::String(format!("id\u{0}{}", "\u{0}".repeat(n / 8))),
    }
}

/// The encoded key of a value, which gives the order of a collection.
pub fn key_of(id: &Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    frond_bson::key::encode(id, &mut key);
    key
}
