//! Pages as they are stored: reading one, restoring all of it, or one entry alone.

use std::cmp::Ordering;

use super::{
    BYTES_MAX, HAS_KEY_TEMPLATE, HAS_TEMPLATE, HEAD_BYTES, KIND_AT, PLACE_BYTES, Page, head,
};
use crate::Kind;
use crate::buffers::PageBytes;
use crate::bytes::{Reader, Writer};
use crate::template::{KEY_END_LENS, Template, VALUE_LENS};

const COLUMN_SAME: u8 = 0;
const COLUMN_U8: u8 = 1;
const COLUMN_U16: u8 = 2;
const COLUMN_U32: u8 = 4;

/// A stored column: one number for each entry.
pub(super) enum Column<'a> {
    Same(u32),
    U8(&'a [u8]),
    U16(&'a [u8]),
    U32(&'a [u8]),
}

impl<'a> Column<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, count: usize) -> Option<Column<'a>> {
        Some(match reader.u8()? {
            COLUMN_SAME => Column::Same(reader.u32()?),
            COLUMN_U8 => Column::U8(reader.bytes(count)?),
            COLUMN_U16 => Column::U16(reader.bytes(count * 2)?),
            COLUMN_U32 => Column::U32(reader.bytes(count * 4)?),
            _ => return None,
        })
    }

    pub(super) fn get(&self, index: usize) -> u32 {
        match self {
            Column::Same(value) => *value,
            Column::U8(bytes) => u32::from(bytes[index]),
            Column::U16(bytes) => {
                u32::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
            }
            Column::U32(bytes) => {
                let mut value = [0; 4];
                value.copy_from_slice(&bytes[4 * index..][..4]);
                u32::from_le_bytes(value)
            }
        }
    }

    pub(super) fn sum(&self, count: usize) -> Option<usize> {
        match self {
            Column::Same(value) => (*value as usize).checked_mul(count),
            column => (0..count).try_fold(0usize, |sum, index| {
                sum.checked_add(column.get(index) as usize)
            }),
        }
    }

    pub(super) fn write(out: &mut Vec<u8>, values: impl Iterator<Item = u32> + Clone) {
        let (mut least, mut most) = (u32::MAX, 0);
        for value in values.clone() {
            (least, most) = (least.min(value), most.max(value));
        }
        if least >= most {
            out.push(COLUMN_SAME);
            out.put_u32(most);
        } else if u8::try_from(most).is_ok() {
            out.push(COLUMN_U8);
            out.extend(values.map(|value| value as u8));
        } else if u16::try_from(most).is_ok() {
            out.push(COLUMN_U16);
            values.for_each(|value| out.put_u16(value as u16));
        } else {
            out.push(COLUMN_U32);
            values.for_each(|value| out.put_u32(value));
        }
    }
}

/// The place of an entry in a stored page.
#[derive(Default)]
struct Entry {
    index: usize,
    /// The first of its own bytes of the key, and of the value.
    key_at: usize,
    value_at: usize,
}

/// The parts of a stored page.
pub(super) struct Stored<'a> {
    count: usize,
    prefix: &'a [u8],
    kinds: Column<'a>,
    /// Lengths without the prefix.
    key_lens: Column<'a>,
    value_lens: Column<'a>,
    template: Option<Template>,
    key_template: Option<Template>,
    /// The bytes of keys, and of values, that no template has.
    keys: &'a [u8],
    values: &'a [u8],
    /// The bytes of the end of each key that are stored with it, and those that are not.
    key_own: usize,
    key_saved: usize,
    /// Sums of the lengths.
    suffix_bytes: usize,
    value_bytes: usize,
}

