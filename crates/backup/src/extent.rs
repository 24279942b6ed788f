//! Extents: immutable parts of the data file.

use std::collections::HashSet;

/// An immutable part of the data file. Within one store id it names its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Its place in the data file.
    pub offset: u64,
    pub len: u64,
    /// When its content was written, as a number of the store.
    pub birth: u64,
}

/// Bytes of an extent in a list.
pub const EXTENT_BYTES: usize = 24;

/// A longer extent is damage.
pub const EXTENT_BYTES_MAX: u64 = 1 << 30;

/// No file is longer.
const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

impl Extent {
    fn is_possible(&self) -> bool {
        let end = self.offset.checked_add(self.len);
        self.len <= EXTENT_BYTES_MAX && end.is_some_and(|end| end <= FILE_BYTES_MAX)
    }
}

/// The extents of a packed list.
///
/// # Errors
/// A text if they cannot be those of a data file.
pub fn unpack(bytes: &[u8]) -> Result<Vec<Extent>, String> {
    let (packed, rest) = bytes.as_chunks::<EXTENT_BYTES>();
    let extents = packed.iter().map(|packed| {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&packed[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Extent {
            offset: word(0),
            len: word(8),
            birth: word(16),
        }
    });
    let extents: Vec<Extent> = extents.collect();
    if rest.is_empty() && extents.iter().all(Extent::is_possible) {
        Ok(extents)
    } else {
        Err("the list of extents is no list of parts of a data file".to_owned())
    }
}

/// The packed list of extents.
pub fn pack<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> Vec<u8> {
    let mut out = Vec::new();
    for extent in extents {
        out.extend_from_slice(&extent.offset.to_le_bytes());
        out.extend_from_slice(&extent.len.to_le_bytes());
        out.extend_from_slice(&extent.birth.to_le_bytes());
    }
    out
}

/// The most extents that a request names: its document has at most 16 MiB.
const KNOWN_MAX: usize = 600_000;

/// The extents that a request names as known. Of too many, the small ones are left out; the server sends them again.
pub fn known(mut extents: Vec<Extent>) -> Vec<Extent> {
    if extents.len() > KNOWN_MAX {
        extents.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.len));
        extents.truncate(KNOWN_MAX);
    }
    extents.sort_unstable();
    extents
}

/// Puts the pieces of the data file together to extents, in the order of the list.
pub struct Assembly {
    missing: std::vec::IntoIter<Extent>,
    current: Option<Extent>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// The extents that are not known are expected, in their order.
    pub fn new(all: &[Extent], known: &HashSet<Extent>) -> Assembly {
        let missing = all.iter().filter(|extent| !known.contains(extent)).copied();
        Assembly {
            missing: missing.collect::<Vec<_>>().into_iter(),
            current: None,
            bytes: Vec::new(),
        }
    }

    /// Takes a piece that starts at `offset`, and gives each extent that is complete to `each`.
    ///
    /// # Errors
    /// A text if the piece is not what comes next.
    pub fn add<E: From<String>>(
        &mut self,
        offset: u64,
        mut piece: &[u8],
        mut each: impl FnMut(Extent, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = offset;
        while !piece.is_empty() {
            let extent = match self.current {
                Some(extent) => extent,
                None => {
                    let next = self.missing.next();
                    next.ok_or_else(|| "the server sent more than it announced".to_owned())?
                }
            };
            let expected = extent.offset + self.bytes.len() as u64;
            if at != expected {
                return Err(format!(
                    "the server sent the data at {at} where {expected} was expected"
                )
                .into());
            }
            let left = extent.len - self.bytes.len() as u64;
            let take = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (part, rest) = piece.split_at(take);
            if self.bytes.is_empty() && take as u64 == extent.len {
                each(extent, part)?;
                self.current = None;
            } else {
                self.bytes.extend_from_slice(part);
                self.current = Some(extent);
                if self.bytes.len() as u64 == extent.len {
                    each(extent, &self.bytes)?;
                    self.bytes.clear();
                    self.current = None;
                }
            }
            at += take as u64;
            piece = rest;
        }
        Ok(())
    }

    /// Whether all extents have come.
    pub fn is_complete(&self) -> bool {
        self.current.is_none() && self.missing.len() == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent {
            offset,
            len,
            birth: 7,
        }
    }

    #[test]
    fn lists_are_packed_and_unpacked() {
        let list = [extent(8192, 4096), extent(1 << 40, 1)];
        assert_eq!(unpack(&pack(&list)).unwrap(), list);
        assert!(unpack(&[1; 23]).is_err());
        for (offset, len) in [(0, 1 << 40), (u64::MAX, 1), (i64::MAX as u64, 1)] {
            assert!(
                unpack(&pack(&[extent(offset, len)])).is_err(),
                "{offset} {len}"
            );
        }
    }

    #[test]
    fn pieces_become_extents() {
        let all = [extent(0, 4), extent(4, 2), extent(10, 3)];
        let known = HashSet::from([extent(4, 2)]);
        let mut assembly = Assembly::new(&all, &known);
        let mut seen = Vec::new();
        let mut add = |assembly: &mut Assembly, offset, bytes: &[u8]| {
            assembly.add::<String>(offset, bytes, |extent, bytes| {
                seen.push((extent.offset, bytes.to_vec()));
                Ok(())
            })
        };
        add(&mut assembly, 0, b"ab").unwrap();
        assert!(add(&mut assembly, 3, b"x").is_err());
        add(&mut assembly, 2, b"cd").unwrap();
        assert!(!assembly.is_complete());
        add(&mut assembly, 10, b"efg").unwrap();
        assert!(assembly.is_complete());
        assert!(add(&mut assembly, 13, b"x").is_err());
        assert_eq!(seen, [(0, b"abcd".to_vec()), (10, b"efg".to_vec())]);
    }
}
