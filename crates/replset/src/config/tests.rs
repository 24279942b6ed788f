#![allow(clippy::unwrap_used)]

use frond_bson::{ArrayBuf, ObjectId, doc};

use super::*;

/// A configuration with one member.
fn one(member: DocBuf) -> DocBuf {
    doc! {"_id": "rs0", "version": 1, "members": [member]}
}

/// A configuration with an electable member 0 at host `a`, and these.
fn and(members: &[DocBuf]) -> DocBuf {
    let mut list = ArrayBuf::new();
    list.push(&doc! {"_id": 0, "host": "a"});
    for member in members {
        list.push(member);
    }
    let mut doc = doc! {"_id": "rs0", "version": 1};
    doc.push("members", list.as_value());
    doc
}

/// A configuration of `count` members, of which the first `voters` vote.
fn many(count: i32, voters: i32) -> DocBuf {
    let mut list = ArrayBuf::new();
    for id in 0..count {
        let votes = i32::from(id < voters);
        let host = format!("h{id}");
        list.push(&doc! {"_id": id, "host": &*host, "votes": votes, "priority": votes});
    }
    let mut doc = doc! {"_id": "rs0", "version": 1};
    doc.push("members", list.as_value());
    doc
}

fn refused(given: &Doc) -> (i32, String) {
    let error = SetConfig::parse(given).unwrap_err();
    (error.code().code(), error.message().to_owned())
}

#[test]
fn a_configuration_is_completed() {
    let config = SetConfig::parse(&doc! {
        "_id": "rs0", "members": [{"_id": 0, "host": "localhost"}, {"_id": 1, "host": "127.0.0.1:2"}],
    });
    let member = |id: i32, host: &str| {
        doc! {
            "_id": id, "host": host, "arbiterOnly": false, "buildIndexes": true, "hidden": false, "priority": 1,
            "tags": {}, "secondaryDelaySecs": 0i64, "votes": 1,
        }
    };
    let expected = doc! {
        "_id": "rs0", "version": 1,
        "members": [(member(0, "localhost:27017")), (member(1, "127.0.0.1:2"))],
        "protocolVersion": 1i64,
        "writeConcernMajorityJournalDefault": true,
        "settings": {
            "chainingAllowed": true, "heartbeatIntervalMillis": 2000, "heartbeatTimeoutSecs": 10,
            "electionTimeoutMillis": 1000, "catchUpTimeoutMillis": -1, "catchUpTakeoverDelayMillis": 30000,
            "getLastErrorModes": {}, "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
        },
    };
    assert_eq!(config.unwrap().to_doc(), expected);
}

/// The fields are those of the manual's page on the configuration of a replica set.
#[test]
fn every_field_is_written_as_it_was_read() {
    let given = doc! {
        "_id": "rs0", "version": 7, "term": 3,
        "members": [
            {
                "_id": 0, "host": "a:1", "arbiterOnly": false, "buildIndexes": true, "hidden": false,
                "priority": 2.5, "tags": {"dc": "east", "disk": "ssd"}, "secondaryDelaySecs": 0i64, "votes": 1,
            },
            {
                "_id": 9, "host": "b:2", "arbiterOnly": false, "buildIndexes": true, "hidden": true,
                "priority": 0, "tags": {"dc": "west"}, "secondaryDelaySecs": 3600i64, "votes": 0,
            },
        ],
        "protocolVersion": 1i64,
        "writeConcernMajorityJournalDefault": false,
        "settings": {
            "chainingAllowed": false, "heartbeatIntervalMillis": 1, "heartbeatTimeoutSecs": 2,
            "electionTimeoutMillis": 3, "catchUpTimeoutMillis": 0, "catchUpTakeoverDelayMillis": -1,
            "getLastErrorModes": {"both": {"dc": 2}}, "getLastErrorDefaults": {"w": 1, "wtimeout": 0},
            "replicaSetId": ObjectId([7; 12]),
        },
    };
    let config = SetConfig::parse(&given).unwrap();
    assert_eq!(config.to_doc(), given);
    assert_eq!(SetConfig::parse(&config.to_doc()), Ok(config.clone()));
    assert_eq!(config.member_at("B:2").map(|member| member.id), Some(9));
    assert!(config.member(1).is_none());
    let learner = config.member(9).unwrap();
    assert!(!learner.is_voter && !learner.is_electable());
    assert_eq!((config.voters(), config.majority()), (1, 1));
}

