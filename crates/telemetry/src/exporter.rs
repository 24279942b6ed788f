//! The metrics of `mongodb_exporter`, under its names, so that dashboards made for it answer.
//!
//! Its rules: the path of each figure in the reply of a command becomes a name, where every run of other characters
//! than letters and digits is one `_`; some starts of paths are shortened; and below some paths the field is a label.
//! Source: <https://www.percona.com/blog/new-mongodb-exporter-released-with-percona-monitoring-and-management-2-10-0/>

use frond_bson::{Doc, Value};

use crate::families::{Families, Labels};

/// Prefixes of paths and their short forms; the first that fits counts.
const SHORTENED: [(&str, &str); 4] = [
    ("serverStatus.wiredTiger.transaction.", "ss_wt_txn_"),
    ("serverStatus.wiredTiger.", "ss_wt_"),
    (
        "serverStatus.queues.execution.",
        "ss_wt_concurrentTransactions_",
    ),
    ("serverStatus.", "ss_"),
];

/// Paths below which the name of a figure is the value of a label.
const LABELLED: [(&str, &str); 11] = [
    ("serverStatus.asserts", "assert_type"),
    ("serverStatus.connections", "conn_type"),
    ("serverStatus.globalLock.currentQueue", "count_type"),
    ("serverStatus.metrics.commands", "cmd_name"),
    ("serverStatus.metrics.cursor.open", "csr_type"),
    ("serverStatus.metrics.document", "doc_op_type"),
    ("serverStatus.opReadConcernCounters", "concern_type"),
    ("serverStatus.opcounters", "legacy_op_type"),
    ("serverStatus.opcountersRepl", "legacy_op_type"),
    ("serverStatus.transactions.commitTypes", "commit_type"),
    ("collstats.storageStats.indexSizes", "index_name"),
];

/// Paths below which the name of a document is the value of a label.
const GROUPED: [(&str, &str); 3] = [
    ("serverStatus.opLatencies", "op_type"),
    ("serverStatus.queues.execution", "txn_rw_type"),
    (
        "serverStatus.wiredTiger.concurrentTransactions",
        "txn_rw_type",
    ),
];

/// Adds every figure of a reply. `path` is the name that the exporter gives to the reply, such as `serverStatus`; the
/// labels are those of every series.
pub fn add(families: &mut Families, path: &str, reply: &Doc, labels: &Labels<'_>) {
    for (field, value) in reply.iter() {
        if let Value::Document(inner) = value {
            match label_of(&GROUPED, path) {
                Some(label) => add(families, path, inner, &with(labels, label, field)),
                None => add(families, &format!("{path}.{field}"), inner, labels),
            }
            continue;
        }
        let figure = match value {
            Value::Bool(on) => f64::from(u8::from(on)),
            Value::DateTime(millis) => millis as f64,
            Value::Timestamp(at) => f64::from(at.time),
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) => {
                value.as_f64().unwrap_or_default()
            }
            _ => continue,
        };
        match label_of(&LABELLED, path) {
            Some(label) => add_figure(families, path, &with(labels, label, field), figure),
            None => add_figure(families, &format!("{path}.{field}"), labels, figure),
        }
    }
}

fn label_of(table: &[(&str, &'static str)], path: &str) -> Option<&'static str> {
    let entry = table.iter().find(|(of, _)| *of == path);
    entry.map(|(_, label)| *label)
}

fn with<'a>(labels: &Labels<'a>, name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    labels.iter().copied().chain([(name, value)]).collect()
}

fn add_figure(families: &mut Families, path: &str, labels: &Labels<'_>, figure: f64) {
    let name = metric_name(path);
    let help = format!("The figure {path} of a reply, as mongodb_exporter names it.");
    // The exporter gives most figures no type; the format has a rule for names that end so.
    if name.ends_with("_total") {
        families.counter(&name, &help, labels, figure);
    } else {
        families.gauge(&name, &help, labels, figure);
    }
}

/// The exporter's name for a path.
fn metric_name(path: &str) -> String {
    let dotted = format!("{path}.");
    let shortened = SHORTENED.iter().find_map(|(from, to)| {
        let rest = dotted.strip_prefix(from)?;
        Some(format!("{to}{rest}"))
    });
    let mut name = String::from("mongodb_");
    for c in shortened.unwrap_or(dotted).chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    name.truncate(name.trim_end_matches('_').len());
    name
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn names_are_those_of_the_exporter() {
        let table = [
            ("serverStatus.opcounters", "mongodb_ss_opcounters"),
            ("serverStatus.mem.resident", "mongodb_ss_mem_resident"),
            (
                "serverStatus.wiredTiger.cache.bytes currently in the cache",
                "mongodb_ss_wt_cache_bytes_currently_in_the_cache",
            ),
            (
                "serverStatus.wiredTiger.transaction.transaction checkpoints",
                "mongodb_ss_wt_txn_transaction_checkpoints",
            ),
            (
                "serverStatus.metrics.commands.<UNKNOWN>",
                "mongodb_ss_metrics_commands_UNKNOWN",
            ),
            (
                "serverStatus.queues.execution.out",
                "mongodb_ss_wt_concurrentTransactions_out",
            ),
            ("top.insert.count", "mongodb_top_insert_count"),
        ];
        for (path, name) in table {
            assert_eq!(metric_name(path), name, "{path}");
        }
    }

    #[test]
    fn figures_of_a_reply_become_series() {
        let reply = doc! {
            "host": "h",
            "opcounters": {"insert": 3i64, "query": 4i64},
            "opLatencies": {"reads": {"latency": 9i64, "ops": 2i64}},
            "metrics": {"commands": {"find": {"failed": 0i64, "total": 5i64}}},
            "flag": true,
            "list": [1],
        };
        let mut families = Families::default();
        add(&mut families, "serverStatus", &reply, &[("set", "rs0")]);
        let text = families.encode();
        for line in [
            "mongodb_ss_opcounters{set=\"rs0\",legacy_op_type=\"insert\"} 3",
            "mongodb_ss_opcounters{set=\"rs0\",legacy_op_type=\"query\"} 4",
            "mongodb_ss_opLatencies_latency{set=\"rs0\",op_type=\"reads\"} 9",
            "# TYPE mongodb_ss_metrics_commands_find_total counter",
            "mongodb_ss_metrics_commands_find_total{set=\"rs0\"} 5",
            "mongodb_ss_flag{set=\"rs0\"} 1",
        ] {
            assert!(text.lines().any(|has| has == line), "{line}\n{text}");
        }
        assert!(!text.contains("host") && !text.contains("list"), "{text}");
    }
}
