//! The stored form of values: a byte for the form, and the value itself or the position of its parts.
//!
//! TiKV stores no empty value, and takes no entry above 8 MiB. So a large value is stored in parts, under the timestamp of its
//! commit. A commit that replaces the value leaves the parts for the collector, since older snapshots may read them; the collector
//! finds the value by the key that is stored with the parts.
//!
//! Before the value of a long key (`long_keys.rs`) stands the tail of the key, behind its length. The byte for the form is another one
//! then, so that a server of an earlier version does not take the tail for a part of the value.

use frond_kv::TreeId;

use crate::client::keys::Keys;

/// A value with more bytes is stored in parts.
pub(crate) const WHOLE_BYTES_MAX: usize = 1 << 20;
/// Size of a part.
pub(crate) const PART_BYTES: usize = 512 << 10;

const WHOLE: u8 = 0;
const IN_PARTS: u8 = 1;
/// Added to the form if the key is long.
const LONG: u8 = 2;
const LONG_IN_PARTS: u8 = IN_PARTS | LONG;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Whole(Vec<u8>),
    InParts(Place),
}

/// Where the parts of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The timestamp of the commit.
    pub(crate) at: u64,
    /// Distinguishes the large values of one commit.
    pub(crate) place: u32,
    pub(crate) parts: u16,
}

impl Place {
    const BYTES: usize = 15;

    pub(crate) fn to_value(self, is_long: bool) -> Vec<u8> {
        let mut value = Vec::with_capacity(Place::BYTES);
        value.push(if is_long { LONG_IN_PARTS } else { IN_PARTS });
        value.extend_from_slice(&self.at.to_be_bytes());
        value.extend_from_slice(&self.place.to_be_bytes());
        value.extend_from_slice(&self.parts.to_be_bytes());
        value
    }

    /// The keys of the parts.
    pub(crate) fn keys(self, keys: &Keys, tree: TreeId) -> impl Iterator<Item = Vec<u8>> {
        (0..self.parts).map(move |number| keys.part(tree, self.at, self.place, number))
    }
}

/// The stored form of a small value.
pub(crate) fn whole(value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + 1);
    stored.push(WHOLE);
    stored.extend_from_slice(value);
    stored
}

/// The stored form of [`with_tail`], if that is small.
pub(crate) fn whole_of_long(with_tail: &[u8]) -> Vec<u8> {
    let mut stored = whole(with_tail);
    stored[0] = LONG;
    stored
}

/// A value with the tail of its long key.
pub(crate) fn with_tail(tail: &[u8], value: &[u8]) -> Vec<u8> {
    // A key has less than 2^25 bytes.
    let len = (tail.len() as u32).to_be_bytes();
    [&len, tail, value].concat()
}

/// Reads [`with_tail`]: the tail and the value; `None` if it is malformed.
pub(crate) fn split_tail(with_tail: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = with_tail.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
}

/// The bytes of a stored value, about: those of its parts if it is in parts.
pub(crate) fn bytes(stored: &[u8]) -> usize {
    match stored {
        [IN_PARTS | LONG_IN_PARTS, .., high, low] if stored.len() == Place::BYTES => {
            usize::from(u16::from_be_bytes([*high, *low])) * PART_BYTES
        }
        _ => stored.len(),
    }
}

/// Reads a stored value; `None` if it is malformed.
pub(crate) fn read(mut stored: Vec<u8>) -> Option<Stored> {
    match *stored.first()? {
        WHOLE | LONG => {
            stored.drain(..1);
            Some(Stored::Whole(stored))
        }
        IN_PARTS | LONG_IN_PARTS => {
            let rest = stored.get(1..)?;
            let (at, rest) = rest.split_first_chunk()?;
            let (place, rest) = rest.split_first_chunk()?;
            Some(Stored::InParts(Place {
                at: u64::from_be_bytes(*at),
                place: u32::from_be_bytes(*place),
                parts: u16::from_be_bytes(rest.try_into().ok()?),
            }))
        }
        _ => None,
    }
}

/// The value of a slot's key: the timestamp of the commit, and the sum so far.
pub(crate) fn record(at: u64, added: &[u8]) -> Vec<u8> {
    let mut record = at.to_be_bytes().to_vec();
    record.extend_from_slice(added);
    record
}

/// Reads [`record`].
pub(crate) fn read_record(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (at, added) = stored.split_first_chunk()?;
    Some((u64::from_be_bytes(*at), added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_stored() {
        assert_eq!(read(whole(b"")), Some(Stored::Whole(Vec::new())));
        assert_eq!(read(whole(b"leaf")), Some(Stored::Whole(b"leaf".to_vec())));
        let place = Place {
            at: 1 << 60,
            place: 7,
            parts: 34,
        };
        assert_eq!(bytes(&whole(b"leaf")), 5);
        for is_long in [false, true] {
            let stored = place.to_value(is_long);
            assert_eq!(bytes(&stored), 34 * PART_BYTES);
            assert_eq!(read(stored), Some(Stored::InParts(place)));
        }
        let long = with_tail(b"tail", b"leaf");
        assert_eq!(
            read(whole_of_long(&long)),
            Some(Stored::Whole(long.clone()))
        );
        assert_eq!(split_tail(&long), Some((&b"tail"[..], &b"leaf"[..])));
        for malformed in [&[][..], &[0, 0, 0], &[0, 0, 0, 9, 1]] {
            assert_eq!(split_tail(malformed), None);
        }
        for malformed in [&[][..], &[4, 3], &[IN_PARTS, 1, 2]] {
            assert_eq!(read(malformed.to_vec()), None);
        }
    }
}
