//! Stages over several pipelines or collections.

use super::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Collections in memory, and what was written.
#[derive(Default)]
struct Collections {
    docs: HashMap<String, Vec<DocBuf>>,
    written: Mutex<Vec<(String, DocBuf)>>,
}

impl Host<Error> for Collections {
    fn run(
        &self,
        _stage: &'static str,
        _database: Option<&str>,
        collection: &str,
        pipeline: Pipeline,
    ) -> Result<Source<Error>> {
        let docs = self.docs.get(collection).cloned().unwrap_or_default();
        pipeline.execute(Box::new(Docs::new(docs)), &ExecContext::new(NOW))
    }

    fn write(&self, writing: Writing<'_>, mut docs: Source<Error>) -> Result<()> {
        let (stage, target) = match writing.target() {
            WriteTarget::Out(out) => ("$out", &out.coll),
            WriteTarget::Merge(merge) => ("$merge", &merge.coll),
        };
        while let Some(doc) = docs.next()? {
            let mut written = self.written.lock().unwrap();
            written.push((format!("{stage} {target}"), doc));
        }
        Ok(())
    }
}

pub(super) fn context() -> ExecContext<Error> {
    let mut host = Collections::default();
    host.docs.insert(
        "items".into(),
        docs("[{_id: 'a', price: 5, tags: ['x', 'y']}, {_id: 'b', price: 7, tags: []}, {_id: 'c', price: 9}]"),
    );
    ExecContext {
        host: Arc::new(host),
        ..ExecContext::new(NOW)
    }
}

fn check_joined(input: &str, cases: &[(&str, &str)]) {
    for (stages, expected) in cases {
        let pipeline = parse(stages).unwrap_or_else(|error| panic!("{stages}: {error}"));
        let source = pipeline.execute(Box::new(Docs::new(docs(input))), &context());
        let result = source
            .and_then(collect)
            .unwrap_or_else(|error| panic!("{stages}: {error}"));
        assert_eq!(result, docs(expected), "{stages}");
    }
}

#[test]
fn facets_see_the_same_documents() {
    check(
        "[{a: 1}, {a: 2}, {a: 3}]",
        &[(
            "[{$match: {a: {$gt: 1}}}, {$facet: {n: [{$count: 'c'}], top: [{$sort: {a: -1}}, {$limit: 1}], none: [{$match: {a: 9}}]}}]",
            "[{n: [{c: 2}], top: [{a: 3}], none: []}]",
        )],
    );
    check_errors(
        "[]",
        &[
            ("[{$facet: {}}]", 40169, "non-empty object"),
            ("[{$facet: {a: 1}}]", 40170, "arrays"),
            (
                "[{$facet: {a: [{$out: 'x'}]}}]",
                40600,
                "$out is not allowed to be used within a $facet stage",
            ),
            ("[{$facet: {a: [{$facet: {b: []}}]}}]", 40600, "$facet"),
            ("[{$facet: {a: [{$foo: 1}]}}]", 40324, "$foo"),
        ],
    );
}

#[test]
fn documents_without_a_collection() {
    check(
        "[{ignored: true}]",
        &[(
            "[{$documents: [{a: 1}, {a: {$add: [1, 1]}}]}, {$match: {a: 2}}]",
            "[{a: 2}]",
        )],
    );
    check_errors(
        "[]",
        &[
            ("[{$documents: {a: 1}}]", 5858203, "array"),
            ("[{$documents: [1]}]", 5858203, "int"),
            ("[{$limit: 1}, {$documents: []}]", 40602, "first"),
        ],
    );
}

#[test]
fn lookup_takes_the_values_of_a_local_path() {
    // Of the items a has tags, b an empty list, and c none.
    for (local, path, expected) in [
        ("{x: []}", "x", "['c']"),
        ("{x: [[]]}", "x", "['b']"),
        ("{x: [1]}", "x.y", "['c']"),
        ("{x: [{y: []}, {z: 1}]}", "x.y", "['c']"),
        ("{x: [{z: 1}, {y: 'x'}]}", "x.y", "['a']"),
        ("{x: [{y: 'n'}, {y: 'x'}]}", "x.1.y", "['a']"),
        ("{x: ['n', 'x']}", "x.1", "['a']"),
        ("{x: ['n', 'x']}", "x.2", "['c']"),
    ] {
        let stages = format!(
            "[{{$lookup: {{from: 'items', localField: '{path}', foreignField: 'tags', as: 'f'}}}}, \
             {{$project: {{_id: 0, i: '$f._id'}}}}]"
        );
        check_joined(
            &format!("[{local}]"),
            &[(&stages, &format!("[{{i: {expected}}}]"))],
        );
    }
}

