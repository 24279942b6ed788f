//! `hello`: the handshake, and the heartbeat with which drivers monitor the server.

use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::check_database_name;
use frond_wire::{Compressor, MAX_MESSAGE_BYTES};

use crate::arguments::{Arguments, whole};
use crate::authentication::{log_in_by_certificate, sasl_start, supported_mechanisms};
use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use crate::limits::{DOCUMENT_BYTES_MAX, WRITE_BATCH_MAX};
use crate::observability::log::Component;
use crate::outcome::{Outcome, TopologyWait, Wait};
use crate::state::Server;

/// The newest supported wire version: that of MongoDB 8.0.
pub const WIRE_VERSION_MAX: i32 = 25;

/// The oldest supported wire version: that of MongoDB 2.4 and before, with the legacy opcodes.
pub const WIRE_VERSION_MIN: i32 = 0;

/// Most bytes of client metadata.
const CLIENT_BYTES_MAX: usize = 512;

/// Most bytes of an application name.
const APPLICATION_BYTES_MAX: usize = 128;

pub struct Hello;

const SPEC: Spec = Spec {
    names: &["hello", "isMaster", "ismaster"],
    doc: "The handshake: describes the server and its limits.",
    stable_api: true,
    in_transactions: InTransactions::Later,
    // A newer driver may send fields that are unknown today.
    takes_any_field: true,
    secrets: &["speculativeAuthenticate"],
    ..Spec::CHEAP
};

impl Command for Hello {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn start(&self, cx: &mut Context<'_>) -> Result<Outcome> {
        if let Some(client) = cx.args().doc_field("client")? {
            remember_client(cx, client)?;
        }
        if let Some(wait) = heartbeat(cx)? {
            return Ok(Outcome::Wait(Wait::Topology(wait)));
        }
        let mut reply = describe(cx);
        log_in(cx, &mut reply)?;
        cx.state.greeted = true;
        Ok(Outcome::Reply(reply))
    }

    fn resume(&self, cx: &mut Context<'_>, _: Wait) -> Result<Outcome> {
        cx.exhaust.more_to_come = cx.exhaust.allowed;
        let reply = describe(cx);
        cx.state.greeted = true;
        Ok(Outcome::Reply(reply))
    }
}

/// The description of the server.
fn describe(cx: &mut Context<'_>) -> DocBuf {
    let old_name = cx.body.first().is_some_and(|(name, _)| name != "hello");

    let mut reply = DocBuf::new();
    if cx.args().flag("helloOk").unwrap_or(None).unwrap_or(false) {
        reply.push("helloOk", true);
    }
    let version = cx.server.topology_version();
    if cx.exhaust.more_to_come {
        cx.exhaust.topology_sent = version.get_i64("counter");
    }
    reply.push("topologyVersion", &version);
    let role = if old_name {
        "ismaster"
    } else {
        "isWritablePrimary"
    };
    describe_role(cx.server, role, &mut reply);
    reply.push("maxBsonObjectSize", DOCUMENT_BYTES_MAX as i32);
    reply.push("maxMessageSizeBytes", MAX_MESSAGE_BYTES as i32);
    reply.push("maxWriteBatchSize", WRITE_BATCH_MAX as i32);
    reply.push("localTime", Value::DateTime(now_ms()));
    reply.push(
        "logicalSessionTimeoutMinutes",
        cx.server.clients.sessions.timeout_minutes(),
    );
    reply.push(
        "connectionId",
        i32::try_from(cx.connection.id).unwrap_or(i32::MAX),
    );
    reply.push("minWireVersion", WIRE_VERSION_MIN);
    reply.push("maxWireVersion", WIRE_VERSION_MAX);
    reply.push("readOnly", false);
    negotiate_compression(cx, &mut reply);
    reply
}

