//! Reports an operation that has ended: as a line of the log if it was slow, and as an entry in `system.profile`.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::Error;
use frond_store::{OpStats, UsedPlan, WaitFor};

use crate::access::User;
use crate::peer::Peer;
use crate::shown_command::short_command;
use frond_runtime::AdmissionClass;

/// Times that an operation has waited, by what it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    pub ticket: Duration,
    /// For the journal, after its commit.
    pub journal: Duration,
    /// Inside of commits: for other commits, a memtable, room in the journal, space on the disk, an open transaction,
    /// for changes of the schema, in long reads for other operations, and for large documents that others read.
    pub commit: [Duration; WaitFor::COUNT],
}

/// The names of the times in [`Waited::commit`].
const OF_COMMIT: [&str; WaitFor::COUNT] = [
    "commits",
    "memtable",
    "journalRoom",
    "diskSpace",
    "transaction",
    "schema",
    "otherReads",
    "largeReads",
];

/// Documents that a write has changed. `None` for what the operation does not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    pub matched: Option<i64>,
    /// Documents that an update has changed.
    pub modified: Option<i64>,
    /// Documents that an update has inserted.
    pub upserted: Option<i64>,
    /// Documents that an insert has inserted.
    pub inserted: Option<i64>,
    /// Documents that were deleted.
    pub deleted: Option<i64>,
}

/// An operation that has ended.
pub struct OpRecord {
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// `query`, `insert` …
    pub op: &'static str,
    /// `database.collection`.
    pub namespace: String,
    /// The command, without secrets and shortened if it is very long.
    pub command: Vec<u8>,
    /// For a getMore: the command that opened the cursor.
    pub originating: Option<Arc<DocBuf>>,
    /// The cursor of its reply, if it is open.
    pub cursor: Option<i64>,
    /// Whether its reply had the last documents of a cursor.
    pub exhausted: bool,
    /// Its counts of examined keys and documents, and its plan.
    pub op_stats: OpStats,
    /// Whether its reply has documents.
    pub returns: bool,
    pub changed: Changed,
    /// Bytes of its reply.
    pub reply_bytes: usize,
    /// Whether it came by a legacy opcode.
    pub legacy: bool,
    /// The tickets that it needed.
    pub admission: Option<AdmissionClass>,
    pub took: Duration,
    pub cpu: Duration,
    pub waited: Waited,
    pub failure: Option<Error>,
    pub peer: Peer,
    /// The application of the client.
    pub application: Option<String>,
    pub user: Option<Arc<User>>,
}

/// Bytes of a record beside its command and its statistics, roughly.
const RECORD_BYTES: usize = 1024;

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn number(n: u64) -> Value<'static> {
    match i32::try_from(n) {
        Ok(n) => Value::Int32(n),
        Err(_) => Value::Int64(i64::try_from(n).unwrap_or(i64::MAX)),
    }
}