#[test]
fn lookup_joins_by_equality_and_by_pipeline() {
    let input = "[{_id: 1, item: 'a'}, {_id: 2, item: ['b', 'c']}, {_id: 3}]";
    check_joined(
        input,
        &[
            (
                "[{$lookup: {from: 'items', localField: 'item', foreignField: '_id', as: 'found'}}, {$project: {p: '$found.price'}}]",
                "[{_id: 1, p: [5]}, {_id: 2, p: [7, 9]}, {_id: 3, p: []}]",
            ),
            (
                "[{$limit: 2}, {$lookup: {from: 'items', let: {i: '$_id'}, pipeline: [{$match: {$expr: {$gt: ['$price', {$multiply: ['$$i', 4]}]}}}, {$project: {_id: 1}}], as: 'f'}}, {$project: {f: '$f._id'}}]",
                "[{_id: 1, f: ['a', 'b', 'c']}, {_id: 2, f: ['c']}]",
            ),
            (
                "[{$limit: 1}, {$lookup: {from: 'items', localField: 'item', foreignField: '_id', as: 'item'}}]",
                "[{_id: 1, item: [{_id: 'a', price: 5, tags: ['x', 'y']}]}]",
            ),
            // A missing local field equals a missing or null foreign one.
            (
                "[{$match: {_id: 3}}, {$lookup: {from: 'items', localField: 'item', foreignField: 'tags', as: 'f'}}, {$project: {i: '$f._id'}}]",
                "[{_id: 3, i: ['c']}]",
            ),
            (
                "[{$limit: 1}, {$lookup: {from: 'items', let: {wanted: '$item', n: '$_id'}, pipeline: [{$project: {same: {$eq: ['$_id', '$$wanted']}, n: {$add: ['$price', '$$n']}}}, {$match: {same: true}}], as: 'f'}}]",
                "[{_id: 1, item: 'a', f: [{_id: 'a', same: true, n: 6}]}]",
            ),
            // A variable of a missing field is missing.
            (
                "[{$match: {_id: 3}}, {$lookup: {from: 'items', let: {i: '$item'}, pipeline: [{$limit: 1}, {$project: {_id: 0, t: {$type: '$$i'}, v: '$$i'}}], as: 'f'}}]",
                "[{_id: 3, f: [{t: 'missing'}]}]",
            ),
            (
                "[{$limit: 1}, {$lookup: {from: 'items', localField: 'item', foreignField: '_id', pipeline: [{$project: {tags: 1}}], as: 'x.y'}}]",
                "[{_id: 1, item: 'a', x: {y: [{_id: 'a', tags: ['x', 'y']}]}}]",
            ),
            (
                "[{$limit: 1}, {$lookup: {from: 'nothing', pipeline: [], as: 'f'}}]",
                "[{_id: 1, item: 'a', f: []}]",
            ),
            (
                "[{$limit: 1}, {$lookup: {pipeline: [{$documents: [{v: 1}, {v: 2}]}], as: 'f'}}]",
                "[{_id: 1, item: 'a', f: [{v: 1}, {v: 2}]}]",
            ),
        ],
    );
    check_errors(
        input,
        &[
            ("[{$lookup: 1}]", 9, "object"),
            (
                "[{$lookup: {from: 'x', localField: 'a', as: 'f'}}]",
                9,
                "both or neither",
            ),
            ("[{$lookup: {from: 'x', as: 'f'}}]", 9, "requires either"),
            (
                "[{$lookup: {from: 'x', localField: 'a', foreignField: 'b'}}]",
                9,
                "'as'",
            ),
            (
                "[{$lookup: {localField: 'a', foreignField: 'b', as: 'f'}}]",
                9,
                "'from'",
            ),
            (
                "[{$lookup: {from: 'x', pipeline: [], as: 'f', q: 1}}]",
                9,
                "unknown argument to $lookup: q",
            ),
            (
                "[{$lookup: {from: 'x', pipeline: [{$foo: 1}], as: 'f'}}]",
                40324,
                "$foo",
            ),
            (
                "[{$lookup: {from: 'x', pipeline: [{$out: 'y'}], as: 'f'}}]",
                51047,
                "$out",
            ),
            (
                "[{$lookup: {from: 'x', pipeline: [{$set: {a: '$$v'}}], as: 'f'}}]",
                17276,
                "v",
            ),
            (
                "[{$lookup: {from: 'x', pipeline: [], as: 'f'}}]",
                238,
                "$lookup",
            ),
        ],
    );
}

#[test]
fn pipelines_nest_to_a_limit() {
    let mut stages = "[]".to_owned();
    for _ in 0..25 {
        stages = format!("[{{$lookup: {{from: 'items', pipeline: {stages}, as: 'f'}}}}]");
    }
    assert_eq!(parse(&stages).unwrap_err().code().code(), 232);
}

