//! Sets of fields: which parts of a document an operation requires.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit;

/// A set of fields, as a tree of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Everything at this path and below.
    all: bool,
    /// These fields, and the presence of a document around them.
    fields: BTreeMap<Box<[u8]>, FieldSet>,
}

pub static NOTHING: FieldSet = FieldSet {
    all: false,
    fields: BTreeMap::new(),
};

pub static EVERYTHING: FieldSet = FieldSet {
    all: true,
    fields: BTreeMap::new(),
};

impl FieldSet {
    /// The parts at these dotted paths.
    pub fn paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> FieldSet {
        let mut want = FieldSet::default();
        for path in paths {
            want.add(path);
        }
        want
    }

    /// Adds the part at a dotted path.
    pub fn add(&mut self, path: &str) {
        self.at(path.split('.').map(str::as_bytes)).all = true;
    }

    /// Adds the presence of a document at a path, see [`edit`], without any of its fields.
    pub fn add_presence(&mut self, mut path: &[u8]) {
        self.at(std::iter::from_fn(|| {
            let (name, rest) = edit::split_path(path)?;
            path = rest;
            Some(name)
        }));
    }

    fn at<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) -> &mut FieldSet {
        let mut here = self;
        for name in names {
            here = here.fields.entry(name.into()).or_default();
        }
        here
    }

    /// Whether the whole document is required.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The required part of a field; `None` if not even its presence is required.
    pub fn field(&self, name: &[u8]) -> Option<&FieldSet> {
        if self.all {
            return Some(self);
        }
        self.fields.get(name)
    }

    /// Whether the set has the field at a path, or part of it, or a document around it.
    pub fn meets(&self, mut path: &[u8]) -> bool {
        let mut here = self;
        while !here.all {
            let Some((name, rest)) = edit::split_path(path) else {
                return true;
            };
            match here.field(name) {
                Some(want) => here = want,
                None => return false,
            }
            path = rest;
        }
        true
    }

    /// The required top-level names, unless the whole document is required.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.keys().map(|name| &**name)
    }
}

/// An integer that an update adds to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Increment {
    /// The dotted path of the field.
    pub dotted: String,
    /// The same path, see [`edit`].
    pub path: Vec<u8>,
    /// The offset of its last name.
    pub name_at: usize,
    /// The integer without its sign.
    pub magnitude: u64,
}

impl Increment {
    /// An addition at a dotted path.
    pub fn new(dotted: &str, integer: i64) -> Increment {
        let mut path = Vec::with_capacity(dotted.len() + 1);
        let mut name_at = 0;
        for name in dotted.split('.') {
            name_at = path.len();
            path.extend_from_slice(name.as_bytes());
            path.push(0);
        }
        Increment {
            dotted: dotted.to_owned(),
            path,
            name_at,
            magnitude: integer.unsigned_abs(),
        }
    }

    /// The path of the document around the field.
    pub fn parent(&self) -> &[u8] {
        self.path.get(..self.name_at).unwrap_or_default()
    }
}

/// The fields that an operation requires of each document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeFields {
    /// The fields, without those that `increments` add to.
    pub want: FieldSet,
    /// Additions that may be possible without reading the field.
    pub increments: Vec<Increment>,
    /// The fields if all additions are blind, and the paths of the additions.
    blind: (FieldSet, Arc<BTreeSet<Vec<u8>>>),
}

impl ChangeFields {
    /// These fields, and those that these additions may require.
    pub fn new(want: FieldSet, increments: Vec<Increment>) -> ChangeFields {
        let mut blind = want.clone();
        for one in &increments {
            blind.add_presence(one.parent());
        }
        let paths = increments.iter().map(|one| one.path.clone()).collect();
        ChangeFields {
            want,
            increments,
            blind: (blind, Arc::new(paths)),
        }
    }

    pub fn everything() -> ChangeFields {
        ChangeFields::parts(EVERYTHING.clone())
    }

    pub fn parts(want: FieldSet) -> ChangeFields {
        ChangeFields::new(want, Vec::new())
    }

    /// The fields if the additions that `is_blind` accepts are made without reading, and the paths of these.
    pub fn split<'w>(
        &'w self,
        is_blind: impl FnMut(&'w Increment) -> bool,
    ) -> (Cow<'w, FieldSet>, Arc<BTreeSet<Vec<u8>>>) {
        let blind: Vec<bool> = self.increments.iter().map(is_blind).collect();
        if blind.iter().all(|blind| *blind) {
            return (Cow::Borrowed(&self.blind.0), self.blind.1.clone());
        }
        let (mut want, mut paths) = (self.want.clone(), BTreeSet::new());
        for (one, blind) in self.increments.iter().zip(blind) {
            if blind {
                want.add_presence(one.parent());
                paths.insert(one.path.clone());
            } else {
                want.add(&one.dotted);
            }
        }
        (Cow::Owned(want), Arc::new(paths))
    }
}
