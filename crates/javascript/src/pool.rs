//! The workers of a server: those that wait for a request, and the thread that starts them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process::{Process, WorkerProgram};

/// The most workers that wait for a request.
const IDLE_MAX: usize = 4;

/// A worker ends that has waited for a request for so long.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Counts of worker processes, now and since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Processes that there are, those that wait among them.
    pub current: usize,
    /// Processes that wait for a request.
    pub idle: usize,
    /// Processes that were started.
    pub started: u64,
    /// Processes that were killed, because a request had to end while its function ran.
    pub killed: u64,
    /// Processes that ended by themselves while a function ran.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Processes that there are.
    pub current: AtomicUsize,
    /// Processes that were started.
    pub started: AtomicU64,
    /// Processes that were killed while they ran a function.
    pub killed: AtomicU64,
    /// Processes that ended by themselves.
    pub lost: AtomicU64,
}

/// A worker of a pool.
#[derive(Debug)]
pub struct Worker {
    /// The process. It is killed before it stops to count.
    pub process: Process,
    _counted: Counted,
}

#[derive(Debug)]
struct Counted(Arc<Counters>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.current.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Workers that wait, and since when. The one that has waited for the shortest time is the last.
type Idle = Arc<Mutex<Vec<(Worker, Instant)>>>;

/// An order for a worker: where it goes to.
type Order = Sender<io::Result<Worker>>;

/// The workers of a server.
pub struct Pool {
    program: WorkerProgram,
    idle: Idle,
    idle_max: usize,
    counters: Arc<Counters>,
    keeper: Mutex<Option<WorkerSupervisor>>,
}

/// The thread that starts workers, which end with it, and ends those that wait for long.
struct WorkerSupervisor {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("program", &self.program)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut();
        if let Some(keeper) = keeper.unwrap_or_else(PoisonError::into_inner).take() {
            drop(keeper.orders);
            let _ = keeper.thread.join();
        }
    }
}

impl Pool {
    /// Workers that run `program`. None is started yet.
    pub fn new(program: WorkerProgram) -> Pool {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Pool {
            program,
            idle: Idle::default(),
            idle_max: cores.min(IDLE_MAX),
            counters: Arc::default(),
            keeper: Mutex::new(None),
        }
    }

    /// A worker that waits, if there is one.
    pub fn take(&self) -> Option<Worker> {
        lock(&self.idle).pop().map(|(worker, _)| worker)
    }

    /// Puts a worker back that has no engine any more.
    pub fn put(&self, worker: Worker) {
        let mut idle = lock(&self.idle);
        if idle.len() < self.idle_max {
            idle.push((worker, Instant::now()));
        }
    }

    /// Orders a new worker. It arrives at the receiver.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn order(&self) -> io::Result<Receiver<io::Result<Worker>>> {
        let (order, arrival) = channel();
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() {
            *keeper = Some(self.keep()?);
        }
        if let Some(keeper) = &*keeper {
            let _ = keeper.orders.send(order);
        }
        Ok(arrival)
    }

    fn keep(&self) -> io::Result<WorkerSupervisor> {
        let (orders, ordered) = channel();
        let program = self.program.clone();
        let (idle, counters) = (self.idle.clone(), self.counters.clone());
        let thread = std::thread::Builder::new()
            .name("frond-js-keeper".to_owned())
            .spawn(move || keep(&program, &idle, &counters, &ordered))?;
        Ok(WorkerSupervisor { orders, thread })
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Figures on the workers.
    pub fn stats(&self) -> WorkerStats {
        let counters = &self.counters;
        WorkerStats {
            current: counters.current.load(Ordering::Relaxed),
            idle: lock(&self.idle).len(),
            started: counters.started.load(Ordering::Relaxed),
            killed: counters.killed.load(Ordering::Relaxed),
            lost: counters.lost.load(Ordering::Relaxed),
        }
    }
}

fn lock(idle: &Idle) -> std::sync::MutexGuard<'_, Vec<(Worker, Instant)>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The work of the keeper, until the pool is dropped.
fn keep(program: &WorkerProgram, idle: &Idle, counters: &Arc<Counters>, ordered: &Receiver<Order>) {
    loop {
        match ordered.recv_timeout(IDLE_TIME / 4) {
            Ok(order) => {
                // A request that has ended meanwhile does not take it, and it is killed.
                let _ = order.send(start(program, counters));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let spare: Vec<_> = {
            let mut idle = lock(idle);
            let is_spare = |(_, since): &(Worker, Instant)| since.elapsed() >= IDLE_TIME;
            idle.extract_if(.., |entry| is_spare(entry)).collect()
        };
        drop(spare);
    }
    let rest = std::mem::take(&mut *lock(idle));
    drop(rest);
}

fn start(program: &WorkerProgram, counters: &Arc<Counters>) -> io::Result<Worker> {
    let process = Process::start(program)?;
    counters.started.fetch_add(1, Ordering::Relaxed);
    counters.current.fetch_add(1, Ordering::Relaxed);
    Ok(Worker {
        process,
        _counted: Counted(counters.clone()),
    })
}
