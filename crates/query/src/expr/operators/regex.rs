//! `$regexMatch`, `$regexFind`, `$regexFindAll`.

use std::ops::Range;

use super::{Entry, Eval, Operator, custom};
use crate::bounds;
use crate::expr::node::{Context, CustomOperator, Node};
use crate::expr::parse::{Named, Parser, constant, optional, required};
use crate::expr::value::Val;
use crate::pattern::{Failure, Found, Pattern};
use frond_bson::{ArrayBuf, DocBuf, Value};
use frond_error::{Error, Result};

pub(super) const OPERATORS: &[Entry] = &[
    custom(
        "$regexMatch",
        |p, o, v| parse(p, o, v, Mode::Match),
        Eval::Never,
    ),
    custom(
        "$regexFind",
        |p, o, v| parse(p, o, v, Mode::Find),
        Eval::Never,
    ),
    custom(
        "$regexFindAll",
        |p, o, v| parse(p, o, v, Mode::FindAll),
        Eval::Never,
    ),
];

const NAMES: &[Named] = &[required("input"), required("regex"), optional("options")];

/// The bytes of a match besides its texts, and of a group in it, at most.
const MATCH_BYTES: usize = 64;
const GROUP_BYTES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Match,
    Find,
    FindAll,
}

#[derive(Debug)]
struct Search {
    name: &'static str,
    mode: Mode,
    nodes: Vec<Node>,
    /// Compiled once where regex and options are literals.
    pattern: Option<Pattern>,
}

fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
    mode: Mode,
) -> Result<Node> {
    let name = operator.name;
    let Value::Document(doc) = argument else {
        return Err(Error::location(
            51103,
            format!(
                "{name} expects an object of named arguments but found: {}",
                argument.type_name()
            ),
        ));
    };
    let nodes = parser.named_nodes(name, NAMES, doc)?;
    let literal = |node: &Node| match node {
        Node::Absent => Some(Val::Missing),
        node => constant(node).map(|value| Val::Owned(value.clone())),
    };
    let pattern = match &*nodes {
        [_, regex, options] => match (literal(regex), literal(options)) {
            (Some(regex), Some(options)) => compile(name, &regex, &options)?,
            _ => None,
        },
        _ => None,
    };
    Ok(Node::Custom(Box::new(Search {
        name,
        mode,
        nodes,
        pattern,
    })))
}

/// Compiles a pattern; `None` if it is null.
fn compile(name: &str, regex: &Val<'_>, options: &Val<'_>) -> Result<Option<Pattern>> {
    let options = match options.get() {
        None | Some(Value::Null | Value::Undefined) => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => {
            return Err(Error::location(
                51106,
                format!("{name} needs 'options' to be of type string"),
            ));
        }
    };
    match regex.or_null() {
        Value::Null | Value::Undefined => Ok(None),
        Value::String(pattern) => Pattern::new(pattern, options.unwrap_or_default()).map(Some),
        Value::Regex {
            pattern,
            options: own,
        } => {
            if !own.is_empty() && options.is_some_and(|o| !o.is_empty()) {
                return Err(Error::location(
                    51107,
                    format!(
                        "{name}: found regex options specified in both 'regex' and 'options' fields"
                    ),
                ));
            }
            let options = if own.is_empty() {
                options.unwrap_or_default()
            } else {
                own
            };
            Pattern::new(pattern, options).map(Some)
        }
        pattern if pattern.is_string() || pattern.is_regex() => {
            Pattern::from_value(&pattern).map(Some)
        }
        _ => Err(Error::location(
            51105,
            format!("{name} needs 'regex' to be of type string or regex"),
        )),
    }
}

impl Search {
    fn nothing<'a>(&self) -> Val<'a> {
        match self.mode {
            Mode::Match => false.into(),
            Mode::Find => Val::NULL,
            Mode::FindAll => Val::array(ArrayBuf::new()),
        }
    }

    fn search<'a>(&self, pattern: &Pattern, text: &str) -> Result<Val<'a>> {
        let failed = |failure: Failure| {
            let action = format_args!("the regular expression in {}", self.name);
            failure.into_error(51156, action)
        };
        if self.mode == Mode::Match {
            return Ok(pattern.test(text).map_err(failed)?.into());
        }
        let mark = bounds::mark();
        let mut all = ArrayBuf::new();
        // Code points before the last match, so that each is counted once.
        let (mut counted, mut bytes) = (0, 0);
        let mut from = 0;
        while let Some(found) = pattern.find(text, from).map_err(failed)? {
            // A search may read the rest of the text before it finds the next match.
            bounds::work_on(text.len())?;
            counted += text
                .get(bytes..found.whole.start)
                .map_or(0, |s| s.chars().count());
            bytes = found.whole.start;
            let next = next_start(text, &found.whole);
            let found = document(text, &found, counted)?;
            if self.mode == Mode::Find {
                return Ok(Val::doc(found));
            }
            bounds::push(&mut all, &Value::Document(&found))?;
            bounds::settle(mark, all.capacity());
            if next >= text.len() {
                break;
            }
            from = next;
        }
        Ok(match self.mode {
            Mode::FindAll => Val::array(all),
            _ => Val::NULL,
        })
    }
}

/// The position from which the search continues after a match. After an empty one it skips a character; at the end there is no further search, as
/// in MongoDB.
fn next_start(text: &str, whole: &Range<usize>) -> usize {
    if whole.is_empty() {
        let skipped = text.get(whole.end..).and_then(|rest| rest.chars().next());
        whole.end + skipped.map_or(1, char::len_utf8)
    } else {
        whole.end
    }
}

/// The match that `found` is, `idx` code points after the start of the text.
fn document(text: &str, found: &Found, idx: usize) -> Result<DocBuf> {
    let part = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default();
    let groups_bytes: usize = found.groups.iter().flatten().map(Range::len).sum();
    let bytes = MATCH_BYTES + found.whole.len() + groups_bytes + GROUP_BYTES * found.groups.len();
    bounds::reserve(bytes)?;
    let mut document = DocBuf::with_capacity(bytes);
    document.push("match", part(&found.whole));
    document.push("idx", idx as i32);
    document.push_array("captures", |array| {
        for group in &found.groups {
            array.push_value(&match group {
                Some(range) => Value::String(part(range)),
                None => Value::Null,
            });
        }
    });
    Ok(document)
}

impl CustomOperator for Search {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let [input, regex, options] = &*self.nodes else {
            return Ok(Val::NULL);
        };
        let input = input.eval(context)?;
        let computed;
        let pattern = match &self.pattern {
            Some(pattern) => Some(pattern),
            None => {
                let (regex, options) = (regex.eval(context)?, options.eval(context)?);
                computed = compile(self.name, &regex, &options)?;
                computed.as_ref()
            }
        };
        match (input.or_null(), pattern) {
            (Value::Null | Value::Undefined, _) | (_, None) => Ok(self.nothing()),
            (Value::String(text) | Value::Symbol(text), Some(pattern)) => {
                self.search(pattern, text)
            }
            (text, Some(_)) if text.string_bytes().is_some() => Err(Error::location(
                51156,
                format!(
                    "Error occurred while executing the regular expression in {}: the 'input' is \
                     not valid UTF-8",
                    self.name
                ),
            )),
            (other, Some(_)) => Err(Error::location(
                51104,
                format!(
                    "{} needs 'input' to be of type string, found {}",
                    self.name,
                    other.type_name()
                ),
            )),
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        self.nodes.iter().for_each(visit);
    }
}
