//! Copying a document through a projection.

use frond_bson::{ArrayBuf, Doc, DocBuf, Value};

use super::Kind;
use super::node::{Node, Rule};
use crate::bounds;
use crate::expr::{Context, Expr};
use crate::matcher::{ElemMatch, MatchedElement};
use frond_error::{Error, Result};

/// The elements that are shown of an array on the path of the positional operator.
pub(super) enum Element<'a> {
    /// The element that the filter matched in this document.
    Of(&'a Doc, Option<&'a MatchedElement>),
    /// Everything: an outer array on the path has been reduced to one element.
    Whole,
}

/// One application of a projection.
pub(super) struct Run<'a> {
    pub(super) kind: Kind,
    pub(super) element: Element<'a>,
    /// Variables and documents that expressions read.
    pub(super) context: Context<'a>,
}

/// Copies the fields of a document that rules for whole fields keep.
pub(super) fn flat(node: &Node, kind: Kind, doc: &Doc, out: &mut DocBuf) {
    let is_inclusion = kind == Kind::Inclusion;
    let mut missing = node.copied_fields();
    for element in doc.iter_raw() {
        let rule = node.find_flat(element.name_bytes());
        if rule.map_or(!is_inclusion, |(_, is_kept)| is_kept) {
            out.push_raw(&element);
        }
        if is_inclusion && rule.is_some_and(|(position, _)| missing.found_last(position)) {
            break;
        }
    }
}

impl Run<'_> {
    pub(super) fn document(&self, node: &Node, doc: &Doc, out: &mut DocBuf) -> Result<()> {
        let inclusion = self.kind == Kind::Inclusion;
        let mut missing = node.copied_fields();
        for element in doc.iter_raw() {
            let name = element.name();
            let Some((position, rule)) = node.find(name) else {
                if !inclusion {
                    out.push_raw(&element);
                }
                continue;
            };
            // Unchanged fields are copied without decoding.
            let value = match rule {
                Rule::Include | Rule::Exclude | Rule::Computed(_) => None,
                _ => element.value(),
            };
            match (rule, value) {
                (Rule::Exclude, _) => {}
                // In an exclusion a computed value takes the place of the old one.
                (Rule::Computed(_), _) if inclusion => {}
                (Rule::Computed(expression), _) => self.computed(expression, name, out)?,
                (Rule::Slice(slice), Some(Value::Array(items))) => {
                    out.push_array(name, |part| slice.copy(items, part));
                }
                (Rule::Positional, Some(Value::Array(items))) => match self.index()? {
                    Some(index) => push_element(name, items, index, out)?,
                    None => out.push_raw(&element),
                },
                (Rule::Include | Rule::Slice(_) | Rule::Positional, _) => out.push_raw(&element),
                (Rule::ElemMatch(_), _) if inclusion => {}
                (Rule::ElemMatch(condition), value) => elem_match(condition, name, value, out)?,
                (Rule::Children(children), Some(Value::Document(inner))) => {
                    out.push_doc(name, |out| self.document(children, inner, out))?;
                }
                (Rule::Children(children), Some(Value::Array(items))) => {
                    let index = if children.leads_to_positional() {
                        self.index()?
                    } else {
                        None
                    };
                    match index {
                        Some(index) => self.element(children, name, items, index, out)?,
                        None => out.push_array(name, |out| self.array(children, items, out))?,
                    }
                }
                (Rule::Children(children), _) if children.adds_fields() => {
                    out.push_doc(name, |out| self.added_fields(children, Doc::empty(), out))?;
                }
                (Rule::Children(_), _) if inclusion => {}
                (Rule::Children(_), _) => out.push_raw(&element),
            }
            if inclusion && missing.found_last(position) {
                break;
            }
        }
        if node.adds_fields() {
            self.added_fields(node, doc, out)?;
        }
        Ok(())
    }

    /// The fields that follow the copied ones, in the order of the specification.
    fn added_fields(&self, node: &Node, doc: &Doc, out: &mut DocBuf) -> Result<()> {
        for (name, rule) in node.fields() {
            match rule {
                Rule::ElemMatch(_) if self.kind == Kind::Exclusion => {}
                Rule::ElemMatch(condition) => elem_match(condition, name, doc.get(name), out)?,
                Rule::Computed(_) if self.kind == Kind::Exclusion && doc.contains_key(name) => {}
                Rule::Computed(expression) => self.computed(expression, name, out)?,
                // An existing field was replaced in place above.
                Rule::Children(children) if children.adds_fields() && !doc.contains_key(name) => {
                    out.push_doc(name, |out| self.added_fields(children, Doc::empty(), out))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn computed(&self, expression: &Expr, name: &str, out: &mut DocBuf) -> Result<()> {
        let value = expression.eval_part(&self.context)?;
        if let Some(value) = value.get() {
            bounds::push_field(out, name, &value)?;
        }
        bounds::release(value.heap_bytes());
        Ok(())
    }

    /// Projects the elements of an array. Those that are neither documents nor arrays give way to documents with the
    /// added fields; without such fields an inclusion drops them.
    fn array(&self, node: &Node, items: &Doc, out: &mut ArrayBuf) -> Result<()> {
        for item in items.iter_raw() {
            bounds::work(1)?;
            match item.value() {
                Some(Value::Document(inner)) => {
                    out.push_doc(|out| self.document(node, inner, out))?
                }
                Some(Value::Array(inner)) => out.push_array(|out| self.array(node, inner, out))?,
                _ if node.adds_fields() => {
                    out.push_doc(|out| self.added_fields(node, Doc::empty(), out))?;
                }
                _ if self.kind == Kind::Exclusion => out.push_raw(&item),
                _ => {}
            }
        }
        Ok(())
    }

    /// The index of the array element that the filter matched; `None` if an array is shown with all elements.
    fn index(&self) -> Result<Option<usize>> {
        let Element::Of(doc, matched) = &self.element else {
            return Ok(None);
        };
        let index = match matched {
            Some(matched) => matched.index(doc)?,
            None => None,
        };
        index.map(Some).ok_or_else(|| {
            Error::location(
                51246,
                "positional operator '.$' couldn't find a matching element in the array",
            )
        })
    }

    /// One element of the array that an inclusion makes of `items`, as an array. The index counts what the inclusion keeps.
    fn element(
        &self,
        node: &Node,
        name: &str,
        items: &Doc,
        index: usize,
        out: &mut DocBuf,
    ) -> Result<()> {
        let inside = Run {
            kind: self.kind,
            element: Element::Whole,
            context: self.context,
        };
        let mut shown = ArrayBuf::new();
        inside.array(node, items, &mut shown)?;
        push_element(name, &shown, index, out)
    }
}

/// One element of an array, as an array.
fn push_element(name: &str, items: &Doc, index: usize, out: &mut DocBuf) -> Result<()> {
    let item = items
        .iter_raw()
        .nth(index)
        .ok_or_else(|| Error::location(51247, "positional operator '.$' element mismatch"))?;
    out.push_array(name, |out| out.push_raw(&item));
    Ok(())
}

/// The first element that satisfies the condition, as an array with one element; nothing if there is none.
fn elem_match(
    condition: &ElemMatch,
    name: &str,
    value: Option<Value<'_>>,
    out: &mut DocBuf,
) -> Result<()> {
    if let Some(Value::Array(items)) = value
        && let Some(index) = condition.find(items)?
        && let Some(item) = items.iter_raw().nth(index)
    {
        out.push_array(name, |out| out.push_raw(&item));
    }
    Ok(())
}
