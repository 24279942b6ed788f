//! Templates: the bytes that values of one length share, stored once per page.
//!
//! Records of fixed size are equal in many bytes: names of fields, lengths, separators. Those bytes are stored once, in
//! the template, and of each value only the others. Then the codec has less to compress, and does not spend bits on
//! short matches between separators.

use std::ops::Range;

use crate::bytes::{Reader, Writer};

/// Values of other lengths have no template.
const LEN_MIN: usize = 16;
const LEN_MAX: usize = 16 << 10;
/// Fewer values than this have no template.
const VALUES_MIN: usize = 4;
/// At least one byte in this many has to be shared.
const SHARED_SHARE: usize = 16;
/// Short stretches are copied as this many bytes; the excess is overwritten by the next one.
const CHUNK: usize = 16;

/// The length of the values that may get a template: at least half of all values have it.
pub(crate) fn common_len(lens: impl Iterator<Item = u32> + Clone) -> Option<usize> {
    let (mut candidate, mut votes, mut all) = (0, 0usize, 0usize);
    for len in lens.clone() {
        all += 1;
        match votes {
            0 => (candidate, votes) = (len, 1),
            _ if len == candidate => votes += 1,
            _ => votes -= 1,
        }
    }
    let count = lens.filter(|len| *len == candidate).count();
    let fits = (LEN_MIN..=LEN_MAX).contains(&(candidate as usize));
    (fits && count >= VALUES_MIN && count * 2 >= all).then_some(candidate as usize)
}

/// A template: the bytes that all values share, and the offsets of the others.
pub(crate) struct Template {
    /// A value of zeros but for the shared bytes, and [`CHUNK`] more.
    bytes: Vec<u8>,
    len: usize,
    /// Stretches that differ, in order.
    differing: Vec<Range<usize>>,
    /// How many bytes differ.
    own_bytes: usize,
}

impl Template {
    /// The template of values of `len` bytes, if it saves enough.
    pub(crate) fn of<'a>(
        len: usize,
        mut values: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Template> {
        let first = values.next()?;
        let mut differs = vec![0u8; len];
        for value in values {
            for ((differs, a), b) in differs.iter_mut().zip(first).zip(value) {
                *differs |= a ^ b;
            }
        }
        let own_bytes = differs.iter().filter(|byte| **byte != 0).count();
        if (len - own_bytes) * SHARED_SHARE < len {
            return None;
        }
        let mut bytes = first.to_vec();
        let mut differing: Vec<Range<usize>> = Vec::new();
        for at in (0..len).filter(|at| differs[*at] != 0) {
            bytes[at] = 0;
            match differing.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => differing.push(at..at + 1),
            }
        }
        bytes.resize(len + CHUNK, 0);
        Some(Template::new(bytes, differing))
    }

    /// `bytes` has [`CHUNK`] bytes more than a value.
    fn new(bytes: Vec<u8>, differing: Vec<Range<usize>>) -> Template {
        Template {
            len: bytes.len() - CHUNK,
            own_bytes: differing.iter().map(Range::len).sum(),
            bytes,
            differing,
        }
    }

    /// Length of the values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many bytes of each value are stored.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Scratch bytes that [`Template::restore`] needs after the value.
    pub(crate) fn room(&self) -> usize {
        CHUNK
    }

    /// Appends its stored form: the length (4), a bit for each byte that says whether it differs, the others.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(self.len as u32);
        let start = out.len();
        out.resize(start + self.len.div_ceil(8), 0);
        for at in self.differing.iter().flat_map(Range::clone) {
            out[start + at / 8] |= 1 << (at % 8);
        }
        let mut from = 0;
        for range in &self.differing {
            out.extend_from_slice(&self.bytes[from..range.start]);
            from = range.end;
        }
        out.extend_from_slice(&self.bytes[from..self.len]);
    }

    /// Restores what [`Template::write`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Template> {
        let len = reader.u32()? as usize;
        if !(LEN_MIN..=LEN_MAX).contains(&len) {
            return None;
        }
        let bits = reader.bytes(len.div_ceil(8))?;
        let mut bytes = vec![0; len + CHUNK];
        let mut differing = Vec::with_capacity(32);
        let mut at = 0;
        while at < len {
            let start = next_bit(bits, at, true).min(len);
            bytes[at..start].copy_from_slice(reader.bytes(start - at)?);
            at = next_bit(bits, start, false).min(len);
            if at > start {
                differing.push(start..at);
            }
        }
        Some(Template::new(bytes, differing))
    }

    /// Appends the bytes of a value that the template does not have.
    pub(crate) fn take_own(&self, value: &[u8], out: &mut Vec<u8>) {
        for range in &self.differing {
            out.extend_from_slice(&value[range.clone()]);
        }
    }

    /// Appends a value made of its own bytes, of which there are [`Template::own_bytes`], to `out`. What follows them
    /// may be read.
    pub(crate) fn restore(&self, own: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        // With room for the last chunk.
        out.extend_from_slice(&self.bytes);
        let (mut from, mut read) = (0, 0);
        let value = &mut out[start..];
        for range in &self.differing {
            if from > 0 {
                // The previous chunk may have overrun.
                copy(value, from, &self.bytes, from, range.start - from);
            }
            copy(value, range.start, own, read, range.len());
            (from, read) = (range.end, read + range.len());
        }
        copy(value, from, &self.bytes, from, self.len - from);
        out.truncate(start + self.len);
    }
}

