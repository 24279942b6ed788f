//! The log of the server, counters and latencies, records of operations, warnings.

pub mod engine_stats;
pub mod histogram;
pub mod log;
pub mod metric_samples;
pub mod metrics;
pub mod op_record;
pub mod profiler;
pub mod query_stats;
pub mod startup_warnings;
pub mod system_log;
pub mod tikv_stats;
