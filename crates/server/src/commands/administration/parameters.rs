//! `getParameter` and `setParameter`, over one table of parameters.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use frond_auth::scram::Mechanism;
use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::QueryLimit;

use crate::access::change::AUTH_SCHEMA;
use crate::arguments::{Arguments, whole};
use crate::authorization::{Action, Needs, Requested};
use crate::commands::diagnostics::build_info::FEATURE_COMPATIBILITY_VERSION;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::log::{self, Component, Log};
use crate::replication::Moments;
use crate::scripting;
use crate::settings::{self, ITERATIONS};
use crate::state::Server;

mod tooling;

/// A parameter of the running server.
pub struct Parameter {
    name: &'static str,
    get: fn(&Server) -> OwnedValue,
    /// None if it can only be set at startup, or not at all.
    set: Option<fn(&Server, &Value<'_>) -> Result<()>>,
}

fn owned<'a>(value: impl Into<Value<'a>>) -> OwnedValue {
    OwnedValue::from(value.into())
}

fn number(name: &str, value: &Value<'_>, low: i64, high: i64) -> Result<i64> {
    if !value.is_number() {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{name}' must be a number, not a {}",
                value.type_name()
            ),
        ));
    }
    let n = whole(value);
    if (low..=high).contains(&n) {
        return Ok(n);
    }
    Err(Error::bad_value(format!(
        "Invalid value for parameter {name}: {n} is not between {low} and {high}"
    )))
}

fn boolean(name: &str, value: &Value<'_>) -> Result<bool> {
    match value {
        Value::Bool(on) => Ok(*on),
        other => Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{name}' must be a bool, not a {}",
                other.type_name()
            ),
        )),
    }
}

/// A memory limit for one stage of one query.
macro_rules! query_limit {
    ($name:literal, $limit:expr) => {
        Parameter {
            name: $name,
            get: |server| owned(server.store.queries().limit($limit) as i64),
            set: Some(|server, value| {
                let limit = number($name, value, 1, i64::MAX)?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                server.store.queries().set_limit($limit, limit);
                Ok(())
            }),
        }
    };
}

/// The iterations of new credentials.
macro_rules! iterations {
    ($name:literal, $mechanism:expr) => {
        Parameter {
            name: $name,
            get: |server| {
                owned(
                    i32::try_from(server.clients.logins.iterations($mechanism)).unwrap_or(i32::MAX),
                )
            },
            set: Some(|server, value| {
                let count = number($name, value, ITERATIONS.0, ITERATIONS.1)?;
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                server.clients.logins.set_iterations($mechanism, count);
                Ok(())
            }),
        }
    };
}

/// Components of MongoDB's log that this server has no lines of. Their verbosity can only be set to be inherited.
const WITHOUT_LINES: [&str; 5] = ["replication", "recovery", "journal", "sharding", "write"];

/// The reply to `db.getLogComponents()`: the verbosity of all, and that of each component, -1 if it inherits it.
fn component_verbosity(log: &Log) -> DocBuf {
    let mut shown = doc! {"verbosity": i32::from(log.verbosity())};
    for (name, component) in log::Component::NAMED {
        let own = log.of_component(component).map_or(-1, i32::from);
        shown.push(name, &doc! {"verbosity": own});
    }
    for name in WITHOUT_LINES {
        shown.push(name, &doc! {"verbosity": -1});
    }
    shown
}

