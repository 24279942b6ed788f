//! Projections: the fields of a document that a query returns, `{name: 1, "tags.$": 1}`.
//!
//! [`Projection::parse`] turns a specification into a tree of rules, one level for each level of
//! nesting; [`Projection::apply`] copies a raw document through it.

mod apply;
mod flat;
mod node;
mod parse;
mod slice;
#[cfg(test)]
mod tests;

use frond_bson::{Doc, DocBuf};

pub use flat::FlatProjection;

use crate::bounds;
use crate::environment::Environment;
use crate::expr::Context;
use crate::matcher::{Filter, MatchedElement};
use crate::meta::{MetaFields, Metadata};
use crate::required_fields::RequiredFields;
use frond_error::Result;
use node::{Node, Rule};
use parse::{Dialect, Parser};

#[derive(Clone, Debug)]
pub struct Projection {
    kind: Kind,
    root: Node,
    /// Finds the array element of the positional operator.
    matched: Option<MatchedElement>,
    /// `$$NOW` for expressions, in milliseconds since 1970.
    now_ms: i64,
}

/// Treatment of the fields that a projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They are left out.
    Inclusion,
    Exclusion,
}

impl Projection {
    /// Parses the projection of a `find` where computed fields are not allowed (code 224). An empty
    /// one keeps every field.
    ///
    /// Fails with MongoDB's codes: 31253 and 31254 for a mixture of inclusion and exclusion, 31249
    /// and 31250 for paths that collide, 51270 for an empty sub-projection, 31324 and following for
    /// the positional operator, 31274 and 31275 for `$elemMatch`, 28667 for `$slice`, 31325 for an
    /// unknown operator, and those of a bad path.
    pub fn parse(spec: &Doc) -> Result<Projection> {
        bounds::parsing(|| Parser::new(Dialect::Find, None).run(spec))
    }

    /// Parses the projection of a `find`, with computed fields: `{total: {$add: ["$a", "$b"]}}`.
    /// Fails as [`Projection::parse`], with 31252 and 31310 for an expression in an exclusion, and
    /// with the codes of a wrong expression.
    pub fn parse_with(spec: &Doc, environment: &Environment<'_>) -> Result<Projection> {
        bounds::parsing(|| Parser::new(Dialect::Find, Some(environment)).run(spec))
    }

    /// Parses the specification of a `$project` stage: without the operators that only `find` has
    /// (31324, 168), not empty (51272), and `$slice` is an expression.
    pub fn parse_stage(spec: &Doc, environment: &Environment<'_>) -> Result<Projection> {
        bounds::parsing(|| Parser::new(Dialect::Stage, Some(environment)).run(spec))
    }

    /// Binds the projection to `filter`, which its documents pass: its positional operator stands for the element that
    /// the filter matched.
    pub fn matching(self, filter: &Filter) -> Projection {
        let matched = (self.needs_positional()).then(|| filter.matched_element());
        Projection { matched, ..self }
    }

    /// The projection of `doc`.
    ///
    /// Copied fields keep the order of the document; computed fields, and those of `$elemMatch` in an
    /// inclusion, follow in the order of the specification. Arrays on a path are projected element by
    /// element.
    ///
    /// Fails with code 51246 or 51247 if the positional operator has no element, and with the errors
    /// of expressions.
    pub fn apply(&self, doc: &Doc) -> Result<DocBuf> {
        self.apply_with(doc, None)
    }

    /// [`Projection::apply`] with the metadata of the document, for `$meta`.
    pub fn apply_with(&self, doc: &Doc, meta: Option<&Metadata>) -> Result<DocBuf> {
        let mut out = DocBuf::with_capacity(doc.len_bytes());
        self.apply_to(doc, meta, &mut out)?;
        Ok(out)
    }

    /// [`Projection::apply_with`] into a document that is cleared first, so that a caller with many documents keeps its memory.
    ///
    /// # Errors
    /// As [`Projection::apply`].
    pub fn apply_to(&self, doc: &Doc, meta: Option<&Metadata>, out: &mut DocBuf) -> Result<()> {
        out.clear();
        if self.root.is_flat() {
            apply::flat(&self.root, self.kind, doc, out);
            return Ok(());
        }
        let context = Context::new(doc, self.now_ms).with_meta(meta);
        self.run(doc, context, out)
    }

    /// The metadata that the projection shows.
    pub fn meta(&self) -> MetaFields {
        fn collect(node: &Node) -> MetaFields {
            node.fields()
                .fold(MetaFields::default(), |found, (_, rule)| {
                    found
                        | match rule {
                            Rule::Computed(expression) => expression.meta(),
                            Rule::Children(children) => collect(children),
                            _ => MetaFields::default(),
                        }
                })
        }
        collect(&self.root)
    }

