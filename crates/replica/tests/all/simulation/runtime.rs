//! A runtime for simulated machines: each has its own clock, can be paused, and ends with all of its tasks.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frond_kv_testing::Violations;
use frond_replica::{AsyncRuntime, Runtime};
use openraft::OptionalSend;
use openraft_rt_sim::{SimInstant, SimRuntime};
use parking_lot::Mutex;
use rand::RngExt;

thread_local! {
    /// The machine whose task runs now.
    static CURRENT: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };

    /// Where panics of tasks are noted, which the runtime hides.
    static VIOLATIONS: RefCell<Option<Violations>> = const { RefCell::new(None) };
}

/// A process on a machine.
#[derive(Debug)]
pub struct Machine {
    state: Mutex<MachineState>,
    /// The speed of its clock, in parts per thousand of the right one.
    pace: u64,
}

#[derive(Debug, Default)]
struct MachineState {
    is_dead: bool,
    is_paused: bool,
    /// Nanoseconds by which the clock has jumped.
    jumped: u64,
    waiting: Vec<Waker>,
}

impl Machine {
    pub fn new(pace: u64) -> Arc<Machine> {
        Arc::new(Machine {
            state: Mutex::default(),
            pace,
        })
    }

    /// Ends all of its tasks, at the point where they are.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_dead = true;
        state.waiting.clear();
    }

    pub fn pause(&self) {
        self.state.lock().is_paused = true;
    }

    pub fn resume(&self) {
        let mut state = self.state.lock();
        state.is_paused = false;
        wake(&mut state);
    }

    /// Moves the clock forward.
    pub fn jump(&self, time: Duration) {
        self.state.lock().jumped += time.as_nanos() as u64;
    }

    fn now(&self, right: u64) -> u64 {
        self.state.lock().jumped + right / 1000 * self.pace
    }
}

/// Wakes tasks in any order.
fn wake(state: &mut MachineState) {
    let mut random = SimRuntime::thread_rng();
    while !state.waiting.is_empty() {
        let next = random.random_range(0..state.waiting.len());
        state.waiting.swap_remove(next).wake();
    }
}

/// A task of a machine. It never goes on after the machine has ended, and never completes.
struct Task<F> {
    machine: Option<Arc<Machine>>,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Task<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let machine = self.machine.clone();
        if let Some(machine) = &machine {
            let mut state = machine.state.lock();
            if state.is_dead {
                drop(state);
                let before = CURRENT.replace(Some(machine.clone()));
                self.future = None;
                CURRENT.set(before);
                return Poll::Pending;
            }
            if state.is_paused {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        let Some(future) = self.future.as_mut() else {
            return Poll::Pending;
        };
        let before = CURRENT.replace(machine);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        CURRENT.set(before);
        polled.unwrap_or_else(|panic| {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            VIOLATIONS.with_borrow(|violations| {
                if let Some(violations) = violations {
                    violations.add(format!("a task panicked: {what:?}"));
                }
            });
            resume_unwind(panic)
        })
    }
}

/// Runs a task on a machine, or on none.
pub fn spawn_on<F>(machine: Option<Arc<Machine>>, future: F)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = Task {
        machine,
        future: Some(Box::pin(future)),
    };
    drop(SimRuntime::spawn(task));
}

/// Time on the clock of the machine that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalInstant(u64);

/// Nanoseconds of simulated time, by a right clock.
pub fn right_now() -> u64 {
    <SimInstant as openraft::Instant>::now()
        .elapsed_since_start()
        .as_nanos() as u64
}

/// Begins late, so that times before the start exist.
const BEGIN: u64 = 86_400 * 1_000_000_000;

impl openraft::Instant for LocalInstant {
    fn now() -> Self {
        let right = BEGIN + right_now();
        let now = CURRENT.with_borrow(|machine| machine.as_ref().map(|it| it.now(right)));
        LocalInstant(now.unwrap_or(right))
    }
}

impl Add<Duration> for LocalInstant {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        LocalInstant(self.0 + time.as_nanos() as u64)
    }
}

impl AddAssign<Duration> for LocalInstant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for LocalInstant {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        LocalInstant(self.0.saturating_sub(time.as_nanos() as u64))
    }
}

impl SubAssign<Duration> for LocalInstant {
    fn sub_assign(&mut self, time: Duration) {
        *self = *self - time;
    }
}

impl Sub<LocalInstant> for LocalInstant {
    type Output = Duration;
    fn sub(self, other: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(other.0))
    }
}

/// The right time for one that the current machine measures.
fn right(time: Duration) -> Duration {
    let pace = CURRENT.with_borrow(|machine| machine.as_ref().map_or(1000, |it| it.pace));
    if time.is_zero() {
        return time;
    }
    // Rounded up, so that the local time has come when the sleep is over.
    let nanos = (time.as_nanos() as u64).saturating_mul(1000) / pace;
    Duration::from_nanos(nanos + 2000)
}

/// The runtime of simulated machines.
#[derive(Debug)]
pub struct Sim(SimRuntime);

impl Sim {
    pub fn with_seed(seed: u64, violations: Violations) -> Self {
        VIOLATIONS.set(Some(violations));
        Sim(SimRuntime::with_seed(seed))
    }
}

impl AsyncRuntime for Sim {
    type JoinError = <SimRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <SimRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <SimRuntime as AsyncRuntime>::Sleep;
    type Instant = LocalInstant;
    type TimeoutError = <SimRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <SimRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <SimRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <SimRuntime as AsyncRuntime>::Mpsc;
    type Watch = <SimRuntime as AsyncRuntime>::Watch;
    type Oneshot = <SimRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <SimRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        SimRuntime::spawn(Task {
            machine: CURRENT.with_borrow(Clone::clone),
            future: Some(Box::pin(future)),
        })
    }

    fn sleep(time: Duration) -> Self::Sleep {
        SimRuntime::sleep(right(time))
    }

    fn sleep_until(deadline: LocalInstant) -> Self::Sleep {
        Self::sleep(deadline - <LocalInstant as openraft::Instant>::now())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        time: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        SimRuntime::timeout(right(time), future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: LocalInstant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Self::timeout(
            deadline - <LocalInstant as openraft::Instant>::now(),
            future,
        )
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        SimRuntime::is_panic(error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        SimRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Sim(SimRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

impl Runtime for Sim {
    // On the one thread that there is, now or after a while, as a busy pool of threads would.
    async fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let wait = SimRuntime::thread_rng().random_range(0..100_u64);
        let wait = match wait {
            0 => 30_000,
            1..20 => wait * 200,
            _ => 0,
        };
        if wait > 0 {
            SimRuntime::sleep(Duration::from_micros(wait)).await;
        }
        Ok(work())
    }
}
