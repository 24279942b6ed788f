//! The stages: one file each or per family, and the table that names them.

mod bucket;
mod bucket_auto;
mod densify;
mod describe;
mod documents;
mod facet;
mod fill;
mod filter;
pub(crate) mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod grouping;
mod lookup;
mod map;
mod range;
mod redact;
mod sample;
pub(crate) mod sort;
pub(crate) mod transform;
mod union_with;
mod unwind;
pub(crate) mod window;
mod write;

pub use write::{Merge, Out, WhenMatched, WhenNotMatched, WriteTarget, Writing};

use super::exec::{ExecContext, Fault, Source};
use super::{ParseContext, add_fields};
use crate::meta::MetaFields;
use frond_bson::Value;
use frond_error::{Error, ErrorCode, Result};
use std::sync::Arc;

/// A parsed stage. Its content is shared, so that its execution borrows nothing.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    BucketAuto(Arc<bucket_auto::BucketAuto>),
    Densify(Arc<densify::Densify>),
    Describe(Arc<describe::Describe>),
    Documents(Arc<documents::Documents>),
    Facet(Arc<facet::Facet>),
    Filter(Arc<filter::Match>),
    GeoNear(Arc<geo_near::GeoNear>),
    GraphLookup(Arc<graph_lookup::GraphLookup>),
    Group(Arc<group::Group>),
    Limit(u64),
    Lookup(Arc<lookup::Lookup>),
    /// `$lookup`, and `$unwind` of what it found.
    LookupUnwind(Arc<lookup::Lookup>, Arc<unwind::Unwind>),
    Map(Arc<map::Map>),
    Redact(Arc<redact::Redact>),
    Sample(u64),
    SetWindowFields(Arc<window::SetWindowFields>),
    Skip(u64),
    Sort(Arc<sort::Sort>),
    Transform(Arc<transform::Transform>),
    UnionWith(Arc<union_with::UnionWith>),
    Unwind(Arc<unwind::Unwind>),
    Write(Arc<write::Write>),
}

impl Stage {
    /// The metadata that is requested by a stage that has none.
    pub(crate) fn blind_meta(&self) -> MetaFields {
        match self {
            Stage::BucketAuto(stage) => stage.meta(),
            Stage::Redact(stage) => stage.meta(),
            Stage::SetWindowFields(stage) => stage.meta(),
            _ => MetaFields::default(),
        }
    }

    /// Chains the stage behind its input.
    pub(crate) fn open<E: Fault>(
        &self,
        input: Source<E>,
        context: &ExecContext<E>,
    ) -> Result<Source<E>, E> {
        Ok(match self {
            Stage::BucketAuto(stage) => bucket_auto::open(stage, input, context),
            Stage::Densify(stage) => densify::open(stage, input, context),
            Stage::Describe(stage) => stage.open(context)?,
            Stage::Documents(stage) => stage.open(context)?,
            Stage::Facet(stage) => facet::open(stage, input, context),
            Stage::Filter(stage) => filter::open(stage, input),
            Stage::GeoNear(stage) => geo_near::open(stage, input),
            Stage::GraphLookup(stage) => graph_lookup::open(stage, input, context),
            Stage::Group(stage) => grouping::open(stage, input, context),
            Stage::Limit(count) => range::limit(*count, input),
            Stage::Lookup(stage) => lookup::open(stage, input, context),
            Stage::LookupUnwind(stage, unwind) => {
                lookup::open_unwound(stage, unwind, input, context)
            }
            Stage::Map(stage) => map::open(stage, input),
            Stage::Redact(stage) => redact::open(stage, input, context),
            Stage::SetWindowFields(stage) => window::open(stage, input, context),
            Stage::Sample(size) => sample::open(*size, input, context),
            Stage::Skip(count) => range::skip(*count, input),
            Stage::Sort(stage) => sort::open(stage, input, context),
            Stage::Transform(stage) => transform::open(stage, input, context),
            Stage::UnionWith(stage) => union_with::open(stage, input, context),
            Stage::Unwind(stage) => unwind::open(stage, input, context),
            Stage::Write(stage) => write::open(stage, input, context),
        })
    }

    /// Whether the stage is a source of documents.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Stage::Describe(_) | Stage::Documents(_))
    }
}

/// The allowed position of a stage in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Position {
    Any,
    First,
    Last,
}

#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) position: Position,
    /// Whether an update's pipeline may have it.
    pub(crate) in_updates: bool,
    /// Whether a pipeline inside `$facet` may have it.
    pub(crate) in_facets: bool,
    /// Reads the argument; may add several stages.
    pub(crate) parse: Parse,
}

/// Parses a stage's argument and appends the resulting stages.
pub(crate) type Parse = fn(Value<'_>, &ParseContext<'_>, &mut Vec<Stage>) -> Result<()>;

const fn stage(name: &'static str, parse: Parse) -> Operator {
    Operator {
        name,
        position: Position::Any,
        in_updates: false,
        in_facets: true,
        parse,
    }
}

/// A stage that changes documents one by one.
const fn transforms(name: &'static str, parse: Parse) -> Operator {
    Operator {
        in_updates: true,
        ..stage(name, parse)
    }
}

