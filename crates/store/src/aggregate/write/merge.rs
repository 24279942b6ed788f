//! `$merge`: each document is inserted, or merged into the one with the same key.
//!
//! Documents are written in batches. A document that is refused does not keep the others of its batch from being
//! written; then the stage fails with the first error, and later batches are not written. A document whose key cannot
//! be read fails the stage before its batch is written.

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::aggregate::{Merge, Source, WhenMatched, WhenNotMatched, Writing};

use super::{BATCH_BYTES, BATCH_DOCUMENTS, Reserved, Target};
use crate::catalog::Collection;
use crate::write::update::UpdateRequest;
use frond_storage::error::{Error, Result, command};
use frond_storage::namespace::Namespace;

const RESERVED: Reserved = Reserved {
    special: (31319, "Cannot $merge to special collection"),
    internal: (31320, "Cannot $merge to internal database"),
};

/// Documents of a batch.
const MERGED_TOGETHER_MAX: usize = 100_000;

/// Attempts to insert a document that the pipeline of `whenMatched` did not find, while others insert it too.
const ATTEMPTS_MAX: u32 = 10;

/// A document of the pipeline.
struct Incoming {
    doc: DocBuf,
    /// The filter that finds its counterpart.
    key: DocBuf,
}

/// One `$merge` in progress.
struct Merging<'a> {
    target: &'a Target<'a>,
    ns: Namespace,
    on: Vec<String>,
    merge: &'a Merge,
    writing: &'a Writing<'a>,
}

impl Target<'_> {
    /// Runs `$merge`. The collection is created with the first document that is inserted.
    pub fn merge(
        &self,
        merge: &Merge,
        writing: &Writing<'_>,
        mut docs: Source<Error>,
    ) -> Result<()> {
        let ns = self.namespace(merge.db.as_deref(), &merge.coll, &RESERVED)?;
        let on = self.key_fields(&ns, merge, writing)?;
        let merging = Merging {
            target: self,
            ns,
            on,
            merge,
            writing,
        };
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < MERGED_TOGETHER_MAX && bytes < BATCH_BYTES {
                let Some(doc) = docs.next()? else { break };
                bytes += doc.len_bytes();
                batch.push(merging.incoming(doc)?);
            }
            if batch.is_empty() {
                return Ok(());
            }
            merging.write(&batch)?;
        }
    }

    /// The fields that identify a document: those of a unique index.
    fn key_fields(
        &self,
        ns: &Namespace,
        merge: &Merge,
        writing: &Writing<'_>,
    ) -> Result<Vec<String>> {
        let catalog = self.store.catalog();
        let collection = catalog.collection(ns);
        if let Some(existing) = &collection
            && existing.settings.time_series.is_some()
        {
            return Err(command(
                ErrorCode::Location(1_074_330),
                format!("$merge to a time-series collection is not supported: {ns}"),
            ));
        }
        let Some(on) = &merge.on else {
            return Ok(vec!["_id".to_owned()]);
        };
        let fits = match &collection {
            None => *on == ["_id"] && !catalog.is_view(ns),
            Some(collection) => is_unique_key(collection, on, writing),
        };
        if !fits {
            return Err(command(
                ErrorCode::Location(51183),
                "Cannot find index to verify that join fields will be unique",
            ));
        }
        // The order of these fields in a document that an upsert makes.
        let mut on = on.clone();
        on.sort_unstable();
        Ok(on)
    }
}

/// Whether a unique index distinguishes documents by exactly these fields, and compares strings as the pipeline does.
fn is_unique_key(collection: &Collection, on: &[String], writing: &Writing<'_>) -> bool {
    if on == ["_id"] && collection.collator() == writing.collator() {
        return true;
    }
    collection.searchable_indexes().any(|index| {
        let spec = &index.spec;
        spec.unique
            && spec.partial.is_none()
            && spec.collator == *writing.collator()
            && spec.fields.len() == on.len()
            && (spec.fields.iter()).all(|field| on.iter().any(|name| *name == *field.path))
    })
}

