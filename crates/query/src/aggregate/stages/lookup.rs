//! `$lookup`: documents of another collection as an array field.

use super::unwind::Unwind;
use super::{Operator, Stage};
use crate::aggregate::exec::{DocSource, Docs, ExecContext, Fault, Source};
use crate::aggregate::{ParseContext, Pipeline};
use crate::bounds::{self, check_bytes};
use crate::environment::Environment;
use crate::expr::{Context, FieldPath, Node, Parser, Val, field_path};
use crate::memory::StageMemory;
use crate::paths::{array_index, check_field_path};
use crate::script::ScriptHost;
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, OwnedValue, Timestamp, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// `{$lookup: {from: .., localField: .., foreignField: .., let: .., pipeline: [..], as: ..}}`.
#[derive(Debug)]
pub(crate) struct Lookup {
    database: Option<String>,
    /// Absent where the pipeline makes its own documents.
    collection: Option<String>,
    /// Local path and foreign path.
    fields: Option<(FieldPath, String)>,
    /// Names and values of `let`.
    bindings: Vec<(String, Node)>,
    /// Values of the command's `let`.
    outer: Option<DocBuf>,
    collator: Collator,
    /// The pipeline, read once. Where it has variables of `let`, they are null in it.
    pipeline: Pipeline,
    /// Its stages, if there are variables.
    parts: Vec<Part>,
    depth: usize,
    into: Vec<Box<str>>,
    /// Makes the functions of the pipeline.
    scripts: &'static dyn ScriptHost,
    cluster_time: Option<Timestamp>,
}

/// A stage of a pipeline with variables.
#[derive(Debug)]
enum Part {
    /// It does not use them, so it was read once.
    Fixed(Vec<Stage>),
    /// Its name and its argument are read for each document, with the values of the variables.
    Bound(&'static Operator, OwnedValue),
}

/// Whether a part of a stage may use a variable. A text that is none is taken for one that is.
fn uses(value: &Value<'_>, variables: &[(String, Node)]) -> bool {
    match value {
        Value::String(text) => text.strip_prefix("$$").is_some_and(|path| {
            let name = path.split('.').next().unwrap_or(path);
            variables.iter().any(|(variable, _)| variable == name)
        }),
        Value::Document(inner) => inner.values().any(|value| uses(&value, variables)),
        Value::Array(list) => list.values().any(|value| uses(&value, variables)),
        _ => false,
    }
}

/// Divides a pipeline that was read as a whole.
fn parts_of(
    stages: &Doc,
    variables: &[(String, Node)],
    context: &ParseContext<'_>,
) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (name, argument) in stages.values().filter_map(|stage| stage.as_doc()?.first()) {
        let operator = super::find(name)?;
        if uses(&argument, variables) {
            parts.push(Part::Bound(operator, OwnedValue::from(argument)));
            continue;
        }
        let mut fixed = Vec::new();
        (operator.parse)(argument, context, &mut fixed)?;
        parts.push(Part::Fixed(fixed));
    }
    Ok(parts)
}

impl Lookup {
    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        if let Some((local, _)) = &self.fields {
            found(local.dotted());
        }
        for (_, node) in &self.bindings {
            node.fields(&mut |path| found(path.dotted()));
        }
    }
}

/// The arguments as they are written.
#[derive(Default)]
struct Arguments<'a> {
    database: Option<String>,
    collection: Option<String>,
    local: Option<&'a str>,
    foreign: Option<&'a str>,
    into: Option<&'a str>,
    bindings: Option<&'a Doc>,
    stages: Option<&'a Doc>,
}

