//! The rules of a projection, as a tree.

use std::sync::Arc;

use super::slice::Slice;
use crate::expr::Expr;
use crate::matcher::ElemMatch;
use frond_error::{Error, Result};

/// Above this many fields a node looks names up in sorted order.
const LINEAR_FIELDS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) enum Rule {
    Include,
    /// It is left out.
    Exclude,
    /// It is copied; of the first array on the path only the matching element.
    Positional,
    /// A part of the array is copied.
    Slice(Slice),
    /// The first array element that satisfies a condition is copied, as an array.
    ElemMatch(Box<ElemMatch>),
    /// It is the value of an expression.
    Computed(Arc<Expr>),
    /// Its fields have rules of their own.
    Children(Node),
}

/// The rules for the fields of one document.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// In the order of the specification.
    fields: Vec<(Box<str>, Rule)>,
    /// Positions in `fields` by name, if there are many.
    sorted: Vec<usize>,
    /// The positions of the rules that copy from the document, as bits; empty if there are too many.
    copied: u64,
    /// Whether a rule here or below adds fields.
    adds_fields: bool,
    /// Whether the positional operator is somewhere below.
    leads_to_positional: bool,
    /// Whether there are few rules, all of them for whole fields.
    is_flat: bool,
}

/// The fields that an inclusion has not found in a document yet.
pub(super) struct Missing(u64);

impl Missing {
    /// Marks a field as found. True if it was the last one.
    pub(super) fn found_last(&mut self, position: usize) -> bool {
        let bit = 1u64.checked_shl(position as u32).unwrap_or(0);
        let found = self.0 & bit != 0;
        self.0 &= !bit;
        found && self.0 == 0
    }
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The rules in the order of the specification.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Rule)> {
        self.fields.iter().map(|(name, rule)| (&**name, rule))
    }

    /// The fields to copy from a document. Once all were found the rest need not be read.
    pub(super) fn copied_fields(&self) -> Missing {
        Missing(self.copied)
    }

    /// Whether a rule here or below adds fields behind those that are copied.
    pub(super) fn adds_fields(&self) -> bool {
        self.adds_fields
    }

    /// Whether there are few rules, which keep or leave out whole fields.
    pub(super) fn is_flat(&self) -> bool {
        self.is_flat
    }

    /// The position of the rule for a field, and whether it keeps the field, if [`Node::is_flat`].
    pub(super) fn find_flat(&self, name: &[u8]) -> Option<(usize, bool)> {
        let mut rules = self.fields.iter().enumerate();
        let (position, (_, rule)) = rules.find(|(_, (known, _))| known.as_bytes() == name)?;
        Some((position, matches!(rule, Rule::Include)))
    }

    /// The rule for a field, and its position.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Rule)> {
        let position = if self.sorted.is_empty() {
            self.fields.iter().position(|(known, _)| **known == *name)?
        } else {
            let at = self.sorted.binary_search_by(|position| {
                self.fields
                    .get(*position)
                    .map_or("", |(known, _)| known)
                    .cmp(name)
            });
            *self.sorted.get(at.ok()?)?
        };
        self.fields.get(position).map(|(_, rule)| (position, rule))
    }

    /// Whether the positional operator is somewhere below.
    pub(super) fn leads_to_positional(&self) -> bool {
        self.leads_to_positional
    }

    /// Adds the rule for a path. `full` is the path as written, for messages.
    pub(super) fn insert(&mut self, path: &[&str], rule: Rule, full: &str) -> Result<()> {
        let Some((last, parents)) = path.split_last() else {
            return Ok(());
        };
        let node = self.descend(parents, full)?;
        if node.position(last).is_some() {
            return Err(Error::location(31250, format!("Path collision at {full}")));
        }
        node.push(last, rule);
        Ok(())
    }

    /// The node for the fields below a path, created if missing.
    pub(super) fn descend(&mut self, path: &[&str], full: &str) -> Result<&mut Node> {
        let mut node = self;
        for name in path {
            let position = match node.position(name) {
                Some(position) => position,
                None => node.push(name, Rule::Children(Node::default())),
            };
            node = match node.fields.get_mut(position) {
                Some((_, Rule::Children(children))) => children,
                _ => {
                    let rest = full.split_once('.').map_or("", |(_, rest)| rest);
                    return Err(Error::location(
                        31249,
                        format!("Path collision at {full} remaining portion {rest}"),
                    ));
                }
            };
        }
        Ok(node)
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.fields.retain(|(known, _)| **known != *name);
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|(known, _)| **known == *name)
    }

    fn push(&mut self, name: &str, rule: Rule) -> usize {
        self.fields.push((name.into(), rule));
        self.fields.len() - 1
    }

    /// Prepares the tree for use, after all rules were added.
    pub(super) fn finish(&mut self) {
        if self.fields.len() > LINEAR_FIELDS_MAX {
            self.sorted = (0..self.fields.len()).collect();
            let fields = &self.fields;
            self.sorted
                .sort_by_key(|position| fields.get(*position).map(|(name, _)| name));
        }
        for (position, (_, rule)) in self.fields.iter_mut().enumerate() {
            match rule {
                Rule::Computed(_) | Rule::ElemMatch(_) => self.adds_fields = true,
                Rule::Positional => self.leads_to_positional = true,
                Rule::Children(children) => {
                    children.finish();
                    self.adds_fields |= children.adds_fields;
                    self.leads_to_positional |= children.leads_to_positional;
                }
                _ => {}
            }
            if !matches!(rule, Rule::Computed(_) | Rule::ElemMatch(_)) && position < 64 {
                self.copied |= 1 << position;
            }
        }
        if self.fields.len() > 64 {
            self.copied = 0;
        }
        let is_whole = |(_, rule): &(Box<str>, Rule)| matches!(rule, Rule::Include | Rule::Exclude);
        self.is_flat = self.sorted.is_empty() && self.fields.iter().all(is_whole);
    }
}
