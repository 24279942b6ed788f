//! Reads the document of a record as far as a query needs it, and tests it by a filter.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use frond_bson::Doc;
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;

use super::operator::{ExecContext, Flow, RowRef, Sink};
use super::stats::OperatorStats;
use crate::plan::required_fields;
use frond_storage::error::Result;
use frond_storage::record;
use frond_storage::record::field_set::{EVERYTHING, FieldSet};

/// The parts of large documents that are loaded if they pass.
#[derive(Clone, Debug)]
pub enum Loading {
    Everything,
    /// These fields, and those of the sort.
    Fields(Arc<BTreeSet<String>>, Option<SortSpec>),
    /// Only the fields of the filter and the sort.
    ForFilter(Option<SortSpec>),
}

/// The fields of large documents that are read: for the filter, and then for the row.
struct RequiredFields {
    filter: FieldSet,
    row: FieldSet,
}

impl RequiredFields {
    fn new(filter: &Filter, loading: &Loading) -> RequiredFields {
        let filter_only = required_fields::of_query(filter, None, []);
        let row = match loading {
            Loading::Everything => EVERYTHING.clone(),
            Loading::ForFilter(None) => filter_only.clone(),
            Loading::Fields(shown, sort) => {
                required_fields::of_query(filter, sort.as_ref(), shown.iter().map(String::as_str))
            }
            Loading::ForFilter(sort) => required_fields::of_query(filter, sort.as_ref(), []),
        };
        RequiredFields {
            filter: filter_only,
            row,
        }
    }
}

/// Reads documents and tests them.
pub struct Reader {
    /// The whole filter of the query: the fields read of large documents cover it, also if only a part is tested here.
    query: Arc<Filter>,
    /// The conditions that are tested here; `None` if every document passes.
    test: Option<Arc<Filter>>,
    loading: Loading,
    /// Computed for the first large document.
    required: OnceLock<RequiredFields>,
}

impl Reader {
    /// A reader that tests documents by `test`, a part of the filter `query`.
    pub fn new(query: Arc<Filter>, test: Option<Arc<Filter>>, loading: Loading) -> Reader {
        Reader {
            query,
            test: test.filter(|test| !test.is_empty()),
            loading,
            required: OnceLock::new(),
        }
    }

    /// Reads the document of a record, and passes it to the sink if it matches.
    #[inline]
    pub fn read(
        &self,
        cx: &ExecContext,
        row: RowRef<'_>,
        record: &[u8],
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Flow> {
        stats.examine(record);
        cx.spend();
        let record_of = RowRef {
            record: Some(record),
            ..row
        };
        if record::is_in_parts(record) {
            return self.read_parts(cx, record_of, record, stats, sink);
        }
        self.test(
            RowRef {
                doc: Doc::from_trusted(record),
                ..record_of
            },
            stats,
            sink,
        )
    }

    /// Passes a row to the sink if its document matches.
    #[inline]
    pub fn test(&self, row: RowRef<'_>, stats: &mut OperatorStats, sink: Sink<'_>) -> Result<Flow> {
        let Some(test) = &self.test else {
            stats.advanced += 1;
            return sink(row);
        };
        if !test.try_matches(row.doc)? {
            return Ok(Flow::Continue);
        }
        stats.advanced += 1;
        sink(row)
    }

    /// Reads the parts of a large document that the filter needs, and then those of the row.
    fn read_parts(
        &self,
        cx: &ExecContext,
        row: RowRef<'_>,
        record: &[u8],
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Flow> {
        let required =
            (self.required).get_or_init(|| RequiredFields::new(&self.query, &self.loading));
        let documents = cx.collection.document_reader(cx.snapshot());
        if let Some(test) = &self.test
            && required.filter != required.row
        {
            let part = documents.parts(row.key, record, &required.filter)?;
            if !test.try_matches(&part)? {
                return Ok(Flow::Continue);
            }
            let doc = documents.parts(row.key, record, &required.row)?;
            stats.advanced += 1;
            return sink(RowRef { doc: &doc, ..row });
        }
        let doc = documents.parts(row.key, record, &required.row)?;
        self.test(RowRef { doc: &doc, ..row }, stats, sink)
    }
}
