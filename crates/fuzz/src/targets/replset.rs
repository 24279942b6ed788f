//! Configurations of replica sets.

use frond_bson::{Doc, doc};
use frond_replset::{Reconfig, SetConfig, reconfigure};

/// A small configuration, and one with every field.
pub fn seeds() -> Vec<Vec<u8>> {
    let small = doc! {"_id": "rs0", "members": [{"_id": 0, "host": "localhost"}]};
    let full = doc! {
        "_id": "rs0", "version": 2, "term": 1, "protocolVersion": 1i64, "writeConcernMajorityJournalDefault": true,
        "members": [
            {"_id": 0, "host": "a:1", "priority": 2.5, "tags": {"dc": "east"}, "votes": 1},
            {"_id": 1, "host": "[::2]:1", "priority": 0, "hidden": true, "secondaryDelaySecs": 9i64, "votes": 0},
        ],
        "settings": {
            "chainingAllowed": true, "electionTimeoutMillis": 5000, "catchUpTimeoutMillis": -1,
            "getLastErrorModes": {"m": {"dc": 1}}, "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
        },
    };
    [small, full].map(|doc| doc.into_vec()).to_vec()
}

/// Reads a configuration, writes it, and forces a change to it.
pub fn run(input: &[u8]) {
    let Ok(given) = Doc::validate(input) else {
        return;
    };
    let Ok(config) = SetConfig::parse(given) else {
        return;
    };
    let again = SetConfig::parse(&config.to_doc());
    assert_eq!(again.as_ref(), Ok(&config));
    let forced = Reconfig {
        forced: Some(input.len() as u32),
        term: 1,
    };
    let own = config.members.first().map(|member| member.id);
    // Only the largest version cannot be raised.
    if let Ok(change) = reconfigure(&config, given, forced, |_| own) {
        assert!(change.config.version > config.version);
        assert!(!change.changes_membership() && !change.changes_settings);
    }
}
