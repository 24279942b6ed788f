//! Updates: parsing them once, applying them to documents as bytes.
//!
//! An update is a replacement, a document of operators or a pipeline. The operators are arranged by
//! path ([`tree`]) and a document is rewritten in one walk ([`apply`]). Each operator is one file in
//! [`operators`].

mod apply;
mod array_filters;
pub(crate) mod operators;
mod path;
mod replacement;
mod series;
mod storable;
mod touched;
mod tree;
mod upsert;

#[cfg(test)]
mod tests;

pub use series::{Operation, Series, SeriesOutcome, Step};
pub use storable::check_id;
pub use touched::{Paths, Touched};
pub use upsert::{upsert_base, upsert_base_for_replacement};

use crate::aggregate::UpdatePipeline;
use crate::bounds;
use crate::environment::Environment;
use crate::required_fields::RequiredFields;
use array_filters::ArrayFilters;
use frond_bson::{Collator, Doc, DocBuf, MAX_DOCUMENT_BYTES, ObjectId, Timestamp, Value};
use frond_error::{Error, Result};
use operators::{Argument, Operator, Scope};
use path::Component;
use std::sync::Arc;
use tree::{Fields, Leaf, Node};

/// The inputs of an update besides the document; the query language itself has no clock.
#[derive(Clone, Debug)]
pub struct ApplyContext {
    /// Now, in milliseconds since 1970, for `$currentDate` and `$$NOW`.
    pub now_ms: i64,
    /// Now, for timestamps that the server fills in.
    pub timestamp: Timestamp,
    /// Whether a replacement's top-level `Timestamp(0, 0)` stays, where otherwise `timestamp` is filled in.
    pub keeps_empty_timestamps: bool,
    /// The document is the base of an upsert that inserts, see [`upsert_base`].
    pub is_upsert_insert: bool,
    /// The `_id` of an upserted document that gets none from the filter or the update. Without it
    /// such a document has none.
    pub new_id: Option<ObjectId>,
    /// The array index that the filter matched, for the positional operator `$`.
    pub positional: Option<usize>,
}

impl ApplyContext {
    /// A context for existing documents at the time `now_ms`, in milliseconds since 1970.
    pub fn at(now_ms: i64) -> ApplyContext {
        ApplyContext {
            now_ms,
            timestamp: Timestamp {
                time: u32::try_from(now_ms / 1000).unwrap_or(u32::MAX),
                increment: 1,
            },
            keeps_empty_timestamps: false,
            is_upsert_insert: false,
            new_id: None,
            positional: None,
        }
    }
}

/// The result of an update on one document.
#[derive(Clone, Debug)]
pub struct Applied<'a> {
    /// The document after the update.
    pub doc: DocBuf,
    /// Whether it differs from the original in any bit.
    pub modified: bool,
    /// The paths that may have changed, for indexes. Meaningless if nothing was modified.
    pub paths_touched: Touched<'a>,
}

#[derive(Debug)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Replacement(DocBuf),
    Operators {
        fields: Fields,
        filters: ArrayFilters,
        paths: Paths,
        needs_positional: bool,
    },
    Pipeline(UpdatePipeline),
}

impl Update {
    /// Reads an update document: operators if its first name begins with `$`, else a replacement.
    ///
    /// # Errors
    /// MongoDB's: 9 for unknown operators and misused array filters, 40 for conflicting paths, 56 for
    /// empty names, 14 and 2 for bad operands.
    pub fn parse(update: &Doc, array_filters: &[&Doc]) -> Result<Update> {
        Update::parse_collated(update, array_filters, Collator::BINARY)
    }

