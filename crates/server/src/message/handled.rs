//! The result of handling a message.

use std::time::Duration;

/// What to do after a message.
#[derive(Debug, Default)]
pub struct Handled {
    /// Bytes to send.
    pub reply: Option<Vec<u8>>,
    /// Wait this long before sending them.
    pub wait: Option<Duration>,
    /// Handle the same message again after sending: another reply of an exhaust command.
    pub again: bool,
    /// Close the connection after sending.
    pub close: bool,
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
