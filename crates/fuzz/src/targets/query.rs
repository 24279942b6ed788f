//! The languages of filters, updates and pipelines, on a small store.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc, extjson};
use frond_query::collation;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_query::update::{ApplyContext, Update};
use frond_store::{
    AggregateRequest, DocumentStore, Durability, EngineOptions, FindRequest, InsertOptions,
    Namespace, OpContext, QueryCursor, StoreOptions, UpdateRequest,
};

use super::bson::every_type;
use crate::memory_disk::MemoryDisk;

/// Operations end after this time, if they ask for it.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most documents that are taken from a cursor.
const DOCUMENTS_MAX: usize = 10_000;

const INSERT: InsertOptions = InsertOptions {
    ordered: false,
    durability: Durability::Logged,
    bypass_validation: false,
    keep_empty_timestamps: false,
};

/// Indexes of the collection `indexed`. Its documents are those of `plain`.
const INDEXES: [&str; 7] = [
    r#"{"key": {"a": 1, "b": -1}, "name": "ab"}"#,
    r#"{"key": {"b.c": 1}, "name": "bc"}"#,
    r#"{"key": {"c": -1, "_id": 1}, "name": "c"}"#,
    r#"{"key": {"text": 1}, "name": "collated", "collation": {"locale": "en", "strength": 2}}"#,
    r#"{"key": {"when": "hashed"}, "name": "hashed"}"#,
    r#"{"key": {"$**": 1}, "name": "all"}"#,
    r#"{"key": {"a": 1}, "name": "partial", "partialFilterExpression": {"a": {"$gt": 3}}}"#,
];

/// A store that inputs only read.
static STORE: LazyLock<Fixture> = LazyLock::new(Fixture::new);

struct Fixture {
    store: DocumentStore,
    plain: Namespace,
    indexed: Namespace,
}

fn documents() -> Vec<DocBuf> {
    let mut documents = Vec::new();
    for n in 0..24i32 {
        let mut document = doc! {
            "_id": n, "a": n % 7, "b": {"c": n % 5, "d": [n, n + 1]}, "c": f64::from(n) / 2.0,
            "text": ["alpha", "Beta", "gamma é"][n as usize % 3],
        };
        document.push_array("d", |list| (0..n % 4).for_each(|x| list.push(x)));
        document.push(
            "when",
            Value::DateTime(1_600_000_000_000 + i64::from(n) * 86_400_000),
        );
        documents.push(document);
    }
    for (index, (_, value)) in every_type().iter().enumerate() {
        let mut document = doc! {"_id": 100 + index as i32};
        for name in ["a", "b", "c"].iter().skip(index % 3) {
            document.push_value(name, &value);
        }
        documents.push(document);
    }
    documents
}

impl Fixture {
    fn new() -> Fixture {
        let mut options = EngineOptions::with_disk(Arc::new(MemoryDisk::default()));
        options.cache_bytes = 32 << 20;
        options.inline = true;
        let store = DocumentStore::open_engine(options, StoreOptions::default());
        let fixture = Fixture {
            store: store.expect("a new store"),
            plain: Namespace::parse("fuzz.plain").expect("a name"),
            indexed: Namespace::parse("fuzz.indexed").expect("a name"),
        };
        for (ns, indexes) in [(&fixture.plain, &[][..]), (&fixture.indexed, &INDEXES[..])] {
            let parsed: Vec<DocBuf> = indexes
                .iter()
                .map(|index| extjson::parse(index).expect("an index"))
                .collect();
            let indexes: Vec<&Doc> = parsed.iter().map(|index| &**index).collect();
            if !indexes.is_empty() {
                let made = fixture.store.create_indexes(ns, &indexes);
                assert!(made.is_ok(), "{:?}", made.err());
            }
            let documents = documents();
            let documents: Vec<&Doc> = documents.iter().map(|doc| &**doc).collect();
            let inserted = fixture
                .store
                .insert(ns, &documents, INSERT)
                .expect("an insert");
            assert_eq!(inserted.inserted, documents.len());
        }
        fixture
    }

    fn context(&self) -> OpContext {
        OpContext::with_deadline(Some(Instant::now() + DEADLINE))
    }

    /// The ids of the documents, or an error's code.
    fn find(&self, ns: &Namespace, request: &FindRequest<'_>) -> Result<BTreeSet<Vec<u8>>, i32> {
        let code = |error: frond_store::Error| error.code().code();
        let cursor = self
            .store
            .find(ns, request, &self.context())
            .map_err(code)?;
        let mut ids = BTreeSet::new();
        drain(cursor, &mut |document| {
            let mut id = Vec::new();
            frond_bson::key::encode(&document.get("_id").unwrap_or(Value::Null), &mut id);
            ids.insert(id);
        })
        .map_err(code)?;
        Ok(ids)
    }
}

fn drain(mut cursor: QueryCursor, visit: &mut dyn FnMut(&Doc)) -> Result<(), frond_store::Error> {
    for _ in 0..DOCUMENTS_MAX {
        match cursor.next()? {
            Some(document) => {
                assert!(Doc::validate(document.as_bytes()).is_ok());
                visit(&document);
            }
            None => break,
        }
    }
    Ok(())
}

fn parse(input: &[u8]) -> Option<OwnedValue> {
    extjson::parse_value(std::str::from_utf8(input).ok()?).ok()
}

