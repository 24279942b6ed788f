//! The arguments that all commands share.

use std::time::Duration;

use frond_bson::Value;
use frond_error::{Error, ErrorCode, Result};
use frond_store::check_database_name;

use super::CommandRequest;
use crate::arguments::{Arguments, declines, name_bit, whole};
use crate::commands::{Command, Traits, proper_name};
use crate::concern::{WriteConcern, check_read_concern};
use crate::context::unsupported_option;
use crate::sessions::SessionId;
use crate::state::Server;

/// Commands that may be sent again with the same `txnNumber`.
const RETRYABLE: &[&str] = &["insert", "update", "delete", "findAndModify", "bulkWrite"];

/// The arguments that all commands share.
pub struct Common {
    /// `lsid`
    pub session: Option<SessionId>,
    /// `txnNumber`
    pub txn_number: Option<i64>,
    /// `writeConcern`
    pub write_concern: WriteConcern,
    /// `maxTimeMS`
    pub max_time: Option<Duration>,
    /// `help`: the client asks for the description of the command.
    pub help: bool,
}

impl Common {
    /// Reads them, and refuses unknown fields.
    pub fn parse(
        server: &Server,
        command: &dyn Command,
        request: &CommandRequest<'_>,
    ) -> Result<Common> {
        let traits = command.traits();
        let name = proper_name(command);
        // Authentication by certificates and external systems names this database; `saslStart` explains why it fails.
        if request.db != "$external" || name != "saslStart" {
            check_database_name(request.db)?;
        }
        if traits.admin_only && request.db != "admin" {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!("{name} may only be run against the admin database."),
            ));
        }
        let args = Arguments::new(name, request.body);
        let mut common = Common {
            session: None,
            txn_number: None,
            write_concern: WriteConcern::DEFAULT,
            max_time: None,
            help: false,
        };
        let (mut api_version, mut api_strict, mut api_details) = (None, false, false);
        let mut names = request
            .body
            .first()
            .map_or(0, |(name, _)| name_bit(name.as_bytes()));
        for (at, (field, value)) in request.body.iter().enumerate().skip(1) {
            let mut known = true;
            let bit = name_bit(field.as_bytes());
            let may_be_there = names & bit != 0;
            names |= bit;
            match field {
                "$db" | "comment" | "$clusterTime" => {}
                "lsid" => {
                    if let Some(lsid) = args.doc_field("lsid")? {
                        common.session = Some(SessionId::parse(lsid)?);
                    }
                }
                "txnNumber" => match value {
                    Value::Int64(n) if n >= 0 => common.txn_number = Some(n),
                    Value::Int64(_) => {
                        return Err(Error::new(
                            ErrorCode::InvalidOptions,
                            "Transaction number cannot be negative",
                        ));
                    }
                    other => return Err(args.wrong_type(field, &other, "type 'long'")),
                },
                // Tools match this text, so nothing is added.
                "startTransaction" | "autocommit" => {
                    return Err(Error::new(
                        ErrorCode::IllegalOperation,
                        "Transaction numbers are only allowed on a replica set member or mongos",
                    ));
                }
                "$readPreference" => check_read_preference(&args)?,
                "$queryOptions" => {
                    args.doc_field(field)?;
                }
                "readConcern" => {
                    if let Some(concern) = args.doc_field(field)? {
                        check_read_concern(concern)?;
                    }
                }
                "writeConcern" => {
                    if let Some(concern) = args.doc_field(field)? {
                        if !traits.writes && !command.fields().contains(&field) {
                            return Err(Error::new(
                                ErrorCode::InvalidOptions,
                                format!("Command {name} does not support writeConcern"),
                            ));
                        }
                        common.write_concern =
                            WriteConcern::parse(concern, server.settings.journal)?;
                    }
                }
                "maxTimeMS" => common.max_time = parse_max_time(field, &value)?,
                "apiVersion" => api_version = Some(value),
                "apiStrict" => {
                    api_strict = args.bool(field)?.unwrap_or(false);
                    api_details = true;
                }
                "apiDeprecationErrors" => {
                    args.bool(field)?;
                    api_details = true;
                }
                "help" if !command.fields().contains(&"help") => {
                    common.help = value.truthy();
                }
                _ => known = false,
            }
            if !known && !traits.takes_any_field && !command.fields().contains(&field) {
                if !command.unsupported_fields().contains(&field) {
                    return Err(args.unknown(field));
                }
                if !declines(&value) {
                    return Err(unsupported_option(name, field));
                }
            }
            if !traits.takes_any_field
                && may_be_there
                && request
                    .body
                    .iter()
                    .take(at)
                    .any(|(other, _)| other == field)
            {
                return Err(args.duplicate(field));
            }
        }
        for (field, _) in request.sequences {
            if !traits.takes_any_field && !command.fields().contains(field) {
                return Err(args.unknown(field));
            }
        }
        check_api(name, traits, api_version, api_strict, api_details)?;
        if common.txn_number.is_some() {
            if common.session.is_none() {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "Transaction number requires a session ID to also be specified",
                ));
            }
            if !RETRYABLE.contains(&name) {
                return Err(Error::new(
                    ErrorCode::NotARetryableWriteCommand,
                    format!(
                        "txnNumber may only be provided for multi-document transactions and \
                         retryable write commands. autocommit:false was not provided, and {name} \
                         is not a retryable write command."
                    ),
                ));
            }
        }
        Ok(common)
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
    traits: Traits,
    version: Option<Value<'_>>,
    strict: bool,
    details: bool,
) -> Result<()> {
    match version {
        None if details => Err(Error::new(
            ErrorCode::InvalidOptions,
            "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
        )),
        None => Ok(()),
        Some(Value::String("1")) if strict && !traits.stable_api => Err(Error::new(
            ErrorCode::APIStrictError,
            format!("Provided apiStrict:true, but the command {name} is not in API Version 1."),
        )),
        Some(Value::String("1")) => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::APIVersionError,
            "API version must be \"1\"",
        )),
    }
}
