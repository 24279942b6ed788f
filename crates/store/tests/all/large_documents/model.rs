//! The model: an ordered map of whole documents, which the query language changes as bytes.

use std::collections::BTreeMap;

use frond_bson::{Doc, DocBuf, OwnedValue};
use frond_error::{Error, ErrorCode};
use frond_query::Environment;
use frond_query::matcher::Filter;
use frond_query::projection::Projection;
use frond_query::sort::SortSpec;
use frond_query::update::{ApplyContext, Update};

use crate::large_documents::operations::{Done, Op, Outcome, UpdateOp, names_one};
use crate::large_documents::values::key_of;

/// Documents by primary key.
pub type Docs = BTreeMap<Vec<u8>, DocBuf>;

/// A written or deleted document.
pub type Change = (Vec<u8>, Option<DocBuf>);

#[derive(Clone, Default)]
pub struct Model {
    pub docs: Docs,
}

/// A fixed time; no random operation reads it.
const NOW_MS: i64 = 1_700_000_000_000;

fn environment() -> Environment<'static> {
    Environment {
        now_ms: NOW_MS,
        ..Environment::default()
    }
}

fn failure(error: Error) -> (i32, String) {
    (error.code().code(), error.message().to_owned())
}

fn key(doc: &Doc) -> Vec<u8> {
    key_of(&doc.get("_id").unwrap())
}

/// The document with its `_id` in front, as it is stored.
fn stored(doc: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    out.push("_id", doc.get("_id").unwrap());
    for element in doc.iter_raw().filter(|element| element.name() != "_id") {
        out.push_raw(&element);
    }
    out
}

struct Parsed {
    filter: Filter,
    update: Update,
}

impl Parsed {
    fn new(filter: &Doc, op: &UpdateOp) -> Result<Parsed, Error> {
        let filters: Vec<&Doc> = op.array_filters.iter().map(|doc| &**doc).collect();
        let update = Update::parse_value(&op.update.as_value(), &filters, &environment())?;
        if op.multi && update.is_replacement() {
            return Err(Error::failed_to_parse(
                "multi update is not supported for replacement-style update",
            ));
        }
        let filter = Filter::parse_with(filter, &environment())?;
        Ok(Parsed { filter, update })
    }

    /// The document after the update, if it differs.
    fn apply(&self, doc: &Doc) -> Result<Option<DocBuf>, Error> {
        let mut context = ApplyContext::at(NOW_MS);
        context.positional = self.filter.matched_element().index(doc)?;
        let applied = self.update.apply(doc, &context)?;
        Ok(applied.modified.then_some(applied.doc))
    }
}

impl Model {
    /// Applies an operation. Also returns its writes.
    pub fn run(&mut self, op: &Op) -> (Outcome, Vec<Change>) {
        let mut changes = Vec::new();
        let outcome = match op {
            Op::Insert(docs) => Ok(self.insert(docs, &mut changes)),
            Op::Update(update) => self.update(update, &mut changes).map_err(failure),
            Op::Modify { .. } => self.modify(op, &mut changes).map_err(failure),
            Op::Delete { filter, one } => self.delete(filter, *one, &mut changes).map_err(failure),
        };
        (outcome, changes)
    }

    pub fn apply(&mut self, change: &Change) {
        match &change.1 {
            Some(doc) => self.docs.insert(change.0.clone(), doc.clone()),
            None => self.docs.remove(&change.0),
        };
    }

    fn write(&mut self, key: Vec<u8>, doc: Option<DocBuf>, changes: &mut Vec<Change>) {
        let change = (key, doc);
        self.apply(&change);
        changes.push(change);
    }

    /// The keys of the documents that pass, in order.
    pub fn matching(&self, filter: &Filter) -> Result<Vec<Vec<u8>>, Error> {
        let mut found = Vec::new();
        for (key, doc) in &self.docs {
            if filter.try_matches(doc)? {
                found.push(key.clone());
            }
        }
        Ok(found)
    }

    /// The document that an upsert inserts.
    fn upsert(&self, parsed: &Parsed, filter: &Doc) -> Result<DocBuf, Error> {
        let base = parsed.update.upsert_base(filter)?;
        let mut context = ApplyContext::at(NOW_MS);
        context.is_upsert_insert = true;
        let doc = parsed.update.apply(&base, &context)?.doc;
        let doc = stored(&doc);
        if self.docs.contains_key(&key(&doc)) {
            Err(Error::new(ErrorCode::DuplicateKey, ""))
        } else {
            Ok(doc)
        }
    }

