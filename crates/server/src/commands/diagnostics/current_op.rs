//! `currentOp`: the running operations.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::Environment;
use frond_query::matcher::Filter;

use crate::arguments::Arguments;
use crate::authorization::{Action, Caller, Needs, Requested, UserName};
use crate::commands::spec::{Command, Spec};
use crate::connection::{Connection, Peer};
use crate::context::Context;
use crate::fail_points::SwitchName;
use crate::host::clock::now_ms;
use crate::observability::log;
use crate::sessions::Open;
use crate::shown_command::short_command;
use crate::state::Server;
use crate::transactions::read_concern;

/// Fields that are not conditions on an operation: those of the command, and those that all commands share.
const NOT_CONDITIONS: [&str; 17] = [
    "currentOp",
    "currentop",
    "$all",
    "$ownOps",
    "$truncateOps",
    "$db",
    "lsid",
    "comment",
    "$clusterTime",
    "$readPreference",
    "$queryOptions",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
];

pub struct CurrentOp;

const SPEC: Spec = Spec {
    names: &["currentOp", "currentop"],
    doc: "Lists the running operations.",
    admin_only: true,
    // The fields are conditions.
    takes_any_field: true,
    ..Spec::CHEAP
};

impl Command for CurrentOp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let own = request.body.get("$ownOps");
        if own.is_some_and(|own| own.truthy()) {
            Ok(Needs::LoggedIn)
        } else {
            Ok(Needs::cluster(Action::Inprog))
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut conditions = DocBuf::new();
        for (name, value) in cx.body.iter().skip(1) {
            if !NOT_CONDITIONS.contains(&name) {
                conditions.push(name, value);
            }
        }
        let environment = Environment {
            now_ms: now_ms(),
            ..Environment::default()
        };
        let filter = Filter::parse_for_list(&conditions, &environment)?;
        let only_own = cx.args().flag("$ownOps")?.unwrap_or(false);
        let shown = ListingOptions {
            owner: only_own.then_some(cx.caller),
            idle_connections: cx.args().flag("$all")?.unwrap_or(false),
            idle_cursors: false,
            idle_sessions: true,
            truncates: cx.args().flag("$truncateOps")?.unwrap_or(true),
        };
        let mut reply = DocBuf::new();
        reply.push_array("inprog", |list| {
            for operation in operations(cx.server, &shown) {
                if filter.matches(&operation) {
                    list.push(&operation);
                }
            }
        });
        if cx.server.maintenance.fsync_lock.count() > 0 {
            reply.push("fsyncLock", true);
            let info = "use db.fsyncUnlock() to terminate the fsync write/snapshot lock";
            reply.push("info", info);
        }
        Ok(reply)
    }
}

/// Options of the aggregation stage `$currentOp`.
pub fn stage(server: &Server, caller: &Caller, spec: &Doc) -> Result<Vec<DocBuf>> {
    const KNOWN: [&str; 8] = [
        "allUsers",
        "idleConnections",
        "idleCursors",
        "idleSessions",
        "localOps",
        "truncateOps",
        "backtrace",
        "targetAllNodes",
    ];
    let args = Arguments::new("$currentOp", spec);
    args.only(&KNOWN)?;
    for name in KNOWN {
        args.bool(name)?;
    }
    let on = |name| Ok::<_, Error>(args.bool(name)?.unwrap_or(false));
    if on("targetAllNodes")? {
        return Err(Error::new(
            ErrorCode::FailedToParse,
            "$currentOp supports targetAllNodes parameter only for sharded clusters",
        ));
    }
    let shown = ListingOptions {
        owner: (!on("allUsers")?).then_some(caller),
        idle_connections: on("idleConnections")?,
        idle_cursors: on("idleCursors")?,
        idle_sessions: args.bool("idleSessions")?.unwrap_or(true),
        truncates: on("truncateOps")?,
    };
    Ok(operations(server, &shown))
}

/// Options of the listing: what it includes besides running operations, and how commands are shown.
struct ListingOptions<'a> {
    /// The only user whose operations are shown.
    owner: Option<&'a Caller>,
    idle_connections: bool,
    idle_cursors: bool,
    /// Sessions whose transaction is open between two statements.
    idle_sessions: bool,
    /// Long commands are reduced to their short fields.
    truncates: bool,
}

impl ListingOptions<'_> {
    /// Whether the operations of a user are listed.
    fn is_of(&self, user: Option<&UserName>) -> bool {
        self.owner.is_none_or(|owner| owner.is(user))
    }

    fn command<'a>(&self, kept: &'a Doc) -> Cow<'a, Doc> {
        if self.truncates {
            Cow::Owned(short_command(kept))
        } else {
            Cow::Borrowed(kept)
        }
    }
}