impl<'a> Arguments<'a> {
    fn read(spec: &'a Doc) -> Result<Arguments<'a>> {
        let mut read = Arguments::default();
        for (at, (name, value)) in spec.iter().enumerate() {
            if spec.iter().take(at).any(|(other, _)| other == name) {
                return Err(Error::failed_to_parse(format!(
                    "$lookup argument '{name}' is given twice"
                )));
            }
            read.argument(name, value)?;
        }
        Ok(read)
    }

    fn argument(&mut self, name: &str, value: Value<'a>) -> Result<()> {
        match (name, value) {
            // Null is left out.
            ("localField" | "foreignField" | "as" | "let", value) if value.is_nullish() => {}
            ("from", Value::String(name)) => self.collection = Some(name.to_owned()),
            ("from", Value::Document(spec)) => {
                self.database = spec.get_str("db").map(str::to_owned);
                self.collection = spec.get_str("coll").map(str::to_owned);
            }
            ("localField", Value::String(path)) => self.local = Some(path),
            ("foreignField", Value::String(path)) => self.foreign = Some(path),
            ("as", Value::String(path)) => self.into = Some(path),
            ("let", Value::Document(spec)) => self.bindings = Some(spec),
            ("pipeline", Value::Array(array)) => self.stages = Some(array),
            ("let", other) => {
                return Err(Error::failed_to_parse(format!(
                    "$lookup argument '{}' must be an object, is type {}",
                    crate::display::element(name, &other),
                    other.type_name()
                )));
            }
            ("pipeline", _) => {
                return Err(Error::type_mismatch(
                    "'pipeline' option must be specified as an array",
                ));
            }
            ("from" | "localField" | "foreignField" | "as", other) => {
                return Err(Error::failed_to_parse(format!(
                    "$lookup argument '{}' must be a string, is type {}",
                    crate::display::element(name, &other),
                    other.type_name()
                )));
            }
            _ => {
                return Err(Error::failed_to_parse(format!(
                    "unknown argument to $lookup: {name}"
                )));
            }
        }
        Ok(())
    }

    /// The fields that have to be equal.
    fn fields(&self) -> Result<Option<(FieldPath, String)>> {
        match (self.local, self.foreign) {
            (Some(local), Some(foreign)) => {
                let local = field_path(local, local)?;
                check_field_path(foreign)?;
                Ok(Some((local, foreign.to_owned())))
            }
            (None, None) => Ok(None),
            _ => Err(Error::failed_to_parse(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be \
                 specified",
            )),
        }
    }
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(
            "the $lookup stage specification must be an object",
        ));
    };
    let arguments = Arguments::read(spec)?;
    let into = (arguments.into)
        .ok_or_else(|| Error::failed_to_parse("must specify 'as' field for a $lookup"))?;
    check_field_path(into)?;
    let fields = arguments.fields()?;
    if fields.is_none() && arguments.stages.is_none() {
        return Err(Error::failed_to_parse(
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be \
             specified",
        ));
    }
    let mut parser = Parser::new(&context.environment);
    let mut nodes = Vec::new();
    for (name, value) in arguments.bindings.unwrap_or(Doc::empty()).iter() {
        crate::expr::check_variable_name(name)?;
        nodes.push((name.to_owned(), parser.parse(value)?));
    }
    let stages = arguments.stages.unwrap_or(Doc::empty());
    // Parsed with placeholders, so that mistakes are reported before anything runs.
    let mut placeholders = context
        .environment
        .variables
        .unwrap_or(Doc::empty())
        .to_owned();
    for (name, _) in &nodes {
        placeholders.push(name, Value::Null);
    }
    let depth = context.depth + 1;
    let inner = ParseContext {
        environment: Environment {
            variables: Some(&placeholders),
            ..context.environment
        },
        depth,
    };
    let pipeline = Pipeline::parse_in(stages, &inner)?;
    if arguments.collection.is_none() && !pipeline.has_documents() {
        return Err(Error::failed_to_parse(
            "must specify 'from' field for a $lookup",
        ));
    }
    let parts = if nodes.is_empty() {
        Vec::new()
    } else {
        parts_of(stages, &nodes, &inner)?
    };
    out.push(Stage::Lookup(Arc::new(Lookup {
        database: arguments.database,
        collection: arguments.collection,
        fields,
        pipeline,
        parts,
        bindings: nodes,
        outer: context.environment.variables.map(Doc::to_owned),
        collator: context.environment.collator.clone(),
        depth,
        into: into.split('.').map(Into::into).collect(),
        scripts: context.environment.scripts,
        cluster_time: context.environment.cluster_time,
    })));
    Ok(())
}

