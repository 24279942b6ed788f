//! Running `$group`: states of groups in memory; documents that come when memory is full are sorted by
//! their groups on disk and added afterwards, in the order they came in.

use super::group::Group;
use crate::accumulators::Accumulator;
use crate::aggregate::exec::{Deferred, DocSource, Docs, ExecContext, Fault, Source};
use crate::display;
use crate::expr::Context;
use crate::memory::{Fit, Held};
use crate::meta::Metadata;
use crate::spill::{Budget, Sorted, Sorter};
use frond_bson::{Doc, DocBuf, OwnedValue, Value};
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
        while let Some(doc) = input.next()? {
            groups.add(doc, input.meta())?;
        }
        drop(input);
        groups.finish()
    }))
}

/// Bytes beside its values that one group takes, and one accumulator.
const GROUP_BYTES: usize = 96;
const ACCUMULATOR_BYTES: usize = 96;

/// A part of the budget, for documents that are sorted while groups fill the rest.
const SORTER_SHARE: usize = 4;

/// The states of one group's accumulators.
pub(super) struct State {
    id: OwnedValue,
    accumulators: Vec<Box<dyn Accumulator>>,
}

struct Groups {
    stage: Arc<Group>,
    budget: Budget,
    now_ms: i64,
    held: Held,
    /// The place in `states` by the key of `_id`: equal numbers of different types are one group.
    by_key: HashMap<Vec<u8>, usize>,
    /// In the order of their first documents.
    states: Vec<State>,
    /// Documents that came when the budget was used up, by their groups.
    later: Option<Sorter<DocBuf>>,
    scratch: Vec<u8>,
}

impl Groups {
    fn new(stage: Arc<Group>, budget: Budget, now_ms: i64) -> Groups {
        Groups {
            stage,
            held: budget.held(),
            budget,
            now_ms,
            by_key: HashMap::new(),
            states: Vec::new(),
            later: None,
            scratch: Vec::new(),
        }
    }

    fn add(&mut self, doc: DocBuf, meta: Option<&Metadata>) -> Result<()> {
        let context = Context::new(&doc, self.now_ms).with_meta(meta);
        let id = self.stage.id.eval(&context)?;
        let id = id.or_null();
        self.scratch.clear();
        self.stage.collator.encode(&id, &mut self.scratch);
        if let Some(later) = &mut self.later {
            return later.push(self.scratch.clone(), doc);
        }
        let mut bytes = 0;
        let at = match self.by_key.get(&self.scratch) {
            Some(at) => *at,
            None => {
                let state = self.stage.begin(&id, self.now_ms)?;
                bytes += self.scratch.len() + state.bytes();
                self.by_key.insert(self.scratch.clone(), self.states.len());
                self.states.push(state);
                self.states.len() - 1
            }
        };
        if let Some(state) = self.states.get_mut(at) {
            bytes += state.add(&self.stage, &context)?;
        }
        let fit = self.held.add(bytes);
        if fit != Fit::Fits {
            // What goes to disk loses its metadata.
            if self.budget.space.is_none() || !self.stage.meta().is_empty() {
                return Err(self.budget.refused(fit));
            }
            let budget = Budget {
                bytes_max: self.budget.bytes_max / SORTER_SHARE,
                ..self.budget.clone()
            };
            self.later = Some(Sorter::new(budget, None));
        }
        Ok(())
    }

    fn finish<E: Fault>(mut self) -> Result<Source<E>, E> {
        let Some(later) = self.later.take() else {
            let docs: Result<Vec<DocBuf>> = self
                .states
                .into_iter()
                .map(|state| state.finish(&self.stage))
                .collect();
            return Ok(Box::new(Docs::counted(docs?, self.held)));
        };
        let mut states: Vec<Option<State>> = self.states.into_iter().map(Some).collect();
        let begun = self
            .by_key
            .into_iter()
            .filter_map(|(key, at)| Some((key, states.get_mut(at)?.take()?)))
            .collect();
        Ok(Box::new(Regrouped {
            stage: self.stage,
            now_ms: self.now_ms,
            budget: self.budget,
            held: self.held,
            begun: Begun::Looked(begun),
            later: later.finish()?,
            next: None,
        }))
    }
}

/// Groups of which a part is in memory and a part on disk.
struct Regrouped {
    stage: Arc<Group>,
    now_ms: i64,
    budget: Budget,
    /// The groups in memory.
    held: Held,
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
                let id = self.stage.id.eval(&context)?;
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

impl Group {
    /// The states of a new group.
    pub(super) fn begin(&self, id: &Value<'_>, now_ms: i64) -> Result<State> {
        super::add_fields::check_depth(id)?;
        let group = match id {
            Value::Document(doc) => doc,
            _ => Doc::empty(),
        };
        let fields = self.fields.iter();
        let accumulators: Result<Vec<_>> = fields
            .map(|(_, plan)| plan.start.begin(group, now_ms))
            .collect();
        Ok(State {
            id: id.to_owned(),
            accumulators: accumulators?,
        })
    }
}

impl State {
    /// About what a new group takes.
    fn bytes(&self) -> usize {
        GROUP_BYTES + self.id.as_value().len_bytes() + ACCUMULATOR_BYTES * self.accumulators.len()
    }

    /// Adds a document. Returns by how many bytes the group grew.
    pub(super) fn add(&mut self, stage: &Group, context: &Context<'_>) -> Result<usize> {
        let mut bytes = 0;
        for ((_, plan), state) in stage.fields.iter().zip(&mut self.accumulators) {
            if state.wants_more() {
                let value = plan.input.eval(context)?;
                bytes += state.add(&value, context)?;
            }
        }
        Ok(bytes)
    }

    /// The same states as those of another group.
    pub(super) fn with_id(self, id: OwnedValue) -> State {
        State { id, ..self }
    }

    /// The document of the group.
    pub(super) fn finish(self, stage: &Group) -> Result<DocBuf> {
        let mut doc = DocBuf::new();
        doc.push("_id", &self.id);
        for ((name, _), state) in stage.fields.iter().zip(self.accumulators) {
            if let Some(value) = state.result() {
                super::add_fields::check_depth(&value.as_value()).map_err(|error| {
                    error.context(format!(
                        "$group: {}",
                        display::element("field", &Value::String(name))
                    ))
                })?;
                doc.push(name, &value);
            }
        }
        Ok(doc)
    }
}
