//! `getParameter` and `setParameter`.

use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use crate::parameters::{by_name, readable};

pub struct GetParameter;

const GET_PARAMETER: Spec = Spec {
    names: &["getParameter"],
    doc: "Reads parameters of the server.",
    admin_only: true,
    // The fields name parameters.
    takes_any_field: true,
    ..Spec::CHEAP
};

impl Command for GetParameter {
    fn spec(&self) -> &'static Spec {
        &GET_PARAMETER
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::GetParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let first = cx.body.get("getParameter").unwrap_or(Value::Null);
        let options = match first {
            Value::Document(options) => Arguments::new("getParameter", options),
            _ => cx.args(),
        };
        let all =
            matches!(first, Value::String("*")) || options.flag("allParameters")?.unwrap_or(false);
        let details = options.flag("showDetails")?.unwrap_or(false);
        let mut reply = DocBuf::new();
        for parameter in readable() {
            let Some(get) = parameter.get else { continue };
            if !all && !cx.body.contains_key(parameter.name) {
                continue;
            }
            let value = get(cx.server);
            if details {
                reply.push_doc(parameter.name, |out| {
                    out.push("value", &value);
                    out.push("settableAtRuntime", parameter.set.is_some());
                    out.push("settableAtStartup", parameter.is_start_parameter());
                });
            } else {
                reply.push(parameter.name, &value);
            }
        }
        if reply.is_empty() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "no option found to get",
            ));
        }
        Ok(reply)
    }
}

pub struct SetParameter;

const SET_PARAMETER: Spec = Spec {
    names: &["setParameter"],
    audits: Audited::Itself,
    doc: "Changes a parameter of the server.",
    admin_only: true,
    takes_any_field: true,
    ..Spec::CHEAP
};

