//! An index never changes a result: random documents, filters and sorts give the same documents
//! through every index, through the planner's choice and through a scan of the collection. In
//! between, random updates and deletes change the indexes. The same holds in a transaction, for what it has written.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, DocBuf, ObjectId, OwnedValue, Value, doc};
use frond_query::sort::SortSpec;
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindRequest, Namespace, OpContext, UpdateRequest,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

struct Random {
    random: StdRng,
    /// Whether some strings are longer than pages of the engine.
    has_long_strings: bool,
}

/// The extent of a comparison.
struct Work {
    documents: i32,
    rounds: usize,
    has_long_strings: bool,
}

const USUAL: Work = Work {
    documents: 120,
    rounds: 60,
    has_long_strings: false,
};

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    /// Long strings begin with the same bytes, and some are the beginning of others.
    fn long_string(&mut self) -> String {
        let mut text = self.pick(&["a", "ab"]).to_owned();
        let fill = self.pick(&["x", "\u{0}"]).repeat(66_000 + self.below(2));
        text.push_str(&fill);
        text.push_str(self.pick(&["", "a", "ab", "b", "B", "\u{0}", "\u{10ffff}"]));
        text
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn scalar(&mut self) -> OwnedValue {
        let small = self.below(6) as i32;
        if self.has_long_strings && self.one_in(3) {
            return self.long_string().into();
        }
        match self.below(14) {
            0..=4 => small.into(),
            5 => OwnedValue::Double(f64::from(small)),
            6 => OwnedValue::Double(f64::from(small) + 0.5),
            7 => OwnedValue::Int64(i64::from(small)),
            8 => ["", "a", "ab", "abc", "b", "x\u{0}y"][small as usize].into(),
            // Mostly not UTF-8.
            9 => {
                let texts: [&[u8]; 6] =
                    [b"a\xFF", b"ab\x80", b"\xC3", b"\xFF\xFF", b"a\xC3c", b"b"];
                OwnedValue::string(texts[small as usize].to_vec())
            }
            10 => OwnedValue::Null,
            11 => OwnedValue::Bool(small % 2 == 0),
            12 => OwnedValue::DateTime(i64::from(small)),
            _ => match small {
                0 => OwnedValue::Double(f64::NAN),
                1 => OwnedValue::MinKey,
                2 => OwnedValue::MaxKey,
                3 => OwnedValue::ObjectId(ObjectId([7; 12])),
                4 => OwnedValue::Document(doc! {"e": small}),
                _ => OwnedValue::Double(-0.0),
            },
        }
    }

    fn array(&mut self, depth: usize) -> OwnedValue {
        let mut array = ArrayBuf::new();
        for _ in 0..self.below(4) {
            let item = if depth > 0 && self.one_in(4) {
                self.value(depth - 1)
            } else {
                self.scalar()
            };
            array.push(&item);
        }
        array.into()
    }

    fn value(&mut self, depth: usize) -> OwnedValue {
        match self.below(8) {
            0 | 1 => self.array(depth),
            2 if depth > 0 => {
                let mut inner = DocBuf::new();
                for name in ["e", "f"] {
                    if !self.one_in(3) {
                        inner.push(name, &self.value(depth - 1));
                    }
                }
                inner.into()
            }
            _ => self.scalar(),
        }
    }

    /// `arrays` says whether the fields `a` and `d` may hold arrays.
    fn document(&mut self, id: i32, arrays: bool) -> DocBuf {
        let mut out = doc! {"_id": id};
        for name in ["a", "b", "c"] {
            if self.one_in(5) {
                continue;
            }
            let value = if arrays && name == "a" {
                self.value(1)
            } else {
                self.scalar()
            };
            out.push(name, &value);
        }
        let part = |random: &mut Random| {
            let mut inner = DocBuf::new();
            for name in ["e", "f"] {
                if !random.one_in(4) {
                    let value = if arrays && random.one_in(4) {
                        random.array(0)
                    } else {
                        random.scalar()
                    };
                    inner.push(name, &value);
                }
            }
            inner
        };
        match self.below(6) {
            0 => {}
            1 => out.push("d", &self.scalar()),
            2 | 3 if arrays => {
                let mut list = ArrayBuf::new();
                for _ in 0..self.below(4) {
                    if self.one_in(6) {
                        list.push(&self.scalar());
                    } else {
                        list.push(&part(self));
                    }
                }
                out.push("d", &list);
            }
            _ => out.push("d", &part(self)),
        }
        out
    }

    fn operand(&mut self) -> OwnedValue {
        if self.one_in(10) {
            self.array(0)
        } else {
            self.scalar()
        }
    }

    fn list(&mut self) -> ArrayBuf {
        (0..1 + self.below(3)).fold(ArrayBuf::new(), |mut list, _| {
            list.push(&self.operand());
            list
        })
    }

    /// Operators for one field or for the elements of an array.
    fn condition(&mut self, depth: usize) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..1 + self.below(2) {
            let operator = self.pick(&["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
            match self.below(12) {
                0..=5 if !out.contains_key(operator) => out.push(operator, &self.operand()),
                6 if !out.contains_key("$in") => out.push("$in", &self.list()),
                7 if !out.contains_key("$nin") => out.push("$nin", &self.list()),
                8 if !out.contains_key("$exists") => out.push("$exists", self.one_in(2)),
                9 if !out.contains_key("$regex") => {
                    out.push("$regex", self.pick(&["^a", "^ab", "b", "^(a|b)", "^"]));
                }
                10 if depth > 0 && !out.contains_key("$not") => {
                    out.push("$not", &self.condition(depth - 1));
                }
                11 if depth > 0 && !out.contains_key("$elemMatch") => {
                    let inner = self.condition(depth - 1);
                    out.push("$elemMatch", &inner);
                }
                _ if !out.contains_key("$type") => {
                    out.push("$type", self.pick(&["number", "string", "null", "array"]));
                }
                _ => {}
            }
        }
        out
    }

    fn filter(&mut self, depth: usize) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..1 + self.below(3) {
            let path = self.pick(&["a", "a", "b", "b", "c", "d.e", "d.f", "d", "_id"]);
            if self.one_in(12) && !out.contains_key("$expr") {
                let field = format!("${path}");
                let mut operands = ArrayBuf::new();
                operands.push(field.as_str());
                operands.push_doc(|literal| literal.push("$literal", &self.operand()));
                out.push("$expr", &doc! {"$eq": operands});
            } else if depth > 0 && self.one_in(6) {
                let operator = self.pick(&["$or", "$or", "$and", "$nor"]);
                if !out.contains_key(operator) {
                    let mut branches = ArrayBuf::new();
                    for _ in 0..1 + self.below(3) {
                        branches.push(&self.filter(depth - 1));
                    }
                    out.push(operator, &branches);
                }
            } else if out.contains_key(path) {
            } else if self.one_in(2) {
                out.push(path, &self.operand());
            } else if path == "d" && self.one_in(2) {
                let mut inner = DocBuf::new();
                inner.push("e", &self.condition(0));
                if self.one_in(2) {
                    inner.push("f", &self.operand());
                }
                out.push("d", &doc! {"$elemMatch": &inner});
            } else {
                out.push(path, &self.condition(1));
            }
        }
        out
    }

    fn sort(&mut self) -> DocBuf {
        let mut out = DocBuf::new();
        for _ in 0..self.below(3) {
            let path = self.pick(&["a", "b", "c", "d.e", "_id"]);
            if !out.contains_key(path) {
                out.push(path, if self.one_in(2) { 1 } else { -1 });
            }
        }
        out
    }
}

