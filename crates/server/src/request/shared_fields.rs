//! The arguments that all commands share.

use std::time::Duration;

use frond_bson::{Doc, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::{Access, State};
use frond_store::{Durability, SnapshotReads, check_database_name};

use super::parse::{Known, Request};
use super::transaction_fields::Fields;
use crate::arguments::{Arguments, declines, name_bit, whole};
use crate::authorization::{Action, Caller, Needs};
use crate::commands::Spec;
use crate::concern::{Level, ReadConcern, ReadPlace, WriteConcern};
use crate::context::{PointInTimeStore, unsupported_option};
use crate::replication::{Acknowledgment, Replication};
use crate::sessions::SessionId;
use crate::state::Server;
use crate::transactions::TransactionRequest;
use frond_runtime::AdmissionClass;

/// The arguments that all commands share.
pub struct SharedFields {
    /// `lsid`
    pub session: Option<SessionId>,
    /// `txnNumber`
    pub txn_number: Option<i64>,
    /// The transaction that the command is a statement of.
    pub transaction: Option<TransactionRequest>,
    /// `writeConcern`
    pub write_concern: WriteConcern,
    /// `readConcern`
    pub read_concern: ReadConcern,
    /// `maxTimeMS`
    pub max_time: Option<Duration>,
    /// The limit of the command's time: `max_time`, unless that is how long it waits for documents.
    pub time_limit: Option<Duration>,
    /// `help`: the client asks for the description of the command.
    pub help: bool,
    /// Whether the primary runs the command, see `commands/crud/forward.rs`.
    pub is_forwarded: bool,
    /// A time that this member, which follows the primary, has to reach before the command runs.
    pub reaches: Option<(&'static str, Timestamp)>,
}

impl SharedFields {
    /// Reads them, and refuses unknown fields.
    pub fn parse(
        server: &Server,
        known: &Known,
        request: &Request<'_>,
        caller: &Caller,
    ) -> Result<SharedFields> {
        let (spec, name) = (known.spec, known.name());
        check_database(spec, name, request)?;
        let args = Arguments::new(name, request.body);
        let mut read = ReadFields::read(server, spec, request, caller, &args)?;
        let replication = server.set.replication.as_ref();
        let member = replication.and_then(|set| set.member());
        let set = member.as_ref().map(|member| &*member.config);
        let in_transaction = read.transaction.autocommit.is_some();
        let read_concern = match read.transaction.read_concern {
            // Drivers repeat that of the session; the cursor has its own.
            Some(concern) if name != "getMore" => {
                let place = ReadPlace {
                    command: name,
                    replicated: set.is_some(),
                    in_transaction,
                };
                ReadConcern::parse(concern, place)?
            }
            _ => ReadConcern::default(),
        };
        let parse = |concern: &Doc| {
            let parsed = WriteConcern::parse(concern, server.settings.journal, set);
            match replication {
                Some(set) if set.is_router() => parsed.map(WriteConcern::by_cluster),
                _ => parsed,
            }
        };
        let write_concern = match (read.write_concern, replication) {
            (Some(concern), _) => parse(concern)?,
            (None, Some(replication))
                if set.is_some()
                    && (spec.writes || request.writes())
                    && !request.legacy
                    && (!in_transaction || name == "commitTransaction") =>
            {
                replication.defaults.with_write_concern(parse)?
            }
            _ => WriteConcern::DEFAULT,
        };
        let mut fields = SharedFields {
            session: read.session,
            txn_number: read.transaction.number,
            transaction: None,
            write_concern,
            read_concern,
            max_time: read.max_time,
            time_limit: read.max_time.filter(|_| !spec.max_time_is_wait),
            help: read.help,
            is_forwarded: false,
            reaches: None,
        };
        if let Some(replication) = replication {
            match &member {
                None => check_access(server, request, spec, in_transaction, |access| {
                    frond_replset::check_access(State::Startup, false, access)
                })?,
                Some(member) if !member.is_primary() => {
                    fields.is_forwarded = request.name == "aggregate" && request.writes();
                    check_access(server, request, spec, in_transaction, |access| {
                        member.check(access)
                    })?;
                    if fields.read_concern.level == Some(Level::Linearizable) {
                        return Err(not_primary(
                            server,
                            Error::new(
                                ErrorCode::NotWritablePrimary,
                                "cannot satisfy linearizable read concern on non-primary node",
                            ),
                        ));
                    }
                }
                Some(_) => {}
            }
            fields.check_times(replication)?;
        }
        let api = read.api;
        check_api(name, spec, api.version, api.is_strict, api.has_details)?;
        read.transaction.has_session = fields.session.is_some();
        fields.transaction = read.transaction.check(name, spec, request)?;
        Ok(fields)
    }
}

/// Refuses names that no database can have, and commands that run against another database.
fn check_database(spec: &Spec, name: &str, request: &Request<'_>) -> Result<()> {
    if request.db != "$external" || !spec.on_external {
        check_database_name(request.db)?;
    }
    if spec.admin_only && request.db != "admin" {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            format!("{name} may only be run against the admin database."),
        ));
    }
    Ok(())
}

