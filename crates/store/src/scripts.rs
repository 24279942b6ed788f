//! JavaScript in the requests of a thread: whether there is an engine, and what ends a function.
//!
//! The server names the request that runs on a thread, as it does with [`watch`](crate::watch). The environment of expressions
//! hands functions to the engine from here, and the engine asks [`check`] whether to go on.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use frond_bson::OwnedValue;
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::script::{Script, ScriptHost, ScriptSource, StoredFunctions};

use crate::context::OpContext;
use crate::figures::watch;
use crate::find::FindRequest;
use crate::namespace::Namespace;
use crate::store::DocumentStore;

/// The collection of stored functions.
const STORED_FUNCTIONS: &str = "system.js";

/// What the functions of a request need.
#[derive(Clone)]
struct Request {
    store: DocumentStore,
    limits: OpContext,
    db: String,
}

thread_local! {
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
pub fn scripted<T>(
    store: &DocumentStore,
    db: &str,
    limits: &OpContext,
    request: impl FnOnce() -> T,
) -> T {
    if store.queries().engine().is_none() {
        return request();
    }
    let own = Request {
        store: store.clone(),
        limits: limits.clone(),
        db: db.to_owned(),
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
        if IS_USED.replace(false)
            && let Some(engine) = own.and_then(|own| own.store.queries().engine())
        {
            engine.end_request();
        }
    }
}

fn enter<T>(own: Option<Request>, request: impl FnOnce() -> T) -> T {
    let outer = REQUEST.with_borrow_mut(|now| std::mem::replace(now, own));
    let _leave = Leave(outer);
    request()
}

/// The request of a thread, for threads that help it.
#[derive(Clone)]
pub(crate) struct Shared(Option<Request>);

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

/// Fails if the request of this thread was killed or its deadline has passed.
///
/// # Errors
/// `Interrupted` (11601), `MaxTimeMSExpired` (50).
pub fn check() -> Result<(), CommandError> {
    REQUEST.with_borrow(|request| match request {
        Some(request) => request.limits.check().map_err(CommandError::from),
        None => Ok(()),
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
        let engine = request
            .as_ref()
            .and_then(|request| request.store.queries().engine());
        let (Some(request), Some(engine)) = (request, engine) else {
            return Err(disabled());
        };
        let stored = match source.stored_functions {
            true => Some(request.stored_functions()?),
            false => None,
        };
        IS_USED.set(true);
        engine.script(source, stored)
    }
}

/// The error where there is no engine.
pub fn disabled() -> CommandError {
    CommandError::location(
        31264,
        "Cannot run server-side javascript without the javascript engine enabled: security.javascriptEnabled is false, or \
         --noscripting was given",
    )
}

impl Request {
    /// The functions that are stored in the database.
    fn stored_functions(&self) -> Result<Arc<StoredFunctions>, CommandError> {
        if let Some(stored) = STORED.with_borrow(Clone::clone) {
            return Ok(stored);
        }
        let stored = Arc::new(self.read_stored_functions()?);
        STORED.set(Some(stored.clone()));
        Ok(stored)
    }

    fn read_stored_functions(&self) -> Result<StoredFunctions, CommandError> {
        let mut stored = Vec::new();
        let ns = Namespace::new(&self.db, STORED_FUNCTIONS)?;
        if self.store.catalog().collection(&ns).is_none() {
            return Ok(stored);
        }
        // Reading them is no part of what the request tells of itself.
        watch(&mut None, || {
            let mut docs = self
                .store
                .find(&ns, &FindRequest::default(), &self.limits)?;
            while let Some(doc) = docs.next()? {
                let (Some(name), Some(value)) = (doc.get_str("_id"), doc.get("value")) else {
                    return Err(CommandError::new(
                        ErrorCode::BadValue,
                        "a document of system.js must have a name as its _id, and a value",
                    ));
                };
                stored.push((name.to_owned(), OwnedValue::from(value)));
            }
            Ok::<(), CommandError>(())
        })?;
        Ok(stored)
    }
}
