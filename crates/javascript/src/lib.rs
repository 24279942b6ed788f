//! JavaScript in the server: the functions of `$where`, `$function`, `$accumulator` and `mapReduce`, on QuickJS.
//!
//! [`JavaScript`] implements [`ScriptEngine`]. It knows BSON and JavaScript, and neither storage nor sockets.
#![forbid(unsafe_code)]

mod code;
mod engine;
mod limits;
mod native;
mod program;
mod shared;
mod source;
mod values;

use std::fmt;
use std::sync::Arc;

use frond_error::Result;
use frond_query::script::{Script, ScriptEngine, ScriptSource, StoredFunctions};

use crate::limits::Heaps;
use crate::program::Program;
use crate::shared::Shared;

/// Runs JavaScript.
#[derive(Clone)]
pub struct JavaScript {
    shared: Arc<Shared>,
}

impl fmt::Debug for JavaScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JavaScript")
            .field("heaps", &self.shared.heaps)
            .finish_non_exhaustive()
    }
}

impl JavaScript {
    /// `heap_total` is what all engines may have together, and `heap_each` what one may have, in bytes. `check` is called
    /// again and again while a function runs, on its thread; the error that it returns ends the function. `print` gets
    /// what functions print.
    pub fn new(
        heap_total: usize,
        heap_each: usize,
        check: fn() -> Result<()>,
        print: impl Fn(&str) + Send + Sync + 'static,
    ) -> JavaScript {
        JavaScript {
            shared: Arc::new(Shared {
                heaps: Arc::new(Heaps::new(heap_total, heap_each)),
                check,
                print: Box::new(print),
            }),
        }
    }

    /// The limit of one engine, in bytes.
    pub fn heap_each(&self) -> usize {
        self.shared.heaps.each()
    }

    /// Changes [`JavaScript::heap_each`] for requests that begin from now on.
    pub fn set_heap_each(&self, bytes: usize) {
        self.shared.heaps.set_each(bytes);
    }

    /// The limit of all engines together, in bytes.
    pub fn heap_granted(&self) -> usize {
        self.shared.heaps.granted()
    }
}

impl ScriptEngine for JavaScript {
    fn script(
        &self,
        source: ScriptSource,
        stored: Option<Arc<StoredFunctions>>,
    ) -> Result<Arc<dyn Script>> {
        Ok(Arc::new(Program::new(&self.shared, source, stored)?))
    }

    fn end_request(&self) {
        engine::end();
    }
}
