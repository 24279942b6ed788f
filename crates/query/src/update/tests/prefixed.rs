//! Names that begin with `$`: below the first level they are names like others.

use super::*;

#[test]
fn prefixed_names_below_the_first_level_are_ordinary() {
    check(&[
        ("{_id: 1}", "{$set: {'n.$p': 1}}", "{_id: 1, n: {$p: 1}}"),
        (
            "{_id: 1, n: {$p: 1, a: 2}}",
            "{$set: {'n.$p': 5}}",
            "{_id: 1, n: {$p: 5, a: 2}}",
        ),
        (
            "{_id: 1, n: {'$*': {x: 1, y: 2}}}",
            "{$unset: {'n.$*.x': 1}}",
            "{_id: 1, n: {'$*': {y: 2}}}",
        ),
        (
            "{_id: 1, a: 1}",
            "{$unset: {'n.$*.x': 1}}",
            "{_id: 1, a: 1}",
        ),
        (
            "{_id: 1, n: {$p: 1}}",
            "{$inc: {'n.$p': 2, 'n.$q': 7}}",
            "{_id: 1, n: {$p: 3, $q: 7}}",
        ),
        (
            "{_id: 1, n: {$l: [1]}}",
            "{$push: {'n.$l': {$x: 1}}}",
            "{_id: 1, n: {$l: [1, {$x: 1}]}}",
        ),
        (
            "{_id: 1, n: {$l: [1, 2]}}",
            "{$pull: {'n.$l': 1}}",
            "{_id: 1, n: {$l: [2]}}",
        ),
        (
            "{_id: 1, n: {$l: [1, 2]}}",
            "{$addToSet: {'n.$l': {$each: [2, 3]}}}",
            "{_id: 1, n: {$l: [1, 2, 3]}}",
        ),
        (
            "{_id: 1, n: {$l: [1, 2]}}",
            "{$pop: {'n.$l': 1}}",
            "{_id: 1, n: {$l: [1]}}",
        ),
        (
            "{_id: 1, n: {$a: 4, $b: 4, $c: 6}}",
            "{$min: {'n.$a': 2}, $max: {'n.$b': 9}, $bit: {'n.$c': {and: 2}}}",
            "{_id: 1, n: {$a: 2, $b: 9, $c: 2}}",
        ),
        (
            "{_id: 1, n: {$a: 4}}",
            "{$rename: {'n.$a': 'n.$b'}}",
            "{_id: 1, n: {$b: 4}}",
        ),
        (
            "{_id: 1}",
            "{$set: {n: {$p: {$q: 1}}}}",
            "{_id: 1, n: {$p: {$q: 1}}}",
        ),
        (
            "{_id: 1, n: {$l: [{$k: 1}, {$k: 2}]}}",
            "{$set: {'n.$l.$[].$k': 0}}",
            "{_id: 1, n: {$l: [{$k: 0}, {$k: 0}]}}",
        ),
        (
            "{_id: 1, n: [{$k: 1}]}",
            "{$set: {'n.0.$k': 0, 'n.1.$k': 1}}",
            "{_id: 1, n: [{$k: 0}, {$k: 1}]}",
        ),
        // The positional components need their exact form.
        (
            "{_id: 1}",
            "{$set: {'n.$[x': 1, 'n.$]': 2}}",
            "{_id: 1, n: {'$[x': 1, '$]': 2}}",
        ),
        ("{_id: 1, a: 1}", "{b: {$p: 1}}", "{_id: 1, b: {$p: 1}}"),
        (
            "{_id: 1}",
            "{$set: {r: {$ref: 'c', $id: 1}, 's.$id': 2}}",
            "{_id: 1, r: {$ref: 'c', $id: 1}, s: {$id: 2}}",
        ),
    ]);
}

