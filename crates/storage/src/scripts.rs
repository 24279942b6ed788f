//! The request of a thread: whether there is an engine of JavaScript, what ends a function, and the times that expressions see.
//!
//! The server names the request that runs on a thread, as it does with `frond_store::watch`. The environment of expressions
//! hands functions to the engine from here, and the engine calls [`check`] to learn whether to go on.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use frond_bson::Timestamp;
use frond_error::Error as CommandError;
use frond_query::bounds::{Supervisor, supervised};
use frond_query::memory::MemoryShare;
use frond_query::script::{
    NO_ENGINE, Script, ScriptEngine, ScriptHost, ScriptSource, StoredFunctions,
};

use crate::clock::now_ms;
use crate::compute_slots;
use crate::context::OpContext;

/// The source of the functions of requests.
pub trait FunctionSource: Send + Sync {
    /// The engine that runs them; `None` if there is none.
    fn engine(&self) -> Option<Arc<dyn ScriptEngine>>;

    /// A share of the memory of all operations, for what expressions compute.
    fn memory(&self) -> Box<dyn MemoryShare>;

    /// The functions that are stored in a database.
    ///
    /// # Errors
    /// Those of reading them.
    fn read(&self, db: &str, limits: &OpContext) -> Result<StoredFunctions, CommandError>;
}

/// The environment of a request's functions.
#[derive(Clone)]
struct Request {
    /// Kept from one request of the thread to the next, so that a request that has no function touches nothing that other threads
    /// write to, and allocates nothing.
    kept: Kept,
    limits: OpContext,
    times: RequestTimes,
}

/// The times that expressions see in all statements and stages of a request.
#[derive(Clone, Copy)]
pub struct RequestTimes {
    /// `$$NOW`, in milliseconds since 1970.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, of a member of a replica set.
    pub cluster_time: Option<Timestamp>,
}

#[derive(Clone)]
struct Kept {
    /// Weak, so that an idle thread does not keep a store open. The caller of `enter_request` holds it during the request.
    source: Weak<dyn FunctionSource>,
    db: String,
}

impl Kept {
    /// Those of the last request of this thread, if its source was the same.
    fn for_database<S: FunctionSource + 'static>(source: &Arc<S>, db: &str) -> Kept {
        let same = |kept: &Kept| kept.source.as_ptr().cast::<()>() == Arc::as_ptr(source).cast();
        match KEPT.take().filter(same) {
            Some(mut kept) => {
                kept.db.clear();
                kept.db.push_str(db);
                kept
            }
            None => {
                let source: Arc<dyn FunctionSource> = source.clone();
                Kept {
                    source: Arc::downgrade(&source),
                    db: db.to_owned(),
                }
            }
        }
    }
}

thread_local! {
    /// Of the last request of this thread.
    static KEPT: Cell<Option<Kept>> = const { Cell::new(None) };
    /// The request that runs on this thread.
    static REQUEST: RefCell<Option<Request>> = const { RefCell::new(None) };
    /// The functions that are stored in its database, once they were read.
    static STORED: RefCell<Option<Arc<StoredFunctions>>> = const { RefCell::new(None) };
    /// Whether it has made a function.
    static IS_USED: Cell<bool> = const { Cell::new(false) };
    /// Whether it is a `mapReduce`.
    static IS_INTERNAL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a request on this thread. Its functions end when it is killed and at its deadline.
pub fn enter_request<S: FunctionSource + 'static, T>(
    source: &Arc<S>,
    db: &str,
    limits: OpContext,
    cluster_time: Option<Timestamp>,
    request: impl FnOnce() -> T,
) -> T {
    let own = Request {
        kept: Kept::for_database(source, db),
        limits,
        times: RequestTimes {
            now_ms: now_ms(),
            cluster_time,
        },
    };
    enter(Some(own), request)
}

/// Puts back what was there, also after a panic.
struct Leave(Option<Request>);

impl Drop for Leave {
    fn drop(&mut self) {
        let own = REQUEST.with_borrow_mut(|now| std::mem::replace(now, self.0.take()));
        STORED.take();
        IS_INTERNAL.set(false);
        compute_slots::end();
        let Some(own) = own else {
            return;
        };
        if IS_USED.replace(false)
            && let Some(engine) = own.engine()
        {
            engine.end_request();
        }
        KEPT.set(Some(own.kept));
    }
}

