//! Reads entries: with their frames to send them, and without to apply them.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use frond_kv::LogEntry;
use futures_util::stream;
use openraft::OptionalSend;
use openraft::storage::RaftLogReader;

use crate::Runtime;
use crate::entry::{Entry, Group, Payload};
use crate::ids::{Vote, log_id};
use crate::note;
use crate::shared::Shared;
use crate::types::Types;

/// The entries that are read at a time where their frames are not needed.
const SCAN_BYTES: usize = 1 << 20;

pub(crate) struct Reader<R: Runtime> {
    shared: Arc<Shared<R>>,
}

impl<R: Runtime> Reader<R> {
    pub fn new(shared: Arc<Shared<R>>) -> Self {
        Reader { shared }
    }

    /// Some entries from `first` on. None, if the log does not reach that far.
    async fn read(&self, first: u64, end: u64, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        let log = self.shared.log.clone();
        let entries = R::blocking(move || log.read(first, end, bytes_max)).await?;
        entries.map_err(io::Error::other)
    }

    /// The entries of a range without their frames, as far as the log has them.
    async fn scan(&self, range: impl RangeBounds<u64>) -> io::Result<Vec<Entry>> {
        let state = self.shared.log.state();
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let mut next = start.max(state.purged.map_or(0, |id| id.index + 1));
        let end = end.min(state.last.map_or(0, |id| id.index + 1));
        if next >= end {
            return Ok(Vec::new());
        }
        if let Some(entries) = self.shared.known(next, end) {
            return Ok(entries);
        }
        let mut found = Vec::new();
        while next < end {
            let entries = self.read(next, end, SCAN_BYTES).await?;
            let Some(last) = entries.last() else {
                break;
            };
            next = last.id.index + 1;
            for entry in entries {
                found.push(without_frames(&entry)?);
            }
        }
        Ok(found)
    }
}

fn without_frames(entry: &LogEntry) -> io::Result<Entry> {
    Ok(Entry {
        id: log_id(entry.id),
        payload: Payload {
            group: Group::Omitted,
            membership: note::decode(&entry.note).map_err(io::Error::other)?,
        },
    })
}

fn with_frames(entry: LogEntry) -> io::Result<Entry> {
    Ok(Entry {
        id: log_id(entry.id),
        payload: Payload {
            membership: note::decode(&entry.note).map_err(io::Error::other)?,
            group: Group::Frames {
                from: entry.from,
                to: entry.to,
                bytes: entry.frames,
            },
        },
    })
}

impl<R: Runtime> RaftLogReader<Types<R>> for Reader<R> {
    // For the state machine, which needs no frames: the log has them.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl futures_util::Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let entries = match self.scan(range).await {
            Ok(entries) => entries.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(entries)
    }

    // For the start, which looks for memberships and for the terms of entries.
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.scan(range).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.vote())
    }

    // For other members, with frames.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let state = self.shared.log.state();
        let end = end.min(state.last.map_or(0, |id| id.index + 1));
        if start >= end {
            return Ok(Vec::new());
        }
        let entries = self
            .read(start, end, self.shared.settings.batch_bytes)
            .await?;
        // They are about to be sent, so that members may acknowledge them.
        self.shared
            .note_ends(entries.iter().map(|entry| (entry.id, entry.to)));
        entries.into_iter().map(with_frames).collect()
    }
}
