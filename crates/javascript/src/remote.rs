//! A function that runs in a worker: the worker that a thread has while it runs a request, and what it knows.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, OwnedValue, Value as Bson, doc};
use frond_error::{Error as Fault, ErrorCode, Result};
use frond_query::script::{Script, ScriptSource, StoredFunctions};

use crate::code::{Code, SourceKey};
use crate::limits::HeapReservation;
use crate::pool::{Pool, Worker};
use crate::process::{LOOK, WorkerFailure, fits};
use crate::protocol::Kind;
use crate::shared::Shared;

/// Stored functions are sent in messages of about this many bytes.
const STORED_BYTES: usize = 1 << 20;

/// Documents are passed to a map function in messages of at most this many bytes, or one by one.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The most bytes of what a map function emits for the documents of a message. A worker in order stays far below it.
const EMITTED_BYTES_MAX: usize = 512 << 20;

/// A worker that needs longer to drop its engine is killed.
const END_TIME: Duration = Duration::from_millis(50);

/// A worker that has more memory after its engine is gone waits for no other request.
const RESIDENT_BYTES_MAX: i64 = 64 << 20;

thread_local! {
    static LEASE: RefCell<Option<Lease>> = const { RefCell::new(None) };
}

/// The workers, and the state that all threads share.
#[derive(Clone)]
pub struct Workers {
    /// Their memory, what ends them, where their lines go.
    pub shared: Arc<Shared>,
    pub pool: Arc<Pool>,
}

/// The worker of a thread, and what it knows of the request that runs there.
struct Lease {
    workers: Workers,
    worker: Worker,
    /// The functions that it has compiled.
    compiled: HashSet<u64>,
    /// The functions by their source.
    programs: HashMap<SourceKey, u64>,
    /// Whether it has the stored functions of the database.
    has_stored: bool,
    /// Whether a function may run there.
    is_busy: bool,
    reservation: HeapReservation,
}

/// The answer of a worker.
enum Answer {
    Done,
    Is(bool),
    Value(OwnedValue),
    Mapped(usize),
    Failed(Fault),
}

/// Runs something with the worker of this thread, which is leased if there is none.
fn with<T>(workers: &Workers, run: impl FnOnce(&mut Lease) -> Result<T>) -> Result<T> {
    LEASE.with(|slot| {
        let Ok(mut slot) = slot.try_borrow_mut() else {
            return Err(Fault::internal("a function of JavaScript called itself"));
        };
        let own = |lease: &Lease| Arc::ptr_eq(&lease.workers.pool, &workers.pool);
        let mut lease = match slot.take().filter(own) {
            Some(lease) => lease,
            None => Lease::begin(workers)?,
        };
        let result = run(&mut lease);
        // One that still runs a function is killed, and the next call gets another worker.
        *slot = Some(lease).filter(|lease| !lease.is_busy);
        result
    })
}

/// Ends what the request of this thread has in its worker, which then waits for another request.
pub fn end() {
    let lease = LEASE.with(|slot| slot.try_borrow_mut().ok()?.take());
    if let Some(lease) = lease {
        lease.end();
    }
}

/// An error of this side.
fn failure(message: impl fmt::Display) -> Fault {
    Fault::new(ErrorCode::JSInterpreterFailure, message.to_string())
}

/// A document that comes from a worker. It may do anything, once something has broken out of its engine.
fn valid(body: &[u8]) -> std::result::Result<&Doc, WorkerFailure> {
    Doc::validate(body).map_err(|_| WorkerFailure::Lost)
}

impl Lease {
    fn begin(workers: &Workers) -> Result<Lease> {
        let mut waiting = workers.pool.take();
        loop {
            let was_waiting = waiting.is_some();
            let worker = match waiting.take() {
                Some(worker) => worker,
                None => new_worker(workers)?,
            };
            let mut lease = Lease {
                workers: workers.clone(),
                worker,
                compiled: HashSet::new(),
                programs: HashMap::new(),
                has_stored: false,
                is_busy: false,
                reservation: workers.shared.heaps.reserve(),
            };
            let heap = i64::try_from(lease.reservation.bytes()).unwrap_or(i64::MAX);
            let options = doc! {"heap": heap};
            match lease.exchange(Kind::Begin, &[options.as_bytes()], &mut Vec::new()) {
                Ok(_) => return Ok(lease),
                // One that waited may have been ended meanwhile, as by an administrator.
                Err(WorkerFailure::Lost) if was_waiting => waiting = workers.pool.take(),
                Err(trouble) => return Err(lease.fault(trouble)),
            }
        }
    }

