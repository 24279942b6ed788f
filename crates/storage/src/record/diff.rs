//! The changes of an update, as operations at paths.
//!
//! Both documents are parts of one shredded document, with the same parts left out. Their fields are compared in
//! order: a field that the new document lacks was removed, one that the old document lacks was appended. A field
//! that moved was removed and appended.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use frond_bson::{Doc, RawElement, tag};

use super::edit::Action;
use super::load::Parts;
use super::message::Operation;

/// One change: an operation in a container.
#[derive(Debug)]
pub struct Change<'d> {
    /// The container; 0 is the skeleton.
    pub container: u16,
    /// The operation, with its path from there on.
    pub operation: Operation<'d>,
    /// Whether the field was not read: then the value is added to the stored one.
    pub is_blind: bool,
    /// Whether it appends a field.
    pub appends: bool,
    /// By how many bytes the container grows.
    pub grown: i64,
}

/// The difference of two documents.
#[derive(Debug)]
pub enum Difference<'d> {
    /// These changes make one into the other.
    Changes(Vec<Change<'d>>),
    /// Containers are added or removed: the document has to be rewritten.
    Rewrite,
}

/// A difference that changes cannot express.
struct Rewrite;

pub fn diff<'d>(old: &'d Doc, new: &'d Doc, parts: &Parts, part_bytes: usize) -> Difference<'d> {
    let mut differ = Differ {
        parts,
        part_bytes,
        path: Vec::new(),
        container: 0,
        from: 0,
        changes: Vec::new(),
    };
    match parts.containers.get(&[][..]) {
        Some(&root) => differ.container = root,
        // A path does not distinguish two fields of the same name.
        None if old.has_duplicate_names() || new.has_duplicate_names() => {
            return Difference::Rewrite;
        }
        None => {}
    }
    match differ.level(old, new) {
        Ok(()) => Difference::Changes(differ.changes),
        Err(Rewrite) => Difference::Rewrite,
    }
}

struct Differ<'d, 'c> {
    parts: &'c Parts,
    part_bytes: usize,
    /// The path of the level.
    path: Vec<u8>,
    /// The container in which the level lies, and where the path inside of it begins.
    container: u16,
    from: usize,
    changes: Vec<Change<'d>>,
}

impl<'d> Differ<'d, '_> {
    /// Whether a container lies at the path, or below it.
    fn leads_to_container(&self) -> bool {
        self.parts.leads_to_container(&self.path)
    }

    fn push(&mut self, action: Action, value: Option<&RawElement<'d>>, appends: bool, grown: i64) {
        let path = self.path.get(self.from..).unwrap_or_default().to_vec();
        let is_blind = appends && self.parts.blind.contains(&self.path);
        let action = if is_blind { Action::Add } else { action };
        self.changes.push(Change {
            container: self.container,
            operation: Operation {
                action,
                path: Cow::Owned(path),
                ordinal: 0,
                tag: value.map_or(tag::NULL, RawElement::tag),
                value: Cow::Borrowed(value.map_or(&[], RawElement::value_bytes)),
            },
            is_blind,
            appends,
            grown,
        });
    }

    fn set(
        &mut self,
        action: Action,
        old: Option<&RawElement<'d>>,
        new: &RawElement<'d>,
    ) -> Result<(), Rewrite> {
        if new.value_bytes().len() >= self.part_bytes {
            return Err(Rewrite);
        }
        let before = old.map_or(0, |old| old.as_bytes().len() as i64);
        let grown = new.as_bytes().len() as i64 - before;
        self.push(action, Some(new), old.is_none(), grown);
        Ok(())
    }

    fn level(&mut self, old: &'d Doc, new: &'d Doc) -> Result<(), Rewrite> {
        if old == new {
            return Ok(());
        }
        let mut rest = new.iter_raw().peekable();
        let mut removed: Vec<RawElement<'d>> = Vec::new();
        for before in old.iter_raw() {
            match rest.next_if(|after| after.name_bytes() == before.name_bytes()) {
                Some(after) => self.field(&before, &after)?,
                None => removed.push(before),
            }
        }
        let appended: Vec<RawElement<'d>> = rest.collect();
        // Mostly nothing was removed, and these stay empty.
        let (mut gone, mut moved) = (HashMap::new(), HashSet::new());
        if !removed.is_empty() {
            gone.extend(removed.iter().map(|one| (one.name_bytes(), one)));
            moved.extend(appended.iter().map(RawElement::name_bytes));
        }
        for before in &removed {
            let depth = self.enter(before);
            if self.leads_to_container() {
                return Err(Rewrite);
            }
            if !moved.contains(before.name_bytes()) {
                let grown = -(before.as_bytes().len() as i64);
                self.push(Action::Remove, None, false, grown);
            }
            self.path.truncate(depth);
        }
        for after in &appended {
            let depth = self.enter(after);
            let before = gone.get(after.name_bytes()).copied();
            let action = match before {
                Some(_) => Action::Move,
                None => Action::Set,
            };
            self.set(action, before, after)?;
            self.path.truncate(depth);
        }
        Ok(())
    }

    /// Replaces a value that has a container of its own. The path is empty.
    fn replace_value(&mut self, id: u16, old: &RawElement<'d>, new: &RawElement<'d>) {
        let around = (self.container, self.from);
        (self.container, self.from) = (id, self.path.len());
        let grown = new.value_bytes().len() as i64 - old.value_bytes().len() as i64;
        self.push(Action::Set, Some(new), false, grown);
        (self.container, self.from) = around;
    }

    fn enter(&mut self, element: &RawElement<'_>) -> usize {
        let depth = self.path.len();
        self.path.extend_from_slice(element.name_bytes());
        self.path.push(0);
        depth
    }

    /// A field that is in both.
    fn field(&mut self, old: &RawElement<'d>, new: &RawElement<'d>) -> Result<(), Rewrite> {
        if old.as_bytes() == new.as_bytes() {
            return Ok(());
        }
        let depth = self.enter(old);
        let same_kind = old.tag() == new.tag() && matches!(old.tag(), tag::DOCUMENT | tag::ARRAY);
        let inner = |element: &RawElement<'d>| Doc::from_trusted(element.value_bytes());
        if let Some(&id) = self.parts.containers.get(&self.path) {
            if (old.tag() == tag::DOCUMENT) != (new.tag() == tag::DOCUMENT) {
                return Err(Rewrite);
            }
            if old.tag() != tag::DOCUMENT {
                self.replace_value(id, old, new);
                self.path.truncate(depth);
                return Ok(());
            }
            let around = (self.container, self.from);
            (self.container, self.from) = (id, self.path.len());
            self.level(inner(old), inner(new))?;
            (self.container, self.from) = around;
        } else if self.leads_to_container() {
            if !same_kind {
                return Err(Rewrite);
            }
            if inner(old).has_duplicate_names() || inner(new).has_duplicate_names() {
                return Err(Rewrite);
            }
            self.level(inner(old), inner(new))?;
        } else if same_kind
            && !inner(old).has_duplicate_names()
            && !inner(new).has_duplicate_names()
        {
            let count = self.changes.len();
            self.level(inner(old), inner(new))?;
            let parts = self.changes.get(count..).unwrap_or_default();
            let bytes: usize = parts.iter().map(|one| one.operation.bytes()).sum();
            if bytes > new.value_bytes().len() {
                self.changes.truncate(count);
                self.set(Action::Set, Some(old), new)?;
            }
        } else {
            self.set(Action::Set, Some(old), new)?;
        }
        self.path.truncate(depth);
        Ok(())
    }
}
