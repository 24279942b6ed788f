//! The groups of a `$group` while documents are added: in one place, or in parts by several threads.

use crate::accumulators::{self, Accumulator, Plan};
use crate::display;
use crate::expr::{Context, Node};
use crate::memory::{Fit, StageMemory};
use crate::meta::{MetaFields, Metadata};
use crate::spill::{Budget, Sorter};
use frond_bson::{Collator, Doc, DocBuf, FieldFinder, OwnedValue, RawElement, Value};
use frond_error::Result;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// `{$group: {_id: <expression>, <field>: {<accumulator>: <argument>}, ..}}`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) id: Node,
    /// Fast paths for an `_id` and arguments that are plain fields or constants.
    simple: Simple,
    /// Ids that are equal so are one group.
    pub(super) collator: Collator,
    pub(crate) fields: Vec<(Box<str>, Plan)>,
    /// Whether all fields count documents: `{$sum: 1}` or `{$count: {}}`.
    counts: bool,
}

impl Group {
    pub(super) fn new(
        id: Node,
        collator: Collator,
        fields: Vec<(Box<str>, Plan)>,
        counts: bool,
    ) -> Group {
        Group {
            simple: Simple::new(&id, &fields),
            id,
            collator,
            fields,
            counts,
        }
    }

    /// The `_id`, if all documents are one group and are only counted.
    pub(crate) fn counted_id(&self) -> Option<&OwnedValue> {
        match &self.id {
            Node::Constant(id) if self.counts => Some(id),
            _ => None,
        }
    }

    /// The metadata that the stage reads.
    pub(crate) fn meta(&self) -> MetaFields {
        let fields = self.fields.iter().map(|(_, plan)| plan.input.meta());
        fields.fold(self.id.meta(), |found, one| found | one)
    }

    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        self.id.fields(&mut |path| found(path.dotted()));
        for (_, plan) in &self.fields {
            plan.input.fields(&mut |path| found(path.dotted()));
            if let accumulators::Start::Sorted(_) = plan.start {
                // The sort order reads fields too; all may be needed.
                found(String::new());
            }
        }
    }
}

/// The source of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Input {
    Constant,
    /// The field with this number of [`Simple::names`].
    Field(usize),
    /// An expression, which is evaluated.
    Computed,
}

/// The `_id` and the arguments, as far as they are top-level fields and constants.
#[derive(Debug, Default)]
struct Simple {
    names: Vec<Box<str>>,
    id: Option<Input>,
    arguments: Vec<Input>,
}

impl Simple {
    fn new(id: &Node, fields: &[(Box<str>, Plan)]) -> Simple {
        let mut simple = Simple::default();
        simple.id = Some(simple.input(id));
        simple.arguments = fields
            .iter()
            .map(|(_, plan)| simple.input(&plan.input))
            .collect();
        simple
    }

    /// The field that is the `_id`, if it was found or is missing; nothing for a constant. `None` for other expressions.
    #[inline]
    fn key<'f, 'd>(
        &self,
        found: &'f [Option<RawElement<'d>>],
    ) -> Option<Option<&'f RawElement<'d>>> {
        match self.id {
            Some(Input::Field(slot)) => found.get(slot).map(Option::as_ref),
            Some(Input::Constant) => Some(None),
            _ => None,
        }
    }

    fn input(&mut self, node: &Node) -> Input {
        match node {
            Node::Constant(_) => Input::Constant,
            Node::Root(path) => match &*path.0 {
                [name] => {
                    let known = self.names.iter().position(|known| known == name);
                    Input::Field(known.unwrap_or_else(|| {
                        self.names.push(name.clone());
                        self.names.len() - 1
                    }))
                }
                _ => Input::Computed,
            },
            _ => Input::Computed,
        }
    }
}

/// Bytes beside its values that one group takes, and one accumulator.
const GROUP_BYTES: usize = 96;
const ACCUMULATOR_BYTES: usize = 96;
/// Bytes beside the value of a known `_id`.
const KNOWN_BYTES: usize = 48;