/// Reads `{verbosity: n, command: {verbosity: m}}`, as `db.setLogLevel(n)` and `db.setLogLevel(m, "command")` send it.
fn set_component_verbosity(server: &Server, value: &Value<'_>) -> Result<()> {
    const NAME: &str = "logComponentVerbosity";
    let Value::Document(levels) = value else {
        return Err(Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "the parameter '{NAME}' must be an object, not a {}",
                value.type_name()
            ),
        ));
    };
    let mut level = None;
    let mut of_components = Vec::new();
    for (name, value) in levels.iter() {
        let component = log::Component::NAMED
            .iter()
            .find(|(known, _)| *known == name);
        match (name, value, component) {
            ("verbosity", value, _) => level = Some(number(NAME, &value, -1, 5)?),
            (_, Value::Document(of), Some((_, component))) if !inherits(of) => {
                let own = of.get("verbosity").filter(|_| of.count() == 1);
                let own = own.ok_or_else(|| {
                    Error::not_supported(format!("a part of the log component '{name}'"))
                })?;
                of_components.push((*component, number(NAME, &own, -1, 5)?));
            }
            (_, Value::Document(of), _) if inherits(of) => {
                of_components.extend(component.map(|(_, component)| (*component, -1)));
            }
            _ => {
                return Err(Error::not_supported(format!(
                    "a verbosity of its own for the log component '{name}'"
                )));
            }
        }
    }
    if let Some(level) = level {
        server.log.set_verbosity(u8::try_from(level).unwrap_or(0));
    }
    for (component, level) in of_components {
        server
            .log
            .set_of_component(component, u8::try_from(level).ok());
    }
    Ok(())
}

/// Whether a component and its parts inherit their verbosity.
fn inherits(component: &Doc) -> bool {
    component.iter().all(|(name, value)| match value {
        Value::Document(inner) => inherits(inner),
        value => name == "verbosity" && value.is_number() && whole(&value) == -1,
    })
}

