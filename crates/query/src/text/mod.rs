//! Text search, for `$text` and text indexes.
//!
//! [`Language`] knows the stop words and stems of a language, [`tokenizer`](self) cuts text into
//! words, [`TextSpec`] says which fields of a document are searched and scores their terms,
//! [`TextQuery`] is the argument of `$text`. All of it follows MongoDB's text indexes of
//! version 3; [`TextVersion`] lists the differences of older ones.

mod english;
mod language;
mod query;
mod spec;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use language::Language;
pub use query::{TextMatch, TextQuery};
pub use spec::{TextSpec, TextVersion, WEIGHT_LIMIT, WILDCARD};
