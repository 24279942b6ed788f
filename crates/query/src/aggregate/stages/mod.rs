//! The stages: one file each or per family, and the table that names them.

mod bucket;
mod describe;
mod documents;
mod facet;
mod filter;
mod group;
mod grouping;
mod lookup;
mod range;
mod sample;
pub(crate) mod sort;
pub(crate) mod transform;
mod union_with;
mod unwind;
mod write;

use super::exec::{ExecContext, Fault, Source};
use super::{ParseContext, add_fields};
use crate::error::{Error, Result};
use frond_bson::Value;
use std::sync::Arc;

/// A parsed stage. What it holds is shared, so that running it borrows nothing.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Describe(Arc<describe::Describe>),
    Documents(Arc<documents::Documents>),
    Facet(Arc<facet::Facet>),
    Filter(Arc<filter::Match>),
    Group(Arc<group::Group>),
    Limit(u64),
    Lookup(Arc<lookup::Lookup>),
    Sample(u64),
    Skip(u64),
    Sort(Arc<sort::Sort>),
    Transform(Arc<transform::Transform>),
    UnionWith(Arc<union_with::UnionWith>),
    Unwind(Arc<unwind::Unwind>),
    Write(Arc<write::Write>),
}

impl Stage {
    /// Chains the stage behind its input.
    pub(crate) fn open<E: Fault>(
        &self,
        input: Source<E>,
        context: &ExecContext<E>,
    ) -> Result<Source<E>, E> {
        Ok(match self {
            Stage::Describe(stage) => stage.open(context)?,
            Stage::Documents(stage) => stage.open(context)?,
            Stage::Facet(stage) => facet::open(stage, input, context),
            Stage::Filter(stage) => filter::open(stage, input),
            Stage::Group(stage) => grouping::open(stage, input, context),
            Stage::Limit(count) => range::limit(*count, input),
            Stage::Lookup(stage) => lookup::open(stage, input, context),
            Stage::Sample(size) => sample::open(*size, input, context),
            Stage::Skip(count) => range::skip(*count, input),
            Stage::Sort(stage) => sort::open(stage, input, context),
            Stage::Transform(stage) => transform::open(stage, input, context),
            Stage::UnionWith(stage) => union_with::open(stage, input, context),
            Stage::Unwind(stage) => unwind::open(stage, input),
            Stage::Write(stage) => write::open(stage, input, context),
        })
    }

    /// Whether the stage makes its documents itself.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Stage::Describe(_) | Stage::Documents(_))
    }
}

/// Where in a pipeline a stage may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    Any,
    First,
    Last,
}

/// One stage operator.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    /// Whether an update's pipeline may have it.
    pub(crate) in_updates: bool,
    /// Whether a pipeline inside `$facet` may have it.
    pub(crate) in_facets: bool,
    /// Reads the argument; may add several stages.
    pub(crate) parse: Parse,
}

/// Reads a stage's argument and adds what it stands for.
pub(crate) type Parse = fn(Value<'_>, &ParseContext<'_>, &mut Vec<Stage>) -> Result<()>;

const fn stage(name: &'static str, parse: Parse) -> Operator {
    Operator {
        name,
        place: Place::Any,
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

const fn placed(name: &'static str, place: Place, parse: Parse) -> Operator {
    Operator {
        place,
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
    placed("$collStats", Place::First, |v, c, out| {
        describe::parse("$collStats", v, c, out)
    }),
    stage("$count", group::parse_count),
    placed("$documents", Place::First, documents::parse),
    Operator {
        in_facets: false,
        ..stage("$facet", facet::parse)
    },
    stage("$group", group::parse),
    placed("$indexStats", Place::First, |v, c, out| {
        describe::parse("$indexStats", v, c, out)
    }),
    stage("$limit", range::parse_limit),
    stage("$lookup", lookup::parse),
    stage("$match", filter::parse),
    placed("$merge", Place::Last, |v, c, out| {
        write::parse("$merge", v, c, out)
    }),
    placed("$out", Place::Last, |v, c, out| {
        write::parse("$out", v, c, out)
    }),
    transforms("$project", transform::project),
    transforms("$replaceRoot", transform::replace_root),
    transforms("$replaceWith", transform::replace_with),
    stage("$sample", sample::parse),
    transforms("$set", |v, c, out| transform::add_fields("$set", v, c, out)),
    stage("$skip", range::parse_skip),
    stage("$sort", sort::parse),
    stage("$sortByCount", group::parse_sort_by_count),
    stage("$unionWith", union_with::parse),
    transforms("$unset", transform::unset),
    stage("$unwind", unwind::parse),
];

/// Stages that MongoDB has and this server does not.
const UNSUPPORTED: &[&str] = &[
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$currentOp",
    "$densify",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$redact",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$vectorSearch",
];

/// The stage with this name. Errors: 238 for one that this server lacks, 40324 for none.
pub(crate) fn find(name: &str) -> Result<&'static Operator> {
    if let Some(operator) = OPERATORS.iter().find(|operator| operator.name == name) {
        return Ok(operator);
    }
    if UNSUPPORTED.contains(&name) {
        return Err(Error::not_supported(format!(
            "the aggregation stage '{name}'"
        )));
    }
    Err(Error::location(
        40324,
        format!("Unrecognized pipeline stage name: '{name}'"),
    ))
}

/// The stages, for the page on compatibility.
pub(crate) fn reference() -> crate::reference::Family {
    crate::reference::Family {
        title: "Aggregation stages",
        names: OPERATORS.iter().map(|operator| operator.name).collect(),
        lacking: UNSUPPORTED.to_vec(),
    }
}
