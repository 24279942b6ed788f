//! `group` and `eval`, which MongoDB has removed: for old applications, where a setting allows them.

use frond_auth::ActionSet;
use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{
    AggregateRequest, Durability, Namespace, QueryCursor, allow_internal_stages, scripts_disabled,
};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::crud::map_reduce::code;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::limits::DOCUMENT_BYTES_MAX;
use frond_runtime::{AdmissionClass, Work};

/// Groups that a `group` may have, as in MongoDB.
const GROUPS_MAX: usize = 20_000;

/// The setting that allows the commands.
const SETTING: &str = "enableGroupAndEval";

/// Refuses the command unless the settings allow it.
fn check(cx: &Context<'_>) -> Result<()> {
    if !cx.server.settings.javascript.has_old_commands {
        return Err(Error::new(
            ErrorCode::CommandNotFound,
            format!(
                "no such command: '{}'; MongoDB has removed it, too: use $group, mapReduce or $function, or start the server with \
                 --setParameter {SETTING}=true",
                cx.name
            ),
        ));
    }
    match cx.server.execution.javascript {
        Some(_) => Ok(()),
        None => Err(scripts_disabled()),
    }
}

/// Runs the stages that the server has written for a command.
fn run(
    cx: &Context<'_>,
    namespace: Option<&Namespace>,
    stages: &ArrayBuf,
    args: &Arguments<'_>,
) -> Result<QueryCursor> {
    allow_internal_stages();
    let request = AggregateRequest {
        pipeline: stages.as_doc(),
        hint: None,
        variables: None,
        durability: Durability::Logged,
        bypass_validation: false,
        allow_disk_use: Some(true),
        collation: args.collation()?,
    };
    let cursor = cx
        .store()
        .aggregate(cx.db, namespace, &request, &cx.limits)?;
    Ok(cursor)
}

pub struct Group;

const GROUP: Spec = Spec {
    names: &["group"],
    doc: "Groups documents by functions of JavaScript; only with `enableGroupAndEval`.",
    work: Work::Long,
    on_collection: false,
    stable_api: false,
    ..Spec::READ
};

impl Command for Group {
    fn spec(&self) -> &'static Spec {
        &GROUP
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let spec = request.body.get_doc("group").unwrap_or(Doc::empty());
        let name = spec.get("ns").unwrap_or(Value::Null);
        Needs::on_collection_of(request, &name, Action::Find)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check(cx)?;
        let args = cx.args();
        let spec = args
            .doc_field("group")?
            .ok_or_else(|| args.missing("group"))?;
        let spec = Arguments::new("group", spec);
        let stages = groups(&spec)?;
        let namespace = cx.namespace_of(&spec.get("ns").unwrap_or(Value::Null))?;
        let mut results = run(cx, Some(&namespace), &stages, &spec)?;
        let (mut retval, mut count, mut keys) = (ArrayBuf::new(), 0.0, 0);
        while let Some(group) = results.next()? {
            keys += 1;
            if keys > GROUPS_MAX {
                return Err(Error::bad_value(format!(
                    "group() can't handle more than {GROUPS_MAX} unique keys"
                )));
            }
            count += group.get("n").and_then(|n| n.as_f64()).unwrap_or(0.0);
            retval.push_value(&group.get("v").unwrap_or(Value::Null));
            if retval.as_doc().len_bytes() > DOCUMENT_BYTES_MAX {
                return Err(Error::new(
                    ErrorCode::BSONObjectTooLarge,
                    "the results of group are larger than the largest document",
                ));
            }
        }
        cx.count_returned(keys);
        Ok(doc! {"retval": &retval, "count": count, "keys": keys as i64})
    }
}

