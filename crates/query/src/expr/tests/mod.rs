//! Expressions as tables: expression, result.

#![allow(clippy::unwrap_used)]

mod arrays;
mod dates;
mod language;
mod not_utf8;
mod numbers;
mod random;
mod strings;
mod types;

use super::*;
use crate::testing::{json, value};

const NOW: i64 = 1_700_000_000_000;

/// Evaluates over a document; missing is shown as `<missing>`.
fn eval(doc: &str, expression: &str) -> Result<String> {
    let doc = json(doc);
    let expression = value(expression);
    let expr = Expr::parse(&expression.as_value(), &Environment::default())?;
    Ok(match expr.eval_owned(&doc, NOW)? {
        Some(value) => canonical(&value.as_value()),
        None => "<missing>".to_owned(),
    })
}

/// Values compare with their types: canonical extended JSON.
fn canonical(value: &Value<'_>) -> String {
    frond_bson::extjson::to_canonical(&frond_bson::doc! {"v": *value})
}

/// Each case is expression and expected value; `<missing>` where nothing comes out.
fn check(doc: &str, cases: &[(&str, &str)]) {
    for (expression, expected) in cases {
        let expected = match *expected {
            "<missing>" => "<missing>".to_owned(),
            text => canonical(&value(text).as_value()),
        };
        match eval(doc, expression) {
            Ok(result) => assert_eq!(result, expected, "{expression}"),
            Err(error) => panic!("{expression}: {error}"),
        }
    }
}

/// Each case is expression, code, and a part of the message.
fn check_errors(doc: &str, cases: &[(&str, i32, &str)]) {
    for (expression, code, message) in cases {
        match eval(doc, expression) {
            Ok(result) => panic!("{expression} gave {result}"),
            Err(error) => {
                assert_eq!(error.code().code(), *code, "{expression}: {error}");
                assert!(
                    error.message().contains(message),
                    "{expression}: {error} lacks {message}"
                );
            }
        }
    }
}
