#![allow(clippy::unwrap_used)]

use frond_bson::Doc;

use super::*;

fn config() -> SetConfig {
    SetConfig::parse(&doc! {
        "_id": "rs0", "version": 3,
        "members": [
            {"_id": 0, "host": "a"},
            {"_id": 1, "host": "b"},
            {"_id": 2, "host": "c"},
            {"_id": 3, "host": "d", "priority": 0, "votes": 0},
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

fn heard(time: u32) -> Heard<'static> {
    Heard {
        uptime_secs: 50,
        last_heartbeat_ms: Some(40),
        last_received_ms: Some(41),
        ping_ms: Some(3),
        message: "",
        durable: position(time),
        written: position(time + 2),
    }
}

/// The primary is member 0. Member 1 follows, member 2 is down, of member 3 nothing is known.
fn status_of<'a>(config: &'a SetConfig, members: &'a [MemberStatus<'a>]) -> Status<'a> {
    Status {
        config,
        own: Some(0),
        state: State::Primary,
        now_ms: 100,
        term: 2,
        sync_source: None,
        optimes: OpTimes {
            committed: position(8),
            read_majority: position(8).op,
            applied: position(9),
            durable: position(9),
            written: position(9),
        },
        stable_recovery: position(5).op.ts,
        candidate: None,
        participant: None,
        initial_sync: None,
        about_self: SelfStatus {
            uptime_secs: 60,
            info: "",
        },
        members,
    }
}

fn members() -> [MemberStatus<'static>; 4] {
    let member = |id, state, applied, heard| MemberStatus {
        id,
        state,
        applied,
        sync_source: None,
        elected: None,
        config: Some((3, 2)),
        heard,
    };
    let primary = MemberStatus {
        elected: Some((
            Timestamp {
                time: 4,
                increment: 1,
            },
            4000,
        )),
        ..member(0, State::Primary, position(9), None)
    };
    let follower = MemberStatus {
        sync_source: Some(0),
        ..member(1, State::Secondary, position(7), Some(heard(6)))
    };
    let down = MemberStatus {
        config: None,
        ..member(
            2,
            State::Down,
            Position::default(),
            Some(Heard {
                uptime_secs: 0,
                last_heartbeat_ms: None,
                last_received_ms: None,
                ping_ms: None,
                message: "connection refused",
                durable: Position::default(),
                written: Position::default(),
            }),
        )
    };
    [
        primary,
        follower,
        down,
        // A member that the configuration does not have any more.
        member(9, State::Secondary, position(1), Some(heard(1))),
    ]
}

fn listed<'a>(status: &'a Doc, at: &str) -> &'a Doc {
    status.get_array("members").unwrap().get_doc(at).unwrap()
}

fn names(doc: &Doc) -> Vec<&str> {
    doc.iter().map(|(name, _)| name).collect()
}

/// The fields are those of the manual's page on `replSetGetStatus`.
#[test]
fn the_set() {
    let (config, members) = (config(), members());
    let status = status_of(&config, &members).to_doc();
    assert_eq!(
        names(&status),
        [
            "set",
            "date",
            "myState",
            "term",
            "syncSourceHost",
            "syncSourceId",
            "heartbeatIntervalMillis",
            "majorityVoteCount",
            "writeMajorityCount",
            "votingMembersCount",
            "writableVotingMembersCount",
            "optimes",
            "lastStableRecoveryTimestamp",
            "members"
        ]
    );
    for (field, expected) in [
        ("myState", 1),
        ("syncSourceId", -1),
        ("majorityVoteCount", 2),
        ("writeMajorityCount", 2),
        ("votingMembersCount", 3),
        ("writableVotingMembersCount", 3),
    ] {
        assert_eq!(status.get_i32(field), Some(expected), "{field}");
    }
    let optimes = status.get_doc("optimes").unwrap();
    assert_eq!(
        optimes.get_doc("lastCommittedOpTime"),
        Some(&*position(8).op.to_doc())
    );
    assert_eq!(
        optimes.get("lastAppliedWallTime"),
        Some(Value::DateTime(9007))
    );
    assert_eq!(status.get_array("members").unwrap().count(), 3);
}

