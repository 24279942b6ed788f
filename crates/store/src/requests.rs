//! Requests whose functions of JavaScript see those that are stored in the database.

use std::sync::Arc;

use frond_bson::{OwnedValue, Timestamp};
use frond_error::{Error, ErrorCode};
use frond_query::memory::MemoryShare;
use frond_query::script::{ScriptEngine, StoredFunctions};

use crate::find::FindRequest;
use crate::memory::OperationMemory;
use crate::op_stats::watch;
use crate::store::DocumentStore;
use frond_storage::context::OpContext;
use frond_storage::namespace::Namespace;
use frond_storage::scripts::{FunctionSource, enter_request};

/// The collection of stored functions.
const STORED_FUNCTIONS: &str = "system.js";

/// Runs a request on this thread. Its functions end when it is killed and at its deadline. All of its expressions have the
/// same `$$NOW`, and `cluster_time` as `$$CLUSTER_TIME`.
pub fn scripted<T>(
    store: &Arc<DocumentStore>,
    db: &str,
    limits: OpContext,
    cluster_time: Option<Timestamp>,
    request: impl FnOnce() -> T,
) -> T {
    enter_request(store, db, limits, cluster_time, request)
}

impl FunctionSource for DocumentStore {
    fn engine(&self) -> Option<Arc<dyn ScriptEngine>> {
        self.queries().engine()
    }

    fn memory(&self) -> Box<dyn MemoryShare> {
        OperationMemory::new(DocumentStore::memory(self))
            .shared()
            .open()
    }

    fn read(&self, db: &str, limits: &OpContext) -> Result<StoredFunctions, Error> {
        let mut stored = Vec::new();
        let ns = Namespace::new(db, STORED_FUNCTIONS)?;
        if self.catalog().collection(&ns).is_none() {
            return Ok(stored);
        }
        // Reading them is not counted in the statistics of the request.
        watch(&mut None, || {
            let mut docs = self.find(&ns, &FindRequest::default(), limits)?;
            while let Some(doc) = docs.next()? {
                let (Some(name), Some(value)) = (doc.get_str("_id"), doc.get("value")) else {
                    return Err(Error::new(
                        ErrorCode::BadValue,
                        "a document of system.js must have a name as its _id, and a value",
                    ));
                };
                stored.push((name.to_owned(), OwnedValue::from(value)));
            }
            Ok(())
        })?;
        Ok(stored)
    }
}
