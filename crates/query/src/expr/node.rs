//! The parsed form of an expression, and its evaluation.

use super::value::Val;
use crate::bounds;
use crate::meta::{MetaField, MetaFields, Metadata};
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, Result};
use std::fmt;

/// One node of an expression. Nesting is bounded by that of the document it was parsed from.
#[derive(Debug)]
pub(crate) enum Node {
    /// An optional argument that was not given.
    Absent,
    Constant(OwnedValue),
    /// `$$NOW`.
    Now,
    /// `$$REMOVE`.
    Remove,
    /// `$meta`.
    Meta(MetaField),
    /// A path that begins at the document: `$a.b`; with no names, the document itself.
    Root(FieldPath),
    /// A path that begins at the whole document, of which a part is evaluated.
    Whole(FieldPath),
    /// A path that begins at a variable: `$$v.a.b`.
    Variable(u32, FieldPath),
    /// `{name: <expression>, ..}`.
    Object(Vec<(Box<str>, Node)>),
    /// `[<expression>, ..]`.
    Array(Vec<Node>),
    /// An operator and its arguments.
    Call(&'static Operator, Vec<Node>),
    /// An operator that compares values, its arguments, and how strings compare.
    Collated(&'static Operator, Vec<Node>, Collator),
    /// An operator with a custom node, such as those that bind variables.
    Custom(Box<dyn CustomOperator>),
}

/// The custom node of an operator.
pub(crate) trait CustomOperator: fmt::Debug + Send + Sync {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>>;

    /// The expressions inside, for finding the fields that are used.
    fn visit(&self, visit: &mut dyn FnMut(&Node));
}

/// An operator as the nodes of parsed expressions know it.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) eval: Eval,
}

/// The function of an operator.
#[derive(Clone, Copy)]
pub(crate) enum Eval {
    One(for<'a> fn(Val<'a>) -> Result<Val<'a>>),
    Two(for<'a> fn(Val<'a>, Val<'a>) -> Result<Val<'a>>),
    /// Any number; of a list, those that were given. Named ones that were not given are missing.
    Many(for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>),
    /// As `Many`, but an argument that was given and is missing is null: only one that was not given
    /// is missing.
    Given(for<'a> fn(&[Val<'a>]) -> Result<Val<'a>>),
    /// Any number, as `Many`, of an operator that compares values: strings by the collator.
    Collated(for<'a> fn(&[Val<'a>], &Collator) -> Result<Val<'a>>),
    /// Evaluates its arguments itself, as far as it needs them.
    Lazy(for<'a> fn(&'a [Node], &Context<'a>) -> Result<Val<'a>>),
    /// Never called: parsing gives another node.
    Never,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The names of a path, without the dots.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FieldPath(pub(crate) Box<[Box<str>]>);

/// The context of an evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// `$$ROOT`.
    pub(crate) root: &'a Doc,
    /// `$$NOW`, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    pub(crate) frame: Option<&'a Frame<'a>>,
    /// The document that `root` is a part of, if it is a part: what `$redact` calls `$$ROOT`.
    pub(crate) whole: Option<&'a Doc>,
    /// The metadata for `$meta`.
    pub(crate) meta: Option<&'a Metadata>,
}

impl<'a> Context<'a> {
    /// A document at the time `now_ms`, in milliseconds since 1970.
    #[inline]
    pub fn new(root: &'a Doc, now_ms: i64) -> Context<'a> {
        Context {
            root,
            now_ms,
            frame: None,
            whole: None,
            meta: None,
        }
    }

    /// The context of a part of the document.
    pub(crate) fn below<'b>(&self, part: &'b Doc) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            root: part,
            whole: Some(self.root),
            ..*self
        }
    }

    /// The same with the metadata of the document.
    #[inline]
    pub fn with_meta(self, meta: Option<&'a Metadata>) -> Context<'a> {
        Context { meta, ..self }
    }
}

/// Variables bound around an expression, innermost first.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// The number of the first of them; the others follow.
    pub(crate) first: u32,
    pub(crate) values: &'a [Val<'a>],
    pub(crate) outer: Option<&'a Frame<'a>>,
}

impl<'a> Frame<'a> {
    fn find(&'a self, variable: u32) -> Option<&'a Val<'a>> {
        let mut frame = Some(self);
        while let Some(here) = frame {
            if let Some(at) = variable.checked_sub(here.first)
                && let Some(value) = here.values.get(at as usize)
            {
                return Some(value);
            }
            frame = here.outer;
        }
        None
    }
}