fn sort_keys(spec: &SortSpec, found: &[DocBuf]) -> Vec<Vec<u8>> {
    found.iter().map(|doc| spec.key(doc).unwrap()).collect()
}

fn by_id(mut found: Vec<DocBuf>) -> Vec<DocBuf> {
    found.sort_by_key(|doc| doc.get_i64("_id"));
    found
}

/// Runs a query; an error (of a sort by parallel arrays, say) counts as a result.
fn run(f: &Fixture, c: &Namespace, request: &FindRequest<'_>) -> Result<Vec<DocBuf>, i32> {
    let code = |error: frond_store::Error| error.code().code();
    let mut cursor = f.store.find(c, request, &OpContext::new()).map_err(code)?;
    let mut found = Vec::new();
    while let Some(doc) = cursor.next().map_err(code)? {
        found.push(doc);
    }
    Ok(found)
}

fn compare(f: &Fixture, c: &Namespace, random: &mut Random, hints: &[DocBuf], seed: u64) {
    let (filter, sort) = (random.filter(1), random.sort());
    let natural = doc! {"$natural": 1};
    let base = FindRequest {
        filter: Some(&filter),
        sort: Some(&sort),
        hint: Some(Value::Document(&natural)),
        ..FindRequest::default()
    };
    let expected = run(f, c, &base);
    let spec = SortSpec::parse(&sort).unwrap();
    for hint in hints.iter().map(Some).chain([None]) {
        let request = FindRequest {
            hint: hint.map(|hint| Value::Document(hint)),
            ..base.clone()
        };
        let found = run(f, c, &request);
        let what = format!("seed {seed}: filter {filter:?} sort {sort:?} hint {hint:?}");
        match (&expected, found) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(by_id(found.clone()), by_id(expected.clone()), "{what}");
                assert_eq!(
                    sort_keys(&spec, &found),
                    sort_keys(&spec, expected),
                    "{what}"
                );
            }
            // A plan without a sort does not raise the error of the sort.
            (Err(2), Ok(_)) => {}
            (expected, found) => assert_eq!(&found, expected, "{what}"),
        }
    }
    if random.one_in(3) {
        compare_distinct(f, c, random, &filter, hints, seed);
    }
    if let Ok(expected) = &expected {
        for hint in hints.iter().filter(|_| random.one_in(3)) {
            let count = CountRequest {
                filter: Some(&filter),
                hint: Some(Value::Document(hint)),
                ..CountRequest::default()
            };
            assert_eq!(
                f.store.count(c, &count, &OpContext::new()).unwrap(),
                expected.len() as u64,
                "seed {seed}: count {filter:?} by {hint:?}"
            );
        }
        let count = CountRequest {
            filter: Some(&filter),
            ..CountRequest::default()
        };
        let counted = f.store.count(c, &count, &OpContext::new()).unwrap();
        assert_eq!(
            counted,
            expected.len() as u64,
            "seed {seed}: count {filter:?}"
        );
        let shown = doc! {"b": 1, "c": 1};
        let projected = FindRequest {
            projection: Some(&shown),
            ..base.clone()
        };
        let wanted = run(f, c, &projected).map(by_id);
        let covered = FindRequest {
            hint: None,
            ..projected
        };
        let found = run(f, c, &covered).map(by_id);
        let order = |docs: Vec<DocBuf>| -> Vec<String> {
            docs.iter()
                .map(|doc| format!("{:?} {:?} {:?}", doc.get("_id"), doc.get("b"), doc.get("c")))
                .collect()
        };
        assert_eq!(
            found.map(order),
            wanted.map(order),
            "seed {seed}: covered {filter:?}"
        );
    }
}

