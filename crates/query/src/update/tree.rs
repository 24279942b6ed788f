//! The operators of one update, arranged by path, so that a document is rewritten in one pass.

use super::operators::{Modifier, Scope};
use super::path::{Component, compare_names};
use super::storable;
use crate::number::Number;
use frond_error::{Error, ErrorCode, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Children up to this number are found by comparing names one by one.
const LINEAR_CHILDREN: usize = 8;

/// The change at one path.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An operator changes the value here.
    Leaf(Leaf),
    /// Something below named fields, or below array elements given by index or `$`.
    Fields(Fields),
    /// Something at or below the array elements that `$[]` and `$[name]` choose.
    Elements(Elements),
}

/// An operator at the end of its path.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// The path as the user wrote it.
    pub(crate) path: Arc<str>,
    pub(crate) modifier: Arc<dyn Modifier>,
}

impl Leaf {
    /// The operand of `$inc`, if the field can be incremented without reading the document. A field at the first
    /// level whose name begins with `$` cannot: whether it may be written depends on the document.
    pub(crate) fn increment(&self) -> Option<Number> {
        let number = self.modifier.increment()?;
        (!storable::is_prefixed(&self.path)).then_some(number)
    }

    /// Whether the operator adds elements to an array.
    pub(crate) fn appends(&self) -> bool {
        self.modifier.appends()
    }
}

/// Children by field name, in the order in which missing fields are added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    children: Vec<(Box<str>, Node)>,
    /// The positions of the children, where there are many.
    by_name: Option<HashMap<Box<str>, usize>>,
    /// Replacement for `$` at the index that the query matched.
    pub(crate) positional: Option<Box<Node>>,
}

/// Children by the name of an array filter; the empty name is `$[]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elements {
    pub(crate) children: Vec<(Box<str>, Node)>,
}

impl Fields {
    /// The children in the order of their names.
    pub(crate) fn children(&self) -> &[(Box<str>, Node)] {
        &self.children
    }

