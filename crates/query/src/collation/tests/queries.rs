//! Filters, sorts, expressions, updates and pipelines under a collation.

use super::*;
use crate::Environment;
use crate::aggregate::{Docs, ExecContext, Pipeline, Source};
use crate::expr::{Expr, evaluate_variables};
use crate::matcher::Filter;
use crate::projection::Projection;
use crate::sort::SortSpec;
use crate::testing::{show, value};
use crate::update::{ApplyContext, Update};
use frond_bson::OwnedValue;

/// Case does not count.
fn no_case() -> Collator {
    collator("{locale: 'en', strength: 2}")
}

fn environment(collator: &Collator) -> Environment<'_> {
    Environment {
        collator,
        ..Environment::default()
    }
}

#[test]
fn filters() {
    let collator = no_case();
    for (filter, doc, under, simple) in [
        ("{a: 'FOO'}", "{a: 'foo'}", true, false),
        ("{a: {$eq: 'FOO'}}", "{a: ['x', 'Foo']}", true, false),
        ("{a: {$ne: 'FOO'}}", "{a: 'foo'}", false, true),
        ("{a: {$gt: 'B'}}", "{a: 'c'}", true, true),
        ("{a: {$gt: 'b'}}", "{a: 'C'}", true, false),
        ("{a: {$lte: 'B'}}", "{a: 'b'}", true, false),
        ("{a: {$in: ['X', 'FOO']}}", "{a: 'foo'}", true, false),
        ("{a: {$nin: ['FOO']}}", "{a: 'foo'}", false, true),
        ("{a: {$all: ['X', 'Y']}}", "{a: ['y', 'x']}", true, false),
        (
            "{a: {b: 'X', c: ['Y']}}",
            "{a: {b: 'x', c: ['y']}}",
            true,
            false,
        ),
        ("{a: {B: 'x'}}", "{a: {b: 'x'}}", false, false),
        ("{a: ['X']}", "{a: ['x']}", true, false),
        ("{a: {$elemMatch: {$eq: 'X'}}}", "{a: ['x']}", true, false),
        (
            "{a: {$elemMatch: {b: 'X'}}}",
            "{a: [{b: 'x'}]}",
            true,
            false,
        ),
        ("{a: {$not: {$eq: 'X'}}}", "{a: 'x'}", false, true),
        ("{$or: [{a: 'X'}]}", "{a: 'x'}", true, false),
        ("{$expr: {$eq: ['$a', 'X']}}", "{a: 'x'}", true, false),
        // Patterns see the string itself.
        ("{a: /X/}", "{a: 'x'}", false, false),
        ("{a: {$regex: '^X'}}", "{a: 'x'}", false, false),
        ("{a: {$in: [/^X/]}}", "{a: 'x'}", false, false),
        // Other types are as they were.
        ("{a: 5}", "{a: 5.0}", true, true),
        ("{a: null}", "{}", true, true),
    ] {
        let doc = json(doc);
        let parsed = Filter::parse_with(&json(filter), &environment(&collator)).unwrap();
        assert_eq!(parsed.matches(&doc), under, "{filter}");
        let parsed = Filter::parse_with(&json(filter), &Environment::default()).unwrap();
        assert_eq!(parsed.matches(&doc), simple, "{filter}");
    }
}