    /// [`Projection::apply`] with the variables and the time of a pipeline.
    pub(crate) fn apply_in(&self, doc: &Doc, context: Context<'_>) -> Result<DocBuf> {
        let mut out = DocBuf::with_capacity(doc.len_bytes());
        if self.root.is_flat() {
            apply::flat(&self.root, self.kind, doc, &mut out);
            return Ok(out);
        }
        self.run(doc, context, &mut out)?;
        Ok(out)
    }

    fn run(&self, doc: &Doc, context: Context<'_>, out: &mut DocBuf) -> Result<()> {
        let run = apply::Run {
            kind: self.kind,
            element: apply::Element::Of(doc, self.matched.as_ref()),
            context,
        };
        bounds::releasing(|| {
            bounds::reserve_large(out.capacity())?;
            run.document(&self.root, doc, out)
        })
    }

    /// Whether some fields are computed.
    pub fn computes(&self) -> bool {
        self.root.adds_fields()
    }

    /// Whether the projection keeps documents as they are.
    pub fn is_identity(&self) -> bool {
        self.kind == Kind::Exclusion && self.root.is_empty()
    }

    /// Whether unnamed fields are left out, rather than kept.
    pub fn is_inclusion(&self) -> bool {
        self.kind == Kind::Inclusion
    }

    /// Whether the projection holds the positional operator (`"tags.$": 1`), so that the index of
    /// the matching array element is needed.
    pub fn needs_positional(&self) -> bool {
        self.root.leads_to_positional()
    }

    /// Whether a field of the document is returned unchanged, with everything in it.
    pub fn keeps(&self, name: &str) -> bool {
        let rule = self.root.fields().find(|(field, _)| **field == *name);
        match rule {
            Some((_, Rule::Include)) => true,
            Some(_) => false,
            None => self.kind == Kind::Exclusion,
        }
    }

    /// The only field that is kept, if the projection does nothing else.
    pub fn only_field(&self) -> Option<&str> {
        if !self.is_inclusion() || !self.root.is_flat() {
            return None;
        }
        let fields = self.root.fields();
        let mut kept = fields.filter(|(_, rule)| matches!(rule, Rule::Include));
        let (name, _) = kept.next()?;
        kept.next().is_none().then_some(name)
    }

    /// The parts of a document that the result depends on.
    pub fn required_fields(&self) -> RequiredFields {
        match self.needed_paths() {
            Some(paths) => paths.iter().map(String::as_str).collect(),
            None => RequiredFields::whole(),
        }
    }

    /// The dotted paths that the result depends on, for a covered plan. `None` if the whole document is needed: for an
    /// exclusion, or a field whose result depends on more than its path.
    pub fn needed_paths(&self) -> Option<Vec<String>> {
        fn collect(node: &Node, prefix: &str, paths: &mut Vec<String>) -> bool {
            node.fields().all(|(name, rule)| {
                let path = join(prefix, name);
                match rule {
                    Rule::Children(children) => collect(children, &path, paths),
                    Rule::Positional => false,
                    Rule::Exclude => true,
                    Rule::Computed(expression) => {
                        let mut whole = false;
                        expression.fields(|path| {
                            whole |= path.is_empty();
                            paths.push(path);
                        });
                        if !prefix.is_empty() {
                            // Its parent may be a document, an array or neither.
                            paths.push(path);
                        }
                        !whole
                    }
                    Rule::Include | Rule::Slice(_) | Rule::ElemMatch(_) => {
                        paths.push(path);
                        true
                    }
                }
            })
        }
        let mut paths = Vec::new();
        let complete = self.is_inclusion() && collect(&self.root, "", &mut paths);
        complete.then_some(paths)
    }

    /// The dotted paths that are left out, if that is all that the projection does.
    pub(crate) fn excluded_paths(&self) -> Option<Vec<String>> {
        fn collect(node: &Node, prefix: &str, paths: &mut Vec<String>) -> bool {
            node.fields().all(|(name, rule)| {
                let path = join(prefix, name);
                match rule {
                    Rule::Children(children) => collect(children, &path, paths),
                    Rule::Exclude => {
                        paths.push(path);
                        true
                    }
                    _ => false,
                }
            })
        }
        let mut paths = Vec::new();
        let complete = !self.is_inclusion() && collect(&self.root, "", &mut paths);
        complete.then_some(paths)
    }
}

fn join(prefix: &str, name: &str) -> String {
    match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    }
}
