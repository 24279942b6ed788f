//! Required fields, as tables; [`random`] checks them as a property.

#![allow(clippy::unwrap_used)]

mod pipelines;
mod random;

use super::*;
use crate::environment::Environment;
use crate::matcher::Filter;
use crate::projection::Projection;
use crate::sort::SortSpec;
use crate::testing::{json, value};
use crate::update::Update;
use frond_bson::Collator;
use frond_error::Result;

fn environment() -> Environment<'static> {
    Environment {
        variables: None,
        now_ms: 7,
        collator: Collator::BINARY,
        ..Environment::default()
    }
}

/// `*` for the whole document, else the paths with blanks between them.
fn show(required: &RequiredFields) -> String {
    if required.is_whole() {
        return "*".to_owned();
    }
    required.paths().collect::<Vec<_>>().join(" ")
}

fn filter(text: &str) -> Result<Filter> {
    Filter::parse_with(&json(text), &environment())
}

fn update(text: &str, array_filters: &[&str]) -> Result<Update> {
    let filters: Vec<_> = array_filters.iter().map(|text| json(text)).collect();
    let filters: Vec<&Doc> = filters.iter().map(|filter| &**filter).collect();
    Update::parse_value(&value(text).as_value(), &filters, &environment())
}

fn projection(text: &str) -> Result<Projection> {
    Projection::parse_with(&json(text), &environment())
}

#[test]
fn paths_below_others_are_dropped() {
    for (paths, expected) in [
        (&[][..], ""),
        (&["b", "a"], "a b"),
        (&["a.b", "a"], "a"),
        (&["a", "a.b"], "a"),
        (&["a.b", "a-b", "a.c.d", "ab"], "a.b a.c.d a-b ab"),
        (&["a.b", "a-b", "a.c.d", "ab", "a"], "a a-b ab"),
        (&["a.b.c", "a.b", "a.b.d", "a.a"], "a.a a.b"),
        (&["a.15.b", "a.2"], "a.15.b a.2"),
        (&["a.", "a.b"], "a. a.b"),
        (&["a", ""], "*"),
        (&["", "a"], "*"),
    ] {
        let required: RequiredFields = paths.iter().copied().collect();
        assert_eq!(show(&required), expected, "{paths:?}");
        let mut added = RequiredFields::none();
        paths.iter().for_each(|path| added.add(path));
        assert_eq!(added, required);
        let mut twice = required.clone();
        twice.extend(&required);
        assert_eq!(twice, required);
    }
    let mut required = RequiredFields::path("a.b");
    required.extend(&RequiredFields::path("a"));
    assert_eq!(show(&required), "a");
    required.extend(&RequiredFields::whole());
    assert!(required.is_whole() && !required.is_none());
    assert!(RequiredFields::none().is_none());
    assert_eq!(RequiredFields::whole().into_set(), None);
}

#[test]
fn the_share_of_a_path() {
    let required: RequiredFields = ["a.b.c", "a.b.d", "a.bb", "e", "a-b"].into_iter().collect();
    for (path, share, below) in [
        ("", Requirement::Part, ""),
        ("a", Requirement::Part, "b.c b.d bb"),
        ("a.b", Requirement::Part, "c d"),
        ("a.b.c", Requirement::Whole, ""),
        ("a.b.c.x", Requirement::Whole, ""),
        ("a.b.cc", Requirement::None, ""),
        ("a.c", Requirement::None, ""),
        ("a-b", Requirement::Whole, ""),
        ("b", Requirement::None, ""),
        ("e", Requirement::Whole, ""),
        ("f", Requirement::None, ""),
    ] {
        assert_eq!(required.requirement(path), share, "{path}");
        let rests: Vec<_> = required.below(path).collect();
        assert_eq!(rests.join(" "), below, "{path}");
    }
    assert_eq!(RequiredFields::whole().requirement("a"), Requirement::Whole);
    assert_eq!(RequiredFields::none().requirement("a"), Requirement::None);
}

