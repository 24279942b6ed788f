//! Differences of documents in MongoDB's format for updates, `$v: 2`.
//!
//! | section | of a document |
//! | --- | --- |
//! | `d` | names of fields that are removed |
//! | `u` | fields with a new value, at their place |
//! | `i` | fields that are appended; one of this name that was there is removed |
//! | `s<field>` | the difference of a sub-document or an array |
//!
//! | section | of an array |
//! | --- | --- |
//! | `a` | `true`: it is the difference of an array |
//! | `l` | the new length of an array that becomes shorter |
//! | `u<index>` | the new value of an element |
//! | `s<index>` | the difference of an element |
//!
//! A difference cannot say which of two fields of the same name it means: a document that has such fields at its first level
//! has none, and below the first level such a value is replaced.

use std::collections::{BTreeMap, HashSet};

use frond_bson::{Doc, DocBuf, MAX_DOCUMENT_BYTES, RawElement, Value, tag};

use crate::error::{Result, corrupt};

/// The paths that the operators of an update set. A value at such a path is not compared further: the difference has it
/// whole, as in MongoDB, unless the operator appended elements to an array.
#[derive(Debug, Default)]
pub struct SetPaths {
    is_end: bool,
    /// Whether the operator adds elements to an array.
    appends: bool,
    names: BTreeMap<Box<str>, SetPaths>,
    /// Behind a positional component: every element of an array.
    elements: Option<Box<SetPaths>>,
}

impl SetPaths {
    /// From dotted paths, in which `$`, `$[]` and `$[name]` stand for elements of arrays, each with whether its operator adds
    /// elements to an array.
    pub fn new<'a>(paths: impl IntoIterator<Item = (&'a str, bool)>) -> SetPaths {
        let mut root = SetPaths::default();
        for (path, appends) in paths {
            let mut here = &mut root;
            for name in path.split('.') {
                let is_positional = name == "$" || (name.starts_with("$[") && name.ends_with(']'));
                here = if is_positional {
                    here.elements.get_or_insert_default()
                } else {
                    here.names.entry(name.into()).or_default()
                };
            }
            here.is_end = true;
            here.appends = appends;
        }
        root
    }

    fn child(&self, name: &[u8]) -> Option<&SetPaths> {
        let name = std::str::from_utf8(name).ok()?;
        self.names.get(name).or(self.elements.as_deref())
    }
}

/// Whether all of the value at a path was read, of a document of which parts were read. The path is the names of its fields,
/// each followed by a zero byte.
pub type IsWhole<'a> = &'a dyn Fn(&[u8]) -> bool;

/// The difference of two documents; `None` if it is not smaller than the second one, or cannot be expressed.
pub fn diff(old: &Doc, new: &Doc) -> Option<DocBuf> {
    let mut differ = Differ {
        is_whole: None,
        path: Vec::new(),
    };
    let diff = differ.root(old, new, None)?;
    (diff.len_bytes() < new.len_bytes()).then_some(diff)
}

/// The difference that the operators of an update made, whatever its size. The documents may be parts of large ones, with the
/// same parts left out. `None` if it cannot be expressed.
pub fn diff_of_operators(
    old: &Doc,
    new: &Doc,
    set: &SetPaths,
    is_whole: Option<IsWhole<'_>>,
) -> Option<DocBuf> {
    let mut differ = Differ {
        is_whole,
        path: Vec::new(),
    };
    differ.root(old, new, Some(set))
}

/// As [`diff`], of documents that are parts of large ones, whatever its size.
pub fn diff_of_parts(old: &Doc, new: &Doc, is_whole: IsWhole<'_>) -> Option<DocBuf> {
    let mut differ = Differ {
        is_whole: Some(is_whole),
        path: Vec::new(),
    };
    differ.root(old, new, None)
}

struct Differ<'w> {
    is_whole: Option<IsWhole<'w>>,
    /// The path of the level, of parts only.
    path: Vec<u8>,
}

/// The sections of the difference of a document.
#[derive(Default)]
struct Sections {
    deleted: Option<DocBuf>,
    updated: Option<DocBuf>,
    inserted: Option<DocBuf>,
    inner: Option<DocBuf>,
}

