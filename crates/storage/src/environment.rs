//! The environment of expressions besides the document: variables, the time, the collation.

use frond_bson::{Collator, Doc};
use frond_query::Environment;

use crate::scripts;

pub use crate::scripts::{RequestTimes, request_times};

/// The environment of expressions: variables, the times of the request, and the collation.
pub fn environment<'a>(variables: Option<&'a Doc>, collator: &'a Collator) -> Environment<'a> {
    environment_at(request_times(), variables, collator)
}

/// As [`environment`], with the times of the request that opened a cursor, which this one reads.
pub fn environment_at<'a>(
    times: RequestTimes,
    variables: Option<&'a Doc>,
    collator: &'a Collator,
) -> Environment<'a> {
    Environment {
        variables,
        now_ms: times.now_ms,
        cluster_time: times.cluster_time,
        collator,
        scripts: scripts::script_host(),
        internal: scripts::is_internal(),
    }
}

/// `$$NOW`, in milliseconds since 1970: the same for all statements and stages of a request.
pub fn request_ms() -> i64 {
    request_times().now_ms
}
