//! A pipeline that begins with counting all documents, as drivers' `countDocuments({})` does, reads the
//! count of the collection.

use crate::aggregate::Pipeline;
use crate::aggregate::stages::Stage;
use frond_bson::{DocBuf, Value};

impl Pipeline {
    /// If the first stage only counts its input: its output for a number of documents, and the stages
    /// behind it. Otherwise the pipeline as it was.
    pub fn counted(
        mut self,
        documents: impl FnOnce() -> u64,
    ) -> Result<(Vec<DocBuf>, Pipeline), Pipeline> {
        let Some(Stage::Group(group)) = self.stages.first() else {
            return Err(self);
        };
        let Some(id) = group.counted_id() else {
            return Err(self);
        };
        let count = i64::try_from(documents()).unwrap_or(i64::MAX);
        let mut docs = Vec::new();
        if count > 0 {
            let count = match i32::try_from(count) {
                Ok(narrow) => Value::Int32(narrow),
                Err(_) => Value::Int64(count),
            };
            let mut doc = DocBuf::new();
            doc.push("_id", id);
            for (name, _) in &group.fields {
                doc.push_value(name, &count);
            }
            docs.push(doc);
        }
        self.stages.remove(0);
        Ok((docs, self))
    }
}
