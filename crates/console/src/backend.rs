//! The interface between the console and the server.

use std::fmt;
use std::time::Duration;

use frond_bson::{Doc, DocBuf};

use frond_http::Ends;

/// A server that runs commands.
pub trait Backend: Send + Sync + 'static {
    /// A user who has logged in, for further connections.
    type User: Clone + Send + Sync + 'static;
    type Link: Link<User = Self::User>;

    /// Whether commands need a user who has logged in.
    fn needs_login(&self) -> bool;

    /// Names of this server, in lower case, that browsers may use besides its addresses.
    fn host_names(&self) -> &[String];

    /// The delay of the answer to a failed login. Zero turns off pauses between logins, too.
    fn failed_login_delay(&self) -> Duration;

    /// Opens a connection, as a driver at the client's address would, for a user or without one.
    fn open(
        &self,
        ends: &Ends,
        user: Option<&Self::User>,
    ) -> impl Future<Output = Result<Self::Link, Broken>> + Send;
}

/// A connection to the server. Its commands run one after the other. Dropping it interrupts the one that runs.
pub trait Link: Send + 'static {
    /// See [`Backend::User`].
    type User;

    /// Sends a command of a database.
    fn send(&mut self, db: &str, command: &Doc) -> impl Future<Output = Result<(), Broken>> + Send;

    /// Waits for the end of that command, and returns the number of bytes of its reply.
    fn ended(&mut self) -> impl Future<Output = Result<usize, Broken>> + Send;

    /// The reply of that command.
    fn receive(&mut self) -> impl Future<Output = Result<DocBuf, Broken>> + Send;

    /// The user who has logged in over this connection.
    fn user(&self) -> Option<Self::User>;
}

/// The server has closed a connection: it accepts no more, or it stops.
#[derive(Debug)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}
