//! Callbacks from the store to the server, and the name of the server's host.

use std::fmt;
use std::sync::OnceLock;

use frond_bson::{Doc, DocBuf};

use frond_storage::namespace::Namespace;

/// Receives the namespace and the error details of a document that failed validation.
type Warning = Box<dyn Fn(&Namespace, &Doc) + Send + Sync>;

/// Reports the use of a collection: `latencyStats` or `queryExecStats`, with the options of the client.
type UsageOf = Box<dyn Fn(&Namespace, &str, &Doc) -> DocBuf + Send + Sync>;

/// Collections whose changes the server wants to know of.
struct Watch {
    namespaces: &'static [&'static str],
    notify: Box<dyn Fn() + Send + Sync>,
}

/// Callbacks that the server registers. Each is set once, after the store was opened.
#[derive(Default)]
pub struct Hooks {
    invalid_document: OnceLock<Warning>,
    watch: OnceLock<Watch>,
    host: OnceLock<String>,
    usage: OnceLock<UsageOf>,
}

impl Hooks {
    /// Sets the callback for documents that fail a validator whose action is `warn`, and so are stored. Later calls have
    /// no effect.
    pub fn on_invalid_document(&self, notify: impl Fn(&Namespace, &Doc) + Send + Sync + 'static) {
        let _ = self.invalid_document.set(Box::new(notify));
    }

    /// Sets the collections of which the server keeps a copy, and the callback for their changes: after each commit that may
    /// have changed one of their documents, and after each change of their definition, when readers see it. It must not wait.
    /// Later calls have no effect.
    pub fn on_change_of(
        &self,
        namespaces: &'static [&'static str],
        notify: impl Fn() + Send + Sync + 'static,
    ) {
        let notify = Box::new(notify);
        let _ = self.watch.set(Watch { namespaces, notify });
    }

    /// Sets the host and the port that the server reports. Later calls have no effect.
    pub fn name_host(&self, host: String) {
        let _ = self.host.set(host);
    }

    /// Sets the source of the usage of collections, for `$collStats`. Later calls have no effect.
    pub fn tell_usage(
        &self,
        of: impl Fn(&Namespace, &str, &Doc) -> DocBuf + Send + Sync + 'static,
    ) {
        let _ = self.usage.set(Box::new(of));
    }

    /// A part of `$collStats` that the server knows. `None` if there is no server.
    pub(crate) fn usage(&self, ns: &Namespace, part: &str, options: &Doc) -> Option<DocBuf> {
        Some(self.usage.get()?(ns, part, options))
    }

    /// The host and the port of the server, if there is one.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.get().map(String::as_str)
    }

    /// Whether the server wants to know of changes of a collection.
    pub(crate) fn watches(&self, ns: &Namespace) -> bool {
        let watch = self.watch.get();
        watch.is_some_and(|watch| watch.namespaces.contains(&ns.as_str()))
    }

    /// The collections whose changes the server wants to know of.
    pub(super) fn watched(&self) -> &'static [&'static str] {
        self.watch.get().map_or(&[], |watch| watch.namespaces)
    }

    /// One of these collections may have changed.
    pub(crate) fn changed(&self) {
        if let Some(watch) = self.watch.get() {
            (watch.notify)();
        }
    }

    pub(crate) fn invalid_document(&self, ns: &Namespace, info: &Doc) {
        if let Some(notify) = self.invalid_document.get() {
            notify(ns, info);
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}
