use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::state::Server;

pub struct Top;

const SPEC: Spec = Spec {
    names: &["top"],
    doc: "Shows the time spent on each collection.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for Top {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Top))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut reply = DocBuf::new();
        reply.push("totals", &totals(cx.server));
        Ok(reply)
    }
}

/// The time spent on each collection, by its namespace.
pub fn totals(server: &Server) -> DocBuf {
    let mut totals = DocBuf::new();
    totals.push("note", "all times in microseconds");
    for (namespace, usage) in server.metrics.top() {
        totals.push_doc(&namespace, |entry| {
            let (reads, writes) = (&usage.reads.timed, &usage.writes.timed);
            let others = &usage.commands;
            entry.push_doc("total", |total| {
                let all = [reads, writes, others];
                total.push("time", all.iter().map(|t| t.micros.get()).sum::<i64>());
                total.push("count", all.iter().map(|t| t.count.get()).sum::<i64>());
            });
            for (name, timed) in [
                ("readLock", reads),
                ("writeLock", writes),
                ("queries", &usage.queries),
                ("getmore", &usage.getmore),
                ("insert", &usage.insert),
                ("update", &usage.update),
                ("remove", &usage.remove),
                ("commands", others),
            ] {
                entry.push_doc(name, |out| {
                    out.push("time", timed.micros.get());
                    out.push("count", timed.count.get());
                });
            }
        });
    }
    totals
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn collections_that_were_used_are_there() {
        let mut server = TestServer::new();
        server.run("test", doc! {"find": "c"});
        server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
        let reply = server.run("admin", doc! {"top": 1});
        let entry = reply
            .get_doc("totals")
            .and_then(|totals| totals.get_doc("test.c"))
            .unwrap();
        for (name, count) in [
            ("total", 2),
            ("readLock", 1),
            ("writeLock", 1),
            ("queries", 1),
            ("insert", 1),
            ("remove", 0),
        ] {
            assert_eq!(
                entry.get_doc(name).and_then(|e| e.get_i64("count")),
                Some(count),
                "{name}"
            );
        }
    }
}
