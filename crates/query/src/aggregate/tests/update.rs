//! Updates with a pipeline.

use super::*;
use crate::update::{ApplyContext, Update};

fn apply(doc: &str, stages: &str) -> Result<(DocBuf, bool)> {
    let variables = json("{v: 7}");
    let update = Update::parse_value(
        &value(stages).as_value(),
        &[],
        &Environment {
            variables: Some(&variables),
            ..Environment::default()
        },
    )?;
    assert!(update.is_pipeline() && update.paths_touched().affects("any"));
    let doc = json(doc);
    let applied = update.apply(&doc, &ApplyContext::at(NOW))?;
    Ok((applied.doc, applied.modified))
}

#[test]
fn pipelines_update_documents() {
    for (doc, stages, expected) in [
        (
            "{_id: 1, a: 1, b: 2}",
            "[{$set: {s: {$add: ['$a', '$b', '$$v']}}}, {$unset: 'a'}]",
            "{_id: 1, b: 2, s: 10}",
        ),
        (
            "{_id: 1, a: 1}",
            "[{$set: {now: '$$NOW'}}]",
            "{_id: 1, a: 1, now: Date(1700000000000)}",
        ),
        (
            "{_id: 1, a: {x: 1}}",
            "[{$replaceWith: '$a'}]",
            "{_id: 1, x: 1}",
        ),
        (
            "{_id: 1, a: 1}",
            "[{$project: {_id: 0, b: '$a'}}]",
            "{_id: 1, b: 1}",
        ),
        ("{_id: 1, a: 1}", "[{$set: {a: 1}}]", "{_id: 1, a: 1}"),
        ("{_id: 1, a: 1}", "[]", "{_id: 1, a: 1}"),
    ] {
        let (result, modified) = apply(doc, stages).unwrap_or_else(|e| panic!("{stages}: {e}"));
        assert_eq!(result, json(expected), "{stages}");
        assert_eq!(modified, result != json(doc), "{stages}");
    }
    for (doc, stages, code) in [
        ("{_id: 1}", "[{$match: {}}]", 72),
        ("{_id: 1}", "[{$group: {_id: null}}]", 72),
        ("{_id: 1}", "[{$foo: {}}]", 40324),
        ("{_id: 1}", "[{$set: {_id: 2}}]", 66),
        ("{_id: 1}", "[{$set: {a: '$$none'}}]", 17276),
        ("{_id: 1}", "[{$set: {a: {$divide: [1, 0]}}}]", 2),
        ("{_id: 1}", "[1]", 14),
    ] {
        assert_eq!(
            apply(doc, stages).unwrap_err().code().code(),
            code,
            "{stages}"
        );
    }
    let error = Update::parse_value(
        &value("[]").as_value(),
        &[&json("{e: 1}")],
        &Environment::default(),
    );
    assert_eq!(error.unwrap_err().code().code(), 9);
    let error = Update::parse_value(&Value::Int32(1), &[], &Environment::default());
    assert_eq!(error.unwrap_err().code().code(), 9);
}
