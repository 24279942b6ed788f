//! `dataSize`

use std::time::Instant;

use frond_bson::{Doc, DocBuf, doc};
use frond_store::{FindRequest, Namespace};

use super::{Command, Traits};
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Sums the sizes of documents.
pub struct DataSize;

impl Command for DataSize {
    fn names(&self) -> &'static [&'static str] {
        &["dataSize", "datasize"]
    }

    fn doc(&self) -> &'static str {
        "Sums the sizes of a collection's documents, or of those in a range of an index."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["keyPattern", "min", "max", "estimate"]
    }

    fn traits(&self) -> Traits {
        Traits {
            on_collection: false,
            ..Traits::READ.stable(false)
        }
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
            return Err(Failure::bad_value("min and max must be given together"));
        }
        let (size, count) = if min.is_none() {
            let stats = cx.server.store.collection_stats(&namespace)?;
            (stats.size, stats.count)
        } else {
            let pattern = pattern.map_or_else(|| pattern_of(min), Doc::to_owned);
            let request = FindRequest {
                min,
                max,
                hint: Some(frond_bson::Value::Document(&pattern)),
                ..FindRequest::default()
            };
            let mut cursor = cx.server.store.find(&namespace, &request, &cx.limits)?;
            let (mut size, mut count) = (0, 0);
            while let Some(document) = cursor.next()? {
                size += document.len_bytes() as u64;
                count += 1;
            }
            (size, count)
        };
        Ok(doc! {
            "estimate": estimate,
            "size": i64::try_from(size).unwrap_or(i64::MAX),
            "numObjects": i64::try_from(count).unwrap_or(i64::MAX),
            "millis": i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX),
        })
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
        assert_eq!(server.code("test", doc! {"dataSize": 1}), 14);
    }
}
