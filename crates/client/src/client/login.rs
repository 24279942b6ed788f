//! Logging in.

use frond_auth::{mongo_cr, password_digest};
use frond_bson::{Doc, DocBuf, Value, doc};

use super::Client;
use crate::error::{Error, Result};
use crate::login::Login;

impl Client {
    /// Logs in. `hello` is the reply of the handshake.
    pub(super) fn log_in(&mut self, login: &Login, hello: &Doc) -> Result<()> {
        if login.is_by_certificate() {
            let mut command = doc! {"authenticate": 1, "mechanism": "MONGODB-X509"};
            if let Some(user) = login.user() {
                command.push("user", user);
            }
            return self.command(login.source(), &command).map(drop);
        }
        // The wire version of MongoDB 2.8, the first one with SCRAM.
        if login.is_by_nonce() || hello.get_i64("maxWireVersion").unwrap_or(0) < 3 {
            return self.log_in_by_nonce(login);
        }
        let has_sha256 = hello.get_array("saslSupportedMechs").is_some_and(|names| {
            (names.values()).any(|name| matches!(name, Value::String("SCRAM-SHA-256")))
        });
        let mechanism = login.scram(has_sha256);
        let failed = |error: frond_auth::scram::ScramError| Error::Protocol(error.to_string());
        let password = login.password(mechanism)?;
        let (mut conversation, first) = password.start().map_err(failed)?;
        let reply = self.command(
            login.source(),
            &doc! {
                "saslStart": 1,
                "mechanism": mechanism.name(),
                "payload": payload(&first),
                "options": {"skipEmptyExchange": true},
            },
        )?;
        let id = reply.get("conversationId").unwrap_or(Value::Int32(1));
        let answer = conversation.answer(received(&reply)?).map_err(failed)?;
        let step = |text: &str| {
            let mut command = doc! {"saslContinue": 1};
            command.push("conversationId", id);
            command.push("payload", payload(text));
            command
        };
        let reply = self.command(login.source(), &step(&answer))?;
        conversation.verify(received(&reply)?).map_err(failed)?;
        if reply.get_bool("done") == Some(true) {
            return Ok(());
        }
        // A server that does not know the option waits for an empty message.
        let reply = self.command(login.source(), &step(""))?;
        match reply.get_bool("done") {
            Some(true) => Ok(()),
            _ => Err(Error::Protocol("the login does not end".to_owned())),
        }
    }

    /// MONGODB-CR, the only login of MongoDB 2.6 and below.
    fn log_in_by_nonce(&mut self, login: &Login) -> Result<()> {
        let user = login.user().unwrap_or_default();
        let digest = password_digest(user, login.plain_password()?);
        let reply = self.command(login.source(), &doc! {"getnonce": 1})?;
        let nonce = (reply.get_str("nonce"))
            .ok_or_else(|| Error::Protocol("getnonce answered no nonce".to_owned()))?;
        let key = mongo_cr::response(nonce, user, &digest);
        let command = doc! {"authenticate": 1, "user": user, "nonce": nonce, "key": key.as_str()};
        self.command(login.source(), &command).map(drop)
    }
}

fn payload(text: &str) -> Value<'_> {
    Value::Binary {
        subtype: 0,
        bytes: text.as_bytes(),
    }
}

fn received(reply: &DocBuf) -> Result<&[u8]> {
    match reply.get("payload") {
        Some(Value::Binary { bytes, .. }) => Ok(bytes),
        _ => Err(Error::Protocol("a reply without a payload".to_owned())),
    }
}