#[test]
fn expressions() {
    let collator = no_case();
    for (expression, expected) in [
        ("{$eq: ['a', 'A']}", "true"),
        ("{$ne: ['a', 'A']}", "false"),
        ("{$cmp: ['a', 'B']}", "-1"),
        ("{$cmp: ['B', 'a']}", "1"),
        ("{$gte: ['a', 'A']}", "true"),
        ("{$lt: ['a', 'A']}", "false"),
        ("{$eq: [['a'], ['A']]}", "true"),
        ("{$in: ['A', ['b', 'a']]}", "true"),
        ("{$indexOfArray: [['b', 'a'], 'A']}", "1"),
        ("{$setUnion: [['a'], ['A', 'b']]}", "[\"a\",\"b\"]"),
        ("{$setIntersection: [['a'], ['A', 'b']]}", "[\"a\"]"),
        ("{$setDifference: [['a', 'c'], ['A', 'b']]}", "[\"c\"]"),
        ("{$setEquals: [['a', 'B'], ['A', 'b']]}", "true"),
        ("{$setIsSubset: [['A'], ['a', 'b']]}", "true"),
        ("{$min: ['b', 'C']}", "\"b\""),
        ("{$max: ['b', 'C']}", "\"C\""),
        ("{$minN: {n: 1, input: ['b', 'C']}}", "[\"b\"]"),
        ("{$maxN: {n: 1, input: ['b', 'C']}}", "[\"C\"]"),
        (
            "{$sortArray: {input: ['B', 'a', 'C'], sortBy: 1}}",
            "[\"a\",\"B\",\"C\"]",
        ),
        (
            "{$sortArray: {input: ['B', 'a', 'C'], sortBy: -1}}",
            "[\"C\",\"B\",\"a\"]",
        ),
        (
            "{$map: {input: {$sortArray: {input: [{k: 'B'}, {k: 'a'}], sortBy: {k: 1}}}, in: \
             '$$this.k'}}",
            "[\"a\",\"B\"]",
        ),
        (
            "{$switch: {branches: [{case: {$eq: ['a', 'A']}, then: 1}], default: 2}}",
            "1",
        ),
        (
            "{$filter: {input: ['a', 'b'], cond: {$eq: ['$$this', 'A']}}}",
            "[\"a\"]",
        ),
        // These see the bytes.
        ("{$strcasecmp: ['a', 'B']}", "-1"),
        ("{$indexOfCP: ['a', 'A']}", "-1"),
        ("{$regexMatch: {input: 'a', regex: 'A'}}", "false"),
    ] {
        let parsed = Expr::parse(&value(expression).as_value(), &environment(&collator)).unwrap();
        let result = parsed.eval_owned(Doc::empty(), 0).unwrap().unwrap();
        assert_eq!(show(&result.as_value()), expected, "{expression}");
    }
    let surroundings = Environment {
        collator: &collator,
        ..Environment::default()
    };
    let values = evaluate_variables(&json("{same: {$eq: ['a', 'A']}}"), &surroundings).unwrap();
    assert_eq!(values, json("{same: true}"));
    let projection = json("{l: {$elemMatch: {b: 'X'}}, e: {$eq: ['$s', 'S']}}");
    let projection = Projection::parse_with(&projection, &environment(&collator)).unwrap();
    let shown = projection.apply(&json("{l: [{b: 'y'}, {b: 'x'}], s: 's'}"));
    assert_eq!(shown.unwrap(), json("{l: [{b: 'x'}], e: true}"));
}

#[test]
fn sorts() {
    let collator = no_case();
    let order = |spec: &str| SortSpec::parse(&json(spec)).unwrap().collated(&collator);
    for (spec, less, greater) in [
        ("{a: 1}", "{a: 'a'}", "{a: 'B'}"),
        ("{a: -1}", "{a: 'B'}", "{a: 'a'}"),
        ("{a: 1}", "{a: ['Z', 'a']}", "{a: 'B'}"),
        ("{a: 1, b: 1}", "{a: 'x', b: 1}", "{a: 'X', b: 2}"),
        ("{a: 1}", "{a: {b: 'a'}}", "{a: {b: 'B'}}"),
    ] {
        let ordering = order(spec).compare(&json(less), &json(greater)).unwrap();
        assert_eq!(ordering, Ordering::Less, "{spec} {less} {greater}");
    }
}

#[test]
fn updates() {
    let collator = no_case();
    for (doc, update, filters, expected) in [
        ("{a: ['x']}", "{$addToSet: {a: 'X'}}", &[][..], "{a: ['x']}"),
        (
            "{a: []}",
            "{$addToSet: {a: {$each: ['x', 'X', 'y']}}}",
            &[],
            "{a: ['x', 'y']}",
        ),
        ("{a: ['x', 'y']}", "{$pull: {a: 'X'}}", &[], "{a: ['y']}"),
        (
            "{a: ['x', 'y']}",
            "{$pull: {a: {$in: ['X']}}}",
            &[],
            "{a: ['y']}",
        ),
        ("{a: [{b: 'x'}]}", "{$pull: {a: {b: 'X'}}}", &[], "{a: []}"),
        (
            "{a: ['x', 'y']}",
            "{$pullAll: {a: ['X']}}",
            &[],
            "{a: ['y']}",
        ),
        ("{a: 'b'}", "{$max: {a: 'C'}}", &[], "{a: 'C'}"),
        ("{a: 'C'}", "{$min: {a: 'b'}}", &[], "{a: 'b'}"),
        ("{a: 'x'}", "{$min: {a: 'X'}}", &[], "{a: 'x'}"),
        (
            "{a: ['B']}",
            "{$push: {a: {$each: ['a'], $sort: 1}}}",
            &[],
            "{a: ['a', 'B']}",
        ),
        (
            "{a: [{k: 'B'}]}",
            "{$push: {a: {$each: [{k: 'a'}], $sort: {k: 1}}}}",
            &[],
            "{a: [{k: 'a'}, {k: 'B'}]}",
        ),
        (
            "{a: ['x', 'y']}",
            "{$set: {'a.$[e]': 1}}",
            &["{e: 'X'}"],
            "{a: [1, 'y']}",
        ),
        (
            "{a: 'x'}",
            "[{$set: {b: {$eq: ['$a', 'X']}}}]",
            &[],
            "{a: 'x', b: true}",
        ),
        // A change of case is a change.
        ("{a: 'x'}", "{$set: {a: 'X'}}", &[], "{a: 'X'}"),
    ] {
        let filters: Vec<DocBuf> = filters.iter().map(|text| json(text)).collect();
        let filters: Vec<&Doc> = filters.iter().map(|doc| &**doc).collect();
        let parsed = value(update);
        let parsed = Update::parse_value(&parsed.as_value(), &filters, &environment(&collator));
        let applied = (parsed.unwrap())
            .apply(&json(doc), &ApplyContext::at(0))
            .map(|applied| applied.doc);
        assert_eq!(applied.unwrap(), json(expected), "{doc} {update}");
    }
}

