//! Templates: the bytes that values of one length share, or the ends of all keys, stored once per page.
//!
//! Records of fixed size are equal in many bytes: names of fields, lengths, separators. Those bytes are stored once, in
//! the template, and of each value only the others. Then the codec has less to compress, and does not spend bits on
//! short matches between separators. Neighbouring keys are equal in the bytes of types and separators, and keys of an index
//! end with identifiers, which are equal in their time and their origin.

use std::ops::{Range, RangeInclusive};

use crate::bytes::{Reader, Writer};

/// Values of other lengths have no template.
pub(crate) const VALUE_LENS: RangeInclusive<usize> = 16..=16 << 10;
/// The lengths of the ends of keys that may have a template.
pub(crate) const KEY_END_LENS: RangeInclusive<usize> = 1..=64;
/// Fewer values than this have no template.
const VALUES_MIN: usize = 4;
/// At least one byte in this many has to be shared.
const SHARED_SHARE: usize = 16;
/// The template of the ends of keys has to save this many bytes for each of its own.
const SAVED_PER_BYTE: usize = 4;
/// Short stretches are copied as this many bytes; the excess is overwritten by the next one.
const CHUNK: usize = 16;
/// Keys are compared by this many bytes.
const WORD: usize = 8;

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
    let fits = VALUE_LENS.contains(&(candidate as usize));
    (fits && count >= VALUES_MIN && count * 2 >= all).then_some(candidate as usize)
}

