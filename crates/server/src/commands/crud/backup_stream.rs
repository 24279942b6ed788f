//! `aggregate` with `$backupStream`: opens the stream of a backup. `frond backup` and `frond archive` read it.

use frond_bson::Doc;
use frond_error::{Error, ErrorCode, Result};
use frond_store::backup::BackupRequest;

use super::aggregation::{Aggregation, name_of};
use crate::authorization::{Action, Needs, Place};
use crate::context::Context;
use crate::cursors::{BackupSource, Cursor, Source};

/// The name of the stage.
pub const STAGE: &str = "$backupStream";

/// Whether a pipeline begins with the stage.
pub fn is_backup_stream(pipeline: &Doc) -> bool {
    options(pipeline).is_some()
}

fn options(pipeline: &Doc) -> Option<&Doc> {
    let first = pipeline.values().next()?.as_doc()?.first();
    let (_, options) = first.filter(|(name, _)| *name == STAGE)?;
    Some(options.as_doc().unwrap_or(Doc::empty()))
}

/// The privileges that a copy of everything needs. The role `backup` has them; a user without the right to read everything does not.
pub fn needs<'a>() -> Needs<'a> {
    Needs::cluster(Action::AppendOplogNote)
        .and(Needs::on(Place::AnyNormal, Action::Find))
        .and(Needs::on(
            Place::collection("admin", "system.users"),
            Action::Find,
        ))
}

/// Opens a stream.
///
/// # Errors
/// `InvalidNamespace` (73) outside of `admin`, `InvalidPipelineOperator` (168) with further stages, errors of the options and of the
/// store.
pub fn open(cx: &Context<'_>, aggregation: &Aggregation<'_>) -> Result<Cursor> {
    let Aggregation { namespace, request } = aggregation;
    if namespace.is_some() || cx.db != "admin" {
        return Err(Error::new(
            ErrorCode::InvalidNamespace,
            format!("{STAGE} must be run against the 'admin' database with {{aggregate: 1}}"),
        ));
    }
    if request.pipeline.count() != 1 {
        return Err(Error::new(
            ErrorCode::InvalidPipelineOperator,
            format!("{STAGE} must be the only stage of its pipeline"),
        ));
    }
    cx.server
        .maintenance
        .fsync_lock
        .check_unlocked("a backup")?;
    let options = BackupRequest::parse(options(request.pipeline).unwrap_or(Doc::empty()))?;
    let stream = cx.store().backup_stream(options)?;
    cx.server.maintenance.backups.add(stream.progress());
    let source = Source::Backup(Box::new(BackupSource::new(stream)));
    let mut cursor = Cursor::new(name_of(cx, None), source);
    cursor.awaits = true;
    Ok(cursor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, Value, doc};

    use crate::testing::TestServer;

    fn stream(options: &DocBuf) -> DocBuf {
        doc! {"aggregate": 1, "pipeline": [{"$backupStream": options}], "cursor": {"batchSize": 0}}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_has_a_copy_and_its_log() {
        let mut server = TestServer::new();
        server.fill("c", 1000);
        let reply = server.run("admin", stream(&doc! {}));
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let mut kinds: Vec<String> = Vec::new();
        loop {
            let next = doc! {"getMore": id, "collection": "$cmd.aggregate"};
            let reply = server.run("admin", next);
            let batch = server.batch(&reply, "nextBatch");
            kinds.extend(batch.iter().map(|one| one.get_str("t").unwrap().to_owned()));
            if reply.get_doc("cursor").unwrap().get_i64("id") == Some(0) {
                break;
            }
        }
        kinds.dedup();
        assert_eq!(
            kinds,
            ["begin", "extents", "head", "log", "mark", "data", "end"]
        );
        assert_eq!(server.server.clients.cursors.counts().open, 0);
        assert!(!server.server.maintenance.backups.is_open());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_can_be_killed() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let reply = server.run("admin", stream(&doc! {"bytesPerSecond": 1i64}));
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        assert!(server.server.maintenance.backups.is_open());
        server.run(
            "admin",
            doc! {"killCursors": "$cmd.aggregate", "cursors": [id]},
        );
        assert!(!server.server.maintenance.backups.is_open());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_streams_are_refused() {
        let mut server = TestServer::new();
        let bytes = |bytes| Value::Binary { subtype: 0, bytes };
        let mut known = DocBuf::new();
        known.push_value("known", &bytes(&[0; 24]));
        let mut odd = doc! {};
        odd.push_value("storeId", &bytes(&[0; 16]));
        odd.push_value("known", &bytes(&[0; 23]));
        let cases = [
            (doc! {"nonsense": 1}, 40415),
            (doc! {"log": "never"}, 2),
            (doc! {"log": 1}, 14),
            (doc! {"bytesPerSecond": -1}, 2),
            (doc! {"fromPosition": 0i64}, 2),
            (doc! {"logOnly": true, "fromPosition": 1i64 << 60}, 2),
            (known, 2),
            (odd, 2),
        ];
        for (options, code) in cases {
            assert_eq!(server.code("admin", stream(&options)), code, "{options:?}");
        }
        assert_eq!(server.code("test", stream(&doc! {})), 73);
        let mut two = stream(&doc! {});
        two = doc! {"aggregate": 1, "pipeline": [
            two.get_array("pipeline").unwrap().values().next().unwrap(), {"$match": {}},
        ], "cursor": {}};
        assert_eq!(server.code("admin", two), 168);
    }
}
