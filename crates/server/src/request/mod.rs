//! From the bytes of a message to the bytes of its reply.
//!
//! A message is parsed once, into an [`Exchange`]: a command ([`parse::Request`]), or a message of an old opcode, which becomes
//! commands. Each command passes the steps of the [`pipeline`].

mod answer;
mod armed;
mod audit;
mod durability;
mod exchange;
mod gate;
mod handled;
mod legacy;
mod limits;
mod parse;
mod parsed_memory;
mod pipeline;
mod record;
mod rules;
mod secrets;
mod shared_fields;
mod tracing;
mod transaction_fields;
mod waits;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub use answer::Answer;
pub use exchange::{Exchange, Inflated, inflate, log_malformed, message_bytes_max, pack};
pub use handled::Handled;
#[cfg(test)]
pub use parse::Request;
pub use parse::wants_reply;

#[cfg(test)]
pub use pipeline::{InFlight, Step};
pub use waits::until;

/// The server stops before a command has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping;