impl Command for SetParameter {
    fn spec(&self) -> &'static Spec {
        &SET_PARAMETER
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::SetParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        const NOT_PARAMETERS: [&str; 5] = ["$db", "lsid", "comment", "$clusterTime", "maxTimeMS"];
        let mut reply = DocBuf::new();
        for (name, value) in cx.body.iter().skip(1) {
            if NOT_PARAMETERS.contains(&name) || name.starts_with('$') {
                continue;
            }
            let unknown = || {
                Error::new(
                    ErrorCode::InvalidOptions,
                    format!("attempted to set unrecognized parameter [{name}]"),
                )
            };
            let parameter = by_name(name).ok_or_else(unknown)?;
            let get = parameter.get.ok_or_else(unknown)?;
            let set = parameter.set.ok_or_else(|| {
                Error::new(
                    ErrorCode::IllegalOperation,
                    format!("not allowed to change [{name}] at runtime"),
                )
            })?;
            let was = get(cx.server);
            parameter.change(set, cx.server, &value)?;
            cx.server.log.info(
                Component::Command,
                23435,
                &cx.connection.name,
                "Successfully set parameter",
                &doc! {"parameterName": name, "oldValue": &was, "newValue": value},
            );
            if reply.is_empty() {
                reply.push("was", &was);
            }
        }
        if reply.is_empty() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "no option found to set, use help:true to see options ",
            ));
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::parameters;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn parameters_are_read() {
        let mut server = TestServer::new();
        let reply = server.run(
            "admin",
            doc! {"getParameter": 1, "featureCompatibilityVersion": 1},
        );
        assert_eq!(
            reply,
            doc! {"featureCompatibilityVersion": {"version": "8.0"}, "ok": 1.0}
        );
        let reply = server.run("admin", doc! {"getParameter": "*"});
        assert_eq!(reply.get_bool("enableTestCommands"), Some(false));
        assert_eq!(
            reply.get_array("authenticationMechanisms").unwrap().count(),
            3
        );
        for command in [
            doc! {"getParameter": "*"},
            doc! {"getParameter": 1, "allParameters": true},
            doc! {"getParameter": {"allParameters": true}},
        ] {
            assert_eq!(server.run("admin", command).count(), readable().len() + 1);
        }
        let reply = server.run(
            "admin",
            doc! {"getParameter": {"showDetails": true}, "logLevel": 1},
        );
        let settable = reply
            .get_doc("logLevel")
            .and_then(|level| level.get_bool("settableAtRuntime"));
        assert_eq!(settable, Some(true));
        assert_eq!(
            server.code("admin", doc! {"getParameter": 1, "nonsense": 1}),
            72
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parameters_are_set() {
        let mut server = TestServer::new();
        let reply = server.run(
            "admin",
            doc! {"setParameter": 1, "cursorTimeoutMillis": 5000},
        );
        assert_eq!(reply.get_i64("was"), Some(600_000));
        assert_eq!(server.server.cursor_timeout(), Duration::from_secs(5));
        server.run(
            "admin",
            doc! {"setParameter": 1, "slowOpThresholdMs": 0, "logLevel": 2},
        );
        assert_eq!(
            (
                server.server.slow_operation(),
                server.server.log.verbosity()
            ),
            (Duration::ZERO, 2)
        );
        let cases = [
            (doc! {"setParameter": 1, "nonsense": 1}, 72),
            (doc! {"setParameter": 1}, 72),
            (doc! {"setParameter": 1, "quiet": true}, 20),
            (doc! {"setParameter": 1, "enableTestCommands": true}, 20),
            (doc! {"setParameter": 1, "logLevel": 9}, 2),
            (doc! {"setParameter": 1, "logLevel": "x"}, 14),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command), code);
        }
    }

    /// A parameter is settable at startup exactly if `--setParameter` accepts it.
    #[tokio::test(flavor = "multi_thread")]
    async fn details_say_when_a_parameter_can_be_set() {
        let mut server = TestServer::new();
        let all = doc! {"getParameter": {"showDetails": true, "allParameters": true}};
        let reply = server.run("admin", all);
        for parameter in readable() {
            let shown = reply.get_doc(parameter.name).unwrap();
            // A value that most parameters refuse: the error shows whether the parameter exists.
            let words = [
                "serve".to_owned(),
                "--setParameter".to_owned(),
                format!("{}=no value", parameter.name),
            ];
            let arguments = parameters::command_line().try_get_matches_from(words);
            let startup = match parameters::read(&arguments.unwrap()) {
                Ok(_) => true,
                Err(error) => !error.to_string().contains("unknown parameter"),
            };
            assert_eq!(
                shown.get_bool("settableAtStartup"),
                Some(startup),
                "{}",
                parameter.name
            );
            let runtime = parameter.set.is_some();
            assert_eq!(
                shown.get_bool("settableAtRuntime"),
                Some(runtime),
                "{}",
                parameter.name
            );
        }
        let settable = |name| reply.get_doc(name).unwrap().get_bool("settableAtStartup");
        for name in [
            "enableTestCommands",
            "largeDocumentBytes",
            "quiet",
            "journalCommitInterval",
        ] {
            assert_eq!(settable(name), Some(true), "{name}");
        }
        assert_eq!(settable("maxBSONObjectSize"), Some(false));
    }

    /// `db.setLogLevel()` and `db.getLogComponents()` of mongosh.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_log_has_a_verbosity_and_those_of_components() {
        let mut server = TestServer::new();
        let set = |levels: DocBuf| doc! {"setParameter": 1, "logComponentVerbosity": levels};
        server.run("admin", set(doc! {"verbosity": 2}));
        server.run(
            "admin",
            set(doc! {"command": {"verbosity": -1}, "storage": {"journal": {"verbosity": -1}}}),
        );
        let reply = server.run(
            "admin",
            doc! {"getParameter": 1, "logComponentVerbosity": 1},
        );
        let shown = reply.get_doc("logComponentVerbosity").unwrap();
        assert_eq!(shown.get_i32("verbosity"), Some(2));
        assert_eq!(shown.get_doc("network"), Some(&*doc! {"verbosity": -1}));
        assert_eq!(server.server.log.verbosity(), 2);
        server.run(
            "admin",
            set(doc! {"query": {"verbosity": 3}, "command": {"verbosity": 1}}),
        );
        let log = &server.server.log;
        assert!(log.wants(
            Component::Query,
            crate::observability::log::Severity::Debug(3)
        ));
        assert!(!log.wants(
            Component::Command,
            crate::observability::log::Severity::Debug(2)
        ));
        assert!(log.wants(
            Component::Network,
            crate::observability::log::Severity::Debug(2)
        ));
        let reply = server.run(
            "admin",
            doc! {"getParameter": 1, "logComponentVerbosity": 1},
        );
        let shown = reply.get_doc("logComponentVerbosity").unwrap();
        assert_eq!(shown.get_doc("query"), Some(&*doc! {"verbosity": 3}));
        for (levels, code) in [
            (doc! {"sharding": {"verbosity": 1}}, 238),
            (doc! {"storage": {"journal": {"verbosity": 1}}}, 238),
            (doc! {"verbosity": 6}, 2),
            (doc! {"verbosity": "x"}, 14),
        ] {
            assert_eq!(server.code("admin", set(levels)), code);
        }
        let wrong = doc! {"setParameter": 1, "logComponentVerbosity": 1};
        assert_eq!(server.code("admin", wrong), 14);
    }

    /// Queries that would read a whole collection are refused, those of the server itself are not.
    #[tokio::test(flavor = "multi_thread")]
    async fn collection_scans_can_be_forbidden() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        let index = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]};
        server.run("test", index);
        let was = server.run("admin", doc! {"setParameter": 1, "notablescan": true});
        assert_eq!(was.get_bool("was"), Some(false));
        let refused = [
            doc! {"find": "c", "filter": {"b": 1}},
            doc! {"find": "c", "filter": {"b": 1}, "hint": {"$natural": 1}},
            doc! {"find": "c", "filter": {"b": 1}, "sort": {"$natural": -1}},
            doc! {"count": "c", "query": {"b": 1}},
            doc! {"distinct": "c", "key": "a", "query": {"b": 1}},
            doc! {"aggregate": "c", "pipeline": [{"$match": {"b": 1}}], "cursor": {}},
            doc! {"findAndModify": "c", "query": {"b": 1}, "remove": true},
            doc! {"explain": {"find": "c", "filter": {"b": 1}}},
        ];
        for command in refused {
            assert_eq!(server.code("test", command.clone()), 291, "{command:?}");
        }
        let delete = doc! {"delete": "c", "deletes": [{"q": {"b": 1}, "limit": 0}]};
        let reply = server.run("test", delete);
        let error = reply.get_array("writeErrors").unwrap().get_doc("0");
        assert_eq!(error.unwrap().get_i32("code"), Some(291));
        let taken = [
            doc! {"find": "c"},
            doc! {"find": "c", "filter": {"a": 1}},
            doc! {"find": "c", "filter": {"_id": 1}},
            doc! {"find": "c", "filter": {"_id": {"$gt": 1}}},
            doc! {"find": "c", "filter": {"b": 1, "a": {"$gt": 3}}},
            doc! {"find": "none", "filter": {"b": 1}},
            doc! {"find": "system.views", "filter": {"b": 1}},
            doc! {"count": "c"},
        ];
        for command in taken {
            server.run("test", command);
        }
        server.run("admin", doc! {"find": "d", "filter": {"b": 1}});
        server.run("admin", doc! {"setParameter": 1, "notablescan": 0});
        server.run("test", doc! {"find": "c", "filter": {"b": 1}});
        let wrong = doc! {"setParameter": 1, "notablescan": "x"};
        assert_eq!(server.code("admin", wrong), 14);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn checkpoints_have_an_interval() {
        let mut server = TestServer::new();
        let get = doc! {"getParameter": 1, "syncdelay": 1};
        assert_eq!(
            server.run("admin", get.clone()).get_f64("syncdelay"),
            Some(0.0)
        );
        server.run("admin", doc! {"setParameter": 1, "syncdelay": 30});
        assert_eq!(server.run("admin", get).get_f64("syncdelay"), Some(30.0));
        for (wrong, code) in [
            (doc! {"setParameter": 1, "syncdelay": -1}, 2),
            (doc! {"setParameter": 1, "syncdelay": "x"}, 14),
        ] {
            assert_eq!(server.code("admin", wrong), code);
        }
    }
}
