//! Functions of JavaScript in filters, expressions and accumulators.
//!
//! This crate knows no engine. Whoever parses a query lends it a [`ScriptHost`], as it lends the time: the parser hands
//! each function to the host, and keeps the [`Script`] that it gets.

use frond_bson::{Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, ErrorCode, Result};
use std::fmt::Debug;
use std::sync::Arc;

/// The code of a function, and what it can see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptSource {
    /// A function, or an expression, or the body of a function.
    pub code: String,
    /// Variables that the code sees.
    pub scope: Option<DocBuf>,
    /// Whether it sees the functions that are stored in the database, in `system.js`.
    pub stored_functions: bool,
}

/// Makes scripts of functions.
pub trait ScriptHost: Debug + Send + Sync {
    /// A function that the query can call. It is compiled here once, so that an error of its syntax is reported before any
    /// document is read.
    ///
    /// # Errors
    /// `JSInterpreterFailure` (139) for code that cannot be compiled; others if JavaScript is not available.
    fn script(&self, source: ScriptSource) -> Result<Arc<dyn Script>>;
}

/// A function of JavaScript.
pub trait Script: Debug + Send + Sync {
    /// Calls the function with a document as `this` and as `obj`. True if it returns something that JavaScript holds for true.
    ///
    /// # Errors
    /// `JSInterpreterFailure` (139) if the function throws, and those of limits.
    fn test(&self, doc: &Doc) -> Result<bool>;

    /// Calls the function with the elements of an array.
    ///
    /// # Errors
    /// As [`Script::test`]; 17260 and 17279 if the result is too large or too deep.
    fn call(&self, arguments: &Doc) -> Result<OwnedValue>;

    /// Calls the function for each element of `batch`, an array of arrays, with the former result and the elements of
    /// that array. Returns the last result.
    ///
    /// # Errors
    /// As [`Script::call`].
    fn fold(&self, state: Value<'_>, batch: &Doc) -> Result<OwnedValue>;

    /// Calls the function with a document as `this`, and hands on what it passes to `emit`: a key and a value.
    ///
    /// # Errors
    /// As [`Script::call`], and those of `emit`.
    fn map(
        &self,
        doc: &Doc,
        emit: &mut dyn FnMut(Value<'_>, Value<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Calls the function as [`Script::map`] does, for each of several documents.
    ///
    /// # Errors
    /// As [`Script::map`].
    fn map_all(
        &self,
        docs: &[&Doc],
        emit: &mut dyn FnMut(Value<'_>, Value<'_>) -> Result<()>,
    ) -> Result<()> {
        docs.iter().try_for_each(|doc| self.map(doc, emit))
    }
}

/// The documents of `system.js`: names, and functions or other values.
pub type StoredFunctions = Vec<(String, OwnedValue)>;

/// An engine of JavaScript.
pub trait ScriptEngine: Debug + Send + Sync {
    /// A function, compiled. `stored` are the functions that it sees, if it sees any.
    ///
    /// # Errors
    /// `JSInterpreterFailure` (139) for code that cannot be compiled.
    fn script(
        &self,
        source: ScriptSource,
        stored: Option<Arc<StoredFunctions>>,
    ) -> Result<Arc<dyn Script>>;

    /// Ends what the functions of a request have left on this thread: what one request does, no other one sees.
    fn end_request(&self);
}

/// The code of the error of a host that has no engine.
pub const NO_ENGINE: ErrorCode = ErrorCode::Location(31264);

/// The host of places where no function may stand.
#[derive(Debug)]
pub struct NoScripts;

impl ScriptHost for NoScripts {
    fn script(&self, _: ScriptSource) -> Result<Arc<dyn Script>> {
        Err(Error::new(
            ErrorCode::QueryFeatureNotAllowed,
            "server-side JavaScript is not allowed in this context",
        ))
    }
}

/// The code in a value: a string, or code without a scope. `None` for other types.
pub(crate) fn code_of(value: &Value<'_>) -> Option<String> {
    match value {
        Value::String(code) | Value::JavaScript(code) => Some((*code).to_owned()),
        _ => None,
    }
}
