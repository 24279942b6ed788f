//! From a record to the document that a query looks at, tested by a filter.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use frond_bson::Doc;
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;

use super::operator::{ExecContext, Flow, OpStats, RowRef, Sink};
use crate::error::Result;
use crate::plan::required_fields;
use crate::record;
use crate::record::field_set::{EVERYTHING, FieldSet};

/// What is put together of large documents that pass.
#[derive(Clone, Debug)]
pub enum Loading {
    /// All of them.
    Everything,
    /// These fields, and what the sort looks at.
    Shown(Arc<BTreeSet<String>>, Option<SortSpec>),
    /// No more than what the filter and the sort look at.
    ForFilter(Option<SortSpec>),
}

/// What is read of large documents: for the filter, and then for the row.
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
            Loading::Shown(shown, sort) => {
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
    /// The whole filter of the query: what is read of large documents covers it, whatever is tested here.
    query: Arc<Filter>,
    /// What is tested here; `None` if every document passes.
    test: Option<Arc<Filter>>,
    loading: Loading,
    /// Made when the first large document is met.
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

    /// Reads the document of a record, and hands it on if it passes.
    #[inline]
    pub fn read(
        &self,
        cx: &ExecContext,
        row: RowRef<'_>,
        record: &[u8],
        stats: &mut OpStats,
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

    /// Hands a row on if its document passes.
    #[inline]
    pub fn test(&self, row: RowRef<'_>, stats: &mut OpStats, sink: Sink<'_>) -> Result<Flow> {
        let Some(test) = &self.test else {
            stats.advanced += 1;
            return sink(row);
        };
        match test.run(row.doc)? {
            (false, _) => Ok(Flow::Continue),
            (true, positional) => {
                stats.advanced += 1;
                sink(RowRef { positional, ..row })
            }
        }
    }

    /// Reads the parts of a large document that the filter looks at, and then those of the row.
    fn read_parts(
        &self,
        cx: &ExecContext,
        row: RowRef<'_>,
        record: &[u8],
        stats: &mut OpStats,
        sink: Sink<'_>,
    ) -> Result<Flow> {
        let required =
            (self.required).get_or_init(|| RequiredFields::new(&self.query, &self.loading));
        let documents = cx.collection.document_reader(&cx.snapshot);
        if let Some(test) = &self.test
            && required.filter != required.row
        {
            let part = documents.parts(row.key, record, &required.filter)?;
            let (true, positional) = test.run(&part)? else {
                return Ok(Flow::Continue);
            };
            let doc = documents.parts(row.key, record, &required.row)?;
            stats.advanced += 1;
            return sink(RowRef {
                doc: &doc,
                positional,
                ..row
            });
        }
        let doc = documents.parts(row.key, record, &required.row)?;
        self.test(RowRef { doc: &doc, ..row }, stats, sink)
    }
}
