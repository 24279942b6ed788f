//! The code of a function, and its identity.

use std::sync::Arc;

use frond_query::script::{ScriptSource, StoredFunctions};

/// The identity of a source: the code, and the bytes of its scope.
pub type SourceKey = (String, Option<Vec<u8>>);

/// A function, as engines compile it.
#[derive(Clone)]
pub struct Code {
    /// Identity of a function, in all engines.
    pub id: u64,
    /// The code and its variables.
    pub source: Arc<ScriptSource>,
    /// Functions of the database that the code sees.
    pub stored: Option<Arc<StoredFunctions>>,
}

impl Code {
    /// The identity of a function.
    pub fn key(&self) -> SourceKey {
        let scope = self.source.scope.as_ref();
        (
            self.source.code.clone(),
            scope.map(|scope| scope.as_bytes().to_vec()),
        )
    }
}