/// A part of the budget, for documents that are sorted while groups fill the rest.
const SORTER_SHARE: usize = 4;
/// A part of the budget, for the groups that one thread has found.
const PART_SHARE: usize = 8;

/// The states of one group's accumulators.
pub(crate) struct State {
    id: OwnedValue,
    accumulators: Vec<Box<dyn Accumulator>>,
}

/// The groups of a `$group`.
pub struct Groups {
    pub(super) stage: Arc<Group>,
    pub(super) budget: Budget,
    pub(super) now_ms: i64,
    pub(super) held: StageMemory,
    /// The place in `states` by the key of `_id`: equal numbers of different types are one group.
    pub(super) by_key: HashMap<Vec<u8>, usize>,
    /// The same by the bytes of the field that is the `_id`: equal bytes are one group, too. Not all are here.
    known: Known,
    /// In the order of their first documents.
    pub(super) states: Vec<State>,
    /// Documents that came when the budget was used up, by their groups.
    pub(super) later: Option<Sorter<DocBuf>>,
    scratch: Vec<u8>,
    finder: FieldFinder,
}

/// Makes empty groups of the same kind, for documents that another thread adds.
pub struct GroupParts {
    stage: Arc<Group>,
    budget: Budget,
    now_ms: i64,
}

impl GroupParts {
    pub fn begin(&self) -> Groups {
        Groups::new(self.stage.clone(), self.budget.clone(), self.now_ms)
    }
}

/// The most fields that are found without evaluating an expression.
const FIELDS_MAX: usize = 8;

impl Groups {
    pub(crate) fn new(stage: Arc<Group>, budget: Budget, now_ms: i64) -> Groups {
        Groups {
            finder: FieldFinder::new(stage.simple.names.clone()),
            stage,
            held: budget.held(),
            budget,
            now_ms,
            by_key: HashMap::new(),
            known: Known::default(),
            states: Vec::new(),
            later: None,
            scratch: Vec::new(),
        }
    }

    /// Builds parts of these groups on other threads. `None` if an accumulator needs all documents in their order.
    pub fn parts(&self) -> Option<GroupParts> {
        let mut fields = self.stage.fields.iter();
        let can_merge = fields.all(|(_, plan)| plan.start.can_merge());
        (can_merge && self.stage.meta().is_empty()).then(|| GroupParts {
            stage: self.stage.clone(),
            budget: Budget {
                bytes_max: self.budget.bytes_max / PART_SHARE,
                ..self.budget.clone()
            },
            now_ms: self.now_ms,
        })
    }

    /// Whether all documents so far are in memory.
    pub fn has_room(&self) -> bool {
        self.later.is_none()
    }

    /// Adds a document.
    ///
    /// # Errors
    /// Those of the expressions; 292 and 146 if there is not enough memory.
    #[inline]
    pub fn add(&mut self, doc: &Doc, meta: Option<&Metadata>) -> Result<()> {
        match self.add_counted(doc, meta)? {
            Fit::Fits => Ok(()),
            fit => self.begin_later(fit),
        }
    }

    /// Adds a document to a part. False if there should be no more in it.
    ///
    /// # Errors
    /// Those of the expressions.
    #[inline]
    pub fn add_while_room(&mut self, doc: &Doc, meta: Option<&Metadata>) -> Result<bool> {
        Ok(self.add_counted(doc, meta)? == Fit::Fits)
    }

    fn add_counted(&mut self, doc: &Doc, meta: Option<&Metadata>) -> Result<Fit> {
        let stage = &*self.stage;
        let simple = &stage.simple;
        if simple.names.len() > FIELDS_MAX || self.later.is_some() {
            return self.add_computed(doc, &[], meta);
        }
        let mut found = [None; FIELDS_MAX];
        let found = &mut found[..simple.names.len()];
        self.finder.find(doc, found);
        let Some(at) = (simple.key(found)).and_then(|key| self.known.get(key)) else {
            return self.add_computed(doc, found, meta);
        };
        let context = Context::new(doc, self.now_ms).with_meta(meta);
        let bytes = match self.states.get_mut(at) {
            Some(state) => state.add_found(stage, &context, found)?,
            None => 0,
        };
        Ok(match bytes {
            0 => Fit::Fits,
            bytes => self.held.add(bytes),
        })
    }

