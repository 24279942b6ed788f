//! `$out` and `$merge`: write a pipeline's documents into a collection.

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_error::ErrorCode;
use frond_query::aggregate::{Source, Writing};

use crate::catalog::{Collection, Uuid};
use crate::context::OpContext;
use crate::error::{Error, Result, command};
use crate::keyspace::{Durability, Interrupt};
use crate::namespace::Namespace;
use crate::options::NaturalOrder;
use crate::points::point;
use crate::store::DocumentStore;
use crate::write::insert::{InsertOptions, insert_into};
use crate::write::update::UpdateRequest;

/// Documents of one insert.
const BATCH_DOCUMENTS: usize = 1000;
/// Bytes of one insert.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Where to write.
pub(super) struct Target<'a> {
    pub store: &'a DocumentStore,
    /// The database of the pipeline.
    pub db: &'a str,
    pub durability: Durability,
    pub bypass_validation: bool,
    pub context: OpContext,
}

/// What `$merge` does with a document that exists already.
#[derive(Clone, Debug)]
enum WhenMatched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    Pipeline(DocBuf),
}

/// What `$merge` does with a document that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

impl Target<'_> {
    /// `$out`: the documents replace a collection, all at once. Its indexes and options stay.
    pub fn out(&self, spec: &Doc, mut docs: Source<Error>) -> Result<()> {
        let coll = spec.get_str("coll").unwrap_or_default();
        let target = Namespace::new(spec.get_str("db").unwrap_or(self.db), coll)?;
        target.check_may_create()?;
        self.store.catalog().check_writable(&target)?;
        let temporary = format!("tmp.agg_out.{}", ObjectId::new());
        let temporary = Namespace::new(target.db(), &temporary)?;
        let existing = self.store.catalog().collection(&target);
        if existing
            .as_ref()
            .is_some_and(|existing| existing.settings.capped.is_some())
        {
            return Err(command(
                ErrorCode::Location(17152),
                format!("namespace '{target}' is capped so it can't be used for $out"),
            ));
        }
        let filled = self
            .prepare(&temporary, existing.as_deref())
            .and_then(|()| self.store.catalog().existing(&temporary))
            .and_then(|created| self.fill(&temporary, &created.uuid, &mut docs))
            .and_then(|()| self.context.check())
            .and_then(|()| {
                Interrupt::shielded(|| self.store.rename_collection(&temporary, &target, true))
            });
        if filled.is_err() {
            // The first error is the one to report. What interrupted the operation must not interrupt this.
            let _ = Interrupt::shielded(|| self.store.drop_collection(&temporary));
        }
        filled
    }

    /// Creates a collection like another one.
    fn prepare(&self, ns: &Namespace, like: Option<&Collection>) -> Result<()> {
        match like {
            // Without an order in its options it is older than the setting, and so in the order of `_id`.
            Some(like) => {
                let catalog = self.store.catalog();
                catalog.create_ordered(ns, &like.options, NaturalOrder::Id)?;
            }
            None => self.store.create_collection(ns, Doc::empty())?,
        }
        let specs: Vec<&Doc> = like
            .into_iter()
            .flat_map(Collection::ready_indexes)
            .map(|index| &*index.spec.doc)
            .collect();
        if !specs.is_empty() {
            self.store.create_indexes(ns, &specs)?;
        }
        Ok(())
    }

    /// Inserts into the collection with that UUID. If it is dropped meanwhile, none of the documents may be lost in
    /// silence with it.
    fn fill(&self, ns: &Namespace, uuid: &Uuid, docs: &mut Source<Error>) -> Result<()> {
        loop {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while batch.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
                let Some(doc) = docs.next()? else { break };
                bytes += doc.len_bytes();
                batch.push(doc);
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.insert(ns, Some(uuid), &batch)?;
            point("a part of a result is written");
        }
    }

    fn insert(&self, ns: &Namespace, only: Option<&Uuid>, docs: &[DocBuf]) -> Result<()> {
        let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
        let options = InsertOptions {
            ordered: true,
            durability: self.durability,
            bypass_validation: self.bypass_validation,
            keep_empty_timestamps: false,
        };
        let outcome = insert_into(self.store.catalog(), ns, only, None, &docs, options)?;
        match outcome.errors.into_iter().next() {
            Some(failed) => Err(failed.error),
            None => Ok(()),
        }
    }

    /// `$merge`: each document is inserted or merged into the one with the same key.
    pub fn merge(&self, writing: &Writing<'_>, mut docs: Source<Error>) -> Result<()> {
        let spec = writing.spec();
        let target = match spec.get("into") {
            Some(Value::String(coll)) => Namespace::new(self.db, coll)?,
            Some(Value::Document(into)) => Namespace::new(
                into.get_str("db").unwrap_or(self.db),
                into.get_str("coll").unwrap_or_default(),
            )?,
            other => {
                return Err(command(
                    ErrorCode::Location(51178),
                    format!(
                        "$merge 'into' field must be either a string or an object, but found {}",
                        other.map_or("missing", |value| value.type_name())
                    ),
                ));
            }
        };
        target.check_may_create()?;
        let on = self.key_fields(&target, spec.get("on"))?;
        let matched = when_matched(spec.get("whenMatched"))?;
        let not_matched = when_not_matched(spec.get("whenNotMatched"))?;
        check_modes(&matched, not_matched)?;
        let variables = spec.get_doc("let");
        if variables.is_some() && !matches!(matched, WhenMatched::Pipeline(_)) {
            return Err(command(
                ErrorCode::Location(51199),
                "Cannot use 'let' variables with 'whenMatched' mode that is not a pipeline",
            ));
        }
        self.store.catalog().ensure_collection(&target)?;
        while let Some(doc) = docs.next()? {
            self.merge_one(&target, &doc, &on, writing, &matched, not_matched)?;
        }
        Ok(())
    }

    /// The fields that identify a document: those of a unique index.
    fn key_fields(&self, target: &Namespace, on: Option<Value<'_>>) -> Result<Vec<String>> {
        let wrong = || {
            command(
                ErrorCode::Location(51186),
                "$merge 'on' field must be either a string or an array of strings",
            )
        };
        let mut fields = match on {
            None => return Ok(vec!["_id".to_owned()]),
            Some(Value::String(field)) => vec![field.to_owned()],
            Some(Value::Array(list)) => list
                .values()
                .map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong))
                .collect::<Result<Vec<String>>>()?,
            Some(_) => return Err(wrong()),
        };
        if fields.is_empty() {
            return Err(wrong());
        }
        if fields == ["_id"] {
            return Ok(fields);
        }
        fields.sort();
        let collection = self.store.catalog().collection(target);
        let fits = collection.is_some_and(|collection| {
            collection.ready_indexes().any(|index| {
                let spec = &index.spec;
                let mut names: Vec<&str> = spec.fields.iter().map(|field| &*field.path).collect();
                names.sort_unstable();
                spec.unique && spec.partial.is_none() && names == fields
            })
        });
        if fits {
            return Ok(fields);
        }
        Err(command(
            ErrorCode::Location(51183),
            "Cannot find index to verify that join fields will be unique",
        ))
    }

    fn merge_one(
        &self,
        target: &Namespace,
        doc: &Doc,
        on: &[String],
        writing: &Writing<'_>,
        matched: &WhenMatched,
        not_matched: WhenNotMatched,
    ) -> Result<()> {
        let mut with_id = DocBuf::new();
        let doc = if doc.contains_key("_id") {
            doc
        } else {
            with_id.push("_id", ObjectId::new());
            with_id.push_all(doc);
            &with_id
        };
        if matches!(matched, WhenMatched::Fail) {
            return self.insert(target, None, &[doc.to_owned()]);
        }
        let mut filter = DocBuf::new();
        for field in on {
            let value = doc
                .path(field)
                .filter(|value| !value.is_nullish() && !matches!(value, Value::Array(_)));
            let value = value.ok_or_else(|| {
                command(
                    ErrorCode::Location(51132),
                    "$merge write error: 'on' field cannot be missing, null, undefined or an array",
                )
            })?;
            filter.push(field, &doc! {"$eq": value});
        }
        // An existing document keeps its `_id` unless `on` has it.
        let mut rest = DocBuf::new();
        for element in doc.iter_raw() {
            if on.iter().any(|field| field == "_id") || element.name_bytes() != b"_id" {
                rest.push_raw(&element);
            }
        }
        let id = doc.get("_id");
        let (update, variables): (DocBuf, Option<DocBuf>) = match matched {
            WhenMatched::Replace => (rest, None),
            WhenMatched::Merge if rest.is_empty() => (doc! {"$setOnInsert": doc}, None),
            WhenMatched::Merge => {
                let mut update = doc! {"$set": &rest};
                if !rest.contains_key("_id") {
                    update.push("$setOnInsert", &doc! {"_id": id});
                }
                (update, None)
            }
            WhenMatched::KeepExisting | WhenMatched::Fail => (doc! {"$setOnInsert": doc}, None),
            WhenMatched::Pipeline(stages) => (stages.clone(), Some(writing.variables(doc)?)),
        };
        let outcome = self.store.update(
            target,
            &UpdateRequest {
                filter: &filter,
                update: match matched {
                    WhenMatched::Pipeline(_) => Value::Array(&update),
                    _ => Value::Document(&update),
                },
                // The pipeline applies to existing documents; others are inserted unchanged.
                sort: None,
                collation: None,
                upsert: not_matched == WhenNotMatched::Insert && variables.is_none(),
                multi: false,
                array_filters: Vec::new(),
                hint: None,
                variables: variables.as_deref(),
                bypass_validation: self.bypass_validation,
                keep_empty_timestamps: false,
            },
            self.durability,
            &self.context,
        )?;
        if outcome.matched > 0 {
            return Ok(());
        }
        if not_matched == WhenNotMatched::Insert && variables.is_some() {
            return self.insert(target, None, &[doc.to_owned()]);
        }
        if not_matched == WhenNotMatched::Fail {
            return Err(command(
                ErrorCode::Location(13113),
                "$merge could not find a matching document in the target collection for at least \
                 one document in the source collection",
            ));
        }
        Ok(())
    }
}

