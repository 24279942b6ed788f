//! The result of handling a message.

use std::time::Duration;

use crate::memory_quota::Permit;

/// The actions after a message.
#[derive(Default)]
pub struct Handled {
    pub reply: Option<Vec<u8>>,
    /// Memory for the reply, which is held until it is sent.
    pub permit: Option<Permit>,
    /// Wait this long before sending them.
    pub wait: Option<Duration>,
    /// Handle the same message again after sending: another reply of an exhaust command.
    pub again: bool,
    /// Close the connection after sending.
    pub close: bool,
    /// The message holds a secret, and has to be overwritten.
    pub has_secrets: bool,
}

impl Handled {
    /// Closes the connection without an answer.
    pub fn close() -> Handled {
        Handled {
            close: true,
            ..Handled::default()
        }
    }
}