    /// Sends a request and returns the answer.
    fn exchange(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        emitted: &mut Vec<u8>,
    ) -> std::result::Result<Answer, WorkerFailure> {
        let shared = &self.workers.shared;
        let process = &mut self.worker.process;
        self.is_busy = true;
        process.send(kind, parts, &*shared.check)?;
        let answer = process.receive(&*shared.check, |kind, body| {
            Ok(Some(match kind {
                Kind::Done => Answer::Done,
                Kind::True => Answer::Is(true),
                Kind::False => Answer::Is(false),
                Kind::Returned => {
                    let value = valid(body)?.get("").ok_or(WorkerFailure::Lost)?;
                    Answer::Value(value.to_owned())
                }
                Kind::Mapped => {
                    let done = valid(body)?.get_i64("n").unwrap_or_default();
                    Answer::Mapped(usize::try_from(done).map_err(|_| WorkerFailure::Lost)?)
                }
                Kind::Failed => {
                    let body = valid(body)?;
                    let (code, message) = (body.get_i32("code"), body.get_str("message"));
                    let code = ErrorCode::from_code(code.ok_or(WorkerFailure::Lost)?);
                    Answer::Failed(Fault::new(code, message.unwrap_or_default()))
                }
                Kind::Printed => {
                    (shared.print)(valid(body)?.get_str("text").unwrap_or_default());
                    return Ok(None);
                }
                Kind::Emitted => {
                    if emitted.len() + body.len() > EMITTED_BYTES_MAX {
                        return Err(WorkerFailure::Lost);
                    }
                    emitted.extend_from_slice(body);
                    return Ok(None);
                }
                _ => return Err(WorkerFailure::Lost),
            }))
        })?;
        self.is_busy = false;
        Ok(answer)
    }

    /// Sends a request of a function and returns the answer.
    fn ask(&mut self, kind: Kind, parts: &[&[u8]], emitted: &mut Vec<u8>) -> Result<Answer> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if !fits(bytes) {
            return Err(Fault::new(
                ErrorCode::BSONObjectTooLarge,
                format!("the arguments of a function are too large: they have {bytes} bytes"),
            ));
        }
        match self.exchange(kind, parts, emitted) {
            Ok(Answer::Failed(fault)) => Err(fault),
            Ok(answer) => Ok(answer),
            Err(trouble) => Err(self.fault(trouble)),
        }
    }

    /// Ends the process, which gives no answer, and returns the error of the request.
    fn fault(&mut self, trouble: WorkerFailure) -> Fault {
        self.is_busy = true;
        let status = self.worker.process.kill();
        let counters = self.workers.pool.counters();
        match trouble {
            WorkerFailure::Ends(fault) => {
                counters.killed.fetch_add(1, Ordering::Relaxed);
                fault
            }
            WorkerFailure::Lost => {
                counters.lost.fetch_add(1, Ordering::Relaxed);
                let how = status.map_or_else(String::new, |status| format!(" ({status})"));
                // While the server stops, its workers may get the same signal.
                (self.workers.shared.check)().err().unwrap_or_else(|| {
                    failure(format!(
                        "the process that ran a function of JavaScript has ended{how}: the function may have needed too much memory"
                    ))
                })
            }
        }
    }

    /// Makes the worker know a function.
    fn compile(&mut self, code: &Code) -> Result<()> {
        if self.compiled.contains(&code.id) {
            return Ok(());
        }
        if let Some(stored) = &code.stored
            && !self.has_stored
        {
            self.has_stored = true;
            self.store(stored)?;
        }
        let mut function = DocBuf::new();
        function.push("code", code.source.code.as_str());
        if let Some(scope) = &code.source.scope {
            function.push("scope", scope);
        }
        function.push("stored", code.stored.is_some());
        let number = code.id.to_le_bytes();
        self.ask(
            Kind::Compile,
            &[&number, function.as_bytes()],
            &mut Vec::new(),
        )?;
        self.compiled.insert(code.id);
        self.programs.insert(code.key(), code.id);
        Ok(())
    }

    fn store(&mut self, stored: &StoredFunctions) -> Result<()> {
        let mut functions = DocBuf::new();
        for (name, value) in stored {
            functions.push_value(name, &value.as_value());
            if functions.len_bytes() >= STORED_BYTES {
                self.ask(Kind::Store, &[functions.as_bytes()], &mut Vec::new())?;
                functions.clear();
            }
        }
        self.ask(Kind::Store, &[functions.as_bytes()], &mut Vec::new())
            .map(drop)
    }

    /// Gives the worker back. If its engine does not end soon, or has left much memory behind, it is killed.
    fn end(mut self) {
        let began = Instant::now();
        let process = &mut self.worker.process;
        if self.is_busy || process.send(Kind::End, &[], &|| Ok(())).is_err() {
            return;
        }
        let resident = process.end(began + END_TIME);
        if resident.is_some_and(|bytes| bytes <= RESIDENT_BYTES_MAX) {
            self.workers.pool.put(self.worker);
        }
    }
}

