#![allow(clippy::unwrap_used)]

use super::*;

const SET_ID: ObjectId = ObjectId([7; 12]);

fn members(list: &[DocBuf]) -> DocBuf {
    let mut doc = doc! {"_id": "rs0", "version": 2};
    doc.push_array("members", |members| {
        for member in list {
            members.push(member);
        }
    });
    doc
}

fn voter(id: i32, host: &str) -> DocBuf {
    doc! {"_id": id, "host": host}
}

fn learner(id: i32, host: &str) -> DocBuf {
    doc! {"_id": id, "host": host, "votes": 0, "priority": 0}
}

/// Voters 0, 1 and 2 at hosts `a`, `b` and `c`, and learner 3 at `d`.
fn old() -> SetConfig {
    let mut given = members(&[voter(0, "a"), voter(1, "b"), voter(2, "c"), learner(3, "d")]);
    let mut first = doc! {"_id": "rs0", "version": 1};
    first.push("members", given.get("members").unwrap());
    given = first;
    initiate(&given, "rs0", SET_ID, |_| Some(0)).unwrap()
}

const PLAIN: Reconfig = Reconfig {
    forced: None,
    term: 4,
};

const FORCED: Reconfig = Reconfig {
    forced: Some(123_456),
    term: 4,
};

fn change(given: &Doc, request: Reconfig) -> Result<Change> {
    reconfigure(&old(), given, request, |_| Some(0))
}

fn refused(result: Result<impl std::fmt::Debug>) -> (i32, String) {
    let error = result.unwrap_err();
    (error.code().code(), error.message().to_owned())
}

#[test]
fn a_set_begins() {
    let config = old();
    assert_eq!((config.version, config.term), (1, Some(1)));
    assert_eq!(config.settings.replica_set_id, Some(SET_ID));
    let default = SetConfig::default_doc("rs0", "a:1");
    let config = initiate(&default, "rs0", SET_ID, |config| {
        config.member_at("a:1").map(|member| member.id)
    });
    assert_eq!(config.unwrap().members.len(), 1);
}

/// See the manual on `replSetInitiate`.
#[test]
fn beginnings_that_are_refused() {
    let one = |version: i32| doc! {"_id": "rs0", "version": version, "members": [{"_id": 0, "host": "a"}]};
    let passive = doc! {"_id": "rs0", "members": [{"_id": 0, "host": "a", "priority": 0}, {"_id": 1, "host": "b"}]};
    let with_id = doc! {
        "_id": "rs0", "members": [{"_id": 0, "host": "a"}], "settings": {"replicaSetId": SET_ID},
    };
    for (given, name, own, code, message) in [
        (
            one(1),
            "rs1",
            Some(0),
            93,
            "Attempting to initiate a replica set with name rs0, but command line reports rs1; rejecting",
        ),
        (
            one(2),
            "rs0",
            Some(0),
            103,
            "Configuration used to initiate a replica set must have version 1, but found 2",
        ),
        (
            with_id,
            "rs0",
            Some(0),
            93,
            "replica set configuration cannot contain 'replicaSetId' field when called from replSetInitiate",
        ),
        (
            one(1),
            "rs0",
            None,
            93,
            "No host described in new configuration with {version: 1, term: 1} for replica set rs0 maps to this node",
        ),
        (
            passive,
            "rs0",
            Some(0),
            93,
            "This node, a:27017, with _id MemberId(0) is not electable under the new configuration with {version: 1, \
             term: 1} for replica set rs0",
        ),
    ] {
        let result = initiate(&given, name, SET_ID, |_| own);
        assert_eq!(refused(result), (code, message.to_owned()));
    }
}

#[test]
fn differences() {
    let base = [voter(0, "a"), voter(1, "b"), voter(2, "c"), learner(3, "d")];
    let with = |at: usize, member: DocBuf| {
        let mut list = base.to_vec();
        list[at] = member;
        members(&list)
    };
    let plus = |member: DocBuf| members(&[base.to_vec(), vec![member]].concat());
    let none: &[i32] = &[];
    // The configuration, then the voters, learners, removed and changed members.
    for (given, voters, learners, removed, changed) in [
        (members(&base), none, none, none, none),
        (plus(voter(4, "e")), &[4], none, none, none),
        (plus(learner(4, "e")), none, &[4], none, none),
        (members(&base[..3]), none, none, &[3], none),
        (
            members(&[voter(0, "a"), voter(1, "b"), learner(3, "d")]),
            none,
            none,
            &[2],
            none,
        ),
        (with(3, voter(3, "d")), &[3], none, none, none),
        (with(2, learner(2, "c")), none, &[2], none, none),
        (
            with(1, doc! {"_id": 1, "host": "b", "priority": 3}),
            none,
            none,
            none,
            &[1],
        ),
        (
            with(1, doc! {"_id": 1, "host": "b", "tags": {"dc": "x"}}),
            none,
            none,
            none,
            &[1],
        ),
        (with(1, voter(1, "x")), none, none, none, none),
    ] {
        let change = change(&given, PLAIN).unwrap();
        let found = (
            &*change.voters,
            &*change.learners,
            &*change.removed,
            &*change.changed,
        );
        assert_eq!(found, (voters, learners, removed, changed), "{given:?}");
        let changes = !(voters.is_empty() && learners.is_empty() && removed.is_empty());
        assert_eq!(change.changes_membership(), changes);
        assert!(!change.changes_settings);
        assert_eq!((change.config.version, change.config.term), (2, Some(4)));
        assert_eq!(change.config.settings.replica_set_id, Some(SET_ID));
    }
    let moved = change(&with(1, voter(1, "x")), PLAIN).unwrap().moved;
    let expected = HostChange {
        id: 1,
        from: "b:27017".to_owned(),
        to: "x:27017".to_owned(),
    };
    assert_eq!(moved, [expected]);
    let mut settings = members(&base);
    settings.push("settings", &doc! {"electionTimeoutMillis": 5000});
    assert!(change(&settings, PLAIN).unwrap().changes_settings);
}

