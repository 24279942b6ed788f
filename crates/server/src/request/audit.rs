//! The audit events of commands. Each command passes here: before it runs, when it has run, and when it was refused.
//!
//! The event that a command makes is a part of its specification ([`Spec::audits`](crate::commands::Spec)); changes of the catalog
//! are noted by the store while the command runs.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::CatalogChange;
use frond_wire::DocIter;

use super::parse::{Known, Request};
use super::secrets::secrets;
use crate::access::User;
use crate::audit::{self, Actor, Audit, Audited, When};
use crate::authorization::Caller;
use crate::client::Client;
use crate::commands::crud::backup_stream::is_backup_stream;
use crate::commands::requires_login;
use crate::connection::Connection;
use crate::outcome::Outcome;
use crate::shown_command::{short_command, without_secrets};
use crate::state::Server;

/// The most bytes of a command in an event about its permission, and about its refusal: clients without a login can cause those.
const PERMITTED_BYTES_MAX: usize = 1 << 20;
const REFUSED_BYTES_MAX: usize = 16 << 10;

/// The collections whose documents are users and roles.
const ACCESS: [&str; 2] = ["admin.system.users", "admin.system.roles"];

/// An audited command that runs.
pub struct Running<'a> {
    audit: &'a Audit,
    server: &'a Server,
    connection: &'a Connection,
    known: Known,
    /// The event that it makes.
    audits: Audited,
    /// The user that was logged in before it ran.
    user: Option<Arc<User>>,
    /// The state before it ran that its event needs.
    before: Option<DocBuf>,
}

/// Begins an audited command whose client has the privileges for it. None if nothing is audited.
///
/// # Errors
/// If its event cannot be written: it must not run.
pub fn begin<'a>(
    client: &Client<'a>,
    caller: &Caller,
    known: &Known,
    request: &Request<'_>,
    is_resumed: bool,
) -> Result<Option<Running<'a>>> {
    let server = client.server;
    let Some(audit) = &server.audit else {
        return Ok(None);
    };
    let user = caller.user();
    // The requests of other members are the server's own.
    let is_checked = || {
        requires_login(server, known.index)
            && !user.is_some_and(|user| server.clients.access.members().is_user(&user.name))
    };
    if !is_resumed && audit.records_checks() && is_checked() {
        let actor = Actor::Client(client.connection, user.map(|user| &**user));
        let param = of_check(known, request, PERMITTED_BYTES_MAX);
        audit.record(actor, "authCheck", &param, 0, When::Before)?;
    }
    let (audits, mut before) = (declared(known, request), None);
    if audits != Audited::Nothing && !is_resumed {
        audit.prepare(audits.types(&known.name()))?;
        before = state_for(server, audits, request);
    }
    Ok(Some(Running {
        audit,
        server,
        connection: client.connection,
        known: *known,
        audits,
        user: user.cloned(),
        before,
    }))
}

/// The event that a command makes. A stream of a backup is an aggregation.
fn declared(known: &Known, request: &Request<'_>) -> Audited {
    let is_backup = || {
        let pipeline = request.body.get_array("pipeline");
        pipeline.is_some_and(is_backup_stream)
    };
    if known.name() == "aggregate" && is_backup() {
        Audited::Backup
    } else {
        known.spec.audits
    }
}

/// The state of the server that the event of a command shows, before and after the command.
fn state_for(server: &Server, audits: Audited, request: &Request<'_>) -> Option<DocBuf> {
    match audits {
        Audited::ReplSetReconfig => {
            let member = server.set.replication.as_ref()?.member()?;
            let reply = frond_replset::config_reply(&member.config, None);
            reply.get_doc("config").map(Doc::to_owned)
        }
        Audited::SetClusterParameter => {
            let name = request.body.first()?.1.as_doc()?.first()?.0;
            server.set.cluster_parameters.get(name).ok()
        }
        Audited::AuditConfigure => Some(server.audit.as_ref()?.config().to_doc()),
        _ => None,
    }
}

