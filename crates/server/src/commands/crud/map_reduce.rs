//! `mapReduce`: a pipeline whose stages call functions of JavaScript.

use std::borrow::Cow;

use frond_auth::ActionSet;
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{
    AggregateRequest, Durability, Namespace, allow_internal_stages, scripts_disabled,
};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::write::bypass_validation;
use crate::context::Context;
use crate::cursors::{Cursor, Source};
use crate::observability::metrics::Op;
use crate::reply_quota::ReplyQuota;
use frond_runtime::Work;

/// Makes keys and values of documents by a function, and one value of the values of each key by another one.
pub struct MapReduce;

const SPEC: Spec = Spec {
    names: &["mapReduce", "mapreduce"],
    doc: "Groups documents by functions of JavaScript.",
    fields: &[
        "map",
        "reduce",
        "out",
        "query",
        "sort",
        "limit",
        "finalize",
        "scope",
        "jsMode",
        "verbose",
        "bypassDocumentValidation",
        "collation",
    ],
    op: Op::Command,
    work: Work::Long,
    writes: true,
    stable_api: false,
    ..Spec::READ
};

impl Command for MapReduce {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let reading = Needs::on_collection(request, Action::Find)?;
        let Ok(Output::Collection { db, name, mode, .. }) = Output::parse(&request.args()) else {
            return Ok(reading);
        };
        let second = match mode {
            Mode::Replace => Action::Remove,
            Mode::Merge | Mode::Reduce => Action::Update,
        };
        let mut actions = ActionSet::from_actions(&[Action::Insert, second]);
        if request.bypasses_validation() {
            actions = actions.with(Action::BypassDocumentValidation);
        }
        let place = Place::collection(db.unwrap_or(request.db), Cow::Borrowed(name));
        Ok(reading.and(Needs::on(place, actions)))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let output = Output::parse(&args)?;
        let namespace = source(cx)?;
        let pipeline = pipeline(&args, cx.db, &output)?;
        allow_internal_stages();
        let request = request(&args, &pipeline)?;
        if let Output::Collection { .. } = output {
            cx.connection.running.lock().writes = true;
        }
        let query = cx
            .store()
            .aggregate(cx.db, Some(&namespace), &request, &cx.limits)?;
        let name = namespace.as_str().to_owned();
        let mut cursor = Cursor::new(name, Source::Query(Box::new(query)));
        let room = ReplyQuota::new(cx.server, &cx.limits, &mut cx.operation.permits);
        let results = cursor.batch(None, &mut room.last())?;
        if !cursor.ended() {
            return Err(Error::new(
                ErrorCode::BSONObjectTooLarge,
                "the results of mapReduce are larger than the largest document; write them to a collection with 'out'",
            ));
        }
        Ok(match output {
            Output::Inline => {
                cx.count_returned(results.len());
                results.into_field("results")
            }
            Output::Collection { db, name, .. } => match db {
                Some(db) => doc! {"result": {"db": db, "collection": name}},
                None => doc! {"result": name},
            },
        })
    }
}

/// The collection that is read.
fn source(cx: &Context<'_>) -> Result<Namespace> {
    if cx.server.execution.javascript.is_none() {
        return Err(scripts_disabled());
    }
    let namespace = cx.namespace()?;
    if cx.server.store.catalog().is_view(&namespace) {
        return Err(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!(
                "Namespace {} is a view, not a collection",
                namespace.as_str()
            ),
        ));
    }
    Ok(namespace)
}

/// The pipeline of a command that is explained, and the collection that it reads.
///
/// # Errors
/// Those of the command.
pub fn explained(
    cx: &Context<'_>,
    args: &Arguments<'_>,
    name: &Value<'_>,
) -> Result<(Namespace, ArrayBuf)> {
    if cx.server.execution.javascript.is_none() {
        return Err(scripts_disabled());
    }
    let pipeline = pipeline(args, cx.db, &Output::parse(args)?)?;
    allow_internal_stages();
    Ok((cx.namespace_of(name)?, pipeline))
}

/// The treatment of documents that the output collection already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// All of them are removed first.
    Replace,
    /// New ones replace those with the same key.
    Merge,
    /// New ones are reduced together with those of the same key.
    Reduce,
}

/// The destination of the results.
#[derive(Clone, Copy, Debug)]
enum Output<'a> {
    Inline,
    Collection {
        db: Option<&'a str>,
        name: &'a str,
        mode: Mode,
    },
}

