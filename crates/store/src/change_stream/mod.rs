//! Change streams: `$changeStream` over the oplog.
//!
//! [`token`] has resume tokens, [`spec`] the argument of the stage, [`event`] what an entry of the oplog is to a stream, with
//! [`description`] of updates and [`images`] of documents. [`source`] reads the events, [`stream`] passes them through the
//! stages behind `$changeStream`, [`split`] divides large ones.
//!
//! A stream reads only what is durable, so a crash takes back nothing that a client has seen. Documents that it looks up
//! (`updateLookup`) are made durable before the batch is returned. While it waits it holds its position and nothing else: no
//! snapshot, no thread.

mod description;
mod event;
mod images;
mod source;
mod spec;
mod split;
mod stream;

use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, Value, doc};
use frond_error::ErrorCode;
use frond_query::aggregate::{ExecContext, NoHost, Pipeline, Source};
use frond_query::matcher::Filter;
use parking_lot::Mutex;

use crate::aggregate::AggregateRequest;
use crate::exec::cursor::QueryCursor;
use crate::oplog::readers::Place;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::environment::{environment, request_ms};
use frond_storage::error::{Error, Result, command};
use frond_storage::namespace::Namespace;
use source::Changes;
use spec::{Spec, WatchScope};
use stream::{ChangeStream, Input};

const STAGE: &str = "$changeStream";
/// The stage that splits large events.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// The stages that may follow.
const ALLOWED: [&str; 8] = [
    "$addFields",
    "$match",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$set",
    "$unset",
];

/// Whether a pipeline is a change stream: its first stage is `$changeStream`.
pub fn is_change_stream(pipeline: &Doc) -> bool {
    let first = pipeline.values().next();
    let stage = first.and_then(|first| first.as_doc()?.first());
    stage.is_some_and(|(name, _)| name == STAGE)
}

/// A pipeline of a change stream.
struct Parsed {
    spec: Spec,
    stages: Pipeline,
    /// Conditions on the type and the namespace, which can be tested before an event is built.
    on_head: Option<Arc<Filter>>,
    splits: bool,
}

fn parse(request: &AggregateRequest<'_>) -> Result<Parsed> {
    let mut stages = request.pipeline.values();
    let argument = match stages.next() {
        Some(Value::Document(stage)) => stage.get(STAGE),
        _ => None,
    };
    let Some(Value::Document(argument)) = argument else {
        return Err(command(
            ErrorCode::Location(50808),
            "$changeStream stage expects a document as argument",
        ));
    };
    let spec = Spec::parse(argument)?;
    let collator = request.collation.clone().unwrap_or_default();
    let environment = environment(request.variables, &collator);
    let mut rest: ArrayBuf = stages.collect();
    let count = rest.len();
    let mut splits = false;
    let mut others = ArrayBuf::new();
    for (at, stage) in rest.values().enumerate() {
        let name = stage.as_doc().and_then(|stage| stage.first());
        let Some((SPLIT, argument)) = name else {
            others.push_value(&stage);
            continue;
        };
        if !argument.as_doc().is_some_and(Doc::is_empty) {
            return Err(command(
                ErrorCode::Location(7_182_800),
                "$changeStreamSplitLargeEvent spec should be an empty object",
            ));
        }
        if at + 1 != count {
            return Err(command(
                ErrorCode::Location(7_182_802),
                "$changeStreamSplitLargeEvent must be the last stage in the pipeline",
            ));
        }
        splits = true;
    }
    rest = others;
    // Behind another stage, so that those are refused that have to be the first one.
    let mut placed = ArrayBuf::new();
    placed.push(&doc! {"$match": {}});
    rest.values().for_each(|stage| placed.push_value(&stage));
    Pipeline::parse(&placed, &environment)?;
    let parsed = Pipeline::parse(&rest, &environment)?;
    for stage in rest.values() {
        let name = stage.as_doc().and_then(|stage| Some(stage.first()?.0));
        if let Some(name) = name.filter(|name| !ALLOWED.contains(name)) {
            return Err(command(
                ErrorCode::IllegalOperation,
                format!("{name} is not permitted in a $changeStream pipeline"),
            ));
        }
    }
    let token = spec.start.token();
    if !splits && token.is_some_and(|token| token.fragment.is_some()) {
        return Err(command(
            ErrorCode::ChangeStreamFatalError,
            "To resume from a split event, the $changeStream pipeline must include a $changeStreamSplitLargeEvent stage",
        ));
    }
    Ok(Parsed {
        spec,
        on_head: on_head(&parsed),
        stages: parsed,
        splits,
    })
}

