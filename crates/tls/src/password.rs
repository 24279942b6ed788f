//! Passwords of files.

use std::fmt;

use zeroize::Zeroizing;

/// A password. It is zeroed when it is dropped, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Password {
        Password(Zeroizing::new(text.into()))
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<password>")
    }
}