#[test]
fn the_positional_operators_stay_what_they_are() {
    let positional = ApplyContext {
        positional: Some(1),
        ..context()
    };
    let doc = "{_id: 1, n: {$l: [{$k: 1}, {$k: 2}]}}";
    let (result, _) = run(doc, "{$set: {'n.$l.$.$k': 0}}", &positional).unwrap();
    assert_eq!(result, json("{_id: 1, n: {$l: [{$k: 1}, {$k: 0}]}}"));
    let filter = json("{'i.$k': 2}");
    let update = Update::parse(&json("{$set: {'n.$l.$[i].$k': 0}}"), &[&filter]).unwrap();
    let applied = update.apply(&json(doc), &context()).unwrap();
    assert_eq!(applied.doc, json("{_id: 1, n: {$l: [{$k: 1}, {$k: 0}]}}"));
    check_errors(&[
        ("{_id: 1}", "{$set: {$: 1}}", 2, "first position"),
        ("{_id: 1}", "{$set: {'$[]': 1}}", 2, "first position"),
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.$': 1}}",
            2,
            "did not find the match",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.$[x]': 1}}",
            2,
            "No array filter",
        ),
    ]);
}

#[test]
fn at_the_first_level_only_references_are_written_to_stored_documents() {
    check_errors(&[
        (
            "{_id: 1}",
            "{$set: {$p: 1}}",
            52,
            "The dollar ($) prefixed field '$p' in '$p' is not allowed in the context of an update's \
             replacement document. Consider using an aggregation pipeline with $replaceWith.",
        ),
        ("{_id: 1, $p: 1}", "{$set: {$p: 2}}", 52, "'$p'"),
        ("{_id: 1, $p: 1}", "{$inc: {$p: 2}}", 52, "'$p'"),
        ("{_id: 1, $p: [1]}", "{$push: {$p: 2}}", 52, "'$p'"),
        ("{_id: 1}", "{$set: {'$p.a': 2}}", 52, "'$p' in '$p'"),
        ("{_id: 1, a: 1}", "{$rename: {a: '$p'}}", 52, "'$p'"),
        ("{_id: 1, a: 1}", "{b: 1, $p: 1}", 52, "'$p'"),
        ("{_id: 1, a: 1}", "{b: 1, $: 1}", 52, "'$'"),
        (
            "{_id: 1}",
            "{$set: {$id: 1}}",
            55,
            "Found $id field without a $ref before it",
        ),
        (
            "{_id: 1}",
            "{$set: {$db: 'd'}}",
            55,
            "Found $db field without a $id before it",
        ),
        (
            "{_id: 1}",
            "{$set: {$db: 1}}",
            55,
            "The DBRef $db field must be a String, not a int",
        ),
        (
            "{_id: 1}",
            "{$set: {$ref: 'c'}}",
            55,
            "must be followed by a $id field",
        ),
        (
            "{_id: 1}",
            "{a: 1, $ref: 1, $id: 2}",
            55,
            "The DBRef $ref field must be a String, not a int",
        ),
        (
            "{_id: 1}",
            "{a: 1, $ref: 'c', b: 1, $id: 2}",
            55,
            "followed by a $id",
        ),
        (
            "{_id: 1}",
            "{a: 1, $ref: 'c', $id: 1, b: 1, $db: 'd'}",
            55,
            "$db field without",
        ),
    ]);
    check(&[
        (
            "{_id: 1, $p: 1, a: 1}",
            "{$unset: {$p: 1}}",
            "{_id: 1, a: 1}",
        ),
        ("{_id: 1, $p: 1}", "{$rename: {$p: 'p'}}", "{_id: 1, p: 1}"),
        ("{_id: 1, $p: 1}", "{$set: {$p: 1}}", "{_id: 1, $p: 1}"),
        ("{_id: 1, $p: 1}", "{$set: {a: 1}}", "{_id: 1, $p: 1, a: 1}"),
        (
            "{_id: 1, $p: {a: 1}}",
            "{$set: {'$p.a': 2, '$p.$b': 3}}",
            "{_id: 1, $p: {a: 2, $b: 3}}",
        ),
        ("{_id: 1}", "{$setOnInsert: {$p: 1}}", "{_id: 1}"),
        ("{_id: 1}", "{$unset: {$p: 1}}", "{_id: 1}"),
        (
            "{_id: 1}",
            "{a: 1, $ref: 'c', $id: 1, $db: 'd'}",
            "{_id: 1, a: 1, $ref: 'c', $id: 1, $db: 'd'}",
        ),
        (
            "{_id: 1, $ref: 'c', $id: 1}",
            "{$set: {$id: 2}}",
            "{_id: 1, $ref: 'c', $id: 2}",
        ),
        (
            "{_id: 1, $ref: 'c', $id: 1}",
            "{$set: {$db: 'd'}}",
            "{_id: 1, $ref: 'c', $id: 1, $db: 'd'}",
        ),
    ]);
}