    /// Adds a document whose `_id` is not known. The fields may have been found.
    fn add_computed(
        &mut self,
        doc: &Doc,
        found: &[Option<RawElement<'_>>],
        meta: Option<&Metadata>,
    ) -> Result<Fit> {
        let stage = &*self.stage;
        let context = Context::new(doc, self.now_ms).with_meta(meta);
        let id = stage.id.evaluate(&context)?;
        let id = id.or_null();
        self.scratch.clear();
        stage.collator.encode(&id, &mut self.scratch);
        if let Some(later) = &mut self.later {
            later.push(self.scratch.clone(), doc.to_owned())?;
            return Ok(Fit::Fits);
        }
        let mut bytes = 0;
        let at = match self.by_key.get(&self.scratch) {
            Some(at) => *at,
            None => {
                let state = stage.begin(&id, self.now_ms)?;
                bytes += self.scratch.len() + state.bytes();
                self.by_key.insert(self.scratch.clone(), self.states.len());
                self.states.push(state);
                self.states.len() - 1
            }
        };
        // Most groups have one value in bytes; of those with many the first ones are enough.
        if self.known.len() < 2 * self.states.len() + FIELDS_MAX
            && let Some(key) = stage.simple.key(found)
        {
            bytes += self.known.insert(key, at);
        }
        if let Some(state) = self.states.get_mut(at) {
            bytes += state.add(stage, &context)?;
        }
        Ok(self.held.add(bytes))
    }

    /// From here on documents are sorted by their groups.
    #[cold]
    fn begin_later(&mut self, fit: Fit) -> Result<()> {
        // Spilled documents lose their metadata.
        if self.budget.space.is_none() || !self.stage.meta().is_empty() {
            return Err(self.budget.refused(fit));
        }
        if self.later.is_none() {
            let budget = Budget {
                bytes_max: self.budget.bytes_max / SORTER_SHARE,
                ..self.budget.clone()
            };
            self.later = Some(Sorter::new(budget, None));
        }
        Ok(())
    }

    /// Adds the groups of a part, which is empty afterwards. Its documents come behind all that were added so far. Only while
    /// there is room ([`Groups::has_room`]).
    ///
    /// # Errors
    /// 292 and 146 if there is not enough memory.
    pub fn absorb(&mut self, part: &mut Groups) -> Result<()> {
        let mut keys: Vec<(Vec<u8>, usize)> = part.by_key.drain().collect();
        keys.sort_unstable_by_key(|(_, at)| *at);
        part.known.clear();
        let mut bytes = 0;
        for ((key, _), state) in keys.into_iter().zip(part.states.drain(..)) {
            match self
                .by_key
                .get(&key)
                .and_then(|at| self.states.get_mut(*at))
            {
                Some(own) => {
                    for (own, other) in own.accumulators.iter_mut().zip(state.accumulators) {
                        bytes += own.merge(other)?;
                    }
                }
                None => {
                    bytes += key.len() + state.bytes();
                    self.by_key.insert(key, self.states.len());
                    self.states.push(state);
                }
            }
        }
        part.held.clear();
        match self.held.add(bytes) {
            Fit::Fits => Ok(()),
            fit => self.begin_later(fit),
        }
    }
}

/// The places of groups by the bytes of a field.
#[derive(Default)]
struct Known {
    /// Values of up to eight bytes: these, the type and the length.
    short: HashMap<(u64, u64), usize, FoldedState>,
    /// Others: the type, and the value.
    long: HashMap<Box<[u8]>, usize, FoldedState>,
    /// The place of the group of a missing value, or of the only one.
    missing: Option<usize>,
}

impl Known {
    #[inline]
    fn short_key(element: &RawElement<'_>) -> Option<(u64, u64)> {
        let value = element.value_bytes();
        if value.len() > 8 {
            return None;
        }
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(value) {
            *to = *from;
        }
        let kind = u64::from(element.tag()) << 8 | value.len() as u64;
        Some((u64::from_le_bytes(word), kind))
    }

