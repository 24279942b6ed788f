//! Running `$group`: states of groups in memory; documents that come when memory is full are sorted by
//! their groups on disk and added afterwards, in the order they came in.

use crate::aggregate::exec::{Deferred, DocSource, Docs, ExecContext, Fault, Source};
use crate::aggregate::groups::{Group, Groups, State};
use crate::expr::Context;
use crate::memory::{Fit, StageMemory};
use crate::spill::{Budget, Sorted};
use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) fn open<E: Fault>(
    stage: &Arc<Group>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let budget = context.budget("$group", context.limits.group);
    let now_ms = context.now_ms;
    Box::new(Deferred::new(input, move |mut input: Source<E>| {
        let mut groups = Groups::new(stage, budget, now_ms);
        input.group(&mut groups)?;
        drop(input);
        finish(groups)
    }))
}

/// The documents of the groups.
fn finish<E: Fault>(mut groups: Groups) -> Result<Source<E>, E> {
    let Some(later) = groups.later.take() else {
        let docs: Result<Vec<DocBuf>> = groups
            .states
            .into_iter()
            .map(|state| state.finish(&groups.stage))
            .collect();
        return Ok(Box::new(Docs::counted(docs?, groups.held)));
    };
    let mut states: Vec<Option<State>> = groups.states.into_iter().map(Some).collect();
    let begun = groups
        .by_key
        .into_iter()
        .filter_map(|(key, at)| Some((key, states.get_mut(at)?.take()?)))
        .collect();
    Ok(Box::new(Regrouped {
        stage: groups.stage,
        now_ms: groups.now_ms,
        budget: groups.budget,
        held: groups.held,
        begun: Begun::Looked(begun),
        later: later.finish()?,
        next: None,
    }))
}

/// Groups of which a part is in memory and a part on disk.
struct Regrouped {
    stage: Arc<Group>,
    now_ms: i64,
    budget: Budget,
    /// The groups in memory.
    held: StageMemory,
    begun: Begun,
    later: Sorted<DocBuf>,
    /// The first document of the next group.
    next: Option<(Vec<u8>, DocBuf)>,
}

/// Groups that were begun in memory.
enum Begun {
    /// They are looked for.
    Looked(HashMap<Vec<u8>, State>),
    /// Those for which nothing more came.
    Left(std::collections::hash_map::IntoValues<Vec<u8>, State>),
}

impl Regrouped {
    fn next_group(&mut self) -> Result<Option<State>> {
        if let Begun::Left(left) = &mut self.begun {
            return Ok(left.next());
        }
        let first = match self.next.take() {
            Some(first) => Some(first),
            None => self.later.next()?,
        };
        let Begun::Looked(begun) = &mut self.begun else {
            return Ok(None);
        };
        let Some((key, doc)) = first else {
            let left = std::mem::take(begun).into_values();
            if left.len() == 0 {
                self.held.clear();
            }
            self.begun = Begun::Left(left);
            return self.next_group();
        };
        let mut doc = doc;
        let mut state = match begun.remove(&key) {
            Some(state) => state,
            None => {
                let context = Context::new(&doc, self.now_ms);
                let id = self.stage.id.evaluate(&context)?;
                self.stage.begin(&id.or_null(), self.now_ms)?
            }
        };
        let mut held = self.budget.held();
        loop {
            let bytes = state.add(&self.stage, &Context::new(&doc, self.now_ms))?;
            if held.add(bytes) != Fit::Fits {
                return Err(Error::new(
                    ErrorCode::ExceededMemoryLimit,
                    format!(
                        "a group of $group used too much memory and cannot spill to disk. Memory \
                         limit: {} bytes",
                        self.budget.bytes_max
                    ),
                ));
            }
            match self.later.next()? {
                Some((same, next)) if same == key => doc = next,
                other => {
                    self.next = other;
                    return Ok(Some(state));
                }
            }
        }
    }
}

impl<E: Fault> DocSource<E> for Regrouped {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        match self.next_group()? {
            Some(state) => Ok(Some(state.finish(&self.stage)?)),
            None => Ok(None),
        }
    }
}
