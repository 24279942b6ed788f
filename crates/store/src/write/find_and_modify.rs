//! `findAndModify`: changes one document and returns it, as it was or as it is.

use frond_bson::{Collator, Doc, DocBuf, OwnedValue, Value};
use frond_error::ErrorCode;
use frond_query::projection::Projection;
use frond_query::update::Update;

use super::delete::Remove;
use super::modify::{Target, is_upsert_race};
use super::recording::{Recorder, Recording};
use super::update::{Apply, insert_upserted};
use crate::catalog::Catalog;
use crate::exec::operator::Row;
use crate::find::{PlannedQuery, one_id};
use frond_storage::context::OpContext;
use frond_storage::environment::environment;
use frond_storage::error::{Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;

/// Retries of an upsert after another upsert inserted the document.
const UPSERT_ATTEMPTS_MAX: u32 = 10;

/// A request to `findAndModify`.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyRequest<'a> {
    pub filter: Option<&'a Doc>,
    /// Which of them is the first.
    pub sort: Option<&'a Doc>,
    /// Whether to remove it.
    pub remove: bool,
    /// Further options, as in an update.
    pub update: Option<Value<'a>>,
    /// Whether to insert a document if none matches.
    pub upsert: bool,
    /// Whether to return the document after the update, not before.
    pub return_new: bool,
    /// Which fields to return.
    pub projection: Option<&'a Doc>,
    /// Filters for `$[name]`.
    pub array_filters: Vec<&'a Doc>,
    /// The index to use, as in a find.
    pub hint: Option<Value<'a>>,
    /// Variables for `$expr` and pipelines.
    pub variables: Option<&'a Doc>,
    /// Whether documents are not checked by the collection's validator.
    pub bypass_validation: bool,
    /// As in an update.
    pub keep_empty_timestamps: bool,
    /// The collation; none for that of the collection.
    pub collation: Option<Collator>,
}

/// The result of a `findAndModify`.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyOutcome {
    /// The document, `None` if there was none.
    pub value: Option<DocBuf>,
    /// Whether an existing document was updated.
    pub updated_existing: bool,
    /// Whether an existing document was removed.
    pub removed: bool,
    /// The `_id` of the document that an upsert inserted.
    pub upserted_id: Option<OwnedValue>,
}

fn check(request: &FindAndModifyRequest<'_>) -> Result<()> {
    let message = match (request.remove, request.update.is_some()) {
        (true, true) => "Cannot specify both an update and remove=true",
        (false, false) => "Either an update or remove=true must be specified",
        (true, false) if request.upsert => "Cannot specify both upsert=true and remove=true ",
        (true, false) if request.return_new => {
            "Cannot specify both new=true and remove=true; 'remove' always returns the deleted \
             document"
        }
        _ => return Ok(()),
    };
    Err(command(ErrorCode::FailedToParse, message))
}

/// Runs a `findAndModify`.
///
/// # Errors
/// `FailedToParse` (9) for options that exclude each other; errors of the filter, the sort, the
/// update, the projection and the hint; `DuplicateKey` (11000).
pub fn find_and_modify(
    catalog: &Catalog,
    ns: &Namespace,
    request: &FindAndModifyRequest<'_>,
    durability: Durability,
    context: &OpContext,
    recording: Option<Recording<'_, FindAndModifyOutcome>>,
) -> Result<FindAndModifyOutcome> {
    check(request)?;
    catalog.check_writable(ns)?;
    let recorder = recording
        .map(|recording| recording.recorder(catalog))
        .transpose()?;
    let filter = request.filter.unwrap_or(Doc::empty());
    let collator = catalog.collator(ns, request.collation.as_ref());
    let environment = environment(request.variables, &collator);
    let projection = request.projection.unwrap_or(Doc::empty());
    let projection = Projection::parse_with(projection, &environment)?;
    let question = PlannedQuery::parse(Some(filter), request.sort, request.hint, &environment)?;
    let projection = projection.matching(&question.filter);
    if request.return_new && projection.needs_positional() {
        return Err(command(
            ErrorCode::BadValue,
            "cannot use a positional projection and return the new document",
        ));
    }
    let target = Target {
        command: "findAndModify",
        catalog,
        ns,
        question,
        id: one_id(filter).filter(|_| {
            let sort = request.sort.is_none_or(Doc::is_empty);
            sort && request.hint.is_none() && request.collation.is_none()
        }),
        record: recorder.as_ref().map(Recorder::key),
        context,
        durability,
        bypass_validation: request.bypass_validation,
        whole: true,
    };
    let Some(update) = &request.update else {
        let outcome = |_: &Remove, row: &Row| {
            Ok(FindAndModifyOutcome {
                removed: true,
                value: Some(projection.apply(&row.doc)?),
                ..FindAndModifyOutcome::default()
            })
        };
        let removed = match &recorder {
            Some(recorder) => target.change_one(&mut recorder.recorded(&mut Remove, &outcome))?,
            None => target.change_one(&mut Remove)?,
        };
        return match removed {
            Some((row, _)) => outcome(&Remove, &row),
            None => Ok(FindAndModifyOutcome::default()),
        };
    };
    let update = Update::parse_value(update, &request.array_filters, &environment)?;
    let mut attempts = 0;
    loop {
        let mut apply = Apply::new(
            &update,
            &target.question.filter,
            request.keep_empty_timestamps,
        )
        .keeping_result();
        let updated = |apply: &Apply<'_>, row: &Row| {
            let shown = match &apply.result {
                Some(new) if request.return_new => new,
                _ => &row.doc,
            };
            Ok(FindAndModifyOutcome {
                value: Some(projection.apply(shown)?),
                updated_existing: true,
                ..FindAndModifyOutcome::default()
            })
        };
        let changed = match &recorder {
            Some(recorder) => target.change_one(&mut recorder.recorded(&mut apply, &updated))?,
            None => target.change_one(&mut apply)?,
        };
        if let Some((row, _)) = changed {
            return updated(&apply, &row);
        }
        if !request.upsert {
            return Ok(FindAndModifyOutcome::default());
        }
        let upserted = |inserted: &Doc| {
            let value = if request.return_new {
                Some(projection.apply(inserted)?)
            } else {
                None
            };
            Ok(FindAndModifyOutcome {
                upserted_id: inserted.get("_id").map(OwnedValue::from),
                value,
                ..FindAndModifyOutcome::default()
            })
        };
        match insert_upserted(&target, apply, filter, recorder.as_ref(), &upserted) {
            Ok(done) => return Ok(done),
            Err(error) if attempts < UPSERT_ATTEMPTS_MAX && is_upsert_race(catalog, &error) => {
                attempts += 1;
            }
            Err(error) => return target.executed(Err(error)),
        }
    }
}