    /// As [`Update::parse`]; operators and array filters compare strings by `collator`.
    ///
    /// # Errors
    /// As [`Update::parse`].
    pub fn parse_collated(
        update: &Doc,
        array_filters: &[&Doc],
        collator: &Collator,
    ) -> Result<Update> {
        let is_operators = update
            .first()
            .is_some_and(|(name, _)| name.starts_with('$'));
        if is_operators {
            return bounds::parsing(|| parse_operators(update, array_filters, collator));
        }
        if !array_filters.is_empty() {
            return Err(Error::failed_to_parse(
                "arrayFilters may not be specified for replacement-style updates",
            ));
        }
        Ok(Update {
            kind: Kind::Replacement(update.to_owned()),
        })
    }

    /// Reads the `u` of an update statement: a document, or an array of pipeline stages, which see
    /// the variables of the environment.
    ///
    /// # Errors
    /// As [`Update::parse`]; 9 for other types.
    pub fn parse_value(
        update: &Value<'_>,
        array_filters: &[&Doc],
        environment: &Environment<'_>,
    ) -> Result<Update> {
        match update {
            Value::Document(update) => {
                Update::parse_collated(update, array_filters, environment.collator)
            }
            Value::Array(stages) => {
                if !array_filters.is_empty() {
                    return Err(Error::failed_to_parse(
                        "arrayFilters may not be specified for pipeline-syle updates",
                    ));
                }
                let pipeline = bounds::parsing(|| UpdatePipeline::parse(stages, environment))?;
                Ok(Update {
                    kind: Kind::Pipeline(pipeline),
                })
            }
            other => Err(Error::failed_to_parse(format!(
                "Update argument must be either an object or an array, not {}",
                other.type_name()
            ))),
        }
    }

    /// Whether the update replaces the whole document; `multi: true` is refused for those.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Whether the update is an aggregation pipeline.
    pub fn is_pipeline(&self) -> bool {
        matches!(self.kind, Kind::Pipeline(_))
    }

    /// Whether a path has the positional operator `$`, so that `apply` needs the matched index.
    pub fn needs_positional(&self) -> bool {
        matches!(
            self.kind,
            Kind::Operators {
                needs_positional: true,
                ..
            }
        )
    }

