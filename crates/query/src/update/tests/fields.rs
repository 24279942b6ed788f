//! Operators on single fields.

use super::*;

#[test]
fn set_replaces_adds_and_creates_paths() {
    check(&[
        ("{_id: 1}", "{$set: {a: 1}}", "{_id: 1, a: 1}"),
        ("{_id: 1, a: 1}", "{$set: {a: 2}}", "{_id: 1, a: 2}"),
        ("{_id: 1, a: 1}", "{$set: {a: 'x'}}", "{_id: 1, a: 'x'}"),
        (
            "{_id: 1, a: 1, b: 2, c: 3}",
            "{$set: {b: {x: [1]}}}",
            "{_id: 1, a: 1, b: {x: [1]}, c: 3}",
        ),
        (
            "{_id: 1}",
            "{$set: {'a.b.c': 1}}",
            "{_id: 1, a: {b: {c: 1}}}",
        ),
        (
            "{_id: 1, a: {b: {c: 1, d: 2}, e: 3}, f: 4}",
            "{$set: {'a.b.c': 9, 'a.x': 7, f: 5}}",
            "{_id: 1, a: {b: {c: 9, d: 2}, e: 3, x: 7}, f: 5}",
        ),
        // New fields in the order of their names, numbers by value.
        (
            "{_id: 1}",
            "{$set: {b: 1, a: 2, '10': 3, '9': 4}}",
            "{_id: 1, '9': 4, '10': 3, a: 2, b: 1}",
        ),
        ("{_id: 1}", "{$set: {'a.0': 1}}", "{_id: 1, a: {'0': 1}}"),
        ("{_id: 1}", "{$set: {}}", "{_id: 1}"),
        ("{_id: 1}", "{$set: {'a.$id': 5}}", "{_id: 1, a: {$id: 5}}"),
        ("{_id: 1, a: null}", "{$set: {a: {}}}", "{_id: 1, a: {}}"),
        // Setting the same `_id` changes nothing.
        ("{_id: 1, a: 1}", "{$set: {_id: 1, a: 2}}", "{_id: 1, a: 2}"),
    ]);
}

#[test]
fn unset_removes() {
    check(&[
        (
            "{_id: 1, a: 1, b: 2}",
            "{$unset: {a: ''}}",
            "{_id: 1, b: 2}",
        ),
        (
            "{_id: 1, a: {b: 1}}",
            "{$unset: {'a.b': 1}}",
            "{_id: 1, a: {}}",
        ),
        ("{_id: 1}", "{$unset: {'a.b.c': 1}}", "{_id: 1}"),
        ("{_id: 1, a: 5}", "{$unset: {'a.b': 1}}", "{_id: 1, a: 5}"),
        (
            "{_id: 1, a: [1]}",
            "{$unset: {'a.b': 1}}",
            "{_id: 1, a: [1]}",
        ),
        (
            "{_id: 1, a: 1, b: 1, c: 1}",
            "{$unset: {a: 1, c: 1}, $set: {b: 2, d: 3}}",
            "{_id: 1, b: 2, d: 3}",
        ),
        // A path that is only taken away is not created.
        (
            "{_id: 1}",
            "{$unset: {'a.b': 1}, $set: {'a.c': 1}}",
            "{_id: 1, a: {c: 1}}",
        ),
    ]);
}