/// A template: the bytes that all values share, and the offsets of the others.
pub(crate) struct Template {
    /// A value of zeros but for the shared bytes, and [`CHUNK`] more.
    bytes: Vec<u8>,
    len: usize,
    /// Stretches that differ, in order.
    differing: Vec<Range<usize>>,
    /// The number of bytes that differ.
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
        Some(Template::of_differing(first, &differs))
    }

    /// The template of the ends of keys, which begins with the first byte that all share; `None` if it saves too little. It
    /// has up to `len` bytes, which no key is shorter than.
    pub(crate) fn of_key_ends<'a>(
        len: usize,
        mut keys: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Option<Template> {
        // Whole words are compared, from the end on.
        let words = len.min(*KEY_END_LENS.end()) / WORD;
        let count = keys.len();
        let first = keys.next()?;
        let mut differing = [[0; WORD]; *KEY_END_LENS.end() / WORD];
        let differing = differing.get_mut(..words)?;
        let mut of_first = [0; *KEY_END_LENS.end() / WORD];
        for (word, of_first) in words_from_end(first).zip(&mut of_first) {
            *of_first = word;
        }
        let mut sums = [0; *KEY_END_LENS.end() / WORD];
        for key in keys {
            for ((sum, of_first), word) in
                (sums.iter_mut().zip(&of_first)).zip(words_from_end(key).take(words))
            {
                *sum |= word ^ of_first;
            }
        }
        for (bytes, sum) in differing.iter_mut().rev().zip(sums) {
            *bytes = sum.to_ne_bytes();
        }
        let differs = differing.as_flattened();
        let shared = differs.iter().filter(|byte| **byte == 0).count();
        let from = differs.iter().position(|byte| *byte == 0)?;
        let stored = 4 + (differs.len() - from).div_ceil(8) + shared;
        let end = first.len().checked_sub(differs.len() - from)?;
        let saves = shared * count >= stored * SAVED_PER_BYTE;
        saves.then(|| Template::of_differing(&first[end..], &differs[from..]))
    }

    /// The template of values like `first`; `differs` is not zero for the bytes that are stored with each.
    fn of_differing(first: &[u8], differs: &[u8]) -> Template {
        let len = first.len();
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
        Template::new(bytes, differing)
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

    /// The number of bytes of each value that are stored.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Scratch bytes that [`Template::restore`] and [`Template::take_own`] need behind what they write.
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

    /// Restores what [`Template::write`] wrote, if its values have one of these lengths.
    pub(crate) fn read(reader: &mut Reader<'_>, lens: RangeInclusive<usize>) -> Option<Template> {
        let len = reader.u32()? as usize;
        if !lens.contains(&len) {
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

    /// Writes the bytes that the template lacks of the value at `read` to `out` from `at` on. Returns where they end. Up to
    /// [`Template::room`] bytes behind them may be overwritten, and what follows the value may be read.
    pub(crate) fn take_own(
        &self,
        from: &[u8],
        read: usize,
        out: &mut [u8],
        mut at: usize,
    ) -> usize {
        for range in &self.differing {
            copy(out, at, from, read + range.start, range.len());
            at += range.len();
        }
        at
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

/// The last bytes as numbers, from the end on.
fn words_from_end(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let word = |bytes: &[u8]| {
        bytes
            .first_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    bytes.rchunks_exact(WORD).map(word)
}

/// Copies at least `len` bytes, a chunk at a time if there are as many on both sides.
#[inline]
fn copy(to: &mut [u8], at: usize, from: &[u8], read: usize, len: usize) {
    if len <= CHUNK
        && let Some(to) = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<CHUNK>)
        && let Some(from) = from.get(read..).and_then(<[u8]>::first_chunk::<CHUNK>)
    {
        *to = *from;
    } else {
        to[at..at + len].copy_from_slice(&from[read..read + len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, differ: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
        let byte = |row: usize, at: usize| {
            if differ(at) {
                (row * 31 + at * 7 + row * at) as u8
            } else {
                at as u8
            }
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
            let template = Template::read(&mut reader, VALUE_LENS).unwrap();
            assert!(reader.0.is_empty());
            assert_eq!(template.len(), len);
            let mut own = vec![9; template.own_bytes() * values.len() + template.room()];
            let all = values.concat();
            let taken = (0..values.len()).fold(0, |at, row| {
                template.take_own(&all, row * len, &mut own, at)
            });
            assert_eq!(taken, template.own_bytes() * values.len());
            own.truncate(taken);
            let (mut rest, mut restored) = (own.as_slice(), vec![1]);
            for _ in &values {
                template.restore(rest, &mut restored);
                rest = &rest[template.own_bytes()..];
            }
            assert_eq!(restored[1..], values.concat());
            for cut in 0..stored.len() {
                assert!(Template::read(&mut Reader(&stored[..cut]), VALUE_LENS).is_none());
            }
        }
    }

    #[test]
    fn the_ends_of_keys_have_one_if_it_saves_enough() {
        // Keys, how many of their last bytes are looked at, and the lengths of the template and of what each key keeps.
        let numbered = |count: usize, end: &str| -> Vec<Vec<u8>> {
            (0..count)
                .map(|at| format!("{}{end}", at * 7).into_bytes())
                .collect()
        };
        for (keys, len, expected) in [
            (numbered(50, "-the-end"), 9, Some((8, 0))),
            (numbered(50, "-the-very-end"), 14, Some((8, 0))),
            (numbered(50, "-the-end"), 7, None),
            (numbered(3, "-the-end"), 8, None),
            (numbered(50, "12345678"), 8, Some((8, 0))),
            (numbered(0, "-the-end"), 8, None),
        ] {
            let found = Template::of_key_ends(len, keys.iter().map(Vec::as_slice));
            let found = found.map(|template| (template.len(), template.own_bytes()));
            assert_eq!(found, expected, "{len} of {} keys", keys.len());
        }
        let keys = (0..40u8).map(|at| vec![7, at, at, 1, 2, 3, at, 5, 6]);
        let keys: Vec<Vec<u8>> = keys.collect();
        let template = Template::of_key_ends(9, keys.iter().map(Vec::as_slice)).unwrap();
        assert_eq!((template.len(), template.own_bytes()), (6, 1));
        let mut restored = Vec::new();
        template.restore(&[9], &mut restored);
        assert_eq!(restored, [1, 2, 3, 9, 5, 6]);
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