/// The fields as the request has them, before they are checked together.
#[derive(Default)]
struct ReadFields<'a> {
    session: Option<SessionId>,
    transaction: Fields<'a>,
    /// `None` also if it is empty.
    write_concern: Option<&'a Doc>,
    max_time: Option<Duration>,
    help: bool,
    api: ApiFields<'a>,
}

/// `apiVersion`, `apiStrict` and `apiDeprecationErrors`.
#[derive(Clone, Copy, Default)]
struct ApiFields<'a> {
    version: Option<&'a str>,
    is_strict: bool,
    /// Whether one of the other two is there.
    has_details: bool,
}

impl<'a> ReadFields<'a> {
    /// Reads the fields one by one. Fails for those that neither all commands nor this one has, and for repeated ones.
    fn read(
        server: &Server,
        spec: &Spec,
        request: &Request<'a>,
        caller: &Caller,
        args: &Arguments<'a>,
    ) -> Result<ReadFields<'a>> {
        let mut read = ReadFields::default();
        let mut body = request.body.iter().enumerate();
        let first = body.next();
        let mut names = first.map_or(0, |(_, (name, _))| name_bit(name.as_bytes()));
        for (at, (field, value)) in body {
            let bit = name_bit(field.as_bytes());
            let may_be_there = names & bit != 0;
            names |= bit;
            let is_shared = read.field(server, spec, caller, args, field, &value)?;
            if !is_shared && !spec.takes_any_field && !spec.has_field(field) {
                if !spec.unsupported_fields.contains(&field) {
                    return Err(args.unknown(field));
                }
                if !declines(&value) {
                    return Err(unsupported_option(args.owner(), field));
                }
            }
            let is_earlier = || {
                let mut before = request.body.iter().take(at);
                before.any(|(other, _)| other == field)
            };
            if !spec.takes_any_field && may_be_there && is_earlier() {
                return Err(args.duplicate(field));
            }
        }
        for (field, _) in &request.sequences {
            if !spec.takes_any_field && !spec.has_field(field) {
                return Err(args.unknown(field));
            }
        }
        Ok(read)
    }

    /// Reads one field. False if it is not one that all commands share.
    fn field(
        &mut self,
        server: &Server,
        spec: &Spec,
        caller: &Caller,
        args: &Arguments<'a>,
        field: &str,
        value: &Value<'_>,
    ) -> Result<bool> {
        match field {
            "$db" | "comment" => {}
            "$clusterTime" => {
                if let Some(set) = &server.set.replication
                    && let Some(time) = args.doc_field(field)?
                {
                    // Others cannot have a time that this server did not give them.
                    let advances = caller.may(&Needs::cluster(Action::AdvanceClusterTime));
                    set.gossip(time, advances)?;
                }
            }
            "lsid" => {
                if let Some(lsid) = args.doc_field("lsid")? {
                    let session = SessionId::parse(lsid)?;
                    // A client that is not logged in has no sessions.
                    if !caller.is_checked() || caller.user().is_some() {
                        self.session = Some(caller.session(session, Action::Impersonate)?);
                    }
                }
            }
            "txnNumber" => match value {
                Value::Int64(n) => self.transaction.number = Some(*n),
                Value::Null | Value::Undefined => {}
                other => return Err(args.wrong_type(field, other, "type 'long'")),
            },
            "autocommit" => self.transaction.autocommit = args.bool(field)?,
            "startTransaction" => self.transaction.start = args.bool(field)?,
            "$readPreference" => check_read_preference(args)?,
            "$queryOptions" => {
                args.doc_field(field)?;
            }
            "readConcern" => self.transaction.read_concern = args.doc_field(field)?,
            "writeConcern" => {
                if let Some(concern) = args.doc_field(field)? {
                    if !spec.writes && !spec.has_field(field) {
                        return Err(Error::new(
                            ErrorCode::InvalidOptions,
                            format!("Command {} does not support writeConcern", args.owner()),
                        ));
                    }
                    self.transaction.has_write_concern = true;
                    self.write_concern = Some(concern).filter(|concern| !concern.is_empty());
                }
            }
            "maxTimeMS" => self.max_time = parse_max_time(field, value)?,
            "apiVersion" => self.api.version = args.str(field)?,
            "apiStrict" => {
                let strict = args.bool(field)?;
                self.api.is_strict = strict.unwrap_or(false);
                self.api.has_details |= strict.is_some();
            }
            "apiDeprecationErrors" => self.api.has_details |= args.bool(field)?.is_some(),
            "help" if !spec.has_field("help") => self.help = value.truthy(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Refuses what a member that is not the primary does not serve: writes, transactions, and reads for a client that expects a
/// primary. Databases `local` are read on all members.
fn check_access(
    server: &Server,
    request: &Request<'_>,
    spec: &Spec,
    in_transaction: bool,
    check: impl FnOnce(Access) -> Result<()>,
) -> Result<()> {
    let admission = request.admission.or(spec.admission);
    let preference = request.body.get_doc("$readPreference");
    let mode = preference.and_then(|preference| preference.get_str("mode"));
    let may_be_behind = request.legacy || mode.is_some_and(|mode| mode != "primary");
    let runs_elsewhere = may_be_behind
        && request.name == "aggregate"
        && !in_transaction
        && server.set.consensus().is_some();
    let access = match admission {
        // The primary runs it for this server.
        Some(AdmissionClass::Write) if runs_elsewhere => Access::Read { secondary_ok: true },
        _ if spec.writes || in_transaction || admission == Some(AdmissionClass::Write) => {
            Access::Write
        }
        // Further documents of a cursor that was opened as it had to be.
        Some(AdmissionClass::Read) if request.name != "getMore" && request.db != "local" => {
            Access::Read {
                secondary_ok: may_be_behind,
            }
        }
        _ => Access::Any,
    };
    check(access).map_err(|refusal| {
        let is_local = request.db == "local" && server.set.consensus().is_some();
        let refusal = match access {
            Access::Write if is_local => Error::new(
                refusal.code(),
                "not primary: the database local is replicated here, so that only the primary writes to it",
            ),
            _ => refusal,
        };
        not_primary(server, refusal)
    })
}

/// An error by which a driver learns that it must look for the primary.
fn not_primary(server: &Server, error: Error) -> Error {
    error.with_details(doc! {"topologyVersion": server.topology_version()})
}

impl SharedFields {
    /// The condition under which the reply of a command that has just run may be sent, unless it may be sent at once.
    pub fn acknowledgment(&self, server: &Server, request: &Request<'_>) -> Option<Acknowledgment> {
        let set = server.set.replication.as_ref();
        let journal = (self.write_concern.durability == Durability::Synced
            || self.read_concern.level == Some(Level::Linearizable))
        .then_some(Acknowledgment::Journal);
        let Some((set, consensus)) = set.and_then(|set| Some((set, set.consensus()?))) else {
            return journal;
        };
        let position = consensus.end_position();
        let reads_committed = matches!(
            self.read_concern.level,
            Some(Level::Majority | Level::Snapshot)
        );
        let ends_transaction = matches!(request.name, "commitTransaction" | "abortTransaction");
        // The commit of a transaction waits for what its statements read.
        if self.is_forwarded || (self.transaction.is_some() && !ends_transaction) {
            return None;
        }
        let is_linearizable = self.read_concern.level == Some(Level::Linearizable);
        // A read that began while this server led must not end with the past: the confirmation fails then.
        if !consensus.is_leading() && !request.writes() && !is_linearizable {
            // A follower applies only what is committed.
            return (reads_committed && consensus.may_be_ahead())
                .then_some(Acknowledgment::Settled(position));
        }
        let of_read = match self.read_concern.level {
            Some(Level::Linearizable) => Some(Acknowledgment::Confirmed(position)),
            Some(Level::Majority | Level::Snapshot) => Some(Acknowledgment::Committed(position)),
            Some(Level::Local) | None => None,
        };
        if !request.writes() || self.write_concern.unsatisfiable.is_some() {
            return of_read.or(journal);
        }
        let config = || set.member().map(|member| member.config.clone());
        Acknowledgment::of_write(&self.write_concern.wanted, position, config)
            .or(of_read)
            .or(journal)
    }

    /// The snapshot of a new transaction that reads at a time in the past.
    pub fn transaction_moment(&self, server: &Server) -> Result<Option<SnapshotReads>> {
        match (&server.set.replication, self.read_concern.at) {
            (Some(set), Some(at)) => Ok(Some(set.snapshot(Some(at), None)?.0)),
            _ => Ok(None),
        }
    }

    /// The snapshot of a command that reads at one time outside of transactions.
    pub fn point_in_time(&self, server: &Server) -> Result<Option<PointInTimeStore>> {
        let concern = self.read_concern;
        match &server.set.replication {
            Some(set) if concern.level == Some(Level::Snapshot) => {
                let (reads, time) = set.snapshot(concern.at, concern.after)?;
                let store = server.store.at(&reads);
                Ok(Some(PointInTimeStore { store, time }))
            }
            _ => Ok(None),
        }
    }

    /// Checks that the set has reached the times of the read concern. On the primary all that is committed is visible; another member
    /// may have to wait.
    fn check_times(&mut self, set: &Replication) -> Result<()> {
        let concern = self.read_concern;
        for (name, time) in [
            ("afterClusterTime", concern.after),
            ("atClusterTime", concern.at),
        ] {
            if let Some(time) = time
                && set.check_reached(name, time)?
            {
                self.reaches = Some((name, time));
            }
        }
        Ok(())
    }
}

fn check_read_preference(args: &Arguments<'_>) -> Result<()> {
    const MODES: [&str; 5] = [
        "primary",
        "primaryPreferred",
        "secondary",
        "secondaryPreferred",
        "nearest",
    ];
    let Some(preference) = args.doc_field("$readPreference")? else {
        return Ok(());
    };
    match preference.get("mode") {
        Some(Value::String(mode)) if MODES.contains(&mode) => Ok(()),
        Some(Value::String(mode)) => Err(Error::new(
            ErrorCode::FailedToParse,
            format!("Could not parse $readPreference mode '{mode}'."),
        )),
        Some(other) => Err(Arguments::new("$readPreference", preference).wrong_type(
            "mode",
            &other,
            "type 'string'",
        )),
        None => Err(Arguments::new("$readPreference", preference).missing("mode")),
    }
}

/// A time limit in milliseconds; 0 is none.
fn parse_max_time(field: &str, value: &Value<'_>) -> Result<Option<Duration>> {
    if value.is_nullish() {
        return Ok(None);
    }
    if !value.is_number() {
        return Err(Error::bad_value(format!("{field} must be a number")));
    }
    let ms = whole(value);
    if value.as_f64().is_some_and(|n| n.fract() != 0.0) {
        return Err(Error::bad_value(format!("{field} has non-integral value")));
    }
    match u64::try_from(ms) {
        Ok(0) => Ok(None),
        Ok(n) if n <= i32::MAX as u64 => Ok(Some(Duration::from_millis(n))),
        _ => Err(Error::bad_value(format!(
            "{ms} value for {field} is out of range"
        ))),
    }
}

fn check_api(
    name: &str,
    spec: &Spec,
    version: Option<&str>,
    strict: bool,
    details: bool,
) -> Result<()> {
    match version {
        None if details => Err(Error::new(
            ErrorCode::InvalidOptions,
            "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
        )),
        None => Ok(()),
        Some("1") if strict && !spec.stable_api => Err(Error::new(
            ErrorCode::APIStrictError,
            format!("Provided apiStrict:true, but the command {name} is not in API Version 1."),
        )),
        Some("1") => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::APIVersionError,
            "API version must be \"1\"",
        )),
    }
}
