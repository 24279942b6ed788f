//! Consensus among the members of a replica set, over the log of each member's engine.
//!
//! `openraft` elects leaders, decides what is committed and changes the membership. This crate connects it with
//! [`frond_kv::MemberLog`], which is the log of an engine, with a transport, and with the server around it. It knows members, terms
//! and positions, and no documents, files or sockets.
//!
//! [`Member`] is the interface: one for each store that takes part.

mod adapters;
mod codec;
mod driver;
mod entry;
mod error;
mod handle;
mod host;
mod ids;
mod inner;
mod late;
mod member;
mod members;
mod message;
mod network;
mod note;
mod role;
mod runtime;
mod settings;
mod shared;
mod types;
mod waiters;

pub use error::{Error, Result};
pub use host::{Event, Host, Lane, Reply, Transport};
pub use member::{Answer, Member};
pub use members::{Follower, Peer, Seat};
pub use message::{REQUEST_BYTES_MAX, brings_entries};
pub use role::{Members, Part, Role};
pub use runtime::Runtime;
pub use settings::Settings;

pub use frond_kv::EntryId;

/// The runtimes, channels and clocks that a [`Runtime`] brings.
pub use openraft::AsyncRuntime;
pub use openraft::async_runtime;
