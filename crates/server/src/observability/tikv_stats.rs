//! The requests to a TiKV cluster, for the section `tikv` of `serverStatus`.

use frond_bson::{DocBuf, Value, doc};
use frond_store::{ClusterRequests, ClusterStats};

fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The time of a timestamp of PD, whose upper bits are milliseconds.
fn date(at: u64) -> Value<'static> {
    Value::DateTime(count(at >> 18))
}

fn requests(requests: ClusterRequests) -> DocBuf {
    doc! {"count": count(requests.count), "micros": count(requests.micros)}
}

/// The statistics as a document; times are in microseconds, and of all requests together.
pub fn to_doc(stats: &ClusterStats, instance: Option<u32>) -> DocBuf {
    let collected = stats.collected;
    let mut out = doc! {
        "instance": instance.map_or(0, i64::from),
        "roundTrips": count(stats.round_trips),
    };
    let mut by_kind = DocBuf::new();
    for (name, of) in [
        ("timestamps", stats.timestamps),
        ("gets", stats.gets),
        ("scans", stats.scans),
        ("commits", stats.commits),
        ("regions", stats.regions),
        ("collector", stats.collector),
    ] {
        by_kind.push(name, &requests(of));
    }
    out.push("requests", &by_kind);
    out.push("retries", count(stats.retries));
    out.push("reconnections", count(stats.reconnections));
    out.push("requestLimitMillis", count(stats.limit_ms));
    out.push(
        "commits",
        &doc! {
            "conflicts": count(stats.conflicts),
            "unknownOutcomes": count(stats.unknown_outcomes),
        },
    );
    out.push(
        "garbageCollector",
        &doc! {
            "safepoint": date(collected.safepoint),
            "safepointMoved": collected.was_moved,
            "tikvSafepoint": date(collected.moved_to),
            "failedRuns": count(collected.failed_runs),
            "trees": count(collected.trees),
            "largeValues": count(collected.values),
            "counters": count(collected.counters),
            "instances": count(collected.instances),
        },
    );
    let kept = stats.kept;
    out.push(
        "oldVersions",
        &doc! {
            "keptFrom": date(kept.from),
            "lostBefore": date(kept.lost_before),
            "refusals": count(kept.refusals),
            "failures": count(kept.failures),
        },
    );
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use frond_store::KeptVersions;

    #[test]
    fn requests_are_told_by_kind() {
        let stats = ClusterStats {
            gets: ClusterRequests {
                count: 3,
                micros: 900,
            },
            conflicts: 2,
            kept: KeptVersions {
                from: 5000 << 18,
                refusals: 1,
                ..KeptVersions::default()
            },
            ..ClusterStats::default()
        };
        let doc = to_doc(&stats, Some(7));
        let gets = doc.get_doc("requests").unwrap().get_doc("gets").unwrap();
        assert_eq!(gets.get_i64("micros"), Some(900));
        let commits = doc.get_doc("commits").unwrap();
        assert_eq!(commits.get_i64("conflicts"), Some(2));
        assert_eq!(doc.get_i64("instance"), Some(7));
        let kept = doc.get_doc("oldVersions").unwrap();
        assert_eq!(kept.get("keptFrom"), Some(Value::DateTime(5000)));
        assert_eq!(kept.get_i64("refusals"), Some(1));
    }
}