/// The input is like a `find` command: `filter`, `sort`, `projection`, `collation`, `skip`, `limit`.
pub fn run_find(input: &[u8]) {
    let Some(OwnedValue::Document(command)) = parse(input) else {
        return;
    };
    let collation = match command.get_doc("collation").map(collation::parse) {
        None => None,
        Some(Ok(collator)) => Some(collator),
        Some(Err(_)) => return,
    };
    let all = FindRequest {
        filter: command.get_doc("filter"),
        collation,
        ..FindRequest::default()
    };
    {
        let fixture = &*STORE;
        let natural = doc! {"$natural": 1};
        let scan = FindRequest {
            hint: Some(Value::Document(&natural)),
            ..all.clone()
        };
        let expected = fixture.find(&fixture.plain, &scan);
        let found = fixture.find(&fixture.indexed, &all);
        // A text or a geo query needs an index, and an error of a document is met only if the plan reads it.
        if let (Ok(expected), Ok(found)) = (&expected, &found) {
            assert_eq!(expected, found, "{command:?}");
        }
        if let (Ok(_), Err(code)) = (&expected, &found) {
            panic!("a scan finds what indexes fail to, with {code}: {command:?}");
        }
        let whole = FindRequest {
            sort: command.get_doc("sort"),
            projection: command.get_doc("projection"),
            skip: command.get_i64("skip").unwrap_or(0).unsigned_abs(),
            limit: command.get_i64("limit").map(i64::unsigned_abs),
            hint: command.get("hint"),
            min: command.get_doc("min"),
            max: command.get_doc("max"),
            variables: command.get_doc("let"),
            ..all
        };
        let cursor = fixture
            .store
            .find(&fixture.indexed, &whole, &fixture.context());
        if let Ok(cursor) = cursor {
            let _ = drain(cursor, &mut |_| {});
        }
    }
    let sort = command.get_doc("sort").map(SortSpec::parse);
    let projection = command.get_doc("projection").map(Projection::parse);
    for document in documents() {
        if let Some(Ok(sort)) = &sort {
            let _ = sort.key(&document);
        }
        if let Some(Ok(projection)) = &projection
            && let Ok(projected) = projection.apply(&document)
        {
            assert!(Doc::validate(projected.as_bytes()).is_ok());
        }
    }
}

/// The input is like a statement of `update`: `q`, `u`, `arrayFilters`, `collation`. Pure, and by the store.
pub fn run_update(input: &[u8]) {
    let Some(OwnedValue::Document(statement)) = parse(input) else {
        return;
    };
    let Some(change) = statement.get("u") else {
        return;
    };
    let filters: Vec<&Doc> = statement
        .get_array("arrayFilters")
        .into_iter()
        .flat_map(Doc::values)
        .filter_map(|value| value.as_doc())
        .collect();
    if let Ok(update) = Update::parse_value(&change, &filters, &Default::default()) {
        update.paths_touched();
        update.required_fields();
        for document in documents() {
            if let Ok(applied) = update.apply(&document, &ApplyContext::at(1_700_000_000_000)) {
                assert!(
                    Doc::validate(applied.doc.as_bytes()).is_ok(),
                    "{statement:?}"
                );
                assert!(
                    applied.modified || *applied.doc == *document,
                    "{statement:?}"
                );
            }
        }
    }
    let empty = DocBuf::new();
    let collation = statement.get_doc("collation").map(collation::parse);
    let request = UpdateRequest {
        upsert: statement.get_bool("upsert").unwrap_or(false),
        multi: statement.get_bool("multi").unwrap_or(false),
        array_filters: filters,
        hint: statement.get("hint"),
        variables: statement.get_doc("let"),
        collation: collation.and_then(Result::ok),
        ..UpdateRequest::new(statement.get_doc("q").unwrap_or(&empty), change)
    };
    // The store is as it was before each input, so that an input does the same each time.
    let fixture = Fixture::new();
    let updated = fixture.store.update(
        &fixture.indexed,
        &request,
        Durability::Logged,
        &fixture.context(),
    );
    if updated.is_ok() {
        let report = fixture
            .store
            .verify(&fixture.indexed)
            .expect("a verification");
        assert_eq!(report.errors, Vec::<String>::new(), "{statement:?}");
    }
    let _ = fixture.store.engine().close();
}

/// The input is a pipeline, or a document with `pipeline`, `let`, `collation`.
pub fn run_aggregate(input: &[u8]) {
    let parsed = parse(input);
    let (pipeline, command) = match &parsed {
        Some(OwnedValue::Array(pipeline)) => (&**pipeline, None),
        Some(OwnedValue::Document(command)) => match command.get_array("pipeline") {
            Some(pipeline) => (pipeline, Some(command)),
            None => return,
        },
        _ => return,
    };
    let collation = command.and_then(|command| command.get_doc("collation"));
    let request = AggregateRequest {
        pipeline,
        hint: command.and_then(|command| command.get("hint")),
        variables: command.and_then(|command| command.get_doc("let")),
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: Some(false),
        collation: collation.and_then(|spec| collation::parse(spec).ok()),
    };
    let run = |fixture: &Fixture| {
        for ns in [&fixture.plain, &fixture.indexed] {
            let cursor = fixture
                .store
                .aggregate("fuzz", Some(ns), &request, &fixture.context());
            if let Ok(cursor) = cursor {
                let _ = drain(cursor, &mut |_| {});
            }
        }
    };
    let writes = pipeline.values().any(|stage| {
        stage
            .as_doc()
            .is_some_and(|stage| stage.contains_key("$out") || stage.contains_key("$merge"))
    });
    if writes {
        let fixture = Fixture::new();
        run(&fixture);
        let _ = fixture.store.engine().close();
    } else {
        run(&STORE);
    }
}
