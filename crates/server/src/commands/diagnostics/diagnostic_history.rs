//! `getDiagnosticHistory`: the recorded samples of the server's counters.

use frond_bson::{DocBuf, Value};
use frond_error::{Error, Result};
use frond_telemetry::history::{Kind, Sample};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use frond_runtime::{AdmissionClass, Work};

/// The default number of samples in a reply.
const POINTS: usize = 600;

/// The most samples in a reply.
const POINTS_MAX: u64 = 4000;

pub struct GetDiagnosticHistory;

const SPEC: Spec = Spec {
    names: &["getDiagnosticHistory"],
    doc: "Returns what the server has recorded of itself: each second for ten minutes, each ten seconds for some days. 'after' and 'until' \
          are dates, 'points' is the most samples; without 'after' these are the newest ones.",
    fields: &["after", "until", "points"],
    work: Work::Long,
    // It may read files.
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetDiagnosticHistory {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ServerStatus))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let until = date(cx, "until")?.unwrap_or_else(now_ms);
        let points = match cx.args().u64("points")? {
            None => POINTS,
            Some(n @ 1..=POINTS_MAX) => n as usize,
            Some(n) => {
                return Err(Error::bad_value(format!(
                    "'points' must be from 1 to {POINTS_MAX}, not {n}"
                )));
            }
        };
        let seconds = i64::try_from(points).unwrap_or(i64::MAX);
        let after =
            date(cx, "after")?.unwrap_or(until.saturating_sub(seconds.saturating_mul(1000)));
        let history = &cx.server.records.history;
        let samples = history.between(after, until, points);
        let mut reply = DocBuf::new();
        reply.push("now", Value::DateTime(now_ms()));
        reply.push_array("times", |times| {
            for sample in &samples {
                times.push(Value::DateTime(sample.time_ms));
            }
        });
        for (name, kind) in [("counters", Kind::Counter), ("gauges", Kind::Gauge)] {
            reply.push_doc(name, |group| {
                let all = history.metrics().iter().enumerate();
                for (at, figure) in all.filter(|(_, figure)| figure.kind == kind) {
                    group.push_array(figure.name, |values| {
                        for sample in &samples {
                            values.push(value(sample, at));
                        }
                    });
                }
            });
        }
        Ok(reply)
    }
}

fn value(sample: &Sample, at: usize) -> i64 {
    let value = sample.values.get(at).copied().unwrap_or(0);
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn date(cx: &Context<'_>, field: &str) -> Result<Option<i64>> {
    match cx.args().get(field) {
        None => Ok(None),
        Some(Value::DateTime(ms)) => Ok(Some(ms)),
        Some(other) => Err(cx.args().wrong_type(field, &other, "type 'date'")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::observability::metric_samples::sample;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_returns_what_was_sampled() {
        let mut server = TestServer::new();
        let now = now_ms();
        let add = |server: &TestServer, time| {
            let shared = &server.server;
            shared
                .records
                .history
                .add(sample(time, &shared.sources()))
                .unwrap();
        };
        add(&server, now - 2000);
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]},
        );
        add(&server, now - 1000);
        let reply = server.run("admin", doc! {"getDiagnosticHistory": 1});
        let times: Vec<Value<'_>> = reply.get_array("times").unwrap().values().collect();
        assert_eq!(
            times,
            [Value::DateTime(now - 2000), Value::DateTime(now - 1000)]
        );
        let inserts = reply.get_doc("counters").unwrap();
        let inserts = inserts.get_array("ops.insert").unwrap().values();
        let inserts: Vec<i64> = inserts.map(|n| n.as_i64_lossless().unwrap()).collect();
        assert_eq!(inserts, [0, 2]);
        let gauges = reply.get_doc("gauges").unwrap();
        for name in [
            "memory.resident",
            "memory.limit",
            "cache.limit",
            "connections",
        ] {
            let newest = gauges.get_array(name).unwrap().values().last().unwrap();
            assert!(newest.as_i64_lossless().unwrap() > 0, "{name}");
        }
        let after = doc! {"getDiagnosticHistory": 1, "after": Value::DateTime(now - 2000)};
        let reply = server.run("admin", after);
        assert_eq!(reply.get_array("times").unwrap().values().count(), 1);
        for (field, value, code) in [
            ("after", Value::Int32(1), 14),
            ("points", Value::Int32(0), 2),
            ("points", Value::Int32(5000), 2),
            ("nonsense", Value::Int32(1), 40415),
        ] {
            let mut command = doc! {"getDiagnosticHistory": 1};
            command.push(field, value);
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
    }
}