impl<'a> Stored<'a> {
    /// Reads the parts. `None` if their lengths do not fit together.
    pub(super) fn read(payload: &'a [u8]) -> Option<Stored<'a>> {
        let mut reader = Reader(payload);
        let count = reader.u32()?;
        let (has_template, has_key_template) =
            (count & HAS_TEMPLATE != 0, count & HAS_KEY_TEMPLATE != 0);
        let count = (count & !(HAS_TEMPLATE | HAS_KEY_TEMPLATE)) as usize;
        // Keys differ, so all but one have bytes after the shared prefix that no template has.
        if count == 0 || count > payload.len() {
            return None;
        }
        let prefix = reader.key()?;
        let kinds = Column::read(&mut reader, count)?;
        let key_lens = Column::read(&mut reader, count)?;
        let value_lens = Column::read(&mut reader, count)?;
        let mut read = |is_there: bool, lens| {
            if is_there {
                Template::read(&mut reader, lens).map(Some)
            } else {
                Some(None)
            }
        };
        let template = read(has_template, VALUE_LENS)?;
        let key_template = read(has_key_template, KEY_END_LENS)?;
        let (suffix_bytes, value_bytes) = (key_lens.sum(count)?, value_lens.sum(count)?);
        let key_saved = key_template.as_ref().map_or(0, saved_bytes);
        let stored_suffixes = suffix_bytes.checked_sub(count * key_saved)?;
        let (keys, values) = reader.0.split_at_checked(stored_suffixes)?;
        let saved = template.as_ref().map_or(0, |template| {
            let lens = (0..count).map(|index| value_lens.get(index) as usize);
            lens.filter(|len| *len == template.len()).count() * saved_bytes(template)
        });
        (values.len() == value_bytes.checked_sub(saved)?).then_some(Stored {
            count,
            prefix,
            kinds,
            key_lens,
            value_lens,
            key_own: key_template.as_ref().map_or(0, Template::own_bytes),
            key_saved,
            template,
            key_template,
            keys,
            values,
            suffix_bytes,
            value_bytes,
        })
    }

    /// The bytes of the whole page in memory.
    pub(super) fn page_bytes(&self) -> Option<usize> {
        let places = HEAD_BYTES * self.count + PLACE_BYTES * (self.count + 1);
        let size = places + self.count * self.prefix.len() + self.suffix_bytes + self.value_bytes;
        (size <= BYTES_MAX).then_some(size)
    }

    /// The bytes that templates may write behind the last entry.
    fn room(&self) -> usize {
        let templates = self.template.iter().chain(&self.key_template);
        templates.map(Template::room).max().unwrap_or(0)
    }

    /// The page as it is in memory, with all entries.
    pub(super) fn restore(&self) -> Option<Page> {
        let mut buffer = PageBytes::with_capacity(self.page_bytes()? + self.room());
        let bytes = buffer.bytes_mut();
        bytes.resize(HEAD_BYTES * self.count + PLACE_BYTES * (self.count + 1), 0);
        let mut entry = Entry::default();
        for index in 0..self.count {
            self.push(bytes, index, self.count, &entry)?;
            entry = self.after(&entry)?;
        }
        self.end(buffer, self.count)
    }

    /// A page with the entry of `key` alone, if there is one. Keys are in order, which was checked when the page was read first.
    pub(super) fn find(&self, key: &[u8]) -> Option<Option<Page>> {
        let Some(wanted) = key.strip_prefix(self.prefix) else {
            return Some(None);
        };
        let mut end = Vec::new();
        let mut entry = Entry::default();
        for _ in 0..self.count {
            match self.compare(&entry, wanted, &mut end)? {
                Ordering::Less => entry = self.after(&entry)?,
                Ordering::Greater => return Some(None),
                Ordering::Equal => return self.only(&entry).map(Some),
            }
        }
        Some(None)
    }

    /// Compares a key with one without the prefix. `end` is a buffer.
    fn compare(&self, entry: &Entry, wanted: &[u8], end: &mut Vec<u8>) -> Option<Ordering> {
        let (start, own) = self.key(entry)?;
        let Some(template) = &self.key_template else {
            return Some(start.cmp(wanted));
        };
        let Some(wanted_end) = wanted.strip_prefix(start) else {
            return Some(start.cmp(wanted));
        };
        end.clear();
        template.restore(own, end);
        Some(end.as_slice().cmp(wanted_end))
    }

    /// A page with one entry.
    fn only(&self, entry: &Entry) -> Option<Page> {
        let key_len = self.prefix.len() + self.key_lens.get(entry.index) as usize;
        let value_len = self.value_lens.get(entry.index) as usize;
        let places = HEAD_BYTES + 2 * PLACE_BYTES;
        let mut buffer = PageBytes::with_capacity(places + key_len + value_len + self.room());
        buffer.bytes_mut().resize(places, 0);
        self.push(buffer.bytes_mut(), 0, 1, entry)?;
        self.end(buffer, 1)
    }

    /// The stored bytes of a key before the part that has a template, and its own bytes of that part, with those that follow them.
    fn key(&self, entry: &Entry) -> Option<(&'a [u8], &'a [u8])> {
        let start = self
            .stored_key_len(entry.index)?
            .checked_sub(self.key_own)?;
        self.keys.get(entry.key_at..)?.split_at_checked(start)
    }

    /// Appends an entry to a page that will have `count` entries. `at` is its number there.
    fn push(&self, bytes: &mut Vec<u8>, at: usize, count: usize, entry: &Entry) -> Option<()> {
        let index = entry.index;
        let kind = u8::try_from(self.kinds.get(index)).ok()?;
        // `Page::message` relies on this.
        Kind::from_byte(kind)?;
        let key_len = self.prefix.len() as u64 + u64::from(self.key_lens.get(index));
        let place = bytes.len() as u64 | key_len << 32 | u64::from(kind) << KIND_AT;
        bytes[HEAD_BYTES * count + PLACE_BYTES * at..][..PLACE_BYTES]
            .copy_from_slice(&place.to_le_bytes());
        bytes.extend_from_slice(self.prefix);
        let suffix = bytes.len();
        let (start, own) = self.key(entry)?;
        bytes.extend_from_slice(start);
        if let Some(template) = &self.key_template {
            if own.len() < self.key_own {
                return None;
            }
            template.restore(own, bytes);
        }
        let head = head(&bytes[suffix..]).to_ne_bytes();
        bytes[HEAD_BYTES * at..][..HEAD_BYTES].copy_from_slice(&head);
        let value = self.values.get(entry.value_at..)?;
        let stored = self.stored_value_len(index);
        match &self.template {
            _ if value.len() < stored => return None,
            Some(template) if template.len() == self.value_lens.get(index) as usize => {
                template.restore(value, bytes);
            }
            _ => bytes.extend_from_slice(&value[..stored]),
        }
        Some(())
    }

    /// The entry behind this one.
    fn after(&self, entry: &Entry) -> Option<Entry> {
        Some(Entry {
            index: entry.index + 1,
            key_at: entry.key_at + self.stored_key_len(entry.index)?,
            value_at: entry.value_at + self.stored_value_len(entry.index),
        })
    }

    /// Completes a page that has `count` entries.
    fn end(&self, mut buffer: PageBytes, count: usize) -> Option<Page> {
        let bytes = buffer.bytes_mut();
        let end = u64::from(u32::try_from(bytes.len()).ok()?);
        bytes[(HEAD_BYTES + PLACE_BYTES) * count..][..PLACE_BYTES]
            .copy_from_slice(&end.to_le_bytes());
        Some(Page {
            bytes: buffer,
            count,
            prefix_len: self.prefix.len(),
        })
    }

    /// The stored bytes of a key.
    fn stored_key_len(&self, index: usize) -> Option<usize> {
        (self.key_lens.get(index) as usize).checked_sub(self.key_saved)
    }

    /// The stored bytes of a value.
    fn stored_value_len(&self, index: usize) -> usize {
        let len = self.value_lens.get(index) as usize;
        match &self.template {
            Some(template) if template.len() == len => template.own_bytes(),
            _ => len,
        }
    }
}

/// The bytes of each key or value that a template has.
fn saved_bytes(template: &Template) -> usize {
    template.len() - template.own_bytes()
}
