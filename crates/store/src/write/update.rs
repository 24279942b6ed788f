//! `update`: one document or many, and upserts.

use std::cell::OnceCell;

use frond_bson::{Collator, Doc, DocBuf, ObjectId, OwnedValue, Value};
use frond_error::ErrorCode;
use frond_query::matcher::{Filter, MatchedElement};
use frond_query::update::{ApplyContext, Update};

use super::Retry;
use super::insert::prepare;
use super::modify::{Change, Changed, Effect, Target, is_upsert_race};
use super::recording::{Recorder, Recording};
use super::staging::{Buffers, Staged, Staging, Updated};
use super::written::How;
use crate::catalog::Catalog;
use crate::exec::operator::Row;
use crate::find::{PlannedQuery, one_id};
use crate::plan::required_fields;
use frond_oplog::diff::SetPaths;
use frond_storage::clock::next_timestamp;
use frond_storage::context::OpContext;
use frond_storage::environment::{environment, request_ms};
use frond_storage::error::{Result, command};
use frond_storage::keyspace::Durability;
use frond_storage::namespace::Namespace;
use frond_storage::record::field_set::ChangeFields;

/// Retries of an upsert after another upsert inserted the document.
const UPSERT_ATTEMPTS_MAX: u32 = 10;

/// A request to `update`.
#[derive(Clone, Debug)]
pub struct UpdateRequest<'a> {
    pub filter: &'a Doc,
    /// The change: a document of operators, a replacement, or an array of pipeline stages.
    pub update: Value<'a>,
    /// Which document is the first, if only one is updated.
    pub sort: Option<&'a Doc>,
    /// Whether to insert a document if none matches.
    pub upsert: bool,
    /// Whether to update all documents that match, not only the first.
    pub multi: bool,
    /// Filters for `$[name]`.
    pub array_filters: Vec<&'a Doc>,
    /// The index to use, as in a find.
    pub hint: Option<Value<'a>>,
    /// Variables for `$expr` and pipelines.
    pub variables: Option<&'a Doc>,
    /// Whether documents are not checked by the collection's validator.
    pub bypass_validation: bool,
    /// Whether a replacement's top-level `Timestamp(0, 0)` is stored as it is, not replaced by the
    /// current time.
    pub keep_empty_timestamps: bool,
    /// The collation; none for that of the collection.
    pub collation: Option<Collator>,
    /// Whether the client reads no result (`w: 0`), so that the update need not have one.
    pub unacknowledged: bool,
}

impl<'a> UpdateRequest<'a> {
    /// An update of the first document that matches, without options.
    pub fn new(filter: &'a Doc, update: Value<'a>) -> UpdateRequest<'a> {
        UpdateRequest {
            filter,
            update,
            sort: None,
            upsert: false,
            multi: false,
            array_filters: Vec::new(),
            hint: None,
            variables: None,
            bypass_validation: false,
            keep_empty_timestamps: false,
            collation: None,
            unacknowledged: false,
        }
    }
}

/// The result of an update.
#[derive(Clone, Debug, Default)]
pub struct UpdateOutcome {
    pub matched: u64,
    /// Documents that were changed.
    pub modified: u64,
    /// The `_id` of the document that an upsert inserted.
    pub upserted_id: Option<OwnedValue>,
}

/// Applies an update to documents.
pub(super) struct Apply<'a> {
    pub update: &'a Update,
    pub context: ApplyContext,
    /// Finds the array element of the positional operator, if the update has it.
    matched: Option<MatchedElement>,
    /// Whether the whole document after the change is returned.
    pub keeps_result: bool,
    /// The document after the last change, if it is returned.
    pub result: Option<DocBuf>,
    /// The parts of large documents that are required, and what they were computed for.
    wanted: Option<(WantedFor, ChangeFields)>,
    /// The paths of the operators, when they were required for the oplog.
    set: OnceCell<Option<SetPaths>>,
}

/// The inputs that determine the required parts of large documents.
#[derive(Clone, Copy, PartialEq)]
struct WantedFor {
    /// Version of the collection.
    version: u64,
    is_logged: bool,
}

