//! Values that a commit reads ahead from a cluster.

use frond_bson::Doc;

use super::{Staging, primary_key};
use frond_storage::error::Result;
use frond_storage::index::keys::IndexKeys;
use frond_storage::keyspace::TreeId;

impl Staging<'_> {
    /// Reads ahead what the insertion of some documents looks up, if a look-up is a request to a cluster; or takes it for absent, so that
    /// the commit looks. Then the commit fails with a conflict if a key is there, and each document must be in it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn look_up(&mut self, docs: &[&Doc], presumes_absent: bool) -> Result<()> {
        if !self.snapshot.gathers_reads() {
            return Ok(());
        }
        let collection = self.collection;
        let mut wanted: Vec<(TreeId, Vec<u8>)> = Vec::with_capacity(docs.len());
        let mut keys = IndexKeys::default();
        for doc in docs {
            let mut id = Vec::new();
            if let Some(value) = doc.get("_id") {
                if collection.collator().is_binary() {
                    primary_key(&value, &mut id)
                } else {
                    collection.collator().encode(&value, &mut id)
                }
                if !collection.is_by_record() {
                    wanted.push((collection.primary, id.clone()));
                }
            }
            let uniques = (collection.indexes.iter())
                .filter(|index| index.spec.unique && index.side().is_none());
            for index in uniques {
                // A document without keys is refused later.
                if keys.generate(&index.spec, doc, id.len()).is_ok() {
                    let fields = keys.iter().map(|(fields, _)| (index.tree, fields.to_vec()));
                    wanted.extend(fields);
                }
            }
        }
        let wanted: Vec<(TreeId, &[u8])> = (wanted.iter())
            .map(|(tree, key)| (*tree, key.as_slice()))
            .collect();
        if presumes_absent {
            self.snapshot.presume_absent(&wanted);
            Ok(())
        } else {
            Ok(self.snapshot.prefetch(&wanted)?)
        }
    }
}
