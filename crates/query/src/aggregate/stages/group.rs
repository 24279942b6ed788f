//! `$group`, and the stages that are short for it: `$count`, `$sortByCount`.

use super::Stage;
use super::sort::Sort;
use crate::aggregate::ParseContext;
use crate::aggregate::accumulators::{self, Accumulator, Plan};
use crate::aggregate::exec::{Blocking, ExecContext, Fault, Memory, Source};
use crate::display;
use crate::error::{Error, Result};
use crate::expr::{Context, Node, Parser};
use frond_bson::{Collator, Doc, DocBuf, OwnedValue, Value, doc};
use std::collections::HashMap;
use std::sync::Arc;

/// `{$group: {_id: <expression>, <field>: {<accumulator>: <argument>}, ..}}`.
#[derive(Debug)]
pub(crate) struct Group {
    id: Node,
    /// Ids that are equal so are one group.
    collator: Collator,
    fields: Vec<(Box<str>, Plan)>,
}

impl Group {
    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        self.id.fields(&mut |path| found(path.dotted()));
        for (_, plan) in &self.fields {
            plan.input.fields(&mut |path| found(path.dotted()));
            if let accumulators::Start::Sorted(_) = plan.start {
                // The sort order reads fields too; all may be needed.
                found(String::new());
            }
        }
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            15947,
            "a group's fields must be specified in an object",
        ));
    };
    let mut parser = Parser::new(&context.environment);
    let mut id = None;
    let mut fields: Vec<(Box<str>, Plan)> = Vec::new();
    for (name, value) in spec.iter() {
        if name == "_id" {
            if id.is_some() {
                return Err(Error::location(
                    15948,
                    "a group's _id may only be specified once",
                ));
            }
            id = Some(parser.parse(value)?);
            continue;
        }
        if fields.iter().any(|(other, _)| **other == *name) {
            return Err(Error::location(
                16406,
                format!("duplicate field name specified in $group: {name}"),
            ));
        }
        fields.push((name.into(), parse_field(&mut parser, name, value)?));
    }
    let id =
        id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    out.push(Stage::Group(Arc::new(Group {
        id,
        collator: context.environment.collator.clone(),
        fields,
    })));
    Ok(())
}

fn parse_field(parser: &mut Parser<'_>, name: &str, value: Value<'_>) -> Result<Plan> {
    if name.contains('.') {
        return Err(Error::location(
            40235,
            format!("The field name '{name}' cannot contain '.'"),
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            40236,
            format!("The field name '{name}' cannot be an operator name"),
        ));
    }
    let Value::Document(spec) = value else {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    };
    let mut operators = spec.iter();
    let Some((operator, argument)) = operators.next() else {
        return Err(Error::location(
            40234,
            format!("The field '{name}' must be an accumulator object"),
        ));
    };
    if operators.next().is_some() {
        return Err(Error::location(
            40238,
            format!("The field '{name}' must specify one accumulator"),
        ));
    }
    if matches!(operator, "$accumulator" | "$median" | "$percentile") {
        return Err(Error::not_supported(format!(
            "the accumulator '{operator}'"
        )));
    }
    let Some(known) = accumulators::find(operator) else {
        return Err(Error::location(
            15952,
            format!("unknown group operator '{operator}'"),
        ));
    };
    if matches!(argument, Value::Array(_)) && takes_one(operator) {
        return Err(Error::location(
            40237,
            format!("The {operator} accumulator is a unary operator"),
        ));
    }
    (known.parse)(parser, operator, argument)
}

/// Whether a list of arguments is refused; `$push: [..]` makes an array instead.
fn takes_one(operator: &str) -> bool {
    matches!(
        operator,
        "$sum"
            | "$avg"
            | "$min"
            | "$max"
            | "$stdDevPop"
            | "$stdDevSamp"
            | "$first"
            | "$last"
            | "$addToSet"
            | "$mergeObjects"
            | "$push"
    )
}