impl Sections {
    fn update(&mut self, element: &RawElement<'_>) {
        self.updated.get_or_insert_default().push_raw(element);
    }

    fn finish(self) -> DocBuf {
        let sections = [
            ("d", self.deleted),
            ("u", self.updated),
            ("i", self.inserted),
        ];
        let bytes = sections.iter().flat_map(|(_, section)| section);
        let bytes: usize = bytes.map(|section| section.len_bytes() + 8).sum();
        let mut out = DocBuf::with_capacity(bytes + 8);
        for (name, section) in &sections {
            if let Some(section) = section {
                out.push(name, &**section);
            }
        }
        if let Some(inner) = &self.inner {
            out.push_all(inner);
        }
        out
    }
}

/// A difference of two values.
enum Inner {
    /// `s`
    Diff(DocBuf),
    /// `u`
    Value,
}

impl Differ<'_> {
    fn root(&mut self, old: &Doc, new: &Doc, set: Option<&SetPaths>) -> Option<DocBuf> {
        if old.has_duplicate_names() || new.has_duplicate_names() {
            None
        } else {
            self.document(old, new, set)
        }
    }

    /// Neither has two fields of the same name. `None` if the difference cannot be expressed.
    fn document(&mut self, old: &Doc, new: &Doc, set: Option<&SetPaths>) -> Option<DocBuf> {
        let mut sections = Sections::default();
        let mut rest = new.iter_raw().peekable();
        let mut removed: Vec<RawElement<'_>> = Vec::new();
        for before in old.iter_raw() {
            let Some(after) = rest.next_if(|after| after.name_bytes() == before.name_bytes())
            else {
                removed.push(before);
                continue;
            };
            if after.as_bytes() == before.as_bytes() {
                continue;
            }
            match self.value(&before, &after, set)? {
                Inner::Value => sections.update(&after),
                Inner::Diff(diff) => {
                    let inner = sections.inner.get_or_insert_default();
                    inner.push(&format!("s{}", after.name()), &*diff);
                }
            }
        }
        let gone: HashSet<&[u8]> = removed.iter().map(RawElement::name_bytes).collect();
        let mut moved = HashSet::new();
        for after in rest {
            if gone.contains(after.name_bytes()) {
                // Of a part a field cannot be moved without the rest of it.
                self.check_whole(after.name_bytes())?;
                moved.insert(after.name_bytes());
            }
            let inserted = sections.inserted.get_or_insert_default();
            inserted.push_raw(&after);
        }
        for before in &removed {
            if !moved.contains(before.name_bytes()) {
                let deleted = sections.deleted.get_or_insert_default();
                deleted.push(before.name(), false);
            }
        }
        Some(sections.finish())
    }

    fn enter(&mut self, name: &[u8]) -> usize {
        let depth = self.path.len();
        if self.is_whole.is_some() {
            self.path.extend_from_slice(name);
            self.path.push(0);
        }
        depth
    }

    /// `None` if not all of the field was read.
    fn check_whole(&mut self, name: &[u8]) -> Option<()> {
        let depth = self.enter(name);
        let is_whole = self.is_whole.is_none_or(|is_whole| is_whole(&self.path));
        self.path.truncate(depth);
        is_whole.then_some(())
    }

    /// Compares two values of a field or of an element, which differ.
    fn value(
        &mut self,
        old: &RawElement<'_>,
        new: &RawElement<'_>,
        set: Option<&SetPaths>,
    ) -> Option<Inner> {
        let depth = self.enter(new.name_bytes());
        let inner = self.value_here(old, new, set.map(|set| set.child(new.name_bytes())));
        self.path.truncate(depth);
        inner
    }

    /// `set` are the paths that the operators set from here on, if the update has operators.
    fn value_here(
        &mut self,
        old: &RawElement<'_>,
        new: &RawElement<'_>,
        set: Option<Option<&SetPaths>>,
    ) -> Option<Inner> {
        let is_whole = self.is_whole.is_none_or(|is_whole| is_whole(&self.path));
        let whole = || is_whole.then_some(Inner::Value);
        if old.tag() != new.tag() || !matches!(new.tag(), tag::DOCUMENT | tag::ARRAY) {
            return whole();
        }
        let before = Doc::from_trusted(old.value_bytes());
        let after = Doc::from_trusted(new.value_bytes());
        let is_array = new.tag() == tag::ARRAY;
        let end = set.flatten().filter(|set| set.is_end);
        let appended = end.is_some_and(|end| end.appends) && is_array && appends(before, after);
        // A value of which a part was read is compared in any case.
        if end.is_some() && is_whole && !appended {
            return whole();
        }
        let set = set.flatten().filter(|set| !set.is_end);
        let diff = if is_array {
            if !has_index_names(before) || !has_index_names(after) {
                return whole();
            }
            self.array(before, after, set)?
        } else {
            if before.has_duplicate_names() || after.has_duplicate_names() {
                return whole();
            }
            self.document(before, after, set)?
        };
        // With operators the fields are those that they name.
        if set.is_none() && !appended && is_whole && diff.len_bytes() >= after.len_bytes() {
            return whole();
        }
        Some(Inner::Diff(diff))
    }

    fn array(&mut self, old: &Doc, new: &Doc, set: Option<&SetPaths>) -> Option<DocBuf> {
        let mut out = DocBuf::new();
        out.push("a", true);
        let (mut before, mut after) = (old.iter_raw(), new.iter_raw());
        let mut elements = DocBuf::new();
        let mut length = 0;
        let is_shorter = loop {
            let Some(new) = after.next() else {
                break before.next().is_some();
            };
            length += 1;
            let inner = match before.next() {
                Some(old) if old.as_bytes() == new.as_bytes() => continue,
                Some(old) => self.value(&old, &new, set)?,
                None => Inner::Value,
            };
            match inner {
                Inner::Value => elements.push_raw_as(&format!("u{}", new.name()), &new),
                Inner::Diff(diff) => elements.push(&format!("s{}", new.name()), &*diff),
            }
        };
        if is_shorter {
            out.push("l", length);
        }
        out.push_all(&elements);
        Some(out)
    }
}

