//! Reading expressions from BSON.

use super::node::{Eval, FieldPath, Node, Operator};
use crate::environment::Environment;
use crate::paths::is_reserved;
use frond_bson::{Collator, Doc, DocBuf, OwnedValue, Value};
use frond_error::{Error, ErrorCode, Result};

/// Marks a variable without a value among the values of `let`. No other code uses this deprecated type there: drivers
/// no longer send it.
pub(crate) const MISSING: Value<'static> = Value::Undefined;

/// A row of the table of operators.
pub(crate) struct Entry {
    pub(crate) operator: Operator,
    pub(crate) arguments: Arguments,
}

/// The form of an operator's argument.
pub(crate) enum Arguments {
    /// A list; one argument may be given without a list.
    Count {
        min: usize,
        max: usize,
    },
    /// A document of named arguments.
    Named(&'static [Named]),
    CustomOperator(ParseSpecial),
}

/// Parses an operator's argument in its custom form.
pub(crate) type ParseSpecial = fn(&mut Parser<'_>, &'static Operator, Value<'_>) -> Result<Node>;

impl Arguments {
    /// `max` of an operator that takes any number of arguments.
    pub(crate) const MANY: usize = usize::MAX;
}

/// Reads expressions; knows the variables that are bound around the current place.
pub(crate) struct Parser<'v> {
    /// The operator of a name.
    find: fn(&str) -> Option<&'static Entry>,
    /// Values of `let`, known before evaluation; the collator; the host of functions.
    environment: Environment<'v>,
    /// Whether this is the expression of `$redact`, which has variables of its own.
    redacts: bool,
    /// Names bound around the current place and their numbers.
    bound: Vec<(String, u32)>,
    next_variable: u32,
}

impl<'v> Parser<'v> {
    /// A parser with the variables of `let` and the collator, for the operators that `find` finds by name.
    pub(in crate::expr) fn with_operators(
        find: fn(&str) -> Option<&'static Entry>,
        environment: &Environment<'v>,
    ) -> Parser<'v> {
        Parser {
            find,
            environment: *environment,
            redacts: false,
            bound: Vec::new(),
            next_variable: 0,
        }
    }