const fn placed(name: &'static str, position: Position, parse: Parse) -> Operator {
    Operator {
        position,
        in_facets: false,
        ..stage(name, parse)
    }
}

/// Every stage, by name.
pub(crate) const OPERATORS: &[Operator] = &[
    transforms("$addFields", |v, c, out| {
        transform::add_fields("$addFields", v, c, out)
    }),
    stage("$bucket", bucket::parse),
    stage("$bucketAuto", bucket_auto::parse),
    placed("$collStats", Position::First, |v, c, out| {
        describe::parse("$collStats", v, c, out)
    }),
    placed("$changeStream", Position::First, |_, _, _| {
        // Change streams do not run as other pipelines do.
        Err(Error::location(
            40573,
            "The $changeStream stage is only supported on replica sets",
        ))
    }),
    placed("$changeStreamSplitLargeEvent", Position::Last, |_, _, _| {
        Err(Error::new(
            ErrorCode::IllegalOperation,
            "$changeStreamSplitLargeEvent can only be used in a $changeStream pipeline",
        ))
    }),
    stage("$count", group::parse_count),
    stage("$densify", densify::parse),
    placed("$currentOp", Position::First, |v, c, out| {
        describe::parse("$currentOp", v, c, out)
    }),
    placed("$documents", Position::First, documents::parse),
    Operator {
        in_facets: false,
        ..stage("$facet", facet::parse)
    },
    stage("$fill", fill::parse),
    placed("$geoNear", Position::First, geo_near::parse),
    stage("$graphLookup", graph_lookup::parse),
    stage("$group", group::parse),
    placed("$indexStats", Position::First, |v, c, out| {
        describe::parse("$indexStats", v, c, out)
    }),
    stage("$limit", range::parse_limit),
    placed("$listLocalSessions", Position::First, |v, c, out| {
        describe::parse("$listLocalSessions", v, c, out)
    }),
    placed("$listSessions", Position::First, |v, c, out| {
        describe::parse("$listSessions", v, c, out)
    }),
    stage("$lookup", lookup::parse),
    map::OPERATOR,
    stage("$match", filter::parse),
    placed("$merge", Position::Last, |v, c, out| {
        write::parse("$merge", v, c, out)
    }),
    placed("$out", Position::Last, |v, c, out| {
        write::parse("$out", v, c, out)
    }),
    placed("$querySettings", Position::First, |v, c, out| {
        describe::parse("$querySettings", v, c, out)
    }),
    placed("$queryStats", Position::First, |v, c, out| {
        describe::parse("$queryStats", v, c, out)
    }),
    placed("$planCacheStats", Position::First, |v, c, out| {
        describe::parse("$planCacheStats", v, c, out)
    }),
    transforms("$project", transform::project),
    stage("$redact", redact::parse),
    transforms("$replaceRoot", transform::replace_root),
    transforms("$replaceWith", transform::replace_with),
    stage("$sample", sample::parse),
    transforms("$set", |v, c, out| transform::add_fields("$set", v, c, out)),
    stage("$setWindowFields", window::parse),
    stage("$skip", range::parse_skip),
    stage("$sort", sort::parse),
    stage("$sortByCount", group::parse_sort_by_count),
    stage("$unionWith", union_with::parse),
    transforms("$unset", transform::unset),
    stage("$unwind", unwind::parse),
];

/// Stages that MongoDB has and this server does not.
pub(crate) const UNSUPPORTED: &[&str] = &[
    "$listSampledQueries",
    "$listSearchIndexes",
    "$search",
    "$searchMeta",
    "$shardedDataDistribution",
    "$vectorSearch",
];

/// The stage with this name. Errors: 238 for one that this server lacks, 40324 for none.
pub(crate) fn find(name: &str) -> Result<&'static Operator> {
    if let Some(operator) = OPERATORS.iter().find(|operator| operator.name == name) {
        return Ok(operator);
    }
    if matches!(
        name,
        "$search" | "$searchMeta" | "$vectorSearch" | "$listSearchIndexes"
    ) {
        return Err(Error::location(
            31082,
            format!(
                "Using Atlas Search Database Commands and the {name} aggregation stage requires \
                 additional configuration. Please connect to Atlas or an AtlasCLI local deployment \
                 to enable."
            ),
        ));
    }
    if UNSUPPORTED.contains(&name) {
        return Err(Error::not_supported(format!(
            "the aggregation stage '{name}'"
        )));
    }
    Err(unrecognized(name))
}

/// The error for a stage that there is not.
fn unrecognized(name: &str) -> Error {
    Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'"))
}

/// Whether a pipeline may have a stage of this name.
pub fn is_stage(name: &str) -> bool {
    OPERATORS
        .iter()
        .any(|operator| operator.name == name && !is_internal(name))
}

/// The names of the stages.
pub(crate) fn names() -> Vec<&'static str> {
    let names = OPERATORS.iter().map(|operator| operator.name);
    names.filter(|name| !is_internal(name)).collect()
}

/// Whether only the server itself writes the stage.
fn is_internal(name: &str) -> bool {
    name.starts_with("$_")
}
