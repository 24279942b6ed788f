//! The specification of a command: the constant facts on which the dispatcher acts. A command itself is behaviour only.
//!
//! ```ignore
//! pub struct Ping;
//!
//! const SPEC: Spec = Spec {
//!     names: &["ping"],
//!     doc: "Replies, to show that the server is running.",
//!     stable_api: true,
//!     ..Spec::CHEAP
//! };
//!
//! impl Command for Ping {
//!     fn spec(&self) -> &'static Spec {
//!         &SPEC
//!     }
//!
//!     fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
//!         Ok(Needs::Anyone)
//!     }
//!
//!     fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
//!         Ok(DocBuf::new())
//!     }
//! }
//! ```

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};

use crate::audit::Audited;
use crate::authorization::{Needs, Requested};
use crate::context::Context;
use crate::observability::metrics::{Class, Op};
use crate::outcome::{Outcome, Wait};
use frond_runtime::{AdmissionClass, Work};

/// The behaviour of a command.
pub trait Command: Send + Sync {
    fn spec(&self) -> &'static Spec;

    /// The privileges that its client must have. The gate calls this before anything is done, and only if the server checks
    /// authorization, so it must not have an effect. A command that is malformed may be described as what it would do at most.
    ///
    /// # Errors
    /// If it cannot be said what the command touches. The command is not run then.
    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>>;

    /// Runs it. The reply is without `ok`. A command that may wait without a thread has [`Command::start`] instead.
    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::internal("the command only runs where it may wait"))
    }

    /// Runs it to its end, or until it waits.
    fn start(&self, cx: &mut Context<'_>) -> Result<Outcome> {
        self.run(cx).map(Outcome::Reply)
    }

    /// The reply of a command whose reply has waited in vain, if it has a form of its own for that. `reply` is what it would have been.
    fn unacknowledged(&self, _reply: &Doc, _failure: &Error) -> Option<DocBuf> {
        None
    }

    /// Continues after a wait that [`Command::start`] or an earlier call returned.
    fn resume(&self, cx: &mut Context<'_>, wait: Wait) -> Result<Outcome> {
        drop(wait);
        self.start(cx)
    }
}

/// The constant facts about a command. Each specification names its differences from one of the bases, such as [`Spec::READ`].
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its names, the proper one first. Names are compared exactly, so the other spellings that MongoDB accepts (`ismaster`,
    /// `findandmodify`) are listed.
    pub names: &'static [&'static str],
    /// Its effect in one line, for `listCommands`, `help` and the reference.
    pub doc: &'static str,
    /// The fields it accepts, besides its name and the fields that all commands share.
    pub fields: &'static [&'static str],
    /// Fields that MongoDB's command accepts and this one does not: an error names them.
    pub unsupported_fields: &'static [&'static str],
    /// For `opLatencies` and `top`.
    pub class: Class,
    /// For `opcounters`. Writes count their own statements, so for them it is only used by `top`.
    pub op: Op,
    /// The kind of its operations in `currentOp`, the profiler and the log.
    pub kind: &'static str,
    /// The class of time for which it may keep its thread.
    pub work: Work,
    /// The kind of ticket it needs, if any.
    pub admission: Option<AdmissionClass>,
    /// Whether it accepts a write concern.
    pub writes: bool,
    /// Whether it may be sent again with the same `txnNumber`.
    pub retryable: bool,
    /// Whether the profiler has an entry for each of its statements, and none for the command.
    pub profiles_statements: bool,
    /// Whether `$queryStats` counts it by its shape.
    pub counts_shapes: bool,
    /// Whether its first field names a collection.
    pub on_collection: bool,
    /// Whether it runs on the database `admin` only.
    pub admin_only: bool,
    /// Whether it may run on `$external`, the database of users whom an external authority authenticates.
    pub on_external: bool,
    /// Whether it is part of MongoDB's Stable API, version 1.
    pub stable_api: bool,
    /// Whether it may be a statement of a transaction.
    pub in_transactions: InTransactions,
    /// Whether unknown fields are accepted, as for a handshake.
    pub takes_any_field: bool,
    /// Whether a later `getLastError` still reports the write before this command.
    pub keeps_last_error: bool,
    /// Whether `maxTimeMS` limits how long it waits for documents, and not its work.
    pub max_time_is_wait: bool,
    /// The audit event that it makes when it has succeeded.
    pub audits: Audited,
    /// Fields that hold secrets. They are shown nowhere: not in `currentOp`, not in the log.
    pub secrets: &'static [&'static str],
}

/// Whether a command may be a statement of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransactions {
    Never,
    /// But not as the first one.
    Later,
    Always,
}

impl Spec {
    /// A command that reads memory only.
    pub const CHEAP: Spec = Spec {
        names: &[],
        doc: "",
        fields: &[],
        unsupported_fields: &[],
        class: Class::Command,
        op: Op::Command,
        kind: "command",
        work: Work::Instant,
        admission: None,
        writes: false,
        retryable: false,
        profiles_statements: false,
        counts_shapes: false,
        on_collection: false,
        admin_only: false,
        on_external: false,
        stable_api: false,
        in_transactions: InTransactions::Never,
        takes_any_field: false,
        keeps_last_error: false,
        max_time_is_wait: false,
        audits: Audited::Nothing,
        secrets: &[],
    };

    /// A command that reads documents of a collection.
    pub const READ: Spec = Spec {
        class: Class::Read,
        op: Op::Query,
        work: Work::Short,
        admission: Some(AdmissionClass::Read),
        on_collection: true,
        stable_api: true,
        ..Spec::CHEAP
    };

    /// A command that changes documents of a collection.
    pub const WRITE: Spec = Spec {
        class: Class::Write,
        op: Op::Command,
        admission: Some(AdmissionClass::Write),
        writes: true,
        ..Spec::READ
    };

    /// A command that reads the catalog.
    pub const CATALOG: Spec = Spec {
        work: Work::Long,
        admission: Some(AdmissionClass::Read),
        stable_api: true,
        ..Spec::CHEAP
    };

    /// A command that changes the catalog.
    pub const CATALOG_WRITE: Spec = Spec {
        admission: Some(AdmissionClass::Maintenance),
        writes: true,
        on_collection: true,
        ..Spec::CATALOG
    };

    /// The proper name, by which replies, metrics and errors name the command.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// Whether the field is one of the command's own, besides those that all commands share.
    pub fn has_field(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}
