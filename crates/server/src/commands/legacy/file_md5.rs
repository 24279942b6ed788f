//! `filemd5`: the MD5 sum of a file in GridFS, which drivers before 2018 request after storing one.

use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::Md5;
use frond_store::{FindRequest, Namespace};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::Work;

pub struct FileMd5;

const SPEC: Spec = Spec {
    names: &["filemd5"],
    doc: "Computes the MD5 sum of a file in GridFS.",
    fields: &["root"],
    // Sent only between servers of a cluster.
    unsupported_fields: &["partialOk", "md5state"],
    work: Work::Long,
    on_collection: false,
    stable_api: false,
    ..Spec::READ
};

impl Command for FileMd5 {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let root = root(&request.args())?;
        let chunks = Place::collection(request.db, format!("{root}.chunks"));
        Ok(Needs::on(chunks, Action::Find))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let root = root(&cx.args())?;
        let namespace = Namespace::new(cx.db, &format!("{root}.chunks"))?;
        let id = cx.body.get("filemd5").unwrap_or(Value::Null);
        let filter = doc! {"files_id": {"$eq": id}};
        let index = doc! {"files_id": 1, "n": 1};
        let request = FindRequest {
            filter: Some(&filter),
            sort: Some(&index),
            hint: Some(Value::Document(&index)),
            ..FindRequest::default()
        };
        let store = &cx.server.store;
        let mut chunks = store
            .find(&namespace, &request, &cx.limits)
            .map_err(|error| no_index(error.into(), &namespace))?;
        let (mut sum, mut count) = (Md5::default(), 0);
        while let Some(chunk) = chunks.next()? {
            if chunk.get("n").and_then(|n| n.as_i64_lossless()) != Some(count) {
                return Err(Error::location(
                    10040,
                    format!("chunks out of order: the chunk {count} of the file is missing"),
                ));
            }
            sum.add(data_of(chunk.get("data"))?);
            count += 1;
        }
        Ok(doc! {
            "numChunks": i32::try_from(count).unwrap_or(i32::MAX),
            "md5": sum.hex(),
        })
    }
}

/// The bucket of the file.
fn root<'a>(args: &Arguments<'a>) -> Result<&'a str> {
    Ok(match args.str("root")? {
        None | Some("") => "fs",
        Some(root) => root,
    })
}

/// The error for a collection without the index that avoids a full scan.
fn no_index(failure: Error, namespace: &Namespace) -> Error {
    if failure.code() != ErrorCode::BadValue {
        return failure;
    }
    Error::new(
        ErrorCode::NoQueryExecutionPlans,
        format!(
            "filemd5 needs the index {{files_id: 1, n: 1}} on {}",
            namespace.as_str()
        ),
    )
}

/// The bytes of a chunk. The old binary subtype begins with their length.
fn data_of(data: Option<Value<'_>>) -> Result<&[u8]> {
    match data {
        Some(Value::Binary { subtype: 2, bytes }) => Ok(bytes.get(4..).unwrap_or_default()),
        Some(Value::Binary { bytes, .. }) => Ok(bytes),
        other => Err(Error::location(
            50849,
            format!(
                "the field 'data' of a chunk must be of the type binData, but is {}",
                other.map_or("missing", |value| value.type_name())
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, Value, doc};

    use crate::testing::TestServer;

    fn chunk(file: i32, n: i32, subtype: u8, bytes: &[u8]) -> DocBuf {
        doc! {"files_id": file, "n": n, "data": Value::Binary { subtype, bytes }}
    }

    /// GridFS of PyMongo 2, of the Node.js driver 2, and others.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_is_summed_up_chunk_by_chunk() {
        let mut server = TestServer::new();
        let empty = "d41d8cd98f00b204e9800998ecf8427e";
        let sum = |server: &mut TestServer, id: i32| {
            let reply = server.run("test", doc! {"filemd5": id, "root": "fs"});
            (
                reply.get_i32("numChunks").unwrap(),
                reply.get_str("md5").unwrap().to_owned(),
            )
        };
        assert_eq!(sum(&mut server, 1), (0, empty.to_owned()));
        let chunks = [
            chunk(1, 1, 0, b"world"),
            chunk(1, 0, 0, b"hello "),
            chunk(2, 0, 2, b"\x03\0\0\0abc"),
            chunk(3, 0, 0, b"x"),
            chunk(3, 2, 0, b"y"),
            doc! {"files_id": 4, "n": 0, "data": "text"},
        ];
        let mut insert = doc! {"insert": "fs.chunks"};
        insert.push_array("documents", |list| {
            for chunk in &chunks {
                list.push(chunk);
            }
        });
        server.run("test", insert);
        // The whole collection is not read for one file.
        assert_eq!(server.code("test", doc! {"filemd5": 1, "root": "fs"}), 291);
        let index = doc! {"key": {"files_id": 1, "n": 1}, "name": "files_id_1_n_1", "unique": true};
        server.run(
            "test",
            doc! {"createIndexes": "fs.chunks", "indexes": [index]},
        );
        let world = "5eb63bbbe01eeed093cb22bb8f5acdc3";
        assert_eq!(sum(&mut server, 1), (2, world.to_owned()));
        let abc = "900150983cd24fb0d6963f7d28e17f72";
        assert_eq!(sum(&mut server, 2), (1, abc.to_owned()));
        assert_eq!(sum(&mut server, 9), (0, empty.to_owned()));
        for (command, code) in [
            (doc! {"filemd5": 3}, 10040),
            (doc! {"filemd5": 4}, 50849),
            (doc! {"filemd5": 1, "root": 5}, 14),
            (doc! {"filemd5": 1, "partialOk": true}, 238),
            (doc! {"filemd5": 1, "x": true}, 40415),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
