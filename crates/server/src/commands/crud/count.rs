use frond_bson::DocBuf;
use frond_error::Result;
use frond_store::CountRequest;

use super::find::{hint, of_measurements};
use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::reply::push_count;

pub struct Count;

const SPEC: Spec = Spec {
    names: &["count"],
    doc: "Counts documents.",
    // Old drivers send a projection, which has no effect on a count.
    fields: &[
        "collectionUUID",
        "query",
        "limit",
        "skip",
        "hint",
        "fields",
        "collation",
    ],
    counts_shapes: true,
    ..Spec::READ
};

impl Command for Count {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Find)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let mut request = parse(&cx.args())?;
        let of_buckets = of_measurements(cx, &namespace, request.filter)?;
        if of_buckets.is_some() {
            request.filter = of_buckets.as_deref();
        }
        let n = cx.server.store.count(&namespace, &request, &cx.limits)?;
        let mut reply = DocBuf::new();
        push_count(&mut reply, "n", n);
        Ok(reply)
    }
}

/// Reads the fields of the command.
pub fn parse<'a>(args: &Arguments<'a>) -> Result<CountRequest<'a>> {
    let limit = args.i64("limit")?.unwrap_or(0).unsigned_abs();
    Ok(CountRequest {
        filter: args.doc_field("query")?,
        skip: args.u64("skip")?.unwrap_or(0),
        // A negative limit means the same as the positive one.
        limit: (limit > 0).then_some(limit),
        hint: hint(args)?,
        collation: args.collation()?,
    })
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_are_counted() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let cases = [
            (doc! {"count": "c"}, 10),
            (doc! {"count": "c", "query": {"_id": {"$lt": 4}}}, 4),
            (doc! {"count": "c", "query": {}, "limit": 3}, 3),
            (doc! {"count": "c", "limit": -3}, 3),
            (doc! {"count": "c", "skip": 8, "fields": null}, 2),
            (doc! {"count": "none"}, 0),
        ];
        for (command, n) in cases {
            let reply = server.run("test", command.clone());
            assert_eq!(reply, doc! {"n": n, "ok": 1.0}, "{command:?}");
        }
        let wrong = [
            (doc! {"count": "c", "skip": -1}, 51024),
            (doc! {"count": "c", "query": 1}, 14),
            (doc! {"count": "c", "x": 1}, 40415),
            (doc! {"count": "c", "collation": {"locale": "xx"}}, 2),
        ];
        for (command, code) in wrong {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