/// The number of distinct values of a field is the same through every index.
fn compare_distinct(
    f: &Fixture,
    c: &Namespace,
    random: &mut Random,
    filter: &DocBuf,
    hints: &[DocBuf],
    seed: u64,
) {
    let path = random.pick(&["a", "b", "d.e", "d"]);
    let context = OpContext::new();
    let mut distinct = Vec::new();
    for hint in hints.iter().chain([&doc! {"$natural": 1}]) {
        let hint = Some(Value::Document(hint));
        let values = f
            .store
            .distinct(c, path, Some(filter), hint, None, &context);
        distinct.push(values.map(|values| values.as_doc().to_owned()).ok());
    }
    for values in &distinct {
        assert_eq!(
            values.as_ref().map(|values| values.count()),
            distinct
                .last()
                .unwrap()
                .as_ref()
                .map(|values| values.count()),
            "seed {seed}: distinct {path} {filter:?}"
        );
    }
}

fn change(f: &Fixture, c: &Namespace, random: &mut Random) {
    let filter = random.filter(0);
    let context = OpContext::new();
    if random.one_in(4) {
        let request = DeleteRequest {
            collation: None,
            filter: &filter,
            limit_one: true,
            hint: None,
            variables: None,
        };
        f.store
            .delete(c, &request, Durability::Logged, &context)
            .unwrap();
        return;
    }
    let mut set = DocBuf::new();
    set.push(random.pick(&["a", "b", "c", "d"]), &random.value(1));
    let update = if random.one_in(3) {
        doc! {"$unset": &set}
    } else {
        doc! {"$set": &set}
    };
    let request = UpdateRequest {
        multi: random.one_in(3),
        ..UpdateRequest::new(&filter, Value::Document(&update))
    };
    f.store
        .update(c, &request, Durability::Logged, &context)
        .unwrap();
}

