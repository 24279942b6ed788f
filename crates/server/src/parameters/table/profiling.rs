//! Slow operations, the profiler, statistics of queries.

use std::time::Duration;

use frond_bson::extjson;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, owned, saturated};

pub static PROFILING: &[Parameter] = &[
    Parameter {
        option: "slowms",
        key: "operationProfiling.slowOpThresholdMs",
        name: "slowOpThresholdMs",
        is_named_at_start: false,
        kind: Kind::Integer(0, i32::MAX as i64),
        default: "100",
        doc: "Log operations that take at least this many milliseconds (default {default})",
        apply: Some(|s, v| {
            v.integer()
                .map(|ms| s.slow_operation = Duration::from_millis(ms))
        }),
        get: Some(|server| owned(server.slow_operation().as_millis() as i64)),
        set: Some(Setter::Integer(|server, ms| {
            server.set_slow_operation(Duration::from_millis(ms.unsigned_abs()))
        })),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "slowOpSampleRate",
        key: "operationProfiling.slowOpSampleRate",
        kind: Kind::Number(0.0, 1.0),
        default: "1",
        doc: "The part of slow operations that is logged and profiled (default {default})",
        apply: Some(|s, v| v.number().map(|rate| s.profiling.sample_rate = rate)),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "operationProfiling.mode",
        kind: Kind::Choice(&["off", "slowOp", "all"]),
        default: "off",
        doc: "Which operations of all databases the profiler records (default {default})",
        apply: Some(|s, v| {
            s.profiling.level = match v.text()? {
                "slowOp" => 1,
                "all" => 2,
                _ => 0,
            };
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        option: "profile",
        key: "operationProfiling.level",
        kind: Kind::Integer(0, 2),
        default: "0",
        doc: "The profiling level of all databases: 0 (off, the default), 1 (slow operations), 2 (all)",
        apply: Some(|s, v| v.integer().map(|level| s.profiling.level = level)),
        ..Parameter::EMPTY
    },
    Parameter {
        key: "operationProfiling.filter",
        kind: Kind::Text("DOCUMENT"),
        doc: "Which operations are logged and profiled, in place of slow ones: a filter on entries, as JSON",
        apply: Some(|s, v| {
            let filter = extjson::parse(v.text()?).map_err(|error| error.to_string())?;
            s.profiling.filter = Some(filter);
            Ok(())
        }),
        ..Parameter::EMPTY
    },
    Parameter {
        name: "internalQueryStatsRateLimit",
        kind: Kind::Integer(-1, i32::MAX as i64),
        default: "100",
        doc: "Queries a second that $queryStats counts: 0 for none, -1 for all (default {default})",
        apply: Some(|s, v| v.integer().map(|rate| s.query_stats_rate = rate)),
        get: Some(|server| saturated(server.records.query_stats.rate())),
        set: Some(Setter::Integer(|server, rate| {
            server.records.query_stats.set_rate(rate)
        })),
        ..Parameter::EMPTY
    },
];