#[test]
fn pipelines() {
    let collator = no_case();
    let docs = ["{_id: 1, a: 'x'}", "{_id: 2, a: 'X'}", "{_id: 3, a: 'Y'}"];
    for (stages, expected) in [
        (
            "[{$match: {a: 'X'}}, {$project: {_id: 1}}]",
            "[{_id: 1}, {_id: 2}]",
        ),
        (
            "[{$group: {_id: '$a', n: {$sum: 1}}}]",
            "[{_id: 'x', n: 2}, {_id: 'Y', n: 1}]",
        ),
        (
            "[{$group: {_id: {k: '$a'}}}]",
            "[{_id: {k: 'x'}}, {_id: {k: 'Y'}}]",
        ),
        (
            "[{$group: {_id: null, s: {$addToSet: '$a'}, hi: {$max: '$a'}, lo: {$min: '$a'}, two: \
             {$minN: {n: 2, input: '$a'}}, top: {$top: {sortBy: {a: -1}, output: '$a'}}}}]",
            "[{_id: null, s: ['x', 'Y'], hi: 'Y', lo: 'x', two: ['x', 'X'], top: 'Y'}]",
        ),
        (
            "[{$sort: {a: -1, _id: -1}}, {$project: {_id: 1}}]",
            "[{_id: 3}, {_id: 2}, {_id: 1}]",
        ),
        (
            "[{$sortByCount: '$a'}]",
            "[{_id: 'x', count: 2}, {_id: 'Y', count: 1}]",
        ),
        (
            "[{$bucket: {groupBy: '$a', boundaries: ['a', 'Y', 'z']}}]",
            "[{_id: 'a', count: 2}, {_id: 'Y', count: 1}]",
        ),
        (
            "[{$facet: {f: [{$match: {a: 'y'}}, {$project: {_id: 1}}]}}]",
            "[{f: [{_id: 3}]}]",
        ),
        (
            "[{$limit: 1}, {$lookup: {from: 'x', pipeline: [{$documents: [{v: 'p'}]}, {$match: \
             {v: 'P'}}], as: 'j'}}, {$project: {j: 1, _id: 0}}]",
            "[{j: [{v: 'p'}]}]",
        ),
        (
            "[{$match: {_id: 1}}, {$project: {e: {$eq: ['$a', 'X']}}}]",
            "[{_id: 1, e: true}]",
        ),
    ] {
        // `from` is not there with `$documents`.
        let stages = stages.replace("from: 'x', ", "");
        let OwnedValue::Array(array) = value(&stages) else {
            panic!("{stages}");
        };
        let pipeline = Pipeline::parse(&array, &environment(&collator)).unwrap();
        assert_eq!(*pipeline.collator(), collator);
        let input = docs.iter().map(|text| json(text)).collect();
        let context = ExecContext::<Error>::new(0);
        let mut source: Source<Error> = pipeline
            .execute(Box::new(Docs::new(input)), &context)
            .unwrap();
        let mut found = frond_bson::ArrayBuf::new();
        while let Some(doc) = source.next().unwrap() {
            found.push(&doc);
        }
        let expected = value(expected);
        assert_eq!(
            show(&found.as_value()),
            show(&expected.as_value()),
            "{stages}"
        );
    }
}