impl Running<'_> {
    /// Records what the command has done.
    ///
    /// # Errors
    /// Its own; if it succeeded, also that an event could not be written.
    pub fn end(
        self,
        outcome: Result<Outcome>,
        changes: &[CatalogChange],
        request: &Request<'_>,
    ) -> Result<Outcome> {
        let mut failed = Ok(());
        for change in changes {
            let (atype, param, result) = audit::of_change(change);
            failed = failed.and(self.record(atype, &param, result));
        }
        if let Ok(done) = &outcome {
            failed = failed.and(self.record_own(changes, request));
            if request.writes() && request.db == "admin" {
                failed = failed.and(self.record_direct_writes(done, request));
            }
        }
        outcome.and_then(|done| failed.map(|()| done))
    }

    fn record(&self, atype: &str, param: &Doc, result: i32) -> Result<()> {
        let actor = Actor::Client(self.connection, self.user.as_deref());
        self.audit
            .record(actor, atype, param, result, When::AfterChange)
    }

    /// Records the event that the command declares.
    fn record_own(&self, changes: &[CatalogChange], request: &Request<'_>) -> Result<()> {
        let (spec, body, db) = (self.known.spec, request.body, request.db);
        let name = spec.name();
        let param = match self.audits {
            Audited::Nothing | Audited::Catalog => return Ok(()),
            Audited::Itself => audit::of_command(db, body, secrets(spec, request)),
            Audited::Backup => {
                let param = audit::of_command(db, body, secrets(spec, request));
                return self.record("backup", &param, 0);
            }
            Audited::EnableSharding => doc! {"ns": body.get_str(name).unwrap_or_default()},
            Audited::ShardCollection => doc! {
                "ns": body.get_str(name).unwrap_or_default(),
                "key": body.get_doc("key").unwrap_or(Doc::empty()),
                "options": {"unique": body.get_bool("unique").unwrap_or(false)},
            },
            Audited::User => audit::of_access(name, "user", db, body),
            Audited::Role => audit::of_access(name, "role", db, body),
            Audited::Database => doc! {"db": db},
            Audited::DropDatabase => doc! {"ns": db},
            Audited::DropCollection => {
                let is_dropped = |change: &CatalogChange| {
                    matches!(
                        change,
                        CatalogChange::CollectionDropped(_) | CatalogChange::ViewDropped(_)
                    )
                };
                if changes.iter().any(is_dropped) {
                    return Ok(());
                }
                let param = doc! {"ns": namespace(request)};
                return self.record("dropCollection", &param, audit::NAMESPACE_NOT_FOUND);
            }
            Audited::ReplSetReconfig => {
                let after = state_for(self.server, self.audits, request);
                let param = doc! {
                    "old": self.before.as_deref().unwrap_or(Doc::empty()),
                    "new": after.as_deref().unwrap_or(Doc::empty()),
                };
                return self.record("replSetReconfig", &param, 0);
            }
            Audited::Logout => {
                let Some(user) = self.user.as_ref().filter(|user| user.name.db == db) else {
                    return Ok(());
                };
                audit::of_logout(&format!("Explicit logout from db '{db}'"), &user.name)
            }
            Audited::ApplicationMessage => {
                let param = doc! {"msg": body.get_str(name).unwrap_or_default()};
                return self.record("applicationMessage", &param, 0);
            }
            Audited::GetClusterParameter => {
                let mut param = DocBuf::new();
                if let Some(value) = body.get(name) {
                    param.push_value("requestedClusterServerParameters", &value);
                }
                param
            }
            Audited::SetClusterParameter => {
                let after = state_for(self.server, self.audits, request);
                doc! {
                    "originalClusterServerParameter": self.before.as_deref().unwrap_or(Doc::empty()),
                    "updatedClusterServerParameter": after.as_deref().unwrap_or(Doc::empty()),
                }
            }
            Audited::AuditConfigure => {
                let after = state_for(self.server, self.audits, request);
                let param = doc! {
                    "previous": self.before.as_deref().unwrap_or(Doc::empty()),
                    "config": after.as_deref().unwrap_or(Doc::empty()),
                };
                return self.record("auditConfigure", &param, 0);
            }
            Audited::Shutdown => {
                self.audit.shutdown_is_recorded();
                DocBuf::new()
            }
        };
        self.record(name, &param, 0)
    }

    /// Records writes of documents that are users or roles.
    fn record_direct_writes(&self, outcome: &Outcome, request: &Request<'_>) -> Result<()> {
        if let Outcome::Reply(reply) = outcome
            && reply
                .get("n")
                .is_some_and(|n| n.as_i64_lossless() == Some(0))
        {
            return Ok(());
        }
        let name = self.known.name();
        let statements = match name {
            "insert" => "documents",
            "update" => "updates",
            "delete" => "deletes",
            _ => "",
        };
        let mut failed = Ok(());
        for ns in written_access(request.body, &request.sequences) {
            let mut record = |document: &Doc| {
                let param = audit::of_direct_write(ns, name, document);
                failed = std::mem::replace(&mut failed, Ok(())).and(self.record(
                    "directAuthMutation",
                    &param,
                    0,
                ));
            };
            match name {
                "findAndModify" => {
                    let mut document = DocBuf::new();
                    for field in ["query", "update", "remove"] {
                        if let Some(value) = request.body.get(field) {
                            document.push_value(field, &value);
                        }
                    }
                    record(&document);
                }
                _ if statements.is_empty() => record(Doc::empty()),
                _ => {
                    let sequences = request.sequences.iter();
                    let sequences = sequences.filter(|(name, _)| *name == statements);
                    for bytes in sequences.flat_map(|(_, documents)| *documents) {
                        record(Doc::validate(bytes).unwrap_or(Doc::empty()));
                    }
                    let given = request.body.get_array(statements);
                    for value in given.into_iter().flat_map(|given| given.values()) {
                        record(value.as_doc().unwrap_or(Doc::empty()));
                    }
                }
            }
        }
        failed
    }
}

