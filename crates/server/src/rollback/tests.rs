use std::os::unix::fs::PermissionsExt;

use frond_bson::{Doc, DocBuf};
use frond_store::{Namespace, OplogSettings};

use super::*;
use crate::testing::TestServer;

/// The documents of a file, as a reader of dumps finds them.
fn documents(path: &Path) -> Vec<DocBuf> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let len = u32::from_le_bytes(*rest.first_chunk().unwrap()) as usize;
        let (document, after) = rest.split_at(len);
        found.push(DocBuf::from_vec(document.to_vec()).unwrap());
        rest = after;
    }
    found
}

fn ids(documents: &[DocBuf]) -> Vec<i32> {
    let mut ids: Vec<i32> = (documents.iter())
        .map(|document: &DocBuf| document.get_i64("_id").unwrap() as i32)
        .collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn files_have_what_was_written_after_a_time() {
    let mut server = TestServer::new();
    let settings = OplogSettings {
        bytes_max: 64 << 20,
        min_retention_hours: 0.0,
    };
    server.server.store.turn_on_oplog(settings).unwrap();
    let run = |server: &mut TestServer, command: DocBuf| {
        server.run("test", command);
    };
    run(
        &mut server,
        doc! {"insert": "c", "documents": [{"_id": 1, "a": 0}, {"_id": 2}, {"_id": 3}]},
    );
    let after = server.server.store.oplog().last();
    run(
        &mut server,
        doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 5}}}]},
    );
    run(
        &mut server,
        doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 6}}}]},
    );
    run(
        &mut server,
        doc! {"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]},
    );
    run(&mut server, doc! {"insert": "c", "documents": [{"_id": 4}]});
    run(
        &mut server,
        doc! {"insert": "d", "documents": [{"_id": 9, "text": "x"}]},
    );
    let store = &server.server.store;
    let directory = tempfile::tempdir().unwrap();
    let summary = write_files(store, after, directory.path(), &server.server.log).unwrap();
    assert_eq!((summary.documents, summary.left_out), (3, 0));
    assert_eq!((summary.entries.absent, summary.entries.operations), (1, 5));
    assert!(summary.entries.commands >= 1, "{summary:?}");
    assert!(summary.entries.first > after);
    assert_eq!(summary.files.len(), 2);
    let uuid = store.uuid_of(&Namespace::parse("test.c").unwrap()).unwrap();
    let folder = directory.path().join(FOLDER).join(uuid_text(&uuid));
    let file = summary
        .files
        .iter()
        .find(|file| file.starts_with(&folder))
        .unwrap();
    let found = documents(file);
    assert_eq!(ids(&found), [1, 4]);
    let changed = found
        .iter()
        .map(|it| -> &Doc { it })
        .find(|it| it.get_i64("a").is_some());
    assert_eq!(changed.unwrap().get_i64("a"), Some(6));
    assert_eq!(
        std::fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
    // Beyond the limit documents are counted.
    let other = tempfile::tempdir().unwrap();
    let limited = write_up_to(store, after, other.path(), summary.bytes - 1).unwrap();
    assert_eq!((limited.documents, limited.left_out), (2, 1));
    // Nothing is discarded: no folder.
    let last = store.oplog().last();
    let nothing = write_files(
        store,
        last,
        other.path().join("none").as_path(),
        &server.server.log,
    )
    .unwrap();
    assert_eq!(nothing, Summary::default());
}

#[test]
fn names_of_files_have_the_time_of_mongodb() {
    assert_eq!(file_time(1_582_088_231_123), "2020-02-19T04-57-11");
}