impl<'a> Output<'a> {
    fn parse(args: &Arguments<'a>) -> Result<Output<'a>> {
        let spec = match args.get("out") {
            None => return Err(args.missing("out")),
            Some(Value::String(name)) => {
                return Ok(Output::Collection {
                    db: None,
                    name,
                    mode: Mode::Replace,
                });
            }
            Some(Value::Document(spec)) => Arguments::new("out", spec),
            Some(_) => {
                return Err(Error::location(
                    13606,
                    "'out' has to be a string or an object",
                ));
            }
        };
        spec.only(&[
            "inline",
            "replace",
            "normal",
            "merge",
            "reduce",
            "db",
            "sharded",
            "nonAtomic",
        ])?;
        if spec.bool("nonAtomic")? == Some(false) {
            return Err(Error::location(
                15895,
                "The nonAtomic:false option is no longer allowed in the mapReduce command. Please omit or specify \
                 nonAtomic:true",
            ));
        }
        let is_sharded = spec.flag("sharded")?.unwrap_or(false);
        let modes = [
            ("normal", Mode::Replace),
            ("replace", Mode::Replace),
            ("merge", Mode::Merge),
            ("reduce", Mode::Reduce),
        ];
        for (field, mode) in modes {
            if let Some(name) = spec.str(field)? {
                if is_sharded {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        "the option 'sharded' of mapReduce needs a sharded collection, and this server is not sharded; leave it \
                         out",
                    ));
                }
                let db = spec.str("db")?;
                if db.is_some_and(|db| matches!(db, "admin" | "local" | "config")) {
                    return Err(Error::new(
                        ErrorCode::CommandNotSupported,
                        "cannot target internal database as output",
                    ));
                }
                return Ok(Output::Collection { db, name, mode });
            }
        }
        if spec.get("inline").is_none() {
            return Err(Error::location(
                13522,
                "please specify one of [replace|merge|reduce|inline] in 'out' object",
            ));
        }
        if spec.get("sharded").is_some() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "cannot specify 'sharded' in combination with 'inline'",
            ));
        }
        Ok(Output::Inline)
    }
}

/// The code of a function.
pub fn code<'a>(args: &Arguments<'a>, name: &str) -> Result<Option<&'a str>> {
    match args.get(name) {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::String(code) | Value::JavaScript(code)) => Ok(Some(code)),
        Some(Value::JavaScriptWithScope { code, scope }) if scope.is_empty() => Ok(Some(code)),
        Some(other) => Err(Error::bad_value(format!(
            "'{name}' must be of string or code type, found {}; variables go into the field 'scope'",
            other.type_name()
        ))),
    }
}

/// The stages that are equivalent to the command.
fn pipeline(args: &Arguments<'_>, db: &str, output: &Output<'_>) -> Result<ArrayBuf> {
    let map = code(args, "map")?.ok_or_else(|| args.missing("map"))?;
    let reduce = code(args, "reduce")?.ok_or_else(|| args.missing("reduce"))?;
    let finalize = code(args, "finalize")?;
    let scope = args.doc_field("scope")?.unwrap_or(Doc::empty());
    args.flag("verbose")?;
    args.flag("jsMode")?;
    let mut stages = ArrayBuf::new();
    if let Some(filter) = args.doc_field("query")?.filter(|filter| !filter.is_empty()) {
        stages.push(&doc! {"$match": filter});
    }
    if let Some(sort) = args.doc_field("sort")?.filter(|sort| !sort.is_empty()) {
        stages.push(&doc! {"$sort": sort});
    }
    match args.i64("limit")?.unwrap_or(0) {
        0 => {}
        limit if limit > 0 => stages.push(&doc! {"$limit": limit}),
        _ => {
            return Err(Error::location(
                15958,
                "The limit specified to mapReduce must be positive",
            ));
        }
    }
    let function = |code: &str, arguments: &ArrayBuf| {
        doc! {"$function": {"body": code, "args": arguments, "lang": "js", "scope": scope}}
    };
    let both = args_of(&["$_id", "$value"]);
    stages.push(&doc! {"$_internalJsMap": {"eval": map, "scope": scope}});
    stages.push(&doc! {"$group": {
        "_id": "$k",
        "value": {"$_internalJsReduce": {"data": "$v", "eval": reduce, "scope": scope}},
    }});
    if let Some(finalize) = finalize {
        stages.push(&doc! {"$project": {"value": function(finalize, &both)}});
    }
    stages.push(&doc! {"$sort": {"_id": 1}});
    let Output::Collection {
        db: other,
        name,
        mode,
    } = output
    else {
        return Ok(stages);
    };
    let into = doc! {"db": other.unwrap_or(db), "coll": *name};
    match mode {
        Mode::Replace => stages.push(&doc! {"$out": into}),
        Mode::Merge => stages.push(&doc! {"$merge": {
            "into": into, "on": "_id", "whenMatched": "replace", "whenNotMatched": "insert",
        }}),
        Mode::Reduce => {
            let mut arguments = ArrayBuf::new();
            arguments.push("$_id");
            arguments.push_array(|values| {
                values.push("$value");
                values.push("$$new.value");
            });
            let mut matched = ArrayBuf::new();
            matched.push(&doc! {"$project": {"value": function(reduce, &arguments)}});
            if let Some(finalize) = finalize {
                matched.push(&doc! {"$project": {"value": function(finalize, &both)}});
            }
            stages.push(&doc! {"$merge": {
                "into": into, "on": "_id", "whenMatched": &matched, "whenNotMatched": "insert",
            }});
        }
    }
    Ok(stages)
}