    fn insert(&mut self, docs: &[DocBuf], changes: &mut Vec<Change>) -> Done {
        let mut errors = Vec::new();
        for (place, doc) in docs.iter().enumerate() {
            let key = key(doc);
            if self.docs.contains_key(&key) {
                errors.push((place, 11000));
            } else {
                self.write(key, Some(stored(doc)), changes);
            }
        }
        Done::Inserted(docs.len() - errors.len(), errors)
    }

    fn update(&mut self, op: &UpdateOp, changes: &mut Vec<Change>) -> Result<Done, Error> {
        let parsed = Parsed::new(&op.filter, op)?;
        let mut found = self.matching(&parsed.filter)?;
        if !op.multi {
            found.truncate(1);
        }
        if found.is_empty() && op.upsert {
            let doc = self.upsert(&parsed, &op.filter)?;
            let upserted = doc.get("_id").map(OwnedValue::from);
            self.write(key(&doc), Some(doc), changes);
            return Ok(Done::Updated {
                matched: 0,
                modified: 0,
                upserted,
            });
        }
        let mut modified = 0;
        let matched = found.len() as u64;
        for key in found {
            if let Some(new) = parsed.apply(&self.docs[&key])? {
                self.write(key, Some(new), changes);
                modified += 1;
            }
        }
        Ok(Done::Updated {
            matched,
            modified,
            upserted: None,
        })
    }

    fn modify(&mut self, op: &Op, changes: &mut Vec<Change>) -> Result<Done, Error> {
        let Op::Modify {
            update,
            filter,
            sort,
            new,
            fields,
        } = op
        else {
            unreachable!()
        };
        let projection = Projection::parse_with(fields, &environment())?;
        let filter_parsed = Filter::parse_with(filter, &environment())?;
        let projection = projection.matching(&filter_parsed);
        if *new && projection.needs_positional() {
            return Err(Error::bad_value(
                "cannot use a positional projection and return the new document",
            ));
        }
        let sort = SortSpec::parse(sort)?;
        let parsed = match update {
            Some(update) => Some(Parsed::new(filter, update)?),
            None => None,
        };
        let mut first: Option<(Vec<u8>, Vec<u8>)> = None;
        for key in self.matching(&filter_parsed)? {
            // A single document is not sorted, so the sort cannot fail.
            let order = if names_one(filter) {
                Vec::new()
            } else {
                sort.key(&self.docs[&key])?
            };
            if first.as_ref().is_none_or(|(before, ..)| order < *before) {
                first = Some((order, key));
            }
        }
        let mut done = (None, false, false, None);
        match (first, parsed) {
            (None, Some(parsed)) if update.as_ref().is_some_and(|update| update.upsert) => {
                let doc = self.upsert(&parsed, filter)?;
                done.3 = doc.get("_id").map(OwnedValue::from);
                if *new {
                    done.0 = Some(projection.apply(&doc)?);
                }
                self.write(key(&doc), Some(doc), changes);
            }
            (None, _) => {}
            (Some((_, key)), None) => {
                let value = projection.apply(&self.docs[&key]);
                self.write(key, None, changes);
                done.0 = Some(value?);
                done.2 = true;
            }
            (Some((_, key)), Some(parsed)) => {
                let old = self.docs[&key].clone();
                let after = parsed.apply(&old)?;
                let shown = after.as_ref().filter(|_| *new).unwrap_or(&old);
                // The write stays, though the result cannot be returned.
                let value = projection.apply(shown);
                if let Some(after) = after.clone() {
                    self.write(key, Some(after), changes);
                }
                done.0 = Some(value?);
                done.1 = true;
            }
        }
        Ok(Done::Modified {
            value: done.0,
            existing: done.1,
            removed: done.2,
            upserted: done.3,
        })
    }

    fn delete(
        &mut self,
        filter: &Doc,
        one: bool,
        changes: &mut Vec<Change>,
    ) -> Result<Done, Error> {
        let filter = Filter::parse_with(filter, &environment())?;
        let mut found = self.matching(&filter)?;
        if one {
            found.truncate(1);
        }
        let count = found.len() as u64;
        for key in found {
            self.write(key, None, changes);
        }
        Ok(Done::Deleted(count))
    }
}

/// Whether two outcomes are the same. Errors of `findAndModify` name the command; the model does not know
/// the name of the index of a duplicate key.
pub fn same_outcome(stored: &Outcome, modelled: &Outcome) -> bool {
    match (stored, modelled) {
        (Err((code, message)), Err((wanted, end))) => {
            code == wanted && (message.ends_with(end) || *code == 11000)
        }
        _ => stored == modelled,
    }
}
