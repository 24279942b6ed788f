//! `aggregate` with `$changeStream`: opens a change stream.

use frond_bson::Doc;
use frond_error::{Error, ErrorCode, Result};

use super::aggregation::{Aggregation, name_of};
use crate::context::Context;
use crate::cursors::{Cursor, Source};

/// Whether a command is an `aggregate` that opens a change stream.
pub fn opens(body: &Doc) -> bool {
    let is_aggregate = body.first().is_some_and(|(name, _)| name == "aggregate");
    is_aggregate && body.get_array("pipeline").is_some_and(is_change_stream)
}

/// Whether a pipeline begins with `$changeStream`.
pub fn is_change_stream(pipeline: &Doc) -> bool {
    frond_store::is_change_stream(pipeline)
}

/// Opens a change stream.
///
/// # Errors
/// `InvalidOptions` (72) for a read concern other than `majority` and for a hint; errors of the store.
pub fn open(cx: &Context<'_>, aggregation: &Aggregation<'_>) -> Result<Cursor> {
    let Aggregation { namespace, request } = aggregation;
    let concern = cx.args().doc_field("readConcern")?;
    if let Some(level) = concern.and_then(|concern| concern.get_str("level"))
        && level != "majority"
    {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!(
                "Aggregation stage $changeStream cannot run with a readConcern other than 'majority', or in a \
                 multi-document transaction. Current readConcern: {level}"
            ),
        ));
    }
    if request.hint.is_some() {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "a change stream reads the oplog: the option 'hint' is not allowed with $changeStream",
        ));
    }
    let store = cx.store();
    let query = store.watch(cx.db, namespace.as_ref(), request, &cx.limits)?;
    let mut stages = (request.pipeline.values()).filter_map(|stage| stage.as_doc()?.first());
    let options = stages.next();
    let options = options.as_ref().and_then(|(_, options)| options.as_doc());
    if options.and_then(|options| options.get_bool("showExpandedEvents")) == Some(true) {
        cx.server.maintenance.oplog.expanded_streams.add(1);
    }
    let mut cursor = Cursor::new(
        name_of(cx, namespace.as_ref()),
        Source::Query(Box::new(query)),
    );
    cursor.awaits = true;
    cursor.is_change_stream = true;
    cursor.splits_events = matches!(stages.last(), Some(("$changeStreamSplitLargeEvent", _)));
    Ok(cursor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, Value, doc};

    use crate::sessions::SessionId;
    use crate::settings::OplogMode;
    use crate::testing::TestServer;

    fn with_oplog() -> TestServer {
        TestServer::with(|settings| settings.oplog = OplogMode::On)
    }

    fn watch(options: &DocBuf) -> DocBuf {
        doc! {"aggregate": "c", "pipeline": [{"$changeStream": options}], "cursor": {}}
    }

    /// Opens a stream and returns its id.
    fn open(server: &mut TestServer, command: DocBuf) -> i64 {
        let reply = server.run("test", command);
        let cursor = reply.get_doc("cursor").unwrap();
        assert!(cursor.get_doc("postBatchResumeToken").is_some());
        cursor.get_i64("id").unwrap()
    }

    /// Inserts a document, durably.
    fn insert(server: &mut TestServer, document: DocBuf) {
        let concern = doc! {"w": 1, "j": true};
        let command = doc! {"insert": "c", "documents": [&document], "writeConcern": &concern};
        let reply = server.run("test", command);
        assert_eq!(reply.get_i32("n"), Some(1));
    }

    /// The events of the next batch, without a wait.
    fn read(server: &mut TestServer, id: i64) -> (DocBuf, Vec<DocBuf>) {
        let command = doc! {"getMore": id, "collection": "c", "maxTimeMS": 1};
        let reply = server.run("test", command);
        let events = server.batch(&reply, "nextBatch");
        (reply, events)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_streams_are_refused() {
        let mut server = with_oplog();
        let mut with = |name: &str, value: &DocBuf| {
            let mut command = watch(&doc! {});
            command.push(name, value);
            server.reply("test", command).get_i32("code")
        };
        assert_eq!(with("readConcern", &doc! {"level": "local"}), Some(72));
        assert_eq!(with("readConcern", &doc! {"level": "available"}), Some(72));
        assert_eq!(with("readConcern", &doc! {"level": "majority"}), None);
        assert_eq!(with("hint", &doc! {"a": 1}), Some(72));
        let behind = doc! {
            "aggregate": "c", "pipeline": [{"$match": {}}, {"$changeStream": {}}], "cursor": {},
        };
        assert_eq!(server.code("test", behind), 40602);
        let grouped = doc! {
            "aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$group": {"_id": 1}}], "cursor": {},
        };
        assert_eq!(server.code("test", grouped), 20);
        let mut explained = watch(&doc! {});
        explained.push("explain", true);
        assert_eq!(server.code("test", explained), 238);
        let session = SessionId::random().to_doc();
        let mut inside = watch(&doc! {});
        inside.push_all(&doc! {
            "lsid": &session, "txnNumber": 1i64, "autocommit": false, "startTransaction": true,
        });
        assert_eq!(server.code("test", inside), 263);
        let mut without = TestServer::new();
        assert_eq!(without.code("test", watch(&doc! {})), 40573);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_is_part_of_the_stable_api_and_of_its_session() {
        let mut server = with_oplog();
        let session = SessionId::random().to_doc();
        let mut command = watch(&doc! {});
        command.push_all(&doc! {"apiVersion": "1", "apiStrict": true, "lsid": &session});
        let id = open(&mut server, command);
        let read = doc! {"getMore": id, "collection": "c", "maxTimeMS": 1};
        assert_eq!(server.code("test", read), 50737);
        let kill = doc! {"killCursors": "c", "cursors": [id]};
        let reply = server.run("test", kill);
        let killed = reply.get_array("cursorsKilled").unwrap();
        assert_eq!(killed.get("0"), Some(Value::Int64(id)));
        let read = doc! {"getMore": id, "collection": "c", "lsid": &session};
        assert_eq!(server.code("test", read), 43);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_outlives_its_collection_and_counts_its_events() {
        let mut server = with_oplog();
        let id = open(&mut server, watch(&doc! {"showExpandedEvents": true}));
        insert(&mut server, doc! {"_id": 1});
        server.run(
            "test",
            doc! {"drop": "c", "writeConcern": {"w": 1, "j": true}},
        );
        let mut kinds = Vec::new();
        loop {
            let (reply, events) = read(&mut server, id);
            let named = events.iter().map(|event| event.get_str("operationType"));
            kinds.extend(named.map(|kind| kind.unwrap().to_owned()));
            if reply.get_doc("cursor").unwrap().get_i64("id") == Some(0) {
                break;
            }
        }
        assert_eq!(kinds, ["create", "insert", "drop", "invalidate"]);
        let status = server.run("admin", doc! {"serverStatus": 1});
        let metrics = status.get_doc("metrics").unwrap();
        let streams = metrics.get_doc("changeStreams").unwrap();
        assert_eq!(streams.get_i64("showExpandedEvents"), Some(1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn events_that_are_too_large_fail_or_are_split() {
        let mut server = with_oplog();
        let images = doc! {"enabled": true};
        server.run(
            "test",
            doc! {"create": "c", "changeStreamPreAndPostImages": &images},
        );
        let options = doc! {"fullDocumentBeforeChange": "required", "fullDocument": "updateLookup"};
        let whole = open(&mut server, watch(&options));
        let split = doc! {
            "aggregate": "c", "cursor": {},
            "pipeline": [{"$changeStream": &options}, {"$changeStreamSplitLargeEvent": {}}],
        };
        let split = open(&mut server, split);
        let text = "x".repeat(9 << 20);
        insert(&mut server, doc! {"_id": 1, "t": text.as_str()});
        let update = doc! {
            "update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}],
            "writeConcern": {"w": 1, "j": true},
        };
        server.run("test", update);
        // The event before it is returned first, with its token.
        let first = server.run("test", doc! {"getMore": whole, "collection": "c"});
        let events = server.batch(&first, "nextBatch");
        assert_eq!(events.len(), 1, "the insert");
        let cursor = first.get_doc("cursor").unwrap();
        assert_eq!(cursor.get_i64("id"), Some(whole));
        assert_eq!(
            cursor.get_doc("postBatchResumeToken"),
            events[0].get_doc("_id")
        );
        let failed = doc! {"getMore": whole, "collection": "c"};
        assert_eq!(server.code("test", failed), 10334);
        let mut fragments = Vec::new();
        while fragments.len() < 3 {
            fragments.extend(read(&mut server, split).1);
        }
        let of = |event: &DocBuf| event.get_doc("splitEvent").map(|split| split.get_i32("of"));
        assert_eq!(of(&fragments[0]), None);
        assert_eq!(of(&fragments[1]), Some(Some(2)));
        let status = server.run("admin", doc! {"serverStatus": 1});
        let metrics = status.get_doc("metrics").unwrap();
        let streams = metrics.get_doc("changeStreams").unwrap();
        assert_eq!(streams.get_i64("largeEventsFailed"), Some(1));
        assert_eq!(streams.get_i64("largeEventsSplit"), Some(1));
    }
}
