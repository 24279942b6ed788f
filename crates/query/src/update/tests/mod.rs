//! Updates as tables: document, update, result.

#![allow(clippy::unwrap_used)]

mod arrays;
mod documents;
mod fields;
mod prefixed;

use super::*;
use crate::testing::json;

fn context() -> ApplyContext {
    ApplyContext::at(1_700_000_000_000)
}

fn run(doc: &str, update: &str, context: &ApplyContext) -> Result<(DocBuf, bool)> {
    let doc = json(doc);
    let update = Update::parse(&json(update), &[])?;
    let applied = update.apply(&doc, context)?;
    let is_written_again = update.is_replacement() && applied.modified;
    assert!(
        is_written_again || applied.modified == (applied.doc != doc),
        "{doc:?}"
    );
    Doc::validate(applied.doc.as_bytes()).unwrap();
    Ok((applied.doc, applied.modified))
}

/// Each case is document, update, expected document.
fn check(cases: &[(&str, &str, &str)]) {
    for (doc, update, expected) in cases {
        let (result, _) =
            run(doc, update, &context()).unwrap_or_else(|error| panic!("{doc} {update}: {error}"));
        assert_eq!(result, json(expected), "{doc} {update}");
    }
}

/// Each case is document, update, code, and a part of the message.
fn check_errors(cases: &[(&str, &str, i32, &str)]) {
    for (doc, update, code, message) in cases {
        let error = match run(doc, update, &context()) {
            Err(error) => error,
            Ok((result, _)) => panic!("{doc} {update} gave {result:?}"),
        };
        assert_eq!(error.code().code(), *code, "{doc} {update}: {error}");
        assert!(
            error.message().contains(message),
            "{doc} {update}: {error} lacks {message}"
        );
    }
}
