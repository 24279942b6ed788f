//! `saslStart`

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Refuses authentication: this server has no users yet.
pub struct SaslStart;

impl Command for SaslStart {
    fn names(&self) -> &'static [&'static str] {
        &["saslStart", "authenticate"]
    }

    fn doc(&self) -> &'static str {
        "Refuses authentication: this server has no users yet."
    }

    fn traits(&self) -> Traits {
        Traits {
            takes_any_field: true,
            ..Traits::CHEAP
                .with_secrets(&["payload", "key", "nonce"])
                .external()
        }
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::new(
            ErrorCode::MechanismUnavailable,
            format!(
                "{} failed: this server has no users and no logins. Connect without credentials (no user and password \
                 in the address, no --username), and let only trusted addresses reach the server (net.bindIp, a \
                 firewall)",
                cx.name
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_says_why() {
        let mut server = TestServer::new();
        let command = doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "x"};
        let reply = server.reply("admin", command);
        assert_eq!(reply.get_i32("code"), Some(334));
        let message = reply.get_str("errmsg").unwrap();
        assert!(message.contains("Connect without credentials"), "{message}");
        assert!(message.contains("net.bindIp"), "{message}");
    }
}
