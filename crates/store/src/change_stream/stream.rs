//! The cursor of a change stream: events through the stages behind `$changeStream`.

use std::collections::VecDeque;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf};
use frond_error::ErrorCode;
use frond_query::aggregate::{DocSource, Source};
use parking_lot::Mutex;

use super::source::Changes;
use super::split::{EVENT_BYTES_MAX, split, too_large};
use crate::exec::ExecStats;
use crate::exec::cursor::DocStream;
use crate::signal::TailSignal;
use frond_oplog::token::Token;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command};

/// The events as the input of the stages.
pub struct Input(pub Arc<Mutex<Changes>>);

impl DocSource<Error> for Input {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        let event = self.0.lock().next_event()?;
        Ok(event.map(|event| event.doc))
    }
}

/// A change stream that clients pull from.
pub struct ChangeStream {
    /// Locked for each event, by this thread only: the stages above it have the other reference.
    changes: Arc<Mutex<Changes>>,
    stages: Source<Error>,
    splits: bool,
    /// Fragments of the last event that are still to be returned.
    fragments: VecDeque<(DocBuf, Token)>,
    /// The fragment that was returned last, while others follow.
    last_fragment: Option<Token>,
    signal: Arc<TailSignal>,
    /// Notifications before the oplog was looked at last.
    seen: u64,
}

/// The error of a stage that changes the token of an event.
fn token_changed(token: &Token, found: &Doc) -> Error {
    let shown = match found.get_raw("_id") {
        Some(id) => {
            let mut shown = DocBuf::new();
            shown.push_raw(&id);
            frond_bson::extjson::to_relaxed(&shown)
        }
        None => "{}".to_owned(),
    };
    command(
        ErrorCode::ChangeStreamFatalError,
        format!(
            "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying \
             the _id field of an event makes it impossible to resume the stream from that point. Only transformations that \
             retain the unmodified _id field are allowed. Expected: {{\"_id\": {token}}} but found: {shown}"
        ),
    )
}

fn wrong_fragments(what: &str) -> Error {
    command(ErrorCode::ChangeStreamFatalError, what)
}

impl ChangeStream {
    pub fn new(
        changes: Arc<Mutex<Changes>>,
        stages: Source<Error>,
        splits: bool,
        signal: Arc<TailSignal>,
    ) -> ChangeStream {
        ChangeStream {
            changes,
            stages,
            splits,
            fragments: VecDeque::new(),
            last_fragment: None,
            signal,
            seen: 0,
        }
    }

    /// Splits an event if it has to be. Fragments that the client has are left out.
    fn fragments_of(&mut self, event: DocBuf, token: &Token) -> Result<DocBuf> {
        let skipped = self.changes.lock().skipped_fragments.take();
        let skipped = skipped.filter(|(of, _)| of.is_same_event(token));
        let is_large = event.len_bytes() > EVENT_BYTES_MAX;
        if !is_large {
            return match skipped {
                None => Ok(event),
                Some(_) => Err(wrong_fragments(
                    "Attempted to resume from a split event fragment, but the event in the resumed stream was not large \
                     enough to be split",
                )),
            };
        }
        if !self.splits {
            return Err(too_large(event.len_bytes()));
        }
        let mut fragments = split(&event, token)?;
        if let Some((_, count)) = skipped {
            if count as usize > fragments.len() {
                return Err(wrong_fragments(
                    "Attempted to resume from a split event, but the resumed stream produced a different split. Ensure that \
                     the pipeline used to resume is the same as the original",
                ));
            }
            fragments.drain(..count as usize);
        }
        self.fragments = fragments;
        Ok(event)
    }

    fn next_fragment(&mut self) -> Option<DocBuf> {
        let (fragment, token) = self.fragments.pop_front()?;
        self.last_fragment = Some(token);
        Some(fragment)
    }
}

impl DocStream for ChangeStream {
    fn next(&mut self) -> Result<Option<DocBuf>> {
        loop {
            if let Some(fragment) = self.next_fragment() {
                return Ok(Some(fragment));
            }
            self.last_fragment = None;
            self.seen = self.signal.insertions();
            let Some(event) = self.stages.next()? else {
                return Ok(None);
            };
            // No stage holds events back, so this is the last one that was read.
            let Some(token) = self.changes.lock().last.clone() else {
                continue;
            };
            if event.get_doc("_id").map(Doc::as_bytes) != Some(token.to_doc().as_bytes()) {
                return Err(token_changed(&token, &event));
            }
            let is_split = event.len_bytes() > EVENT_BYTES_MAX;
            let event = self.fragments_of(event, &token)?;
            if !is_split {
                return Ok(Some(event));
            }
        }
    }

    fn set_context(&mut self, context: OpContext) {
        self.changes.lock().context = context;
    }

    fn held_bytes(&self) -> u64 {
        let fragments = self.fragments.iter();
        let fragments: usize = fragments.map(|(doc, _)| doc.len_bytes()).sum();
        self.changes.lock().held_bytes() + fragments as u64
    }

    fn retained_bytes(&self) -> u64 {
        self.changes.lock().retained_bytes()
    }

    fn release_memory(&mut self) -> Result<()> {
        self.rest()
    }

    fn rest(&mut self) -> Result<()> {
        self.changes.lock().rest()
    }

    fn stats(&self) -> ExecStats {
        ExecStats {
            docs_examined: self.changes.lock().examined,
            ..ExecStats::default()
        }
    }

    fn is_tailable(&self) -> bool {
        !self.changes.lock().is_invalidated
    }

    fn signal(&self) -> Option<(Arc<TailSignal>, u64)> {
        let has_more = self.changes.lock().was_stopped;
        (!has_more).then(|| (self.signal.clone(), self.seen))
    }

    fn resume_token(&self) -> Option<DocBuf> {
        let token = match &self.last_fragment {
            Some(fragment) => fragment.clone(),
            None => self.changes.lock().resume_token(),
        };
        Some(token.to_doc())
    }

    fn is_invalidated(&self) -> bool {
        self.changes.lock().is_invalidated
    }
}