/// The stages that group.
fn groups(spec: &Arguments<'_>) -> Result<ArrayBuf> {
    spec.only(&[
        "ns",
        "key",
        "$keyf",
        "$reduce",
        "initial",
        "cond",
        "finalize",
        "collation",
    ])?;
    let reduce = code(spec, "$reduce")?.ok_or_else(|| spec.missing("$reduce"))?;
    let initial = spec
        .doc_field("initial")?
        .ok_or_else(|| spec.missing("initial"))?;
    let mut stages = ArrayBuf::new();
    if let Some(filter) = spec.doc_field("cond")?.filter(|filter| !filter.is_empty()) {
        stages.push(&doc! {"$match": filter});
    }
    // The parts of the key under safe field names, with the names that they have in the results.
    let (mut key, mut names) = (DocBuf::new(), ArrayBuf::new());
    let mut init_args = ArrayBuf::new();
    match (spec.doc_field("key")?, code(spec, "$keyf")?) {
        (Some(_), Some(_)) => {
            return Err(Error::bad_value("group cannot have both 'key' and '$keyf'"));
        }
        (None, Some(function)) => {
            let args: ArrayBuf = [Value::String("$$ROOT")].into_iter().collect();
            key.push("k0", &doc! {"$function": {"body": Value::JavaScript(function), "args": &args, "lang": "js"}});
            init_args.push("$k0");
        }
        (fields, None) => {
            for (number, (name, _)) in fields.unwrap_or(Doc::empty()).iter().enumerate() {
                let mut or_null = ArrayBuf::new();
                or_null.push(format!("${name}").as_str());
                or_null.push(Value::Null);
                let field = format!("k{number}");
                key.push(&field, &doc! {"$ifNull": &or_null});
                names.push(name);
                init_args.push(format!("${field}").as_str());
            }
        }
    }
    init_args.push(&doc! {"$literal": &names});
    init_args.push(&doc! {"$literal": initial});
    let reduce = callable(reduce);
    let accumulate = format!(
        "function(state, doc) {{ var reduce = {reduce}; reduce(doc, state); return state }}"
    );
    let mut accumulator = doc! {
        "init": Value::JavaScript(INIT),
        "initArgs": &init_args,
        "accumulate": Value::JavaScript(&accumulate),
        "accumulateArgs": ["$$ROOT"],
        "merge": Value::JavaScript("function(a, b) { return a }"),
        "lang": "js",
    };
    if let Some(finalize) = code(spec, "finalize")? {
        let finalize = callable(finalize);
        let finalize = format!(
            "function(state) {{ var finalize = {finalize}, result = finalize(state); return result === undefined ? state : result }}"
        );
        accumulator.push("finalize", Value::JavaScript(&finalize));
    }
    stages.push(
        &doc! {"$group": {"_id": &key, "n": {"$sum": 1}, "v": {"$accumulator": &accumulator}}},
    );
    Ok(stages)
}

/// The first state of a group: its key, and the fields of `initial`. The arguments are the parts of the key, their names, and `initial`.
const INIT: &str = "function() {
    var parts = Array.prototype.slice.call(arguments), initial = parts.pop(), names = parts.pop(), state = {};
    if (names.length == 0 && parts.length == 1) {
        if (parts[0] === null || typeof parts[0] != 'object') throw new Error('return of $key has to be an object');
        Object.extend(state, parts[0]);
    }
    for (var i = 0; i < names.length; i++) state[names[i]] = parts[i];
    return Object.extend(state, initial);
}";

/// A piece of code, in the place of an expression.
fn callable(code: &str) -> String {
    let code = code.trim_end_matches([';', ' ', '\t', '\r', '\n']);
    format!("({code}\n)")
}

pub struct Eval;

const EVAL: Spec = Spec {
    names: &["eval", "$eval"],
    doc: "Calls a function of JavaScript, which has no `db`; only with `enableGroupAndEval`.",
    // It never holds a lock.
    fields: &["args", "nolock"],
    work: Work::Long,
    admission: Some(AdmissionClass::Read),
    ..Spec::CHEAP
};