fn enter<T>(own: Option<Request>, request: impl FnOnce() -> T) -> T {
    let outer = REQUEST.with_borrow_mut(|now| std::mem::replace(now, own));
    let _leave = Leave(outer);
    supervised(&OfThread, request)
}

/// Supervises evaluations for the request of their thread.
struct OfThread;

impl Supervisor for OfThread {
    fn check(&self) -> Result<(), CommandError> {
        REQUEST.with_borrow(|request| match request {
            Some(request) => request.limits.check_between_steps(),
            None => Ok(()),
        })?;
        compute_slots::take(check)
    }

    fn memory(&self) -> Option<Box<dyn MemoryShare>> {
        REQUEST.with_borrow(|request| {
            let source = request.as_ref()?.kept.source.upgrade()?;
            Some(source.memory())
        })
    }
}

/// The request of a thread, for threads that help it.
#[derive(Clone)]
pub struct Shared(Option<Request>);

impl Shared {
    /// That of this thread.
    pub fn of_this_thread() -> Shared {
        Shared(REQUEST.with_borrow(Clone::clone))
    }

    /// Runs a part of the request on another thread.
    pub fn run<T>(self, part: impl FnOnce() -> T) -> T {
        enter(self.0, || {
            // Its functions were made on another thread, and may be called here.
            IS_USED.set(true);
            part()
        })
    }
}

/// Fails if the request of this thread was killed, its deadline has passed, or its client has disconnected.
///
/// # Errors
/// `Interrupted` (11601), `MaxTimeMSExpired` (50), `ClientDisconnect` (279).
pub fn check() -> Result<(), CommandError> {
    REQUEST.with_borrow(|request| match request {
        Some(request) => request.limits.check().map_err(CommandError::from),
        None => Ok(()),
    })
}

/// The times of the request of this thread; outside of requests, the current one.
pub fn request_times() -> RequestTimes {
    let times = REQUEST.with_borrow(|request| request.as_ref().map(|request| request.times));
    times.unwrap_or_else(|| RequestTimes {
        now_ms: now_ms(),
        cluster_time: None,
    })
}

/// Lets the request of this thread use the stages of `mapReduce`, which only the server writes.
pub fn allow_internal_stages() {
    IS_INTERNAL.set(true);
}

/// Whether the stages of `mapReduce` are allowed.
pub(crate) fn is_internal() -> bool {
    IS_INTERNAL.get()
}

/// The host of functions for everything that requests parse.
pub fn script_host() -> &'static dyn ScriptHost {
    &OfRequest
}

/// Hands functions to the engine of the request that runs on this thread.
#[derive(Debug)]
struct OfRequest;

impl ScriptHost for OfRequest {
    fn script(&self, source: ScriptSource) -> Result<Arc<dyn Script>, CommandError> {
        let request = REQUEST.with_borrow(Clone::clone);
        let request = request.ok_or_else(disabled)?;
        let engine = request.engine().ok_or_else(disabled)?;
        let stored = if source.stored_functions {
            Some(request.stored_functions()?)
        } else {
            None
        };
        IS_USED.set(true);
        engine.script(source, stored)
    }
}

/// The error where there is no engine.
pub fn disabled() -> CommandError {
    CommandError::new(
        NO_ENGINE,
        "Cannot run server-side javascript without the javascript engine enabled: security.javascriptEnabled is false, or \
         --noscripting was given",
    )
}

impl Request {
    fn engine(&self) -> Option<Arc<dyn ScriptEngine>> {
        self.kept.source.upgrade()?.engine()
    }

    /// The functions that are stored in the database.
    fn stored_functions(&self) -> Result<Arc<StoredFunctions>, CommandError> {
        if let Some(stored) = STORED.with_borrow(Clone::clone) {
            return Ok(stored);
        }
        let source = self.kept.source.upgrade().ok_or_else(disabled)?;
        let stored = Arc::new(source.read(&self.kept.db, &self.limits)?);
        STORED.set(Some(stored.clone()));
        Ok(stored)
    }
}
