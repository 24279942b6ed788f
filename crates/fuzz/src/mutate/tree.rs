//! Changes of documents in extended JSON: names, values, whole parts.

use frond_bson::{DocBuf, ObjectId, OwnedValue, Timestamp, Value, extjson};
use rand::RngExt;
use rand::rngs::SmallRng;

/// The deepest place that is changed. Parsers have a limit that is lower than the stack's.
const DEPTH_MAX: usize = 120;

/// A value as a tree that is easy to change.
#[derive(Clone, Debug)]
enum Node {
    Doc(Vec<(String, Node)>),
    Array(Vec<Node>),
    Leaf(OwnedValue),
}

impl Node {
    fn from_value(value: &Value<'_>) -> Node {
        match value {
            Value::Document(doc) => Node::Doc(
                doc.iter()
                    .map(|(name, value)| (name.to_owned(), Node::from_value(&value)))
                    .collect(),
            ),
            Value::Array(array) => Node::Array(
                array
                    .values()
                    .map(|value| Node::from_value(&value))
                    .collect(),
            ),
            leaf => Node::Leaf(leaf.to_owned()),
        }
    }

    fn push_to(&self, doc: &mut DocBuf, name: &str) {
        match self {
            Node::Doc(fields) => doc.push_doc(name, |inner| {
                fields
                    .iter()
                    .for_each(|(name, value)| value.push_to(inner, name));
            }),
            Node::Array(values) => {
                let mut inner = DocBuf::new();
                for (index, value) in values.iter().enumerate() {
                    value.push_to(&mut inner, &index.to_string());
                }
                doc.push_value(name, &Value::Array(&inner));
            }
            Node::Leaf(value) => doc.push_value(name, &value.as_value()),
        }
    }

    fn text(&self) -> Vec<u8> {
        let mut doc = DocBuf::new();
        self.push_to(&mut doc, "");
        let value = doc
            .first()
            .map(|(_, value)| extjson::value_to_canonical(&value));
        value.unwrap_or_default().into_bytes()
    }

    /// This node and all below it.
    fn count(&self) -> usize {
        1 + match self {
            Node::Doc(fields) => fields.iter().map(|(_, value)| value.count()).sum(),
            Node::Array(values) => values.iter().map(Node::count).sum(),
            Node::Leaf(_) => 0,
        }
    }

    /// Calls `visit` with the node of this number, counted as in [`Node::count`].
    fn with(&mut self, number: &mut usize, depth: usize, visit: &mut dyn FnMut(&mut Node, usize)) {
        if *number == 0 {
            visit(self, depth);
        }
        *number = number.wrapping_sub(1);
        match self {
            Node::Doc(fields) => {
                for (_, value) in fields {
                    value.with(number, depth + 1, visit);
                }
            }
            Node::Array(values) => {
                for value in values {
                    value.with(number, depth + 1, visit);
                }
            }
            Node::Leaf(_) => {}
        }
    }
}

/// The names and parts of all inputs.
#[derive(Default)]
pub struct Words {
    names: Vec<String>,
    parts: Vec<Node>,
}

impl Words {
    /// Those of inputs in extended JSON.
    pub fn collect(inputs: &[Vec<u8>]) -> Words {
        fn collect(node: &Node, words: &mut Words) {
            words.parts.push(node.clone());
            match node {
                Node::Doc(fields) => {
                    for (name, value) in fields {
                        words.names.push(name.clone());
                        collect(value, words);
                    }
                }
                Node::Array(values) => values.iter().for_each(|value| collect(value, words)),
                Node::Leaf(_) => {}
            }
        }
        let mut words = Words::default();
        for input in inputs {
            if let Some(root) = parse(input) {
                collect(&root, &mut words);
            }
        }
        for family in frond_query::reference::families() {
            words
                .names
                .extend(family.names.into_iter().map(str::to_owned));
        }
        words.names.sort();
        words.names.dedup();
        words
    }

    fn name(&self, random: &mut SmallRng) -> String {
        let odd = [
            "", "$", ".", "a.", ".a", "a..b", "a.$", "a.$[]", "a.$[x]", "0", "a.0.b", "_id", "$x",
        ];
        match self.names.get(random.random_range(0..self.names.len() + 2)) {
            Some(name) => name.clone(),
            None => odd[random.random_range(0..odd.len())].to_owned(),
        }
    }

    fn part(&self, random: &mut SmallRng) -> Node {
        match self.parts.get(random.random_range(0..self.parts.len() + 1)) {
            Some(part) => part.clone(),
            None => Node::Leaf(leaf(random)),
        }
    }
}

fn parse(input: &[u8]) -> Option<Node> {
    let text = std::str::from_utf8(input).ok()?;
    extjson::parse_value(text)
        .ok()
        .map(|value| Node::from_value(&value.as_value()))
}

/// Changes a document in one place; `None` if the bytes are no extended JSON.
pub fn change(input: &[u8], words: &Words, random: &mut SmallRng) -> Option<Vec<u8>> {
    let mut root = parse(input)?;
    let mut number = random.random_range(0..root.count());
    root.with(&mut number, 0, &mut |node, depth| {
        if depth < DEPTH_MAX {
            change_node(node, words, random);
        }
    });
    Some(root.text())
}

