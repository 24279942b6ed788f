//! Messages between members, as bytes.
//!
//! ```text
//! request  = version | kind | to | body           to: the member that the sender means
//! response = version | 0 | body of the kind       or   version | 1 | the reason of a refusal
//! ```
//! A response is read by the sender of the request, who knows its kind.

use std::sync::Arc;

use frond_kv::{LogEntry, WRITE_SET_BYTES_MAX};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::Runtime;
use crate::codec::{
    Decoded, Malformed, Reader, put_bytes, put_id, put_number, put_optional_id, put_vote,
};
use crate::entry::{Entry, Group, Payload};
use crate::ids::{LogId, Vote, entry_id};
use crate::note;
use crate::types::Types;

const VERSION: u8 = 1;

const ANSWER: u8 = 0;
const REFUSAL: u8 = 1;

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const RESYNC: u8 = 5;
const STEP_UP: u8 = 6;

/// The longest request. An entry has one write set of any size and short ones, and follows short entries of its batch.
pub const REQUEST_BYTES_MAX: usize = WRITE_SET_BYTES_MAX + (32 << 20);

/// The longest reason of a refusal that is sent.
const REASON_BYTES_MAX: usize = 512;

/// A request of another member.
pub(crate) enum Request<R: Runtime> {
    Append {
        append: AppendEntriesRequest<Types<R>>,
        /// Whether the sender has sent the entries before these, without waiting for the answer.
        follows: bool,
    },
    Vote(VoteRequest<Types<R>>),
    PreVote(VoteRequest<Types<R>>),
    Transfer(TransferLeaderRequest<Types<R>>),
    Resync(Resync),
    /// The sender wants to lead.
    StepUp,
}

/// Sent by a leader instead of entries that it has no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resync {
    pub vote: Vote,
    /// The last entry that the leader has removed from its log.
    pub purged: LogId,
}

pub(crate) fn encode_append<R: Runtime>(
    to: u64,
    append: &AppendEntriesRequest<Types<R>>,
    follows: bool,
) -> Vec<u8> {
    let frames = append
        .entries
        .iter()
        .map(|entry| match &entry.payload.group {
            Group::Frames { bytes, .. } => bytes.len() + 64,
            Group::Local | Group::Omitted => 64,
        });
    let mut out = Vec::with_capacity(128 + frames.sum::<usize>());
    begin(&mut out, APPEND, to);
    put_vote(&mut out, &append.vote);
    put_optional_id(&mut out, append.prev_log_id.as_ref());
    put_optional_id(&mut out, append.leader_commit.as_ref());
    out.push(u8::from(follows));
    put_number(&mut out, append.entries.len() as u64);
    for entry in &append.entries {
        put_entry(&mut out, entry);
    }
    out
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_id(out, &entry.id);
    let (from, to, frames): (u64, u64, &[u8]) = match &entry.payload.group {
        Group::Frames { from, to, bytes } => (*from, *to, bytes),
        // Entries are read from the log before they are sent, with their frames.
        Group::Local | Group::Omitted => (0, 0, &[]),
    };
    put_number(out, from);
    put_number(out, to.saturating_sub(from));
    put_bytes(out, &note::encode(entry.payload.membership.as_ref()));
    put_bytes(out, frames);
}

pub(crate) fn encode_vote<R: Runtime>(
    to: u64,
    vote: &VoteRequest<Types<R>>,
    is_pre_vote: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, if is_pre_vote { PRE_VOTE } else { VOTE }, to);
    put_vote(&mut out, &vote.vote);
    put_optional_id(&mut out, vote.last_log_id.as_ref());
    out.push(u8::from(vote.leadership_transfer));
    out
}

pub(crate) fn encode_transfer<R: Runtime>(
    to: u64,
    transfer: &TransferLeaderRequest<Types<R>>,
) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, TRANSFER, to);
    put_vote(&mut out, transfer.from_leader());
    put_number(&mut out, *transfer.to_node_id());
    put_optional_id(&mut out, transfer.last_log_id());
    out
}

pub(crate) fn encode_resync(to: u64, resync: &Resync) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, RESYNC, to);
    put_vote(&mut out, &resync.vote);
    put_id(&mut out, &resync.purged);
    out
}

pub(crate) fn encode_step_up(to: u64) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, STEP_UP, to);
    out
}

fn begin(out: &mut Vec<u8>, kind: u8, to: u64) {
    out.push(VERSION);
    out.push(kind);
    put_number(out, to);
}

