//! A cursor that reads pages ahead.

use std::collections::BTreeMap;
use std::ops::Bound;

use frond_kv::{Direction, Result, TreeId};

use crate::client::bound::{half_open, just_above, just_above_prefix};
use crate::client::long_keys::{Arranged, Range, Reach};
use crate::client::overlay::{Change, apply, value_after};
use crate::client::snapshot::{Pairs, Snapshot};
use crate::client::value;

/// Rows of the first page, and of the largest one; each page has twice the rows of the one before.
const ROWS_MIN: u32 = 128;
const ROWS_MAX: u32 = 1024;
/// A page should not have more bytes, judged by the rows before it.
const PAGE_BYTES: usize = 4 << 20;

impl Snapshot {
    /// A cursor over the keys between two bounds.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn cursor(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Cursor> {
        let (lower, upper) = half_open(lower, upper);
        Ok(Cursor::new(self.clone(), tree, lower, upper, direction))
    }
}

/// A cursor over a range of keys of one tree. It owns its snapshot.
pub struct Cursor {
    snapshot: Snapshot,
    tree: TreeId,
    /// The range: keys from `lower` on and below `upper`; `None` is no bound.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    direction: Direction,
    /// The rest of the range beyond the page: keys within the tree.
    rest: Option<Range>,
    /// Keys within the tree and values, in the direction of the cursor.
    page: Pairs,
    /// The next row of the page.
    at: usize,
    rows: u32,
    bytes_per_row: usize,
    /// Additions to counters in the range, if there can be some.
    added: Option<BTreeMap<Vec<u8>, Change>>,
}

impl Cursor {
    pub(crate) fn new(
        snapshot: Snapshot,
        tree: TreeId,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        direction: Direction,
    ) -> Cursor {
        Cursor {
            snapshot,
            tree,
            rest: Some((lower.clone(), upper.clone())),
            lower,
            upper,
            direction,
            page: Vec::new(),
            at: 0,
            rows: ROWS_MIN,
            bytes_per_row: 0,
            added: None,
        }
    }

    /// Notes that only some keys will be read.
    pub(crate) fn expect_few(&mut self) {
        self.rows = 2;
    }

