//! The audit log: who did what, in the form of MongoDB's.
//!
//! Events of commands are made in one place, `request/audit.rs`: a command's specification says which event it makes
//! ([`Audited`]), the store notes the changes of the catalog, and each refusal and, if that is wanted, each permission passes the
//! pipeline there. Logins, connections and the server itself make the others. An event is a document. The filter is tried on it;
//! then it goes to the [`Sink`], which writes it before the command is answered.
//!
//! Events whose action can still be refused are written before it: permissions, and logins. Before a command that makes an event of its
//! own the destination is checked ([`Audit::prepare`]). So a command whose event cannot be written is refused, unless
//! `auditLog.onFailure` says that commands go on.

mod json;
mod params;
mod sink;
mod stored;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_auth::UserName;
use frond_bson::{ArrayBuf, Doc, DocBuf, ObjectId, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::matcher::Filter;
use parking_lot::RwLock;

pub use params::{
    Audited, NAMESPACE_NOT_FOUND, of_access, of_change, of_command, of_direct_write, of_login,
    of_logout,
};
pub use sink::When;

use self::sink::Sink;
use crate::access::User;
use crate::connection::{Connection, Peer};
use crate::host::random::uuid;
use crate::observability::log::{Component, Log, stamped};
use crate::observability::metrics::Counter;
use crate::settings::{AuditDestination, AuditFormat, AuditSettings, LogRotate, Settings};

/// The one that an event is about.
#[derive(Clone, Copy)]
pub enum Actor<'a> {
    /// The server, by its own actions.
    Server,
    /// A connection, and who is logged in.
    Client(&'a Connection, Option<&'a User>),
}

/// Which events are recorded.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Identifies a configuration of `setAuditConfig`; none of the start.
    pub generation: Option<ObjectId>,
    /// As it was given.
    pub filter: DocBuf,
    /// Whether commands that are permitted make events, too.
    pub authorization_success: bool,
    parsed: Option<Arc<Filter>>,
    /// The condition of the filter on the type of an event, if it has one.
    of_type: Option<Arc<Filter>>,
}

impl AuditConfig {
    /// Parses the filter of a configuration.
    ///
    /// # Errors
    /// Those of the filter.
    pub fn new(
        generation: Option<ObjectId>,
        filter: &Doc,
        authorization_success: bool,
    ) -> Result<AuditConfig> {
        let parsed = if filter.is_empty() {
            None
        } else {
            Some(Arc::new(Filter::parse(filter)?))
        };
        let of_type = match filter.get("atype") {
            None => None,
            Some(condition) => {
                let mut of_type = DocBuf::new();
                of_type.push_value("atype", &condition);
                Some(Arc::new(Filter::parse(&of_type)?))
            }
        };
        Ok(AuditConfig {
            generation,
            filter: filter.to_owned(),
            authorization_success,
            parsed,
            of_type,
        })
    }

    /// Whether the filter may match an event of this type: its condition on the type allows that.
    fn may_match(&self, atype: &str) -> bool {
        let of_type = self.of_type.as_ref();
        of_type.is_none_or(|filter| filter.matches(&doc! {"atype": atype}))
    }

    /// The configuration as `getAuditConfig` shows it.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuf::new();
        match self.generation {
            Some(generation) => out.push("generation", generation),
            None => out.push("generation", ObjectId([0; 12])),
        }
        out.push("filter", &self.filter);
        out.push("auditAuthorizationSuccess", self.authorization_success);
        out
    }
}

/// The audit log of a server.
pub struct Audit {
    sink: Sink,
    format: AuditFormat,
    renames: bool,
    continues: bool,
    is_runtime: bool,
    config: RwLock<Arc<AuditConfig>>,
    /// Whether a permission makes an event, as far as that does not depend on the event.
    records_checks: AtomicBool,
    log: Arc<Log>,
    port: u16,
    unix: Option<String>,
    /// Identifies events of the server itself.
    id: [u8; 16],
    /// A command has recorded the end of the server.
    is_shutdown_recorded: AtomicBool,
    recorded: Counter,
    failed: Counter,
    lost: Counter,
}