#[test]
fn inc_and_mul_keep_to_the_number_types() {
    check(&[
        ("{_id: 1, a: 1}", "{$inc: {a: 2}}", "{_id: 1, a: 3}"),
        ("{_id: 1}", "{$inc: {a: 2}}", "{_id: 1, a: 2}"),
        (
            "{_id: 1}",
            "{$inc: {'a.b': NumberLong(2)}}",
            "{_id: 1, a: {b: NumberLong(2)}}",
        ),
        (
            "{_id: 1, a: 1}",
            "{$inc: {a: NumberLong(2)}}",
            "{_id: 1, a: NumberLong(3)}",
        ),
        ("{_id: 1, a: 1}", "{$inc: {a: 0.5}}", "{_id: 1, a: 1.5}"),
        (
            "{_id: 1, a: NumberLong(1)}",
            "{$inc: {a: 0.5}}",
            "{_id: 1, a: 1.5}",
        ),
        (
            "{_id: 1, a: 2147483647}",
            "{$inc: {a: 1}}",
            "{_id: 1, a: NumberLong(2147483648)}",
        ),
        (
            "{_id: 1, a: NumberLong(2147483648)}",
            "{$inc: {a: -1}}",
            "{_id: 1, a: NumberLong(2147483647)}",
        ),
        ("{_id: 1, a: 3}", "{$mul: {a: 4}}", "{_id: 1, a: 12}"),
        (
            "{_id: 1, a: 65536}",
            "{$mul: {a: 65536}}",
            "{_id: 1, a: NumberLong(4294967296)}",
        ),
        ("{_id: 1}", "{$mul: {a: 4}}", "{_id: 1, a: 0}"),
        ("{_id: 1}", "{$mul: {a: -1.5}}", "{_id: 1, a: -0.0}"),
        (
            "{_id: 1}",
            "{$mul: {a: NumberLong(4)}}",
            "{_id: 1, a: NumberLong(0)}",
        ),
        ("{_id: 1, a: 3}", "{$mul: {a: 1.5}}", "{_id: 1, a: 4.5}"),
        (
            "{_id: 1, a: NumberDecimal('0.1')}",
            "{$inc: {a: 2}}",
            "{_id: 1, a: NumberDecimal('2.1')}",
        ),
        (
            "{_id: 1, a: 3}",
            "{$mul: {a: NumberDecimal('1.50')}}",
            "{_id: 1, a: NumberDecimal('4.50')}",
        ),
        (
            "{_id: 1}",
            "{$mul: {a: NumberDecimal('1.50')}}",
            "{_id: 1, a: NumberDecimal('0.00')}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: 'x'}",
            "{$inc: {a: 1}}",
            14,
            "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of \
             non-numeric type string",
        ),
        (
            "{_id: 1, a: {b: null}}",
            "{$mul: {'a.b': 1}}",
            14,
            "has the field 'b' of non-numeric type null",
        ),
        (
            "{_id: 1}",
            "{$inc: {a: 'x'}}",
            14,
            "Cannot increment with non-numeric argument: {a: \"x\"}",
        ),
        (
            "{_id: 1}",
            "{$mul: {a: {}}}",
            14,
            "Cannot multiply with non-numeric argument: {a: {}}",
        ),
        (
            "{_id: 1, a: NumberLong('9223372036854775807')}",
            "{$inc: {a: 1}}",
            2,
            "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) \
             for document {_id: 1}",
        ),
        (
            "{_id: 1, a: NumberLong('9223372036854775807')}",
            "{$mul: {a: 2}}",
            2,
            "$mul",
        ),
    ]);
}

#[test]
fn an_update_that_changes_no_bit_is_no_modification() {
    for (doc, update, modified) in [
        ("{_id: 1, a: 1}", "{$set: {a: 1}}", false),
        ("{_id: 1, a: 1}", "{$set: {a: 1.0}}", true),
        ("{_id: 1, a: 1}", "{$inc: {a: 0}}", false),
        ("{_id: 1, a: 1}", "{$inc: {a: NumberLong(0)}}", true),
        ("{_id: 1, a: 1}", "{$mul: {a: 1}}", false),
        ("{_id: 1, a: 1}", "{$max: {a: 1}}", false),
        ("{_id: 1, a: 1}", "{$min: {a: 2}}", false),
        ("{_id: 1, a: 1}", "{$unset: {b: 1}}", false),
        ("{_id: 1, a: {b: 1}}", "{$unset: {'a.c.d': 1}}", false),
        ("{_id: 1, a: [1]}", "{$addToSet: {a: 1.0}}", false),
        ("{_id: 1, a: [1]}", "{$pull: {a: 2}}", false),
        ("{_id: 1, a: []}", "{$pop: {a: 1}}", false),
        ("{_id: 1, a: [1]}", "{$push: {a: {$each: []}}}", false),
        ("{_id: 1, a: 1}", "{$setOnInsert: {a: 2, b: 3}}", false),
        ("{_id: 1, a: 1}", "{$rename: {b: 'c'}}", false),
        ("{_id: 1, a: 1}", "{$bit: {a: {or: 1}}}", false),
        ("{_id: 1}", "{$set: {}}", false),
    ] {
        let (_, is) = run(doc, update, &context()).unwrap();
        assert_eq!(is, modified, "{doc} {update}");
    }
}