/// The request in `bytes`, if it is for the member `id`.
pub(crate) fn decode<R: Runtime>(bytes: &[u8], id: u64) -> Decoded<Request<R>> {
    let mut reader = Reader::new(bytes);
    if reader.byte()? != VERSION {
        return Err(Malformed("its version is not known"));
    }
    let kind = reader.byte()?;
    if reader.number()? != id {
        return Err(Malformed("it is for another member"));
    }
    let request = match kind {
        APPEND => read_append(&mut reader)?,
        VOTE => Request::Vote(read_vote(&mut reader)?),
        PRE_VOTE => Request::PreVote(read_vote(&mut reader)?),
        TRANSFER => {
            let from = reader.vote()?;
            let to = reader.number()?;
            Request::Transfer(TransferLeaderRequest::new(from, to, reader.optional_id()?))
        }
        RESYNC => Request::Resync(Resync {
            vote: reader.vote()?,
            purged: reader.id()?,
        }),
        STEP_UP => Request::StepUp,
        _ => return Err(Malformed("its kind is not known")),
    };
    reader.end()?;
    Ok(request)
}

/// Whether a request brings entries of the log. Any bytes may come.
pub fn brings_entries(request: &[u8]) -> bool {
    let entries = || -> Decoded<usize> {
        let mut reader = Reader::new(request);
        if reader.byte()? != VERSION || reader.byte()? != APPEND {
            return Ok(0);
        }
        reader.number()?;
        reader.vote()?;
        reader.optional_id()?;
        reader.optional_id()?;
        reader.flag()?;
        reader.count(6)
    };
    entries().is_ok_and(|count| count > 0)
}

fn read_append<R: Runtime>(reader: &mut Reader<'_>) -> Decoded<Request<R>> {
    let vote = reader.vote()?;
    let prev_log_id = reader.optional_id()?;
    let leader_commit = reader.optional_id()?;
    let follows = reader.flag()?;
    let count = reader.count(6)?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut before = prev_log_id;
    for _ in 0..count {
        let entry = read_entry(reader)?;
        let next = before.map_or(0, |id| id.index + 1);
        if entry.id.index != next || before.is_some_and(|before| before > entry.id) {
            return Err(Malformed("an entry does not follow the one before"));
        }
        before = Some(entry.id);
        entries.push(entry);
    }
    // An entry is sent by the leader of its term or of a later one, whose vote was granted.
    if !vote.committed || before.is_some_and(|last| last.leader_id.term > vote.leader_id.term) {
        return Err(Malformed("entries come from a member that was not elected"));
    }
    Ok(Request::Append {
        append: AppendEntriesRequest {
            vote,
            prev_log_id,
            entries,
            leader_commit,
        },
        follows,
    })
}

fn read_entry(reader: &mut Reader<'_>) -> Decoded<Entry> {
    let id = reader.id()?;
    let from = reader.number()?;
    let to = from
        .checked_add(reader.number()?)
        .ok_or(Malformed("a position is too large"))?;
    let membership = note::decode(reader.bytes()?)?;
    let bytes = reader.bytes()?;
    let group = Group::Frames {
        from,
        to,
        bytes: Arc::from(bytes),
    };
    Ok(Entry {
        id,
        payload: Payload { group, membership },
    })
}

fn read_vote<R: Runtime>(reader: &mut Reader<'_>) -> Decoded<VoteRequest<Types<R>>> {
    let mut vote: VoteRequest<Types<R>> = VoteRequest::new(reader.vote()?, reader.optional_id()?);
    vote.leadership_transfer = reader.flag()?;
    if vote.vote.committed {
        return Err(Malformed("a candidate has been elected already"));
    }
    Ok(vote)
}

/// The entry of a log, as the log stores it.
pub(crate) fn log_entry(entry: &Entry) -> Option<LogEntry> {
    let Group::Frames { from, to, bytes } = &entry.payload.group else {
        return None;
    };
    Some(LogEntry {
        id: entry_id(&entry.id),
        from: *from,
        to: *to,
        note: note::encode(entry.payload.membership.as_ref()).into(),
        frames: bytes.clone(),
    })
}

pub(crate) fn refusal(reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = vec![VERSION, REFUSAL];
    put_bytes(&mut out, &reason.as_bytes()[..end]);
    out
}

