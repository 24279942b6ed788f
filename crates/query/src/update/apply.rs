//! Rewriting a document: one walk over its bytes, copying the ranges that no operator touches.

use super::array_filters::ArrayFilters;
use super::operators::{Change, Scope, Target};
use super::storable;
use super::tree::{Elements, Fields, Leaf, Node, join, merge};
use crate::display;
use crate::paths::array_index;
use crate::raw::{self, Element};
use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use std::borrow::Cow;

/// Missing array elements that one update may fill with null, as in MongoDB.
const MAX_ARRAY_PADDING: usize = 1_500_000;

/// Applies the operators below `fields` to the document of `scope`.
///
/// Returns the new bytes, or `None` if nothing changed.
pub(crate) fn apply(
    fields: &Fields,
    filters: &ArrayFilters,
    scope: &Scope<'_>,
) -> Result<Option<Vec<u8>>> {
    // Even if the path does not lead to the array.
    if scope.context.positional.is_none() && fields.has_positional() {
        return Err(no_match());
    }
    let source = scope.root.as_bytes();
    let mut rewriter = Rewriter {
        scope,
        filters,
        source,
        copied: 0,
        out: Vec::new(),
        scratch: Vec::with_capacity(64),
        prefixed: Vec::new(),
    };
    if !rewriter.fields_of_document(fields, scope.root, 0, FieldTrail::ROOT)? {
        return Ok(None);
    }
    rewriter.copy_to(source.len());
    let Rewriter { out, prefixed, .. } = rewriter;
    if !prefixed.is_empty() && !scope.context.is_upsert_insert {
        storable::check_first_level(Doc::from_trusted(&out), |name| {
            prefixed.iter().any(|written| written == name)
        })?;
    }
    Ok(Some(out))
}

struct Rewriter<'a> {
    scope: &'a Scope<'a>,
    filters: &'a ArrayFilters,
    source: &'a [u8],
    /// Bytes of `source` that were copied, replaced or left out.
    copied: usize,
    out: Vec<u8>,
    scratch: Vec<u8>,
    /// The fields of the first level that were written and whose names begin with `$`.
    prefixed: Vec<String>,
}

/// Where the walk is: the name of a field and the way to what it is in, for messages.
#[derive(Clone, Copy)]
struct FieldTrail<'w> {
    above: Option<&'w FieldTrail<'w>>,
    name: &'w str,
}

impl FieldTrail<'_> {
    const ROOT: &'static FieldTrail<'static> = &FieldTrail {
        above: None,
        name: "",
    };

    /// The way to a field of what is here.
    fn to<'w>(&'w self, name: &'w str) -> FieldTrail<'w> {
        FieldTrail {
            above: Some(self),
            name,
        }
    }

    /// The names with dots between them.
    fn path(&self) -> String {
        match self.above {
            Some(above) => join(&above.path(), self.name),
            None => String::new(),
        }
    }
}

/// An element of the source and where it is: offsets of `Element` count from `base`.
#[derive(Clone, Copy)]
struct Location<'a> {
    element: Element<'a>,
    base: usize,
    in_array: bool,
}

impl<'a> Rewriter<'a> {
    /// Copies the source up to `offset`.
    fn copy_to(&mut self, offset: usize) {
        if self.out.capacity() == 0 {
            self.out.reserve(self.source.len() + 64);
        }
        let range = self.source.get(self.copied..offset).unwrap_or_default();
        self.out.extend_from_slice(range);
        self.copied = offset;
    }

    /// Where `offset` of the source, not dealt with yet, lands in the result.
    fn position(&self, offset: usize) -> usize {
        self.out.len() + (offset - self.copied)
    }

    /// Writes the length of a document that began at `out_start` of the result and ends with `end`
    /// of the source.
    fn patch_length(&mut self, out_start: usize, end: usize) {
        let length = self.position(end) - out_start;
        if let Some(bytes) = self.out.get_mut(out_start..out_start + 4) {
            bytes.copy_from_slice(&(length as u32).to_le_bytes());
        }
    }

