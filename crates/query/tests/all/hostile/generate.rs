//! Random expressions and documents.

use frond_bson::{ArrayBuf, DocBuf, OwnedValue, Value, doc};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The deepest nesting of operators.
const DEPTH_MAX: u32 = 6;

pub struct Generator {
    random: SmallRng,
    /// The variables around the expression that is made.
    variables: Vec<(&'static str, Type)>,
}

/// The types of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Number,
    Array,
    Document,
    Bool,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator {
            random: SmallRng::seed_from_u64(seed),
            variables: Vec::new(),
        }
    }

    /// A document whose strings and arrays have up to `size` characters and elements.
    pub fn document(&mut self, size: usize) -> DocBuf {
        let text = |letters: &str, count: usize| letters.repeat(count / letters.len());
        let [long, short] = [self.below(size) + 1, self.below(100) + 1];
        let numbers: ArrayBuf = (0..self.below(size / 10)).map(|n| n as i32).collect();
        let texts: ArrayBuf = (0..self.below(size / 100))
            .map(|n| OwnedValue::String(n.to_string()))
            .collect::<Vec<_>>()
            .iter()
            .collect();
        let mut pairs = ArrayBuf::new();
        for n in 0..self.below(size / 100) {
            pairs.push(&doc! {"k": &*n.to_string(), "v": n as i32});
        }
        let mut fields = DocBuf::new();
        for n in 0..self.below(size / 100) {
            fields.push(&format!("f{n}"), n as i32);
        }
        doc! {
            "s": &*text("a", long),
            "t": &*text("ab", long),
            "u": &*text("äö", long),
            "w": &*text("b", short),
            "n": &numbers,
            "l": &texts,
            "p": &pairs,
            "o": &fields,
            "i": self.below(1000) as i32,
        }
    }

    /// `{e: <expression>}`.
    pub fn expression(&mut self) -> DocBuf {
        let kind = self.any_type();
        let value = self.of_type(kind, DEPTH_MAX);
        doc! {"e": &value}
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end.max(1))
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn any_type(&mut self) -> Type {
        use Type::{Array, Bool, Document, Number, Text};
        self.one(&[Text, Text, Array, Array, Array, Number, Document, Bool])
    }

    fn leaf(&mut self, kind: Type) -> OwnedValue {
        let known: Vec<&'static str> = (self.variables.iter())
            .filter(|(_, of)| *of == kind)
            .map(|(name, _)| *name)
            .collect();
        if !known.is_empty() && self.below(2) == 0 {
            return text(self.one(&known));
        }
        match kind {
            Type::Text => text(self.one(&["$s", "$t", "$u", "$w", "$s", "x"])),
            Type::Number => match self.below(2) {
                0 => text("$i"),
                _ => OwnedValue::Int32(self.below(100) as i32),
            },
            Type::Array => text(self.one(&["$n", "$l", "$p", "$n"])),
            Type::Document => text(self.one(&["$o", "$$ROOT"])),
            Type::Bool => OwnedValue::Bool(self.below(2) == 0),
        }
    }

    fn of_type(&mut self, kind: Type, depth: u32) -> OwnedValue {
        if depth == 0 || self.below(6) == 0 {
            return self.leaf(kind);
        }
        let below = depth - 1;
        match self.below(8) {
            0 => return self.choice(kind, below),
            1 => return self.binding(kind, below),
            _ => {}
        }
        match kind {
            Type::Text => self.text(below),
            Type::Number => self.number(below),
            Type::Array => self.array(below),
            Type::Document => self.document_of(below),
            Type::Bool => self.bool(below),
        }
    }

    fn call(&mut self, name: &str, kinds: &[Type], depth: u32) -> OwnedValue {
        let arguments: Vec<OwnedValue> = kinds
            .iter()
            .map(|kind| self.of_type(*kind, depth))
            .collect();
        let arguments: ArrayBuf = arguments.iter().collect();
        doc! {name: &arguments}.into()
    }

    fn many(&mut self, name: &str, kind: Type, depth: u32) -> OwnedValue {
        let kinds = vec![kind; self.below(6) + 1];
        self.call(name, &kinds, depth)
    }

    fn choice(&mut self, kind: Type, depth: u32) -> OwnedValue {
        match self.below(3) {
            0 => self.call("$cond", &[Type::Bool, kind, kind], depth),
            1 => self.call("$ifNull", &[kind, kind], depth),
            _ => {
                let (case, then) = (self.of_type(Type::Bool, depth), self.of_type(kind, depth));
                let default = self.of_type(kind, depth);
                doc! {"$switch": {"branches": [{"case": &case, "then": &then}], "default": &default}}.into()
            }
        }
    }

    fn binding(&mut self, kind: Type, depth: u32) -> OwnedValue {
        let of = self.any_type();
        let value = self.of_type(of, depth);
        let other = self.of_type(of, depth);
        self.variables.push(("$$v", of));
        let body = self.of_type(kind, depth);
        self.variables.pop();
        doc! {"$let": {"vars": {"v": &value, "w": &other}, "in": &body}}.into()
    }

    fn text(&mut self, depth: u32) -> OwnedValue {
        use Type::{Number, Text};
        match self.below(12) {
            0..3 => self.many("$concat", Text, depth),
            3 => self.call("$toUpper", &[Text], depth),
            4 => {
                let name = self.one(&["$substrBytes", "$substrCP", "$substr"]);
                self.call(name, &[Text, Number, Number], depth)
            }
            5..8 => {
                let name = self.one(&["$replaceAll", "$replaceOne", "$replaceAll"]);
                let (input, find) = (
                    self.of_type(Text, depth),
                    self.one(&["a", "b", "ab", "", "aab"]),
                );
                let with = self.of_type(Text, depth);
                doc! {name: {"input": &input, "find": find, "replacement": &with}}.into()
            }
            8 => {
                let name = self.one(&["$trim", "$ltrim", "$rtrim"]);
                let (input, chars) = (self.of_type(Text, depth), self.of_type(Text, depth));
                doc! {name: {"input": &input, "chars": &chars}}.into()
            }
            9 => self.reduce(Text, depth),
            10 => {
                let number = self.of_type(Number, depth);
                doc! {"$toString": &number}.into()
            }
            _ => {
                let date = Value::DateTime(0);
                let format = self.of_type(Text, depth);
                doc! {"$dateToString": {"date": date, "format": &format}}.into()
            }
        }
    }

    fn number(&mut self, depth: u32) -> OwnedValue {
        use Type::{Array, Document, Number, Text};
        match self.below(10) {
            0 => self.call("$strLenCP", &[Text], depth),
            1 => self.call("$strLenBytes", &[Text], depth),
            2 => self.call("$size", &[Array], depth),
            3 => {
                let name = self.one(&["$indexOfBytes", "$indexOfCP"]);
                self.call(name, &[Text, Text], depth)
            }
            4 => self.call("$indexOfArray", &[Array, Number], depth),
            5 => {
                let name = self.one(&["$sum", "$avg", "$min", "$max", "$stdDevPop", "$stdDevSamp"]);
                self.call(name, &[Array], depth)
            }
            6 => self.call("$strcasecmp", &[Text, Text], depth),
            7 => self.many("$add", Number, depth),
            8 => self.call("$bsonSize", &[Document], depth),
            _ => {
                let kind = self.any_type();
                self.call("$toHashedIndexKey", &[kind], depth)
            }
        }
    }

    fn array(&mut self, depth: u32) -> OwnedValue {
        use Type::{Array, Document, Number, Text};
        match self.below(18) {
            0 | 1 => self.many("$concatArrays", Array, depth),
            2 => self.call("$reverseArray", &[Array], depth),
            3 => self.call("$slice", &[Array, Number], depth),
            4 => {
                let end = self.one(&[10, 1000, 100_000, 4_000_000]);
                doc! {"$range": [0, end]}.into()
            }
            5 => {
                let by = self.one(&[1, -1]);
                let input = self.of_type(Array, depth);
                match self.below(2) {
                    0 => doc! {"$sortArray": {"input": &input, "sortBy": by}}.into(),
                    _ => doc! {"$sortArray": {"input": &input, "sortBy": {"v": by, "k": 1}}}.into(),
                }
            }
            6 => {
                let inputs: Vec<OwnedValue> = (0..self.below(5) + 1)
                    .map(|_| self.of_type(Array, depth))
                    .collect();
                let inputs: ArrayBuf = inputs.iter().collect();
                let longest = self.below(2) == 0;
                doc! {"$zip": {"inputs": &inputs, "useLongestLength": longest}}.into()
            }
            7 => {
                let name = self.one(&["$setUnion", "$setIntersection"]);
                self.many(name, Array, depth)
            }
            8 => self.call("$setDifference", &[Array, Array], depth),
            9 => self.call("$objectToArray", &[Document], depth),
            10 => {
                let input = self.of_type(Text, depth);
                let separator = self.one(&["a", "b", "ab", "ö"]);
                doc! {"$split": [&input, separator]}.into()
            }
            11 => {
                let input = self.of_type(Text, depth);
                let regex = self.one(&["a", "(a)(b)?", "a.*b|a", "(?:)", "(a|ab)(c|bcd)?", "\\w+"]);
                doc! {"$regexFindAll": {"input": &input, "regex": regex}}.into()
            }
            12 => {
                let name = self.one(&["$firstN", "$lastN", "$minN", "$maxN"]);
                let n = self.one(&[1, 100, 1_000_000]);
                let input = self.of_type(Array, depth);
                doc! {name: {"n": n, "input": &input}}.into()
            }
            13 => {
                let items: Vec<OwnedValue> = (0..self.below(8))
                    .map(|_| {
                        let kind = self.any_type();
                        self.of_type(kind, depth)
                    })
                    .collect();
                OwnedValue::Array(items.iter().collect::<ArrayBuf>().into_docbuf())
            }
            14 => self.reduce(Array, depth),
            15 => {
                let input = self.of_type(Array, depth);
                self.variables.push(("$$e", Type::Number));
                let condition = self.of_type(Type::Bool, depth);
                self.variables.pop();
                doc! {"$filter": {"input": &input, "as": "e", "cond": &condition}}.into()
            }
            _ => {
                let input = self.of_type(Array, depth);
                let kind = self.any_type();
                self.variables.push(("$$e", Type::Number));
                let body = self.of_type(kind, depth);
                self.variables.pop();
                doc! {"$map": {"input": &input, "as": "e", "in": &body}}.into()
            }
        }
    }

    fn document_of(&mut self, depth: u32) -> OwnedValue {
        use Type::{Array, Document};
        match self.below(5) {
            0 | 1 => self.many("$mergeObjects", Document, depth),
            2 => {
                let pairs = self.of_type(Array, depth);
                doc! {"$arrayToObject": {"$map": {"input": &pairs, "in": {"k": {"$toString": {"$type": "$$this"}}, "v": "$$this"}}}}
                    .into()
            }
            3 => {
                let kind = self.any_type();
                let (input, value) = (self.of_type(Document, depth), self.of_type(kind, depth));
                doc! {"$setField": {"field": "x", "input": &input, "value": &value}}.into()
            }
            _ => {
                let kinds = [self.any_type(), self.any_type(), self.any_type()];
                let [a, b, c] = kinds.map(|kind| self.of_type(kind, depth));
                doc! {"a": &a, "b": &b, "c": &c}.into()
            }
        }
    }

    fn bool(&mut self, depth: u32) -> OwnedValue {
        let kind = self.any_type();
        match self.below(6) {
            0 => {
                let name = self.one(&["$eq", "$lt", "$gte", "$ne"]);
                self.call(name, &[kind, kind], depth)
            }
            1 => self.call("$in", &[kind, Type::Array], depth),
            2 => {
                let name = self.one(&["$setEquals", "$setIsSubset"]);
                self.call(name, &[Type::Array, Type::Array], depth)
            }
            3 => {
                let input = self.of_type(Type::Text, depth);
                let regex = self.one(&["b$", "(a+)+b", "^(?=a)a*c", "ab"]);
                doc! {"$regexMatch": {"input": &input, "regex": regex}}.into()
            }
            4 => {
                let name = self.one(&["$and", "$or"]);
                self.many(name, Type::Bool, depth)
            }
            _ => self.call("$allElementsTrue", &[Type::Array], depth),
        }
    }

    fn reduce(&mut self, kind: Type, depth: u32) -> OwnedValue {
        let (input, start) = (self.of_type(Type::Array, depth), self.of_type(kind, depth));
        self.variables.push(("$$value", kind));
        let body = self.of_type(kind, depth);
        self.variables.pop();
        doc! {"$reduce": {"input": &input, "initialValue": &start, "in": &body}}.into()
    }
}

fn text(text: &str) -> OwnedValue {
    OwnedValue::String(text.to_owned())
}