#[test]
fn a_delay_has_an_older_name() {
    let member = doc! {"_id": 1, "host": "b", "priority": 0, "slaveDelay": 60};
    let config = SetConfig::parse(&and(&[member])).unwrap();
    assert_eq!(config.members[1].delay_secs, 60);
}

#[test]
fn the_term_decides_before_the_version() {
    let config = |version: i32, term: i32| {
        let given = doc! {"_id": "r", "version": version, "term": term, "members": [{"_id": 0, "host": "a"}]};
        SetConfig::parse(&given).unwrap()
    };
    for (a, b, expected) in [
        ((1, 2), (9, 1), true),
        ((2, 1), (1, 1), true),
        ((1, 1), (1, 1), false),
        ((2, -1), (1, 5), true),
        ((1, 5), (2, -1), false),
    ] {
        let (a, b) = (config(a.0, a.1), config(b.0, b.1));
        assert_eq!(a.is_newer_than(&b), expected, "{a:?} {b:?}");
    }
}

#[test]
fn fields_of_the_configuration() {
    let member = || doc! {"_id": 0, "host": "a"};
    for (given, code, message) in [
        (
            doc! {},
            93,
            "the replica set configuration needs the name of the set as its _id",
        ),
        (
            doc! {"_id": ""},
            93,
            "Replica set configuration _id must not be empty",
        ),
        (
            doc! {"_id": "rs0"},
            93,
            "the replica set configuration needs a list of members",
        ),
        (
            doc! {"_id": "rs0", "members": []},
            93,
            "Replica set configuration contains 0 members, but must have at least 1 and no more than 50",
        ),
        (
            doc! {"_id": "rs0", "members": [1]},
            14,
            "Expected type of members.0 to be an object, but found int",
        ),
        (
            doc! {"_id": "rs0", "version": 0, "members": [(member())]},
            93,
            "replica set version must be between 1 and 2147483647, not 0",
        ),
        (
            doc! {"_id": "rs0", "version": (1i64 << 31), "members": [(member())]},
            93,
            "replica set version must be between 1 and 2147483647, not 2147483648",
        ),
        (
            doc! {"_id": "rs0", "version": "1", "members": [(member())]},
            14,
            "Expected field \"version\" to have numeric type, but found string",
        ),
        (
            doc! {"_id": "rs0", "term": -2, "members": [(member())]},
            93,
            "term field value of -2 is out of range: it must be at least 0",
        ),
        (
            doc! {"_id": "rs0", "configsvr": true, "members": [(member())]},
            93,
            "this server is not sharded: a replica set of config servers is not supported",
        ),
        (
            doc! {"_id": "rs0", "protocolVersion": 0, "members": [(member())]},
            93,
            "protocolVersion field value of 0 is not 1, the only value that is supported",
        ),
        (
            doc! {"_id": "rs0", "_id": "rs0"},
            93,
            "The field _id is twice in the replica set configuration",
        ),
        (
            doc! {"_id": "rs0", "members": [(member())], "settings": 1},
            14,
            "Expected field \"settings\" to be an object, but found int",
        ),
    ] {
        assert_eq!(refused(&given), (code, message.to_owned()), "{given:?}");
    }
    let (code, message) = refused(&doc! {"_id": "rs0", "x": 1});
    assert!(
        code == 93 && message.starts_with("Unexpected field x in the replica set configuration")
    );
}