    /// Applies a node to an existing element. True if it changed.
    fn existing(&mut self, node: &Node, place: Location<'a>, way: &FieldTrail<'_>) -> Result<bool> {
        match node {
            Node::Leaf(leaf) => self.leaf(leaf, place, way),
            Node::Fields(fields) => match place.element.value() {
                Value::Document(doc) => {
                    let base = place.base + place.element.value_start;
                    self.fields_of_document(fields, doc, base, way)
                }
                Value::Array(array) => self.fields_of_array(fields, array, place, way),
                _ if node.creates(self.scope) => Err(self.not_viable(fields, &place.element)),
                _ => match node.needs_way(self.scope.context.positional) {
                    Some(rest) => Err(no_way(&rest, &place.element, way)),
                    None => Ok(false),
                },
            },
            Node::Elements(elements) => match place.element.value() {
                Value::Array(array) => self.elements_of_array(elements, array, place, way),
                _ => Err(Error::bad_value(format!(
                    "Cannot apply array updates to non-array element {}",
                    display::element(place.element.name(), &place.element.value())
                ))),
            },
        }
    }

    fn not_viable(&self, fields: &Fields, element: &Element<'_>) -> Error {
        let index = self.scope.context.positional.map(|i| i.to_string());
        let name = (fields.children().iter())
            .find(|(_, node)| node.creates(self.scope))
            .map(|(name, _)| &**name)
            .or(index.as_deref())
            .unwrap_or("$");
        Error::new(
            ErrorCode::PathNotViable,
            format!(
                "Cannot create field '{name}' in element {{{}}}",
                display::element(element.name(), &element.value())
            ),
        )
    }

    fn leaf(&mut self, leaf: &Leaf, place: Location<'a>, way: &FieldTrail<'_>) -> Result<bool> {
        let element = place.element;
        let target = Target {
            scope: self.scope,
            path: &leaf.path,
            name: way.name,
            value: Some(element.value()),
        };
        match leaf.modifier.modify(&target)? {
            Change::Keep => Ok(false),
            // The other elements keep their indexes.
            Change::Remove if place.in_array => Ok(self.replace(place, &Value::Null)),
            Change::Remove => {
                self.copy_to(place.base + element.start);
                self.copied = place.base + element.end;
                Ok(true)
            }
            Change::Value(value) => Ok(self.replace(place, &value)),
            Change::Array(array) => Ok(self.replace(place, &Value::Array(&array))),
        }
    }

    /// Puts a value in the place of an element's. False if it is the same, bit by bit.
    fn replace(&mut self, place: Location<'a>, value: &Value<'_>) -> bool {
        let element = place.element;
        self.scratch.clear();
        value.write_to(&mut self.scratch);
        let tag = value.type_code();
        let range = place.base + element.value_start..place.base + element.end;
        if tag == element.tag() && self.source.get(range) == Some(&self.scratch) {
            return false;
        }
        self.copy_to(place.base + element.start);
        self.out.push(tag);
        self.copied += 1;
        self.copy_to(place.base + element.value_start);
        self.out.extend_from_slice(&self.scratch);
        self.copied = place.base + element.end;
        true
    }

    /// Applies children to a document that begins at `base` of the source.
    fn fields_of_document(
        &mut self,
        fields: &Fields,
        doc: &'a Doc,
        base: usize,
        way: &FieldTrail<'_>,
    ) -> Result<bool> {
        let fields = &*self.resolve_positional(fields, way)?;
        let out_start = self.position(base);
        let end = base + doc.as_bytes().len();
        let children = fields.children();
        let mut seen = BitSet::default();
        let mut missing = children.len();
        let mut changed = false;
        for element in raw::elements(doc) {
            if missing == 0 {
                break;
            }
            let Some(at) = fields.position(element.name_bytes()) else {
                continue;
            };
            let Some((name, node)) = children.get(at).filter(|_| seen.insert(at)) else {
                continue;
            };
            missing -= 1;
            let place = Location {
                element,
                base,
                in_array: false,
            };
            let here = self.existing(node, place, &way.to(name))?;
            if here && base == 0 && **name == *"_id" {
                return Err(immutable_id(node.first_path().unwrap_or("_id")));
            }
            if here && matches!(node, Node::Leaf(_)) {
                self.note_prefixed(base, name);
            }
            changed |= here;
        }
        if missing > 0 {
            let unseen = (children.iter().enumerate()).filter(|(at, _)| !seen.contains(*at));
            for (_, (name, node)) in unseen {
                if node.creates(self.scope) {
                    self.copy_to(end - 1);
                    if self.create(name, node, way)? {
                        self.note_prefixed(base, name);
                        changed = true;
                    }
                }
            }
        }
        if changed {
            self.patch_length(out_start, end);
        }
        Ok(changed)
    }