/// See the manual on `replSetReconfig`.
#[test]
fn changes_that_are_refused() {
    let (a, b, c, d) = (voter(0, "a"), voter(1, "b"), voter(2, "c"), learner(3, "d"));
    let same = [a.clone(), b.clone(), c.clone(), d.clone()];
    let mut other_name = members(&same);
    other_name = {
        let mut doc = doc! {"_id": "rs1", "version": 2};
        doc.push("members", other_name.get("members").unwrap());
        doc
    };
    let mut old_version = doc! {"_id": "rs0", "version": 1};
    old_version.push("members", other_name.get("members").unwrap());
    let mut other_id = members(&same);
    other_id.push("settings", &doc! {"replicaSetId": ObjectId([8; 12])});
    let one_voter =
        "Non force replica set reconfig can only add or remove at most 1 voting member.";
    for (given, own, code, message) in [
        (
            other_name,
            Some(0),
            103,
            "New and old configurations differ in replica set name; old was rs0, and new is rs1",
        ),
        (
            other_id,
            Some(0),
            103,
            "New and old configurations differ in replica set ID; old was 070707070707070707070707, and new is \
             080808080808080808080808",
        ),
        (
            old_version,
            Some(0),
            103,
            "New replica set configuration version must be greater than old, but 1 is not greater than 1 for replica \
             set rs0",
        ),
        (
            members(&[a.clone(), b.clone(), voter(5, "c")]),
            Some(0),
            103,
            "New and old configurations both have members with host of c:27017 but in the new configuration the _id \
             field is 5 and in the old configuration it is 2",
        ),
        (
            members(&[a.clone(), voter(1, "localhost")]),
            Some(0),
            103,
            "Either all host names in a replica set configuration must be localhost references, or none must be; found \
             1 out of 2",
        ),
        (members(std::slice::from_ref(&a)), Some(0), 93, one_voter),
        (
            members(&[
                a.clone(),
                b.clone(),
                c.clone(),
                voter(4, "e"),
                voter(5, "f"),
            ]),
            Some(0),
            93,
            one_voter,
        ),
        (
            members(&[a.clone(), b.clone(), learner(2, "c"), voter(3, "d")]),
            Some(0),
            93,
            one_voter,
        ),
        (
            members(&same),
            None,
            74,
            "No host described in new configuration with {version: 2, term: 4} for replica set rs0 maps to this node",
        ),
        (
            members(&[doc! {"_id": 0, "host": "a", "priority": 0}, b, c, d]),
            Some(0),
            104,
            "This node, a:27017, with _id MemberId(0) is not electable under the new configuration with {version: 2, \
             term: 4} for replica set rs0",
        ),
    ] {
        let result = reconfigure(&old(), &given, PLAIN, |_| own);
        assert_eq!(refused(result), (code, message.to_owned()), "{given:?}");
    }
}

#[test]
fn a_forced_change_skips_majorities_and_raises_the_version() {
    let passive = doc! {"_id": 0, "host": "a", "priority": 0};
    let forced = change(&members(&[passive, voter(5, "x")]), FORCED).unwrap();
    assert_eq!(
        (&*forced.voters, &*forced.removed),
        (&[5][..], &[1, 2, 3][..])
    );
    // 2 of the document, 10,000, and the random number modulo 100,000.
    assert_eq!((forced.config.version, forced.config.term), (33_458, None));
    for (version, expected) in [
        (-5i64, 33_457),
        (1, 33_457),
        (50, 33_506),
        (i64::MAX, i32::MAX),
    ] {
        let given = doc! {"_id": "rs0", "version": version, "members": [(voter(0, "a"))]};
        let config = change(&given, FORCED).unwrap().config;
        assert_eq!(config.version, expected, "{version}");
    }
    // The name of a set stays, and the receiver must be a member.
    let given = doc! {"_id": "rs1", "version": 1, "members": [(voter(0, "a"))]};
    assert_eq!(refused(change(&given, FORCED)).0, 103);
    let result = reconfigure(&old(), &members(&[voter(1, "b")]), FORCED, |_| None);
    assert_eq!(refused(result).0, 74);
}

#[test]
fn the_reply_with_a_configuration() {
    let config = old();
    let doc = config.to_doc();
    assert_eq!(config_reply(&config, None), doc! {"config": &doc});
    assert_eq!(
        config_reply(&config, Some(false)),
        doc! {"config": &doc, "commitmentStatus": false}
    );
}
