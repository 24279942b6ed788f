mod fast_update;

use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::update::{ApplyContext, Update};
use frond_store::{
    AggregateRequest, Durability, FindRequest, Namespace, Purpose, Task, Verbosity, views,
};

use super::explanation::{check_fields, explain_pipeline, explain_stages, finish};
use super::{aggregate, count, delete, distinct, find, find_and_modify, map_reduce, update};
use crate::arguments::Arguments;
use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct Explain;

const SPEC: Spec = Spec {
    names: &["explain"],
    doc: "Shows how a command would find its documents.",
    fields: &["verbosity"],
    on_collection: false,
    ..Spec::READ
};

impl Command for Explain {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let inner = args
            .doc_field("explain")?
            .ok_or_else(|| args.missing("explain"))?;
        let command = explained(inner)?;
        command.needs(&request.inner(command.spec().name(), inner))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let inner = args
            .doc_field("explain")?
            .ok_or_else(|| args.missing("explain"))?;
        let verbosity = verbosity(args.str("verbosity")?)?;
        explain(cx, inner, verbosity)
    }
}

fn verbosity(name: Option<&str>) -> Result<Verbosity> {
    match name {
        Some("queryPlanner") => Ok(Verbosity::QueryPlanner),
        Some("executionStats") => Ok(Verbosity::ExecutionStats),
        None | Some("allPlansExecution") => Ok(Verbosity::AllPlansExecution),
        Some(other) => Err(Error::bad_value(format!(
            "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
        ))),
    }
}

/// The commands that can be explained.
static EXPLAINED: [&dyn Command; 8] = [
    &aggregate::Aggregate,
    &count::Count,
    &delete::Delete,
    &distinct::Distinct,
    &find::Find,
    &find_and_modify::FindAndModify,
    &map_reduce::MapReduce,
    &update::Update,
];

/// The command that a document is, if it can be explained. The needs of other commands are not
/// evaluated: their errors may quote a password.
fn explained(inner: &Doc) -> Result<&'static dyn Command> {
    let name = inner.first().map_or("", |(name, _)| name);
    let is_named = |command: &&dyn Command| command.spec().names.contains(&name);
    let found = EXPLAINED.iter().copied().find(is_named);
    found.ok_or_else(|| unknown(inner))
}

fn unknown(inner: &Doc) -> Error {
    let name = inner.first().map_or("", |(name, _)| name);
    Error::new(
        ErrorCode::CommandNotFound,
        format!("Explain failed due to unknown command: {name}"),
    )
}

/// Explains a command, given as its document.
pub fn explain(cx: &mut Context<'_>, inner: &Doc, verbosity: Verbosity) -> Result<DocBuf> {
    let (_, target) = inner.first().unwrap_or(("", Value::Null));
    let command = explained(inner)?;
    let proper = command.spec().name();
    let args = Arguments::new(proper, inner);
    check_fields(command.spec(), &args, inner)?;
    let variables = args.variables()?;
    let variables = variables.as_deref();
    if proper == "aggregate" {
        return explain_pipeline(cx, inner, &args, variables, verbosity);
    }
    if proper == "mapReduce" {
        let (namespace, stages) = map_reduce::explained(cx, &args, &target)?;
        let request = AggregateRequest {
            pipeline: stages.as_doc(),
            hint: None,
            variables,
            durability: Durability::Logged,
            allow_disk_use: None,
            bypass_validation: false,
            collation: args.collation()?,
        };
        return explain_stages(cx, inner, &namespace, &request, verbosity);
    }
    let namespace = cx.namespace_of(&target)?;
    if cx.server.store.catalog().is_view(&namespace)
        && let Some(stages) = stages_on_view(proper, &args, variables)?
    {
        let request = AggregateRequest {
            pipeline: &stages,
            hint: find::hint(&args)?,
            variables,
            durability: Durability::Logged,
            allow_disk_use: None,
            bypass_validation: false,
            collation: args.collation()?,
        };
        return explain_stages(cx, inner, &namespace, &request, verbosity);
    }
    let query = Query {
        cx,
        args: &args,
        namespace: &namespace,
        variables,
        verbosity,
    };
    let mut reply = match proper {
        "find" => query.find()?,
        "count" => query.count()?,
        "distinct" => query.distinct()?,
        "findAndModify" => query.find_and_modify()?,
        "update" => query.update()?,
        "delete" => query.delete()?,
        _ => return Err(unknown(inner)),
    };
    finish(cx, inner, &mut reply);
    Ok(reply)
}

/// A command whose search for documents is explained.
struct Query<'q> {
    cx: &'q Context<'q>,
    args: &'q Arguments<'q>,
    namespace: &'q Namespace,
    variables: Option<&'q Doc>,
    verbosity: Verbosity,
}