    /// Notes a field that was written, if it has to be checked: `base` is whether it is of the first level.
    fn note_prefixed(&mut self, base: usize, name: &str) {
        if base == 0 && storable::is_prefixed(name) {
            self.prefixed.push(name.to_owned());
        }
    }

    /// Applies children to array elements given by index.
    fn fields_of_array(
        &mut self,
        fields: &Fields,
        array: &'a Doc,
        place: Location<'a>,
        way: &FieldTrail<'_>,
    ) -> Result<bool> {
        let fields = &*self.resolve_positional(fields, way)?;
        let mut wanted: Vec<(usize, &str, &Node)> = Vec::with_capacity(fields.children().len());
        for (name, node) in fields.children() {
            match array_index(name) {
                Some(index) => wanted.push((index, name, node)),
                None if node.creates(self.scope) => {
                    return Err(self.not_viable_name(name, &place.element));
                }
                None => {
                    if let Some(rest) = node.needs_way(self.scope.context.positional) {
                        return Err(no_way(&join(name, &rest), &place.element, way));
                    }
                }
            }
        }
        let base = place.base + place.element.value_start;
        let end = base + array.as_bytes().len();
        let out_start = self.position(base);
        let mut wanted = wanted.into_iter().peekable();
        let mut changed = false;
        let mut length = 0;
        for (index, element) in raw::elements(array).enumerate() {
            length = index + 1;
            if let Some((_, name, node)) = wanted.next_if(|(at, _, _)| *at == index) {
                let place = Location {
                    element,
                    base,
                    in_array: true,
                };
                changed |= self.existing(node, place, &way.to(name))?;
            }
        }
        for (index, name, node) in wanted {
            if !node.creates(self.scope) {
                continue;
            }
            if index - length > MAX_ARRAY_PADDING {
                return Err(Error::new(
                    ErrorCode::CannotBackfillArray,
                    format!("can't backfill more than {MAX_ARRAY_PADDING} elements"),
                ));
            }
            self.copy_to(end - 1);
            let before = self.out.len();
            for at in length..index {
                raw::write_element(&mut self.out, &at.to_string(), &Value::Null);
            }
            if self.create(name, node, way)? {
                changed = true;
                length = index + 1;
            } else {
                self.out.truncate(before);
            }
        }
        if changed {
            self.patch_length(out_start, end);
        }
        Ok(changed)
    }

    fn not_viable_name(&self, name: &str, element: &Element<'_>) -> Error {
        Error::new(
            ErrorCode::PathNotViable,
            format!(
                "Cannot create field '{name}' in element {{{}}}",
                display::element(element.name(), &element.value())
            ),
        )
    }

    /// Applies children to the array elements that their filters take.
    fn elements_of_array(
        &mut self,
        elements: &Elements,
        array: &'a Doc,
        place: Location<'a>,
        way: &FieldTrail<'_>,
    ) -> Result<bool> {
        let base = place.base + place.element.value_start;
        let end = base + array.as_bytes().len();
        let out_start = self.position(base);
        let mut changed = false;
        for (index, element) in raw::elements(array).enumerate() {
            let value = element.value();
            let name = index.to_string();
            let mut chosen: Option<Cow<'_, Node>> = None;
            for (id, node) in &elements.children {
                if !self.filters.matches(id, &value)? {
                    continue;
                }
                chosen = Some(match chosen {
                    None => Cow::Borrowed(node),
                    Some(other) => Cow::Owned(merge(&other, node, &way.to(&name).path())?),
                });
            }
            if let Some(node) = chosen {
                let place = Location {
                    element,
                    base,
                    in_array: true,
                };
                changed |= self.existing(&node, place, &way.to(&name))?;
            }
        }
        if changed {
            self.patch_length(out_start, end);
        }
        Ok(changed)
    }

