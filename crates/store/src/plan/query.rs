//! The input of the planner: a query, the hint that restricts it, and plans that could be chosen for it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{Collator, key};
use frond_error::ErrorCode;
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;

use super::partitions::PartitionsRead;
use super::{Access, Hint, KeyLimits};
use crate::catalog::Collection;
use frond_storage::error::{Result, command};
use frond_storage::index::Index;
use frond_storage::keyspace::Direction;
use frond_storage::plan_rules::AllowedIndexes;

/// The input of the planner.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    pub filter: &'a Filter,
    /// The order wanted, empty for none, with the collator of the query.
    pub sort: &'a SortSpec,
    /// The collation of the collection, and so of the index on `_id`.
    pub id_collator: &'a Collator,
    /// The index to use.
    pub hint: Option<&'a Hint>,
    /// The indexes that may be used; `None` for all.
    pub allowed: Option<&'a AllowedIndexes>,
    /// Whether the one on `_id` may be used.
    pub allows_id: bool,
    /// The fields that the query returns; `None` for all.
    pub shown: Option<&'a BTreeSet<String>>,
    /// Bounds of the hinted index.
    pub limits: &'a KeyLimits,
    /// Whether documents are stored by record id, and not by `_id`.
    pub by_record: bool,
    /// The partitions that may have matching documents, if the collection has partitions.
    pub partitions: Option<&'a PartitionsRead<'a>>,
    /// Whether the options of the request allow the plan `IDHACK`.
    pub by_id_only: bool,
    /// The path, if only its distinct values are wanted.
    pub distinct: Option<&'a str>,
    /// The number of documents to choose at random; `None` for all documents.
    pub sample: Option<u64>,
    /// Set if a sort is not done by merging scans because there are too many of them.
    pub merge_limit_reached: &'a Cell<bool>,
}

/// A plan that could be chosen.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The access path to its documents.
    pub access: Access,
    /// Whether they come in the order that was asked for.
    pub sorted: bool,
    /// Its rank, by its bounds.
    pub rank: f64,
}

/// The scan that `$natural` asks for, as hint or as sort.
pub(super) fn hinted_scan(query: &Query<'_>) -> Result<Option<Access>> {
    let natural = query.sort.natural().map(|direction| match direction {
        key::Direction::Ascending => Direction::Forward,
        key::Direction::Descending => Direction::Backward,
    });
    match (query.hint, natural) {
        (None, None) | (Some(Hint::Name(_) | Hint::Key(_) | Hint::Tree(_)), None) => Ok(None),
        (None, Some(direction)) => Ok(Some(Access::CollScan(direction))),
        (Some(Hint::Natural(hinted)), sorted) => {
            Ok(Some(Access::CollScan(sorted.unwrap_or(*hinted))))
        }
        (Some(Hint::Name(_) | Hint::Key(_) | Hint::Tree(_)), Some(_)) => Err(command(
            ErrorCode::BadValue,
            "Cannot use a $natural sort with a hint that is not $natural",
        )),
    }
}

/// The index of a hint; `None` for the one on `_id`.
pub(super) fn find_hinted(collection: &Collection, hint: &Hint) -> Result<Option<Arc<Index>>> {
    let none = || {
        command(
            ErrorCode::BadValue,
            "error processing query: planner returned error :: caused by :: hint provided does not \
             correspond to an existing index",
        )
    };
    match hint {
        Hint::Name(name) if !collection.is_by_record() && name == collection.id_index_name() => {
            Ok(None)
        }
        Hint::Name(name) => {
            let found = collection
                .searchable_indexes()
                .find(|index| index.spec.name == *name && !index.spec.hidden);
            found.cloned().map(Some).ok_or_else(none)
        }
        Hint::Key(pattern) => {
            let id_pattern = frond_bson::doc! {"_id": 1};
            if !collection.is_by_record() && frond_bson::compare_docs(pattern, &id_pattern).is_eq()
            {
                return Ok(None);
            }
            let same = |index: &&Arc<Index>| {
                !index.spec.hidden && frond_bson::compare_docs(&index.spec.key, pattern).is_eq()
            };
            let found: Vec<_> = collection.searchable_indexes().filter(same).collect();
            match found.as_slice() {
                [] => Err(none()),
                [one] => Ok(Some(Arc::clone(one))),
                _ => Err(command(
                    ErrorCode::IndexNotFound,
                    format!(
                        "Hint matched multiple indexes, must hint by index name. Matched: {}",
                        found
                            .iter()
                            .map(|index| frond_storage::text::document(&index.spec.doc))
                            .collect::<Vec<_>>()
                            .join(" and ")
                    ),
                )),
            }
        }
        Hint::Tree(tree) => {
            let found = collection
                .searchable_indexes()
                .find(|index| index.tree == *tree);
            found.cloned().map(Some).ok_or_else(none)
        }
        // Handled before.
        Hint::Natural(_) => Err(none()),
    }
}
