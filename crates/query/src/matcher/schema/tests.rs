//! Tables of schemas: what passes, what is wrong with the rest, and schemas that are refused.

#![allow(clippy::unwrap_used)]

use frond_bson::Value;

use crate::environment::Environment;
use crate::matcher::{Filter, explain_failure};
use crate::testing::{json, show};

fn filter(schema: &str) -> String {
    format!("{{$jsonSchema: {schema}}}")
}

/// Schemas, each with documents that pass and documents that do not.
fn check(cases: &[(&str, &[&str], &[&str])]) {
    let environment = Environment::default();
    for (schema, passing, failing) in cases {
        let text = json(&filter(schema));
        let parsed = Filter::parse_with(&text, &environment)
            .unwrap_or_else(|error| panic!("{schema}: {error}"));
        for (documents, expected) in [(passing, true), (failing, false)] {
            for document in *documents {
                let doc = json(document);
                assert_eq!(
                    parsed.try_matches(&doc).unwrap(),
                    expected,
                    "{schema} on {document}"
                );
                let found = explain_failure(&text, &doc, &environment).unwrap();
                let rules = found
                    .path("details.schemaRulesNotSatisfied")
                    .and_then(|rules| rules.as_array().map(|rules| rules.count()));
                if !expected {
                    assert_ne!(rules, Some(0), "{schema} on {document}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn scalars() {
    check(&[
        ("{}", &["{}", "{a: 1}"], &[]),
        (
            "{properties: {a: {bsonType: 'int'}}}",
            &["{}", "{a: 1}"],
            &["{a: 1.5}", "{a: 'x'}", "{a: [1]}"],
        ),
        (
            "{properties: {a: {bsonType: ['int', 'string']}}}",
            &["{a: 1}", "{a: 'x'}"],
            &["{a: null}"],
        ),
        (
            "{properties: {a: {bsonType: 'number'}}}",
            &["{a: 1}", "{a: 1.5}", "{a: NumberDecimal('1')}"],
            &["{a: '1'}"],
        ),
        (
            "{properties: {a: {type: 'boolean'}}}",
            &["{a: true}"],
            &["{a: 1}"],
        ),
        (
            "{properties: {a: {type: ['null', 'object']}}}",
            &["{a: null}", "{a: {}}"],
            &["{a: []}"],
        ),
        (
            "{properties: {a: {minimum: 5, maximum: 10}}}",
            &["{}", "{a: 5}", "{a: 10.0}", "{a: 'x'}", "{a: [1]}"],
            &["{a: 4}", "{a: 10.5}", "{a: NaN}"],
        ),
        (
            "{properties: {a: {minimum: 5, exclusiveMinimum: true}}}",
            &["{a: 6}"],
            &["{a: 5}"],
        ),
        (
            "{properties: {a: {maximum: 5, exclusiveMaximum: true}}}",
            &["{a: 4}"],
            &["{a: 5}"],
        ),
        (
            "{properties: {a: {multipleOf: 2.5}}}",
            &["{a: 5}", "{a: 0}", "{a: -2.5}", "{a: 'x'}"],
            &["{a: 4}", "{a: NaN}"],
        ),
        (
            "{properties: {a: {minLength: 2, maxLength: 3}}}",
            &["{a: 'ab'}", "{a: 'äöü'}", "{a: 1}"],
            &["{a: 'a'}", "{a: 'abcd'}"],
        ),
        (
            "{properties: {a: {pattern: '^x'}}}",
            &["{a: 'xy'}", "{a: 1}"],
            &["{a: 'yx'}"],
        ),
        (
            "{properties: {a: {enum: [1, 'x', {b: 1, c: 2}, [1, 2]]}}}",
            &["{a: 1.0}", "{a: 'x'}", "{a: {c: 2, b: 1}}", "{a: [1, 2]}"],
            &["{a: 2}", "{a: [2, 1]}", "{a: [1]}"],
        ),
        ("{enum: [{a: 1, b: 2}]}", &["{b: 2, a: 1}"], &["{a: 1}"]),
        ("{enum: [1]}", &[], &["{}"]),
        (
            "{bsonType: 'object', title: 't', description: 'd'}",
            &["{}"],
            &[],
        ),
        ("{bsonType: 'array'}", &[], &["{}"]),
        ("{minimum: 5, minLength: 1, minItems: 1}", &["{}"], &[]),
    ]);
}

#[test]
fn documents() {
    check(&[
        (
            "{required: ['a', 'b']}",
            &["{a: 1, b: null}"],
            &["{a: 1}", "{}"],
        ),
        (
            "{properties: {a: {properties: {b: {type: 'string'}}, required: ['b']}}}",
            &["{}", "{a: {b: 'x'}}", "{a: 1}"],
            &["{a: {}}", "{a: {b: 1}}"],
        ),
        (
            "{properties: {a: {type: 'number'}}, additionalProperties: false}",
            &["{a: 1}", "{}"],
            &["{a: 1, b: 2}"],
        ),
        (
            "{properties: {a: {}}, additionalProperties: {type: 'string'}}",
            &["{a: 1, b: 'x'}"],
            &["{a: 1, b: 2}"],
        ),
        (
            "{patternProperties: {'^n': {type: 'number'}}, additionalProperties: false}",
            &["{n1: 1}"],
            &["{n1: 'x'}", "{x: 1}"],
        ),
        (
            "{properties: {n1: {minimum: 5}}, patternProperties: {'^n': {type: 'number'}}}",
            &["{n1: 6, x: 'y'}"],
            &["{n1: 4}", "{n2: 'x'}"],
        ),
        (
            "{minProperties: 1, maxProperties: 2}",
            &["{a: 1}", "{a: 1, b: 1}"],
            &["{}", "{a: 1, b: 1, c: 1}"],
        ),
        (
            "{dependencies: {a: ['b', 'c'], title: 'why'}}",
            &["{}", "{b: 1}", "{a: 1, b: 1, c: 1}"],
            &["{a: 1, b: 1}"],
        ),
        (
            "{dependencies: {a: {properties: {b: {type: 'number'}}, required: ['b']}}}",
            &["{b: 'x'}", "{a: 1, b: 1}"],
            &["{a: 1}", "{a: 1, b: 'x'}"],
        ),
        (
            "{properties: {'a.b': {type: 'number'}}}",
            &["{a: {b: 1}}", "{}"],
            &["{a: {b: 'x'}}"],
        ),
    ]);
}

#[test]
fn arrays() {
    check(&[
        (
            "{properties: {a: {minItems: 1, maxItems: 2}}}",
            &["{a: [1]}", "{a: 1}"],
            &["{a: []}", "{a: [1, 2, 3]}"],
        ),
        (
            "{properties: {a: {uniqueItems: true}}}",
            &["{a: [1, 2, '1']}", "{a: [{b: 1}, {b: 2}]}"],
            &["{a: [1, 2, 1.0]}", "{a: [{b: 1, c: 2}, {c: 2, b: 1}]}"],
        ),
        (
            "{properties: {a: {uniqueItems: false}}}",
            &["{a: [1, 1]}"],
            &[],
        ),
        (
            "{properties: {a: {items: {type: 'number'}}}}",
            &["{a: [1, 2]}", "{a: []}", "{a: 'x'}"],
            &["{a: [1, 'x']}"],
        ),
        (
            "{properties: {a: {items: [{type: 'number'}, {type: 'string'}]}}}",
            &["{a: [1, 'x', null]}", "{a: [1]}"],
            &["{a: ['x']}", "{a: [1, 2]}"],
        ),
        (
            "{properties: {a: {items: [{type: 'number'}], additionalItems: false}}}",
            &["{a: [1]}"],
            &["{a: [1, 2]}"],
        ),
        (
            "{properties: {a: {items: [{}], additionalItems: {type: 'string'}}}}",
            &["{a: [1, 'x']}"],
            &["{a: [1, 2]}"],
        ),
        (
            "{properties: {a: {additionalItems: false}}}",
            &["{a: [1, 2]}"],
            &[],
        ),
    ]);
}

#[test]
fn logic() {
    check(&[
        (
            "{allOf: [{required: ['a']}, {required: ['b']}]}",
            &["{a: 1, b: 1}"],
            &["{a: 1}"],
        ),
        (
            "{anyOf: [{required: ['a']}, {required: ['b']}]}",
            &["{a: 1}", "{b: 1}"],
            &["{}"],
        ),
        (
            "{oneOf: [{required: ['a']}, {required: ['b']}]}",
            &["{a: 1}"],
            &["{}", "{a: 1, b: 1}"],
        ),
        ("{not: {required: ['a']}}", &["{}"], &["{a: 1}"]),
        (
            "{properties: {a: {not: {type: 'string'}}}}",
            &["{}", "{a: 1}"],
            &["{a: 'x'}"],
        ),
    ]);
    let environment = Environment::default();
    let inside = json("{a: {$elemMatch: {$jsonSchema: {required: ['b']}}}}");
    let parsed = Filter::parse_with(&inside, &environment).unwrap();
    assert!(parsed.matches(&json("{a: [1, {b: 1}]}")));
    assert!(!parsed.matches(&json("{a: [{c: 1}]}")));
}

#[test]
fn failures_are_explained() {
    for (schema, doc, expected) in [
        (
            "{required: ['c', 'a', 'b']}",
            "{b: 1}",
            "[{operatorName: 'required', specifiedAs: {required: ['c', 'a', 'b']}, \
              missingProperties: ['a', 'c']}]",
        ),
        (
            "{properties: {a: {bsonType: ['int', 'long'], title: 't', description: 'must be whole'}}}",
            "{a: 1.5}",
            "[{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', \
              title: 't', description: 'must be whole', details: [{operatorName: 'bsonType', \
              specifiedAs: {bsonType: ['int', 'long']}, reason: 'type did not match', \
              consideredValue: 1.5, consideredType: 'double'}]}]}]",
        ),
        (
            "{properties: {a: {minimum: 5, exclusiveMinimum: true}}}",
            "{a: 5}",
            "[{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', details: [\
              {operatorName: 'minimum', specifiedAs: {minimum: 5, exclusiveMinimum: true}, \
              reason: 'comparison failed', consideredValue: 5}]}]}]",
        ),
        (
            "{properties: {a: {minItems: 2, items: {type: 'string'}}}}",
            "{a: [1]}",
            "[{operatorName: 'properties', propertiesNotSatisfied: [{propertyName: 'a', details: [\
              {operatorName: 'minItems', specifiedAs: {minItems: 2}, \
              reason: 'array did not match specified length', consideredValue: [1], numberOfItems: 1}, \
              {operatorName: 'items', reason: 'At least one item did not match the sub-schema', \
              itemIndex: 0, details: [{operatorName: 'type', specifiedAs: {type: 'string'}, \
              reason: 'type did not match', consideredValue: 1, consideredType: 'int'}]}]}]}]",
        ),
        (
            "{properties: {a: {}}, additionalProperties: false}",
            "{a: 1, b: 1, c: 1}",
            "[{operatorName: 'additionalProperties', specifiedAs: {additionalProperties: false}, \
              additionalProperties: ['b', 'c']}]",
        ),
        (
            "{patternProperties: {'^n': {type: 'number'}}}",
            "{n: 'x'}",
            "[{operatorName: 'patternProperties', details: [{propertyName: 'n', regexMatched: '^n', \
              details: [{operatorName: 'type', specifiedAs: {type: 'number'}, \
              reason: 'type did not match', consideredValue: 'x', consideredType: 'string'}]}]}]",
        ),
        (
            "{dependencies: {a: ['b']}}",
            "{a: 1}",
            "[{operatorName: 'dependencies', failingDependencies: [{conditionalProperty: 'a', \
              missingProperties: ['b']}]}]",
        ),
        (
            "{anyOf: [{required: ['a']}, {required: ['b']}]}",
            "{}",
            "[{operatorName: 'anyOf', schemasNotSatisfied: [\
              {index: 0, details: [{operatorName: 'required', specifiedAs: {required: ['a']}, \
              missingProperties: ['a']}]}, \
              {index: 1, details: [{operatorName: 'required', specifiedAs: {required: ['b']}, \
              missingProperties: ['b']}]}]}]",
        ),
        (
            "{oneOf: [{required: ['a']}, {minProperties: 1}]}",
            "{a: 1}",
            "[{operatorName: 'oneOf', reason: 'more than one subschema matched', \
              matchingSchemaIndexes: [0, 1]}]",
        ),
        (
            "{not: {required: ['a']}}",
            "{a: 1}",
            "[{operatorName: 'not', reason: 'child expression matched'}]",
        ),
    ] {
        let environment = Environment::default();
        let found = explain_failure(&json(&filter(schema)), &json(doc), &environment).unwrap();
        let wanted = json(&format!(
            "{{operatorName: '$jsonSchema', schemaRulesNotSatisfied: {expected}}}"
        ));
        let found = found.get("details").map(|details| show(&details));
        assert_eq!(
            found,
            Some(show(&Value::Document(&wanted))),
            "{schema} on {doc}"
        );
    }
}

#[test]
fn wrong_schemas_are_refused() {
    for (schema, code, message) in [
        ("1", 14, "$jsonSchema must be an object"),
        ("{foo: 1}", 9, "Unknown $jsonSchema keyword: foo"),
        (
            "{$ref: '#'}",
            9,
            "$jsonSchema keyword '$ref' is not currently supported",
        ),
        (
            "{default: 1}",
            9,
            "$jsonSchema keyword 'default' is not currently supported",
        ),
        (
            "{encrypt: {}}",
            238,
            "The $jsonSchema keyword 'encrypt' is not supported by this server",
        ),
        (
            "{title: 1, title: 2}",
            9,
            "Duplicate $jsonSchema keyword: title",
        ),
        (
            "{title: 1}",
            14,
            "$jsonSchema keyword 'title' must be of type string",
        ),
        (
            "{type: 'object', bsonType: 'object'}",
            9,
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        ),
        (
            "{type: 'integer'}",
            9,
            "$jsonSchema type 'integer' is not currently supported.",
        ),
        ("{type: 'int'}", 2, "Unknown type name alias: int"),
        ("{bsonType: 'foo'}", 2, "Unknown type name alias: foo"),
        (
            "{bsonType: 1}",
            14,
            "$jsonSchema keyword 'bsonType' must be either a string or an array of strings",
        ),
        (
            "{bsonType: ['int', 'int']}",
            9,
            "$jsonSchema keyword 'bsonType' has duplicate value: int",
        ),
        (
            "{type: []}",
            9,
            "$jsonSchema keyword 'type' must name at least one type",
        ),
        (
            "{minimum: 'x'}",
            14,
            "$jsonSchema keyword 'minimum' must be a number",
        ),
        (
            "{exclusiveMinimum: true}",
            9,
            "$jsonSchema keyword 'minimum' must be a present if exclusiveMinimum is present",
        ),
        (
            "{maximum: 1, exclusiveMaximum: 1}",
            14,
            "$jsonSchema keyword 'exclusiveMaximum' must be a boolean",
        ),
        (
            "{multipleOf: 0}",
            9,
            "$jsonSchema keyword 'multipleOf' must have a positive value",
        ),
        (
            "{minLength: -1}",
            9,
            "Expected a non-negative number in: minLength: -1",
        ),
        (
            "{maxItems: 'x'}",
            9,
            "Expected a number in: maxItems: \"x\"",
        ),
        (
            "{pattern: 1}",
            14,
            "$jsonSchema keyword 'pattern' must be a string",
        ),
        (
            "{required: []}",
            9,
            "$jsonSchema keyword 'required' cannot be an empty array",
        ),
        (
            "{required: 'a'}",
            14,
            "$jsonSchema keyword 'required' must be an array, but found an element of type string",
        ),
        (
            "{required: ['a', 'a']}",
            9,
            "$jsonSchema keyword 'required' array cannot contain duplicate values",
        ),
        (
            "{properties: 1}",
            14,
            "$jsonSchema keyword 'properties' must be an object",
        ),
        (
            "{properties: {a: 1}}",
            14,
            "Nested schema for $jsonSchema property 'a' must be an object",
        ),
        (
            "{additionalProperties: 1}",
            14,
            "$jsonSchema keyword 'additionalProperties' must be an object or a boolean",
        ),
        (
            "{dependencies: {a: []}}",
            9,
            "property 'a' in $jsonSchema keyword 'dependencies' cannot be an empty array",
        ),
        (
            "{allOf: []}",
            2,
            "$jsonSchema keyword 'allOf' must be a non-empty array",
        ),
        (
            "{not: 1}",
            14,
            "$jsonSchema keyword 'not' must be an object, but found an element of type int",
        ),
        (
            "{enum: []}",
            9,
            "$jsonSchema keyword 'enum' cannot be an empty array",
        ),
        (
            "{enum: [1, 1.0]}",
            9,
            "$jsonSchema keyword 'enum' array cannot contain duplicate values.",
        ),
        (
            "{items: 1}",
            14,
            "$jsonSchema keyword 'items' must be an array or an object, not int",
        ),
        (
            "{uniqueItems: 1}",
            14,
            "$jsonSchema keyword 'uniqueItems' must be a boolean",
        ),
    ] {
        let error = Filter::parse_with(&json(&filter(schema)), &Environment::default())
            .err()
            .unwrap_or_else(|| panic!("{schema} parsed"));
        assert_eq!(
            (error.code().code(), error.message()),
            (code, message),
            "{schema}"
        );
    }
    let elsewhere = Filter::parse(&json("{$jsonSchema: {}}")).unwrap_err();
    assert_eq!(elsewhere.code().code(), 224);
}