    /// Collator of the operators and accumulators that compare values.
    pub(crate) fn collator(&self) -> &'v Collator {
        self.environment.collator
    }

    /// The environment that is known at parse time.
    pub(crate) fn environment(&self) -> &Environment<'v> {
        &self.environment
    }

    /// The node of an operator with its arguments.
    fn call(&self, operator: &'static Operator, nodes: Vec<Node>) -> Node {
        match operator.eval {
            Eval::Collated(_) => Node::Collated(operator, nodes, self.environment.collator.clone()),
            _ => Node::Call(operator, nodes),
        }
    }

    /// The same parser for the expression of `$redact`.
    pub(crate) fn redacting(self) -> Parser<'v> {
        Parser {
            redacts: true,
            ..self
        }
    }

    /// Reads an expression: a field path, a literal, an operator, an object or an array.
    pub(crate) fn parse(&mut self, value: Value<'_>) -> Result<Node> {
        match value {
            Value::String(text) if text.starts_with("$$") => self.variable(text),
            Value::String(text) if text.starts_with('$') => {
                let path = field_path(text, text.get(1..).unwrap_or_default())?;
                // Paths begin at `CURRENT`, which may be bound to something else.
                Ok(
                    match self.bound.iter().rev().find(|(name, _)| name == "CURRENT") {
                        Some((_, number)) => Node::Variable(*number, path),
                        None => Node::Root(path),
                    },
                )
            }
            Value::NotUtf8(_)
                if value.is_string()
                    && (value.string_bytes()).is_some_and(|text| text.starts_with(b"$")) =>
            {
                Err(Error::location(
                    16410,
                    format!(
                        "The field path {} has to be valid UTF-8",
                        crate::display::value(&value)
                    ),
                ))
            }
            Value::Document(doc) => self.object(doc),
            Value::Array(items) => {
                let items: Result<Vec<Node>> = items.values().map(|v| self.parse(v)).collect();
                Ok(Node::Array(items?))
            }
            literal => Ok(Node::Constant(literal.into())),
        }
    }

    fn object(&mut self, doc: &Doc) -> Result<Node> {
        if let Some((name, argument)) = doc.first()
            && name.starts_with('$')
        {
            if doc.count() > 1 {
                return Err(Error::location(
                    15983,
                    format!(
                        "An object representing an expression must have exactly one field: {}",
                        crate::display::doc(doc)
                    ),
                ));
            }
            return self.operator(name, argument);
        }
        let mut fields: Vec<(Box<str>, Node)> = Vec::new();
        for (name, value) in doc.iter() {
            check_field_name(name)?;
            if fields.iter().any(|(other, _)| **other == *name) {
                return Err(Error::location(
                    16406,
                    format!("duplicate field name specified in object literal: {name}"),
                ));
            }
            fields.push((name.into(), self.parse(value)?));
        }
        Ok(Node::Object(fields))
    }

    fn operator(&mut self, name: &str, argument: Value<'_>) -> Result<Node> {
        let Some(Entry {
            operator,
            arguments,
        }) = (self.find)(name)
        else {
            return Err(unknown(name));
        };
        match *arguments {
            Arguments::CustomOperator(parse) => parse(self, operator, argument),
            Arguments::Count { min, max } => self.positional(operator, min, max, argument),
            Arguments::Named(names) => self.named(operator, names, argument),
        }
    }

    /// Reads the arguments of an operator that takes a list, or one argument without a list.
    pub(crate) fn positional(
        &mut self,
        operator: &'static Operator,
        min: usize,
        max: usize,
        argument: Value<'_>,
    ) -> Result<Node> {
        let mut nodes = Vec::new();
        match argument {
            Value::Array(items) => {
                for item in items.values() {
                    nodes.push(self.parse(item)?);
                }
            }
            single => nodes.push(self.parse(single)?),
        }
        let count = nodes.len();
        if min == max && count != min {
            return Err(Error::location(
                16020,
                format!(
                    "Expression {} takes exactly {min} arguments. {count} were passed in.",
                    operator.name
                ),
            ));
        }
        if count < min || count > max {
            return Err(Error::location(
                28667,
                format!(
                    "Expression {} takes at least {min} arguments, and at most {max}, but {count} \
                     were passed in.",
                    operator.name
                ),
            ));
        }
        Ok(self.call(operator, nodes))
    }

    /// Reads the arguments of an operator that takes a document of named ones.
    pub(crate) fn named(
        &mut self,
        operator: &'static Operator,
        names: &[Named],
        argument: Value<'_>,
    ) -> Result<Node> {
        let Value::Document(doc) = argument else {
            return Err(Error::location(
                named_codes(operator.name).object,
                format!(
                    "{} only supports an object as its argument, found: {}",
                    operator.name,
                    argument.type_name()
                ),
            ));
        };
        let nodes = self.named_nodes(operator.name, names, doc)?;
        Ok(self.call(operator, nodes))
    }

    /// Refuses arguments of other names.
    pub(crate) fn check_named(&self, operator: &str, names: &[Named], doc: &Doc) -> Result<()> {
        match doc
            .iter()
            .find(|(name, _)| !names.iter().any(|known| known.name == *name))
        {
            Some((name, _)) => Err(Error::location(
                named_codes(operator).unknown,
                format!("Unrecognized argument to {operator}: {name}"),
            )),
            None => Ok(()),
        }
    }

    /// The named arguments in the order of `names`; those not given are absent.
    pub(crate) fn named_nodes(
        &mut self,
        operator: &str,
        names: &[Named],
        doc: &Doc,
    ) -> Result<Vec<Node>> {
        self.check_named(operator, names, doc)?;
        let mut nodes = Vec::with_capacity(names.len());
        for known in names {
            nodes.push(match doc.get(known.name) {
                Some(value) => self.parse(value)?,
                None if known.required => {
                    return Err(Error::location(
                        named_codes(operator).missing(known.name),
                        format!("Missing '{}' parameter to {operator}", known.name),
                    ));
                }
                None => Node::Absent,
            });
        }
        Ok(nodes)
    }

    /// `$$name` or `$$name.path`.
    fn variable(&mut self, text: &str) -> Result<Node> {
        let path = text.get(2..).unwrap_or_default();
        let (name, below) = match path.split_once('.') {
            Some((name, below)) => (name, Some(below)),
            None => (path, None),
        };
        check_variable_use(name)?;
        let below = match below {
            Some(below) => field_path(text, below)?,
            None => FieldPath::default(),
        };
        if let Some((_, number)) = self.bound.iter().rev().find(|(bound, _)| bound == name) {
            return Ok(Node::Variable(*number, below));
        }
        match name {
            "ROOT" if self.redacts => return Ok(Node::Whole(below)),
            "ROOT" | "CURRENT" => return Ok(Node::Root(below)),
            "KEEP" if self.redacts => return Ok(Node::Constant("keep".into())),
            "PRUNE" if self.redacts => return Ok(Node::Constant("prune".into())),
            "DESCEND" if self.redacts => return Ok(Node::Constant("descend".into())),
            "REMOVE" => return Ok(Node::Remove),
            "NOW" if below.0.is_empty() => return Ok(Node::Now),
            "NOW" => return Ok(Node::Remove),
            // Without users there are no roles.
            "USER_ROLES" => return Ok(Node::Constant(OwnedValue::Array(DocBuf::new()))),
            "CLUSTER_TIME" if let Some(time) = self.environment.cluster_time => {
                return Ok(if below.0.is_empty() {
                    Node::Constant(OwnedValue::Timestamp(time))
                } else {
                    Node::Remove
                });
            }
            "CLUSTER_TIME" | "JS_SCOPE" | "IS_MR" => {
                return Err(Error::location(
                    51144,
                    format!("Builtin variable '$${name}' is not available"),
                ));
            }
            "SEARCH_META" => {
                return Err(Error::not_supported(format!("the variable '$${name}'")));
            }
            _ => {}
        }
        match self.environment.variables.and_then(|c| c.get(name)) {
            Some(Value::Undefined) => Ok(Node::Remove),
            Some(value) => Ok(match below.get(value)?.into_value() {
                Some(value) => Node::Constant(value),
                None => Node::Remove,
            }),
            None => Err(Error::location(
                17276,
                format!("Use of undefined variable: {name}"),
            )),
        }
    }

    /// Binds names around what `parse` reads, and gives it the number of the first.
    ///
    /// Error 9 for names that a user may not bind.
    pub(crate) fn binding<T>(
        &mut self,
        names: &[&str],
        parse: impl FnOnce(&mut Self, u32) -> Result<T>,
    ) -> Result<T> {
        let first = self.next_variable;
        let outer = self.bound.len();
        for name in names {
            check_variable_name(name)?;
            self.bound.push(((*name).to_owned(), self.next_variable));
            self.next_variable += 1;
        }
        let result = parse(self, first)?;
        self.bound.truncate(outer);
        Ok(result)
    }
}

