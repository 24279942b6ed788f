//! Documents for tests in the notation of the `mongo` shell.

#![allow(clippy::unwrap_used)]

use frond_bson::{ArrayBuf, DocBuf, ObjectId, OwnedValue, Timestamp, Value, extjson, unhex};

/// Parses `{a: 1, "b.c": 'x', d: [1.5, NumberLong(7), /re/i]}`.
pub(crate) fn json(text: &str) -> DocBuf {
    let mut parser = Parser { text, rest: text };
    let doc = parser.document();
    parser.space();
    assert!(
        parser.rest.is_empty(),
        "trailing {:?} in {text}",
        parser.rest
    );
    doc
}

/// Parses one value in the same notation.
#[allow(dead_code)]
pub(crate) fn value(text: &str) -> OwnedValue {
    let mut parser = Parser { text, rest: text };
    let value = parser.value();
    parser.space();
    assert!(
        parser.rest.is_empty(),
        "trailing {:?} in {text}",
        parser.rest
    );
    value
}

/// A value as relaxed extended JSON.
pub(crate) fn show(value: &Value<'_>) -> String {
    extjson::value_to_relaxed(value)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(
            self.eat(token),
            "expected {token:?} at {:?} in {}",
            self.rest,
            self.text
        );
    }

    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> &'a str {
        self.space();
        let is_word = |c: char| c.is_alphanumeric() || "_$.+-".contains(c);
        self.take(self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()))
    }

    fn quoted(&mut self) -> Option<String> {
        self.space();
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| matches!(c, '"' | '\''))?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    '0' => '\0',
                    c => c,
                }),
                c if c == quote => {
                    self.take(at + 1);
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        panic!("unterminated string in {}", self.text)
    }

    fn document(&mut self) -> DocBuf {
        let mut doc = DocBuf::new();
        self.expect("{");
        while !self.eat("}") {
            let name = self.quoted().unwrap_or_else(|| self.word().to_string());
            self.expect(":");
            doc.push(&name, &self.value());
            if !self.eat(",") {
                self.expect("}");
                break;
            }
        }
        doc
    }

    fn array(&mut self) -> DocBuf {
        let mut items = ArrayBuf::new();
        self.expect("[");
        while !self.eat("]") {
            items.push(&self.value());
            if !self.eat(",") {
                self.expect("]");
                break;
            }
        }
        items.into_docbuf()
    }

    fn value(&mut self) -> OwnedValue {
        self.space();
        match self.rest.chars().next() {
            Some('{') => return self.document().into(),
            Some('[') => return OwnedValue::Array(self.array()),
            Some('/') => {
                self.take(1);
                let pattern = self.take(self.rest.find('/').unwrap()).to_string();
                self.take(1);
                return OwnedValue::Regex {
                    pattern,
                    options: self.word().to_string(),
                };
            }
            _ => {}
        }
        if let Some(text) = self.quoted() {
            return text.into();
        }
        let word = self.word();
        if self.eat("(") {
            let mut arguments = Vec::new();
            while !self.eat(")") {
                arguments.push(self.quoted().unwrap_or_else(|| self.word().to_string()));
                self.eat(",");
            }
            return construct(word, &arguments);
        }
        match word {
            "true" => true.into(),
            "false" => false.into(),
            "null" => OwnedValue::Null,
            "undefined" => OwnedValue::Undefined,
            "MinKey" => OwnedValue::MinKey,
            "MaxKey" => OwnedValue::MaxKey,
            "NaN" => f64::NAN.into(),
            "Infinity" => f64::INFINITY.into(),
            "-Infinity" => f64::NEG_INFINITY.into(),
            number => match (number.parse::<i32>(), number.parse::<i64>()) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => number
                    .parse::<f64>()
                    .unwrap_or_else(|_| panic!("{number:?}"))
                    .into(),
            },
        }
    }
}

fn construct(name: &str, arguments: &[String]) -> OwnedValue {
    let first = arguments[0].as_str();
    match name {
        "NumberLong" => first.parse::<i64>().unwrap().into(),
        "NumberDecimal" => OwnedValue::Decimal128(first.parse().unwrap()),
        "Date" => OwnedValue::DateTime(first.parse().unwrap()),
        "ObjectId" => first.parse::<ObjectId>().unwrap().into(),
        "Symbol" => OwnedValue::Symbol(first.to_string()),
        "Code" => OwnedValue::JavaScript(first.to_string()),
        "Timestamp" => Timestamp {
            time: first.parse().unwrap(),
            increment: arguments[1].parse().unwrap(),
        }
        .into(),
        "BinData" => OwnedValue::Binary {
            subtype: first.parse().unwrap(),
            bytes: unhex(&arguments[1]).unwrap(),
        },
        _ => panic!("unknown constructor {name}"),
    }
}