#[test]
fn a_replacement_is_compared_as_it_was_given() {
    let keeping = ApplyContext {
        keeps_empty_timestamps: true,
        ..context()
    };
    for (doc, update, modified) in [
        ("{_id: 1, a: 1}", "{_id: 1, a: 1}", false),
        ("{_id: 1}", "{_id: 1}", false),
        ("{_id: 1, a: 1}", "{a: 1}", true),
        ("{_id: 1}", "{}", true),
        ("{_id: 1, a: 1}", "{a: 1, _id: 1}", true),
        ("{_id: 1, a: 1}", "{_id: 1.0, a: 1}", true),
        ("{_id: 1, a: 1, b: 1}", "{_id: 1, b: 1, a: 1}", true),
        ("{_id: 1, a: 1}", "{_id: 1, a: 1.0}", true),
        // The empty timestamp is filled in.
        (
            "{_id: 1, t: Timestamp(0, 0)}",
            "{_id: 1, t: Timestamp(0, 0)}",
            true,
        ),
    ] {
        let (result, is) = run(doc, update, &context()).unwrap();
        assert_eq!(is, modified, "{doc} {update}");
        assert_eq!(result.get("_id"), json(doc).get("_id"), "{doc} {update}");
    }
    let same = "{_id: 1, t: Timestamp(0, 0)}";
    assert!(!run(same, same, &keeping).unwrap().1);
}

#[test]
fn what_a_pipeline_makes_is_compared_with_the_document() {
    for (doc, pipeline, modified) in [
        ("{_id: 1, a: 1}", "[{$set: {a: 1}}]", false),
        ("{_id: 1, a: 1}", "[{$set: {a: {$add: ['$a', 0]}}}]", false),
        ("{_id: 1, a: 1}", "[{$unset: 'b'}]", false),
        ("{_id: 1, a: 1}", "[{$replaceWith: '$$ROOT'}]", false),
        ("{_id: 1, a: 1}", "[{$replaceWith: {_id: 1, a: 1}}]", false),
        ("{_id: 1, a: 1}", "[{$project: {a: 1}}]", false),
        ("{_id: 1, a: 1}", "[{$set: {b: 1}}, {$unset: 'b'}]", false),
        ("{_id: 1, a: 1}", "[{$replaceWith: {a: 1}}]", true),
        ("{_id: 1, a: 1}", "[{$project: {_id: 0, a: 1}}]", true),
        ("{_id: 1, a: 1}", "[{$replaceWith: {a: 1, _id: 1}}]", true),
        ("{_id: 1, a: 1}", "[{$set: {a: 1.0}}]", true),
    ] {
        let value = crate::testing::value(pipeline);
        let update = Update::parse_value(&value.as_value(), &[], &Environment::default()).unwrap();
        let doc = json(doc);
        let applied = update.apply(&doc, &context()).unwrap();
        assert_eq!(applied.modified, modified, "{doc:?} {pipeline}");
        assert_eq!(applied.doc.get("a").is_some(), doc.get("a").is_some());
        assert_eq!(applied.doc.get("_id"), doc.get("_id"));
    }
}

#[test]
fn min_and_max_compare_across_types() {
    check(&[
        ("{_id: 1, a: 5}", "{$min: {a: 3}}", "{_id: 1, a: 3}"),
        ("{_id: 1, a: 5}", "{$min: {a: 7}}", "{_id: 1, a: 5}"),
        ("{_id: 1, a: 5}", "{$max: {a: 7.5}}", "{_id: 1, a: 7.5}"),
        ("{_id: 1, a: 5}", "{$max: {a: 'x'}}", "{_id: 1, a: 'x'}"),
        ("{_id: 1, a: 5}", "{$min: {a: null}}", "{_id: 1, a: null}"),
        ("{_id: 1}", "{$max: {'a.b': 1}}", "{_id: 1, a: {b: 1}}"),
    ]);
}

