//! `$text`: the documents that a text index found, tested for phrases and excluded words.

use std::sync::Arc;

use frond_bson::DocBuf;
use frond_query::matcher::Filter;
use frond_query::text::TextMatch as Matcher;

use super::describe::Describer;
use super::operator::{ExecContext, Flow, Inputs, Operator, Pulled, Sink};
use super::stats::OperatorStats;
use crate::plan::IndexAccess;
use frond_storage::error::Result;
use frond_storage::intervals::Interval;

/// Returns the documents that satisfy `$text`.
pub struct TextMatch {
    access: Arc<IndexAccess>,
    /// The `$text` of the query alone.
    filter: Filter,
    text: Arc<Matcher>,
}

impl TextMatch {
    /// Tests the documents of `input`, which the text index of `access` found, by `filter`.
    pub fn new(access: Arc<IndexAccess>, filter: Filter, text: Arc<Matcher>) -> TextMatch {
        TextMatch {
            access,
            filter,
            text,
        }
    }
}

impl Operator for TextMatch {
    fn pull(
        &mut self,
        cx: &ExecContext,
        inputs: &mut Inputs,
        stats: &mut OperatorStats,
        sink: Sink<'_>,
    ) -> Result<Pulled> {
        let filter = &self.filter;
        inputs.pull(cx, &mut |row| {
            if !filter.try_matches(row.doc)? {
                return Ok(Flow::Continue);
            }
            stats.advanced += 1;
            sink(row)
        })
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("TEXT_MATCH")
    }

    fn describe(&self, stage: &mut DocBuf, _: &OperatorStats, describer: &Describer<'_>) {
        let spec = &self.access.index.spec;
        let mut prefix = DocBuf::new();
        let fields = spec.fields.iter().zip(&self.access.bounds.fields);
        for (field, ranges) in fields.take_while(|(field, _)| field.path != "_fts") {
            if let Some(value) = ranges.as_slice().last().and_then(Interval::value) {
                prefix.push_value(&field.path, &value);
            }
        }
        describer.budget.push(stage, "indexPrefix", &prefix);
        stage.push("indexName", spec.name.as_str());
        let query = self.text.describe();
        describer.budget.push(stage, "parsedTextQuery", &query);
        stage.push("textIndexVersion", self.text.version().number());
    }
}
