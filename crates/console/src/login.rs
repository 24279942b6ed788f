//! Logging a user in, by SCRAM over a connection of the server, which counts and delays failures as for every client.

use std::time::Duration;

use frond_auth::scram::{ClientPassword, Mechanism};
use frond_bson::{Doc, DocBuf, Value, doc};
use zeroize::Zeroizing;

use crate::backend::{Broken, Link};

/// A name and a password.
pub struct Login {
    pub user: String,
    /// The database that has the user.
    pub db: String,
    pub password: Zeroizing<String>,
}

/// Why a login fails.
#[derive(Debug)]
pub enum LoginError {
    /// The server refuses it, with a message for the user.
    Refused(String),
    /// The connection is broken.
    Broken(Broken),
}

impl From<Broken> for LoginError {
    fn from(broken: Broken) -> LoginError {
        LoginError::Broken(broken)
    }
}

async fn run(link: &mut impl Link, db: &str, command: &Doc) -> Result<DocBuf, Broken> {
    link.send(db, command).await?;
    link.ended().await?;
    link.receive().await
}

/// Runs one command of a login and returns its reply.
async fn step(link: &mut impl Link, db: &str, command: &Doc) -> Result<DocBuf, LoginError> {
    let reply = run(link, db, command).await?;
    match reply.get_f64("ok") {
        Some(1.0) => Ok(reply),
        _ => {
            let message = reply.get_str("errmsg").unwrap_or("Authentication failed.");
            Err(LoginError::Refused(message.to_owned()))
        }
    }
}

/// The longest time of a login, with the delays of the server.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Logs in over a connection.
pub async fn log_in<L: Link>(link: &mut L, login: Login) -> Result<L::User, LoginError> {
    match tokio::time::timeout(TIME_MAX, converse(link, login)).await {
        Ok(done) => done,
        Err(_) => Err(Broken("the login took too long".to_owned()).into()),
    }
}

async fn converse<L: Link>(link: &mut L, login: Login) -> Result<L::User, LoginError> {
    let Login { user, db, password } = login;
    let asks = doc! {"hello": 1, "saslSupportedMechs": format!("{db}.{user}")};
    let hello = run(link, "admin", &asks).await?;
    let has = |name: &str| {
        let mechanisms = hello.get_array("saslSupportedMechs");
        mechanisms.is_some_and(|all| all.values().any(|one| one.as_str() == Some(name)))
    };
    // The server names no mechanism for a user who does not exist.
    let mechanism = if has("SCRAM-SHA-1") && !has("SCRAM-SHA-256") {
        Mechanism::Sha1
    } else {
        Mechanism::Sha256
    };
    let refused = |error: &dyn std::fmt::Display| LoginError::Refused(error.to_string());
    let password = ClientPassword::new(mechanism, &user, &password).map_err(|e| refused(&e))?;
    let (mut conversation, first) = password.start().map_err(|e| refused(&e))?;
    let payload = |text: &str| doc! {"payload": Value::Binary {subtype: 0, bytes: text.as_bytes()}};
    let mut start = doc! {"saslStart": 1, "mechanism": mechanism.name()};
    start.push_all(&payload(&first));
    start.push("options", &doc! {"skipEmptyExchange": true});
    let reply = step(link, &db, &start).await?;
    // Deriving the key takes some milliseconds.
    let second = tokio::task::block_in_place(|| conversation.answer(binary(&reply)));
    let second = second.map_err(|e| refused(&e))?;
    let mut go_on = doc! {"saslContinue": 1, "conversationId": 1};
    go_on.push_all(&payload(&second));
    let reply = step(link, &db, &go_on).await?;
    (conversation.verify(binary(&reply))).map_err(|e| refused(&e))?;
    let logged_in = link.user();
    logged_in.ok_or_else(|| LoginError::Refused("Authentication failed.".to_owned()))
}

fn binary(reply: &Doc) -> &[u8] {
    match reply.get("payload") {
        Some(Value::Binary { bytes, .. }) => bytes,
        _ => &[],
    }
}
