use std::time::Instant;

use frond_bson::{Doc, DocBuf, doc};
use frond_error::{Error, Result};
use frond_store::{FindRequest, Namespace};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct DataSize;

const SPEC: Spec = Spec {
    names: &["dataSize", "datasize"],
    doc: "Sums the sizes of a collection's documents, or of those in a range of an index.",
    fields: &[
        "keyPattern",
        "min",
        "max",
        "estimate",
        "maxSize",
        "maxObjects",
    ],
    on_collection: false,
    stable_api: false,
    ..Spec::READ
};

impl Command for DataSize {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let name = request.body.first().and_then(|(_, name)| name.as_str());
        Needs::on_namespace(name.unwrap_or_default(), Action::Find)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let began = Instant::now();
        let args = cx.args();
        let name = args
            .str("dataSize")?
            .or(args.str("datasize")?)
            .ok_or_else(|| args.missing("dataSize"))?;
        let namespace = Namespace::parse(name)?;
        let estimate = args.flag("estimate")?.unwrap_or(false);
        let (min, max) = (args.doc_field("min")?, args.doc_field("max")?);
        let pattern = args.doc_field("keyPattern")?;
        if min.is_some() != max.is_some() {
            return Err(Error::bad_value("min and max must be given together"));
        }
        // 0 means no limit.
        let limit = |name| Ok::<_, Error>(args.u64(name)?.filter(|limit| *limit > 0));
        let (max_size, max_objects) = (limit("maxSize")?, limit("maxObjects")?);
        let whole = min.is_none() && max_size.is_none() && max_objects.is_none();
        let mut max_reached = false;
        let (size, count) = if whole {
            let stats = cx.server.store.collection_stats(&namespace)?;
            (stats.size, stats.count)
        } else {
            let pattern = pattern.map_or_else(|| pattern_of(min), Doc::to_owned);
            let request = FindRequest {
                min,
                max,
                hint: min.map(|_| frond_bson::Value::Document(&pattern)),
                ..FindRequest::default()
            };
            let mut cursor = cx.server.store.find(&namespace, &request, &cx.limits)?;
            let (mut size, mut count) = (0, 0);
            while let Some(document) = cursor.next()? {
                size += document.len_bytes() as u64;
                count += 1;
                // The document that exceeds a limit is counted, as in MongoDB.
                max_reached = max_size.is_some_and(|most| size > most)
                    || max_objects.is_some_and(|most| count > most);
                if max_reached {
                    break;
                }
            }
            (size, count)
        };
        let mut reply = doc! {
            "estimate": estimate,
            "size": i64::try_from(size).unwrap_or(i64::MAX),
            "numObjects": i64::try_from(count).unwrap_or(i64::MAX),
            "millis": i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
        };
        if max_reached {
            reply.push("maxReached", true);
        }
        Ok(reply)
    }
}

/// The ascending key pattern with the fields of a bound.
fn pattern_of(bound: Option<&Doc>) -> DocBuf {
    let mut pattern = DocBuf::new();
    for (name, _) in bound.unwrap_or(Doc::empty()).iter() {
        pattern.push(name, 1);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn sizes_are_summed() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let one = doc! {"_id": 1, "a": 1}.len_bytes() as i64;
        let reply = server.run("test", doc! {"dataSize": "test.c"});
        assert_eq!(
            (reply.get_i64("size"), reply.get_i64("numObjects")),
            (Some(10 * one), Some(10))
        );
        let range = doc! {"dataSize": "test.c", "keyPattern": {"_id": 1}, "min": {"_id": 2}, "max": {"_id": 5}};
        let reply = server.run("test", range);
        assert_eq!(
            (reply.get_i64("size"), reply.get_i64("numObjects")),
            (Some(3 * one), Some(3))
        );
        assert_eq!(
            server
                .run("test", doc! {"dataSize": "test.none"})
                .get_i64("size"),
            Some(0)
        );
        assert_eq!(
            server.code("test", doc! {"dataSize": "test.c", "min": {"_id": 2}}),
            2
        );
        assert_eq!(
            server.code("test", doc! {"dataSize": "test.c", "maxObjects": -1}),
            51024
        );
        assert_eq!(server.code("test", doc! {"dataSize": 1}), 14);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limit_of_documents_or_bytes_ends_the_sum() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let one = doc! {"_id": 1, "a": 1}.len_bytes() as i64;
        // The limits, the number of counted documents, and whether a limit was reached.
        let cases = [
            (doc! {"maxObjects": 3}, 4, true),
            (
                doc! {"maxObjects": 3, "min": {"_id": 8}, "max": {"_id": 10}},
                2,
                false,
            ),
            (doc! {"maxObjects": 9}, 10, true),
            (doc! {"maxObjects": 10}, 10, false),
            (doc! {"maxSize": 2 * one}, 3, true),
            (doc! {"maxSize": 100 * one, "maxObjects": 0}, 10, false),
        ];
        for (limits, count, reached) in cases {
            let mut command = doc! {"dataSize": "test.c"};
            command.push_all(&limits);
            let reply = server.run("test", command);
            assert_eq!(reply.get_i64("numObjects"), Some(count), "{limits:?}");
            assert_eq!(reply.get_i64("size"), Some(count * one), "{limits:?}");
            assert_eq!(
                reply.get_bool("maxReached").is_some(),
                reached,
                "{limits:?}"
            );
        }
    }
}