impl Audit {
    /// Opens the audit log, if there is to be one.
    ///
    /// # Errors
    /// If its destination cannot be opened.
    pub fn open(
        settings: &Settings,
        log: &Arc<Log>,
        port: u16,
    ) -> std::result::Result<Option<Audit>, String> {
        let audit = &settings.audit;
        let sink = match (audit.destination, &audit.path) {
            (None, _) => return Ok(None),
            (Some(AuditDestination::Syslog), _) => Sink::syslog()?,
            (Some(AuditDestination::Console), _) => Sink::console(),
            (Some(AuditDestination::File), path) => {
                let path = path.as_deref().ok_or("auditLog.path is missing")?;
                Sink::file(path).map_err(|error| {
                    format!("cannot write the audit log {}: {error}", path.display())
                })?
            }
        };
        let unix = settings.unix_socket_path(port);
        let unix = unix.map(|path| path.to_string_lossy().into_owned());
        Audit::new(audit, settings.log_rotate, sink, log, port, unix).map(Some)
    }

    fn new(
        settings: &AuditSettings,
        rotate: LogRotate,
        sink: Sink,
        log: &Arc<Log>,
        port: u16,
        unix: Option<String>,
    ) -> std::result::Result<Audit, String> {
        let filter = settings.filter.clone().unwrap_or_default();
        let config = AuditConfig::new(None, &filter, settings.authorization_success)
            .map_err(|error| format!("auditLog.filter: {}", error.message()))?;
        let audit = Audit {
            sink,
            format: settings.format,
            renames: rotate == LogRotate::Rename,
            continues: settings.continues,
            is_runtime: settings.is_runtime,
            records_checks: AtomicBool::default(),
            config: RwLock::new(Arc::new(config.clone())),
            log: log.clone(),
            port,
            unix,
            id: uuid(),
            is_shutdown_recorded: AtomicBool::default(),
            recorded: Counter::default(),
            failed: Counter::default(),
            lost: Counter::default(),
        };
        audit.configure(config);
        Ok(audit)
    }

    /// Which events are recorded.
    pub fn config(&self) -> Arc<AuditConfig> {
        self.config.read().clone()
    }

    /// Whether `setAuditConfig` changes the configuration.
    pub fn is_runtime(&self) -> bool {
        self.is_runtime
    }

    /// Changes which events are recorded.
    pub fn configure(&self, config: AuditConfig) {
        let matches_checks = config.may_match("authCheck");
        if config.authorization_success && !matches_checks {
            self.log.warning(
                Component::Access,
                9_940_001,
                "audit",
                "auditAuthorizationSuccess is on, but the filter of the audit log matches no event authCheck: it has no effect",
                &doc! {"filter": &config.filter},
            );
        }
        let records = config.authorization_success && matches_checks;
        *self.config.write() = Arc::new(config);
        self.records_checks.store(records, Ordering::Release);
    }

    /// Changes whether commands that are permitted make events.
    ///
    /// # Errors
    /// `BadValue` (2) if only `setAuditConfig` may.
    pub fn set_authorization_success(&self, on: bool) -> Result<()> {
        if self.is_runtime {
            return Err(Error::bad_value(
                "auditAuthorizationSuccess may not be changed via setParameter when runtime audit configuration is enabled; \
                 use setAuditConfig",
            ));
        }
        let config = AuditConfig {
            authorization_success: on,
            ..AuditConfig::clone(&self.config())
        };
        self.configure(config);
        Ok(())
    }

    /// Whether a permission makes an event.
    pub fn records_checks(&self) -> bool {
        self.records_checks.load(Ordering::Acquire)
    }

