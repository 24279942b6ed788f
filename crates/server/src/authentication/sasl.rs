//! Logins by SASL: SCRAM-SHA-1 and SCRAM-SHA-256.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frond_auth::scram::{ClientFirst, Mechanism, ScramError, ServerConversation};
use frond_auth::{LoginMechanism, UserName};
use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use zeroize::Zeroizing;

use super::{abandoned, authentication_failed, begin, enabled_mechanism, fail, succeed};
use crate::arguments::Arguments;
use crate::context::Context;
use crate::logins::{Pending, Step};

/// The number of every conversation: a connection has one at a time.
const CONVERSATION: i32 = 1;

/// The answer to the first message of a login is sent so long after it, longer than finding and reading a user takes. So its
/// time does not reveal whether there is such a user.
const FIRST_ANSWER: Duration = Duration::from_millis(2);

/// The message of a client, and how the reply has to be written.
struct Payload {
    bytes: Zeroizing<Vec<u8>>,
    is_text: bool,
}

impl Payload {
    /// Reads the field `payload`. Its errors do not quote it.
    fn parse(args: &Arguments<'_>) -> Result<Payload> {
        let (bytes, is_text) = match args.get("payload") {
            None => return Err(args.missing("payload")),
            Some(Value::Binary { subtype: 0, bytes }) => (bytes.to_vec(), false),
            Some(Value::String(text)) => {
                let decoded = STANDARD
                    .decode(text)
                    .map_err(|_| Error::bad_value("Failed decoding SASL payload: not base64"))?;
                (decoded, true)
            }
            Some(Value::Binary { subtype, .. }) => {
                return Err(Error::bad_value(format!(
                    "Invalid SASLPayload subtype. Expected BinDataGeneral, got: {subtype}"
                )));
            }
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Invalid SASLPayload type. Expected Base64 or BinData, got: {}",
                    other.type_name()
                )));
            }
        };
        Ok(Payload {
            bytes: Zeroizing::new(bytes),
            is_text,
        })
    }

    /// The reply to it.
    fn reply(&self, done: bool, payload: &str) -> DocBuf {
        let mut reply = DocBuf::new();
        reply.push("conversationId", CONVERSATION);
        reply.push("done", done);
        if self.is_text {
            reply.push("payload", STANDARD.encode(payload).as_str())
        } else {
            reply.push(
                "payload",
                Value::Binary {
                    subtype: 0,
                    bytes: payload.as_bytes(),
                },
            )
        }
        reply
    }
}

