//! `currentOp`: what runs now.

use frond_bson::{Doc, DocBuf, doc};
use frond_query::matcher::Filter;

use super::{Command, Traits};
use crate::arguments::Arguments;
use crate::connection::{Connection, Peer};
use crate::context::Context;
use crate::failure::Result;
use crate::state::Server;

/// Fields that are not conditions on an operation.
const NOT_CONDITIONS: [&str; 12] = [
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
    "maxTimeMS",
    "apiVersion",
];

/// Lists the operations that run now.
pub struct CurrentOp;

impl Command for CurrentOp {
    fn names(&self) -> &'static [&'static str] {
        &["currentOp", "currentop"]
    }

    fn doc(&self) -> &'static str {
        "Lists the operations that run now."
    }

    fn traits(&self) -> Traits {
        // The fields are conditions.
        Traits {
            takes_any_field: true,
            ..Traits::CHEAP.admin()
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut conditions = DocBuf::new();
        for (name, value) in cx.body.iter().skip(1) {
            if !NOT_CONDITIONS.contains(&name) {
                conditions.push(name, value);
            }
        }
        let filter = Filter::parse(&conditions)?;
        let idle = cx.args().flag("$all")?.unwrap_or(false);
        let mut reply = DocBuf::new();
        reply.push_array("inprog", |list| {
            for operation in operations(cx.server, idle, false) {
                if filter.matches(&operation) {
                    list.push(&operation);
                }
            }
        });
        Ok(reply)
    }
}

/// Options of the aggregation stage `$currentOp`.
pub fn stage(server: &Server, spec: &Doc) -> Result<Vec<DocBuf>> {
    const KNOWN: [&str; 7] = [
        "allUsers",
        "idleConnections",
        "idleCursors",
        "idleSessions",
        "localOps",
        "backtrace",
        "targetAllNodes",
    ];
    let args = Arguments::new("$currentOp", spec);
    args.only(&KNOWN)?;
    for name in KNOWN {
        args.bool(name)?;
    }
    let idle = args.bool("idleConnections")?.unwrap_or(false);
    let cursors = args.bool("idleCursors")?.unwrap_or(false);
    Ok(operations(server, idle, cursors))
}

/// Operations that run, connections that are idle if asked for, and cursors that wait if asked for.
fn operations(server: &Server, idle_connections: bool, idle_cursors: bool) -> Vec<DocBuf> {
    let mut list = Vec::new();
    for connection in server.connections.list() {
        if let Some(operation) = describe(server, &connection, idle_connections) {
            list.push(operation);
        }
    }
    if idle_cursors {
        for cursor in server
            .cursors
            .list()
            .into_iter()
            .filter(|cursor| !cursor.in_use)
        {
            let mut out = doc! {
                "type": "idleCursor",
                "host": server.host_and_port(),
                "ns": &cursor.namespace,
                "cursor": {
                    "cursorId": cursor.id,
                    "noCursorTimeout": cursor.no_timeout,
                    "originatingCommand": &cursor.originating,
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

fn describe(server: &Server, connection: &Connection, idle: bool) -> Option<DocBuf> {
    let running = connection.running.lock();
    if !running.active && !idle {
        return None;
    }
    let mut out = doc! {
        "type": "op",
        "host": server.host_and_port(),
        "desc": &connection.name,
        "connectionId": connection.id,
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
    out.push("active", running.active);
    if running.active {
        let micros = running
            .started
            .map_or(0, |at| at.elapsed().as_micros() as i64);
        out.push("opid", running.id);
        if let Some(session) = running.session {
            out.push("lsid", &session.to_doc());
        }
        out.push("secs_running", micros / 1_000_000);
        out.push("microsecs_running", micros);
        out.push("op", running.kind);
        out.push("ns", &running.namespace);
        out.push("command", &running.command_doc());
        if let Some((step, done, total)) = running.progress.as_ref().and_then(|shown| shown.get()) {
            // Estimates of the total may be too low.
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
            stage(&server.server, &doc! {"idleConnections": true})
                .unwrap()
                .len(),
            1
        );
        assert!(stage(&server.server, &doc! {"x": true}).is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_index_build_shows_how_far_it_has_come() {
        let server = TestServer::new();
        let connection = server.server.connections.list().remove(0);
        let progress = Arc::new(frond_store::Progress::default());
        {
            let mut running = connection.running.lock();
            running.active = true;
            running.progress = Some(progress.clone());
        }
        let described = || describe(&server.server, &connection, false).unwrap();
        assert_eq!(described().get_str("msg"), None);
        progress.set("Index Build: scanning collection", 300, 1200);
        let shown = described();
        let message = "Index Build: scanning collection: 300/1200 25%";
        assert_eq!(shown.get_str("msg"), Some(message));
        let progress = shown.get_doc("progress").unwrap();
        assert_eq!(progress, &*doc! {"done": 300i64, "total": 1200i64});
    }
}