#[test]
fn related_needs_meet() {
    let required = |paths: &str| -> RequiredFields {
        match paths {
            "*" => RequiredFields::whole(),
            paths => paths.split_whitespace().collect(),
        }
    };
    for (a, b, expected) in [
        ("", "a", false),
        ("a", "a", true),
        ("a.b", "a", true),
        ("a", "x a.b", true),
        ("a.b", "a.c ab", false),
        ("*", "a", true),
        ("*", "*", true),
        ("*", "", false),
    ] {
        assert_eq!(required(a).meets(&required(b)), expected, "{a} {b}");
        assert_eq!(required(b).meets(&required(a)), expected, "{b} {a}");
    }
}

#[test]
fn the_part_of_a_document() {
    let doc = json("{_id: 1, a: {b: 1, c: {d: 2}, '': 3}, l: [{x: 1}, 2], 's.t': 4, s: 5}");
    for (paths, expected) in [
        (&[][..], "{}"),
        (&["_id", "s"], "{_id: 1, s: 5}"),
        (&["a.b"], "{a: {b: 1}}"),
        (&["a.none"], "{a: {}}"),
        (&["a."], "{a: {'': 3}}"),
        (&["a.c.d", "a.b"], "{a: {b: 1, c: {d: 2}}}"),
        // an array on the way, and a value other than a document
        (&["l.0.none"], "{l: [{x: 1}, 2]}"),
        (&["s.t"], "{s: 5}"),
        (&["none", "a"], "{a: {b: 1, c: {d: 2}, '': 3}}"),
    ] {
        let required: RequiredFields = paths.iter().copied().collect();
        assert_eq!(required.part_of(&doc), json(expected), "{paths:?}");
    }
    assert_eq!(RequiredFields::whole().part_of(&doc), doc);
}

#[test]
fn filters() {
    for (text, expected) in [
        ("{}", ""),
        ("{a: 1}", "a"),
        ("{'a.b': 1, 'a.c': {$gt: 5, $lt: 9}}", "a.b a.c"),
        ("{a: {b: 1}, 'a.c': 2}", "a"),
        ("{'a.15.b': null}", "a.15.b"),
        ("{$or: [{a: 1}, {$nor: [{b: {$not: {$gt: 3}}}]}]}", "a b"),
        (
            "{a: {$exists: false}, b: {$in: [1]}, c: {$ne: 1}, d: {$nin: [1]}}",
            "a b c d",
        ),
        (
            "{a: {$type: 2}, b: {$size: 1}, c: /x/, d: {$mod: [2, 0]}, e: {$bitsAllSet: 1}}",
            "a b c d e",
        ),
        ("{'a.b': {$elemMatch: {x: 1, 'y.z': 2}}}", "a.b"),
        ("{a: {$elemMatch: {$gt: 1}}, b: {$all: [1, 2]}}", "a b"),
        (
            "{a: {$geoWithin: {$center: [[0, 0], 1]}}, b: {$near: [0, 0]}}",
            "a b",
        ),
        ("{$expr: {$eq: ['$a.b', '$c']}}", "a.b c"),
        (
            "{$expr: {$let: {vars: {v: '$a'}, in: {$gt: ['$$v.x', '$$ROOT.b']}}}}",
            "a b",
        ),
        (
            "{$expr: {$anyElementTrue: {$map: {input: '$l', in: '$$this.x'}}}}",
            "l",
        ),
        ("{$expr: {$gt: [{$bsonSize: '$$ROOT'}, 5]}}", "*"),
        ("{$expr: {$eq: ['$$CURRENT', 5]}}", "*"),
        ("{$expr: {$eq: [{$getField: 'a.b'}, 5]}}", "*"),
        ("{$expr: true, $comment: 'x'}", ""),
        ("{$jsonSchema: {required: ['a']}}", "*"),
        ("{$text: {$search: 'x'}, a: 1}", "*"),
        ("{$alwaysFalse: 1}", ""),
        ("{a: 1, $alwaysTrue: 1}", "a"),
        ("{$sampleRate: 0.5}", ""),
    ] {
        assert_eq!(
            show(&filter(text).unwrap().required_fields()),
            expected,
            "{text}"
        );
    }
}