    /// Checks before an action that an event of one of these types can be written, so that it can still be refused.
    ///
    /// # Errors
    /// `OperationFailed` (96).
    pub fn prepare(&self, types: &[&str]) -> Result<()> {
        let config = self.config();
        if !types.iter().any(|atype| config.may_match(atype)) {
            return Ok(());
        }
        match self.sink.prepare() {
            Err(why) if !self.continues => {
                self.failed.add(1);
                Err(refused(&why))
            }
            _ => Ok(()),
        }
    }

    /// Records an event, if the filter selects it. It is written when this returns.
    ///
    /// # Errors
    /// `OperationFailed` (96) if it cannot be written, unless commands go on then.
    pub fn record(
        &self,
        actor: Actor<'_>,
        atype: &str,
        param: &Doc,
        result: i32,
        when: When,
    ) -> Result<()> {
        let event = self.event(actor, atype, param, result);
        let config = self.config();
        if config
            .parsed
            .as_ref()
            .is_some_and(|filter| !filter.matches(&event))
        {
            return Ok(());
        }
        drop(config);
        // Where commands go on, their actions happen whatever becomes of the event, so it is kept.
        let when = match when {
            When::Before if self.continues => When::After,
            when => when,
        };
        let was_failing = self.sink.is_failing();
        let written = match self.format {
            AuditFormat::Bson => self.sink.write(event.as_bytes(), when),
            AuditFormat::Json => {
                let mut line = json::line(&event);
                line.push('\n');
                self.sink.write(line.as_bytes(), when)
            }
        };
        let Err(failed) = written else {
            self.recorded.add(1);
            if was_failing {
                let message = "The audit log can be written again";
                self.log
                    .info(Component::Access, 9_940_002, "audit", message, Doc::empty());
            }
            return Ok(());
        };
        self.failed.add(1);
        if !failed.is_kept && when != When::Before {
            self.lost.add(1);
        }
        if !was_failing {
            self.log.error(
                Component::Access,
                9_940_003,
                "audit",
                "Cannot write the audit log",
                &doc! {
                    "error": &*failed.why,
                    "onFailure": if self.continues { "continue" } else { "refuse" },
                },
            );
        }
        match when {
            _ if self.continues => Ok(()),
            When::Before => Err(refused(&failed.why)),
            When::After | When::AfterChange => Err(Error::new(
                ErrorCode::OperationFailed,
                format!(
                    "the command was executed, but its audit event could not be written: {}{}",
                    failed.why,
                    if failed.is_kept {
                        "; it is written as soon as that is possible"
                    } else {
                        ""
                    },
                ),
            )),
        }
    }

    /// Records an event of the server itself; a failure is only counted and logged.
    pub fn record_own(&self, atype: &str, param: &Doc, result: i32) {
        // `record` has counted and logged it, and there is no command to fail.
        let _ = self.record(Actor::Server, atype, param, result, When::AfterChange);
    }

    fn event(&self, actor: Actor<'_>, atype: &str, param: &Doc, result: i32) -> DocBuf {
        let mut event = DocBuf::with_capacity(param.len_bytes() + 320);
        event.push("atype", atype);
        event.push(
            "ts",
            Value::DateTime(jiff::Timestamp::now().as_millisecond()),
        );
        let id = match actor {
            Actor::Server => &self.id,
            Actor::Client(connection, _) => connection.audit_id.get_or_init(uuid),
        };
        event.push_value(
            "uuid",
            &Value::Binary {
                subtype: 4,
                bytes: id,
            },
        );
        let user = match actor {
            Actor::Server => {
                event.push_doc("local", |local| local.push("isSystemUser", true));
                event.push_doc("remote", |remote| remote.push("isSystemUser", true));
                None
            }
            Actor::Client(connection, user) => {
                event.push_doc("local", |local| self.push_local(connection, local));
                event.push_doc("remote", |remote| push_remote(connection, remote));
                user
            }
        };
        event.push_array("users", |users| {
            if let Some(user) = user {
                users.push_doc(|entry| push_name(entry, "user", &user.name));
            }
        });
        event.push_array("roles", |roles| {
            for role in user.iter().flat_map(|user| &user.all_roles) {
                roles.push_doc(|entry| push_name(entry, "role", role));
            }
        });
        event.push("param", param);
        event.push("result", result);
        event
    }