impl<'a> Apply<'a> {
    /// Applies `update` to documents that pass `filter`. `keeps_empty_timestamps` is that of [`UpdateRequest`].
    pub fn new(update: &'a Update, filter: &Filter, keeps_empty_timestamps: bool) -> Apply<'a> {
        let mut context = ApplyContext::at(request_ms());
        context.timestamp = next_timestamp();
        context.keeps_empty_timestamps = keeps_empty_timestamps;
        Apply {
            update,
            context,
            matched: (update.needs_positional()).then(|| filter.matched_element()),
            keeps_result: false,
            result: None,
            wanted: None,
            set: OnceCell::new(),
        }
    }

    /// The method by which the update makes a new document.
    fn how(&self) -> How<'_> {
        let set = self.set.get_or_init(|| {
            let paths = self.update.operator_paths();
            paths.map(SetPaths::new)
        });
        match set {
            Some(set) => How::Operators(set),
            None if self.update.is_replacement() => How::Replaced,
            None => How::Computed,
        }
    }

    /// As [`Apply::how`], if the oplog asks for it.
    fn how_in(&self, staging: &Staging<'_>) -> How<'_> {
        if staging.is_logged() {
            self.how()
        } else {
            How::Replaced
        }
    }

    /// The same, keeping the document after the change.
    pub fn keeping_result(self) -> Apply<'a> {
        Apply {
            keeps_result: true,
            ..self
        }
    }

    /// Changes a large document, whose record is `stored`.
    fn stage_large(
        &mut self,
        staging: &mut Staging<'_>,
        row: &Row,
        stored: &[u8],
    ) -> Result<Effect> {
        let wanted_for = WantedFor {
            version: staging.collection().version(),
            is_logged: staging.is_logged(),
        };
        let known = (self.wanted.take()).filter(|(known, _)| *known == wanted_for);
        self.wanted = Some(known.unwrap_or_else(|| {
            // The oplog has the values after additions.
            let is_blind = !wanted_for.is_logged;
            let whole = self.keeps_result || staging.keeps_pre_images();
            let collection = staging.collection();
            let wanted = required_fields::of_update(self.update, collection, whole, is_blind);
            (wanted_for, wanted)
        }));
        let wanted = self.wanted.as_ref().map(|(_, wanted)| wanted);
        let everything = ChangeFields::everything();
        let wanted = wanted.unwrap_or(&everything);
        let whole = wanted.want.is_all();
        let (doc, parts) = staging
            .document_reader()
            .for_change(&row.key, stored, wanted)?;
        let applied = self.update.apply(&doc, &self.context)?;
        let updated = Updated {
            touches: &|path: &str| applied.paths_touched.affects(path),
            how: self.how_in(staging),
        };
        let effect = if !applied.modified {
            Effect::None
        } else if let Some(staged) =
            staging.update_parts(&row.key, &doc, &parts, &applied.doc, updated, whole)?
        {
            staged.into()
        } else if whole {
            staging
                .update(&row.key, &doc, Some(&parts), &applied.doc, updated)?
                .into()
        } else {
            let (doc, parts) =
                staging
                    .document_reader()
                    .for_change(&row.key, stored, &everything)?;
            let applied = self.update.apply(&doc, &self.context)?;
            staging
                .update(&row.key, &doc, Some(&parts), &applied.doc, updated)?
                .into()
        };
        if self.keeps_result {
            self.result = Some(applied.doc);
        }
        Ok(effect)
    }
}

impl Change for Apply<'_> {
    fn stage(&mut self, staging: &mut Staging<'_>, row: &Row) -> Result<Effect> {
        if let Some(matched) = &self.matched {
            self.context.positional = matched.index(&row.doc)?;
        }
        if let Some(stored) = &row.stored {
            return self.stage_large(staging, row, stored);
        }
        let applied = self.update.apply(&row.doc, &self.context)?;
        let effect = if applied.modified {
            let updated = Updated {
                touches: &|path: &str| applied.paths_touched.affects(path),
                how: self.how_in(staging),
            };
            staging
                .update(&row.key, &row.doc, None, &applied.doc, updated)?
                .into()
        } else {
            Effect::None
        };
        if self.keeps_result {
            self.result = Some(applied.doc);
        }
        Ok(effect)
    }
}