impl Merging<'_> {
    fn incoming(&self, doc: DocBuf) -> Result<Incoming> {
        let doc = if self.on.iter().any(|field| field == "_id") && !doc.contains_key("_id") {
            let mut with_id = doc! {"_id": ObjectId::new()};
            with_id.push_all(&doc);
            with_id
        } else {
            doc
        };
        let mut key = DocBuf::new();
        for field in &self.on {
            key.push(field, &doc! {"$eq": key_value(&doc, field)?});
        }
        Ok(Incoming { doc, key })
    }

    /// Writes a batch. Fails with the first error after all of it was tried.
    fn write(&self, batch: &[Incoming]) -> Result<()> {
        let mut refused = None;
        let mut matched = 0;
        if self.merge.matched == WhenMatched::Fail {
            for part in batch.chunks(BATCH_DOCUMENTS) {
                let docs: Vec<&Doc> = part.iter().map(|one| &*one.doc).collect();
                match self.target.insert(&self.ns, None, &docs)? {
                    Some(error) if !is_refusal(&error) => return Err(error),
                    error => refused = refused.or(error),
                }
            }
        } else {
            for one in batch {
                match self.merge_one(one) {
                    Ok(found) => matched += usize::from(found),
                    Err(error) if is_refusal(&error) => refused = refused.or(Some(error)),
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some(error) = refused {
            return Err(self.explained(error));
        }
        if self.merge.not_matched == WhenNotMatched::Fail && matched < batch.len() {
            return Err(command(
                ErrorCode::Location(13113),
                "$merge could not find a matching document in the target collection for at least \
                 one document in the source collection",
            ));
        }
        Ok(())
    }

    /// Merges one document. Returns whether it had a counterpart.
    fn merge_one(&self, incoming: &Incoming) -> Result<bool> {
        let doc = &incoming.doc;
        let inserts = self.merge.not_matched == WhenNotMatched::Insert;
        let update = match &self.merge.matched {
            WhenMatched::Replace => doc.clone(),
            WhenMatched::Merge => doc! {"$set": doc},
            WhenMatched::KeepExisting | WhenMatched::Fail => doc! {"$setOnInsert": doc},
            WhenMatched::Pipeline(stages) => return self.run_stages(incoming, stages, inserts),
        };
        self.update(incoming, Value::Document(&update), None, inserts)
    }

    /// Changes the counterpart by the stages of `whenMatched`. A document without one is inserted as it is.
    fn run_stages(&self, incoming: &Incoming, stages: &Doc, inserts: bool) -> Result<bool> {
        let variables = self.writing.variables(&incoming.doc)?;
        let mut attempt = 0;
        loop {
            if self.update(incoming, Value::Array(stages), Some(&variables), false)? {
                return Ok(true);
            }
            if !inserts {
                return Ok(false);
            }
            attempt += 1;
            match self.target.insert(&self.ns, None, &[&incoming.doc])? {
                None => return Ok(false),
                // The counterpart may have been inserted meanwhile.
                Some(error) if error.is_duplicate_key() && attempt < ATTEMPTS_MAX => {}
                Some(error) => return Err(error),
            }
        }
    }

    fn update(
        &self,
        incoming: &Incoming,
        update: Value<'_>,
        variables: Option<&Doc>,
        upsert: bool,
    ) -> Result<bool> {
        let outcome = self.target.store.update(
            &self.ns,
            &UpdateRequest {
                upsert,
                variables,
                bypass_validation: self.target.bypass_validation,
                ..UpdateRequest::new(&incoming.key, update)
            },
            self.target.durability,
            &self.target.context,
        )?;
        Ok(outcome.matched > 0)
    }

    /// The error as the stage reports it.
    fn explained(&self, error: Error) -> Error {
        let Error::Command(error) = error else {
            return error;
        };
        let prefix = match error.code() {
            ErrorCode::ImmutableField => {
                "$merge failed to update the matching document, did you attempt to modify the _id \
                 or the shard key?"
            }
            ErrorCode::DuplicateKey if self.fails_on_match(&error) => {
                "$merge with whenMatched: fail found an existing document with the same values for \
                 the 'on' fields"
            }
            ErrorCode::DuplicateKey => "$merge failed due to a DuplicateKey error",
            _ => return error.into(),
        };
        error.context(prefix).into()
    }

    /// Whether the error is that of `whenMatched: "fail"`: the index of `on` has the key.
    fn fails_on_match(&self, error: &CommandError) -> bool {
        let pattern = error.details().and_then(|all| all.get_doc("keyPattern"));
        let is_on = |pattern: &Doc| {
            pattern.count() == self.on.len()
                && self.on.iter().all(|name| pattern.contains_key(name))
        };
        self.merge.matched == WhenMatched::Fail && pattern.is_some_and(is_on)
    }
}

/// The value of a field that identifies a document.
fn key_value<'d>(doc: &'d Doc, path: &str) -> Result<Value<'d>> {
    let mut value = Value::Document(doc);
    for name in path.split('.') {
        let Value::Document(inner) = value else {
            value = Value::Undefined;
            break;
        };
        value = inner.get(name).unwrap_or(Value::Undefined);
        if matches!(value, Value::Array(_)) {
            return Err(command(
                ErrorCode::Location(51185),
                format!("$merge write error: 'on' field '{path}' is an array"),
            ));
        }
    }
    if value.is_nullish() {
        return Err(command(
            ErrorCode::Location(51132),
            format!("$merge write error: 'on' field '{path}' cannot be missing, null or undefined"),
        ));
    }
    Ok(value)
}

/// Whether one document was refused. Other failures concern the documents after it as well.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Command(_)) && !error.code().is_interruption()
}