impl Node {
    /// The value over a document and variables, for callers outside of expressions, which count the bytes of the result
    /// themselves.
    ///
    /// # Errors
    /// Those of the operators, and those of the bounds of the evaluation.
    #[inline]
    pub(crate) fn evaluate<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        match self {
            Node::Constant(value) => return Ok(Val::Ref(value.as_value())),
            // A field is a part of the document, and reserves nothing.
            Node::Root(path) if path.0.len() < 2 => return path.get_of(context.root),
            _ => {}
        }
        bounds::releasing(|| self.eval(context))
    }

    /// The value as a part of a larger one: its bytes stay reserved.
    pub(crate) fn eval_part<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        self.eval(context)
    }

    /// The value over a document and variables. Its bytes stay reserved.
    pub(in crate::expr) fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        match self {
            Node::Absent | Node::Remove => Ok(Val::Missing),
            Node::Constant(value) => Ok(Val::Ref(value.as_value())),
            Node::Now => Ok(Val::Ref(Value::DateTime(context.now_ms))),
            Node::Meta(field) => Ok(context.meta.and_then(|meta| meta.get(*field)).into()),
            Node::Root(path) => path.get_of(context.root),
            Node::Whole(path) => path.get_of(context.whole.unwrap_or(context.root)),
            Node::Variable(variable, path) => {
                let value = context.frame.and_then(|frame| frame.find(*variable));
                match value.and_then(Val::get) {
                    Some(value) => {
                        if !bounds::is_scalar(&value) {
                            bounds::work_on_large(value.len_bytes())?;
                        }
                        path.get(value)
                    }
                    None => Ok(Val::Missing),
                }
            }
            Node::Object(fields) => {
                let mark = bounds::mark();
                let mut doc = DocBuf::new();
                for (name, node) in fields {
                    if let Some(value) = node.eval(context)?.get() {
                        bounds::push_field(&mut doc, name, &value)?;
                    }
                    bounds::settle(mark, doc.capacity());
                }
                Ok(Val::doc(doc))
            }
            Node::Array(items) => {
                let mark = bounds::mark();
                let mut array = ArrayBuf::new();
                for node in items {
                    bounds::push(&mut array, &node.eval(context)?.or_null())?;
                    bounds::settle(mark, array.capacity());
                }
                Ok(Val::array(array))
            }
            Node::Call(operator, arguments) => match (operator.eval, &**arguments) {
                (Eval::One(function), [a]) => {
                    let a = a.eval(context)?;
                    if a.is_scalar() {
                        return function(a);
                    }
                    let mark = bounds::mark().saturating_sub(a.heap_bytes());
                    without_arguments(mark, function(a))
                }
                (Eval::Two(function), [a, b]) => {
                    let (a, b) = (a.eval(context)?, b.eval(context)?);
                    if a.is_scalar() && b.is_scalar() {
                        return function(a, b);
                    }
                    let mark = bounds::mark().saturating_sub(a.heap_bytes() + b.heap_bytes());
                    without_arguments(mark, function(a, b))
                }
                (Eval::Many(function), nodes) => {
                    applied(all(nodes, context)?, |values| function(values))
                }
                (Eval::Given(function), nodes) => {
                    applied(all_given(nodes, context)?, |values| function(values))
                }
                (Eval::Lazy(function), nodes) => {
                    let mark = bounds::mark();
                    without_arguments(mark, function(nodes, context))
                }
                _ => Err(misparsed(operator, arguments)),
            },
            Node::Collated(operator, arguments, collator) => match operator.eval {
                Eval::Collated(function) => applied(all(arguments, context)?, |values| {
                    function(values, collator)
                }),
                _ => Err(misparsed(operator, arguments)),
            },
            Node::Custom(special) => {
                let mark = bounds::mark();
                without_arguments(mark, special.eval(context))
            }
        }
    }

    /// The value of an argument: missing only if it was not given, null if it is missing.
    pub(crate) fn eval_given<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        Ok(match self.eval(context)? {
            Val::Missing if !self.is_absent() => Val::NULL,
            value => value,
        })
    }

    /// Whether an optional argument was not given.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Node::Absent)
    }

    /// The metadata that the expression reads.
    pub(crate) fn meta(&self) -> MetaFields {
        let all = |nodes: &mut dyn Iterator<Item = &Node>| {
            nodes.fold(MetaFields::default(), |found, node| found | node.meta())
        };
        match self {
            Node::Meta(field) => (*field).into(),
            Node::Object(fields) => all(&mut fields.iter().map(|(_, node)| node)),
            Node::Array(nodes) | Node::Call(_, nodes) | Node::Collated(_, nodes, _) => {
                all(&mut nodes.iter())
            }
            Node::Custom(special) => {
                let mut found = MetaFields::default();
                special.visit(&mut |node| found = found | node.meta());
                found
            }
            _ => MetaFields::default(),
        }
    }

    /// The number of nodes.
    pub(crate) fn count(&self) -> usize {
        let sum = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(Node::count).sum::<usize>();
        let below = match self {
            Node::Object(fields) => sum(&mut fields.iter().map(|(_, node)| node)),
            Node::Array(nodes) | Node::Call(_, nodes) | Node::Collated(_, nodes, _) => {
                sum(&mut nodes.iter())
            }
            Node::Custom(special) => {
                let mut count = 0;
                special.visit(&mut |node| count += node.count());
                count
            }
            _ => 0,
        };
        1 + below
    }

    /// Calls `found` with every path into the document; the empty path is the whole document.
    pub(crate) fn fields(&self, found: &mut dyn FnMut(&FieldPath)) {
        match self {
            Node::Absent | Node::Constant(_) | Node::Now | Node::Remove | Node::Meta(_) => {}
            Node::Variable(..) => {}
            Node::Root(path) | Node::Whole(path) => found(path),
            Node::Object(fields) => fields.iter().for_each(|(_, node)| node.fields(found)),
            Node::Array(nodes) | Node::Call(_, nodes) | Node::Collated(_, nodes, _) => {
                nodes.iter().for_each(|node| node.fields(found));
            }
            Node::Custom(special) => special.visit(&mut |node| node.fields(found)),
        }
    }
}

