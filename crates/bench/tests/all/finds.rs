//! Finds a few documents at a time while others insert, on a small server whose cursors have to be
//! read in batches.

#![allow(clippy::unwrap_used)]

use crate::store;

use std::process::ExitCode;

use frond_wire::OpCode::{GetMore, Insert, KillCursors, Msg, Query};
use store::{Version, bench, opcodes, start};

#[test]
fn a_limited_find_leaves_no_cursor_behind() {
    for (wire_version, expected) in [
        (None, opcodes(&[Query, Insert, GetMore, KillCursors])),
        (Some(3), opcodes(&[Query, GetMore, KillCursors])),
        (Some(5), opcodes(&[Query])),
        (Some(21), opcodes(&[Query, Msg])),
    ] {
        let (port, state) = start(Version {
            wire_version,
            batch: 3,
            unchecked_ids: true,
            ..Version::default()
        });
        let folder = tempfile::tempdir().unwrap();
        let more = ["--documents=3000", "--batch=10", "--readers=1"];
        let code = bench("insert", &[port], folder.path(), &more);
        assert_eq!(code, ExitCode::SUCCESS, "{wire_version:?}");
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, expected, "{wire_version:?}");
        assert_eq!(state.documents("w1").len(), 3000, "{wire_version:?}");
        assert!(state.cursors.is_empty(), "{wire_version:?}");
        if wire_version >= Some(4) {
            // Ten documents come in batches of three.
            assert!(state.count("getMore") > 0);
        }
    }
}
