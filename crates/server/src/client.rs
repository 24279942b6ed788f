//! A client as the handlers of its messages see it.

use crate::connection::{ClientState, Connection};
use crate::state::Server;

/// The server, the connection, and the state that only commands of this connection see.
pub struct Client<'a> {
    pub server: &'a Server,
    /// The part of the connection that other connections see.
    pub connection: &'a Connection,
    /// The part that only its own commands see.
    pub state: &'a mut ClientState,
}