#[test]
fn rename_moves_values() {
    check(&[
        (
            "{_id: 1, a: 1, b: 2}",
            "{$rename: {a: 'c'}}",
            "{_id: 1, b: 2, c: 1}",
        ),
        (
            "{_id: 1, a: 1, b: 2}",
            "{$rename: {a: 'b'}}",
            "{_id: 1, b: 1}",
        ),
        (
            "{_id: 1, a: {b: 1, c: 2}}",
            "{$rename: {'a.b': 'x.y'}}",
            "{_id: 1, a: {c: 2}, x: {y: 1}}",
        ),
        ("{_id: 1, a: 1}", "{$rename: {z: 'a'}}", "{_id: 1, a: 1}"),
        (
            "{_id: 1, a: [1]}",
            "{$rename: {'a.3': 'b'}}",
            "{_id: 1, a: [1]}",
        ),
        (
            "{_id: 1, a: 1, s: 1}",
            "{$rename: {z: 's.t'}}",
            "{_id: 1, a: 1, s: 1}",
        ),
        (
            "{_id: 1, a: 1}",
            "{$rename: {a: 'b'}, $set: {c: 1}}",
            "{_id: 1, b: 1, c: 1}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: 1, b: 2}",
            "{$rename: {a: 'b.c'}}",
            28,
            "Cannot create field 'c' in element {b: 2}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$rename: {'a.0': 'b'}}",
            2,
            "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field called 'a'",
        ),
        (
            "{_id: 1, a: 1}",
            "{$rename: {'a.b': 'c'}}",
            28,
            "cannot use the part (a of a.b) to traverse the element ({a: 1})",
        ),
        (
            "{_id: 1, a: [1], c: 2}",
            "{$rename: {'a.b': 'c'}}",
            28,
            "cannot use the part (a of a.b) to traverse the element ({a: [ 1 ]})",
        ),
        (
            "{_id: 1, a: [1], b: 1}",
            "{$rename: {b: 'a.0'}}",
            2,
            "The destination field cannot be an array element",
        ),
        ("{_id: 1}", "{$rename: {a: 1}}", 2, "must be a string: a: 1"),
        ("{_id: 1}", "{$rename: {a: 'a'}}", 2, "must differ"),
        (
            "{_id: 1}",
            "{$rename: {a: 'a.b'}}",
            2,
            "must not be on the same path",
        ),
        (
            "{_id: 1}",
            "{$rename: {'a.b': 'a'}}",
            2,
            "must not be on the same path",
        ),
        (
            "{_id: 1}",
            "{$rename: {'a.$': 'b'}}",
            2,
            "may not be dynamic",
        ),
        (
            "{_id: 1, a: 1}",
            "{$rename: {a: 'b'}, $set: {a: 1}}",
            40,
            "'a'",
        ),
        ("{_id: 1, a: 1}", "{$rename: {_id: 'b'}}", 66, "'_id'"),
    ]);
}

#[test]
fn current_date_and_bit() {
    check(&[
        (
            "{_id: 1}",
            "{$currentDate: {a: true}}",
            "{_id: 1, a: Date(1700000000000)}",
        ),
        (
            "{_id: 1, a: 5}",
            "{$currentDate: {a: {$type: 'date'}}}",
            "{_id: 1, a: Date(1700000000000)}",
        ),
        (
            "{_id: 1}",
            "{$currentDate: {'a.b': {$type: 'timestamp'}}}",
            "{_id: 1, a: {b: Timestamp(1700000000, 1)}}",
        ),
        (
            "{_id: 1, a: 13}",
            "{$bit: {a: {and: 10}}}",
            "{_id: 1, a: 8}",
        ),
        (
            "{_id: 1, a: 3}",
            "{$bit: {a: {or: NumberLong(4)}}}",
            "{_id: 1, a: NumberLong(7)}",
        ),
        (
            "{_id: 1, a: NumberLong(1)}",
            "{$bit: {a: {xor: 5}}}",
            "{_id: 1, a: NumberLong(4)}",
        ),
        ("{_id: 1}", "{$bit: {a: {or: 4}}}", "{_id: 1, a: 4}"),
        (
            "{_id: 1, a: 7}",
            "{$bit: {a: {and: 6, or: 8}}}",
            "{_id: 1, a: 14}",
        ),
        (
            "{_id: 1, a: -1}",
            "{$bit: {a: {and: -2}}}",
            "{_id: 1, a: -2}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1}",
            "{$currentDate: {a: 'x'}}",
            2,
            "string is not valid type for $currentDate",
        ),
        (
            "{_id: 1}",
            "{$currentDate: {a: {$type: 'x'}}}",
            2,
            "'date' or 'timestamp'",
        ),
        (
            "{_id: 1}",
            "{$currentDate: {a: {x: 'date'}}}",
            2,
            "Unrecognized $currentDate option: x",
        ),
        (
            "{_id: 1, a: 'x'}",
            "{$bit: {a: {or: 1}}}",
            2,
            "has the field a of non-integer type string",
        ),
        (
            "{_id: 1}",
            "{$bit: {a: {foo: 1}}}",
            2,
            "unknown operator: {foo: 1}",
        ),
        (
            "{_id: 1}",
            "{$bit: {a: {or: 1.5}}}",
            2,
            "a 'double' is not supported here",
        ),
        (
            "{_id: 1}",
            "{$bit: {a: {}}}",
            2,
            "at least one bitwise operation",
        ),
        ("{_id: 1}", "{$bit: {a: 1}}", 2, "not compatible with a int"),
    ]);
}