fn change_node(node: &mut Node, words: &Words, random: &mut SmallRng) {
    let choice = random.random_range(0..12);
    match (&mut *node, choice) {
        (_, 0) => *node = words.part(random),
        (_, 1) => *node = Node::Leaf(leaf(random)),
        (_, 2) => {
            let inner = std::mem::replace(node, Node::Array(Vec::new()));
            *node = Node::Doc(vec![(words.name(random), inner)]);
        }
        (_, 3) => {
            let inner = std::mem::replace(node, Node::Array(Vec::new()));
            *node = Node::Array(vec![inner]);
        }
        (Node::Doc(fields), 4 | 5) => fields.push((words.name(random), words.part(random))),
        (Node::Doc(fields), 6..=8) if !fields.is_empty() => {
            let at = random.random_range(0..fields.len());
            fields[at].0 = words.name(random);
        }
        (Node::Doc(fields), 9) if !fields.is_empty() => {
            fields.remove(random.random_range(0..fields.len()));
        }
        (Node::Doc(fields), _) if !fields.is_empty() => {
            let (a, b) = (
                random.random_range(0..fields.len()),
                random.random_range(0..fields.len()),
            );
            let value = fields[a].1.clone();
            fields[b].1 = value;
        }
        (Node::Array(values), 4..=6) => {
            let at = random.random_range(0..=values.len());
            values.insert(at, words.part(random));
        }
        (Node::Array(values), 7 | 8) if !values.is_empty() => {
            values.remove(random.random_range(0..values.len()));
        }
        (Node::Array(values), 9) if values.len() > 1 => {
            let (a, b) = (
                random.random_range(0..values.len()),
                random.random_range(0..values.len()),
            );
            values.swap(a, b);
        }
        (Node::Leaf(OwnedValue::String(text)), 4..=7) => {
            let at = random.random_range(0..=text.chars().count());
            let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
            let pieces = [
                "$",
                ".",
                "%Y",
                "\0",
                "é",
                "\u{10FFFF}",
                "0",
                "-",
                " ",
                "a",
                "(",
                "*",
                "9999999999",
            ];
            text.insert_str(at, pieces[random.random_range(0..pieces.len())]);
        }
        _ => *node = Node::Leaf(leaf(random)),
    }
}

/// A value at which code often goes wrong.
fn leaf(random: &mut SmallRng) -> OwnedValue {
    let ints = [0, 1, -1, 2, 7, 64, 1000, i32::MAX, i32::MIN];
    let longs = [
        i64::MAX,
        i64::MIN,
        i64::MAX - 1,
        1 << 53,
        1 << 31,
        -(1 << 31) - 1,
        1 << 62,
    ];
    let doubles = [
        0.0,
        -0.0,
        0.5,
        1.5,
        -1.5,
        1e308,
        1e-308,
        9.3e18,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let decimals = [
        "0",
        "-0",
        "1.5",
        "NaN",
        "Infinity",
        "9.999999999999999999999999999999999E6144",
        "1E-6176",
    ];
    let texts = [
        "",
        "a",
        "$a",
        "$a.b",
        "$$ROOT",
        "$$NOW",
        "$$this",
        "$",
        "b",
        "2020-02-30T00:00:00Z",
        "America/New_York",
        "day",
    ];
    let dates = [
        0,
        -1,
        i64::MAX,
        i64::MIN,
        1_600_000_000_000,
        253_402_300_800_000,
    ];
    let mut pick = |len: usize| random.random_range(0..len);
    match pick(20) {
        0..=3 => OwnedValue::Int32(ints[pick(ints.len())]),
        4 | 5 => OwnedValue::Int64(longs[pick(longs.len())]),
        6 | 7 => OwnedValue::Double(doubles[pick(doubles.len())]),
        8 => decimals[pick(decimals.len())]
            .parse()
            .map_or(OwnedValue::Null, OwnedValue::Decimal128),
        9..=11 => OwnedValue::String(texts[pick(texts.len())].to_owned()),
        12 => OwnedValue::DateTime(dates[pick(dates.len())]),
        13 => OwnedValue::Bool(pick(2) == 0),
        14 => OwnedValue::Regex {
            pattern: ["^a", "(a*)*b", "[", "a{1000}", ""][pick(5)].to_owned(),
            options: ["", "i", "x", "q"][pick(4)].to_owned(),
        },
        15 => OwnedValue::Binary {
            subtype: [0, 2, 4, 128][pick(4)],
            bytes: vec![0; pick(20)],
        },
        16 => OwnedValue::Timestamp(Timestamp {
            time: u32::MAX,
            increment: pick(3) as u32,
        }),
        17 => OwnedValue::ObjectId(ObjectId([7; 12])),
        18 => [
            OwnedValue::MinKey,
            OwnedValue::MaxKey,
            OwnedValue::Undefined,
        ][pick(3)]
        .clone(),
        _ => OwnedValue::Null,
    }
}