    #[inline]
    fn get(&self, key: Option<&RawElement<'_>>) -> Option<usize> {
        let Some(element) = key else {
            return self.missing;
        };
        match Known::short_key(element) {
            Some(key) => self.short.get(&key).copied(),
            // The name is always the same.
            None => self.long.get(element.as_bytes()).copied(),
        }
    }

    /// Adds a value. Returns by how many bytes this grew.
    fn insert(&mut self, key: Option<&RawElement<'_>>, at: usize) -> usize {
        let Some(element) = key else {
            self.missing = Some(at);
            return 0;
        };
        match Known::short_key(element) {
            Some(key) => {
                self.short.insert(key, at);
                KNOWN_BYTES
            }
            None => {
                self.long.insert(element.as_bytes().into(), at);
                element.as_bytes().len() + KNOWN_BYTES
            }
        }
    }

    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    fn clear(&mut self) {
        *self = Known::default();
    }
}

/// A hash table's secret numbers.
#[derive(Clone, Debug)]
struct FoldedState(u64, u64);

impl Default for FoldedState {
    fn default() -> FoldedState {
        let random = RandomState::new();
        FoldedState(random.hash_one(1u8), random.hash_one(2u8) | 1)
    }
}

/// Hashes bytes by folded products, as wyhash does (Wang Yi). The random seed prevents a client from choosing values
/// that collide.
struct Folded {
    hash: u64,
    secret: u64,
}

impl BuildHasher for FoldedState {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            hash: self.0,
            secret: self.1,
        }
    }
}

impl Folded {
    #[inline]
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word) * u128::from(self.secret);
        self.hash = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(rest) {
                *to = *from;
            }
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64 ^ 0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.hash) * u128::from(self.secret);
        (product as u64) ^ (product >> 64) as u64
    }
}

impl Group {
    /// The states of a new group.
    pub(crate) fn begin(&self, id: &Value<'_>, now_ms: i64) -> Result<State> {
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
    pub(crate) fn add(&mut self, stage: &Group, context: &Context<'_>) -> Result<usize> {
        let mut bytes = 0;
        for ((_, plan), state) in stage.fields.iter().zip(&mut self.accumulators) {
            if state.wants_more() {
                let value = plan.input.evaluate(context)?;
                bytes += state.add(&value, context)?;
            }
        }
        Ok(bytes)
    }

    /// As [`State::add`], if the arguments that are fields were found.
    #[inline]
    fn add_found(
        &mut self,
        stage: &Group,
        context: &Context<'_>,
        found: &[Option<RawElement<'_>>],
    ) -> Result<usize> {
        let mut bytes = 0;
        let plans = stage.fields.iter().zip(&stage.simple.arguments);
        for (((_, plan), input), state) in plans.zip(&mut self.accumulators) {
            if !state.wants_more() {
                continue;
            }
            let value = match input {
                Input::Field(slot) => {
                    let element = found.get(*slot).copied().flatten();
                    element.and_then(|element| element.value()).into()
                }
                _ => plan.input.evaluate(context)?,
            };
            bytes += state.add(&value, context)?;
        }
        Ok(bytes)
    }

    /// The same states as those of another group.
    pub(crate) fn with_id(self, id: OwnedValue) -> State {
        State { id, ..self }
    }

    /// The document of the group.
    pub(crate) fn finish(self, stage: &Group) -> Result<DocBuf> {
        let mut doc = DocBuf::new();
        doc.push("_id", &self.id);
        for ((name, _), state) in stage.fields.iter().zip(self.accumulators) {
            if let Some(value) = state.result()? {
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
