//! Tracing in a build without the feature `otlp`: it cannot be turned on.

use crate::spans::{Finished, SpanError, TracingOptions};

/// Has no value in this build.
#[derive(Debug)]
pub struct Tracing(Never);

/// Private, so that the compiler does not warn of unreachable code in callers.
#[derive(Clone, Copy, Debug)]
enum Never {}

impl Tracing {
    /// Refuses to start.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: &TracingOptions) -> Result<Tracing, SpanError> {
        Err(SpanError(
            "this build of frond cannot export traces; build it with `--features otlp`".to_owned(),
        ))
    }

    pub fn record(&self, _: Finished<'_>) {
        match self.0 {}
    }

    pub fn stop(&self) {
        match self.0 {}
    }
}