/// The result of an operator, whose arguments are gone.
#[inline]
fn without_arguments(mark: usize, result: Result<Val<'_>>) -> Result<Val<'_>> {
    let kept = result.as_ref().map_or(0, Val::heap_bytes);
    bounds::settle(mark, kept);
    result
}

/// The result of a function of these values. Scalars reserve nothing, so nothing has to be released then.
#[inline]
fn applied<'a>(
    values: Vec<Val<'a>>,
    function: impl FnOnce(&[Val<'a>]) -> Result<Val<'a>>,
) -> Result<Val<'a>> {
    if values.len() <= FEW && values.iter().all(Val::is_scalar) {
        return function(&values);
    }
    let list = match values.len() {
        ..=FEW => 0,
        many => many * size_of::<Val<'_>>(),
    };
    let bytes: usize = values.iter().map(Val::heap_bytes).sum();
    let mark = bounds::mark().saturating_sub(list + bytes);
    without_arguments(mark, function(&values))
}

/// A list of this many arguments is too small to be reserved.
const FEW: usize = 32;

/// Reserves the list of the values of arguments, if they are many.
#[inline]
pub(in crate::expr) fn reserve_values(count: usize) -> Result<()> {
    if count > FEW {
        bounds::reserve_list::<Val<'_>>(count)
    } else {
        Ok(())
    }
}

/// The values of all arguments.
fn all<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Vec<Val<'a>>> {
    reserve_values(nodes.len())?;
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        values.push(node.eval(context)?);
    }
    Ok(values)
}

/// As [`all`], with null for those that are missing.
fn all_given<'a>(nodes: &'a [Node], context: &Context<'a>) -> Result<Vec<Val<'a>>> {
    reserve_values(nodes.len())?;
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        values.push(node.eval_given(context)?);
    }
    Ok(values)
}

fn misparsed(operator: &Operator, arguments: &[Node]) -> Error {
    Error::internal(format!(
        "{} was parsed with {} arguments",
        operator.name,
        arguments.len()
    ))
}

impl FieldPath {
    /// The names with dots between them.
    pub(crate) fn dotted(&self) -> String {
        self.0.join(".")
    }

    /// The value in a document, for callers outside of expressions.
    ///
    /// # Errors
    /// Those of the bounds of the evaluation.
    pub(crate) fn value_of<'a>(&self, doc: &'a Doc) -> Result<Val<'a>> {
        bounds::releasing(|| self.get_of(doc))
    }

    /// The value in a document.
    #[inline]
    fn get_of<'a>(&self, doc: &'a Doc) -> Result<Val<'a>> {
        // A field is found after those before it were skipped, which costs less than reading them.
        bounds::work_on_large(doc.len_bytes() / 4)?;
        self.get(Value::Document(doc))
    }

    /// The value below `start`. Arrays on the way are mapped: the result is the array of what their
    /// documents have there.
    pub(crate) fn get<'a>(&self, start: Value<'a>) -> Result<Val<'a>> {
        get(&self.0, start)
    }
}

fn get<'a>(names: &[Box<str>], mut value: Value<'a>) -> Result<Val<'a>> {
    let mut rest = names;
    while let Some((name, below)) = rest.split_first() {
        match value {
            Value::Document(doc) => match doc.get(name) {
                Some(found) => value = found,
                None => return Ok(Val::Missing),
            },
            Value::Array(items) => {
                let mark = bounds::mark();
                let mut array = ArrayBuf::new();
                for item in items.values() {
                    // Arrays directly inside arrays are not entered.
                    if let Value::Document(doc) = item {
                        bounds::work_on(doc.len_bytes())?;
                        if let Some(found) = get(rest, item)?.get() {
                            bounds::push(&mut array, &found)?;
                        }
                        bounds::settle(mark, array.capacity());
                    }
                }
                return Ok(Val::array(array));
            }
            _ => return Ok(Val::Missing),
        }
        rest = below;
    }
    Ok(Val::Ref(value))
}