/// The conditions of the first stages that are about nothing but the type and the namespace of an event.
fn on_head(stages: &Pipeline) -> Option<Arc<Filter>> {
    let (front, _) = stages.clone().split_front();
    let is_on_head =
        |path: &str| path == "operationType" || path == "ns" || path.starts_with("ns.");
    let mut kept = front.filter.conditions();
    kept.retain(|condition| {
        let required = Filter::of_conditions([*condition]).required_fields();
        let mut paths = required.paths();
        !required.is_whole() && !required.is_none() && paths.all(is_on_head)
    });
    (!kept.is_empty()).then(|| Arc::new(Filter::of_conditions(kept)))
}

impl DocumentStore {
    /// Opens a change stream on a collection, or on a database (`aggregate: 1`); with `allChangesForCluster` on everything.
    /// The pipeline begins with `$changeStream` ([`is_change_stream`]). The cursor is tailable until the stream is
    /// invalidated; [`QueryCursor::resume_token`] has the token after each batch.
    ///
    /// # Errors
    /// 40573 without an oplog; `ChangeStreamHistoryLost` (286) if the place to begin is not in the oplog any more;
    /// `IllegalOperation` (20) for stages that may not follow; `CommandNotSupportedOnView` (166); errors of the stage's
    /// options, of its tokens and of the other stages. Later errors come from the cursor.
    pub fn watch(
        &self,
        db: &str,
        ns: Option<&Namespace>,
        request: &AggregateRequest<'_>,
        context: &OpContext,
    ) -> Result<QueryCursor> {
        if !self.catalog().is_live() {
            return Err(self.catalog().unsupported_stage(STAGE));
        }
        if !self.oplog().is_on() {
            return Err(command(
                ErrorCode::Location(40573),
                "The $changeStream stage is only supported on replica sets. Start the server with --replSet, or with --oplog",
            ));
        }
        let parsed = parse(request)?;
        let scope = parsed.spec.check(db, ns.map(Namespace::coll))?;
        if let Some(ns) = ns {
            self.check_watched(ns)?;
        }
        let place = match &scope {
            WatchScope::Collection(ns) => Place::Collection(ns.as_str().into()),
            WatchScope::Database(db) => Place::Database(db.as_str().into()),
            WatchScope::Cluster => Place::Everything,
        };
        let oplog = self.oplog();
        let last = || oplog.last().to_u64();
        let reader = oplog.readers().watch(place, last);
        let signal = reader.signal().clone();
        let mut changes = Changes::new(self, scope, parsed.spec, parsed.on_head, reader, context);
        changes.check_start()?;
        changes.rest()?;
        let changes = Arc::new(Mutex::new(changes));
        let input: Source<Error> = Box::new(Input(changes.clone()));
        let stages = parsed.stages.execute(input, &stage_context())?;
        let stream = ChangeStream::new(changes, stages, parsed.splits, signal);
        let shown = ns.cloned().unwrap_or_else(|| Namespace::of_database(db));
        Ok(QueryCursor::of_stream(shown, Box::new(stream)))
    }

    /// Refuses what has no events of its own.
    fn check_watched(&self, ns: &Namespace) -> Result<()> {
        if self.catalog().is_view(ns) {
            return Err(crate::catalog::is_a_view(ns));
        }
        let collection = self.catalog().collection(ns);
        if collection.is_some_and(|collection| collection.settings.time_series.is_some()) {
            return Err(command(
                ErrorCode::CommandNotSupportedOnView,
                format!("Namespace {ns} is a timeseries collection"),
            ));
        }
        Ok(())
    }
}

/// The host of the stages: none of them holds documents or reads others.
fn stage_context() -> ExecContext<Error> {
    ExecContext {
        host: Arc::new(NoHost),
        ..ExecContext::new(request_ms())
    }
}