/// The error for a name that is not in the table.
pub(crate) fn unknown(name: &str) -> Error {
    Error::new(
        ErrorCode::InvalidPipelineOperator,
        format!("Unrecognized expression '{name}'"),
    )
}

/// The codes of errors in the named arguments of an operator.
struct NamedCodes {
    /// The argument is not a document.
    object: i32,
    /// It has a name that is not known.
    unknown: i32,
    /// It lacks a name; the names in order, the last code is that of the others.
    missing: &'static [(&'static str, i32)],
}

impl NamedCodes {
    fn missing(&self, name: &str) -> i32 {
        let found = self.missing.iter().find(|(known, _)| *known == name);
        found.or(self.missing.last()).map_or(9, |(_, code)| *code)
    }
}

/// Each operator has numbers of its own; those that are not here fail with 9.
fn named_codes(operator: &str) -> NamedCodes {
    let (object, unknown, missing): (i32, i32, &'static [(&'static str, i32)]) = match operator {
        "$dateToString" => (18629, 18534, &[("date", 18628)]),
        "$dateFromString" => (40540, 40541, &[("dateString", 40542)]),
        "$dateToParts" => (40524, 40520, &[("date", 40522)]),
        "$dateFromParts" => (40519, 40518, &[]),
        "$dateAdd" | "$dateSubtract" => (5166400, 5166401, &[("", 5166402)]),
        "$dateDiff" => (
            5166301,
            5166302,
            &[
                ("startDate", 5166303),
                ("endDate", 5166304),
                ("unit", 5166305),
            ],
        ),
        "$dateTrunc" => (5439007, 5439008, &[("date", 5439009), ("unit", 5439010)]),
        "$trim" | "$ltrim" | "$rtrim" => (50696, 50694, &[("input", 50695)]),
        "$zip" => (34460, 34464, &[("inputs", 34465)]),
        "$replaceOne" | "$replaceAll" => (
            51751,
            51750,
            &[("input", 51749), ("find", 51748), ("replacement", 51747)],
        ),
        "$regexMatch" | "$regexFind" | "$regexFindAll" => {
            (51103, 31024, &[("input", 31022), ("regex", 31023)])
        }
        "$firstN" | "$lastN" | "$minN" | "$maxN" => {
            (5787900, 5787901, &[("n", 5787906), ("input", 5787907)])
        }
        "$setField" => (
            4161100,
            4161101,
            &[("field", 4161102), ("value", 4161103), ("input", 4161109)],
        ),
        "$unsetField" => (4161100, 4161101, &[("field", 4161102), ("input", 4161109)]),
        _ => (9, 9, &[("", 9)]),
    };
    NamedCodes {
        object,
        unknown,
        missing,
    }
}