/// The first bit from `from` on with this value; the number of bits if there is none.
fn next_bit(bits: &[u8], from: usize, set: bool) -> usize {
    let flip = if set { 0 } else { 0xff };
    let mut skipped = from % 8;
    for (at, byte) in bits.iter().enumerate().skip(from / 8) {
        let found = (byte ^ flip) >> skipped << skipped;
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize;
        }
        skipped = 0;
    }
    bits.len() * 8
}

/// Copies at least `len` bytes, a chunk at a time if there are as many on both sides.
#[inline]
fn copy(to: &mut [u8], at: usize, from: &[u8], read: usize, len: usize) {
    if len <= CHUNK
        && let Some(to) = to.get_mut(at..at + CHUNK)
        && let Some(from) = from.get(read..read + CHUNK)
    {
        to.copy_from_slice(from);
    } else {
        to[at..at + len].copy_from_slice(&from[read..read + len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, differ: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
        let byte = |row: usize, at: usize| match differ(at) {
            true => (row * 31 + at * 7 + row * at) as u8,
            false => at as u8,
        };
        (0..9)
            .map(|row| (0..len).map(|at| byte(row, at)).collect())
            .collect()
    }

    #[test]
    fn values_are_restored() {
        type Mask = fn(usize) -> bool;
        let masks: [(usize, Mask); 8] = [
            (16, |_| false),
            (16, |at| at == 15),
            (17, |at| at == 0),
            (40, |at| (4..38).contains(&at)),
            (217, |at| at % 12 != 11),
            (217, |at| at > 20 && at % 3 == 0),
            (300, |at| (100..200).contains(&at) || at == 299),
            (1000, |at| at % 100 < 40),
        ];
        for (len, differ) in masks {
            let values = values(len, differ);
            let template = Template::of(len, values.iter().map(Vec::as_slice)).unwrap();
            let mut stored = Vec::new();
            template.write(&mut stored);
            let mut reader = Reader(&stored);
            let template = Template::read(&mut reader).unwrap();
            assert!(reader.0.is_empty());
            assert_eq!(template.len(), len);
            let mut own = Vec::new();
            values.iter().for_each(|v| template.take_own(v, &mut own));
            assert_eq!(own.len(), template.own_bytes() * values.len());
            let (mut rest, mut restored) = (own.as_slice(), vec![1]);
            for _ in &values {
                template.restore(rest, &mut restored);
                rest = &rest[template.own_bytes()..];
            }
            assert_eq!(restored[1..], values.concat());
            for cut in 0..stored.len() {
                assert!(Template::read(&mut Reader(&stored[..cut])).is_none());
            }
        }
    }

    #[test]
    fn only_values_that_share_much_have_one() {
        let different = values(100, |at| at >= 5);
        assert!(Template::of(100, different.iter().map(Vec::as_slice)).is_none());
        for (lens, expected) in [
            (&[20, 20, 20, 20][..], Some(20)),
            (&[20, 20, 20], None),
            (&[20, 1, 20, 2, 20, 3, 20, 4], Some(20)),
            (&[20, 1, 20, 2, 20, 3, 20, 4, 5], None),
            (&[15, 15, 15, 15], None),
            (&[20_000, 20_000, 20_000, 20_000], None),
            (&[], None),
        ] {
            assert_eq!(common_len(lens.iter().copied()), expected, "{lens:?}");
        }
    }
}
