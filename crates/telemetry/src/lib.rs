//! Metrics in Prometheus' text format, traces by OpenTelemetry's protocol, and the recorded history of a server's metrics.
//!
//! The exporter of traces and its HTTP client are the feature `otlp`, because they take long to build.
//!
//! The crate knows formats and names. The figures come in as documents, those that `serverStatus` and `top` reply.
#![forbid(unsafe_code)]

mod exporter;
mod families;
pub mod history;
mod metrics;
#[cfg(not(feature = "otlp"))]
mod no_otlp;
#[cfg(feature = "otlp")]
mod otlp;
mod spans;
mod trace_parent;

pub use families::CONTENT_TYPE;
pub use metrics::{CollectionStats, IndexStats, Report, render};
#[cfg(not(feature = "otlp"))]
pub use no_otlp::Tracing;
#[cfg(feature = "otlp")]
pub use otlp::Tracing;
pub use spans::{Finished, SpanError, TracingOptions};
pub use trace_parent::TraceParent;
