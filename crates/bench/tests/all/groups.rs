//! Runs `frond bench groups` against a small server that keeps the documents.

#![allow(clippy::unwrap_used)]

use crate::store;

use std::process::ExitCode;

use store::{Flaw, Version, bench, ending, figure, start, summary};

const SMALL: [&str; 3] = ["--documents=5000", "--rounds=2", "--batch=500"];

#[test]
fn groups_and_finds_are_timed() {
    let (port, state) = start(Version {
        wire_version: Some(21),
        batch: 100,
        ..Version::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let code = bench("groups", &[port], folder.path(), &SMALL);
    assert_eq!(code, ExitCode::SUCCESS);
    let state = state.lock().unwrap();
    assert_eq!(state.documents("w6").len(), 5000);
    assert_eq!(state.count("aggregate"), 4);
    let summary = summary(folder.path(), "groups");
    let server = summary.get_doc("ended").unwrap().first().unwrap().0;
    assert_eq!(ending(&summary, server), "complete");
    for name in [
        "group all documents by k",
        "group a quarter of them by k",
        "find one k of 1,000",
    ] {
        let figure = |suffix: &str| figure(&summary, server, &format!("{name}, {suffix}")).unwrap();
        let mean = (figure("round 1") + figure("round 2")) / 2.0;
        assert!(
            (figure("median") - mean).abs() < 1e-9 && mean > 0.0,
            "{name}"
        );
    }
}

#[test]
fn a_wrong_group_is_noticed() {
    let (port, _) = start(Version {
        wire_version: Some(21),
        batch: 100,
        flaw: Flaw::Skips,
        ..Version::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let code = bench("groups", &[port], folder.path(), &SMALL);
    assert_eq!(code, ExitCode::FAILURE);
    let summary = summary(folder.path(), "groups");
    let server = summary.get_doc("ended").unwrap().first().unwrap().0;
    let ended = ending(&summary, server);
    assert!(ended.contains("instead of"), "{ended}");
}