pub(super) fn open<E: Fault>(
    stage: &Arc<Lookup>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Joining {
        stage: stage.clone(),
        held: context.held(),
        input,
        context: context.clone(),
    })
}

struct Joining<E> {
    stage: Arc<Lookup>,
    held: StageMemory,
    input: Source<E>,
    context: ExecContext<E>,
}

impl<E: Fault> DocSource<E> for Joining<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        let Some(doc) = self.input.next()? else {
            return Ok(None);
        };
        let mut source = self.stage.search(&doc, &self.context)?;
        let mut found = ArrayBuf::new();
        while let Some(doc) = source.next()? {
            found.push(&doc);
            check_bytes(found.len_bytes())?;
            (self.held).require(doc.len_bytes() + found.capacity(), "$lookup")?;
        }
        let joined = super::unwind::with_value(&doc, &self.stage.into, Some(found.as_value()));
        Ok(Some(joined))
    }
}

/// Opens `$lookup` and the `$unwind` of what it found: a document for each that is found.
pub(super) fn open_unwound<E: Fault>(
    stage: &Arc<Lookup>,
    unwind: &Arc<Unwind>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Unwound {
        stage: stage.clone(),
        unwind: unwind.clone(),
        input,
        held: context.held(),
        context: context.clone(),
        current: None,
    })
}

struct Unwound<E> {
    stage: Arc<Lookup>,
    unwind: Arc<Unwind>,
    input: Source<E>,
    context: ExecContext<E>,
    held: StageMemory,
    /// A document, what is found for it, and how many of them there were already.
    current: Option<(DocBuf, Source<E>, i64)>,
}

impl<E: Fault> DocSource<E> for Unwound<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        loop {
            let Some((doc, source, number)) = &mut self.current else {
                let Some(doc) = self.input.next()? else {
                    return Ok(None);
                };
                self.held.require(doc.len_bytes(), "$lookup")?;
                let source = self.stage.search(&doc, &self.context)?;
                self.current = Some((doc, source, 0));
                continue;
            };
            let (value, index) = match source.next()? {
                Some(found) => (Some(found), Some(*number)),
                None if *number == 0 && self.unwind.preserves() => (None, None),
                None => {
                    self.current = None;
                    continue;
                }
            };
            let value = value.as_deref().map(Value::Document);
            let joined = super::unwind::with_value(doc, &self.stage.into, value);
            let joined = self.unwind.indexed(joined, index);
            if index.is_none() {
                self.current = None;
            } else {
                *number += 1;
            }
            return Ok(Some(joined));
        }
    }
}

impl Lookup {
    /// The path that the stage writes.
    pub(crate) fn written_path(&self) -> String {
        self.into.join(".")
    }

    /// The first name of that path.
    pub(crate) fn written_name(&self) -> &str {
        self.into.first().map_or("", |name| name)
    }

    fn search<E: Fault>(&self, doc: &Doc, context: &ExecContext<E>) -> Result<Source<E>, E> {
        if let Some(found) = self.by_id(doc, context)? {
            return Ok(Box::new(Docs::new(found.into_iter().collect())));
        }
        let pipeline = bounds::parsing(|| self.pipeline_for(doc, context.now_ms))?;
        match &self.collection {
            Some(collection) => {
                let database = self.database.as_deref();
                context.host.run("$lookup", database, collection, pipeline)
            }
            None => pipeline.execute(Box::new(Docs::new(Vec::new())), context),
        }
    }

    /// The document of the other collection whose `_id` is the local value, if that is all that is asked for: a pipeline for each
    /// document would take several times as long. The outer `None`: it takes one.
    fn by_id<E: Fault>(
        &self,
        doc: &Doc,
        context: &ExecContext<E>,
    ) -> Result<Option<Option<DocBuf>>, E> {
        let (Some(collection), Some((local, foreign))) = (&self.collection, &self.fields) else {
            return Ok(None);
        };
        let is_plain = self.bindings.is_empty() && self.pipeline.stages.is_empty();
        if foreign != "_id" || !is_plain || !self.collator.is_binary() {
            return Ok(None);
        }
        let mut values = Vec::new();
        let path = local.dotted();
        let names: Vec<&str> = path.split('.').collect();
        local_values(Value::Document(doc), &names, &mut values);
        let [id] = values.as_slice() else {
            return Ok(None);
        };
        let database = self.database.as_deref();
        context.host.find_by_id(database, collection, id)
    }

