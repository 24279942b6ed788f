//! The environment of filters, projections, updates and pipelines: variables, the time and the collator.

use crate::script::{NoScripts, ScriptHost};
use frond_bson::{Collator, Doc, Timestamp};

/// The environment in which filters, projections, updates and pipelines are parsed. The parsed form
/// keeps the collator.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The values of a command's `let`, by name.
    pub variables: Option<&'a Doc>,
    /// `$$NOW`, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`; `None` on a server outside of replica sets.
    pub cluster_time: Option<Timestamp>,
    pub collator: &'a Collator,
    /// Makes the functions of `$where`, `$function` and `$accumulator`.
    pub scripts: &'static dyn ScriptHost,
    /// Whether the stages and accumulators may stand here that only the server itself writes: those of `mapReduce`.
    pub internal: bool,
}

impl Default for Environment<'_> {
    fn default() -> Self {
        Environment {
            variables: None,
            now_ms: 0,
            cluster_time: None,
            collator: Collator::BINARY,
            scripts: &NoScripts,
            internal: false,
        }
    }
}
