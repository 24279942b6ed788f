//! A blocking client of servers that speak MongoDB's wire protocol, of every age from 2.4 on: connection
//! strings, TLS, logins, commands, and the old opcodes where a server needs them.
#![forbid(unsafe_code)]

mod client;
mod collection;
mod encryption;
mod error;
mod login;
pub mod percent;
mod stream;
pub mod uri;
mod write_concern;

pub use client::{
    BulkOptions, Client, Cursor, CursorRequest, Dialect, Find, Limits, WriteFailure, WriteTarget,
    check, first_of_batch,
};
pub use collection::Collection;
pub use encryption::Encryption;
pub use error::{Error, Result};
pub use login::Login;
pub use stream::Stream;
pub use uri::{Address, Uri};
pub use write_concern::WriteConcern;