/// Begins a login by SASL as a user of `db`. `args` are the fields of `saslStart`.
///
/// # Errors
/// `AuthenticationFailed` (18) and those of wrong fields.
pub fn sasl_start(
    cx: &mut Context<'_>,
    db: &str,
    args: &Arguments<'_>,
    speculative: bool,
) -> Result<DocBuf> {
    abandoned(cx.server, cx.connection, cx.state);
    let enabled = match args.str("mechanism")?.and_then(Mechanism::named) {
        // Members log in by SCRAM whatever mechanisms are enabled for others.
        Some(mechanism)
            if db == "local"
                && (cx.server.clients.access.members()).logs_in_by_key(&UserName::system()) =>
        {
            LoginMechanism::Scram(mechanism)
        }
        _ => enabled_mechanism(cx.server, args)?,
    };
    let mechanism = match enabled {
        LoginMechanism::Scram(mechanism) if db != "$external" => mechanism,
        other => {
            return Err(Error::bad_value(format!(
                "Unsupported mechanism '{other}' on authentication database '{db}'"
            )));
        }
    };
    let payload = Payload::parse(args)?;
    let skips_empty = match args.doc_field("options")? {
        None => false,
        Some(options) => match options.get("skipEmptyExchange") {
            None => false,
            Some(Value::Bool(skips)) => skips,
            Some(_) => return Err(Error::bad_value("skipEmptyExchange must be boolean")),
        },
    };
    let first = ClientFirst::parse(&payload.bytes);
    let name = first.as_ref().map_or("", |first| first.user.as_str());
    let attempt = begin(cx, enabled, UserName::new(name, db), speculative);
    let first = first.map_err(|error| fail(cx, &attempt, &error.to_string()))?;
    let access = &cx.server.clients.access;
    if access.members().logs_in_by_key(&attempt.user) {
        let iterations = cx.server.clients.logins.iterations(mechanism);
        let known = access.members().credentials(mechanism, iterations);
        let started = known.and_then(|known| match known.split_first() {
            Some((own, others)) => {
                let (conversation, reply) = ServerConversation::start(&first, own.clone())?;
                Ok((conversation.or(others.to_vec()), reply))
            }
            None => Err(ScramError::Credential("there is no key")),
        });
        let started = started.map_err(|error| fail(cx, &attempt, &error.to_string()));
        let (conversation, reply) = started?;
        cx.state.login.pending = Some(Pending {
            attempt,
            step: Step::Proof {
                conversation,
                user: Ok(None),
                skips_empty,
            },
        });
        return Ok(payload.reply(false, &reply));
    }
    // One who cannot be read looks like one who does not exist.
    let found = cx.server.clients.access.find_for_login(&attempt.user);
    // Made in each case, so that the time does not reveal whether the user exists.
    let fake = cx
        .server
        .clients
        .logins
        .fake_credential(mechanism, &attempt.user);
    let known = found.as_ref().ok().and_then(Option::as_ref);
    let real = known.and_then(|user| user.credentials.for_mechanism(mechanism).cloned());
    if speculative && known.is_some() && real.is_none() {
        // The driver tried its favourite, and goes on with a mechanism that saslSupportedMechs names. Nothing has failed.
        return Err(authentication_failed());
    }
    let user = match (&found, &real) {
        (Ok(Some(user)), Some(_)) => Ok(user.id),
        (Err(error), _) => Err(error.message().to_owned()),
        _ => Err(format!(
            "there is no user {} with a credential for {mechanism}",
            attempt.user
        )),
    };
    let started = ServerConversation::start(&first, real.unwrap_or(fake));
    let (conversation, reply) = started.map_err(|error| fail(cx, &attempt, &error.to_string()))?;
    let reply = payload.reply(false, &reply);
    // It wipes the credentials of a user who was found.
    drop(found);
    cx.state.login.delay = FIRST_ANSWER.checked_sub(attempt.began.elapsed());
    cx.state.login.pending = Some(Pending {
        attempt,
        step: Step::Proof {
            conversation,
            user,
            skips_empty,
        },
    });
    Ok(reply)
}

/// Continues a login by SASL.
///
/// # Errors
/// `AuthenticationFailed` (18), `ProtocolError` (17) and those of wrong fields.
pub fn sasl_continue(cx: &mut Context<'_>, args: &Arguments<'_>) -> Result<DocBuf> {
    let pending = cx.state.login.pending.take();
    let Some(Pending { attempt, step }) = pending else {
        return Err(Error::new(
            ErrorCode::ProtocolError,
            "No SASL session state found",
        ));
    };
    let conversation = args.i64("conversationId")?;
    if conversation.ok_or_else(|| args.missing("conversationId"))? != i64::from(CONVERSATION) {
        return Err(Error::new(
            ErrorCode::ProtocolError,
            "sasl: Mismatched conversation id",
        ));
    }
    let payload = Payload::parse(args)?;
    let (conversation, user, skips_empty) = match step {
        Step::Empty(user) => {
            succeed(cx, &attempt, user)?;
            return Ok(payload.reply(true, ""));
        }
        Step::Proof {
            conversation,
            user,
            skips_empty,
        } => (conversation, user, skips_empty),
    };
    let finished = conversation.finish(&payload.bytes);
    let (reply, user) = match (finished, user) {
        (Ok(reply), Ok(user)) => (reply, user),
        (_, Err(why)) => return Err(fail(cx, &attempt, &why)),
        (Err(error), _) => return Err(fail(cx, &attempt, &error.to_string())),
    };
    if skips_empty {
        succeed(cx, &attempt, user)?;
    } else {
        cx.state.login.pending = Some(Pending {
            attempt,
            step: Step::Empty(user),
        });
    }
    Ok(payload.reply(skips_empty, &reply))
}