/// Stores the client metadata, which a driver may send once.
fn remember_client(cx: &mut Context<'_>, client: &Doc) -> Result<()> {
    if cx.state.greeted {
        return Err(Error::new(
            ErrorCode::ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    if client.len_bytes() > CLIENT_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ClientMetadataDocumentTooLarge,
            format!(
                "The client metadata document must be less then or equal to {CLIENT_BYTES_MAX} bytes"
            ),
        ));
    }
    let application = client
        .get_doc("application")
        .and_then(|app| app.get_str("name"));
    if application.is_some_and(|name| name.len() > APPLICATION_BYTES_MAX) {
        return Err(Error::new(
            ErrorCode::ClientMetadataAppNameTooLarge,
            format!(
                "The 'client.application.name' field must be less then or equal to \
                 {APPLICATION_BYTES_MAX} bytes in length"
            ),
        ));
    }
    let is_first = cx.connection.client.set(client.to_owned()).is_ok();
    if let Some(audit) = cx.server.audit.as_ref().filter(|_| is_first) {
        audit.record_client(cx.connection, cx.state.identity.as_deref(), client);
    }
    if is_first && !cx.server.settings.quiet {
        let attributes = doc! {
            "remote": cx.connection.peer.to_string(), "client": &cx.connection.name, "doc": client,
        };
        cx.server.log.info(
            Component::Network,
            51800,
            &cx.connection.name,
            "client metadata",
            &attributes,
        );
    }
    Ok(())
}

/// Whether the server is the primary of a replica set, and which set that is. `role` is the name of the field for it.
pub fn describe_role(server: &Server, role: &str, reply: &mut DocBuf) {
    let Some(set) = &server.set.replication else {
        reply.push(role, true);
        return;
    };
    match set.member() {
        Some(_) if set.is_router() => {
            reply.push(role, true);
            reply.push("msg", "isdbgrid");
        }
        Some(member) => {
            let is_legacy = role == "ismaster";
            member.describe(set.last_write(), set.durable(), is_legacy, reply);
        }
        None => frond_replset::describe_absent(role == "ismaster", reply),
    }
}

/// A driver that sends the current topology version waits for a newer one, or until its time is over; with exhaust the
/// next reply follows without a request.
fn heartbeat(cx: &mut Context<'_>) -> Result<Option<TopologyWait>> {
    let version = cx.args().doc_field("topologyVersion")?;
    let time = cx.args().get("maxAwaitTimeMS");
    let (version, time) = match (version, time) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(Error::location(
                31371,
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
            ));
        }
        (Some(_), None) => {
            return Err(Error::location(
                31368,
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            ));
        }
        (Some(version), Some(time)) => (version, time),
    };
    let time = Some(time)
        .filter(Value::is_number)
        .and_then(|time| u64::try_from(whole(&time)).ok())
        .ok_or_else(|| Error::location(31373, "maxAwaitTimeMS must be a non-negative integer"))?;
    let process = version.get_object_id("processId").ok_or_else(|| {
        Error::new(
            ErrorCode::IDLFailedToParse,
            "BSON field 'TopologyVersion.processId' is missing but a required field",
        )
    })?;
    // An exhaust reply answers the one before it.
    let counter = cx.exhaust.topology_sent;
    let counter = counter.unwrap_or_else(|| version.get_i64("counter").unwrap_or(0));
    if process != cx.server.instance.process_id {
        // The driver has the version of an earlier run of this server, so reply at once.
        return Ok(None);
    }
    // The receiver sees every change after this.
    let topology = cx.server.set.replication.as_ref().map(|set| set.topology());
    let current = topology.as_ref().map_or(0, |topology| *topology.borrow());
    if counter > current {
        return Err(Error::location(
            31382,
            format!(
                "Received a topology version with counter: {counter} which is greater than the \
                 server topology version counter: {current}"
            ),
        ));
    }
    if counter < current {
        cx.exhaust.more_to_come = cx.exhaust.allowed;
        return Ok(None);
    }
    let until = Instant::now() + Duration::from_millis(time.min(i32::MAX as u64));
    Ok(Some(TopologyWait { topology, until }))
}