fn args_of(paths: &[&str]) -> ArrayBuf {
    paths.iter().copied().map(Value::String).collect()
}

fn request<'a>(args: &Arguments<'a>, pipeline: &'a ArrayBuf) -> Result<AggregateRequest<'a>> {
    Ok(AggregateRequest {
        pipeline: pipeline.as_doc(),
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: bypass_validation(args)?,
        allow_disk_use: Some(true),
        collation: args.collation()?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    fn command(out: impl Into<frond_bson::OwnedValue>) -> DocBuf {
        let out = out.into();
        doc! {
            "mapReduce": "c", "map": "function() { emit(this.a % 2, this.a) }",
            "reduce": "function(key, values) { return Array.sum(values) }", "out": out,
        }
    }

    fn server() -> TestServer {
        let mut server = TestServer::new();
        server.fill("c", 4);
        server
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_fields_are_refused() {
        let mut server = server();
        let cases = [
            (command(5), 13606),
            (command(doc! {}), 13522),
            (command(doc! {"inline": 1, "sharded": true}), 72),
            (command(doc! {"replace": "d", "nonAtomic": false}), 15895),
            (command(doc! {"replace": "d", "db": "admin"}), 115),
            (command(doc! {"merge": "d", "sharded": true}), 72),
            (doc! {"mapReduce": "c", "map": "x", "reduce": "y"}, 40414),
            (
                doc! {"mapReduce": "c", "map": 5, "reduce": "y", "out": "d"},
                2,
            ),
            (
                doc! {"mapReduce": "c", "map": "(", "reduce": "y", "out": "d"},
                139,
            ),
            (
                doc! {"mapReduce": "c", "map": "x", "reduce": "y", "out": "d", "limit": -1},
                15958,
            ),
            // The stages are the server's own.
            (
                doc! {"aggregate": "c", "pipeline": [{"$_internalJsMap": {"eval": "1"}}], "cursor": {}},
                40324,
            ),
            (
                doc! {"aggregate": "c", "pipeline": [
                    {"$group": {"_id": 1, "v": {"$_internalJsReduce": {"eval": "1", "data": 1}}}},
                ], "cursor": {}},
                15952,
            ),
        ];
        for (command, expected) in cases {
            let reply = server.reply("db", command.clone());
            assert_eq!(
                reply.get_i32("code"),
                Some(expected),
                "{command:?}: {reply:?}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_javascript_all_of_it_is_refused() {
        let mut server = TestServer::with(|settings| settings.javascript.is_enabled = false);
        let function = doc! {"$function": {"body": "1", "args": [], "lang": "js"}};
        let cases = [
            (command(doc! {"inline": 1}), 31264),
            (doc! {"find": "c", "filter": {"$where": "1"}}, 6108304),
            (
                doc! {"count": "c", "query": {"a": 1, "$where": "1"}},
                6108304,
            ),
            (
                doc! {"aggregate": "c", "pipeline": [{"$project": {"a": &function}}], "cursor": {}},
                31264,
            ),
            (doc! {"explain": command(doc! {"inline": 1})}, 31264),
        ];
        for (command, expected) in cases {
            assert_eq!(server.code("db", command.clone()), expected, "{command:?}");
        }
    }
}