#[test]
fn upserts_insert_any_name() {
    let insert = ApplyContext {
        is_upsert_insert: true,
        ..context()
    };
    for (base, update, expected) in [
        ("{_id: 9}", "{$set: {$p: 1}}", "{_id: 9, $p: 1}"),
        (
            "{_id: 9}",
            "{$setOnInsert: {'$p.$q': 1}}",
            "{_id: 9, $p: {$q: 1}}",
        ),
        ("{_id: 9}", "{a: 1, $p: 1}", "{_id: 9, a: 1, $p: 1}"),
        ("{_id: 9}", "{$set: {$id: 1}}", "{_id: 9, $id: 1}"),
        (
            "{_id: {$ref: 'c', $id: 1}}",
            "{$set: {a: 1}}",
            "{_id: {$ref: 'c', $id: 1}, a: 1}",
        ),
    ] {
        let (result, _) = run(base, update, &insert).unwrap();
        assert_eq!(result, json(expected), "{update}");
    }
    assert_eq!(
        upsert_base(&json("{'n.$p': 1}")).unwrap(),
        json("{n: {$p: 1}}")
    );
    for (base, update) in [
        ("{}", "{$set: {'_id.$p': 1}}"),
        ("{}", "{$set: {_id: {a: {$p: 1}}}}"),
    ] {
        let error = run(base, update, &insert).unwrap_err();
        assert_eq!(error.code().code(), 52, "{update}");
    }
}

#[test]
fn an_id_may_hold_references_only() {
    for (id, code) in [
        ("{a: 1}", None),
        ("{$ref: 'c', $id: 1}", None),
        ("{$ref: 'c', $id: 1, $db: 'd', x: 1}", None),
        ("{a: {$ref: 'c', $id: 1}}", None),
        ("{a: [{$ref: 'c', $id: 1}]}", None),
        ("{$p: 1}", Some(52)),
        ("{a: 1, $p: 1}", Some(52)),
        ("{a: {b: {$p: 1}}}", Some(52)),
        ("{a: [{$p: 1}]}", Some(52)),
        ("{$id: 1}", Some(52)),
        ("{$ref: 'c'}", Some(52)),
        ("{$ref: 1, $id: 1}", Some(52)),
        ("{a: 1, $ref: 'c', $id: 1}", Some(52)),
        ("{$ref: 'c', $id: 1, $db: 5}", Some(52)),
        ("{$ref: 'c', $id: 1, $x: 5}", Some(52)),
        ("[1]", Some(53)),
        ("/x/", Some(53)),
        ("1", None),
    ] {
        let value = crate::testing::value(id);
        let result = check_id(&value.as_value()).map_err(|error| error.code().code());
        assert_eq!(result.err(), code, "{id}");
    }
}

/// The fields around one that begins with `$` count, so that a part of a large document does not do.
#[test]
fn the_whole_document_is_needed_for_names_of_the_first_level() {
    let needs = |update: &str| Update::parse(&json(update), &[]).unwrap();
    let update = needs("{$inc: {$p: 1}}");
    assert_eq!(update.increments().count(), 0);
    assert!(update.required_fields_except_increments().is_whole());
    let update = needs("{$inc: {'n.$p': 1}}");
    assert_eq!(update.increments().count(), 1);
    assert!(!update.required_fields().is_whole());
}