    fn push_local(&self, connection: &Connection, local: &mut DocBuf) {
        match (&connection.peer, connection.local_ip.get()) {
            (Peer::Unix, _) => local.push("unix", self.unix.as_deref().unwrap_or("anonymous")),
            (Peer::Tcp(_), ip) => {
                let ip = ip.map(|ip| ip.to_canonical().to_string());
                local.push("ip", ip.as_deref().unwrap_or("(unknown)"));
                local.push("port", i32::from(self.port));
            }
        }
    }

    /// Records the metadata of a client, with the end of its connection here.
    pub fn record_client(&self, connection: &Connection, user: Option<&User>, client: &Doc) {
        let mut local = DocBuf::new();
        self.push_local(connection, &mut local);
        let param = doc! {"localEndpoint": local, "clientMetadata": client};
        let actor = Actor::Client(connection, user);
        // `record` has counted and logged it; the handshake changes nothing that could be refused.
        let _ = self.record(actor, "clientMetadata", &param, 0, When::After);
    }

    /// Begins a new file, or opens the file again, and records that.
    ///
    /// # Errors
    /// If the file cannot be renamed or opened.
    pub fn rotate(&self, actor: Actor<'_>) -> std::io::Result<()> {
        let rotated = self.sink.rotate(self.renames, stamped);
        let mut status = DocBuf::new();
        status.push(
            "status",
            if rotated.is_ok() {
                "OK"
            } else {
                "FileRenameFailed"
            },
        );
        let old = rotated.as_ref().ok().and_then(Option::as_deref);
        status.push(
            "rotatedLogPath",
            &*old.unwrap_or(Path::new("")).to_string_lossy(),
        );
        let mut errors = ArrayBuf::new();
        if let Err(error) = &rotated {
            errors.push(&*error.to_string());
        }
        status.push_value("errors", &errors.as_value());
        let uname = rustix::system::uname();
        let param = doc! {
            "pid": i64::from(std::process::id()),
            "osInfo": {
                "name": &*uname.sysname().to_string_lossy(),
                "version": &*uname.release().to_string_lossy(),
            },
            "logRotationStatus": status,
        };
        let recorded = self.record(actor, "rotateLog", &param, 0, When::AfterChange);
        rotated?;
        recorded.map_err(|error| std::io::Error::other(error.message().to_owned()))
    }

    /// Writes events to the disk that are in the file only.
    pub fn sync(&self) {
        if let Err(error) = self.sink.sync() {
            self.failed.add(1);
            let attributes = doc! {"error": error.to_string()};
            let message = "Cannot write the audit log to the disk";
            (self.log).error(Component::Access, 9_940_004, "audit", message, &attributes);
        }
    }

    /// The command `shutdown` records the end of the server, with its client.
    pub fn shutdown_is_recorded(&self) {
        self.is_shutdown_recorded.store(true, Ordering::Relaxed);
    }

    /// Records the end of the server, and closes the file.
    pub fn close(&self) {
        if !self.is_shutdown_recorded.load(Ordering::Relaxed) {
            self.record_own("shutdown", Doc::empty(), 0);
        }
        if let Err(error) = self.sink.close() {
            let attributes = doc! {"error": error.to_string()};
            let message = "Cannot close the audit log; events may be lost";
            (self.log).error(Component::Access, 9_940_005, "audit", message, &attributes);
        }
    }

    /// Its section in `serverStatus`.
    pub fn status(&self) -> DocBuf {
        doc! {
            "events": self.recorded.get(),
            "failed": self.failed.get(),
            "lost": self.lost.get(),
            "keptBytes": i64::try_from(self.sink.kept_bytes()).unwrap_or(i64::MAX),
            "isFailing": self.sink.is_failing(),
        }
    }
}

