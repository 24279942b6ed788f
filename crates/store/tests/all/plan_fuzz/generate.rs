//! Random documents, indexes, filters and sorts.

use frond_bson::{
    ArrayBuf, Decimal128, Doc, DocBuf, ObjectId, OwnedValue, Timestamp, Value, array, doc,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Names of fields at all levels. Few, so that filters and documents share paths.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Sub-documents and arrays are nested to this depth.
const DEPTH: usize = 4;

pub struct Random(StdRng);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(StdRng::seed_from_u64(seed))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn number(&mut self) -> OwnedValue {
        let small = self.below(4) as i32;
        match self.below(8) {
            0 => f64::from(small).into(),
            1 => OwnedValue::Double(f64::from(small) + 0.5),
            2 => OwnedValue::Int64(i64::from(small)),
            3 => OwnedValue::Decimal128(Decimal128::from(small)),
            _ => small.into(),
        }
    }

    /// A value that is neither a document with contents nor an array.
    pub fn scalar(&mut self) -> OwnedValue {
        let small = self.below(4) as u8;
        match self.below(40) {
            0..=19 => self.number(),
            20..=24 => self.pick(&["", "a", "ab", "b", "B", "x\u{0}y"]).into(),
            25 => OwnedValue::string(self.pick(&[&b"a\xFF"[..], b"\xC3", b"b\x00\x80"]).to_vec()),
            26 | 27 => OwnedValue::Null,
            28 => OwnedValue::Bool(small.is_multiple_of(2)),
            29 => OwnedValue::DateTime(i64::from(small)),
            30 => OwnedValue::ObjectId(ObjectId([small; 12])),
            31 => OwnedValue::Binary {
                subtype: small % 2,
                bytes: vec![small],
            },
            32 => OwnedValue::Timestamp(Timestamp {
                time: 1,
                increment: u32::from(small),
            }),
            33 => OwnedValue::Regex {
                pattern: "^a".into(),
                options: String::new(),
            },
            34 => OwnedValue::Symbol("a".into()),
            35 => self.pick(&[f64::NAN, -0.0, f64::INFINITY]).into(),
            36 => OwnedValue::MinKey,
            37 => OwnedValue::MaxKey,
            38 => match small {
                0 | 1 => OwnedValue::Undefined,
                2 => OwnedValue::JavaScript("1".into()),
                _ => OwnedValue::DbPointer {
                    ns: "a.b".into(),
                    id: ObjectId([1; 12]),
                },
            },
            _ => OwnedValue::Document(DocBuf::new()),
        }
    }

    /// Any value; `arrays` says how many in eight are arrays.
    fn value(&mut self, depth: usize, arrays: usize) -> OwnedValue {
        if depth == 0 {
            return self.scalar();
        }
        match self.below(8) {
            n if n < arrays => self.array(depth - 1, arrays),
            5 | 6 => self.document_of(&NAMES, depth - 1, arrays).into(),
            _ => self.scalar(),
        }
    }

    fn array(&mut self, depth: usize, arrays: usize) -> OwnedValue {
        let mut array = ArrayBuf::new();
        let documents = self.one_in(2);
        for _ in 0..self.below(4) {
            if documents && depth > 0 && !self.one_in(6) {
                array.push(&self.document_of(&NAMES, depth - 1, arrays));
            } else {
                array.push(&self.value(depth, arrays.min(1)));
            }
        }
        array.into()
    }

    fn document_of(&mut self, names: &[&str], depth: usize, arrays: usize) -> DocBuf {
        let mut out = DocBuf::new();
        for name in names {
            if !self.one_in(4) {
                out.push(name, &self.value(depth, arrays));
            }
        }
        // A field with a number as its name, like an element of an array.
        if self.one_in(24) {
            out.push(self.pick(&["0", "1"]), &self.scalar());
        }
        out
    }

    /// A document of the collection. `arrays` says how many in eight values are arrays.
    pub fn document(&mut self, id: i32, arrays: usize) -> DocBuf {
        let mut out = doc! {"_id": id};
        for (name, value) in self.document_of(&NAMES, DEPTH, arrays).iter() {
            out.push(name, value);
        }
        out.push("t", self.pick(&["apple", "pear apple", "plum", ""]));
        if !self.one_in(3) {
            out.push("g", &self.place());
            out.push("p", &self.point());
        }
        // Hashed fields hold no arrays.
        out.push("h", &self.scalar());
        out.push("d", &self.date());
        if self.one_in(12) {
            // A name that reads like a path.
            out.push(self.pick(&["a.b", "b.a", "a.a.b"]), &self.scalar());
        }
        out
    }

    fn point(&mut self) -> ArrayBuf {
        array![self.below(5) as i32, self.below(5) as i32]
    }

    fn place(&mut self) -> DocBuf {
        doc! {"type": "Point", "coordinates": self.point()}
    }

    /// A date in one of some seconds.
    fn date(&mut self) -> OwnedValue {
        OwnedValue::DateTime(1000 * (self.below(7) as i64 - 2) + self.below(3) as i64)
    }

    /// A condition on the dates of documents.
    pub fn push_dates(&mut self, filter: &mut DocBuf) {
        let (one, other) = (self.date(), self.date());
        match self.below(6) {
            0 => filter.push("d", &one),
            1 => filter.push("d", &doc! {"$gte": &one, "$lt": &other}),
            2 => filter.push("d", &doc! {"$gt": &one}),
            3 => filter.push("d", &doc! {"$lte": &one}),
            4 => filter.push("d", &doc! {"$in": array![&one, &other]}),
            _ => filter.push("d", &doc! {"$ne": &one}),
        }
    }

    /// Options that decide under which keys documents are stored.
    pub fn layout(&mut self) -> DocBuf {
        let order = self.pick(&["_id", "insertion", "", "", "dates"]);
        if order == "dates" {
            return doc! {"partitioned": {"by": "d", "every": "1s"}};
        }
        if !order.is_empty() {
            return doc! {"naturalOrder": order};
        }
        let up = |random: &mut Random| if random.one_in(2) { 1 } else { -1 };
        let mut key = DocBuf::new();
        for _ in 0..self.pick(&[1, 1, 2, 3]) {
            let path = self.pick(&["a", "b", "h", "a.b", "c.a"]);
            let is_new = |(other, _): (&str, Value<'_>)| {
                !other.starts_with(path) && !path.starts_with(other)
            };
            if key.iter().all(is_new) {
                key.push(path, up(self));
            }
        }
        key.push("_id", 1);
        let mut options = doc! {"primaryKey": &key};
        let ascends = key
            .iter()
            .next()
            .is_some_and(|(_, direction)| direction == Value::Int32(1));
        if ascends && !self.one_in(3) {
            options.push("partitioned", true);
        }
        options
    }

    /// The end of a partition.
    pub fn bound(&mut self) -> OwnedValue {
        loop {
            let value = self.scalar();
            let is_bound = !matches!(
                value.as_value(),
                Value::MinKey | Value::MaxKey | Value::Array(_)
            );
            if is_bound {
                return value;
            }
        }
    }

    /// A collation of an index or of a query; mostly none.
    pub fn collation(&mut self) -> Option<DocBuf> {
        self.one_in(6)
            .then(|| doc! {"locale": "en", "strength": 1 + self.below(3) as i32})
    }

    /// A new value for a field of a document.
    pub fn replacement(&mut self) -> OwnedValue {
        self.value(2, 3)
    }

    /// A path of up to four components, rarely with a number.
    pub fn path(&mut self) -> String {
        if self.one_in(12) {
            return "d".to_owned();
        }
        let mut path = self.pick(&NAMES).to_owned();
        for _ in 0..self.pick(&[0, 0, 1, 1, 1, 2, 2, 3]) {
            path.push('.');
            path.push_str(if self.one_in(10) {
                self.pick(&["0", "1"])
            } else {
                self.pick(&NAMES)
            });
        }
        path
    }

    /// A path, mostly of an index: one of `known`, or another.
    fn likely_path(&mut self, known: &[String]) -> String {
        if known.is_empty() || self.one_in(5) {
            self.path()
        } else {
            known[self.below(known.len())].clone()
        }
    }

    /// The specification of an index of any kind.
    pub fn index(&mut self, name: usize) -> DocBuf {
        let name = format!("index{name}");
        let up = |random: &mut Random| if random.one_in(2) { 1 } else { -1 };
        let mut key = DocBuf::new();
        let kind = self.below(16);
        let wildcard = match kind {
            0 => {
                let only: &str = self.pick(&["$**", "a.$**", "b.c.$**"]);
                Some(doc! {only: up(self)})
            }
            1 => Some(doc! {"a.b": 1, "b.$**": 1, "c": -1}),
            _ => None,
        };
        if let Some(key) = wildcard {
            let mut index = doc! {"key": &key, "name": name.as_str()};
            if let Some(collation) = self.collation() {
                index.push("collation", &collation);
            }
            return index;
        }
        let fields = self.pick(&[1, 2, 2, 2, 3, 3, 4]);
        let top = self.path();
        while key.count() < fields {
            let mut path = self.path();
            // Fields that share the beginning of their paths.
            if self.one_in(2) {
                let shared = top.split('.').take(1 + self.below(2));
                path = shared
                    .chain([self.pick(&NAMES)])
                    .collect::<Vec<_>>()
                    .join(".");
            }
            if !key.contains_key(&path) {
                key.push(&path, up(self));
            }
        }
        match kind {
            2 => {
                let rest = std::mem::replace(&mut key, doc! {"p": "2d"});
                key.push(rest.iter().next().unwrap().0, 1);
            }
            3 => key.push("h", "hashed"),
            4 => key.push("g", "2dsphere"),
            5 => key.push("t", "text"),
            6 if !key.contains_key("_id") => key.push("_id", 1),
            _ => {}
        }
        let mut index = doc! {"key": &key, "name": name.as_str()};
        match kind {
            6 => index.push("unique", true),
            7 | 8 => index.push("sparse", true),
            9 | 11 => {
                index.push("partialFilterExpression", &self.partial_filter());
            }
            10 => index.push("clustering", true),
            _ => {}
        }
        if !matches!(kind, 2 | 5)
            && let Some(collation) = self.collation()
        {
            index.push("collation", &collation);
        }
        index
    }

    /// The filter of a partial index: conditions that MongoDB allows there.
    pub fn partial_filter(&mut self) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.pick(&[1, 1, 1, 2]) {
            match self.below(10) {
                0 => {
                    let branches = self.list(|random| random.partial_condition().into());
                    let operator = self.pick(&["$or", "$or", "$and"]);
                    if !out.contains_key(operator) {
                        out.push(operator, &branches);
                    }
                }
                1 if !out.contains_key("p") => {
                    let corner = self.point();
                    out.push("p", &doc! {"$geoWithin": {"$box": [corner, [4, 4]]}});
                }
                _ => {
                    for (path, condition) in self.partial_condition().iter() {
                        if !out.contains_key(path) {
                            out.push(path, condition);
                        }
                    }
                }
            }
        }
        out
    }

    fn partial_condition(&mut self) -> DocBuf {
        let condition = match self.below(8) {
            0 => doc! {"$exists": true},
            1 => doc! {"$gt": 0},
            2 => {
                let operator = self.pick(&["$lt", "$lte", "$gt", "$gte"]);
                doc! {operator: &self.operand()}
            }
            3 => doc! {"$eq": &self.operand()},
            4 => doc! {"$in": self.list(Random::operand)},
            5 => {
                let types = self.list(|random| random.type_name().into());
                doc! {"$type": types}
            }
            _ => doc! {"$type": self.type_name()},
        };
        let mut out = DocBuf::new();
        out.push(&self.path(), &condition);
        out
    }

    fn type_name(&mut self) -> &'static str {
        self.pick(&[
            "number", "number", "string", "string", "int", "symbol", "null", "array", "object",
            "bool", "regex",
        ])
    }

    /// A filter that mostly passes fewer documents than a partial index has: its conditions, some of them changed, and
    /// others.
    pub fn narrowed(&mut self, partial: &Doc) -> DocBuf {
        let mut all = ArrayBuf::new();
        for (path, condition) in partial.iter() {
            let mut one = DocBuf::new();
            match condition {
                Value::Document(operators) if !path.starts_with('$') && self.one_in(2) => {
                    let mut narrower = operators.to_owned();
                    for (operator, operand) in self.condition(1).iter() {
                        if !narrower.contains_key(operator) {
                            narrower.push(operator, operand);
                        }
                    }
                    one.push(path, &narrower);
                }
                Value::Document(_) if !path.starts_with('$') && self.one_in(4) => {
                    one.push(path, &self.condition(2));
                }
                Value::Document(operators) if !path.starts_with('$') && self.one_in(4) => {
                    match path.rsplit_once('.') {
                        Some((outer, inner)) => {
                            one.push(outer, &doc! {"$elemMatch": {inner: operators}});
                        }
                        None => one.push(path, &doc! {"$elemMatch": operators}),
                    }
                }
                _ => one.push(path, condition),
            }
            all.push(&one);
        }
        if self.one_in(3) {
            all.push(&self.filter(&[], 1));
        }
        if self.one_in(4) {
            doc! {"$or": [{"$and": &all}, {"$and": &all, "c": {"$exists": true}}]}
        } else {
            doc! {"$and": all}
        }
    }

    fn operand(&mut self) -> OwnedValue {
        if self.one_in(10) {
            self.value(2, 4)
        } else {
            self.scalar()
        }
    }

    fn list(&mut self, of: impl Fn(&mut Random) -> OwnedValue) -> ArrayBuf {
        (0..1 + self.below(3)).fold(ArrayBuf::new(), |mut list, _| {
            list.push(&of(self));
            list
        })
    }

    /// Operators for one path, or for the elements of an array.
    fn condition(&mut self, depth: usize) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.pick(&[1, 1, 1, 2]) {
            let (operator, operand): (&str, OwnedValue) = match self.below(24) {
                0..=5 => ("$eq", self.operand()),
                6..=9 => (self.pick(&["$gt", "$gte", "$lt", "$lte"]), self.operand()),
                10 => ("$ne", self.operand()),
                11 => ("$in", self.list(Random::operand).into()),
                12 => ("$nin", self.list(Random::operand).into()),
                13 => ("$exists", self.one_in(2).into()),
                14 => ("$regex", self.pick(&["^a", "b", "^(a|b)"]).into()),
                15 => (
                    "$type",
                    self.pick(&["number", "string", "null", "array", "object"])
                        .into(),
                ),
                16 => ("$size", (self.below(3) as i32).into()),
                17 => ("$mod", array![2, 1].into()),
                18 => ("$bitsAnySet", 3.into()),
                19 if depth > 0 => {
                    let each = |random: &mut Random| {
                        if random.one_in(2) {
                            doc! {"$elemMatch": &random.element(depth - 1)}.into()
                        } else {
                            random.operand()
                        }
                    };
                    let all = self.list(each);
                    // MongoDB takes either all `$elemMatch` or none.
                    let is_match = |value: frond_bson::Value<'_>| match value {
                        frond_bson::Value::Document(inner) => inner.contains_key("$elemMatch"),
                        _ => false,
                    };
                    let matches = all.as_doc().values().filter(|v| is_match(*v)).count();
                    if matches != 0 && matches != all.as_doc().count() {
                        continue;
                    }
                    ("$all", all.into())
                }
                20 if depth > 0 => ("$not", self.condition(depth - 1).into()),
                21..=23 if depth > 0 => ("$elemMatch", self.element(depth - 1).into()),
                _ => continue,
            };
            if !out.contains_key(operator) {
                out.push(operator, &operand);
            }
        }
        if out.is_empty() {
            out.push("$eq", &self.scalar());
        }
        out
    }

    /// The argument of an `$elemMatch`: conditions on the element itself, or on its fields.
    fn element(&mut self, depth: usize) -> DocBuf {
        if self.one_in(3) {
            return self.condition(depth);
        }
        let mut out = DocBuf::new();
        for _ in 0..self.pick(&[1, 2, 2, 2, 3]) {
            let mut path = self.pick(&NAMES).to_owned();
            if self.one_in(3) {
                path = format!("{path}.{}", self.pick(&NAMES));
            }
            if !out.contains_key(&path) {
                self.push_condition(&mut out, &path, depth);
            }
        }
        if depth > 0 && self.one_in(12) {
            let branches = self.list(|random| random.element(0).into());
            out.push(self.pick(&["$or", "$and", "$nor"]), &branches);
        }
        out
    }

    fn push_condition(&mut self, out: &mut DocBuf, path: &str, depth: usize) {
        if self.one_in(2) {
            out.push(path, &self.operand());
        } else {
            out.push(path, &self.condition(depth));
        }
    }

    /// A filter, mostly over the paths in `known`.
    pub fn filter(&mut self, known: &[String], depth: usize) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.pick(&[1, 1, 2, 2, 3]) {
            match self.below(24) {
                0..=2 if depth > 0 => {
                    let operator = self.pick(&["$or", "$or", "$and", "$nor"]);
                    if !out.contains_key(operator) {
                        let branches = self.list(|random| random.filter(known, depth - 1).into());
                        out.push(operator, &branches);
                    }
                }
                3 if !out.contains_key("$expr") => {
                    let field = format!("${}", self.likely_path(known));
                    let mut operands = ArrayBuf::new();
                    let field_first = self.one_in(2);
                    if field_first {
                        operands.push(field.as_str());
                    }
                    operands.push_doc(|literal| literal.push("$literal", &self.operand()));
                    if !field_first {
                        operands.push(field.as_str());
                    }
                    let operator = self.pick(&["$eq", "$gt", "$gte", "$lt", "$lte"]);
                    out.push("$expr", &doc! {operator: operands});
                }
                16 if self.one_in(6) && !out.contains_key("$alwaysFalse") => {
                    out.push("$alwaysFalse", 1);
                }
                4 if !out.contains_key("_id") => {
                    let id = self.below(40) as i32;
                    let operator = self.pick(&["$gt", "$lte", "$ne", "$eq"]);
                    out.push("_id", &doc! {operator: id});
                }
                5 if !out.contains_key("h") => self.push_condition(&mut out, "h", 0),
                6 if !out.contains_key("g") => {
                    out.push("g", &doc! {"$geoWithin": {"$centerSphere": [[2, 2], 0.03]}});
                }
                15 if !out.contains_key("p") => {
                    let corner = self.point();
                    out.push("p", &doc! {"$geoWithin": {"$box": [corner, [4, 4]]}});
                }
                7..=14 => {
                    // An `$elemMatch` at the beginning of a path, and the rest of that path and of others inside.
                    let path = self.likely_path(known);
                    let Some((outer, inner)) = self.split(&path) else {
                        continue;
                    };
                    if out.contains_key(&outer) {
                        continue;
                    }
                    let element = self.elements_below(&outer, &inner, known, 2);
                    out.push(&outer, &doc! {"$elemMatch": &element});
                }
                _ => {
                    let path = self.likely_path(known);
                    if !out.contains_key(&path) {
                        self.push_condition(&mut out, &path, 2);
                    }
                }
            }
        }
        out
    }

    /// A filter and a sort that suit an index with several fields: single values of its first field, and the order of the
    /// next one.
    pub fn values_and_order(&mut self, key: &Doc) -> Option<(DocBuf, DocBuf)> {
        let mut fields = key.iter().map(|(path, _)| path);
        let (first, second) = (fields.next()?, fields.next()?);
        let mut sort = doc! {second: if self.one_in(2) { 1 } else { -1 }};
        if let Some(third) = fields.next().filter(|_| self.one_in(2)) {
            sort.push(third, if self.one_in(2) { 1 } else { -1 });
        }
        let values = self.list(Random::operand);
        let filter = if self.one_in(2) {
            doc! {first: {"$in": values}}
        } else {
            let mut branches = ArrayBuf::new();
            for value in values.values() {
                let mut branch = doc! {first: value};
                if self.one_in(3) {
                    self.push_condition(&mut branch, second, 0);
                }
                branches.push(&branch);
            }
            if self.one_in(3) {
                branches.push(&doc! {"_id": {"$lt": self.below(20) as i32}});
                sort = doc! {"_id": 1};
            }
            doc! {"$or": branches}
        };
        Some((filter, sort))
    }

    fn split(&mut self, path: &str) -> Option<(String, String)> {
        let dots: Vec<usize> = path.match_indices('.').map(|(dot, _)| dot).collect();
        if dots.is_empty() {
            return None;
        }
        let dot = dots[self.below(dots.len())];
        Some((path[..dot].to_owned(), path[dot + 1..].to_owned()))
    }

    /// Conditions on `inner` and on what else of the known paths lies below `outer`.
    fn elements_below(
        &mut self,
        outer: &str,
        inner: &str,
        known: &[String],
        depth: usize,
    ) -> DocBuf {
        let below = known
            .iter()
            .filter_map(|path| path.strip_prefix(outer)?.strip_prefix('.'));
        let others: Vec<String> = below.map(str::to_owned).collect();
        let mut out = DocBuf::new();
        for path in std::iter::once(inner.to_owned()).chain(others.iter().cloned()) {
            if path != inner && self.one_in(3) {
                continue;
            }
            if depth > 0
                && self.one_in(2)
                && let Some((next, rest)) = self.split(&path)
            {
                if !out.contains_key(&next) {
                    let element = self.elements_below(&next, &rest, &others, depth - 1);
                    out.push(&next, &doc! {"$elemMatch": &element});
                }
            } else if !out.contains_key(&path) {
                self.push_condition(&mut out, &path, 1);
            }
        }
        out
    }

    /// A sort, mostly by the paths in `known`.
    pub fn sort(&mut self, known: &[String]) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.pick(&[0, 0, 0, 1, 1, 2, 3]) {
            let path = if self.one_in(8) {
                "_id".to_owned()
            } else {
                self.likely_path(known)
            };
            if !out.contains_key(&path) {
                out.push(&path, if self.one_in(2) { 1 } else { -1 });
            }
        }
        out
    }
}