    /// The paths that the update may change in any document.
    pub fn paths_touched(&self) -> Touched<'_> {
        match &self.kind {
            Kind::Operators { paths, .. } => Touched::Paths(paths),
            Kind::Replacement(_) | Kind::Pipeline(_) => Touched::All,
        }
    }

    /// The parts of a document that [`Update::apply`] reads or writes: the paths of the operators up to
    /// the first positional component, and `_id`, which errors name.
    pub fn required_fields(&self) -> RequiredFields {
        self.required_fields_of(|_, _| true)
    }

    /// [`Update::needs`] without the paths of [`Update::increments`].
    pub fn required_fields_except_increments(&self) -> RequiredFields {
        self.required_fields_of(|leaf, is_fixed| !is_fixed || leaf.increment().is_none())
    }

    /// The required fields; of the operators only those for which `counts` is true.
    fn required_fields_of(&self, counts: impl Fn(&Leaf, bool) -> bool) -> RequiredFields {
        match &self.kind {
            Kind::Replacement(_) => RequiredFields::whole(),
            Kind::Pipeline(pipeline) => {
                let mut required = pipeline.required_fields();
                required.add("_id");
                required
            }
            Kind::Operators { fields, .. } => {
                // Such a field may be written at its place in a reference only, behind the field before it.
                if fields.has_prefixed() {
                    return RequiredFields::whole();
                }
                let mut paths = vec!["_id"];
                fields.each_leaf(&mut |leaf, is_fixed| match is_fixed {
                    _ if !counts(leaf, is_fixed) => {}
                    true => paths.push(&leaf.path),
                    false => paths.push(path::fixed(&leaf.path)),
                });
                paths.into_iter().collect()
            }
        }
    }

    /// The paths that `$inc` increments, and by how much: numbers. A path with a positional component
    /// is left out.
    pub fn increments(&self) -> impl Iterator<Item = (&str, Value<'static>)> {
        let mut found = Vec::new();
        if let Kind::Operators { fields, .. } = &self.kind {
            fields.each_leaf(&mut |leaf, is_fixed| {
                if let Some(number) = leaf.increment().filter(|_| is_fixed) {
                    found.push((&*leaf.path, number.into()));
                }
            });
        }
        found.into_iter()
    }

    /// The paths of the operators, with `$`, `$[]` and `$[name]` as they were given, and whether each adds elements to an
    /// array (`$push`, `$addToSet`). `None` for a replacement and for a pipeline.
    pub fn operator_paths(&self) -> Option<Vec<(&str, bool)>> {
        let Kind::Operators { fields, .. } = &self.kind else {
            return None;
        };
        let mut found = Vec::new();
        fields.each_leaf(&mut |leaf, _| found.push((&*leaf.path, leaf.appends())));
        Some(found)
    }

    /// The document that an upsert with this update starts from when `filter` matches nothing.
    ///
    /// # Errors
    /// As [`upsert_base`].
    pub fn upsert_base(&self, filter: &Doc) -> Result<DocBuf> {
        if self.is_replacement() {
            upsert_base_for_replacement(filter)
        } else {
            upsert_base(filter)
        }
    }

    /// Applies the update to a document, which stays as it is.
    ///
    /// # Errors
    /// MongoDB's, from the operators; 66 if `_id` would change; 52 and 55 for names of the first level that
    /// begin with `$`; 17419, or 17420 of an upsert, if the result is larger than 16 MiB.
    pub fn apply(&self, doc: &Doc, context: &ApplyContext) -> Result<Applied<'_>> {
        let mut changed = match &self.kind {
            Kind::Replacement(given) => {
                let new = replacement::apply(given, doc, context)?;
                // As MongoDB, which compares what was given: one without `_id`, or with it at another place, is a change.
                let is_change = **given != *doc || *new != *doc;
                if is_change && !context.is_upsert_insert {
                    storable::check_first_level(&new, |_| true)?;
                }
                is_change.then_some(new)
            }
            Kind::Operators {
                fields, filters, ..
            } => {
                let scope = Scope { root: doc, context };
                apply::apply(fields, filters, &scope)?.map(DocBuf::from_vec_trusted)
            }
            Kind::Pipeline(pipeline) => apply_pipeline(pipeline, doc, context)?,
        };
        if context.is_upsert_insert {
            let finished = with_id_first(changed.as_deref().unwrap_or(doc), context)?;
            changed = (*finished != *doc).then_some(finished);
        }
        if let Some(new) = &changed {
            check_size(new, context.is_upsert_insert)?;
        }
        Ok(Applied {
            modified: changed.is_some(),
            doc: changed.unwrap_or_else(|| doc.to_owned()),
            paths_touched: self.paths_touched(),
        })
    }
}

/// Operators on their way into an update.
struct OperatorsParser<'a> {
    root: Node,
    paths: Vec<Arc<str>>,
    /// Paths with `$[name]`, and the names.
    filtered: Vec<(&'a str, &'a str)>,
    needs_positional: bool,
    components: Vec<Component<'a>>,
}

impl<'a> OperatorsParser<'a> {
    fn new() -> OperatorsParser<'a> {
        OperatorsParser {
            root: Node::Fields(Fields::default()),
            paths: Vec::with_capacity(8),
            filtered: Vec::new(),
            needs_positional: false,
            components: Vec::with_capacity(8),
        }
    }

    /// Adds `{<operator>: {<path>: <value>}}`.
    fn add(&mut self, operator: &Operator, argument: &Argument<'a>) -> Result<()> {
        for (path, modifier) in (operator.parse)(argument)?.into_iter().flatten() {
            path::parse(path, &mut self.components)?;
            if self.components.len() + crate::raw::depth(&argument.value) > path::MAX_DEPTH {
                return Err(Error::overflow(format!(
                    "Document exceeds maximum nested object depth: {}",
                    path::MAX_DEPTH
                )));
            }
            for component in &self.components {
                match component {
                    Component::Field(_) => {}
                    Component::Positional => self.needs_positional = true,
                    Component::Filtered(name) => self.filtered.push((path, *name)),
                }
            }
            let written: Arc<str> = path.into();
            self.paths.push(if path::is_canonical(&self.components) {
                written.clone()
            } else {
                path::canonical(path::up_to_index(path)).into()
            });
            let leaf = Leaf {
                path: written,
                modifier,
            };
            self.root.insert(&self.components, 0, leaf)?;
        }
        Ok(())
    }

    fn finish(mut self, filters: ArrayFilters) -> Update {
        self.root.sort();
        let fields = match self.root {
            Node::Fields(fields) => fields,
            _ => Fields::default(),
        };
        Update {
            kind: Kind::Operators {
                fields,
                filters,
                paths: Paths::new(self.paths),
                needs_positional: self.needs_positional,
            },
        }
    }
}

