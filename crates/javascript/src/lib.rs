//! JavaScript in the server: the functions of `$where`, `$function`, `$accumulator` and `mapReduce`, on QuickJS.
//!
//! [`JavaScript`] implements [`ScriptEngine`]. It knows BSON and JavaScript, and neither storage nor what a query does. Functions run in
//! processes of their own, the workers, because one that works inside of the language's library cannot be ended in another way.
#![forbid(unsafe_code)]

mod code;
mod confinement;
mod engine;
mod limits;
mod native;
mod pool;
mod process;
mod program;
mod protocol;
mod remote;
mod shared;
mod source;
mod values;
mod worker;

use std::fmt;
use std::sync::Arc;

use frond_error::Result;
use frond_query::script::{Script, ScriptEngine, ScriptSource, StoredFunctions};

pub use crate::pool::WorkerStats;
pub use crate::process::WorkerProgram;
pub use crate::worker::run as run_worker;

use crate::limits::Heaps;
use crate::pool::Pool;
use crate::program::Program;
use crate::remote::{RemoteProgram, Workers};
use crate::shared::Shared;

/// The place in which functions run.
#[derive(Clone, Debug)]
pub enum Placement {
    /// In this process, on the threads that call them: for tests and for programs that embed the engine and trust the functions.
    /// One that works inside of the language's library is not interrupted.
    InProcess,
    /// In processes that run this program.
    Workers(WorkerProgram),
}

/// Runs functions in the engines of this process, or in workers.
#[derive(Clone)]
pub struct JavaScript {
    shared: Arc<Shared>,
    /// The workers; none if functions run in this process.
    workers: Option<Workers>,
}

impl fmt::Debug for JavaScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JavaScript")
            .field("heaps", &self.shared.heaps)
            .field(
                "workers",
                &self.workers.as_ref().map(|workers| &workers.pool),
            )
            .finish_non_exhaustive()
    }
}

impl JavaScript {
    /// `heap_total` is what all engines may have together, and `heap_each` what one may have, in bytes. `check` is called
    /// again and again while a function runs, on the thread that calls it; the error that it returns ends the function. `print` gets
    /// what functions print.
    pub fn new(
        placement: Placement,
        heap_total: usize,
        heap_each: usize,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
        print: impl Fn(&str) + Send + Sync + 'static,
    ) -> JavaScript {
        let shared = Arc::new(Shared {
            heaps: Arc::new(Heaps::new(heap_total, heap_each)),
            check: Box::new(check),
            print: Box::new(print),
        });
        let workers = match placement {
            Placement::InProcess => None,
            Placement::Workers(program) => Some(Workers {
                shared: shared.clone(),
                pool: Arc::new(Pool::new(program)),
            }),
        };
        JavaScript { shared, workers }
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
        self.shared.heaps.reserved()
    }

    /// Figures on the processes that run functions; none where they run in this one.
    pub fn workers(&self) -> Option<WorkerStats> {
        self.workers.as_ref().map(|workers| workers.pool.stats())
    }
}

impl ScriptEngine for JavaScript {
    fn script(
        &self,
        source: ScriptSource,
        stored: Option<Arc<StoredFunctions>>,
    ) -> Result<Arc<dyn Script>> {
        Ok(match &self.workers {
            Some(workers) => Arc::new(RemoteProgram::new(workers, source, stored)?),
            None => Arc::new(Program::new(&self.shared, source, stored)?),
        })
    }

    fn end_request(&self) {
        match self.workers {
            Some(_) => remote::end(),
            None => engine::end(),
        }
    }
}
