//! Rounds of comparisons of a collection with indexes and its copy without any.

use std::collections::BTreeSet;

use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_query::sort::SortSpec;
use frond_store::{
    CountRequest, DeleteRequest, Durability, FindRequest, Namespace, OpContext, UpdateRequest,
};

use crate::common::{Fixture, ns};
use crate::plan_fuzz::generate::Random;

/// Documents in a collection.
const DOCUMENTS: i32 = 40;
/// Requests of a round; each runs with several plans.
const REQUESTS: usize = 60;
/// Errors of sort keys: of two arrays, and of a number that is both an index and a field. Which document is read first
/// depends on the plan, and a plan without a sort raises none.
const SORT_ERRORS: [i32; 2] = [2, 16746];

/// A collection with indexes, its copy without, and how to name them in a failure.
struct Pair<'a> {
    fixture: &'a Fixture,
    indexed: Namespace,
    copy: Namespace,
    /// The names of the indexes that hold all documents.
    hints: Vec<String>,
    /// The key patterns of the indexes with several ordinary fields.
    compound: Vec<DocBuf>,
    /// The filters of the partial indexes.
    partial: Vec<DocBuf>,
    /// The first field of the primary key, if the collection has partitions, and how many were added.
    divides_by: Option<String>,
    partitions: u64,
    /// Whether it has a partition for each second.
    has_periods: bool,
    /// The seed and the indexes.
    name: String,
    compared: u64,
}

/// Makes a collection from `seed`, compares, and drops it. Returns the number of comparisons.
///
/// # Panics
/// If something differs; the message has the seed and the request.
pub fn round(fixture: &Fixture, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut pair = Pair {
        fixture,
        indexed: ns(&format!("fuzz.indexed{seed}")),
        copy: ns(&format!("fuzz.copy{seed}")),
        hints: vec!["_id_".to_owned()],
        compound: Vec::new(),
        partial: Vec::new(),
        divides_by: None,
        partitions: 0,
        has_periods: false,
        name: String::new(),
        compared: 0,
    };
    let arrays = random.pick(&[0, 1, 2, 3]);
    let options = random.layout();
    if options.contains_key("primaryKey") {
        pair.hints.push("primaryKey".to_owned());
    }
    let store = &fixture.store;
    store.create_collection(&pair.indexed, &options).unwrap();
    pair.has_periods = options.get_doc("partitioned").is_some();
    if pair.has_periods {
        pair.hints.push("primaryKey".to_owned());
    } else if options.contains_key("partitioned") {
        let key = options.get_doc("primaryKey").unwrap_or(Doc::empty());
        let path = key.iter().next().map_or("_id", |(path, _)| path);
        pair.divides_by = Some(path.to_owned());
        let mut bounds: Vec<_> = (0..random.below(5)).map(|_| random.bound()).collect();
        bounds.sort_by(|a, b| frond_bson::compare(&a.as_value(), &b.as_value()));
        for bound in bounds {
            let mut max = DocBuf::new();
            max.push(path, bound.as_value());
            // Some bounds are equal.
            let added = store.add_partition(&pair.indexed, Some(&max));
            pair.partitions += u64::from(added.is_ok());
        }
    }
    let indexes: Vec<DocBuf> = (0..1 + random.below(6))
        .map(|name| random.index(name))
        .collect();
    let (before, after) = indexes.split_at(random.below(indexes.len() + 1));
    let mut made: Vec<&DocBuf> = before.iter().filter(|index| pair.create(index)).collect();
    for id in 0..DOCUMENTS {
        let document = random.document(id, arrays);
        // Some documents do not fit into some indexes.
        if fixture
            .insert(&pair.indexed, std::slice::from_ref(&document))
            .inserted
            == 1
        {
            fixture.insert(&pair.copy, &[document]);
        }
    }
    made.extend(after.iter().filter(|index| pair.create(index)));
    pair.name = format!(
        "seed {seed}, {options:?}, {} partitions more, indexes {made:?}",
        pair.partitions
    );
    let holds_all = made.iter().filter(|index| holds_all_documents(index));
    pair.hints
        .extend(holds_all.map(|index| index.get_str("name").unwrap().to_owned()));
    let keys = made.iter().map(|index| index.get_doc("key").unwrap());
    let is_compound = |key: &&Doc| key.count() > 1 && key.values().all(|kind| kind.is_number());
    let compound = keys.clone().filter(is_compound);
    pair.compound = compound.map(ToOwned::to_owned).collect();
    let partial = (made.iter()).filter_map(|index| index.get_doc("partialFilterExpression"));
    pair.partial = partial.map(ToOwned::to_owned).collect();
    let known: Vec<String> = keys
        .flat_map(Doc::iter)
        .filter(|(path, direction)| direction.is_number() && !path.ends_with("$**"))
        .map(|(path, _)| path.to_owned())
        .collect();
    for request in 0..REQUESTS {
        match request % 10 {
            5 if random.one_in(2) => pair.divide(&mut random),
            8 => pair.update(&mut random, &known),
            9 => pair.delete(&mut random, &known),
            _ => pair.read(&mut random, &known),
        }
    }
    let report = fixture.store.verify(&pair.indexed).unwrap();
    assert_eq!(report.errors, Vec::<String>::new(), "{}", pair.name);
    fixture.store.drop_collection(&pair.indexed).unwrap();
    fixture.store.drop_collection(&pair.copy).unwrap();
    pair.compared
}

