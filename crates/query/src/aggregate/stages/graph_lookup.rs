//! `$graphLookup`: the documents of another collection that are reached by following a field.

use super::Stage;
use super::unwind::with_value;
use crate::aggregate::exec::{DocSource, ExecContext, Fault, Source};
use crate::aggregate::{ParseContext, Pipeline};
use crate::environment::Environment;
use crate::expr::{Context, FieldPath, Node, Parser, field_path};
use crate::memory::{Fit, StageMemory, scarce};
use crate::paths::check_field_path;
use crate::script::ScriptHost;
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, OwnedValue, Timestamp, Value, doc, key};
use frond_error::{Error, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// `{$graphLookup: {from: .., startWith: .., connectFromField: .., connectToField: .., as: ..}}`.
#[derive(Debug)]
pub(crate) struct GraphLookup {
    collection: String,
    start: Node,
    connect_from: FieldPath,
    connect_to: String,
    into: Vec<Box<str>>,
    depth_field: Option<Vec<Box<str>>>,
    depth_max: Option<u64>,
    restriction: Option<DocBuf>,
    collator: Collator,
    /// Values of the command's `let`, for the restriction.
    variables: Option<DocBuf>,
    /// Makes the functions of the restriction.
    scripts: &'static dyn ScriptHost,
    cluster_time: Option<Timestamp>,
}

impl GraphLookup {
    /// Calls `found` with the paths that the stage reads.
    pub(crate) fn reads(&self, found: &mut dyn FnMut(String)) {
        self.start.fields(&mut |path| found(path.dotted()));
    }
}

fn names(path: &str) -> Vec<Box<str>> {
    path.split('.').map(Into::into).collect()
}

pub(super) fn parse(
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        return Err(Error::failed_to_parse(format!(
            "the $graphLookup stage specification must be an object, but found {}",
            argument.type_name()
        )));
    };
    let (mut from, mut start, mut connect_from, mut connect_to) = (None, None, None, None);
    let (mut into, mut depth_field, mut depth_max, mut restriction) = (None, None, None, None);
    for (name, value) in spec.iter() {
        match (name, value) {
            ("startWith", value) => {
                start = Some(Parser::new(&context.environment).parse(value)?);
            }
            ("maxDepth", value) => depth_max = Some(depth(value)?),
            ("restrictSearchWithMatch", Value::Document(filter)) => {
                crate::matcher::Filter::parse_with(filter, &context.environment).map_err(
                    |error| {
                        error.context(
                            "Failed to parse 'restrictSearchWithMatch' option to $graphLookup",
                        )
                    },
                )?;
                restriction = Some(filter.to_owned());
            }
            ("restrictSearchWithMatch", other) => {
                return Err(Error::location(
                    40185,
                    format!(
                        "restrictSearchWithMatch must be an object, found {}",
                        other.type_name()
                    ),
                ));
            }
            ("from", Value::String(name)) => from = Some(name.to_owned()),
            ("as", Value::String(path)) => into = Some(path),
            ("connectFromField", Value::String(path)) => connect_from = Some(path),
            ("connectToField", Value::String(path)) => connect_to = Some(path),
            ("depthField", Value::String(path)) => {
                check_field_path(path)?;
                depth_field = Some(names(path));
            }
            ("from" | "as" | "connectFromField" | "connectToField" | "depthField", other) => {
                return Err(Error::location(
                    40103,
                    format!(
                        "expected string as argument for {name}, found: {}",
                        other.type_name()
                    ),
                ));
            }
            _ => {
                return Err(Error::location(
                    40104,
                    format!("Unknown argument to $graphLookup: {name}"),
                ));
            }
        }
    }
    let given = |text: &&str| !text.is_empty();
    let (Some(collection), Some(start), Some(connect_from), Some(connect_to), Some(into)) = (
        from.filter(|name| !name.is_empty()),
        start,
        connect_from.filter(given),
        connect_to.filter(given),
        into.filter(given),
    ) else {
        return Err(Error::location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and \
             'connectToField' to be specified.",
        ));
    };
    check_field_path(into)?;
    check_field_path(connect_to)?;
    out.push(Stage::GraphLookup(Arc::new(GraphLookup {
        collection,
        start,
        connect_from: field_path(connect_from, connect_from)?,
        connect_to: connect_to.to_owned(),
        into: names(into),
        depth_field,
        depth_max,
        restriction,
        collator: context.environment.collator.clone(),
        variables: context.environment.variables.map(Doc::to_owned),
        scripts: context.environment.scripts,
        cluster_time: context.environment.cluster_time,
    })));
    Ok(())
}

fn depth(value: Value<'_>) -> Result<u64> {
    let Some(number) = value.as_f64() else {
        return Err(Error::location(
            40100,
            format!(
                "maxDepth must be numeric, found type: {}",
                value.type_name()
            ),
        ));
    };
    if number < 0.0 {
        return Err(Error::location(
            40101,
            format!("maxDepth requires a nonnegative argument, found: {number}"),
        ));
    }
    let whole = value.as_i64_lossless();
    whole
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| {
            Error::location(
                40102,
                format!("maxDepth could not be represented as a long long: {number}"),
            )
        })
}