fn parse_operators(update: &Doc, array_filters: &[&Doc], collator: &Collator) -> Result<Update> {
    let filters = ArrayFilters::parse(array_filters, collator)?;
    let mut parser = OperatorsParser::new();
    for (name, fields) in update.iter() {
        let Some(operator) = operators::find(name) else {
            return Err(Error::failed_to_parse(format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style \
                 update specified as an array"
            )));
        };
        let Value::Document(fields) = fields else {
            return Err(Error::failed_to_parse(format!(
                "Modifiers operate on fields but we found type {} instead. For example: \
                 {{$mod: {{<field>: ...}}}} not {{{}}}",
                fields.type_name(),
                crate::display::element(name, &fields)
            )));
        };
        for (path, value) in fields.iter() {
            let argument = Argument {
                path,
                value,
                collator,
            };
            parser.add(operator, &argument)?;
        }
    }
    filters.check_use(&parser.filtered, update)?;
    Ok(parser.finish(filters))
}

/// The document that a pipeline makes; `None` if it is the same. One without `_id` is a change, as a replacement is.
fn apply_pipeline(
    pipeline: &UpdatePipeline,
    doc: &Doc,
    context: &ApplyContext,
) -> Result<Option<DocBuf>> {
    let new = pipeline.apply(doc, context.now_ms)?;
    if *new == *doc {
        return Ok(None);
    }
    match (doc.get("_id"), new.get("_id")) {
        (Some(old), Some(id)) => {
            replacement::same_id(&old, &id)?;
            Ok(Some(new))
        }
        // A pipeline that drops `_id` keeps it, as a replacement without one does.
        (Some(old), None) => {
            let mut with_id = DocBuf::with_capacity(new.len_bytes() + 32);
            with_id.push_value("_id", &old);
            with_id.push_all(&new);
            Ok(Some(with_id))
        }
        (None, _) => Ok(Some(new)),
    }
}

/// An upserted document with its `_id` first; without one it gets the new one.
fn with_id_first(doc: &Doc, context: &ApplyContext) -> Result<DocBuf> {
    let id = match (doc.get("_id"), context.new_id) {
        (Some(id), _) => {
            check_id(&id)?;
            if doc.first().is_some_and(|(name, _)| name == "_id") {
                return Ok(doc.to_owned());
            }
            id
        }
        (None, Some(id)) => Value::ObjectId(id),
        (None, None) => return Ok(doc.to_owned()),
    };
    let mut ordered = DocBuf::with_capacity(doc.len_bytes() + 32);
    ordered.push_value("_id", &id);
    for element in doc.iter_raw().filter(|e| e.name_bytes() != b"_id") {
        ordered.push_raw(&element);
    }
    Ok(ordered)
}

fn check_size(doc: &Doc, is_upsert: bool) -> Result<()> {
    if doc.len_bytes() <= MAX_DOCUMENT_BYTES {
        return Ok(());
    }
    let (code, what) = if is_upsert {
        (17420, "Document to upsert")
    } else {
        (17419, "Resulting document after update")
    };
    Err(Error::location(
        code,
        format!("{what} is larger than {MAX_DOCUMENT_BYTES}"),
    ))
}