/// The part of the handshake that is about logins: the mechanisms of a user, and the first message of a login. Such a
/// login that fails is as if it had not begun.
fn log_in(cx: &mut Context<'_>, reply: &mut DocBuf) -> Result<()> {
    let args = cx.args();
    if let Some(user) = args.str("saslSupportedMechs")? {
        supported_mechanisms(cx, user, reply)?;
    }
    let Some(begun) = args.doc_field("speculativeAuthenticate")? else {
        return Ok(());
    };
    let args = Arguments::new("speculativeAuthenticate", begun);
    let outcome = match (begun.first().map(|(name, _)| name), args.str("db")) {
        (Some("saslStart"), Ok(Some(db))) => {
            // The database of saslStart itself is checked with that of every command.
            if db != "$external" {
                check_database_name(db)?;
            }
            sasl_start(cx, db, &args, true)
        }
        (Some("authenticate"), Ok(db)) if args.get("mechanism") == Some(X509) => {
            log_in_by_certificate(cx, db.unwrap_or("$external"), &args, true)
        }
        (Some("saslStart" | "authenticate"), _) => return Ok(()),
        _ => {
            return Err(Error::location(
                51_769,
                "hello.speculativeAuthenticate has to begin with saslStart or authenticate",
            ));
        }
    };
    if let Ok(answer) = outcome {
        reply.push("speculativeAuthenticate", &answer);
    }
    Ok(())
}

/// The value of the field `mechanism` of a login by a certificate.
const X509: Value<'static> = Value::String("MONGODB-X509");