/// Refuses combinations that make no sense.
fn check_modes(matched: &WhenMatched, not_matched: WhenNotMatched) -> Result<()> {
    let name = match matched {
        WhenMatched::KeepExisting => "keepExisting",
        WhenMatched::Fail => "fail",
        _ => return Ok(()),
    };
    if not_matched == WhenNotMatched::Insert {
        return Ok(());
    }
    Err(command(
        ErrorCode::Location(51181),
        format!(
            "Combination of $merge modes 'whenMatched: {name}' and 'whenNotMatched: {}' is not \
             supported",
            match not_matched {
                WhenNotMatched::Discard => "discard",
                _ => "fail",
            }
        ),
    ))
}

fn when_matched(value: Option<Value<'_>>) -> Result<WhenMatched> {
    Ok(match value {
        None | Some(Value::String("merge")) => WhenMatched::Merge,
        Some(Value::String("replace")) => WhenMatched::Replace,
        Some(Value::String("keepExisting")) => WhenMatched::KeepExisting,
        Some(Value::String("fail")) => WhenMatched::Fail,
        Some(Value::Array(stages)) => WhenMatched::Pipeline(stages.to_owned()),
        Some(other) => {
            return Err(command(
                ErrorCode::BadValue,
                format!(
                    "Enumeration value '{}' for field 'whenMatched' is not a valid value.",
                    crate::text::value(other)
                ),
            ));
        }
    })
}

fn when_not_matched(value: Option<Value<'_>>) -> Result<WhenNotMatched> {
    Ok(match value {
        None | Some(Value::String("insert")) => WhenNotMatched::Insert,
        Some(Value::String("discard")) => WhenNotMatched::Discard,
        Some(Value::String("fail")) => WhenNotMatched::Fail,
        Some(other) => {
            return Err(command(
                ErrorCode::BadValue,
                format!(
                    "Enumeration value '{}' for field 'whenNotMatched' is not a valid value.",
                    crate::text::value(other)
                ),
            ));
        }
    })
}