/// A new process. The request may end while it is started.
fn new_worker(workers: &Workers) -> Result<Worker> {
    let unable = |error| failure(format!("no process for JavaScript can be started: {error}"));
    let arrival = workers.pool.order().map_err(unable)?;
    loop {
        match arrival.recv_timeout(LOOK) {
            Ok(worker) => return worker.map_err(unable),
            Err(RecvTimeoutError::Timeout) => (workers.shared.check)()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failure("no process for JavaScript can be started"));
            }
        }
    }
}

/// A function that runs in workers. Each thread that calls it has one.
pub struct RemoteProgram {
    code: Code,
    workers: Workers,
}

impl fmt::Debug for RemoteProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteProgram")
            .field("code", &self.code.source.code)
            .finish_non_exhaustive()
    }
}

impl RemoteProgram {
    /// A function, compiled by the worker of this thread.
    ///
    /// # Errors
    /// `JSInterpreterFailure` for code that cannot be compiled, or if there is no worker.
    pub fn new(
        workers: &Workers,
        source: ScriptSource,
        stored: Option<Arc<StoredFunctions>>,
    ) -> Result<RemoteProgram> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut code = Code {
            id: 0,
            source: Arc::new(source),
            stored,
        };
        with(workers, |lease| {
            let known = lease.programs.get(&code.key()).copied();
            code.id = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
            lease.compile(&code)
        })?;
        Ok(RemoteProgram {
            code,
            workers: workers.clone(),
        })
    }

    fn ask(&self, kind: Kind, parts: &[&[u8]]) -> Result<Answer> {
        with(&self.workers, |lease| {
            lease.compile(&self.code)?;
            lease.ask(kind, parts, &mut Vec::new())
        })
    }

    fn number(&self) -> [u8; 8] {
        self.code.id.to_le_bytes()
    }

    fn value(&self, kind: Kind, parts: &[&[u8]]) -> Result<OwnedValue> {
        match self.ask(kind, parts)? {
            Answer::Value(value) => Ok(value),
            _ => Err(Fault::internal("a worker returned no value")),
        }
    }

    /// Passes documents that lie behind one another to the function. Returns how many it has got, which may be less than all, and
    /// what it has emitted.
    fn map_some(&self, docs: &[&[u8]]) -> Result<(usize, Vec<u8>)> {
        let number = self.number();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(docs.len() + 1);
        parts.push(&number);
        parts.extend_from_slice(docs);
        with(&self.workers, |lease| {
            lease.compile(&self.code)?;
            let mut emitted = Vec::new();
            match lease.ask(Kind::Map, &parts, &mut emitted)? {
                Answer::Mapped(done) if done > 0 => Ok((done, emitted)),
                _ => Err(Fault::internal("a worker passed no document to a function")),
            }
        })
    }
}

impl Script for RemoteProgram {
    fn test(&self, doc: &Doc) -> Result<bool> {
        match self.ask(Kind::Test, &[&self.number(), doc.as_bytes()])? {
            Answer::Is(is) => Ok(is),
            _ => Err(Fault::internal("a worker returned no condition")),
        }
    }

    fn call(&self, arguments: &Doc) -> Result<OwnedValue> {
        self.value(Kind::Call, &[&self.number(), arguments.as_bytes()])
    }

    fn fold(&self, state: Bson<'_>, batch: &Doc) -> Result<OwnedValue> {
        let mut first = DocBuf::new();
        first.push_value("", &state);
        let parts = [&self.number()[..], first.as_bytes(), batch.as_bytes()];
        self.value(Kind::Fold, &parts)
    }

    fn map(&self, doc: &Doc, emit: &mut dyn FnMut(Bson<'_>, Bson<'_>) -> Result<()>) -> Result<()> {
        self.map_all(&[doc], emit)
    }

    fn map_all(
        &self,
        docs: &[&Doc],
        emit: &mut dyn FnMut(Bson<'_>, Bson<'_>) -> Result<()>,
    ) -> Result<()> {
        let docs: Vec<&[u8]> = docs.iter().map(|doc| doc.as_bytes()).collect();
        let mut rest = docs.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|doc| {
                bytes += doc.len();
                bytes <= BATCH_BYTES_MAX
            });
            let some = fit.count().max(1);
            let (done, emitted) = self.map_some(rest.get(..some).unwrap_or_default())?;
            // With the worker at rest: who takes a key may call another function.
            let mut pairs = emitted.as_slice();
            while !pairs.is_empty() {
                let broken = |_| failure("a worker emitted what is no document");
                let (pair, more) = Doc::from_prefix(pairs).map_err(broken)?;
                pairs = more;
                let field = |name| pair.get(name).unwrap_or(Bson::Null);
                emit(field("k"), field("v"))?;
            }
            rest = rest.get(done.min(some)..).unwrap_or_default();
        }
        Ok(())
    }
}
