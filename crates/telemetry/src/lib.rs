//! What monitoring reads: metrics in Prometheus' text format, and traces by OpenTelemetry's protocol.
//!
//! The crate knows formats and names. The figures come in as documents, those that `serverStatus` and `top` reply.
#![forbid(unsafe_code)]

mod exporter;
mod families;
mod metrics;
mod spans;
mod trace_parent;

pub use families::CONTENT_TYPE;
pub use metrics::{CollectionFigures, IndexFigures, Report, render};
pub use spans::{Finished, SpanError, Tracing, TracingOptions};
pub use trace_parent::TraceParent;