#[test]
fn updates() {
    for (text, filters, expected) in [
        ("{a: 1}", &[][..], "*"),
        ("{}", &[], "*"),
        (
            "{$set: {b: 1, 'a.x': 1}, $inc: {'a.15.b': 1}}",
            &[],
            "_id a.15.b a.x b",
        ),
        ("{$unset: {a: 1}, $push: {b: 1}}", &[], "_id a b"),
        ("{$rename: {'a.b': 'c.d'}}", &[], "_id a.b c.d"),
        ("{$set: {'a.b.$.c': 1, 'a.c': 1}}", &[], "_id a.b a.c"),
        ("{$set: {'a.b.$[].c': 1}}", &[], "_id a.b"),
        (
            "{$set: {'a.$[x].c': 1, 'b.$[].c.$[x]': 1}}",
            &["{x: {$gt: 1}}"],
            "_id a b",
        ),
        ("{$setOnInsert: {a: 1}}", &[], "_id a"),
        ("{$set: {_id: 1}}", &[], "_id"),
        ("{$set: {'_id.a': 1}}", &[], "_id"),
        ("[]", &[], "_id"),
        ("[{$set: {a: '$b.c', 'd.e': 1}}]", &[], "_id a b.c d.e"),
        ("[{$addFields: {a: {b: 1, c: '$x'}}}]", &[], "_id a.b a.c x"),
        ("[{$set: {a: 1}}, {$set: {b: '$a'}}]", &[], "_id a b"),
        ("[{$unset: ['a.b', 'c']}]", &[], "_id a.b c"),
        ("[{$project: {'a.b': 0, c: {d: 0}}}]", &[], "_id a.b c.d"),
        ("[{$set: {a: '$$ROOT'}}]", &[], "*"),
        ("[{$project: {a: 1}}]", &[], "*"),
        ("[{$replaceWith: '$a'}]", &[], "*"),
        // what goes away and comes again moves behind the other fields
        ("[{$unset: 'a'}, {$set: {'a.b': 1}}]", &[], "*"),
    ] {
        let required = update(text, filters).unwrap().required_fields();
        assert_eq!(show(&required), expected, "{text}");
    }
}

#[test]
fn increments() {
    for (text, expected) in [
        ("{a: 1}", ""),
        ("[{$set: {a: 1}}]", ""),
        ("{$set: {a: 1}, $mul: {b: 2}}", ""),
        (
            "{$set: {a: 1}, $inc: {c: -2, 'b.15.x': NumberLong(3), d: 0.5, e: NumberDecimal('1')}}",
            "b.15.x=Int64(3) c=Int32(-2) d=Double(0.5) e=Decimal128(Decimal128(1))",
        ),
        ("{$inc: {'a.$.b': 1, 'c.$[].c': 1, b: 1}}", "b=Int32(1)"),
    ] {
        let update = update(text, &[]).unwrap();
        let found: Vec<_> = (update.increments())
            .map(|(path, operand)| format!("{path}={operand:?}"))
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
        let mut all = update.required_fields_except_increments();
        update.increments().for_each(|(path, _)| {
            assert!(
                all.is_whole() || all.requirement(path) == Requirement::None,
                "{text}"
            );
            all.add(path);
        });
        assert_eq!(all, update.required_fields(), "{text}");
    }
}

#[test]
fn sorts_and_projections() {
    for (text, expected) in [
        ("{}", ""),
        ("{$natural: 1}", ""),
        (
            "{'a.b': 1, c: -1, score: {$meta: 'textScore'}, 'a.0': 1}",
            "a.0 a.b c",
        ),
    ] {
        let spec = SortSpec::parse(&json(text)).unwrap();
        assert_eq!(show(&spec.required_fields()), expected, "{text}");
    }
    for (text, expected) in [
        ("{}", "*"),
        ("{a: 0}", "*"),
        ("{_id: 1}", "_id"),
        ("{a: 1, 'b.c': 1, _id: 0}", "a b.c"),
        ("{a: {b: 1, c: 1}}", "_id a.b a.c"),
        ("{a: '$b.c', _id: 0}", "b.c"),
        // an array gets the field in each element
        ("{'a.x': '$b.c', _id: 0}", "a.x b.c"),
        ("{a: '$$ROOT'}", "*"),
        ("{a: {$slice: 1}, b: 1}", "_id a b"),
        ("{a: {$elemMatch: {x: 1}}}", "_id a"),
        ("{'a.$': 1}", "*"),
        ("{score: {$meta: 'textScore'}, a: 1}", "_id a"),
    ] {
        let required = projection(text).unwrap().required_fields();
        assert_eq!(show(&required), expected, "{text}");
    }
}