fn check(seed: u64, arrays: bool, indexes: &[DocBuf]) {
    check_work(seed, arrays, indexes, &USUAL);
}

fn check_work(seed: u64, arrays: bool, indexes: &[DocBuf], work: &Work) {
    let mut random = Random {
        random: StdRng::seed_from_u64(seed),
        has_long_strings: work.has_long_strings,
    };
    let mut f = Fixture::new();
    let c = ns("db.c");
    let (before, after) = indexes.split_at(random.below(indexes.len() + 1));
    for index in before {
        f.store.create_indexes(&c, &[index]).unwrap();
    }
    let docs: Vec<DocBuf> = (0..work.documents)
        .map(|id| random.document(id, arrays))
        .collect();
    // Every second time, a part of the documents and all changes are those of an open transaction.
    let (docs, own) = docs.split_at(if seed.is_multiple_of(2) {
        docs.len()
    } else {
        docs.len() * 7 / 12
    });
    f.insert(&c, docs);
    for index in after {
        f.store.create_indexes(&c, &[index]).unwrap();
    }
    let live = f.store.clone();
    let transaction = (seed % 2 == 1).then(|| live.begin());
    if let Some(transaction) = &transaction {
        f.store = live.in_transaction(transaction);
        assert_eq!(f.insert(&c, own).inserted, own.len());
    }
    let full = |index: &&DocBuf| {
        // A wildcard alone leaves documents out, too.
        let key = index.get_doc("key").unwrap();
        let is_wildcard = key.iter().next().unwrap().0.ends_with("$**");
        !is_wildcard
            && !index.contains_key("sparse")
            && !index.contains_key("partialFilterExpression")
    };
    let hints: Vec<DocBuf> = indexes
        .iter()
        .filter(full)
        .map(|index| index.get_doc("key").unwrap().to_owned())
        .chain([doc! {"_id": 1}])
        .collect();
    for round in 0..work.rounds {
        compare(&f, &c, &mut random, &hints, seed);
        if arrays && round % 10 == 9 {
            change(&f, &c, &mut random);
        }
    }
    let report = f.store.verify(&c).unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
    if let Some(transaction) = transaction {
        let inside = f.find_all(&c, DocBuf::new());
        transaction.commit(Durability::Logged).unwrap();
        f.store = live;
        assert_eq!(f.find_all(&c, DocBuf::new()), inside, "seed {seed}");
        assert_eq!(f.store.estimated_count(&c), inside.len() as u64);
        let report = f.store.verify(&c).unwrap();
        assert_eq!(report.errors, Vec::<String>::new(), "seed {seed}");
        compare(&f, &c, &mut random, &hints, seed);
    }
}

