//! What the store tells the server of its own accord, and how the server calls itself.

use std::fmt;
use std::sync::OnceLock;

use frond_bson::Doc;

use crate::namespace::Namespace;

/// Told of a document that a validator would have refused, with the error's details.
type Warning = Box<dyn Fn(&Namespace, &Doc) + Send + Sync>;

/// Whom to tell. Each is set once, after the store was opened.
#[derive(Default)]
pub struct Hooks {
    invalid_document: OnceLock<Warning>,
    host: OnceLock<String>,
}

impl Hooks {
    /// Sets who is told of documents that are stored though they do not pass their validator, whose
    /// action is `warn`. The first call counts.
    pub fn on_invalid_document(&self, tell: impl Fn(&Namespace, &Doc) + Send + Sync + 'static) {
        let _ = self.invalid_document.set(Box::new(tell));
    }

    /// Sets the host and the port under which the server shows itself. The first call counts.
    pub fn name_host(&self, host: String) {
        let _ = self.host.set(host);
    }

    /// The host and the port of the server, if there is one.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.get().map(String::as_str)
    }

    pub(crate) fn invalid_document(&self, ns: &Namespace, info: &Doc) {
        if let Some(tell) = self.invalid_document.get() {
            tell(ns, info);
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