    /// The position of the child with this name.
    pub(crate) fn position(&self, name: &[u8]) -> Option<usize> {
        if self.children.len() <= LINEAR_CHILDREN {
            return self.children.iter().position(|(n, _)| n.as_bytes() == name);
        }
        let by_name = self.by_name.as_ref()?;
        by_name.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// Whether the name of a child begins with `$`.
    pub(crate) fn has_prefixed(&self) -> bool {
        (self.children.iter()).any(|(name, _)| storable::is_prefixed(name))
    }

    /// Whether a `$` has to be resolved in every document, whatever its content.
    pub(crate) fn has_positional(&self) -> bool {
        self.positional.is_some() || self.children.iter().any(|(_, node)| node.has_positional())
    }

    /// Calls `visit` with every operator, in the order of the names, and whether its path is free of
    /// positional components.
    pub(crate) fn each_leaf<'a>(&'a self, visit: &mut dyn FnMut(&'a Leaf, bool)) {
        self.each_leaf_below(true, visit);
    }

    fn each_leaf_below<'a>(&'a self, is_fixed: bool, visit: &mut dyn FnMut(&'a Leaf, bool)) {
        for (_, node) in &self.children {
            node.each_leaf(is_fixed, visit);
        }
        if let Some(node) = &self.positional {
            node.each_leaf(false, visit);
        }
    }

    fn entry(&mut self, name: &str) -> Option<&mut Node> {
        let at = self.position(name.as_bytes())?;
        self.children.get_mut(at).map(|(_, node)| node)
    }

    fn append(&mut self, name: Box<str>, node: Node) {
        let at = self.children.len();
        if let Some(by_name) = &mut self.by_name {
            by_name.insert(name.clone(), at);
        }
        self.children.push((name, node));
        if at == LINEAR_CHILDREN {
            self.index();
        }
    }

    /// Builds the lookup of the children, if there are many.
    fn index(&mut self) {
        if self.children.len() > LINEAR_CHILDREN {
            let places =
                (self.children.iter().enumerate()).map(|(at, (name, _))| (name.clone(), at));
            self.by_name = Some(places.collect());
        }
    }

    /// Sorts these children, not what is below them.
    fn sort_here(&mut self) {
        let in_order =
            |a: &(Box<str>, Node), b: &(Box<str>, Node)| compare_names(&a.0, &b.0).is_le();
        if !self.children.is_sorted_by(in_order) {
            self.children.sort_by(|a, b| compare_names(&a.0, &b.0));
            self.index();
        }
    }

    fn sort(&mut self) {
        self.sort_here();
        for (_, node) in &mut self.children {
            node.sort();
        }
        if let Some(node) = &mut self.positional {
            node.sort();
        }
    }

    /// These fields with what `$` does merged into the field `index`.
    ///
    /// Error 40 if both change the same place.
    pub(crate) fn with_positional(&self, index: usize, path: &str) -> Result<Fields> {
        let mut merged = self.clone();
        let Some(node) = merged.positional.take() else {
            return Ok(merged);
        };
        let name = index.to_string();
        match merged.entry(&name) {
            Some(existing) => *existing = merge(existing, &node, &join(path, &name))?,
            None => merged.append(name.into(), *node),
        }
        merged.sort_here();
        Ok(merged)
    }
}

impl Node {
    /// Adds an operator at the end of `components`; `depth` of them lead to this node.
    ///
    /// Error 40 if the path equals another one or is a part of it.
    pub(crate) fn insert(
        &mut self,
        components: &[Component<'_>],
        depth: usize,
        leaf: Leaf,
    ) -> Result<()> {
        let Some(component) = components.get(depth) else {
            return Err(conflict(&leaf.path, &leaf.path));
        };
        let slot: &mut Node = match (self, component) {
            (Node::Fields(fields), Component::Field(name)) => {
                let at = fields.position(name.as_bytes());
                match at.and_then(|at| fields.children.get_mut(at)) {
                    Some((_, node)) => node,
                    None => {
                        let node = Node::fresh(components, depth + 1, leaf);
                        fields.append((*name).into(), node);
                        return Ok(());
                    }
                }
            }
            (Node::Fields(fields), Component::Positional) => match &mut fields.positional {
                Some(node) => node,
                empty => {
                    *empty = Some(Box::new(Node::fresh(components, depth + 1, leaf)));
                    return Ok(());
                }
            },
            (Node::Elements(elements), Component::Filtered(name)) => {
                let at = elements.children.iter().position(|(n, _)| **n == **name);
                match at.and_then(|at| elements.children.get_mut(at)) {
                    Some((_, node)) => node,
                    None => {
                        let node = Node::fresh(components, depth + 1, leaf);
                        elements.children.push(((*name).into(), node));
                        return Ok(());
                    }
                }
            }
            _ => {
                return Err(conflict(&leaf.path, &prefix(&leaf.path, depth)));
            }
        };
        if matches!(slot, Node::Leaf(_)) || components.len() == depth + 1 {
            return Err(conflict(&leaf.path, &prefix(&leaf.path, depth + 1)));
        }
        slot.insert(components, depth + 1, leaf)
    }

    /// The chain of nodes for the rest of a path that nothing else uses yet.
    fn fresh(components: &[Component<'_>], depth: usize, leaf: Leaf) -> Node {
        let rest = components.get(depth..).unwrap_or_default();
        rest.iter().rev().fold(Node::Leaf(leaf), |node, c| match c {
            Component::Field(name) => {
                let mut fields = Fields::default();
                fields.append((*name).into(), node);
                Node::Fields(fields)
            }
            Component::Positional => Node::Fields(Fields {
                positional: Some(Box::new(node)),
                ..Fields::default()
            }),
            Component::Filtered(name) => Node::Elements(Elements {
                children: vec![((*name).into(), node)],
            }),
        })
    }

    /// Puts all children into the order in which missing fields are added.
    pub(crate) fn sort(&mut self) {
        match self {
            Node::Leaf(_) => {}
            Node::Fields(fields) => fields.sort(),
            Node::Elements(elements) => {
                for (_, node) in &mut elements.children {
                    node.sort();
                }
            }
        }
    }

    /// Whether this node has to be applied where its field is missing: because an operator would
    /// create the field, or to report that array updates need it.
    pub(crate) fn creates(&self, scope: &Scope<'_>) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.modifier.creates(scope),
            Node::Fields(fields) => (fields.children.iter().map(|(_, node)| node))
                .chain(fields.positional.as_deref())
                .any(|node| node.creates(scope)),
            Node::Elements(_) => true,
        }
    }

    /// The names from here to an operator that needs its path to be viable; `$` is the one at
    /// `positional`.
    pub(crate) fn needs_way(&self, positional: Option<usize>) -> Option<String> {
        match self {
            Node::Leaf(leaf) => leaf.modifier.needs_way().then(String::new),
            Node::Fields(fields) => {
                let index = positional.map(|index| index.to_string());
                let children = fields.children.iter().map(|(name, node)| (&**name, node));
                let dollar = index.as_deref().zip(fields.positional.as_deref());
                (children.chain(dollar)).find_map(|(name, node)| {
                    let rest = node.needs_way(positional)?;
                    Some(if rest.is_empty() {
                        name.to_owned()
                    } else {
                        join(name, &rest)
                    })
                })
            }
            Node::Elements(_) => None,
        }
    }

    /// Whether a `$` has to be resolved wherever this node is applied.
    pub(crate) fn has_positional(&self) -> bool {
        match self {
            Node::Leaf(_) | Node::Elements(_) => false,
            Node::Fields(fields) => fields.has_positional(),
        }
    }

    fn each_leaf<'a>(&'a self, is_fixed: bool, visit: &mut dyn FnMut(&'a Leaf, bool)) {
        match self {
            Node::Leaf(leaf) => visit(leaf, is_fixed),
            Node::Fields(fields) => fields.each_leaf_below(is_fixed, visit),
            Node::Elements(elements) => {
                let children = elements.children.iter();
                children.for_each(|(_, node)| node.each_leaf(false, visit));
            }
        }
    }

    /// The path of the first operator at or below this node.
    pub(crate) fn first_path(&self) -> Option<&str> {
        match self {
            Node::Leaf(leaf) => Some(&leaf.path),
            Node::Fields(fields) => (fields.children.iter().map(|(_, node)| node))
                .chain(fields.positional.as_deref())
                .find_map(Node::first_path),
            Node::Elements(elements) => {
                (elements.children.iter()).find_map(|(_, node)| node.first_path())
            }
        }
    }
}

/// Both nodes applied to one place. Error 40 if they change the same value.
pub(crate) fn merge(a: &Node, b: &Node, path: &str) -> Result<Node> {
    match (a, b) {
        (Node::Fields(a), Node::Fields(b)) => {
            let mut merged = Fields::clone(a);
            for (name, node) in &b.children {
                match merged.entry(name) {
                    Some(existing) => *existing = merge(existing, node, &join(path, name))?,
                    None => merged.append(name.clone(), node.clone()),
                }
            }
            merged.positional = match (&a.positional, &b.positional) {
                (Some(x), Some(y)) => Some(Box::new(merge(x, y, &join(path, "$"))?)),
                (x, y) => x.clone().or_else(|| y.clone()),
            };
            merged.sort_here();
            Ok(Node::Fields(merged))
        }
        (Node::Elements(a), Node::Elements(b)) => {
            let mut merged = Elements::clone(a);
            for (name, node) in &b.children {
                match merged.children.iter_mut().find(|(n, _)| n == name) {
                    Some((_, existing)) => {
                        *existing = merge(existing, node, &join(path, &format!("$[{name}]")))?;
                    }
                    None => merged.children.push((name.clone(), node.clone())),
                }
            }
            Ok(Node::Elements(merged))
        }
        _ => Err(Error::new(
            ErrorCode::ConflictingUpdateOperators,
            format!("Update created a conflict at '{path}'"),
        )),
    }
}

fn conflict(path: &str, at: &str) -> Error {
    Error::new(
        ErrorCode::ConflictingUpdateOperators,
        format!("Updating the path '{path}' would create a conflict at '{at}'"),
    )
}

/// The first `components` names of a path.
fn prefix(path: &str, components: usize) -> String {
    path.split('.')
        .take(components)
        .collect::<Vec<_>>()
        .join(".")
}

/// `path` with one more name.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
