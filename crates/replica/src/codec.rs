//! Numbers, identifiers, votes and memberships as bytes.
//!
//! Written by hand: most bytes of a message are frames, which are copied once; and a reader of hostile bytes must never reserve more
//! memory than it was sent, which is easiest to see where every length is compared with the rest of the message.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use frond_kv::EntryId;
use openraft::vote::RaftLeaderId;

use crate::ids::{LeaderId, LogId, Membership, Vote, entry_id, log_id};
use crate::members::Peer;

/// Bytes that are no message of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

pub(crate) type Decoded<T> = Result<T, Malformed>;

/// Reads from the beginning of bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn byte(&mut self) -> Decoded<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed("it is cut off"))?;
        self.rest = rest;
        Ok(first)
    }

    pub fn flag(&mut self) -> Decoded<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    /// A number of 7 bits in each byte, the lowest first.
    pub fn number(&mut self) -> Decoded<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed("a number is too large"))
    }

    pub fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let length =
            usize::try_from(self.number()?).map_err(|_| Malformed("a length is too large"))?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Malformed("a length exceeds the message"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The number of things that follow, each of which has at least `least` bytes.
    pub fn count(&mut self, least: usize) -> Decoded<usize> {
        let count =
            usize::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))?;
        if count > self.rest.len() / least.max(1) {
            return Err(Malformed("a number exceeds the message"));
        }
        Ok(count)
    }

    pub fn id(&mut self) -> Decoded<LogId> {
        let term = self.number()?;
        let index = self.number()?;
        if index > u64::MAX >> 1 {
            return Err(Malformed("the number of an entry is too large"));
        }
        Ok(log_id(EntryId { term, index }))
    }

    pub fn optional_id(&mut self) -> Decoded<Option<LogId>> {
        Ok(if self.flag()? { Some(self.id()?) } else { None })
    }

    pub fn vote(&mut self) -> Decoded<Vote> {
        let term = self.number()?;
        let node = self.number()?;
        if term == u64::MAX {
            return Err(Malformed("a term is too large"));
        }
        Ok(Vote {
            leader_id: LeaderId::new(term, node),
            committed: self.flag()?,
        })
    }

    pub fn membership(&mut self) -> Decoded<Membership> {
        let mut configs = Vec::new();
        for _ in 0..self.count(1)? {
            let mut voters = BTreeSet::new();
            for _ in 0..self.count(1)? {
                voters.insert(self.number()?);
            }
            if voters.is_empty() {
                return Err(Malformed("a set of voters is empty"));
            }
            configs.push(voters);
        }
        if configs.is_empty() || configs.len() > 2 {
            return Err(Malformed("there is not one set of voters, or two"));
        }
        let mut peers = BTreeMap::new();
        for _ in 0..self.count(3)? {
            let id = self.number()?;
            let host = std::str::from_utf8(self.bytes()?)
                .map_err(|_| Malformed("the host of a member is not UTF-8"))?
                .to_owned();
            let data = self.bytes()?.to_vec();
            peers.insert(id, Peer { host, data });
        }
        Membership::new(configs, peers).map_err(|_| Malformed("a voter is no member"))
    }

    pub fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("there are bytes after its end"))
        }
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_id(out: &mut Vec<u8>, id: &LogId) {
    let id = entry_id(id);
    put_number(out, id.term);
    put_number(out, id.index);
}

pub(crate) fn put_optional_id(out: &mut Vec<u8>, id: Option<&LogId>) {
    out.push(u8::from(id.is_some()));
    if let Some(id) = id {
        put_id(out, id);
    }
}

pub(crate) fn put_vote(out: &mut Vec<u8>, vote: &Vote) {
    put_number(out, vote.leader_id.term);
    put_number(out, vote.leader_id.voted_for);
    out.push(u8::from(vote.committed));
}

pub(crate) fn put_membership(out: &mut Vec<u8>, membership: &Membership) {
    let configs = membership.get_joint_config();
    put_number(out, configs.len() as u64);
    for voters in configs {
        put_number(out, voters.len() as u64);
        for voter in voters {
            put_number(out, *voter);
        }
    }
    let peers: Vec<(&u64, &Peer)> = membership.nodes().collect();
    put_number(out, peers.len() as u64);
    for (id, peer) in peers {
        put_number(out, *id);
        put_bytes(out, peer.host.as_bytes());
        put_bytes(out, &peer.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written() {
        for number in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX >> 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number(), Ok(number));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert!(Reader::new(&[0xff; 11]).number().is_err());
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1])
                .bytes()
                .is_err()
        );
        assert!(Reader::new(&[5, 1, 1]).count(1).is_err());
        assert!(Reader::new(&[]).byte().is_err());
        assert!(Reader::new(&[2]).flag().is_err());
    }

    #[test]
    fn a_membership_is_read_as_written() {
        let peer = |n: u8| Peer {
            host: format!("h{n}:27017"),
            data: vec![n; usize::from(n)],
        };
        let peers: BTreeMap<u64, Peer> = (1..=4).map(|n| (u64::from(n), peer(n))).collect();
        let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3])];
        let membership = Membership::new(configs, peers).unwrap();
        let mut bytes = Vec::new();
        put_membership(&mut bytes, &membership);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.membership(), Ok(membership));
        assert_eq!(reader.end(), Ok(()));
        for length in 0..bytes.len() {
            assert!(
                Reader::new(&bytes[..length]).membership().is_err(),
                "{length}"
            );
        }
    }
}