/// Compressors that both sides support, in the order of the client's preference.
fn negotiate_compression(cx: &mut Context<'_>, reply: &mut DocBuf) {
    let Some(names) = cx.body.get_array("compression") else {
        return;
    };
    let both: Vec<Compressor> = names
        .values()
        .filter_map(|name| Compressor::from_name(name.as_str()?))
        .filter(|compressor| cx.server.settings.compressors.contains(compressor))
        .collect();
    if !both.is_empty() {
        reply.push_array("compression", |list| {
            for compressor in &both {
                list.push(compressor.name());
            }
        });
    }
    cx.state.compressors = both;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::operation::Exhaust;
    use crate::testing::{TestServer, on_other_connection};

    #[tokio::test(flavor = "multi_thread")]
    async fn the_old_and_the_new_name_differ_in_one_field() {
        let mut server = TestServer::new();
        let new = server.run(
            "admin",
            doc! {"hello": 1, "saslSupportedMechs": "a.b", "new": 1},
        );
        assert_eq!(new.get_bool("isWritablePrimary"), Some(true));
        assert_eq!(
            (new.get_i32("minWireVersion"), new.get_i32("maxWireVersion")),
            (Some(0), Some(25))
        );
        assert_eq!(new.get_i32("maxBsonObjectSize"), Some(16_777_216));
        assert_eq!(new.get_i32("maxMessageSizeBytes"), Some(48_000_000));
        assert_eq!(new.get_i32("maxWriteBatchSize"), Some(100_000));
        assert_eq!(new.get("helloOk"), None);
        for name in ["isMaster", "ismaster"] {
            let mut command = DocBuf::new();
            command.push(name, 1);
            command.push("helloOk", true);
            let old = server.run("admin", command);
            assert_eq!(
                (old.get_bool("ismaster"), old.get_bool("helloOk")),
                (Some(true), Some(true))
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_client_introduces_itself_once() {
        let mut server = TestServer::new();
        let long = "x".repeat(600);
        assert_eq!(
            server.code("admin", doc! {"hello": 1, "client": {"x": &long}}),
            185
        );
        let name = "x".repeat(200);
        assert_eq!(
            server.code(
                "admin",
                doc! {"hello": 1, "client": {"application": {"name": &name}}}
            ),
            184
        );
        server.run(
            "admin",
            doc! {"hello": 1, "client": {"application": {"name": "shop"}}},
        );
        assert_eq!(server.connection.application(), Some("shop"));
        assert_eq!(server.code("admin", doc! {"hello": 1, "client": {}}), 186);
        server.run("admin", doc! {"hello": 1});
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn compressors_are_negotiated() {
        let mut server = TestServer::new();
        let reply = server.run(
            "admin",
            doc! {"hello": 1, "compression": ["lz4", "zlib", "snappy"]},
        );
        let names: Vec<_> = reply
            .get_array("compression")
            .unwrap()
            .values()
            .filter_map(|v| v.as_str())
            .collect();
        assert_eq!(names, ["zlib", "snappy"]);
        let reply = server.run("admin", doc! {"hello": 1, "compression": ["lz4"]});
        assert_eq!(reply.get("compression"), None);
    }

    /// The message of an exhaust command is handled again with the counter it came with.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_exhaust_heartbeat_gets_one_reply_for_a_change() {
        let mut server = TestServer::member("rs0");
        let version = server.server.topology_version();
        let command = doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 10_000};
        let counter = |reply: &DocBuf| reply.get_doc("topologyVersion")?.get_i64("counter");
        let mut exhaust = Exhaust {
            allowed: true,
            ..Exhaust::default()
        };
        let other = server.server.clone();
        let initiate = doc! {"replSetInitiate": {}};
        let changed = server.answer_after("admin", &command, &mut exhaust, |wait| {
            assert!(matches!(wait, Wait::Topology(_)));
            on_other_connection(&other, "admin", &initiate);
        });
        assert_eq!(
            (changed.more_to_come, counter(&changed.reply)),
            (true, Some(1))
        );
        // The next reply waits for a newer version than that of the last one.
        let soon = doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 1};
        let mut waits = 0;
        server.answer_after("admin", &soon, &mut exhaust, |_| waits += 1);
        assert_eq!(waits, 1);
        // A new message with the old counter is answered at once.
        exhaust.topology_sent = None;
        let behind = server.answer_after("admin", &soon, &mut exhaust, |_| waits += 1);
        assert_eq!(
            (behind.more_to_come, counter(&behind.reply)),
            (true, Some(1))
        );
        assert_eq!(waits, 1);
        server.answer_after("admin", &soon, &mut exhaust, |_| waits += 1);
        assert_eq!(waits, 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_heartbeat_waits_for_a_change() {
        let mut server = TestServer::new();
        let version = server.server.topology_version();
        let command = doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 50};
        for exhaust in [true, false] {
            let began = Instant::now();
            let answer = server.answer("admin", &command, exhaust);
            assert!(began.elapsed() >= Duration::from_millis(50));
            assert_eq!(answer.more_to_come, exhaust);
            assert_eq!(answer.reply.get_doc("topologyVersion"), Some(&*version));
        }
        let other = doc! {"processId": frond_bson::ObjectId::new(), "counter": 7i64};
        let command = doc! {"hello": 1, "topologyVersion": &other, "maxAwaitTimeMS": 50};
        let mut exhaust = Exhaust {
            allowed: true,
            ..Exhaust::default()
        };
        let answer = server.answer_after("admin", &command, &mut exhaust, |_| panic!("it waits"));
        assert!(!answer.more_to_come);
        assert!(answer.reply.contains_key("topologyVersion"));

        let ahead = doc! {"processId": server.server.instance.process_id, "counter": 7i64};
        let cases = [
            (doc! {"hello": 1, "maxAwaitTimeMS": 5}, 31371),
            (doc! {"hello": 1, "topologyVersion": &version}, 31368),
            (
                doc! {"hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": -1},
                31373,
            ),
            (
                doc! {"hello": 1, "topologyVersion": {}, "maxAwaitTimeMS": 1},
                40414,
            ),
            (
                doc! {"hello": 1, "topologyVersion": &ahead, "maxAwaitTimeMS": 1},
                31382,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command), code);
        }
    }
}