    /// The next key and its value, or `None` at the end of the range.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    #[allow(
        clippy::should_implement_trait,
        reason = "the result borrows from the cursor"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        while self.at >= self.page.len() {
            if self.rest.is_none() {
                return Ok(None);
            }
            self.read_page()?;
        }
        self.at += 1;
        let (key, value) = &self.page[self.at - 1];
        Ok(Some((key, value)))
    }

    /// Moves to `key`: forward, the next key is the first one at or after it; backward, the last one at or before it. The bounds
    /// of the cursor still hold.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        // Often the key is on the page.
        if let (Some((first, _)), Some((last, _))) = (self.page.first(), self.page.last()) {
            let place = match self.direction {
                Direction::Forward if first.as_slice() <= key && key <= last.as_slice() => {
                    Some(self.page.partition_point(|(at, _)| at.as_slice() < key))
                }
                Direction::Backward if last.as_slice() <= key && key <= first.as_slice() => {
                    Some(self.page.partition_point(|(at, _)| at.as_slice() > key))
                }
                _ => None,
            };
            if let Some(place) = place {
                self.at = place;
                return Ok(());
            }
        }
        self.page.clear();
        self.at = 0;
        self.rest = match self.direction {
            Direction::Forward => {
                let lower = self.lower.as_slice().max(key).to_vec();
                Some((lower, self.upper.clone()))
            }
            Direction::Backward => {
                let above = just_above(key);
                let upper = match &self.upper {
                    Some(upper) if *upper < above => upper.clone(),
                    _ => above,
                };
                Some((self.lower.clone(), Some(upper)))
            }
        };
        Ok(())
    }

    /// Reads the next page of the rest.
    fn read_page(&mut self) -> Result<()> {
        let Some((lower, upper)) = self.rest.take() else {
            return Ok(());
        };
        if upper
            .as_deref()
            .is_some_and(|upper| upper <= lower.as_slice())
        {
            self.page.clear();
            self.at = 0;
            return Ok(());
        }
        let read = self.read_rows(&lower, upper.as_deref());
        if read.is_err() {
            // The same page is read again.
            self.rest = Some((lower, upper));
        }
        read
    }

    fn read_rows(&mut self, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let base = &self.snapshot.base;
        let keys = &base.shared.keys;
        let (from, to) = keys.range(self.tree, lower, upper);
        if self.bytes_per_row == 0 {
            self.bytes_per_row = base.shared.row_bytes.get(self.tree);
        }
        let rows = match self.bytes_per_row {
            0 => self.rows,
            bytes => self.rows.min((PAGE_BYTES / bytes).max(2) as u32),
        };
        let range = (from.clone(), to.clone());
        let connection = &base.shared.connection;
        let region = base
            .shared
            .regions
            .clip(connection, range, self.direction)?;
        let mut stored = base.scan_raw(&region.0, &region.1, rows, self.direction)?;
        let mut more = stored.len() >= rows as usize;
        let fitting = fitting(&stored);
        if fitting < stored.len() {
            stored.truncate(fitting);
            more = true;
        }
        // A page that is not full ends at the border of its region.
        let border = match self.direction {
            Direction::Forward => (region.1 != to).then_some(region.1),
            Direction::Backward => (region.0 != from).then_some(region.0),
        };
        let prefix = keys.value_prefix_len();
        let reach = match border.as_ref().and_then(|border| border.get(prefix..)) {
            _ if more => Reach::LastRow,
            Some(border) => Reach::Border(border.to_vec()),
            None => Reach::All,
        };
        let page = base.rows(self.tree, stored)?;
        let bytes: usize = page
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if !page.is_empty() {
            self.bytes_per_row = bytes / page.len();
            base.shared.row_bytes.set(self.tree, self.bytes_per_row);
        }
        self.rows = (self.rows * 2).clamp(ROWS_MIN, ROWS_MAX);
        let arranged = (keys.long()).arrange(page, (lower, upper), reach, self.direction);
        let (mut page, covered, rest) = match arranged {
            Arranged::Page {
                rows,
                covered,
                rest,
            } => (rows, covered, rest),
            Arranged::Group(head) => self.read_group(&head, (lower, upper))?,
        };
        self.read_added()?;
        if self.snapshot.own.is_some() || self.added.as_ref().is_some_and(|added| !added.is_empty())
        {
            page = self.with_changes(page, &covered.0, covered.1.as_deref())?;
        }
        (self.page, self.at, self.rest) = (page, 0, rest);
        Ok(())
    }

    /// Reads the next rows of the long keys with the same head: see [`crate::client::long_keys`].
    fn read_group(
        &self,
        head: &[u8],
        range: (&[u8], Option<&[u8]>),
    ) -> Result<(Pairs, Range, Option<Range>)> {
        let base = &self.snapshot.base;
        let keys = &base.shared.keys;
        let mut selection = (keys.long()).select(head, range, self.direction, PAGE_BYTES);
        let (from, to) = keys.long().stored_group(head);
        let mut from = keys.stored_value(self.tree, &from);
        let to = keys.stored_value(self.tree, &to);
        // Each row has at least the bytes of its head.
        let rows = (PAGE_BYTES / head.len().max(1)).clamp(2, ROWS_MIN as usize) as u32;
        loop {
            let mut stored = base.scan_raw(&from, &to, rows, Direction::Forward)?;
            let is_last = stored.len() < rows as usize;
            let fitting = fitting(&stored);
            let is_last = is_last && fitting == stored.len();
            stored.truncate(fitting);
            if let Some((last, _)) = stored.last() {
                from = just_above(last);
            }
            for (key, value) in base.rows(self.tree, stored)? {
                selection.add(key, value);
            }
            if is_last {
                return Ok(selection.finish());
            }
        }
    }

    /// Reads what was added to the counters of the tree, if the cursor may meet some.
    fn read_added(&mut self) -> Result<()> {
        let base = &self.snapshot.base;
        if self.added.is_some() {
            return Ok(());
        }
        let Some((tree, prefix)) = &base.shared.counters else {
            return Ok(());
        };
        let above = just_above_prefix(prefix);
        let is_below = |end: &Option<Vec<u8>>| end.as_ref().is_some_and(|end| *end <= *prefix);
        let is_above = above.is_some_and(|above| self.lower >= above);
        if *tree != self.tree || is_below(&self.upper) || is_above {
            return Ok(());
        }
        let added = base.added(*tree, None)?.into_iter();
        self.added = Some(
            added
                .map(|(key, deltas)| (key, Change::Merge(deltas)))
                .collect(),
        );
        Ok(())
    }

    /// The rows of a page after the counters' and the transaction's changes of the range that it covers.
    fn with_changes(&self, page: Pairs, lower: &[u8], upper: Option<&[u8]>) -> Result<Pairs> {
        let shared = &self.snapshot.base.shared;
        let operator = &*shared.merge;
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = page.into_iter().collect();
        let within = |key: &[u8]| key >= lower && upper.is_none_or(|upper| key < upper);
        for (key, change) in self.added.iter().flatten() {
            if !within(key) {
                continue;
            }
            let Change::Merge(deltas) = change else {
                continue;
            };
            let base = rows.get(key).map(Vec::as_slice);
            match apply(operator, self.tree, key, base, deltas)? {
                Some(value) => rows.insert(key.clone(), value),
                None => rows.remove(key),
            };
        }
        if let Some(own) = &self.snapshot.own {
            for (key, change) in own.range(self.tree, lower, upper) {
                let base = rows.remove(key);
                if let Some(value) = value_after(operator, self.tree, key, base, change)? {
                    rows.insert(key.to_vec(), value);
                }
            }
        }
        Ok(match self.direction {
            Direction::Forward => rows.into_iter().collect(),
            Direction::Backward => rows.into_iter().rev().collect(),
        })
    }
}

/// The number of stored rows that fit into a page, at least one.
fn fitting(stored: &Pairs) -> usize {
    let mut bytes = 0;
    let mut fits = |(key, stored): &(Vec<u8>, Vec<u8>)| {
        bytes += key.len() + value::bytes(stored);
        bytes <= PAGE_BYTES
    };
    stored.iter().take_while(|row| fits(row)).count().max(1)
}