impl Query<'_> {
    fn run(&self, request: &FindRequest<'_>, purpose: &Purpose<'_>) -> Result<DocBuf> {
        let (store, limits) = (&self.cx.server.store, &self.cx.limits);
        Ok(store.explain(self.namespace, request, purpose, self.verbosity, limits)?)
    }

    fn check_writable(&self) -> Result<()> {
        let catalog = self.cx.server.store.catalog();
        Ok(catalog.check_writable(self.namespace)?)
    }

    /// As [`would_change`], with the collation of the search for the documents.
    fn would_change(
        &self,
        update: &Value<'_>,
        array_filters: &[&Doc],
        found: &FindRequest<'_>,
    ) -> Result<impl Fn(&Doc) -> bool + use<>> {
        let catalog = self.cx.server.store.catalog();
        let collator = catalog.collator(self.namespace, found.collation.as_ref());
        would_change(update, array_filters, self.variables, &collator)
    }

    fn find(&self) -> Result<DocBuf> {
        let command = find::FindCommand::parse(self.args, self.variables)?;
        self.run(&command.request, &Purpose::FIND)
    }

    fn count(&self) -> Result<DocBuf> {
        let count = count::parse(self.args)?;
        let request = FindRequest {
            filter: count.filter,
            skip: count.skip,
            limit: count.limit,
            hint: count.hint,
            collation: count.collation,
            ..FindRequest::default()
        };
        self.run(&request, &purpose(Task::Count, false))
    }

    fn distinct(&self) -> Result<DocBuf> {
        let args = self.args;
        let key = args.str("key")?.ok_or_else(|| args.missing("key"))?;
        let mut shown = doc! {key: 1};
        if key != "_id" {
            shown.push("_id", 0);
        }
        let request = FindRequest {
            filter: args.doc_field("query")?,
            projection: Some(&shown),
            hint: find::hint(args)?,
            collation: args.collation()?,
            ..FindRequest::default()
        };
        let purpose = Purpose {
            distinct: Some(key),
            ..Purpose::FIND
        };
        self.run(&request, &purpose)
    }

    fn find_and_modify(&self) -> Result<DocBuf> {
        self.check_writable()?;
        let request = find_and_modify::parse(self.args, self.variables)?;
        let found = FindRequest {
            filter: request.filter,
            sort: request.sort,
            limit: Some(1),
            hint: request.hint,
            variables: request.variables,
            collation: request.collation,
            ..FindRequest::default()
        };
        match &request.update {
            Some(update) if !request.remove => {
                let change = self.would_change(update, &request.array_filters, &found)?;
                let upsert = request.upsert;
                let purpose = Purpose {
                    would_change: &change,
                    ..purpose(Task::Update { upsert }, true)
                };
                self.run(&found, &purpose)
            }
            _ => self.run(&found, &purpose(Task::Delete, true)),
        }
    }

    fn update(&self) -> Result<DocBuf> {
        self.check_writable()?;
        let statement = only_statement(self.args, "updates")?;
        let mut request = update::parse_statement(statement, self.variables)?;
        let concern = self.args.doc_field("writeConcern")?;
        request.unacknowledged = concern.is_some_and(|concern| {
            concern.get_i64("w") == Some(0) && concern.get_bool("j") != Some(true)
        });
        let store = &self.cx.server.store;
        if store.is_fast_update(self.namespace, &request) {
            return Ok(fast_update::describe(
                self.namespace,
                &request,
                self.verbosity,
            ));
        }
        let found = FindRequest {
            filter: Some(request.filter),
            sort: request.sort,
            limit: (!request.multi).then_some(1),
            hint: request.hint,
            variables: request.variables,
            collation: request.collation,
            ..FindRequest::default()
        };
        let change = self.would_change(&request.update, &request.array_filters, &found)?;
        let upsert = request.upsert;
        let purpose = Purpose {
            would_change: &change,
            ..purpose(Task::Update { upsert }, false)
        };
        self.run(&found, &purpose)
    }

    fn delete(&self) -> Result<DocBuf> {
        self.check_writable()?;
        let statement = only_statement(self.args, "deletes")?;
        let request = delete::parse_statement(statement, self.variables)?;
        let found = FindRequest {
            filter: Some(request.filter),
            limit: request.limit_one.then_some(1),
            hint: request.hint,
            variables: request.variables,
            collation: request.collation,
            ..FindRequest::default()
        };
        self.run(&found, &purpose(Task::Delete, false))
    }
}

/// A purpose that changes no document.
fn purpose(task: Task, returns: bool) -> Purpose<'static> {
    Purpose {
        task,
        returns,
        ..Purpose::FIND
    }
}

/// Whether an update would change a document. One that needs the element that the filter matched
/// counts as a change.
fn would_change(
    update: &Value<'_>,
    array_filters: &[&Doc],
    variables: Option<&Doc>,
    collator: &Collator,
) -> Result<impl Fn(&Doc) -> bool + use<>> {
    let environment = frond_store::environment(variables, collator);
    let update = Update::parse_value(update, array_filters, &environment)?;
    let at = ApplyContext::at(frond_store::request_ms());
    Ok(move |doc: &Doc| {
        let applied = update.apply(doc, &at);
        update.needs_positional() || applied.is_ok_and(|applied| applied.modified)
    })
}

/// The pipeline that a command runs on a view; `None` for commands that fail there.
fn stages_on_view(
    command: &str,
    args: &Arguments<'_>,
    variables: Option<&Doc>,
) -> Result<Option<ArrayBuf>> {
    Ok(Some(match command {
        "find" => views::stages_of_find(&find::FindCommand::parse(args, variables)?.request)?,
        "count" => {
            let mut stages = views::stages_of_count(&count::parse(args)?);
            stages.push(&doc! {"$count": "count"});
            stages
        }
        "distinct" => views::stages_of_find(&FindRequest {
            filter: args.doc_field("query")?,
            ..FindRequest::default()
        })?,
        _ => return Ok(None),
    }))
}

/// The only statement of a write command.
fn only_statement<'a>(args: &Arguments<'a>, field: &str) -> Result<&'a Doc> {
    let statements = args.documents(field)?.ok_or_else(|| args.missing(field))?;
    match statements.as_slice() {
        [one] => Ok(*one),
        _ => Err(Error::new(
            ErrorCode::InvalidLength,
            format!("explain takes one statement, not {}", statements.len()),
        )),
    }
}

#[cfg(test)]
mod tests;
