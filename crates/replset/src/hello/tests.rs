#![allow(clippy::unwrap_used)]

use frond_bson::{Timestamp, Value};

use super::*;
use crate::position::OpTime;

fn config() -> SetConfig {
    SetConfig::parse(&doc! {
        "_id": "rs0", "version": 3,
        "members": [
            {"_id": 0, "host": "a"},
            {"_id": 1, "host": "b", "tags": {"dc": "east"}},
            {"_id": 2, "host": "c", "priority": 0},
            {"_id": 3, "host": "d", "priority": 0, "hidden": true, "secondaryDelaySecs": 60},
        ],
    })
    .unwrap()
}

fn position(time: u32) -> Position {
    Position {
        op: OpTime {
            term: 2,
            ts: Timestamp { time, increment: 1 },
        },
        wall_ms: i64::from(time) * 1000 + 7,
    }
}

fn hello(config: &SetConfig, own: Option<i32>, state: State) -> Hello<'_> {
    Hello {
        config,
        own,
        state,
        takes_writes: state == State::Primary,
        primary: Some(0),
        election_term: (state == State::Primary).then_some(2),
        last_write: LastWrite {
            applied: position(9),
            majority: position(8),
        },
        is_legacy: false,
    }
}

fn described(hello: Hello<'_>) -> DocBuf {
    let mut reply = DocBuf::new();
    hello.describe(&mut reply);
    reply
}

/// The fields are those of the manual's page on `hello`.
#[test]
fn a_primary() {
    let config = config();
    let expected = doc! {
        "hosts": ["a:27017", "b:27017"], "passives": ["c:27017"], "setName": "rs0", "setVersion": 3,
        "isWritablePrimary": true, "secondary": false, "primary": "a:27017", "me": "a:27017",
        "electionId": (election_id(2)),
        "lastWrite": {
            "opTime": {"ts": Timestamp { time: 9, increment: 1 }, "t": 2i64},
            "lastWriteDate": (Value::DateTime(9007)),
            "majorityOpTime": {"ts": Timestamp { time: 8, increment: 1 }, "t": 2i64},
            "majorityWriteDate": (Value::DateTime(8007)),
        },
    };
    let mut primary = hello(&config, Some(0), State::Primary);
    assert_eq!(described(primary), expected);
    primary.is_legacy = true;
    assert_eq!(described(primary).get_bool("ismaster"), Some(true));
    assert!(!described(primary).contains_key("isWritablePrimary"));
    // While it catches up, it looks like a secondary, and drivers do not write to it.
    primary.takes_writes = false;
    let reply = described(primary);
    assert_eq!(reply.get_bool("ismaster"), Some(false));
    assert_eq!(reply.get_bool("secondary"), Some(true));
    assert!(!reply.contains_key("electionId"));
}

#[test]
fn further_states() {
    let config = config();
    // The member, its state; secondary; and the fields that only some members have.
    for (own, state, secondary, fields) in [
        (1, State::Secondary, true, &["tags"][..]),
        (2, State::Secondary, true, &["passive"]),
        (
            3,
            State::Secondary,
            true,
            &["passive", "hidden", "secondaryDelaySecs"],
        ),
        (1, State::Recovering, false, &["tags"]),
        (1, State::Startup2, false, &["tags"]),
        (1, State::Rollback, false, &["tags"]),
    ] {
        let reply = described(hello(&config, Some(own), state));
        assert_eq!(reply.get_bool("isWritablePrimary"), Some(false));
        assert_eq!(reply.get_bool("secondary"), Some(secondary), "{state:?}");
        assert_eq!(reply.get_str("primary"), Some("a:27017"));
        assert_eq!(reply.get_str("me"), config.member(own).map(|m| &*m.host));
        assert!(reply.get_doc("lastWrite").is_some() && !reply.contains_key("electionId"));
        for field in ["tags", "passive", "hidden", "secondaryDelaySecs"] {
            let has = reply.contains_key(field);
            assert_eq!(has, fields.contains(&field), "{own} {field}");
        }
        assert!(!reply.contains_key("arbiters"));
    }
    let alone = Hello {
        primary: None,
        ..hello(&config, Some(1), State::Secondary)
    };
    assert!(!described(alone).contains_key("primary"));
}

#[test]
fn a_server_that_is_no_member() {
    let config = config();
    let expected = doc! {
        "isWritablePrimary": false, "secondary": false,
        "info": "Does not have a valid replica set config", "isreplicaset": true,
    };
    let mut reply = DocBuf::new();
    describe_absent(false, &mut reply);
    assert_eq!(reply, expected);
    for (own, state) in [
        (None, State::Removed),
        (Some(1), State::Removed),
        (Some(9), State::Secondary),
    ] {
        assert_eq!(described(hello(&config, own, state)), expected);
    }
}

/// See the specification of server selection on `maxStalenessSeconds` and `idleWritePeriodMS`.
#[test]
fn an_idle_primary_writes() {
    for (last, now, expected) in [(0, 9_999, false), (0, 10_000, true), (5, 0, false)] {
        assert_eq!(needs_idle_write(last, now), expected);
    }
}
