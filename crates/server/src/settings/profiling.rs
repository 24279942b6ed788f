//! The settings of the profiler.

use std::time::Duration;

use frond_bson::{DocBuf, extjson};

use super::table::{Kind, Setting, integer, number, text};

/// Which operations the profiler records from the start.
#[derive(Clone, Debug)]
pub struct ProfilingSettings {
    /// The level of all databases.
    pub level: u8,
    /// The part of slow operations that is logged and recorded.
    pub sample_rate: f64,
    /// Which operations are logged and recorded, instead of slow ones.
    pub filter: Option<DocBuf>,
}

impl Default for ProfilingSettings {
    fn default() -> ProfilingSettings {
        ProfilingSettings {
            level: 0,
            sample_rate: 1.0,
            filter: None,
        }
    }
}

/// `--slowms`
pub const THRESHOLD: Setting = Setting {
    flag: "slowms",
    key: "operationProfiling.slowOpThresholdMs",
    aliases: &[],
    kind: Kind::Integer(0, i32::MAX as i64),
    help: "Log operations that take at least this many milliseconds (default 100)",
    apply: |s, v| integer(v).map(|ms| s.slow_operation = Duration::from_millis(ms)),
};

/// `--slowOpSampleRate`
pub const SAMPLE_RATE: Setting = Setting {
    flag: "slowOpSampleRate",
    key: "operationProfiling.slowOpSampleRate",
    aliases: &[],
    kind: Kind::Number(0.0, 1.0),
    help: "The part of slow operations that is logged and profiled (default 1)",
    apply: |s, v| number(v).map(|rate| s.profiling.sample_rate = rate),
};

/// `operationProfiling.mode`
pub const MODE: Setting = Setting {
    flag: "",
    key: "operationProfiling.mode",
    aliases: &[],
    kind: Kind::Choice(&["off", "slowOp", "all"]),
    help: "Which operations of all databases the profiler records (default off)",
    apply: |s, v| {
        s.profiling.level = match text(v)? {
            "slowOp" => 1,
            "all" => 2,
            _ => 0,
        };
        Ok(())
    },
};

/// `--profile`
pub const LEVEL: Setting = Setting {
    flag: "profile",
    key: "operationProfiling.level",
    aliases: &[],
    kind: Kind::Integer(0, 2),
    help: "The profiling level of all databases: 0 (off, the default), 1 (slow operations), 2 (all)",
    apply: |s, v| integer(v).map(|level| s.profiling.level = level),
};

/// `setParameter.internalQueryStatsRateLimit`
pub const QUERY_STATS: Setting = Setting {
    flag: "",
    key: "setParameter.internalQueryStatsRateLimit",
    aliases: &[],
    kind: Kind::Integer(-1, i32::MAX as i64),
    help: "Queries a second that $queryStats counts: 0 for none, -1 for all (default 100)",
    apply: |s, v| integer(v).map(|rate| s.query_stats_rate = rate),
};

/// `operationProfiling.filter`
pub const FILTER: Setting = Setting {
    flag: "",
    key: "operationProfiling.filter",
    aliases: &[],
    kind: Kind::Text("DOCUMENT"),
    help: "Which operations are logged and profiled, in place of slow ones: a filter on entries, as JSON",
    apply: |s, v| {
        let filter = extjson::parse(text(v)?).map_err(|error| error.to_string())?;
        s.profiling.filter = Some(filter);
        Ok(())
    },
};