fn operations(server: &Server, shown: &ListingOptions<'_>) -> Vec<DocBuf> {
    let mut list = Vec::new();
    for connection in server.clients.connections.list() {
        if let Some(operation) = describe(server, &connection, shown) {
            list.push(operation);
        }
    }
    if shown.idle_sessions {
        let open = server.clients.sessions.open_transactions();
        let idle = open.iter().filter(|open| {
            let is_own = |owner: &Caller| owner.owns(open.session);
            !open.activity().is_active() && shown.owner.is_none_or(is_own)
        });
        list.extend(idle.map(|open| idle_session(server, open)));
    }
    if shown.idle_cursors {
        for cursor in server.clients.cursors.list().into_iter().filter(|cursor| {
            let owner = cursor.owner.as_ref().map(|owner| &owner.user);
            !cursor.in_use && shown.is_of(owner)
        }) {
            let mut out = doc! {
                "type": "idleCursor",
                "host": server.host_and_port(),
                "ns": &cursor.namespace,
                "cursor": {
                    "cursorId": cursor.id,
                    "noCursorTimeout": cursor.no_timeout,
                    "originatingCommand": &*shown.command(&cursor.originating),
                },
            };
            if let Some(session) = cursor.session {
                out.push("lsid", &session.to_doc());
            }
            list.push(out);
        }
    }
    list
}

/// A session whose transaction waits for its next statement.
fn idle_session(server: &Server, open: &Open) -> DocBuf {
    let mut out = doc! {
        "type": "idleSession",
        "host": server.host_and_port(),
        "desc": "inactive transaction",
    };
    out.push_all(&open.client);
    out.push("lsid", &open.session.to_doc());
    out.push("active", false);
    out.push("waitingForLock", false);
    out.push("transaction", &transaction(open));
    out
}

/// The section `transaction` of an operation.
fn transaction(open: &Open) -> DocBuf {
    let now = Instant::now();
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let took = now.saturating_duration_since(open.started);
    let active = open.activity().active_for(now);
    doc! {
        "parameters": {
            "txnNumber": open.number, "autocommit": false, "readConcern": &read_concern(open),
        },
        "startWallClockTime": log::iso_ms(open.started_ms),
        "timeOpenMicros": micros(took),
        "timeActiveMicros": micros(active),
        "timeInactiveMicros": micros(took.saturating_sub(active)),
        "expiryTime": log::iso_ms(open.started_ms.saturating_add(ms(open.lifetime))),
        "bytes": i64::try_from(open.transaction.bytes()).unwrap_or(i64::MAX),
    }
}

