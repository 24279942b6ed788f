//! Updates of `applyOps`: a whole document, update operators, or a `diff` (`$v: 2`).

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_oplog::diff;
use frond_store::{Durability, FindRequest, InsertOptions, Namespace, UpdateRequest};

use crate::commands::crud::{insert, update};
use crate::context::Context;

/// An update of one document.
pub(super) struct Entry<'a> {
    pub ns: &'a Namespace,
    pub filter: &'a Doc,
    /// The field `o` of the entry.
    pub object: &'a Doc,
    /// A document that does not exist is inserted.
    pub upsert: bool,
    /// The document is not validated.
    pub bypass_validation: bool,
}

/// An update of the document with an `_id`, which stores timestamps as they are.
pub(super) fn request<'a>(filter: &'a Doc, update: Value<'a>) -> UpdateRequest<'a> {
    UpdateRequest {
        keep_empty_timestamps: true,
        ..UpdateRequest::new(filter, update)
    }
}

impl Entry<'_> {
    /// Applies it. False if there is no such document.
    pub fn apply(&self, cx: &Context<'_>) -> Result<bool> {
        let version = self.object.get("$v").map(|version| version.as_f64());
        match (version, self.object.get("diff")) {
            (Some(Some(2.0)), Some(Value::Document(diff))) => self.apply_diff(cx, diff),
            (Some(Some(1.0)), _) => {
                let mut operators = DocBuf::new();
                for (name, value) in self.object.iter().filter(|(name, _)| *name != "$v") {
                    operators.push(name, value);
                }
                self.update(cx, &operators)
            }
            (None, _) => self.update(cx, self.object),
            _ => Err(Error::location(
                40682,
                "Unrecognized value for '$v' (Update Semantics) field: expected 1 or 2 with a 'diff'",
            )),
        }
    }

    /// A replacement or operators.
    fn update(&self, cx: &Context<'_>, how: &Doc) -> Result<bool> {
        let request = UpdateRequest {
            upsert: self.upsert,
            bypass_validation: self.bypass_validation,
            ..request(self.filter, Value::Document(how))
        };
        let done = update::update(cx, self.ns, &request, None)?;
        cx.server.metrics.documents_updated.add(done.modified);
        Ok(done.n > 0)
    }

    /// Applies a diff to the document as it is, and stores the result if the document has not changed meanwhile.
    fn apply_diff(&self, cx: &Context<'_>, changes: &Doc) -> Result<bool> {
        loop {
            cx.limits.check()?;
            let found = FindRequest {
                filter: Some(self.filter),
                limit: Some(1),
                ..FindRequest::default()
            };
            let old = cx.store().find(self.ns, &found, &cx.limits)?.next()?;
            let is_done = match &old {
                Some(old) => {
                    let new = diff::apply(changes, old)?;
                    new == *old || self.replace(cx, old, &new)?
                }
                None if !self.upsert => return Ok(false),
                None => self.insert(cx, &diff::apply(changes, self.filter)?)?,
            };
            if is_done {
                return Ok(true);
            }
        }
    }

    /// Changes a document that still is the old one. A pipeline, so that the change has the entry of an update, not that of a
    /// replacement.
    fn replace(&self, cx: &Context<'_>, old: &Doc, new: &Doc) -> Result<bool> {
        let mut filter = self.filter.to_owned();
        let is_same = doc! {"$and": [
            {"$eq": ["$$ROOT", {"$literal": old}]},
            {"$eq": [{"$bsonSize": "$$ROOT"}, i32::try_from(old.len_bytes()).unwrap_or(0)]},
        ]};
        filter.push("$expr", &is_same);
        let stages = doc! {"u": [{"$replaceWith": {"$literal": new}}]};
        let request = UpdateRequest {
            bypass_validation: self.bypass_validation,
            ..request(&filter, stages.get("u").unwrap_or(Value::Null))
        };
        let done = update::update(cx, self.ns, &request, None)?;
        cx.server.metrics.documents_updated.add(done.modified);
        Ok(done.n > 0)
    }

    /// Inserts a document. False if a concurrent insert was first.
    fn insert(&self, cx: &Context<'_>, document: &Doc) -> Result<bool> {
        let options = InsertOptions {
            ordered: true,
            durability: Durability::Logged,
            bypass_validation: self.bypass_validation,
            keep_empty_timestamps: true,
        };
        let (inserted, errors) = insert::insert(cx, self.ns, &[document], options, None)?;
        cx.server.metrics.documents_inserted.add(inserted as u64);
        match errors.into_iter().next() {
            None => Ok(true),
            Some((_, error)) if is_duplicate_id(&error) => Ok(false),
            Some((_, error)) => Err(error),
        }
    }
}

/// Whether the `_id` of a document is taken, and not the key of another unique index.
fn is_duplicate_id(error: &Error) -> bool {
    let pattern = error
        .details()
        .and_then(|details| details.get_doc("keyPattern"));
    error.code() == ErrorCode::DuplicateKey
        && pattern.is_some_and(|pattern| pattern.contains_key("_id") && pattern.count() == 1)
}