/// `{$count: "name"}` is `$group` with a sum of ones, without its `_id`.
pub(super) fn parse_count(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::String(name) = argument else {
        return Err(Error::location(
            40156,
            "the count field must be a non-empty string",
        ));
    };
    let problem = match name {
        "" => Some((40157, "the count field must be a non-empty string")),
        "_id" => Some((9039800, "the count field cannot be '_id'")),
        name if name.starts_with('$') => {
            Some((40158, "the count field cannot be a $-prefixed path"))
        }
        name if name.contains('\0') => Some((40159, "the count field cannot contain a null byte")),
        name if name.contains('.') => Some((40160, "the count field cannot contain '.'")),
        _ => None,
    };
    if let Some((code, message)) = problem {
        return Err(Error::location(code, message));
    }
    let mut group = doc! {"_id": null};
    group.push_doc(name, |sum| sum.push("$sum", 1));
    parse(Value::Document(&group), context, out)?;
    super::transform::project(Value::Document(&doc! {"_id": 0}), context, out)
}

/// `{$sortByCount: <expression>}` groups by it, counts and sorts by the count.
pub(super) fn parse_sort_by_count(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    match argument {
        Value::Document(spec) => {
            if !spec.first().is_some_and(|(name, _)| name.starts_with('$')) {
                return Err(Error::location(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression \
                     inside an object",
                ));
            }
        }
        Value::String(path) if path.starts_with('$') => {}
        Value::String(_) => {
            return Err(Error::location(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression \
                 inside an object",
            ));
        }
        _ => {
            return Err(Error::location(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            ));
        }
    }
    let group = doc! {"_id": argument, "count": {"$sum": 1}};
    parse(Value::Document(&group), context, out)?;
    let sort = Sort::new(doc! {"count": -1}, context.environment.collator)?;
    out.push(Stage::Sort(Arc::new(sort)));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Group>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let memory = Memory::new("$group", context.memory_bytes_max);
    let now_ms = context.now_ms;
    Box::new(Blocking::new(input, move |mut input: Source<E>| {
        let mut groups = Groups::new(&stage, memory);
        while let Some(doc) = input.next()? {
            groups.add(&doc, now_ms)?;
        }
        Ok(groups.finish()?)
    }))
}

/// Bytes beside its values that one group takes, and one accumulator.
const GROUP_BYTES: usize = 96;
const ACCUMULATOR_BYTES: usize = 96;

struct Groups<'g> {
    stage: &'g Group,
    memory: Memory,
    /// The place in `states` by the key of `_id`: equal numbers of different types are one group.
    by_key: HashMap<Vec<u8>, usize>,
    /// In the order of their first documents.
    states: Vec<(OwnedValue, Vec<Box<dyn Accumulator>>)>,
    scratch: Vec<u8>,
}

impl<'g> Groups<'g> {
    fn new(stage: &'g Group, memory: Memory) -> Groups<'g> {
        Groups {
            stage,
            memory,
            by_key: HashMap::new(),
            states: Vec::new(),
            scratch: Vec::new(),
        }
    }

    fn add(&mut self, doc: &Doc, now_ms: i64) -> Result<()> {
        let context = Context::new(doc, now_ms);
        let id = self.stage.id.eval(&context)?;
        let id = id.or_null();
        self.scratch.clear();
        self.stage.collator.encode(&id, &mut self.scratch);
        let at = match self.by_key.get(&self.scratch) {
            Some(at) => *at,
            None => {
                super::add_fields::check_depth(&id)?;
                self.memory.add(
                    GROUP_BYTES
                        + self.scratch.len()
                        + id.len_bytes()
                        + ACCUMULATOR_BYTES * self.stage.fields.len(),
                )?;
                let at = self.states.len();
                self.by_key.insert(self.scratch.clone(), at);
                let fields = self.stage.fields.iter();
                let states = fields.map(|(_, plan)| plan.start.begin()).collect();
                self.states.push((id.to_owned(), states));
                at
            }
        };
        let Some((_, states)) = self.states.get_mut(at) else {
            return Ok(());
        };
        for ((_, plan), state) in self.stage.fields.iter().zip(states) {
            if state.wants_more() {
                let value = plan.input.eval(&context)?;
                let grown = state.add(&value, &context)?;
                if grown > 0 {
                    self.memory.add(grown)?;
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<DocBuf>> {
        let mut docs = Vec::with_capacity(self.states.len());
        for (id, states) in self.states {
            let mut doc = DocBuf::new();
            doc.push("_id", &id);
            for ((name, _), state) in self.stage.fields.iter().zip(states) {
                if let Some(value) = state.result() {
                    super::add_fields::check_depth(&value.as_value()).map_err(|error| {
                        error.context(format!(
                            "$group: {}",
                            display::element("field", &Value::String(name))
                        ))
                    })?;
                    doc.push(name, &value);
                }
            }
            docs.push(doc);
        }
        Ok(docs)
    }
}