pub(crate) fn append_answer<R: Runtime>(answer: &AppendEntriesResponse<Types<R>>) -> Vec<u8> {
    let mut out = vec![VERSION, ANSWER];
    match answer {
        AppendEntriesResponse::Success => out.push(0),
        AppendEntriesResponse::PartialSuccess(id) => {
            out.push(1);
            put_optional_id(&mut out, id.as_ref());
        }
        AppendEntriesResponse::Conflict => out.push(2),
        AppendEntriesResponse::HigherVote(vote) => {
            out.push(3);
            put_vote(&mut out, vote);
        }
    }
    out
}

pub(crate) fn vote_answer<R: Runtime>(answer: &VoteResponse<Types<R>>) -> Vec<u8> {
    let mut out = vec![VERSION, ANSWER];
    put_vote(&mut out, &answer.vote);
    out.push(u8::from(answer.vote_granted));
    put_optional_id(&mut out, answer.last_log_id.as_ref());
    out
}

pub(crate) fn transfer_answer<R: Runtime>(answer: &TransferLeaderResponse<Types<R>>) -> Vec<u8> {
    let mut out = vec![VERSION, ANSWER];
    match answer {
        Ok(()) => out.push(0),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.push(1);
            put_vote(&mut out, expected);
            put_vote(&mut out, actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.push(2);
            put_optional_id(&mut out, expected.as_ref());
            put_optional_id(&mut out, actual.as_ref());
        }
    }
    out
}

/// The vote of a member, and whether it has the purged entry and all before it, so that it need not copy a store.
pub(crate) fn resync_answer(vote: &Vote, has_it: bool) -> Vec<u8> {
    let mut out = vec![VERSION, ANSWER];
    put_vote(&mut out, vote);
    out.push(u8::from(has_it));
    out
}

pub(crate) fn step_up_answer() -> Vec<u8> {
    vec![VERSION, ANSWER]
}

/// The body of a response, or the reason of the refusal.
fn answer(bytes: &[u8]) -> Decoded<Result<Reader<'_>, String>> {
    let mut reader = Reader::new(bytes);
    if reader.byte()? != VERSION {
        return Err(Malformed("its version is not known"));
    }
    match reader.byte()? {
        ANSWER => Ok(Ok(reader)),
        REFUSAL => Ok(Err(String::from_utf8_lossy(reader.bytes()?).into_owned())),
        _ => Err(Malformed("it is neither an answer nor a refusal")),
    }
}

/// Reads the response with `read`. Both a refusal and a response that cannot be read are an error.
fn read_answer<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Decoded<T>,
) -> Result<T, String> {
    let text = |error: Malformed| error.to_string();
    let mut reader = answer(bytes).map_err(text)??;
    let value = read(&mut reader).map_err(text)?;
    reader.end().map_err(text)?;
    Ok(value)
}

pub(crate) fn read_append_answer<R: Runtime>(
    bytes: &[u8],
) -> Result<AppendEntriesResponse<Types<R>>, String> {
    read_answer(bytes, |reader| {
        Ok(match reader.byte()? {
            0 => AppendEntriesResponse::Success,
            1 => AppendEntriesResponse::PartialSuccess(reader.optional_id()?),
            2 => AppendEntriesResponse::Conflict,
            3 => AppendEntriesResponse::HigherVote(reader.vote()?),
            _ => return Err(Malformed("its kind is not known")),
        })
    })
}

pub(crate) fn read_vote_answer<R: Runtime>(bytes: &[u8]) -> Result<VoteResponse<Types<R>>, String> {
    read_answer(bytes, |reader| {
        let vote = reader.vote()?;
        let is_granted = reader.flag()?;
        Ok(VoteResponse::new(vote, reader.optional_id()?, is_granted))
    })
}

pub(crate) fn read_transfer_answer<R: Runtime>(
    bytes: &[u8],
) -> Result<TransferLeaderResponse<Types<R>>, String> {
    read_answer(bytes, |reader| {
        Ok(match reader.byte()? {
            0 => Ok(()),
            1 => Err(TransferLeaderError::VoteChanged {
                expected: reader.vote()?,
                actual: reader.vote()?,
            }),
            2 => Err(TransferLeaderError::LogNotFlushed {
                expected: reader.optional_id()?,
                actual: reader.optional_id()?,
            }),
            _ => return Err(Malformed("its kind is not known")),
        })
    })
}

pub(crate) fn read_resync_answer(bytes: &[u8]) -> Result<(Vote, bool), String> {
    read_answer(bytes, |reader| Ok((reader.vote()?, reader.flag()?)))
}

pub(crate) fn read_step_up_answer(bytes: &[u8]) -> Result<(), String> {
    read_answer(bytes, |_| Ok(()))
}

#[cfg(test)]
mod tests;