/// The collections of users and roles that a write on the database `admin` names.
fn written_access(body: &Doc, sequences: &[(&str, DocIter<'_>)]) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut add = |name: &str| {
        let full = ACCESS.iter().find(|full| **full == name);
        found.extend(full.filter(|full| !found.contains(*full)));
    };
    match body.first() {
        Some(("applyOps", Value::Array(entries))) => {
            for entry in entries.values().filter_map(|entry| entry.as_doc()) {
                add(entry.get_str("ns").unwrap_or_default());
                if let Some(inner) = entry.get_doc("o").filter(|o| o.contains_key("applyOps")) {
                    written_access(inner, &[]).into_iter().for_each(&mut add);
                }
            }
        }
        Some(("bulkWrite", _)) => {
            let infos = body.get_array("nsInfo").unwrap_or(Doc::empty()).values();
            for info in infos.filter_map(|info| info.as_doc()) {
                add(info.get_str("ns").unwrap_or_default());
            }
            let sequences = sequences.iter().filter(|(name, _)| *name == "nsInfo");
            for info in sequences.flat_map(|(_, infos)| *infos) {
                let info = Doc::validate(info).unwrap_or(Doc::empty());
                add(info.get_str("ns").unwrap_or_default());
            }
        }
        Some((_, Value::String(collection))) => add(&format!("admin.{collection}")),
        _ => {}
    }
    found
}

/// Records that a command was refused: privileges that its client does not have, or a mechanism for logins that is not enabled.
pub fn refused(client: &Client<'_>, known: &Known, request: &Request<'_>, failure: &Error) {
    let Some(audit) = &client.server.audit else {
        return;
    };
    let user = client.state.identity.as_deref();
    let actor = Actor::Client(client.connection, user);
    let code = failure.code();
    // The command has failed in any case; `record` counts and logs an event that cannot be written.
    match code {
        ErrorCode::Unauthorized => {
            let param = of_check(known, request, REFUSED_BYTES_MAX);
            let _ = audit.record(actor, "authCheck", &param, code.code(), When::After);
        }
        ErrorCode::MechanismUnavailable => {
            let mechanism = request.body.get_str("mechanism").unwrap_or_default();
            let user = request.body.get_str("user").unwrap_or_default();
            let param = doc! {"user": user, "db": request.db, "mechanism": mechanism};
            let _ = audit.record(actor, "authenticate", &param, code.code(), When::After);
        }
        _ => {}
    }
}

/// Records whether a query of a legacy opcode was permitted.
///
/// # Errors
/// The refusal; otherwise that the event cannot be written.
pub fn checked_query(
    client: &Client<'_>,
    db: &str,
    shown: &Doc,
    checked: Result<()>,
) -> Result<()> {
    let Some(audit) = &client.server.audit else {
        return checked;
    };
    let (result, when) = match &checked {
        Ok(()) if audit.records_checks() => (0, When::Before),
        Ok(()) => return Ok(()),
        Err(failure) => (failure.code().code(), When::After),
    };
    let actor = Actor::Client(client.connection, client.state.identity.as_deref());
    let command = shown.first().map_or("", |(name, _)| name);
    let param = doc! {"command": command, "ns": db, "args": short_command(shown)};
    checked.and(audit.record(actor, "authCheck", &param, result, when))
}

/// The parameters of an event about the privileges for a command.
fn of_check(known: &Known, request: &Request<'_>, bytes_max: usize) -> DocBuf {
    let hidden = secrets(known.spec, request);
    let mut args = if hidden.is_empty() {
        bounded(request.body, bytes_max)
    } else {
        bounded(&without_secrets(request.body, hidden), bytes_max)
    };
    for (name, documents) in &request.sequences {
        if hidden.contains(name) {
            args.push(name, crate::shown_command::REDACTED);
            continue;
        }
        let mut room = bytes_max.saturating_sub(args.len_bytes());
        let is_whole = args.push_array(name, |list| {
            for bytes in *documents {
                let document = Doc::validate(bytes).unwrap_or(Doc::empty());
                if document.len_bytes() > room {
                    return false;
                }
                room -= document.len_bytes();
                list.push(document);
            }
            true
        });
        if !is_whole {
            args.push("$truncated", true);
        }
    }
    doc! {"command": request.name, "ns": namespace(request), "args": args}
}

fn bounded(body: &Doc, bytes_max: usize) -> DocBuf {
    if body.len_bytes() <= bytes_max {
        body.to_owned()
    } else {
        short_command(body)
    }
}

/// The collection that a command names, or its database.
fn namespace(request: &Request<'_>) -> String {
    match request.collection() {
        Some(collection) => format!("{}.{collection}", request.db),
        None => request.db.to_owned(),
    }
}