#[test]
fn fields_of_a_member() {
    for (member, code, message) in [
        (doc! {"host": "a"}, 93, "a member needs an _id"),
        (
            doc! {"_id": "0", "host": "a"},
            14,
            "Expected field \"_id\" to have numeric type, but found string",
        ),
        (
            doc! {"_id": 256, "host": "a"},
            93,
            "_id field value of 256 is out of range: it must be from 0 to 255",
        ),
        (doc! {"_id": 0}, 93, "a member needs a host"),
        (
            doc! {"_id": 0, "host": "a:x"},
            93,
            "Failed to parse the host 'a:x': it must be a name or an address, with a port",
        ),
        (
            doc! {"_id": 0, "host": "a", "arbiterOnly": true},
            93,
            "members.0.arbiterOnly of a:27017: arbiters are not supported, because a member that votes must also hold \
             the log. Use a member with data that never becomes the primary instead: {_id: 0, host: \"a:27017\", \
             priority: 0, hidden: true}",
        ),
        (
            doc! {"_id": 0, "host": "a", "hidden": "x"},
            14,
            "Expected boolean or number type for field \"hidden\", found string",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": 1001},
            93,
            "priority field value of 1001 is out of range",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": -1},
            93,
            "priority field value of -1 is out of range",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": f64::NAN},
            93,
            "priority field value of NaN is out of range",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": "1"},
            93,
            "priority must be a number",
        ),
        (
            doc! {"_id": 0, "host": "a", "votes": 2},
            93,
            "votes field value is 2 but must be 0 or 1",
        ),
        (
            doc! {"_id": 0, "host": "a", "votes": 0},
            93,
            "priority must be 0 when non-voting (votes:0)",
        ),
        (
            doc! {"_id": 0, "host": "a", "secondaryDelaySecs": 5},
            93,
            "priority must be 0 when secondaryDelaySecs is used",
        ),
        (
            doc! {"_id": 0, "host": "a", "hidden": true},
            93,
            "priority must be 0 when hidden=true",
        ),
        (
            doc! {"_id": 0, "host": "a", "buildIndexes": false},
            93,
            "priority must be 0 when buildIndexes=false",
        ),
        (
            doc! {"_id": 0, "host": "a", "buildIndexes": false, "priority": 0},
            93,
            "members.0.buildIndexes of a:27017: a member without indexes is not supported, because members receive \
             the entries of indexes with the documents; leave the field out",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": 0, "secondaryDelaySecs": -1},
            93,
            "secondaryDelaySecs field value of -1 seconds is out of range",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": 0, "slaveDelay": 31_622_401},
            93,
            "slaveDelay field value of 31622401 seconds is out of range",
        ),
        (
            doc! {"_id": 0, "host": "a", "priority": 0, "slaveDelay": 1, "secondaryDelaySecs": 1},
            93,
            "Cannot have both slaveDelay and secondaryDelaySecs; use secondaryDelaySecs",
        ),
        (
            doc! {"_id": 0, "host": "a", "tags": {"dc": 1}},
            14,
            "tags.dc field has non-string value of type int",
        ),
        (
            doc! {"_id": 0, "host": "a", "tags": {"dc": "x", "dc": "y"}},
            93,
            "The field dc is twice in tags",
        ),
    ] {
        assert_eq!(
            refused(&one(member.clone())),
            (code, message.to_owned()),
            "{member:?}"
        );
    }
    let (code, message) = refused(&one(doc! {"_id": 0, "host": "a", "horizons": {}}));
    assert!(code == 93 && message.starts_with("Unexpected field horizons in a member"));
}