/// Whether an array is another one with further elements.
fn appends(old: &Doc, new: &Doc) -> bool {
    new.elements_bytes().starts_with(old.elements_bytes())
}

/// Whether the elements of an array are named 0, 1, 2 and so on. Others are stored as they came from a client.
fn has_index_names(array: &Doc) -> bool {
    let mut expected = IndexNames::default();
    array
        .iter_raw()
        .all(|element| element.name_bytes() == expected.next())
}

/// The names of the elements of an array.
struct IndexNames {
    digits: Vec<u8>,
    is_first: bool,
}

impl Default for IndexNames {
    fn default() -> IndexNames {
        IndexNames {
            digits: vec![b'0'],
            is_first: true,
        }
    }
}

impl IndexNames {
    fn next(&mut self) -> &[u8] {
        if std::mem::take(&mut self.is_first) {
            return &self.digits;
        }
        for digit in self.digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return &self.digits;
            }
            *digit = b'0';
        }
        self.digits.insert(0, b'1');
        &self.digits
    }
}

/// Applies a difference to a document.
///
/// # Errors
/// `DataCorruptionDetected` (301) for a document that is no difference, or one of another document.
pub fn apply(diff: &Doc, doc: &Doc) -> Result<DocBuf> {
    to_document(diff, doc).ok_or_else(|| corrupt("a difference of documents in the oplog"))
}