#[test]
fn each_member() {
    let (config, members) = (config(), members());
    let status = status_of(&config, &members).to_doc();
    let time = |time| position(time).op.to_doc();
    assert_eq!(
        listed(&status, "0"),
        &*doc! {
            "_id": 0, "name": "a:27017", "health": 1.0, "state": 1, "stateStr": "PRIMARY", "uptime": 60,
            "optime": (time(9)), "optimeDate": (Value::DateTime(9000)),
            "optimeWritten": (time(9)), "optimeWrittenDate": (Value::DateTime(9000)),
            "lastAppliedWallTime": (Value::DateTime(9007)), "lastDurableWallTime": (Value::DateTime(9007)),
            "lastWrittenWallTime": (Value::DateTime(9007)),
            "syncSourceHost": "", "syncSourceId": -1, "infoMessage": "",
            "electionTime": (Timestamp { time: 4, increment: 1 }), "electionDate": (Value::DateTime(4000)),
            "configVersion": 3, "configTerm": 2, "self": true, "lastHeartbeatMessage": "",
        }
    );
    assert_eq!(
        listed(&status, "1"),
        &*doc! {
            "_id": 1, "name": "b:27017", "health": 1.0, "state": 2, "stateStr": "SECONDARY", "uptime": 50,
            "optime": (time(7)), "optimeDurable": (time(6)),
            "optimeDate": (Value::DateTime(7000)), "optimeDurableDate": (Value::DateTime(6000)),
            "optimeWritten": (time(8)), "optimeWrittenDate": (Value::DateTime(8000)),
            "lastAppliedWallTime": (Value::DateTime(7007)), "lastDurableWallTime": (Value::DateTime(6007)),
            "lastWrittenWallTime": (Value::DateTime(8007)),
            "lastHeartbeat": (Value::DateTime(40)), "lastHeartbeatRecv": (Value::DateTime(41)), "pingMs": 3i64,
            "lastHeartbeatMessage": "", "syncSourceHost": "a:27017", "syncSourceId": 0, "infoMessage": "",
            "configVersion": 3, "configTerm": 2,
        }
    );
    let down = listed(&status, "2");
    assert_eq!(down.get_f64("health"), Some(0.0));
    assert_eq!(down.get_str("stateStr"), Some("(not reachable/healthy)"));
    assert_eq!(
        down.get_str("lastHeartbeatMessage"),
        Some("connection refused")
    );
    assert_eq!(down.get_i32("configVersion"), Some(-1));
    assert!(!down.contains_key("pingMs"));
}

/// `rs.printSecondaryReplicationInfo()` takes the primary by its state, and reads the name, the state and the date of the last
/// operation of each member.
#[test]
fn the_lag_of_each_member_can_be_computed() {
    let (config, members) = (config(), members());
    let status = status_of(&config, &members).to_doc();
    let mut lags = Vec::new();
    let date = |member: &Doc| match member.get("optimeDate") {
        Some(Value::DateTime(ms)) => ms / 1000,
        _ => panic!("no date"),
    };
    let list = status.get_array("members").unwrap();
    let primary = list.values().filter_map(|m| m.as_doc());
    let primary = primary
        .filter(|m| m.get_i32("state") == Some(1))
        .map(date)
        .max();
    for member in list.values().filter_map(|member| member.as_doc()) {
        lags.push((
            member.get_str("name").unwrap(),
            primary.unwrap() - date(member),
        ));
    }
    assert_eq!(lags, [("a:27017", 0), ("b:27017", 2), ("c:27017", 9)]);
}

#[test]
fn elections() {
    let (config, members) = (config(), members());
    let mut status = status_of(&config, &members);
    status.candidate = Some(CandidateMetrics {
        reason: "electionTimeout",
        date_ms: 1,
        term: 2,
        committed: position(3).op,
        last_seen: position(4).op,
        votes_needed: 2,
        priority: 1.0,
        timeout_ms: 10_000,
        prior_primary: Some(1),
        term_start_ms: Some(5),
        majority_write_ms: None,
    });
    status.participant = Some(ParticipantMetrics {
        voted_for_candidate: true,
        term: 1,
        date_ms: 6,
        candidate: 1,
        reason: "",
        last_applied: position(3).op,
        max_applied: position(3).op,
        priority: 1.0,
    });
    let doc = status.to_doc();
    let time = |time| position(time).op.to_doc();
    assert_eq!(
        doc.get_doc("electionCandidateMetrics").unwrap(),
        &*doc! {
            "lastElectionReason": "electionTimeout", "lastElectionDate": (Value::DateTime(1)), "electionTerm": 2i64,
            "lastCommittedOpTimeAtElection": (time(3)), "lastSeenOpTimeAtElection": (time(4)), "numVotesNeeded": 2,
            "priorityAtElection": 1.0, "electionTimeoutMillis": 10_000i64, "priorPrimaryMemberId": 1,
            "newTermStartDate": (Value::DateTime(5)),
        }
    );
    assert_eq!(
        doc.get_doc("electionParticipantMetrics").unwrap(),
        &*doc! {
            "votedForCandidate": true, "electionTerm": 1i64, "lastVoteDate": (Value::DateTime(6)),
            "electionCandidateMemberId": 1, "voteReason": "", "lastAppliedOpTimeAtElection": (time(3)),
            "maxAppliedOpTimeInSet": (time(3)), "priorityAtElection": 1.0,
        }
    );
}

#[test]
fn the_progress_of_a_copy() {
    let (config, members) = (config(), members());
    for (elapsed_ms, copied_bytes, expected) in [
        (0, 0, None),
        (1000, 0, None),
        (1000, 25, Some(3000)),
        (1000, 100, Some(0)),
        (i64::MAX, 1, Some(i64::MAX)),
        (1000, 200, Some(0)),
    ] {
        let mut status = status_of(&config, &members);
        status.initial_sync = Some(InitialSync {
            failed_attempts: 1,
            start_ms: 5,
            elapsed_ms,
            total_bytes: 100,
            copied_bytes,
        });
        let doc = status.to_doc();
        let progress = doc.get_doc("initialSyncStatus").unwrap();
        let remaining = progress.get_i64("remainingInitialSyncEstimatedMillis");
        assert_eq!(remaining, expected, "{elapsed_ms} {copied_bytes}");
        assert_eq!(progress.get_i64("approxTotalDataSize"), Some(100));
    }
}