fn refused(why: &str) -> Error {
    Error::new(
        ErrorCode::OperationFailed,
        format!(
            "refused, because the audit log cannot be written: {why}. Make its destination writable, or start the server with \
             auditLog.onFailure: continue"
        ),
    )
}

fn push_remote(connection: &Connection, remote: &mut DocBuf) {
    match &connection.peer {
        Peer::Unix => remote.push("unix", "anonymous"),
        Peer::Tcp(address) => {
            remote.push("ip", &*address.ip().to_canonical().to_string());
            remote.push("port", i32::from(address.port()));
        }
    }
}

fn push_name(entry: &mut DocBuf, field: &str, name: &UserName) {
    entry.push(field, &*name.name);
    entry.push("db", &*name.db);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::sink::TestTarget;
    use super::*;

    fn audit(change: impl FnOnce(&mut AuditSettings)) -> (Audit, Arc<TestTarget>) {
        let mut settings = AuditSettings::default();
        change(&mut settings);
        let target = Arc::new(TestTarget::default());
        let sink = Sink::memory(target.clone());
        let log = Arc::new(Log::open(&Settings::default()).unwrap());
        let audit = Audit::new(&settings, LogRotate::Rename, sink, &log, 1, None).unwrap();
        (audit, target)
    }

    fn record(audit: &Audit, when: When) -> Result<()> {
        audit.record(Actor::Server, "shutdown", Doc::empty(), 0, when)
    }

    #[test]
    fn an_event_that_cannot_be_written_refuses_its_action() {
        let (audit, target) = audit(|_| {});
        target.fails.store(true, Ordering::Relaxed);
        for (when, expected) in [
            (
                When::Before,
                "refused, because the audit log cannot be written: no space left",
            ),
            (
                When::AfterChange,
                "the command was executed, but its audit event",
            ),
        ] {
            let failure = record(&audit, when).unwrap_err();
            assert_eq!(failure.code().code(), 96);
            assert!(
                failure.message().contains(expected),
                "{}",
                failure.message()
            );
        }
        assert_eq!(audit.prepare(&["shutdown"]).unwrap_err().code().code(), 96);
        assert_eq!(audit.status().get_i64("failed"), Some(3));
        assert_eq!(audit.status().get_bool("isFailing"), Some(true));
        target.fails.store(false, Ordering::Relaxed);
        audit.prepare(&["shutdown"]).unwrap();
        assert_eq!(audit.status().get_bool("isFailing"), Some(false));
        let written = target
            .bytes
            .lock()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        assert_eq!(written, 1, "that of the action that has happened");
    }

    #[test]
    fn actions_go_on_where_the_settings_say_so() {
        let (audit, target) = audit(|settings| settings.continues = true);
        target.fails.store(true, Ordering::Relaxed);
        record(&audit, When::Before).unwrap();
        record(&audit, When::After).unwrap();
        audit.prepare(&["shutdown"]).unwrap();
        let status = audit.status();
        let counts = ["events", "failed", "lost"].map(|name| status.get_i64(name));
        assert_eq!(counts, [Some(0), Some(2), Some(0)]);
        target.fails.store(false, Ordering::Relaxed);
        record(&audit, When::After).unwrap();
        let written = target
            .bytes
            .lock()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        assert_eq!(written, 3);
    }

    #[test]
    fn actions_whose_events_the_filter_excludes_are_not_refused() {
        let filter = doc! {"atype": {"$in": ["createUser"]}};
        let (audit, target) = audit(|settings| settings.filter = Some(filter));
        target.fails.store(true, Ordering::Relaxed);
        audit.prepare(&["dropUser", "shutdown"]).unwrap();
        record(&audit, When::Before).unwrap();
        assert!(audit.prepare(&["dropUser", "createUser"]).is_err());
        assert_eq!(Audited::Catalog.types(&"create").len(), 7);
        assert_eq!(Audited::Itself.types(&"collMod"), ["collMod"]);
    }
}
