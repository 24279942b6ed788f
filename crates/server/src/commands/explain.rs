//! `explain`

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_store::{FindRequest, Verbosity};

use super::build_info::COMPATIBLE_VERSION;
use super::{Command, Traits, count, delete, find, find_and_modify, proper_name, update};
use crate::arguments::Arguments;
use crate::context::{Context, lacking};
use crate::failure::{ErrorCode, Failure, Result};

/// Shows how a command would find its documents.
pub struct Explain;

impl Command for Explain {
    fn names(&self) -> &'static [&'static str] {
        &["explain"]
    }

    fn doc(&self) -> &'static str {
        "Shows how a command would find its documents."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["verbosity"]
    }

    fn traits(&self) -> Traits {
        Traits {
            on_collection: false,
            ..Traits::READ
        }
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
        Some(other) => Err(Failure::bad_value(format!(
            "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
        ))),
    }
}

/// Explains a command, given as its document.
pub fn explain(cx: &mut Context<'_>, inner: &Doc, verbosity: Verbosity) -> Result<DocBuf> {
    let (name, target) = inner.first().unwrap_or(("", Value::Null));
    let not_explained = || {
        Failure::new(
            ErrorCode::CommandNotFound,
            format!("Explain failed due to unknown command: {name}"),
        )
    };
    let (_, command) = super::find(name).ok_or_else(not_explained)?;
    let proper = proper_name(command);
    let args = Arguments::new(proper, inner);
    check_fields(command, &args, inner)?;
    let namespace = cx.namespace_of(&target)?;
    let run = |request: &FindRequest<'_>| {
        Ok::<_, Failure>(
            cx.server
                .store
                .explain_find(&namespace, request, verbosity, &cx.limits)?,
        )
    };
    let mut reply = match proper {
        "find" => run(&find::Finding::parse(&args)?.request)?,
        "count" => {
            let count = count::parse(&args)?;
            run(&FindRequest {
                filter: count.filter,
                skip: count.skip,
                limit: count.limit,
                hint: count.hint,
                ..FindRequest::default()
            })?
        }
        "distinct" => run(&FindRequest {
            filter: args.doc_field("query")?,
            hint: find::hint(&args)?,
            ..FindRequest::default()
        })?,
        "findAndModify" => {
            let request = find_and_modify::parse(&args)?;
            run(&FindRequest {
                filter: request.filter,
                sort: request.sort,
                limit: Some(1),
                hint: request.hint,
                variables: request.variables,
                ..FindRequest::default()
            })?
        }
        "update" => {
            let statement = only_statement(&args, "updates")?;
            let request = update::parse_statement(statement, args.doc_field("let")?)?;
            run(&FindRequest {
                filter: Some(request.filter),
                limit: (!request.multi).then_some(1),
                hint: request.hint,
                variables: request.variables,
                ..FindRequest::default()
            })?
        }
        "delete" => {
            let statement = only_statement(&args, "deletes")?;
            let request = delete::parse_statement(statement, args.doc_field("let")?)?;
            run(&FindRequest {
                filter: Some(request.filter),
                limit: request.limit_one.then_some(1),
                hint: request.hint,
                variables: request.variables,
                ..FindRequest::default()
            })?
        }
        _ => return Err(not_explained()),
    };
    finish(cx, inner, &mut reply);
    Ok(reply)
}

/// Adds what every explanation ends with.
pub fn finish(cx: &Context<'_>, command: &Doc, reply: &mut DocBuf) {
    reply.push("command", command);
    reply.push(
        "serverInfo",
        &doc! {
            "host": &cx.server.host,
            "port": i32::from(cx.server.port),
            "version": COMPATIBLE_VERSION,
            "gitVersion": "unknown",
        },
    );
}

/// The fields of the inner command are as strict as those of the command itself.
fn check_fields(command: &dyn Command, args: &Arguments<'_>, inner: &Doc) -> Result<()> {
    const COMMON: [&str; 8] = [
        "$db",
        "comment",
        "maxTimeMS",
        "lsid",
        "readConcern",
        "writeConcern",
        "$readPreference",
        "$clusterTime",
    ];
    for (name, value) in inner.iter().skip(1) {
        if command.fields().contains(&name) {
            continue;
        }
        if command.lacking().contains(&name) && !crate::dispatch::means_off(&value) {
            return Err(lacking(proper_name(command), name));
        }
        if !COMMON.contains(&name) && !command.lacking().contains(&name) {
            return Err(args.unknown(name));
        }
    }
    Ok(())
}

/// The only statement of a write command.
fn only_statement<'a>(args: &Arguments<'a>, field: &str) -> Result<&'a Doc> {
    let statements = args.documents(field)?.ok_or_else(|| args.missing(field))?;
    match statements.as_slice() {
        [one] => Ok(*one),
        _ => Err(Failure::new(
            ErrorCode::InvalidLength,
            format!("explain takes one statement, not {}", statements.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_command_that_finds_is_explained() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        let filter = doc! {"a": {"$gte": 150}};
        let commands: Vec<DocBuf> = vec![
            doc! {"find": "c", "filter": &filter},
            doc! {"count": "c", "query": &filter},
            doc! {"distinct": "c", "key": "a", "query": &filter},
            doc! {"findAndModify": "c", "query": &filter, "remove": true},
            doc! {"update": "c", "updates": [{"q": &filter, "u": {"$set": {"b": 1}}, "multi": true}]},
            doc! {"delete": "c", "deletes": [{"q": &filter, "limit": 0}]},
        ];
        for command in commands {
            let explain = doc! {"explain": &command, "verbosity": "executionStats"};
            let reply = server.run("test", explain);
            let plan = format!("{:?}", reply.get_doc("queryPlanner").unwrap());
            assert!(plan.contains("IXSCAN") && plan.contains("a_1"), "{plan}");
            let stats = reply.get_doc("executionStats").unwrap();
            assert!(
                stats.get_i64("totalKeysExamined").unwrap() <= 6,
                "{stats:?}"
            );
            assert_eq!(reply.get_doc("command"), Some(&*command));
        }
        // Nothing was changed.
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(20)
        );
        let reply = server.run(
            "test",
            doc! {"explain": {"find": "c"}, "verbosity": "queryPlanner"},
        );
        assert!(reply.get("executionStats").is_none() && reply.get_doc("serverInfo").is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_explanations_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"explain": 1}, 14),
            (doc! {"explain": {}}, 59),
            (doc! {"explain": {"nonsense": 1}}, 59),
            (doc! {"explain": {"ping": 1}}, 73),
            (doc! {"explain": {"insert": "c"}}, 59),
            (doc! {"explain": {"find": "c", "x": 1}}, 40415),
            (doc! {"explain": {"find": "c", "tailable": true}}, 238),
            (doc! {"explain": {"find": "c"}, "verbosity": "all"}, 2),
            (doc! {"explain": {"update": "c", "updates": []}}, 16),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