fn signed(n: i64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

impl OpRecord {
    /// About how much memory it takes, and its entry on disk.
    pub fn len_bytes(&self) -> usize {
        let stats = self.op_stats.exec_stats.as_ref();
        RECORD_BYTES + self.command.len() + stats.map_or(0, |stats| stats.len_bytes())
    }

    fn command(&self) -> &Doc {
        Doc::validate(&self.command).unwrap_or(Doc::empty())
    }

    /// The entry in `system.profile`.
    pub fn entry(&self) -> DocBuf {
        let mut out = DocBuf::with_capacity(self.len_bytes());
        out.push("op", self.op);
        out.push("ns", self.namespace.as_str());
        out.push("command", self.command());
        if let Some(originating) = &self.originating {
            out.push("originatingCommand", &**originating);
        }
        if let Some(cursor) = self.cursor {
            out.push("cursorid", cursor);
        }
        self.push_stats(&mut out);
        out.push("numYield", 0);
        if self.returns {
            out.push_value("nreturned", &number(self.op_stats.returned));
        }
        self.push_hashes(&mut out);
        self.push_locks(&mut out);
        self.push_waited(&mut out);
        if self.reply_bytes > 0 {
            out.push_value("responseLength", &number(self.reply_bytes as u64));
        }
        out.push("protocol", self.protocol());
        self.push_failure(&mut out);
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        out.push_value("millis", &number(millis));
        let nanos = i64::try_from(self.cpu.as_nanos()).unwrap_or(i64::MAX);
        out.push("cpuNanos", nanos);
        if let Some(summary) = self.op_stats.plan.as_ref().map(UsedPlan::summary) {
            out.push("planSummary", summary.as_str());
            match &self.op_stats.exec_stats {
                Some(stats) => out.push("execStats", &self.changing(stats)),
                // Without operators there is one stage.
                None if matches!(summary.as_str(), "IDHACK" | "EOF") => {
                    out.push("execStats", &self.single_stage(&summary));
                }
                None => {}
            }
        }
        out.push("ts", Value::DateTime(self.ended_ms));
        match &self.peer {
            Peer::Tcp(address) => out.push("client", &address.ip().to_string()),
            Peer::Unix => out.push("client", &self.peer.to_string()),
        }
        if let Some(application) = &self.application {
            out.push("appName", application.as_str());
        }
        out.push_array("allUsers", |list| {
            if let Some(user) = &self.user {
                list.push(&doc! {"user": &user.name.name, "db": &user.name.db});
            }
        });
        match &self.user {
            Some(user) => out.push("user", &format!("{}@{}", user.name.name, user.name.db)),
            None => out.push("user", ""),
        }
        out
    }

    /// The attributes of its line in the log.
    pub fn attributes(&self) -> DocBuf {
        let mut out = DocBuf::with_capacity(512);
        let kind = match self.op {
            // MongoDB names the kind only in lines of single statements, which this server does not write.
            "query" | "getmore" | "insert" | "update" | "remove" | "bulkWrite" => "command",
            other => other,
        };
        out.push("type", kind);
        out.push("isFromUserConnection", true);
        out.push("ns", self.namespace.as_str());
        if let Some(application) = &self.application {
            out.push("appName", application.as_str());
        }
        out.push("command", &short_command(self.command()));
        if let Some(originating) = &self.originating {
            out.push("originatingCommand", &short_command(originating));
        }
        if let Some(summary) = self.op_stats.plan.as_ref().map(UsedPlan::summary) {
            out.push("planSummary", summary.as_str());
        }
        if let Some(cursor) = self.cursor {
            out.push("cursorid", cursor);
        }
        self.push_stats(&mut out);
        out.push("numYields", 0);
        if self.returns {
            out.push_value("nreturned", &number(self.op_stats.returned));
        }
        self.push_hashes(&mut out);
        self.push_failure(&mut out);
        out.push_value("reslen", &number(self.reply_bytes as u64));
        self.push_locks(&mut out);
        self.push_waited(&mut out);
        let nanos = i64::try_from(self.cpu.as_nanos()).unwrap_or(i64::MAX);
        out.push("cpuNanos", nanos);
        out.push("remote", &self.peer.to_string());
        out.push("protocol", self.protocol());
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let working = self
            .took
            .saturating_sub(total(&self.waited, &self.op_stats));
        out.push_value("workingMillis", &signed(millis(working)));
        out.push_value("durationMillis", &signed(millis(self.took)));
        out
    }

    fn protocol(&self) -> &'static str {
        if self.legacy { "op_query" } else { "op_msg" }
    }

    fn push_stats(&self, out: &mut DocBuf) {
        let op_stats = &self.op_stats;
        if self.admission.is_some() && (self.op_stats.plan.is_some() || self.returns) {
            out.push_value("keysExamined", &number(op_stats.keys_examined));
            out.push_value("docsExamined", &number(op_stats.docs_examined));
        }
        for (name, is_set) in [
            ("hasSortStage", op_stats.has_sort_stage),
            ("usedDisk", op_stats.used_disk),
            ("fromMultiPlanner", op_stats.from_multi_planner),
            ("fromPlanCache", op_stats.from_plan_cache),
            ("cursorExhausted", self.exhausted),
        ] {
            if is_set {
                out.push(name, true);
            }
        }
        let changed = &self.changed;
        for (name, count) in [
            ("nMatched", changed.matched),
            ("nModified", changed.modified),
            ("nUpserted", changed.upserted),
            ("ninserted", changed.inserted),
            ("ndeleted", changed.deleted),
        ] {
            if let Some(count) = count {
                out.push_value(name, &signed(count));
            }
        }
        for (name, count) in [
            ("keysInserted", op_stats.keys_inserted),
            ("keysDeleted", op_stats.keys_deleted),
            ("writeConflicts", op_stats.write_conflicts),
        ] {
            if count > 0 {
                out.push_value(name, &number(count));
            }
        }
    }

    fn push_hashes(&self, out: &mut DocBuf) {
        if let Some(hashes) = self.op_stats.plan.as_ref().and_then(UsedPlan::hashes) {
            out.push("queryHash", hashes.shape.as_str());
            out.push("planCacheShapeHash", hashes.shape.as_str());
            out.push("planCacheKey", hashes.key.as_str());
            out.push("queryFramework", "classic");
        }
    }

    /// Tickets are the only locks that all operations take; they are shown as MongoDB shows its global lock.
    fn push_locks(&self, out: &mut DocBuf) {
        out.push_doc("locks", |locks| {
            let mode = match self.admission {
                None => return,
                Some(AdmissionClass::Read | AdmissionClass::Lookup) => "r",
                Some(AdmissionClass::Write | AdmissionClass::Transaction) => "w",
                Some(AdmissionClass::Maintenance) => "W",
            };
            locks.push_doc("Global", |global| {
                global.push("acquireCount", &doc! {mode: 1i64});
                if !self.waited.ticket.is_zero() {
                    let micros = micros(self.waited.ticket);
                    global.push("acquireWaitCount", &doc! {mode: 1i64});
                    global.push("timeAcquiringMicros", &doc! {mode: micros});
                }
            });
        });
        out.push("flowControl", Doc::empty());
        out.push("storage", Doc::empty());
    }

    fn push_waited(&self, out: &mut DocBuf) {
        if total(&self.waited, &self.op_stats).is_zero() {
            return;
        }
        let op_stats = &self.op_stats;
        let commit = OF_COMMIT.into_iter().zip(self.waited.commit);
        out.push_doc("waitedFor", |waited| {
            for (name, time) in [
                ("ticket", self.waited.ticket),
                ("journal", self.waited.journal),
                ("writeConflict", op_stats.conflict_wait),
                ("replyMemory", op_stats.room_wait),
            ]
            .into_iter()
            .chain(commit)
            {
                if !time.is_zero() {
                    waited.push(&format!("{name}Micros"), micros(time));
                }
            }
        });
    }

    fn push_failure(&self, out: &mut DocBuf) {
        if let Some(failure) = &self.failure {
            out.push("ok", 0.0);
            out.push("errMsg", failure.message());
            out.push("errName", &*failure.code().name());
            out.push("errCode", failure.code().code());
        }
    }

    /// The stages below that of an update or a delete.
    fn changing(&self, stages: &Doc) -> DocBuf {
        let (name, count) = match self.op {
            "update" => ("UPDATE", "nMatched"),
            "remove" => ("DELETE", "nWouldDelete"),
            _ => return stages.to_owned(),
        };
        let mut outer = doc! {"stage": name, "nReturned": 0};
        let n = self.changed.matched.or(self.changed.deleted).unwrap_or(0);
        outer.push_value(count, &signed(n));
        if let Some(modified) = self.changed.modified {
            outer.push_value("nWouldModify", &signed(modified));
            outer.push_value("nWouldUpsert", &signed(self.changed.upserted.unwrap_or(0)));
        }
        outer.push("inputStage", stages);
        outer
    }

    fn single_stage(&self, name: &str) -> DocBuf {
        let found = i32::from(self.op_stats.docs_examined > 0);
        doc! {
            "stage": name,
            "nReturned": found,
            "works": found + 1,
            "advanced": found,
            "needTime": 0,
            "needYield": 0,
            "saveState": 0,
            "restoreState": 0,
            "isEOF": 1,
            "keysExamined": number(self.op_stats.keys_examined),
            "docsExamined": number(self.op_stats.docs_examined),
        }
    }
}

/// The total time that an operation has waited, including the waits that its figures record.
fn total(waited: &Waited, op_stats: &OpStats) -> Duration {
    let commit: Duration = waited.commit.iter().sum();
    waited.ticket + waited.journal + commit + op_stats.conflict_wait + op_stats.room_wait
}