fn describe(
    server: &Server,
    connection: &Connection,
    shown: &ListingOptions<'_>,
) -> Option<DocBuf> {
    let user = connection.identity.lock().clone();
    let user = user.as_ref().map(|user| &user.name);
    if !shown.is_of(user) {
        return None;
    }
    let running = connection.running.lock();
    if !running.active && !shown.idle_connections {
        return None;
    }
    let mut out = doc! {
        "type": "op",
        "host": server.host_and_port(),
        "desc": &connection.name,
        "connectionId": connection.id,
        "currentOpTime": log::iso_ms(now_ms()),
        "threaded": true,
    };
    if let Peer::Tcp(address) = &connection.peer {
        out.push("client", &address.to_string());
    }
    if let Some(name) = connection.application() {
        out.push("appName", name);
    }
    if let Some(client) = connection.client.get() {
        out.push("clientMetadata", client);
    }
    if let Some(user) = user {
        let user = doc! {"user": &user.name, "db": &user.db};
        out.push_array("effectiveUsers", |users| users.push(&user));
    }
    out.push("active", running.active);
    if running.active {
        let micros = running
            .started
            .map_or(0, |at| at.elapsed().as_micros() as i64);
        out.push("opid", running.id);
        if let Some(session) = running.session {
            out.push("lsid", &session.to_doc());
            if let Some(open) = running.transaction.and_then(|number| {
                let open = server.clients.sessions.open_transaction(session)?;
                (open.number == number).then_some(open)
            }) {
                out.push("transaction", &transaction(&open));
            }
        }
        out.push("secs_running", micros / 1_000_000);
        out.push("microsecs_running", micros);
        out.push("op", running.kind);
        let waits_for = running.waits_for.or(connection.commit_waits.get());
        out.push("waitingForLock", waits_for.is_some());
        if let Some(what) = waits_for {
            // MongoDB shows the name of a fail point here, if the operation waits at one.
            if SwitchName::find(what).is_some() {
                out.push("msg", what);
            }
            out.push("waitingFor", what);
        }
        out.push("ns", &running.namespace);
        out.push("command", &*shown.command(&running.command_doc()));
        if let Some((summary, hashes)) = connection.plan.get() {
            out.push("planSummary", summary.as_str());
            if let Some(hashes) = hashes {
                out.push("queryHash", hashes.shape.as_str());
                out.push("planCacheShapeHash", hashes.shape.as_str());
                out.push("planCacheKey", hashes.key.as_str());
                out.push("queryFramework", "classic");
            }
        }
        out.push("numYields", 0);
        let mode = if running.writes { "w" } else { "r" };
        out.push("locks", &doc! {"Global": mode});
        out.push("waitingForFlowControl", false);
        let waited = waits_for.is_some_and(|what| what.ends_with("ticket"));
        let waited = if waited { micros } else { 0 };
        out.push(
            "lockStats",
            &doc! {"Global": {"acquireCount": {mode: 1i64}, "timeAcquiringMicros": {mode: waited}}},
        );
        if let Some((step, done, total)) = running.progress.as_ref().and_then(|shown| shown.get()) {
            // The estimate of the total may be too low.
            let total = total.max(done);
            let percent = (done * 100).checked_div(total).unwrap_or(100);
            out.push("msg", &format!("{step}: {done}/{total} {percent}%"));
            let progress = doc! {"done": done as i64, "total": total as i64};
            out.push("progress", &progress);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_command_sees_itself() {
        let mut server = TestServer::new();
        let reply = server.run("admin", doc! {"currentOp": 1});
        let first = reply
            .get_array("inprog")
            .and_then(|list| list.get_doc("0"))
            .unwrap()
            .to_owned();
        assert_eq!(
            (first.get_bool("active"), first.get_str("ns")),
            (Some(true), Some("admin.$cmd"))
        );
        let command = first.get_doc("command").unwrap();
        assert_eq!(command.get_i32("currentOp"), Some(1));

        let none = server.run("admin", doc! {"currentOp": 1, "secs_running": {"$gt": 100}});
        assert!(none.get_array("inprog").unwrap().is_empty());
        assert_eq!(
            server.code("admin", doc! {"currentOp": 1, "a": {"$nonsense": 1}}),
            2
        );
        assert_eq!(
            stage(
                &server.server,
                &Caller::unchecked(),
                &doc! {"idleConnections": true}
            )
            .unwrap()
            .len(),
            1
        );
        assert!(stage(&server.server, &Caller::unchecked(), &doc! {"x": true}).is_err());
    }

    /// Mongosh sends `truncateOps: false`.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_commands_are_truncated_on_request() {
        let mut server = TestServer::new();
        let comment = "x".repeat(5000);
        // Whether the long comment of the command `currentOp` itself is shown.
        let mut shows = |stage: Option<DocBuf>, command: DocBuf| {
            let command = match stage {
                Some(spec) => doc! {
                    "aggregate": 1, "pipeline": [{"$currentOp": spec}], "cursor": {}, "comment": &comment,
                },
                None => {
                    let mut command = command;
                    command.push("comment", &*comment);
                    command
                }
            };
            let reply = format!("{:?}", server.run("admin", command));
            assert_ne!(reply.contains(&comment), reply.contains("$truncated"));
            reply.contains(&comment)
        };
        let none = || doc! {};
        assert!(shows(Some(doc! {"truncateOps": false}), none()));
        assert!(shows(
            Some(doc! {"allUsers": true, "backtrace": true}),
            none()
        ));
        assert!(!shows(Some(doc! {"truncateOps": true}), none()));
        // The command truncates by default.
        assert!(!shows(None, doc! {"currentOp": 1}));
        assert!(shows(None, doc! {"currentOp": 1, "$truncateOps": false}));

        // The commands of idle cursors are truncated too.
        server.fill("c", 5);
        let find = doc! {"find": "c", "batchSize": 1, "comment": &comment};
        server.run("test", find);
        for (truncates, whole) in [(true, false), (false, true)] {
            let spec = doc! {"idleCursors": true, "truncateOps": truncates};
            let listed = stage(&server.server, &Caller::unchecked(), &spec).unwrap();
            let cursor = listed
                .iter()
                .find(|entry| entry.get_str("type") == Some("idleCursor"))
                .unwrap();
            let command = cursor.get_doc("cursor").unwrap();
            let command = command.get_doc("originatingCommand").unwrap();
            assert_eq!(command.get_str("find"), Some("c"));
            assert_eq!(command.get_str("comment").is_some(), whole);
        }
        for (spec, code) in [
            (doc! {"truncateOps": 1}, 14),
            (doc! {"targetAllNodes": true}, 9),
            (doc! {"x": true}, 40415),
        ] {
            let failure = stage(&server.server, &Caller::unchecked(), &spec).unwrap_err();
            assert_eq!(failure.code().code(), code, "{spec:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_index_build_shows_how_far_it_has_come() {
        let server = TestServer::new();
        let connection = server.server.clients.connections.list().remove(0);
        let progress = Arc::new(frond_store::Progress::default());
        {
            let mut running = connection.running.lock();
            running.active = true;
            running.progress = Some(progress.clone());
        }
        let shown = ListingOptions {
            owner: None,
            idle_connections: false,
            idle_sessions: false,
            idle_cursors: false,
            truncates: true,
        };
        let described = || describe(&server.server, &connection, &shown).unwrap();
        assert_eq!(described().get_str("msg"), None);
        progress.set("Index Build: scanning collection", 300, 1200);
        let shown = described();
        let message = "Index Build: scanning collection: 300/1200 25%";
        assert_eq!(shown.get_str("msg"), Some(message));
        let progress = shown.get_doc("progress").unwrap();
        assert_eq!(progress, &*doc! {"done": 300i64, "total": 1200i64});
    }
}