#[test]
fn rules_that_join_members() {
    for (given, message) in [
        (
            and(&[doc! {"_id": 0, "host": "b"}]),
            "Found two member configurations with same _id field, members.0._id == members.1._id == 0",
        ),
        (
            and(&[doc! {"_id": 1, "host": "A:27017"}]),
            "Found two member configurations with same host field, members.0.host == members.1.host == A:27017",
        ),
        (
            and(&[doc! {"_id": 1, "host": "localhost"}]),
            "Either all host names in a replica set configuration must be localhost references, or none must be; found \
             1 out of 2",
        ),
        (
            many(8, 8),
            "Replica set configuration contains 8 voting members, but must be at least 1 and no more than 7",
        ),
        (
            many(2, 0),
            "Replica set configuration contains 0 voting members, but must be at least 1 and no more than 7",
        ),
        (
            many(51, 7),
            "Replica set configuration contains 51 members, but must have at least 1 and no more than 50",
        ),
        (
            one(doc! {"_id": 0, "host": "a", "priority": 0}),
            "Replica set configuration must contain at least one non-arbiter member with priority > 0",
        ),
    ] {
        assert_eq!(refused(&given), (93, message.to_owned()));
    }
    let largest = SetConfig::parse(&many(50, 7)).unwrap();
    assert_eq!((largest.voters(), largest.majority()), (7, 4));
}

#[test]
fn settings() {
    let with = |settings: DocBuf| {
        doc! {
            "_id": "rs0", "members": [{"_id": 0, "host": "a", "tags": {"dc": "x"}}], "settings": settings,
        }
    };
    for (settings, code, message) in [
        (
            doc! {"electionTimeoutMillis": 0},
            93,
            "electionTimeoutMillis must be at least 1, not 0",
        ),
        (
            doc! {"heartbeatIntervalMillis": 0},
            93,
            "heartbeatIntervalMillis must be at least 1, not 0",
        ),
        (
            doc! {"heartbeatTimeoutSecs": 0},
            93,
            "heartbeatTimeoutSecs must be at least 1, not 0",
        ),
        (
            doc! {"catchUpTimeoutMillis": -2},
            93,
            "catchUpTimeoutMillis must be at least -1, not -2",
        ),
        (
            doc! {"catchUpTakeoverDelayMillis": -2},
            93,
            "catchUpTakeoverDelayMillis must be at least -1, not -2",
        ),
        (
            doc! {"chainingAllowed": "x"},
            14,
            "Expected boolean or number type for field \"chainingAllowed\", found string",
        ),
        (
            doc! {"replicaSetId": 1},
            14,
            "replicaSetId must be an ObjectId, not a int",
        ),
        (
            doc! {"getLastErrorDefaults": {"w": 2}},
            93,
            "Default write concern set using getLastErrorDefaults is not supported; use setDefaultRWConcern instead",
        ),
        (
            doc! {"getLastErrorModes": {"m": 1}},
            14,
            "Expected getLastErrorModes.m to be an Object",
        ),
        (
            doc! {"getLastErrorModes": {"m": {"dc": 0}}},
            2,
            "Value for getLastErrorModes.m.dc must be a positive number",
        ),
        (
            doc! {"getLastErrorModes": {"m": {"rack": 1}}},
            4,
            "No such tag key 'rack' among the members, but getLastErrorModes.m names it",
        ),
        (
            doc! {"getLastErrorModes": {"m": {"dc": 1}, "m": {"dc": 2}}},
            93,
            "getLastErrorModes contains multiple fields named m",
        ),
        (
            doc! {"getLastErrorModes": {"majority": {"dc": 1}}},
            93,
            "getLastErrorModes.majority: this name has a meaning of its own as a write concern; choose another",
        ),
    ] {
        assert_eq!(
            refused(&with(settings.clone())),
            (code, message.to_owned()),
            "{settings:?}"
        );
    }
    // A mode that the members cannot satisfy now is permitted, as in MongoDB: members may follow.
    for fine in [
        doc! {"getLastErrorModes": {"m": {"dc": 5}}},
        doc! {"getLastErrorDefaults": {"w": 1, "wtimeout": 0}},
        doc! {"catchUpTakeoverDelayMillis": -1, "catchUpTimeoutMillis": 0},
    ] {
        assert!(SetConfig::parse(&with(fine)).is_ok());
    }
}