fn to_document(diff: &Doc, doc: &Doc) -> Option<DocBuf> {
    let mut sections: [&Doc; 3] = [Doc::empty(); 3];
    let mut inner: BTreeMap<&[u8], &Doc> = BTreeMap::new();
    for (name, value) in diff.iter() {
        let at = match (name, name.strip_prefix('s')) {
            ("d", _) => 0,
            ("u", _) => 1,
            ("i", _) => 2,
            (_, Some(field)) => {
                inner.insert(field.as_bytes(), value.as_doc()?);
                continue;
            }
            _ => return None,
        };
        *sections.get_mut(at)? = value.as_doc()?;
    }
    let [deleted, updated, inserted] = sections;
    fn by_name(section: &Doc) -> BTreeMap<&[u8], RawElement<'_>> {
        let fields = section.iter_raw();
        fields.map(|field| (field.name_bytes(), field)).collect()
    }
    let (gone, moved, mut changed) = (by_name(deleted), by_name(inserted), by_name(updated));
    let mut out = DocBuf::with_capacity(doc.len_bytes() + diff.len_bytes());
    for field in doc.iter_raw() {
        let name = field.name_bytes();
        if gone.contains_key(name) || moved.contains_key(name) {
            continue;
        }
        if let Some(after) = changed.remove(name) {
            out.push_raw(&after);
        } else if let Some(diff) = inner.get(name) {
            push_inner(&mut out, field.name(), &field, diff)?;
            check_size(&out)?;
        } else {
            out.push_raw(&field);
        }
    }
    // MongoDB appends these, too.
    for field in updated.iter_raw() {
        if changed.contains_key(field.name_bytes()) {
            out.push_raw(&field);
        }
    }
    inserted.iter_raw().for_each(|field| out.push_raw(&field));
    Some(out)
}

/// Refuses to go on with what can be no document: a client may send any difference.
fn check_size(out: &Doc) -> Option<()> {
    (out.len_bytes() <= 2 * MAX_DOCUMENT_BYTES).then_some(())
}

/// Adds a value with a difference applied. One of another type than the difference stays, as in MongoDB.
fn push_inner(out: &mut DocBuf, name: &str, value: &RawElement<'_>, diff: &Doc) -> Option<()> {
    let before = Doc::from_trusted(value.value_bytes());
    let is_array = diff.first().is_some_and(|(name, _)| name == "a");
    match (value.tag(), is_array) {
        (tag::DOCUMENT, false) => out.push(name, &*to_document(diff, before)?),
        (tag::ARRAY, true) => {
            let array = to_array(diff, before)?;
            out.push_value(name, &Value::Array(&array));
        }
        _ => out.push_raw_as(name, value),
    }
    Some(())
}

fn to_array(diff: &Doc, array: &Doc) -> Option<DocBuf> {
    let mut length = None;
    let mut changes: BTreeMap<u32, (bool, RawElement<'_>)> = BTreeMap::new();
    for change in diff.iter_raw() {
        let name = change.name();
        match name {
            "a" => {}
            "l" => length = Some(usize::try_from(change.value()?.as_i64_lossless()?).ok()?),
            _ => {
                let (kind, index) = name.split_at_checked(1)?;
                let is_diff = match kind {
                    "s" => true,
                    "u" => false,
                    _ => return None,
                };
                changes.insert(index.parse().ok()?, (is_diff, change));
            }
        }
    }
    let mut out = DocBuf::with_capacity(array.len_bytes() + diff.len_bytes());
    let mut names = IndexNames::default();
    let mut push = |out: &mut DocBuf, value: &dyn Fn(&mut DocBuf, &str) -> Option<()>| {
        value(out, std::str::from_utf8(names.next()).ok()?)
    };
    let mut count: u32 = 0;
    let kept = length.unwrap_or(usize::MAX);
    for element in array.iter_raw().take(kept) {
        let change = changes.remove(&count);
        push(&mut out, &|out, name| {
            match &change {
                None => out.push_raw_as(name, &element),
                Some((false, after)) => out.push_raw_as(name, after),
                Some((true, diff)) => {
                    push_inner(out, name, &element, diff.value()?.as_doc()?)?;
                }
            }
            Some(())
        })?;
        count = count.checked_add(1)?;
    }
    for (index, (is_diff, after)) in &changes {
        // A difference of an element that is not there has no effect; MongoDB fills gaps with null.
        if *is_diff || *index as usize >= kept {
            continue;
        }
        while count < *index {
            push(&mut out, &|out, name| {
                out.push(name, Value::Null);
                check_size(out)
            })?;
            count += 1;
        }
        push(&mut out, &|out, name| {
            out.push_raw_as(name, after);
            Some(())
        })?;
        count = count.checked_add(1)?;
    }
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