    /// Adds a missing field at the end of the result. False if its operators leave it missing.
    fn create(&mut self, name: &str, node: &Node, way: &FieldTrail<'_>) -> Result<bool> {
        match node {
            Node::Leaf(leaf) => {
                let target = Target {
                    scope: self.scope,
                    path: &leaf.path,
                    name,
                    value: None,
                };
                match leaf.modifier.modify(&target)? {
                    Change::Keep | Change::Remove => return Ok(false),
                    Change::Value(value) => raw::write_element(&mut self.out, name, &value),
                    Change::Array(array) => {
                        raw::write_element(&mut self.out, name, &Value::Array(&array));
                    }
                }
                Ok(true)
            }
            Node::Fields(fields) => {
                let here = way.to(name);
                let fields = &*self.resolve_positional(fields, &here)?;
                let before = self.out.len();
                let start = raw::begin_document(&mut self.out, name);
                let mut created = false;
                for (name, node) in fields.children() {
                    created |= self.create(name, node, &here)?;
                }
                if created {
                    raw::end_document(&mut self.out, start);
                } else {
                    self.out.truncate(before);
                }
                Ok(created)
            }
            Node::Elements(_) => Err(must_exist(&way.to(name))),
        }
    }

    /// The fields with `$` resolved to the index that the query matched. Error 2 if it matched none.
    fn resolve_positional<'f>(
        &self,
        fields: &'f Fields,
        way: &FieldTrail<'_>,
    ) -> Result<Cow<'f, Fields>> {
        if fields.positional.is_none() {
            return Ok(Cow::Borrowed(fields));
        }
        let index = self.scope.context.positional.ok_or_else(no_match)?;
        Ok(Cow::Owned(fields.with_positional(index, &way.path())?))
    }
}

/// The error of an operator that creates nothing, but finds a value in its way.
fn no_way(rest: &str, element: &Element<'_>, way: &FieldTrail<'_>) -> Error {
    let rest = rest.trim_end_matches('.');
    let part = rest.split('.').next().unwrap_or_default();
    Error::new(
        ErrorCode::PathNotViable,
        format!(
            "Cannot use the part ({part}) of ({}) to traverse the element ({{{}}})",
            join(&way.path(), rest),
            display::element(element.name(), &element.value())
        ),
    )
}

fn must_exist(way: &FieldTrail<'_>) -> Error {
    Error::bad_value(format!(
        "The path '{}' must exist in the document in order to apply array updates.",
        way.path()
    ))
}

fn no_match() -> Error {
    Error::bad_value("The positional operator did not find the match needed from the query.")
}

/// The error of an update that would change `_id`.
pub(crate) fn immutable_id(path: &str) -> Error {
    Error::new(
        ErrorCode::ImmutableField,
        format!("Performing an update on the path '{path}' would modify the immutable field '_id'"),
    )
}

/// A set of small numbers, without allocation below 64.
#[derive(Default)]
struct BitSet {
    first: u64,
    more: Vec<u64>,
}

impl BitSet {
    /// True if the number was not in the set.
    fn insert(&mut self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        let word = match (number / 64).checked_sub(1) {
            None => &mut self.first,
            Some(at) => {
                if self.more.len() <= at {
                    self.more.resize(at + 1, 0);
                }
                match self.more.get_mut(at) {
                    Some(word) => word,
                    None => return false,
                }
            }
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn contains(&self, number: usize) -> bool {
        let word = match (number / 64).checked_sub(1) {
            None => self.first,
            Some(at) => self.more.get(at).copied().unwrap_or(0),
        };
        word & (1 << (number % 64)) != 0
    }
}
