//! The metadata of rows, which `$meta` returns.

use std::sync::Arc;

use frond_bson::{DocBuf, OwnedValue};
use frond_query::matcher::Filter;
use frond_query::meta::{MetaField, MetaFields, Metadata};
use frond_query::sort::SortSpec;

use super::describe::Describer;
use super::operator::{ExecContext, Inputs, Operator, Pulled, RowRef, Sink};
use super::record_id::record_id;
use super::stats::OperatorStats;
use frond_storage::error::Result;

/// Adds metadata, and the `_id` as the fields of the index where that is on `_id`.
pub struct AddMetadata {
    filter: Arc<Filter>,
    wanted: MetaFields,
    /// The sort of which rows have the key as `$meta: "sortKey"`.
    sort: Option<SortSpec>,
    /// Whether the rows come by the index on `_id`.
    by_id: bool,
}

impl AddMetadata {
    /// Adds the `wanted` metadata. The filter has the text and the point that scores and distances refer to.
    pub fn new(
        filter: Arc<Filter>,
        wanted: MetaFields,
        sort: &SortSpec,
        by_id: bool,
    ) -> AddMetadata {
        let shows_sort = wanted.has(MetaField::SortKey) && !sort.is_empty();
        AddMetadata {
            filter,
            wanted,
            sort: shows_sort.then(|| sort.clone()),
            by_id,
        }
    }
}

/// The metadata of a row.
fn of_row(
    row: &RowRef<'_>,
    filter: &Filter,
    wanted: MetaFields,
    sort: Option<&SortSpec>,
    numbered: bool,
) -> Result<Metadata> {
    let mut meta = Metadata::default();
    if wanted.has(MetaField::TextScore)
        && let Some(text) = filter.text_match()
    {
        meta.text_score = Some(text.score(row.doc)?);
    }
    let wants_distance = wanted.has(MetaField::GeoNearDistance);
    if (wants_distance || wanted.has(MetaField::GeoNearPoint))
        && let Some((path, near)) = filter.near()
        && let Some(nearest) = near.nearest(row.doc, path)
    {
        meta.geo_near_distance = Some(nearest.distance);
        meta.geo_near_point = Some(nearest.location.to_owned());
    }
    if wanted.has(MetaField::RandVal) {
        meta.rand_val = Some(rand::random());
    }
    if wanted.has(MetaField::IndexKey) {
        meta.index_key = row.index_key.map(ToOwned::to_owned);
    }
    if wanted.has(MetaField::RecordId) {
        meta.record_id = Some(OwnedValue::Int64(record_id(row.key, numbered)));
    }
    if let Some(sort) = sort {
        let values = sort.values(row.doc, Some(&meta))?;
        meta.sort_key = Some(OwnedValue::Array(values.into_docbuf()));
    }
    Ok(meta)
}

impl Operator for AddMetadata {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let AddMetadata {
            filter,
            wanted,
            sort,
            by_id,
        } = self;
        let numbered = cx.collection.numbers_records();
        inputs.pull(cx, &mut |row| {
            stats.advanced += 1;
            let mut id_key = DocBuf::new();
            let mut row = row;
            if *by_id && row.index_key.is_none() {
                if let Some(id) = row.doc.get("_id") {
                    id_key.push("_id", id);
                }
                row = RowRef {
                    index_key: Some(&id_key),
                    ..row
                };
            }
            if wanted.is_empty() {
                return sink(row);
            }
            let meta = of_row(&row, filter, *wanted, sort.as_ref(), numbered)?;
            sink(RowRef {
                meta: Some(&meta),
                ..row
            })
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        None
    }
}
