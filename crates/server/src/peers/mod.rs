//! Messages between the members of a replica set.
//!
//! A member reaches another one at the address and the port of its clients, with TLS where the server uses it, logs in as
//! `__system`, and turns the connection into a *channel* by the command `replSetOpenChannel`. After the reply of that command the
//! connection has no messages of the wire protocol any more, but frames ([`frame`]): requests of the member that has connected, and
//! their answers in any order. A member that has requests of its own opens a channel in the other direction. Entries of the log have
//! channels of their own, so that a large commit does not delay heartbeats and votes.
//!
//! [`Peers`] is the side that connects, [`PeerSide`] with a [`PeerService`] the side that answers.
//!
//! # Invariants
//! 1. The requests of one kind to one host are written in the order of the calls, and handlers are started in the order of arrival.
//! 2. No length is believed before it is checked, and memory is reserved as bytes arrive.
//! 3. All queues are bounded: requests that wait for a host, requests that a channel handles at once, answers that are not read.
//! 4. A future that is dropped ends only its own request.

mod frame;
mod incoming;
mod login;
mod outgoing;

use std::future::Future;
use std::pin::Pin;

pub use incoming::{PeerSide, serve_channel};
pub use login::login_uris;
pub use outgoing::Peers;

use crate::observability::metrics::Counter;

/// The version of the frames and of the command that opens a channel.
pub const PROTOCOL: i32 = 1;

/// The command that opens a channel.
pub const OPEN_CHANNEL: &str = "replSetOpenChannel";

/// A member's statements about itself when it opens a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The random number of the member's store.
    pub id: u64,
    /// The name of the replica set.
    pub set: String,
}

/// Counts of messages, of one side of all channels.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Requests that were sent, or received by the side that answers.
    pub requests: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
}

/// The kind of a request: which part of the server it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of consensus without entries.
    Consensus = 1,
    Heartbeat = 2,
    /// A question to another member, such as a part of a command.
    Ask = 3,
    /// Entries of the log. These are the only large requests.
    Entries = 4,
}

impl Kind {
    /// The byte of a frame.
    fn byte(self) -> u8 {
        self as u8
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Consensus, Kind::Heartbeat, Kind::Ask, Kind::Entries]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

/// Answers the requests of other members.
pub trait PeerService: Send + Sync {
    /// Answers a request of the member whose store has the number `from`. The future is polled for the first time in the order in
    /// which requests arrived; it must not block. It is dropped if the channel ends.
    fn handle<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        body: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>>;
}
