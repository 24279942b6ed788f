//! A span of a trace: settings, and the data that a command that has ended leaves.

use std::time::Duration;

use crate::TraceParent;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingOptions {
    /// The collector, such as `http://127.0.0.1:4318`; `/v1/traces` is added.
    pub endpoint: String,
    /// The share of the commands to trace, from 0 to 1. A command of a client's trace is traced if, and only if, the
    /// client's span is sampled.
    pub sampling: f64,
    /// The identity of this server: its host and port.
    pub instance: String,
    /// The version of the server.
    pub version: String,
}

/// Why tracing cannot start.
#[derive(Debug)]
pub struct SpanError(pub(crate) String);

impl std::fmt::Display for SpanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpanError {}

/// A command that has ended.
#[derive(Debug, Default)]
pub struct Finished<'a> {
    /// The span that the client named in the comment.
    pub parent: Option<TraceParent>,
    /// The command, such as `find`.
    pub command: &'a str,
    pub database: &'a str,
    /// Its collection, if it has one.
    pub collection: Option<&'a str>,
    pub client: &'a str,
    /// The client's name for itself.
    pub application: Option<&'a str>,
    /// Its comment, as text.
    pub comment: Option<String>,
    /// The duration of the operation.
    pub took: Duration,
    /// The code and the message of its error, if it failed.
    pub error: Option<(i32, &'a str)>,
}