impl Command for Eval {
    fn spec(&self) -> &'static Spec {
        &EVAL
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on(
            Place::AnyResource,
            ActionSet::from(Action::AnyAction),
        ))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check(cx)?;
        let args = cx.args();
        let name = cx.body.first().map_or("eval", |(name, _)| name);
        let body = code(&args, name)?.ok_or_else(|| args.missing(name))?;
        let arguments = args.array("args")?.unwrap_or(Doc::empty());
        args.flag("nolock")?;
        let call = doc! {"$function": {
            "body": Value::JavaScript(body), "args": {"$literal": Value::Array(arguments)}, "lang": "js",
        }};
        let mut stages = ArrayBuf::new();
        let one: ArrayBuf = [Value::Document(Doc::empty())].into_iter().collect();
        stages.push(&doc! {"$documents": &one});
        stages.push(&doc! {"$project": {"retval": call}});
        let result = run(cx, None, &stages, &args)?.next()?.unwrap_or_default();
        Ok(doc! {"retval": result.get("retval").unwrap_or(Value::Null)})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, DocBuf, Value, doc};

    use crate::testing::TestServer;

    fn server() -> TestServer {
        let mut server = TestServer::with(|settings| settings.javascript.has_old_commands = true);
        server.run(
            "db",
            doc! {"insert": "c", "documents": [
                {"_id": 1, "a": {"b": "x"}, "n": 1}, {"_id": 2, "a": {"b": "y"}, "n": 2},
                {"_id": 3, "a": {"b": "x"}, "n": 3}, {"_id": 4, "n": 4},
            ]},
        );
        server
    }

    /// A `group` that adds up `n`, with more fields.
    fn group(more: &DocBuf) -> DocBuf {
        let mut spec = doc! {
            "ns": "c", "initial": {"sum": 0, "ids": []},
            "$reduce": Value::JavaScript("function(doc, state) { state.sum += doc.n; state.ids.push(doc._id) };"),
        };
        spec.push_all(more);
        doc! {"group": &spec}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_are_grouped() {
        let mut server = server();
        let total = doc! {"sum": 10.0, "ids": [1.0, 2.0, 3.0, 4.0]};
        let cases = [
            (doc! {}, vec![total.clone()], 4.0),
            (doc! {"key": {}}, vec![total], 4.0),
            (
                doc! {"key": {"a.b": 1}, "cond": {"_id": {"$lt": 4}}},
                vec![
                    doc! {"a.b": "x", "sum": 4.0, "ids": [1.0, 3.0]},
                    doc! {"a.b": "y", "sum": 2.0, "ids": [2.0]},
                ],
                3.0,
            ),
            (
                doc! {"key": {"a.b": true}, "cond": {"_id": 4}},
                vec![doc! {"a.b": Value::Null, "sum": 4.0, "ids": [4.0]}],
                1.0,
            ),
            (
                doc! {"$keyf": "function(doc) { return {odd: doc.n % 2 == 1} }", "finalize": "function(state) { delete state.ids }"},
                vec![
                    doc! {"odd": false, "sum": 6.0},
                    doc! {"odd": true, "sum": 4.0},
                ],
                4.0,
            ),
            (
                doc! {"key": {"none": 1}, "finalize": "function(state) { return {half: state.sum / 2} }"},
                vec![doc! {"half": 5.0}],
                4.0,
            ),
            (doc! {"cond": {"_id": 9}, "key": {"a": 1}}, vec![], 0.0),
        ];
        for (more, expected, count) in cases {
            let reply = server.run("db", group(&more));
            let mut groups: Vec<DocBuf> = (reply.get_array("retval").unwrap().values())
                .map(|group| group.as_doc().unwrap().to_owned())
                .collect();
            groups.sort_by_key(|group| format!("{group:?}"));
            assert_eq!(groups, expected, "{more:?}");
            assert_eq!(
                reply.get("count").unwrap().as_f64(),
                Some(count),
                "{more:?}"
            );
            assert_eq!(
                reply.get_i64("keys"),
                Some(expected.len() as i64),
                "{more:?}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_groups_are_refused() {
        let mut server = server();
        let cases = [
            (group(&doc! {"more": 1}), 40415),
            (group(&doc! {"key": {"a": 1}, "$keyf": "x"}), 2),
            (
                group(&doc! {"$keyf": "function(doc) { return doc.n }"}),
                139,
            ),
            (
                group(&doc! {"finalize": "function(state) { nothing.x }"}),
                139,
            ),
            (group(&doc! {"cond": 5}), 14),
            (
                doc! {"group": {"ns": "c", "$reduce": "function() {}"}},
                40414,
            ),
            (doc! {"group": {"ns": "c", "initial": {}}}, 40414),
            (
                doc! {"group": {"ns": 5, "initial": {}, "$reduce": "function() {}"}},
                73,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("db", command.clone()), code, "{command:?}");
        }
        // More groups than MongoDB took.
        for batch in 0..3 {
            let mut docs = ArrayBuf::new();
            for n in 0..7_000 {
                docs.push(&doc! {"_id": batch * 7_000 + n, "n": 1});
            }
            server.run("db", doc! {"insert": "many", "documents": &docs});
        }
        let mut spec =
            doc! {"ns": "many", "initial": {}, "$reduce": "function() {}", "key": {"_id": 1}};
        assert_eq!(server.code("db", doc! {"group": &spec}), 2);
        spec.push("cond", &doc! {"_id": {"$lt": 20_000}});
        let reply = server.run("db", doc! {"group": &spec});
        assert_eq!(reply.get_i64("keys"), Some(20_000));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn code_is_evaluated() {
        let mut server = server();
        let stored =
            doc! {"_id": "twice", "value": Value::JavaScript("function(x) { return 2 * x }")};
        server.run("db", doc! {"insert": "system.js", "documents": [&stored]});
        let cases = [
            (doc! {"eval": "1 + 1"}, Value::Double(2.0)),
            (
                doc! {"$eval": "return 'x' + arguments.length", "nolock": true},
                Value::String("x0"),
            ),
            (
                doc! {"eval": Value::JavaScript("function(a, b) { return a + b }"), "args": ["x", "y"]},
                Value::String("xy"),
            ),
            (
                doc! {"eval": "function() { return twice(4) }"},
                Value::Double(8.0),
            ),
        ];
        for (command, expected) in cases {
            let reply = server.run("db", command.clone());
            assert_eq!(reply.get("retval"), Some(expected), "{command:?}");
        }
        assert_eq!(server.code("db", doc! {"eval": "db.c.count()"}), 139);
        assert_eq!(server.code("db", doc! {"eval": 5}), 2);
        assert_eq!(server.code("db", doc! {"eval": "1", "args": 5}), 14);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_are_off_unless_a_setting_allows_them() {
        let mut server = TestServer::new();
        for command in [doc! {"eval": "1"}, doc! {"$eval": "1"}, group(&doc! {})] {
            let reply = server.reply("db", command.clone());
            assert_eq!(reply.get_i32("code"), Some(59), "{command:?}");
            let message = reply.get_str("errmsg").unwrap();
            assert!(message.contains("enableGroupAndEval"), "{message}");
        }
        let mut server = TestServer::with(|settings| {
            settings.javascript.has_old_commands = true;
            settings.javascript.is_enabled = false;
        });
        assert_eq!(server.code("db", doc! {"eval": "1"}), 31264);
    }
}
