use std::collections::{BTreeMap, BTreeSet};

use frond_kv::EntryId;
use openraft_rt_tokio::TokioRuntime;

use super::*;
use crate::ids::{Membership, log_id};
use crate::members::Peer;

type Append = AppendEntriesRequest<Types<TokioRuntime>>;

fn id(term: u64, index: u64) -> LogId {
    log_id(EntryId { term, index })
}

fn entry(term: u64, index: u64, bytes: usize, membership: Option<Membership>) -> Entry {
    let from = index * 100;
    let group = Group::Frames {
        from,
        to: from + bytes as u64,
        bytes: vec![index as u8; bytes].into(),
    };
    Entry {
        id: id(term, index),
        payload: Payload { group, membership },
    }
}

fn membership() -> Membership {
    let peers = BTreeMap::from([(1, Peer::default()), (300, Peer::default())]);
    Membership::new(vec![BTreeSet::from([1])], peers).unwrap()
}

fn append() -> Append {
    Append {
        vote: Vote::new_committed(7, 300),
        prev_log_id: Some(id(5, 9)),
        entries: vec![
            entry(5, 10, 40, None),
            entry(7, 11, 0, Some(membership())),
            entry(7, 12, 2000, None),
        ],
        leader_commit: Some(id(5, 8)),
    }
}

fn decoded(bytes: &[u8]) -> Decoded<Request<TokioRuntime>> {
    decode(bytes, 3)
}

/// All requests, as bytes for the member 3.
fn requests() -> Vec<Vec<u8>> {
    let vote: VoteRequest<Types<TokioRuntime>> = VoteRequest::new(Vote::new(4, 2), Some(id(3, 3)));
    let transfer: TransferLeaderRequest<Types<TokioRuntime>> =
        TransferLeaderRequest::new(Vote::new_committed(4, 2), 3, Some(id(4, 4)));
    let resync = Resync {
        vote: Vote::new_committed(4, 2),
        purged: id(3, 1),
    };
    vec![
        encode_append(3, &append(), true),
        encode_vote(3, &vote, false),
        encode_vote(3, &vote, true),
        encode_transfer(3, &transfer),
        encode_resync(3, &resync),
        encode_step_up(3),
    ]
}

#[test]
fn messages_with_entries_are_known_without_reading_them() {
    let with_entries: Vec<bool> = requests().iter().map(|one| brings_entries(one)).collect();
    assert_eq!(with_entries, [true, false, false, false, false, false]);
    let beat = Append {
        entries: Vec::new(),
        ..append()
    };
    assert!(!brings_entries(&encode_append(3, &beat, false)));
    let whole = &requests()[0];
    for end in 0..whole.len() {
        // Parts of a message, of which the entries are the end.
        let _ = brings_entries(&whole[..end]);
    }
    assert!(!brings_entries(&whole[..2]));
}

#[test]
fn entries_arrive_as_sent() {
    let sent = append();
    let Ok(Request::Append { append, follows }) = decoded(&encode_append(3, &sent, true)) else {
        panic!("no append");
    };
    assert!(follows);
    assert_eq!(append.vote, sent.vote);
    assert_eq!(append.prev_log_id, sent.prev_log_id);
    assert_eq!(append.leader_commit, sent.leader_commit);
    let stored = |entries: &[Entry]| entries.iter().map(log_entry).collect::<Vec<_>>();
    assert_eq!(stored(&append.entries), stored(&sent.entries));
}

#[test]
fn other_requests_arrive_as_sent() {
    let requests = requests();
    assert!(matches!(decoded(&requests[1]), Ok(Request::Vote(v)) if v.vote == Vote::new(4, 2)));
    assert!(
        matches!(decoded(&requests[2]), Ok(Request::PreVote(v)) if v.last_log_id == Some(id(3, 3)))
    );
    assert!(matches!(decoded(&requests[3]), Ok(Request::Transfer(t)) if *t.to_node_id() == 3));
    assert!(matches!(decoded(&requests[4]), Ok(Request::Resync(r)) if r.purged == id(3, 1)));
}

#[test]
fn a_request_for_another_member_is_refused() {
    for request in requests() {
        assert!(decode::<TokioRuntime>(&request, 4).is_err());
    }
}

#[test]
fn answers_arrive_as_sent() {
    type C = Types<TokioRuntime>;
    let vote = Vote::new_committed(9, 1);
    let appends: Vec<AppendEntriesResponse<C>> = vec![
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(Some(id(1, 1))),
        AppendEntriesResponse::PartialSuccess(None),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(vote),
    ];
    for answer in appends {
        assert_eq!(read_append_answer(&append_answer(&answer)), Ok(answer));
    }
    let granted: VoteResponse<C> = VoteResponse::new(vote, Some(id(2, 2)), true);
    assert_eq!(read_vote_answer(&vote_answer(&granted)), Ok(granted));
    let transfers: Vec<TransferLeaderResponse<C>> = vec![
        Ok(()),
        Err(TransferLeaderError::VoteChanged {
            expected: vote,
            actual: Vote::new(10, 2),
        }),
        Err(TransferLeaderError::LogNotFlushed {
            expected: Some(id(1, 5)),
            actual: None,
        }),
    ];
    for answer in transfers {
        assert_eq!(
            read_transfer_answer::<TokioRuntime>(&transfer_answer::<TokioRuntime>(&answer)),
            Ok(answer)
        );
    }
    for has_it in [false, true] {
        let answer = resync_answer(&vote, has_it);
        assert_eq!(read_resync_answer(&answer), Ok((vote, has_it)));
    }
    assert_eq!(
        read_resync_answer(&refusal("it is not ready")),
        Err("it is not ready".to_owned())
    );
    let long = "ä".repeat(1000);
    assert!(read_resync_answer(&refusal(&long)).unwrap_err().len() <= REASON_BYTES_MAX);
}

#[test]
fn no_bytes_cause_a_panic() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for request in requests() {
        for length in 0..request.len() {
            assert!(decoded(&request[..length]).is_err());
        }
        for _ in 0..2000 {
            let mut changed = request.clone();
            for _ in 0..=next() % 4 {
                let at = next() as usize % changed.len();
                changed[at] = next() as u8;
            }
            let _ = decoded(&changed);
            let _ = read_append_answer::<TokioRuntime>(&changed);
            let _ = read_vote_answer::<TokioRuntime>(&changed);
            let _ = read_transfer_answer::<TokioRuntime>(&changed);
        }
    }
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut gap = append();
    gap.entries.remove(1);
    assert!(decoded(&encode_append(3, &gap, false)).is_err());
    let mut late = append();
    late.vote = Vote::new_committed(6, 300);
    assert!(decoded(&encode_append(3, &late, false)).is_err());
    let mut candidate = append();
    candidate.vote = Vote::new(7, 300);
    assert!(decoded(&encode_append(3, &candidate, false)).is_err());
}