#[test]
fn through_single_field_indexes() {
    for seed in 0..20 {
        let indexes = [
            doc! {"key": {"a": 1}},
            doc! {"key": {"b": -1}},
            doc! {"key": {"d.e": 1}},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

#[test]
fn through_compound_indexes() {
    for seed in 100..120 {
        let indexes = [
            doc! {"key": {"a": 1, "b": -1}},
            doc! {"key": {"b": 1, "c": 1, "a": -1}},
            doc! {"key": {"d.e": 1, "d.f": 1}},
            doc! {"key": {"d.f": -1, "a": 1}},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

#[test]
fn through_sparse_and_partial_indexes() {
    for seed in 200..220 {
        let indexes = [
            doc! {"key": {"a": 1}, "sparse": true},
            doc! {"key": {"b": 1, "c": -1}, "sparse": true},
            doc! {"key": {"c": 1}, "partialFilterExpression": {"b": {"$gt": 1}}},
            doc! {"key": {"d.e": 1}, "partialFilterExpression": {"d.e": {"$exists": true}}},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

#[test]
fn through_unique_indexes() {
    for seed in 300..310 {
        let indexes = [
            doc! {"key": {"a": 1, "_id": 1}, "unique": true},
            doc! {"key": {"_id": -1, "d.e": 1}, "unique": true},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

/// A hashed field holds no array.
#[test]
fn through_hashed_indexes() {
    for seed in 400..420 {
        let indexes = [
            doc! {"key": {"b": "hashed"}},
            doc! {"key": {"a": -1, "d.e": "hashed", "c": 1}},
            doc! {"key": {"d.f": "hashed", "a": 1}},
            doc! {"key": {"c": "hashed"}, "sparse": true},
            doc! {"key": {"a": "hashed"}, "partialFilterExpression": {"a": {"$gt": 1}}},
        ];
        check(seed, false, &indexes);
    }
}

#[test]
fn through_wildcard_indexes() {
    for seed in 500..530 {
        let indexes = [doc! {"key": {"$**": 1}}, doc! {"key": {"d.$**": -1}}];
        check(seed, seed % 3 != 0, &indexes);
        let indexes = [
            doc! {"key": {"a": 1, "d.$**": 1, "b": -1}},
            doc! {"key": {"c": -1, "$**": -1}, "wildcardProjection": {"c": 0, "d.f": 0}},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

#[test]
fn through_clustering_indexes() {
    for seed in 600..610 {
        let indexes = [
            doc! {"key": {"a": 1}, "clustering": true},
            doc! {"key": {"b": -1, "d.e": 1}, "clustering": true},
            doc! {"key": {"c": 1, "_id": 1}, "clustering": true, "unique": true},
        ];
        check(seed, seed % 3 != 0, &indexes);
    }
}

#[test]
fn through_indexes_with_long_keys() {
    const WORK: Work = Work {
        documents: 40,
        rounds: 15,
        has_long_strings: true,
    };
    let kinds: [&[DocBuf]; 5] = [
        &[
            doc! {"key": {"a": 1}},
            doc! {"key": {"b": -1}},
            doc! {"key": {"d.e": 1}},
        ],
        &[
            doc! {"key": {"a": 1, "b": -1}},
            doc! {"key": {"b": 1, "c": 1, "a": -1}},
            doc! {"key": {"b": 1}, "collation": {"locale": "en", "strength": 2}},
        ],
        &[
            doc! {"key": {"a": 1}, "sparse": true},
            doc! {"key": {"c": 1}, "partialFilterExpression": {"b": {"$gt": 1}}},
            doc! {"key": {"c": "hashed"}},
            doc! {"key": {"$**": 1}},
        ],
        &[
            doc! {"key": {"a": 1, "_id": 1}, "unique": true},
            doc! {"key": {"_id": -1, "d.e": 1}, "unique": true},
        ],
        &[
            doc! {"key": {"b": -1, "d.e": 1}, "clustering": true},
            doc! {"key": {"c": 1, "_id": 1}, "clustering": true, "unique": true},
        ],
    ];
    for (number, indexes) in kinds.iter().enumerate() {
        for arrays in [false, true] {
            let seed = 700 + 2 * number as u64 + u64::from(arrays);
            check_work(seed, arrays, indexes, &WORK);
        }
    }
}