pub(super) fn open<E: Fault>(
    stage: &Arc<GraphLookup>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    Box::new(Following {
        stage: stage.clone(),
        input,
        context: context.clone(),
    })
}

struct Following<E> {
    stage: Arc<GraphLookup>,
    input: Source<E>,
    context: ExecContext<E>,
}

impl<E: Fault> DocSource<E> for Following<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        let Some(doc) = self.input.next()? else {
            return Ok(None);
        };
        let start = self
            .stage
            .start
            .evaluate(&Context::new(&doc, self.context.now_ms))?;
        let mut search = Search::new(&self.stage, &self.context);
        search.add_values(start.or_null(), 1)?;
        let found = search.run()?;
        let joined = with_value(&doc, &self.stage.into, Some(found.as_value()));
        Ok(Some(joined))
    }
}

/// One search, level by level.
struct Search<'s, E> {
    stage: &'s GraphLookup,
    context: &'s ExecContext<E>,
    held: StageMemory,
    /// Values that were looked for, as keys.
    asked: HashSet<Vec<u8>>,
    /// Values to look for at the next level.
    frontier: Vec<OwnedValue>,
    /// Found documents in the order of their finding, and the keys of their `_id`s.
    found: Vec<DocBuf>,
    seen: HashSet<Vec<u8>>,
}

impl<'s, E: Fault> Search<'s, E> {
    fn new(stage: &'s GraphLookup, context: &'s ExecContext<E>) -> Search<'s, E> {
        Search {
            stage,
            context,
            held: StageMemory::new(context.limits.graph_lookup, context.memory.as_deref()),
            asked: HashSet::new(),
            frontier: Vec::new(),
            found: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Puts values on the frontier: those in as many levels of arrays, or one.
    fn add_values(&mut self, value: Value<'_>, levels: usize) -> Result<()> {
        match value {
            Value::Array(items) if levels > 0 => items
                .values()
                .try_for_each(|item| self.add_values(item, levels - 1)),
            single => self.add_value(single),
        }
    }

    fn add_value(&mut self, value: Value<'_>) -> Result<()> {
        let mut encoded = Vec::new();
        self.stage.collator.encode(&value, &mut encoded);
        if self.asked.contains(&encoded) {
            return Ok(());
        }
        self.count(encoded.len() + value.len_bytes())?;
        self.asked.insert(encoded);
        self.frontier.push(value.to_owned());
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<()> {
        match self.held.add(bytes) {
            Fit::Fits => Ok(()),
            Fit::OverLimit => Err(Error::location(
                40099,
                "$graphLookup reached maximum memory consumption",
            )),
            Fit::Scarce => Err(scarce("$graphLookup")),
        }
    }

    fn run(mut self) -> Result<ArrayBuf, E> {
        let mut depth = 0;
        while !self.frontier.is_empty() && self.stage.depth_max.is_none_or(|max| depth <= max) {
            let pipeline = self.level()?;
            let stage = self.stage;
            let host = &self.context.host;
            let mut source = host.run("$graphLookup", None, &stage.collection, pipeline)?;
            while let Some(doc) = source.next()? {
                self.visit(doc, depth)?;
            }
            depth += 1;
        }
        Ok(self.found.iter().map(|doc| &**doc).collect())
    }

    /// The filter for the documents that the frontier leads to.
    fn level(&mut self) -> Result<Pipeline> {
        let values: ArrayBuf = std::mem::take(&mut self.frontier).iter().collect();
        let mut filter = DocBuf::new();
        filter.push_doc(&self.stage.connect_to, |condition| {
            condition.push("$in", &values);
        });
        if let Some(restriction) = &self.stage.restriction {
            filter = doc! {"$and": [&filter, restriction]};
        }
        let context = ParseContext {
            environment: Environment {
                variables: self.stage.variables.as_deref(),
                now_ms: self.context.now_ms,
                collator: &self.stage.collator,
                scripts: self.stage.scripts,
                cluster_time: self.stage.cluster_time,
                ..Environment::default()
            },
            ..ParseContext::default()
        };
        let mut stages = Vec::new();
        super::filter::parse(Value::Document(&filter), &context, &mut stages)?;
        Ok(Pipeline {
            stages,
            collator: self.stage.collator.clone(),
        })
    }

    fn visit(&mut self, doc: DocBuf, depth: u64) -> Result<()> {
        let Some(id) = doc.get("_id") else {
            return Err(Error::location(
                40271,
                format!(
                    "Documents in the '{}' namespace must contain an _id for de-duplication in \
                     $graphLookup",
                    self.stage.collection
                ),
            ));
        };
        let mut encoded = Vec::new();
        key::encode(&id, &mut encoded);
        if self.seen.contains(&encoded) {
            return Ok(());
        }
        self.count(encoded.len() + doc.len_bytes())?;
        self.seen.insert(encoded);
        let next = self.stage.connect_from.value_of(&doc)?;
        if let Some(next) = next.get() {
            // A path through arrays gives arrays of arrays.
            self.add_values(next, self.stage.connect_from.0.len())?;
        }
        let doc = match &self.stage.depth_field {
            Some(path) => with_value(&doc, path, Some(Value::Int64(depth as i64))),
            None => doc,
        };
        self.found.push(doc);
        Ok(())
    }
}