/// Whether this index has an entry for every document.
fn holds_all_documents(index: &DocBuf) -> bool {
    let key = index.get_doc("key").unwrap();
    let leaves_out = |kind: Value<'_>| matches!(kind, Value::String("text" | "2dsphere" | "2d"));
    !key.iter().next().unwrap().0.ends_with("$**")
        && !key.values().any(leaves_out)
        && !index.contains_key("sparse")
        && !index.contains_key("partialFilterExpression")
}

/// The documents in the order of their `_id`.
fn by_id(mut found: Vec<DocBuf>) -> Vec<DocBuf> {
    found.sort_by_key(|doc| doc.get_i64("_id"));
    found
}

/// Documents with their fields in the order of the names, as text: a covered plan gives the order of the index.
fn shown(found: &[DocBuf]) -> Vec<String> {
    fn text(doc: &Doc) -> String {
        let field = |(name, value): (&str, Value<'_>)| match value {
            Value::Document(inner) => format!("{name}: {}", text(inner)),
            value => format!("{name}: {value:?}"),
        };
        let fields: BTreeSet<String> = doc.iter().map(field).collect();
        format!("{fields:?}")
    }
    let mut all: Vec<String> = found.iter().map(|doc| text(doc)).collect();
    all.sort();
    all
}

impl Pair<'_> {
    /// Creates an index; some documents cannot be indexed.
    fn create(&self, index: &DocBuf) -> bool {
        self.fixture
            .store
            .create_indexes(&self.indexed, &[index])
            .is_ok()
    }

    fn find(&self, at: &Namespace, request: &FindRequest<'_>) -> Result<Vec<DocBuf>, i32> {
        let code = |error: frond_store::Error| error.code().code();
        let store = &self.fixture.store;
        let mut cursor = store.find(at, request, &OpContext::new()).map_err(code)?;
        let mut found = Vec::new();
        while let Some(doc) = cursor.next().map_err(code)? {
            found.push(doc);
        }
        Ok(found)
    }

    /// The planner's own choice, and each index that holds all documents.
    fn ways(&self) -> Vec<Option<String>> {
        let hints = self.hints.iter().cloned().map(Some);
        hints.chain([None]).collect()
    }

    fn read(&mut self, random: &mut Random, known: &[String]) {
        let natural = doc! {"$natural": 1};
        let scan = Some(Value::Document(&natural));
        let (mut filter, mut sort) = (random.filter(known, 2), random.sort(known));
        if self.has_periods && random.one_in(3) {
            sort = doc! {"d": if random.one_in(2) { 1 } else { -1 }, "a": 1};
        }
        if let Some(key) = self
            .compound
            .get(random.below(self.compound.len().max(1) * 4))
            && let Some(both) = random.values_and_order(key)
        {
            (filter, sort) = both;
        }
        if let Some(partial) = self
            .partial
            .get(random.below(self.partial.len().max(1) * 3))
        {
            filter = random.narrowed(partial);
        }
        if self.has_periods && random.one_in(2) && !filter.contains_key("d") {
            random.push_dates(&mut filter);
        }
        let collation = random.collation();
        let what = format!(
            "{}: filter {filter:?} sort {sort:?} collation {collation:?}",
            self.name
        );
        let collation = collation.map(|spec| frond_query::collation::parse(&spec).unwrap());
        let all = FindRequest {
            filter: Some(&filter),
            sort: Some(&sort),
            hint: scan,
            collation,
            ..FindRequest::default()
        };
        let expected = self.find(&self.copy, &all);
        let collator = all.collation.clone().unwrap_or_default();
        let spec = SortSpec::parse(&sort).map(|spec| spec.collated(&collator));
        let keys = |found: &[DocBuf]| -> Vec<Vec<u8>> {
            let spec = spec.as_ref().unwrap();
            found.iter().map(|doc| spec.key(doc).unwrap()).collect()
        };
        for hint in self.ways() {
            let found = self.find(
                &self.indexed,
                &FindRequest {
                    hint: hint.as_deref().map(Value::String),
                    ..all.clone()
                },
            );
            self.compared += 1;
            match (&expected, found) {
                (Ok(expected), Ok(found)) => {
                    assert_eq!(
                        by_id(found.clone()),
                        by_id(expected.clone()),
                        "{what} hint {hint:?}"
                    );
                    assert_eq!(keys(&found), keys(expected), "{what} hint {hint:?}");
                }
                (Err(code), Ok(_)) if SORT_ERRORS.contains(code) && !sort.is_empty() => {}
                (Err(one), Err(other))
                    if SORT_ERRORS.contains(one) && SORT_ERRORS.contains(&other) => {}
                (expected, found) => assert_eq!(&found, expected, "{what} hint {hint:?}"),
            }
        }
        let Ok(expected) = expected else { return };
        self.part(random, &all, &expected, &keys, &what);
        self.count(random, &all, expected.len(), &what);
        self.distinct(random, &all, known, &what);
        self.projection(random, &all, known, &what);
    }

    /// A part of the result: it may have any of several documents with the same sort key.
    fn part(
        &mut self,
        random: &mut Random,
        all: &FindRequest<'_>,
        expected: &[DocBuf],
        keys: &dyn Fn(&[DocBuf]) -> Vec<Vec<u8>>,
        what: &str,
    ) {
        let (skip, limit) = (random.below(4), 1 + random.below(5));
        let part: Vec<DocBuf> = expected.iter().skip(skip).take(limit).cloned().collect();
        let hint = random.pick(&(0..self.hints.len() + 1).collect::<Vec<_>>());
        let hint = self.hints.get(hint).cloned();
        let found = self.find(
            &self.indexed,
            &FindRequest {
                skip: skip as u64,
                limit: Some(limit as u64),
                hint: hint.as_deref().map(Value::String),
                ..all.clone()
            },
        );
        let found = found.unwrap();
        let what = format!("{what} hint {hint:?} skip {skip} limit {limit}");
        self.compared += 1;
        assert_eq!(keys(&found), keys(&part), "{what}");
        assert!(found.iter().all(|doc| expected.contains(doc)), "{what}");
        let ids: BTreeSet<Option<i64>> = found.iter().map(|doc| doc.get_i64("_id")).collect();
        assert_eq!(ids.len(), found.len(), "{what}");
    }

    fn count(&mut self, random: &mut Random, all: &FindRequest<'_>, expected: usize, what: &str) {
        for hint in self.ways() {
            if hint.is_some() && random.one_in(2) {
                continue;
            }
            let request = CountRequest {
                filter: all.filter,
                collation: all.collation.clone(),
                hint: hint.as_deref().map(Value::String),
                ..CountRequest::default()
            };
            let store = &self.fixture.store;
            let count = store.count(&self.indexed, &request, &OpContext::new());
            self.compared += 1;
            assert_eq!(count.unwrap(), expected as u64, "{what} count {hint:?}");
        }
    }

    fn distinct(
        &mut self,
        random: &mut Random,
        all: &FindRequest<'_>,
        known: &[String],
        what: &str,
    ) {
        let path = if random.one_in(2) || known.is_empty() {
            random.path()
        } else {
            known[random.below(known.len())].clone()
        };
        let values = |at: &Namespace, hint: Option<Value<'_>>| -> Result<BTreeSet<Vec<u8>>, i32> {
            let (store, context) = (&self.fixture.store, OpContext::new());
            let collation = all.collation.as_ref();
            let found = store.distinct(at, &path, all.filter, hint, collation, &context);
            let found = found.map_err(|error| error.code().code())?;
            let encoded = found.as_doc().values().map(|value| {
                let mut encoded = Vec::new();
                let collator = collation.unwrap_or(Collator::BINARY);
                collator.encode(&value, &mut encoded);
                encoded
            });
            Ok(encoded.collect())
        };
        let expected = values(&self.copy, Some(Value::Document(&doc! {"$natural": 1})));
        let mut compared = 0;
        for hint in self.ways() {
            if hint.is_some() && random.one_in(2) {
                continue;
            }
            compared += 1;
            assert_eq!(
                values(&self.indexed, hint.as_deref().map(Value::String)),
                expected,
                "{what} distinct {path} {hint:?}"
            );
        }
        self.compared += compared;
    }

    /// A projection of indexed fields, which an index may cover.
    fn projection(
        &mut self,
        random: &mut Random,
        all: &FindRequest<'_>,
        known: &[String],
        what: &str,
    ) {
        let mut projection = doc! {"_id": if random.one_in(2) { 1 } else { 0 }};
        for path in known.iter().filter(|path| *path != "_id") {
            let collides = projection.iter().any(|(other, _)| {
                let first = |path: &str| path.split('.').next().unwrap().to_owned();
                first(other) == first(path) && (other.len() != path.len() || other == path)
            });
            if random.one_in(2) && !collides {
                projection.push(path, 1);
            }
        }
        if projection.count() == 1 {
            projection.push("a", 1);
        }
        let request = FindRequest {
            projection: Some(&projection),
            ..all.clone()
        };
        let expected = self.find(&self.copy, &request).map(|found| shown(&found));
        for hint in self.ways() {
            let request = FindRequest {
                hint: hint.as_deref().map(Value::String),
                ..request.clone()
            };
            let found = self
                .find(&self.indexed, &request)
                .map(|found| shown(&found));
            self.compared += 1;
            assert_eq!(found, expected, "{what} projection {projection:?} {hint:?}");
        }
    }

    /// Updates the matching documents of both collections, and compares all documents.
    fn update(&mut self, random: &mut Random, known: &[String]) {
        let filter = random.filter(known, 2);
        let mut change = DocBuf::new();
        change.push(random.pick(&["a", "b", "c"]), &random.replacement());
        let update = if random.one_in(4) {
            doc! {"$unset": &change}
        } else {
            doc! {"$set": &change}
        };
        let hint = self.hints[random.below(self.hints.len())].clone();
        let hint = random.one_in(2).then_some(hint);
        let apply = |at: &Namespace, hint: Option<&str>| {
            let request = UpdateRequest {
                multi: true,
                hint: hint.map(Value::String),
                ..UpdateRequest::new(&filter, Value::Document(&update))
            };
            let store = &self.fixture.store;
            let outcome = store.update(at, &request, Durability::Logged, &OpContext::new());
            outcome.map(|outcome| (outcome.matched, outcome.modified))
        };
        let (indexed, copy) = (
            apply(&self.indexed, hint.as_deref()),
            apply(&self.copy, None),
        );
        let what = format!("{}: update {filter:?} {update:?} {hint:?}", self.name);
        match (indexed, copy) {
            (Ok(indexed), Ok(copy)) => {
                assert_eq!(indexed, copy, "{what}");
                self.compare_all(&what);
            }
            // The new value does not fit into an index, after some documents were updated.
            (Err(_), Ok(_)) => self.copy_again(),
            (indexed, copy) => assert_eq!(indexed.is_err(), copy.is_err(), "{what}"),
        }
    }

    fn delete(&mut self, random: &mut Random, known: &[String]) {
        let mut filter = random.filter(known, 2);
        if !filter.contains_key("_id") {
            filter.push(
                "_id",
                &doc! {"$mod": frond_bson::ArrayBuf::from_iter([3, random.below(3) as i32])},
            );
        }
        let hint = self.hints[random.below(self.hints.len())].clone();
        let hint = random.one_in(2).then_some(hint);
        let apply = |at: &Namespace, hint: Option<&str>| {
            let request = DeleteRequest {
                collation: None,
                filter: &filter,
                limit_one: false,
                hint: hint.map(Value::String),
                variables: None,
            };
            let store = &self.fixture.store;
            let deleted = store.delete(at, &request, Durability::Logged, &OpContext::new());
            deleted.map_err(|error| error.code().code())
        };
        let what = format!("{}: delete {filter:?} {hint:?}", self.name);
        assert_eq!(
            apply(&self.indexed, hint.as_deref()),
            apply(&self.copy, None),
            "{what}"
        );
        self.compare_all(&what);
    }

    fn everything(&self, at: &Namespace) -> Vec<DocBuf> {
        by_id(self.find(at, &FindRequest::default()).unwrap())
    }

    fn compare_all(&mut self, what: &str) {
        self.compared += 1;
        assert_eq!(
            self.everything(&self.indexed),
            self.everything(&self.copy),
            "{what}"
        );
    }

    /// Adds a partition to a collection that has some.
    fn divide(&mut self, random: &mut Random) {
        let max = random.bound();
        let max = self.divides_by.as_ref().map(|path| {
            let mut bound = DocBuf::new();
            bound.push(path, max.as_value());
            bound
        });
        if let Some(max) = max {
            // It may be below a document or another bound.
            let added = self.fixture.store.add_partition(&self.indexed, Some(&max));
            self.partitions += u64::from(added.is_ok());
        }
    }

    /// Makes the copy equal to the collection.
    fn copy_again(&mut self) {
        self.fixture.store.drop_collection(&self.copy).unwrap();
        let all = self.everything(&self.indexed);
        self.fixture.insert(&self.copy, &all);
    }
}