static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "allowDiskUseByDefault",
        get: |server| owned(server.store.queries().disk_use_by_default()),
        set: Some(|server, value| {
            let allowed = boolean("allowDiskUseByDefault", value)?;
            server.store.queries().set_disk_use_by_default(allowed);
            Ok(())
        }),
    },
    Parameter {
        name: "authFailedDelayMs",
        get: |server| owned(server.settings.logins.failed_delay.as_millis() as i32),
        set: None,
    },
    Parameter {
        name: "authenticationMechanisms",
        get: |server| {
            let mut names = ArrayBuf::new();
            for mechanism in server.clients.logins.mechanisms() {
                names.push(mechanism.name());
            }
            OwnedValue::from(Value::Array(&names))
        },
        set: None,
    },
    Parameter {
        // The tools read it before they dump and restore users and roles.
        name: "authSchemaVersion",
        get: |_| owned(AUTH_SCHEMA),
        set: None,
    },
    Parameter {
        name: "cursorTimeoutMillis",
        get: |server| owned(i64::try_from(server.cursor_timeout().as_millis()).unwrap_or(i64::MAX)),
        set: Some(|server, value| {
            let ms = number("cursorTimeoutMillis", value, 1, i64::MAX / 1_000_000)?;
            server.set_cursor_timeout(Duration::from_millis(ms.unsigned_abs()));
            Ok(())
        }),
    },
    Parameter {
        name: "enableGroupAndEval",
        get: |server| owned(server.settings.javascript.has_old_commands),
        set: None,
    },
    Parameter {
        name: "enableLocalhostAuthBypass",
        get: |server| owned(server.settings.logins.localhost_bypass),
        set: None,
    },
    Parameter {
        name: "enableTestCommands",
        get: |server| owned(server.settings.test_commands),
        set: None,
    },
    Parameter {
        name: "expiredChangeStreamPreImageRemovalJobSleepSecs",
        get: |server| {
            let seconds = server.upkeep.oplog.pre_image_period().as_secs();
            owned(i32::try_from(seconds).unwrap_or(i32::MAX))
        },
        set: Some(|server, value| {
            const NAME: &str = "expiredChangeStreamPreImageRemovalJobSleepSecs";
            let seconds = number(NAME, value, 1, i64::from(i32::MAX))?;
            server
                .upkeep
                .oplog
                .set_pre_image_period_secs(seconds.unsigned_abs());
            Ok(())
        }),
    },
    Parameter {
        name: "featureCompatibilityVersion",
        get: |_| owned(&doc! {"version": FEATURE_COMPATIBILITY_VERSION}),
        set: None,
    },
    Parameter {
        name: "largeDocumentBytes",
        get: |server| {
            let bytes = server.settings.large_documents.threshold_bytes;
            owned(if bytes == usize::MAX { 0 } else { bytes as i64 })
        },
        set: None,
    },
    Parameter {
        name: "largeDocumentSegmentBytes",
        get: |server| owned(server.settings.large_documents.segment_bytes as i64),
        set: None,
    },
    query_limit!(
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        QueryLimit::BucketAuto
    ),
    query_limit!(
        "internalDocumentSourceGraphLookupMaxMemoryBytes",
        QueryLimit::GraphLookup
    ),
    query_limit!(
        "internalDocumentSourceGroupMaxMemoryBytes",
        QueryLimit::Group
    ),
    query_limit!(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        QueryLimit::SetWindowFields
    ),
    query_limit!("internalQueryFacetBufferSizeBytes", QueryLimit::Facet),
    query_limit!(
        "internalQueryMaxAllowedDensifyDocs",
        QueryLimit::DensifyDocuments
    ),
    query_limit!(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        QueryLimit::Sort
    ),
    Parameter {
        name: "journalCommitInterval",
        get: |server| owned(server.settings.journal_commit_interval.as_millis() as i64),
        set: None,
    },
    Parameter {
        name: "localLogicalSessionTimeoutMinutes",
        get: |server| owned(server.clients.sessions.timeout_minutes()),
        set: None,
    },
    Parameter {
        name: "logComponentVerbosity",
        get: |server| owned(&component_verbosity(&server.log)),
        set: Some(set_component_verbosity),
    },
    Parameter {
        name: "logLevel",
        get: |server| owned(i32::from(server.log.verbosity())),
        set: Some(|server, value| {
            let level = number("logLevel", value, 0, 5)?;
            server.log.set_verbosity(u8::try_from(level).unwrap_or(0));
            Ok(())
        }),
    },
    Parameter {
        name: "maxBSONObjectSize",
        get: |_| owned(DOCUMENT_BYTES_MAX as i32),
        set: None,
    },
    Parameter {
        name: "maxTransactionLockRequestTimeoutMillis",
        get: |server| owned(server.clients.transaction_lock_wait_ms.load(Relaxed)),
        set: Some(|server, value| {
            let name = "maxTransactionLockRequestTimeoutMillis";
            let ms = number(name, value, -1, i64::from(i32::MAX))?;
            let ms = i32::try_from(ms).unwrap_or(i32::MAX);
            server.clients.transaction_lock_wait_ms.store(ms, Relaxed);
            Ok(())
        }),
    },
    Parameter {
        name: "internalQueryStatsRateLimit",
        get: |server| owned(i32::try_from(server.records.query_stats.rate()).unwrap_or(i32::MAX)),
        set: Some(|server, value| {
            let rate = number(
                "internalQueryStatsRateLimit",
                value,
                -1,
                i64::from(i32::MAX),
            )?;
            server.records.query_stats.set_rate(rate);
            Ok(())
        }),
    },
    Parameter {
        name: "minSnapshotHistoryWindowInSeconds",
        get: |server| {
            let set = server.set.replication.as_ref();
            let window = set.map_or(Moments::default().window(), |set| set.moments.window());
            owned(i32::try_from(window.as_secs()).unwrap_or(i32::MAX))
        },
        set: Some(|server, value| {
            const NAME: &str = "minSnapshotHistoryWindowInSeconds";
            let seconds = number(NAME, value, 0, i64::from(i32::MAX))?;
            let set = server.set.replication.as_ref().ok_or_else(|| {
                Error::bad_value(format!("{NAME} has no effect on a standalone server"))
            })?;
            set.moments.set_window_seconds(seconds.unsigned_abs());
            Ok(())
        }),
    },
    Parameter {
        name: "naturalOrder",
        get: |server| owned(server.settings.natural_order.name()),
        set: None,
    },
    Parameter {
        name: "quiet",
        get: |server| owned(server.settings.quiet),
        set: None,
    },
    Parameter {
        name: "redactClientLogData",
        get: |server| owned(server.log.redacts()),
        set: Some(|server, value| {
            server
                .log
                .set_redacts(boolean("redactClientLogData", value)?);
            Ok(())
        }),
    },
    iterations!("scramIterationCount", Mechanism::Sha1),
    iterations!("scramSHA256IterationCount", Mechanism::Sha256),
    Parameter {
        name: "slowOpThresholdMs",
        get: |server| owned(server.slow_operation().as_millis() as i64),
        set: Some(|server, value| {
            let ms = number("slowOpThresholdMs", value, 0, i64::from(i32::MAX))?;
            server.set_slow_operation(Duration::from_millis(ms.unsigned_abs()));
            Ok(())
        }),
    },
    Parameter {
        name: "tlsMode",
        get: |_| owned("disabled"),
        set: None,
    },
    Parameter {
        name: "jsHeapLimitMB",
        get: |server| {
            let engine = server.execution.javascript.as_ref();
            let bytes = engine.map_or(0, |engine| engine.heap_each());
            owned(i32::try_from(bytes >> 20).unwrap_or(i32::MAX))
        },
        set: Some(|server, value| {
            let mib = number("jsHeapLimitMB", value, 1, 1 << 20)?;
            if let Some(engine) = &server.execution.javascript {
                engine.set_heap_each(scripting::bytes(u32::try_from(mib).unwrap_or(u32::MAX)));
            }
            Ok(())
        }),
    },
    Parameter {
        name: "transactionLifetimeLimitSeconds",
        get: |server| {
            let seconds = server.clients.sessions.transaction_lifetime().as_secs();
            owned(i32::try_from(seconds).unwrap_or(i32::MAX))
        },
        set: Some(|server, value| {
            let name = "transactionLifetimeLimitSeconds";
            let seconds = number(name, value, 1, i64::from(i32::MAX))?.unsigned_abs();
            (server.clients.sessions).set_transaction_lifetime(Duration::from_secs(seconds));
            Ok(())
        }),
    },
    Parameter {
        name: "ttlMonitorEnabled",
        get: |server| owned(server.upkeep.ttl.is_enabled()),
        set: Some(|server, value| {
            server.upkeep.ttl.enable(value.truthy());
            Ok(())
        }),
    },
    Parameter {
        name: "ttlMonitorSleepSecs",
        get: |server| owned(i32::try_from(server.upkeep.ttl.sleep_secs()).unwrap_or(i32::MAX)),
        set: Some(|server, value| {
            let seconds = number("ttlMonitorSleepSecs", value, 1, i64::from(i32::MAX))?;
            server.upkeep.ttl.set_sleep_secs(seconds.unsigned_abs());
            Ok(())
        }),
    },
];