    /// The pipeline that runs over the other collection for one document.
    fn pipeline_for(&self, doc: &Doc, now_ms: i64) -> Result<Pipeline> {
        let mut pipeline = if self.bindings.is_empty() {
            self.pipeline.clone()
        } else {
            let context = Context::new(doc, now_ms);
            let mut variables = DocBuf::new();
            for (name, node) in &self.bindings {
                let value: Val<'_> = node.evaluate(&context)?;
                variables.push_value(name, &value.get().unwrap_or(crate::expr::MISSING));
            }
            // Inner names hide outer ones, which come later.
            if let Some(outer) = &self.outer {
                variables.push_all(outer);
            }
            let inner = ParseContext {
                environment: Environment {
                    variables: Some(&variables),
                    now_ms,
                    collator: &self.collator,
                    scripts: self.scripts,
                    cluster_time: self.cluster_time,
                    ..Environment::default()
                },
                depth: self.depth,
            };
            let mut stages = Vec::with_capacity(self.pipeline.stages.len() + 1);
            for part in &self.parts {
                match part {
                    Part::Fixed(fixed) => stages.extend(fixed.iter().cloned()),
                    Part::Bound(operator, argument) => {
                        (operator.parse)(argument.as_value(), &inner, &mut stages)?;
                    }
                }
            }
            Pipeline {
                stages,
                collator: self.pipeline.collator.clone(),
            }
        };
        if let Some((local, foreign)) = &self.fields {
            let filter = equals_any(doc, local, foreign);
            let mut stages = Vec::with_capacity(pipeline.stages.len() + 1);
            let own_source = usize::from(pipeline.has_own_source());
            let context = ParseContext {
                environment: Environment {
                    collator: &self.collator,
                    ..Environment::default()
                },
                ..ParseContext::default()
            };
            super::filter::parse(Value::Document(&filter), &context, &mut stages)?;
            pipeline.stages.splice(own_source..own_source, stages);
        }
        Ok(pipeline)
    }
}

/// A filter for documents whose foreign field equals a value of the local one.
fn equals_any(doc: &Doc, local: &FieldPath, foreign: &str) -> DocBuf {
    let mut values = Vec::new();
    let path = local.dotted();
    let names: Vec<&str> = path.split('.').collect();
    local_values(Value::Document(doc), &names, &mut values);
    // Where there is nothing, as in an empty array, a missing or null field is looked for.
    if values.is_empty() {
        values.push(Value::Null);
    }
    let mut filter = DocBuf::new();
    if values.iter().any(Value::is_regex) {
        // In `$in` an expression would match texts.
        filter.push_array("$or", |branches| {
            for value in &values {
                branches.push_doc(|branch| {
                    branch.push_doc(foreign, |condition| condition.push_value("$eq", value));
                });
            }
        });
        return filter;
    }
    filter.push_doc(foreign, |condition| match values.as_slice() {
        [single] => condition.push_value("$eq", single),
        _ => condition.push("$in", &values.into_iter().collect::<ArrayBuf>()),
    });
    filter
}

/// The values at a path: arrays on the way are entered, by index too, and one at the end gives its
/// elements.
fn local_values<'a>(value: Value<'a>, names: &[&str], found: &mut Vec<Value<'a>>) {
    match (value, names.split_first()) {
        (Value::Array(items), None) => found.extend(items.values()),
        (value, None) => found.push(value),
        (Value::Document(doc), Some((name, rest))) => {
            if let Some(value) = doc.get(name) {
                local_values(value, rest, found);
            }
        }
        (Value::Array(items), Some((name, rest))) => {
            for (index, item) in items.values().enumerate() {
                if matches!(item, Value::Document(_)) {
                    local_values(item, names, found);
                }
                if array_index(name) == Some(index) {
                    local_values(item, rest, found);
                }
            }
        }
        _ => {}
    }
}