#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
}

/// A named argument that has to be given.
pub(crate) const fn required(name: &'static str) -> Named {
    Named {
        name,
        required: true,
    }
}

/// A named argument that may be left out.
pub(crate) const fn optional(name: &'static str) -> Named {
    Named {
        name,
        required: false,
    }
}

/// Splits a field path; `text` is what the user wrote, for messages.
pub(crate) fn field_path(text: &str, path: &str) -> Result<FieldPath> {
    if path.is_empty() {
        return Err(Error::location(
            16872,
            format!("'{text}' by itself is not a valid FieldPath"),
        ));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    let names: Vec<&str> = path.split('.').collect();
    if names.len() > frond_bson::MAX_DEPTH {
        return Err(Error::overflow(format!(
            "FieldPath is nested deeper than the limit of {}",
            frond_bson::MAX_DEPTH
        )));
    }
    for name in &names {
        if name.is_empty() {
            return Err(Error::location(
                15998,
                "FieldPath field names may not be empty strings.",
            ));
        }
        if is_reserved(name) {
            return Err(Error::location(
                16410,
                format!(
                    "FieldPath field names may not start with '$'. Consider using $getField or \
                     $setField. '{text}'"
                ),
            ));
        }
        if name.contains('\0') {
            return Err(Error::location(
                16411,
                "FieldPath field names may not contain '\\0'.",
            ));
        }
    }
    Ok(FieldPath(names.into_iter().map(Into::into).collect()))
}

/// A field name of an object expression.
fn check_field_name(name: &str) -> Result<()> {
    if name.starts_with('$') {
        return Err(Error::location(
            16410,
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or \
                 $setField. '{name}'"
            ),
        ));
    }
    if name.contains('.') {
        return Err(Error::location(
            16412,
            format!(
                "FieldPath field names may not contain '.'. Consider using $getField or \
                 $setField. '{name}'"
            ),
        ));
    }
    Ok(())
}

/// Names that users may bind begin with a lower-case letter; `CURRENT` is the one exception.
pub(crate) fn check_variable_name(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    let invalid = |why: &str| Error::failed_to_parse(format!("'{name}' {why}"));
    match name.chars().next() {
        None => {
            return Err(Error::failed_to_parse(
                "empty variable names are not allowed",
            ));
        }
        Some(first) if first.is_ascii_lowercase() || !first.is_ascii() => {}
        Some(_) => {
            return Err(invalid(
                "starts with an invalid character for a user variable name",
            ));
        }
    }
    if name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
    {
        return Ok(());
    }
    Err(invalid("contains an invalid character for a variable name"))
}

fn check_variable_use(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::failed_to_parse(
            "empty variable names are not allowed",
        ));
    }
    if name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::FailedToParse,
        format!("'{name}' contains an invalid character for a variable name"),
    ))
}

/// The literal that a node is, if it is one.
pub(crate) fn constant(node: &Node) -> Option<&OwnedValue> {
    match node {
        Node::Constant(value) => Some(value),
        _ => None,
    }
}