fn all_parameters() -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().chain(tooling::TOOLING)
}

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
        for parameter in all_parameters() {
            if !all && !cx.body.contains_key(parameter.name) {
                continue;
            }
            let value = (parameter.get)(cx.server);
            if details {
                reply.push_doc(parameter.name, |out| {
                    out.push("value", &value);
                    out.push("settableAtRuntime", parameter.set.is_some());
                    out.push(
                        "settableAtStartup",
                        settings::parameter(parameter.name).is_some(),
                    );
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
            let parameter = all_parameters()
                .find(|parameter| parameter.name == name)
                .ok_or_else(unknown)?;
            let set = parameter.set.ok_or_else(|| {
                Error::new(
                    ErrorCode::IllegalOperation,
                    format!("not allowed to change [{name}] at runtime"),
                )
            })?;
            let was = (parameter.get)(cx.server);
            set(cx.server, &value)?;
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

    use super::*;
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
            assert_eq!(
                server.run("admin", command).count(),
                all_parameters().count() + 1
            );
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
        for parameter in all_parameters() {
            let shown = reply.get_doc(parameter.name).unwrap();
            // A value that no parameter accepts: the error shows whether the parameter exists.
            let given = format!("{}=no value", parameter.name);
            let startup = match settings::from_parameter(&given) {
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
        assert!(log.wants(Component::Query, crate::log::Severity::Debug(3)));
        assert!(!log.wants(Component::Command, crate::log::Severity::Debug(2)));
        assert!(log.wants(Component::Network, crate::log::Severity::Debug(2)));
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
}
