//! Pipelines as tables: documents, stages, result.

#![allow(clippy::unwrap_used)]

mod front;
mod group;
mod optimize;
mod reshape;
mod several;
mod shapes;
mod spilling;
mod stages;
mod update;
mod windows;

use super::*;
use crate::testing::{json, value};
use frond_bson::{DocBuf, OwnedValue};

const NOW: i64 = 1_700_000_000_000;

fn docs(text: &str) -> Vec<DocBuf> {
    match value(text) {
        OwnedValue::Array(array) => (array.values())
            .map(|v| v.as_doc().unwrap().to_owned())
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn array(text: &str) -> DocBuf {
    match value(text) {
        OwnedValue::Array(array) => array,
        other => panic!("{other:?}"),
    }
}

fn parse(stages: &str) -> Result<Pipeline> {
    Pipeline::parse(
        &array(stages),
        &Environment {
            variables: None,
            now_ms: NOW,
            ..Environment::default()
        },
    )
}

fn collect(mut source: Source<Error>) -> Result<Vec<DocBuf>> {
    let mut docs = Vec::new();
    while let Some(doc) = source.next()? {
        Doc::validate(doc.as_bytes()).unwrap();
        docs.push(doc);
    }
    assert!(source.next()?.is_none(), "the end stays the end");
    Ok(docs)
}

fn run_docs(input: Vec<DocBuf>, stages: &str) -> Result<Vec<DocBuf>> {
    let pipeline = parse(stages)?;
    let context = ExecContext::new(NOW);
    collect(pipeline.execute(Box::new(Docs::new(input)), &context)?)
}

fn run(input: &str, stages: &str) -> Result<Vec<DocBuf>> {
    run_docs(docs(input), stages)
}

/// Each case is stages and the expected documents.
fn check(input: &str, cases: &[(&str, &str)]) {
    for (stages, expected) in cases {
        let result = run(input, stages).unwrap_or_else(|error| panic!("{stages}: {error}"));
        assert_eq!(result, docs(expected), "{stages}");
    }
}

/// Each case is stages, code, and a part of the message.
fn check_errors(input: &str, cases: &[(&str, i32, &str)]) {
    for (stages, code, message) in cases {
        match run(input, stages) {
            Ok(result) => panic!("{stages} gave {result:?}"),
            Err(error) => {
                assert_eq!(error.code().code(), *code, "{stages}: {error}");
                assert!(
                    error.message().contains(message),
                    "{stages}: {error} lacks {message}"
                );
            }
        }
    }
}