#[test]
fn union_with_appends() {
    check_joined(
        "[{_id: 1}]",
        &[
            (
                "[{$unionWith: 'items'}, {$project: {_id: 1}}]",
                "[{_id: 1}, {_id: 'a'}, {_id: 'b'}, {_id: 'c'}]",
            ),
            (
                "[{$unionWith: {coll: 'items', pipeline: [{$match: {price: 7}}]}}, {$count: 'n'}]",
                "[{n: 2}]",
            ),
            (
                "[{$unionWith: {pipeline: [{$documents: [{v: 1}]}]}}]",
                "[{_id: 1}, {v: 1}]",
            ),
        ],
    );
    check_errors(
        "[]",
        &[
            ("[{$unionWith: 1}]", 9, "int"),
            ("[{$unionWith: {pipeline: []}}]", 9, "$documents"),
            ("[{$unionWith: {coll: 1}}]", 14, "$unionWith.coll"),
            ("[{$unionWith: {coll: 'x', y: 1}}]", 40415, "y"),
        ],
    );
}

#[test]
fn writing_goes_to_the_host() {
    let host = Arc::new(Collections::default());
    let context = ExecContext {
        host: host.clone(),
        ..ExecContext::new(NOW)
    };
    for stages in [
        "[{$match: {a: 2}}, {$out: 'o'}]",
        "[{$match: {a: 1}}, {$merge: {into: 'm'}}]",
    ] {
        let input = Box::new(Docs::new(docs("[{a: 1}, {a: 2}]")));
        let source = parse(stages).unwrap().execute(input, &context).unwrap();
        assert!(
            host.written.lock().unwrap().len() < 2,
            "nothing runs before it is asked for"
        );
        assert!(collect(source).unwrap().is_empty());
    }
    let written = host.written.lock().unwrap();
    assert_eq!(
        *written,
        [
            ("$out o".to_owned(), json("{a: 2}")),
            ("$merge m".to_owned(), json("{a: 1}"))
        ]
    );
}

#[test]
fn graph_lookup_follows_a_field() {
    let mut host = Collections::default();
    host.docs.insert(
        "people".into(),
        docs("[{_id: 1, name: 'a', boss: 'b'}, {_id: 2, name: 'b', boss: 'c', k: 1}, {_id: 3, name: 'c', boss: ['a', 'd']}, {_id: 4, name: 'd'}]"),
    );
    let context = ExecContext {
        host: Arc::new(host),
        ..ExecContext::new(NOW)
    };
    let lookup = "from: 'people', startWith: '$who', connectFromField: 'boss', connectToField: 'name', as: 'found'";
    let run = |input: &str, options: &str| {
        let stages = format!(
            "[{{$graphLookup: {{{lookup}{options}}}}}, {{$project: {{_id: 0, i: '$found._id', d: '$found.depth'}}}}]"
        );
        let input = Box::new(Docs::new(docs(input)));
        collect(parse(&stages)?.execute(input, &context)?)
    };
    for (input, options, expected) in [
        ("[{who: 'a'}]", "", "[{i: [1, 2, 3, 4], d: []}]"),
        ("[{who: 'a'}]", ", maxDepth: 0", "[{i: [1], d: []}]"),
        (
            "[{who: ['b', 'd']}]",
            ", maxDepth: 1, depthField: 'depth'",
            "[{i: [2, 4, 3], d: [NumberLong(0), NumberLong(0), NumberLong(1)]}]",
        ),
        (
            "[{who: 'a'}]",
            ", restrictSearchWithMatch: {k: {$exists: false}}",
            "[{i: [1], d: []}]",
        ),
        ("[{who: 'z'}, {}]", "", "[{i: [], d: []}, {i: [], d: []}]"),
    ] {
        assert_eq!(
            run(input, options).unwrap(),
            docs(expected),
            "{input} {options}"
        );
    }
    let small = ExecContext {
        limits: StageLimits {
            graph_lookup: 100,
            ..StageLimits::default()
        },
        ..context.clone()
    };
    let stages = format!("[{{$graphLookup: {{{lookup}}}}}]");
    let input = Box::new(Docs::new(docs("[{who: 'a'}]")));
    let source = parse(&stages).unwrap().execute(input, &small).unwrap();
    assert_eq!(collect(source).unwrap_err().code().code(), 40099);
    check_errors(
        "[]",
        &[
            ("[{$graphLookup: 1}]", 9, "object"),
            ("[{$graphLookup: {from: 'x'}}]", 40105, "requires"),
            ("[{$graphLookup: {from: 1}}]", 40103, "from"),
            ("[{$graphLookup: {x: 1}}]", 40104, "x"),
            ("[{$graphLookup: {maxDepth: 'x'}}]", 40100, "string"),
            ("[{$graphLookup: {maxDepth: -1}}]", 40101, "-1"),
            ("[{$graphLookup: {maxDepth: 1.5}}]", 40102, "1.5"),
            (
                "[{$graphLookup: {restrictSearchWithMatch: 1}}]",
                40185,
                "int",
            ),
        ],
    );
}