/// Runs an update.
///
/// # Errors
/// Errors of the filter, the update and the hint; `DuplicateKey` (11000).
pub fn update(
    catalog: &Catalog,
    ns: &Namespace,
    request: &UpdateRequest<'_>,
    durability: Durability,
    context: &OpContext,
    recording: Option<Recording<'_, UpdateOutcome>>,
) -> Result<UpdateOutcome> {
    catalog.check_writable(ns)?;
    let recorder = recording
        .map(|recording| recording.recorder(catalog))
        .transpose()?;
    let collator = catalog.collator(ns, request.collation.as_ref());
    let environment = environment(request.variables, &collator);
    let update = Update::parse_value(&request.update, &request.array_filters, &environment)?;
    if request.multi && update.is_replacement() {
        return Err(command(
            ErrorCode::FailedToParse,
            "multi update is not supported for replacement-style update",
        ));
    }
    let target = Target {
        command: "update",
        catalog,
        ns,
        question: PlannedQuery::parse(
            Some(request.filter),
            request.sort,
            request.hint,
            &environment,
        )?,
        id: one_id(request.filter).filter(|_| {
            let sort = request.sort.is_none_or(Doc::is_empty);
            sort && request.hint.is_none() && request.collation.is_none()
        }),
        record: recorder.as_ref().map(Recorder::key),
        context,
        durability,
        bypass_validation: request.bypass_validation,
        whole: false,
    };
    let mut attempts = 0;
    loop {
        let mut apply = Apply::new(
            &update,
            &target.question.filter,
            request.keep_empty_timestamps,
        );
        let updated = |_: &Apply<'_>, _: &Row| {
            Ok(UpdateOutcome {
                matched: 1,
                modified: 1,
                upserted_id: None,
            })
        };
        let changed = match &recorder {
            Some(recorder) => run(
                &target,
                &mut recorder.recorded(&mut apply, &updated),
                request.multi,
            )?,
            None => run(&target, &mut apply, request.multi)?,
        };
        if changed.matched > 0 || !request.upsert {
            return Ok(UpdateOutcome {
                matched: changed.matched,
                modified: changed.modified,
                upserted_id: None,
            });
        }
        let upserted = |inserted: &Doc| {
            Ok(UpdateOutcome {
                upserted_id: inserted.get("_id").map(OwnedValue::from),
                ..UpdateOutcome::default()
            })
        };
        match insert_upserted(&target, apply, request.filter, recorder.as_ref(), &upserted) {
            Ok(done) => return Ok(done),
            // Another upsert may have inserted the document: the retry finds it.
            Err(error) if attempts < UPSERT_ATTEMPTS_MAX && is_upsert_race(catalog, &error) => {
                attempts += 1;
            }
            Err(error) => return target.executed(Err(error)),
        }
    }
}

fn run(target: &Target<'_>, apply: &mut impl Change, multi: bool) -> Result<Changed> {
    if multi {
        return target.change_all(apply);
    }
    Ok(match target.change_one(apply)? {
        Some((_, modified)) => Changed {
            matched: 1,
            modified: u64::from(modified),
        },
        None => Changed::default(),
    })
}

/// Inserts the document of an upsert that found nothing. Returns what `outcome` makes of it.
///
/// # Errors
/// `DuplicateKey` (11000), also if another upsert was faster; errors of the update.
pub(super) fn insert_upserted<O>(
    target: &Target<'_>,
    mut apply: Apply<'_>,
    filter: &Doc,
    recorder: Option<&Recorder<'_, O>>,
    outcome: &dyn Fn(&Doc) -> Result<O>,
) -> Result<O> {
    let base = apply.update.upsert_base(filter)?;
    apply.context.is_upsert_insert = true;
    apply.context.positional = None;
    apply.context.new_id = Some(ObjectId::new());
    let doc = apply.update.apply(&base, &apply.context)?.doc;
    let (mut prepared, mut key) = (Vec::new(), Vec::new());
    // Empty timestamps that a replacement has are filled in by now; those that operators and
    // pipelines set stay.
    let doc = prepare(&doc, true, &mut prepared, &mut key)?;
    let mut buffers = Buffers::default();
    let mut retry = Retry::new(target.catalog);
    loop {
        target.catalog.ensure_collection(target.ns)?;
        let done = target.catalog.write(target.ns, |collection| {
            let mut staging = Staging::for_insertion(target.catalog, collection, &mut buffers)?
                .bypassing_validation(target.bypass_validation);
            staging.set_session(recorder.map(Recorder::session));
            // Nothing else is staged, so it cannot have to wait for the next commit.
            let staged = staging.insert(&key, doc)?;
            debug_assert_eq!(staged, Staged::Done);
            if let Some(recorder) = recorder {
                recorder.add(&mut staging, &outcome(doc)?);
            }
            staging.commit(target.durability)
        });
        match done {
            Ok(Some(Ok(_))) => return outcome(doc),
            Err(error) | Ok(Some(Err(error))) => retry.after(error)?,
            Ok(None) => {}
        }
    }
}
