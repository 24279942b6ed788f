//! The note of an entry: a new membership, or nothing. The vote that a member saves.

use std::io;

use crate::codec::{Decoded, Malformed, Reader, put_membership, put_vote};
use crate::ids::{Membership, Vote};

/// The version of a note, and of a saved vote.
const VERSION: u8 = 1;

pub(crate) fn encode(membership: Option<&Membership>) -> Vec<u8> {
    let mut note = Vec::new();
    if let Some(membership) = membership {
        note.push(VERSION);
        put_membership(&mut note, membership);
    }
    note
}

pub(crate) fn decode(note: &[u8]) -> Decoded<Option<Membership>> {
    if note.is_empty() {
        return Ok(None);
    }
    let mut reader = versioned(note)?;
    let membership = reader.membership()?;
    reader.end()?;
    Ok(Some(membership))
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    put_vote(&mut bytes, vote);
    bytes
}

pub(crate) fn decode_vote(bytes: &[u8]) -> io::Result<Vote> {
    let read = || {
        let mut reader = versioned(bytes)?;
        let vote = reader.vote()?;
        reader.end()?;
        Ok(vote)
    };
    read().map_err(|error: Malformed| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn versioned(bytes: &[u8]) -> Decoded<Reader<'_>> {
    let mut reader = Reader::new(bytes);
    if reader.byte()? != VERSION {
        return Err(Malformed("its version is not known"));
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::members::Peer;

    #[test]
    fn notes_and_votes_are_read_as_written() {
        assert_eq!(decode(&encode(None)), Ok(None));
        let peers = BTreeMap::from([(7, Peer::default())]);
        let membership = Membership::new(vec![BTreeSet::from([7])], peers).unwrap();
        assert_eq!(decode(&encode(Some(&membership))), Ok(Some(membership)));
        assert!(decode(&[2, 0, 0]).is_err());
        for vote in [Vote::new(3, 9), Vote::new_committed(1 << 40, u64::MAX)] {
            assert_eq!(decode_vote(&encode_vote(&vote)).unwrap(), vote);
        }
        assert!(decode_vote(&[]).is_err());
    }
}
