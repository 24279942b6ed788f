//! The threads that run the tasks of connections, and wait for their sockets.
//!
//! One thread polls an epoll instance. It reads the request of the first event, runs the command, writes the reply, and then
//! waits for the next event. So the commands of one client run on one thread without a context switch, as long as its next
//! request arrives in time. Further events are queued, and one resting thread is woken for each free processor to run them.
//! A thread that finds the queue empty polls, if no other thread does, or rests.
//!
//! While the polling thread runs a command, no thread polls. Before work that is known to be long, another thread takes over the
//! polling. When no thread has polled for a tick and none has made progress, the monitor wakes or adds a thread, so commands
//! may block or take as long as they need.
//!
//! While only one connection is busy, the polling thread busy-polls for its next request for a moment before it sleeps: waking a
//! sleeping thread, often on a processor that sleeps too, takes longer than most requests. It yields the processor meanwhile,
//! and sleeps at once when requests are rare ([`BusyPoll`]).
//!
//! A task that has its reply ready lets queued tasks go first while these are short ([`yield_to_queued_tasks`]), so that the
//! clients are woken one after the other, and not each in the middle of the next request.
//!
//! Timers, signals and listeners belong to the Tokio runtime. A task that is woken from there, or by another task, passes through
//! a queue, whose event is registered at the same epoll instance.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

mod busy_poll;
mod yield_state;

use busy_poll::BusyPoll;
pub use yield_state::yield_to_queued_tasks;
use yield_state::{YIELD_STATE, YieldState};

/// A thread is added when no thread has taken an event for this time.
const TICK: Duration = Duration::from_millis(1);

/// The most threads that are added in a tick.
const ADDED_MAX: usize = 16;

/// After this many ticks in which a thread polls the monitor sleeps until there is none.
const TICKS_AWAKE: u32 = 100;

/// A thread that is not needed ends after this time.
const SPARE_TIME: Duration = Duration::from_secs(10);

/// The longest busy poll.
const AWAKE: Duration = Duration::from_micros(60);

/// The token of the queue's event.
const QUEUE: u64 = u64::MAX;

/// Events that are taken at once.
const EVENTS_MAX: usize = 64;

/// Tasks let others go first while all that are queued take less than this together, by the average of the last ones.
const QUEUE_TIME_MAX: Duration = Duration::from_millis(1);

/// Threads that run tasks.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    epoll: OwnedFd,
    queue_event: OwnedFd,
    /// Tasks that were woken otherwise than by their socket.
    queue: Mutex<VecDeque<Arc<Task>>>,
    tasks: RwLock<Tasks>,
    /// Whether a thread polls.
    is_polled: AtomicBool,
    patience: BusyPoll,
    /// The average run time of a task, in nanoseconds.
    run_ns: AtomicU32,
    /// Threads that the queue may keep busy, and that rest for as long as the pool lives.
    helpers: usize,
    /// Counts the searches for work. It changes while threads make progress.
    looks: AtomicUsize,
    threads: Mutex<Threads>,
    threads_max: usize,
    spare_wanted: Condvar,
    monitor: Mutex<Option<Thread>>,
    monitor_sleeps: AtomicBool,
    stop: AtomicBool,
    runtime: Handle,
}

#[derive(Default)]
struct Threads {
    all: usize,
    /// Threads that are not needed now.
    spare: usize,
    /// Spare threads that are asked to go on.
    wanted: usize,
}

/// The unfinished tasks. A token is the place of a task and how many tasks there were before it.
#[derive(Default)]
struct Tasks {
    places: Vec<Option<Arc<Task>>>,
    free: Vec<u32>,
    count: u32,
}

impl Pool {
    /// A pool of at most `threads_max` threads, of which `helpers` stay when there is nothing to do. Its tasks use the timers
    /// of the runtime that this is called in. The threads are started with the first task.
    pub fn new(helpers: usize, threads_max: usize) -> io::Result<Pool> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let queue_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &epoll,
            &queue_event,
            epoll::EventData::new_u64(QUEUE),
            flags,
        )?;
        let shared = Shared {
            epoll,
            queue_event,
            queue: Mutex::default(),
            tasks: RwLock::default(),
            is_polled: AtomicBool::new(false),
            patience: BusyPoll::new(),
            run_ns: AtomicU32::new(0),
            helpers: helpers.max(1),
            looks: AtomicUsize::new(0),
            threads: Mutex::default(),
            threads_max: threads_max.max(1),
            spare_wanted: Condvar::new(),
            monitor: Mutex::default(),
            monitor_sleeps: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            runtime: Handle::current(),
        };
        Ok(Pool {
            shared: Arc::new(shared),
        })
    }

    /// Runs a task that uses a socket, which does not block.
    pub fn spawn<S, F>(&self, stream: S, task: impl FnOnce(Socket<S>) -> F) -> io::Result<()>
    where
        S: AsFd,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start_threads()?;
        let shared = &self.shared;
        let ready = Arc::new(Ready::default());
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        let mut tasks = shared.tasks.write();
        let place = match tasks.free.pop() {
            Some(place) => place,
            None => {
                tasks.places.push(None);
                u32::try_from(tasks.places.len() - 1).map_err(io::Error::other)?
            }
        };
        tasks.count = tasks.count.wrapping_add(1);
        let token = u64::from(tasks.count) << 32 | u64::from(place);
        if let Err(error) = epoll::add(
            &shared.epoll,
            &stream,
            epoll::EventData::new_u64(token),
            flags,
        ) {
            tasks.free.push(place);
            return Err(error.into());
        }
        let future = task(Socket {
            stream,
            ready: ready.clone(),
        });
        let task = Arc::new(Task {
            pool: Arc::downgrade(shared),
            token,
            ready,
            state: AtomicU8::new(QUEUED),
            future: Mutex::new(Some(Box::pin(future))),
        });
        if let Some(entry) = tasks.places.get_mut(place as usize) {
            *entry = Some(task.clone());
        }
        drop(tasks);
        shared.push(task);
        Ok(())
    }

    /// Makes sure that a thread waits for events, for a thread that is not going to look for one soon.
    pub fn leave(&self) {
        let shared = &self.shared;
        if !shared.is_polled.load(Ordering::Acquire) && shared.threads.lock().all > 0 {
            shared.add_thread();
        }
    }

    /// The number of threads.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.shared.threads.lock().all
    }

    fn start_threads(&self) -> io::Result<()> {
        let shared = &self.shared;
        let mut monitor = shared.monitor.lock();
        if monitor.is_none() {
            let watched = shared.clone();
            let thread = thread::Builder::new()
                .name("frond-monitor".into())
                .spawn(move || watch(&watched))?;
            *monitor = Some(thread.thread().clone());
            for _ in 0..shared.helpers {
                shared.add_thread();
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.stop.store(true, Ordering::SeqCst);
        // The threads are not waited for: one of them may be dropping this.
        shared.spare_wanted.notify_all();
        shared.signal();
        if let Some(monitor) = &*shared.monitor.lock() {
            monitor.unpark();
        }
    }
}

impl Shared {
    /// Queues a task that was woken.
    fn push(&self, task: Arc<Task>) {
        self.queue.lock().push_back(task);
        self.signal();
    }

    /// Makes the polling thread look into the queue.
    fn signal(&self) {
        // It fails only if the event is signalled already.
        let _ = rustix::io::write(&self.queue_event, &1u64.to_ne_bytes());
    }

    /// The next queued task.
    fn pop(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        let task = queue.pop_front()?;
        let left = queue.len();
        drop(queue);
        if left > 0 {
            self.help(left);
        }
        task.state.store(RUNNING, Ordering::Release);
        Some(task)
    }

    /// The loop of a thread, which ends when the thread is not needed.
    fn work(self: &Arc<Shared>) {
        let _timers = self.runtime.enter();
        loop {
            if self.stop.load(Ordering::SeqCst) {
                // Passes the signal on to the next one.
                self.signal();
                break;
            }
            self.looks.fetch_add(1, Ordering::Relaxed);
            if let Some(task) = self.pop() {
                self.run(&task);
                continue;
            }
            if self.is_polled.swap(true, Ordering::SeqCst) {
                if self.rest() {
                    continue;
                }
                break;
            }
            let task = self.poll();
            self.end_polling();
            if let Some(task) = task {
                self.run(&task);
            }
        }
        self.threads.lock().all -= 1;
    }

    /// Waits for events. Returns the task of the first one, and queues the others.
    fn poll(self: &Arc<Shared>) -> Option<Arc<Task>> {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(QUEUE),
        };
        let mut events = [none; EVENTS_MAX];
        let found = match self.wait(&mut events) {
            Ok(found) => found,
            Err(Errno::INTR) => return None,
            Err(error) => {
                // No other error can occur with a valid handle; do not spin if one does.
                debug_assert!(false, "{error}");
                thread::sleep(TICK);
                return None;
            }
        };
        let mut first = None;
        let mut others = Vec::new();
        for event in events.iter().take(found) {
            match first {
                None => first = self.task_of(*event, RUNNING),
                Some(_) => others.extend(self.task_of(*event, QUEUED)),
            }
        }
        if !others.is_empty() {
            let mut queue = self.queue.lock();
            queue.extend(others);
            let queued = queue.len();
            drop(queue);
            self.help(queued);
        }
        first
    }

    /// Waits for events, awake at first if that is likely to be worth it. Returns how many there are.
    fn wait(&self, events: &mut [epoll::Event]) -> Result<usize, Errno> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let began = Instant::now();
        let mut was_short = true;
        let mut found = 0;
        if self.patience.is_left() {
            loop {
                found = epoll::wait(&self.epoll, &mut *events, Some(&now))?;
                if found > 0 || began.elapsed() >= AWAKE {
                    break;
                }
                thread::yield_now();
            }
        }
        if found == 0 {
            found = epoll::wait(&self.epoll, &mut *events, None)?;
            // The time to wake is a part of it.
            was_short = began.elapsed() < 2 * AWAKE;
        }
        let only = events.first().filter(|_| found == 1);
        self.patience
            .note(was_short, only.map(|event| event.data.u64()));
        Ok(found)
    }

    /// Wakes resting threads for tasks in the queue.
    fn help(&self, queued: usize) {
        let mut threads = self.threads.lock();
        let busy = threads.all - threads.spare + threads.wanted;
        let more = queued
            .min(self.helpers.saturating_sub(busy))
            .min(threads.spare - threads.wanted);
        threads.wanted += more;
        drop(threads);
        (0..more).for_each(|_| {
            self.spare_wanted.notify_one();
        });
    }

    /// Notes that no thread polls, and wakes the monitor.
    fn end_polling(&self) {
        self.is_polled.store(false, Ordering::SeqCst);
        if self.monitor_sleeps.load(Ordering::SeqCst)
            && self.monitor_sleeps.swap(false, Ordering::SeqCst)
            && let Some(monitor) = &*self.monitor.lock()
        {
            monitor.unpark();
        }
    }

    /// The task of an event, if it is to be run; it has the state `next` then.
    fn task_of(&self, event: epoll::Event, next: u8) -> Option<Arc<Task>> {
        let token = event.data.u64();
        if token == QUEUE {
            return None;
        }
        let task = {
            let tasks = self.tasks.read();
            let task = tasks.places.get(token as u32 as usize)?.as_ref()?;
            // The place may have been given to another task meanwhile.
            (task.token == token).then(|| task.clone())?
        };
        task.ready.add(event.flags);
        task.notify(next).then_some(task)
    }

    /// Runs a task until it waits for something.
    fn run(&self, task: &Arc<Task>) {
        let waker = Waker::from(task.clone());
        let mut future = task.future.lock();
        loop {
            let Some(running) = future.as_mut() else {
                return;
            };
            let mut context = Context::from_waker(&waker);
            let began = Instant::now();
            YIELD_STATE.set(YieldState::Own);
            // The panic hook has logged a panic, and the task ends.
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context)));
            let turn = YIELD_STATE.replace(YieldState::NoTask);
            self.note_time(began.elapsed());
            if matches!(polled, Ok(Poll::Pending)) {
                if turn == YieldState::AfterOthers {
                    let mut queue = self.queue.lock();
                    if !self.is_short(queue.len()) {
                        continue;
                    }
                    task.state.store(QUEUED, Ordering::Release);
                    queue.push_back(task.clone());
                    return;
                }
                if task.pause() {
                    return;
                }
                continue;
            }
            task.state.store(ENDED, Ordering::Release);
            // It ends its connection.
            let ended = future.take();
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
            let place = task.token as u32;
            let mut tasks = self.tasks.write();
            if let Some(entry) = tasks.places.get_mut(place as usize) {
                *entry = None;
                tasks.free.push(place);
            }
            return;
        }
    }

    /// Adds the time that a task ran to the average.
    fn note_time(&self, time: Duration) {
        let time = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let average = self.run_ns.load(Ordering::Relaxed);
        // Threads that do this at the same time lose the time of one.
        let average = average - average / 16 + time / 16;
        self.run_ns.store(average, Ordering::Relaxed);
    }

    /// Whether there are queued tasks, and they are expected to take little time.
    fn is_short(&self, queued: usize) -> bool {
        let queued = u32::try_from(queued).unwrap_or(u32::MAX);
        let time = u64::from(self.run_ns.load(Ordering::Relaxed)) * u64::from(queued);
        queued > 0 && Duration::from_nanos(time) < QUEUE_TIME_MAX
    }

    /// Lets another thread look for work, or starts one.
    fn add_thread(self: &Arc<Shared>) {
        let mut threads = self.threads.lock();
        if threads.spare > threads.wanted {
            threads.wanted += 1;
            self.spare_wanted.notify_one();
            return;
        }
        if threads.all >= self.threads_max {
            return;
        }
        threads.all += 1;
        drop(threads);
        let shared = self.clone();
        let started = thread::Builder::new()
            .name("frond-worker".into())
            .spawn(move || shared.work());
        if started.is_err() {
            // The monitor tries again.
            self.threads.lock().all -= 1;
        }
    }

    /// Waits until this thread is needed again. False if it is not.
    fn rest(&self) -> bool {
        let mut until = Instant::now() + SPARE_TIME;
        let mut threads = self.threads.lock();
        threads.spare += 1;
        while threads.wanted == 0 && !self.stop.load(Ordering::SeqCst) {
            let waited = self.spare_wanted.wait_until(&mut threads, until);
            if waited.timed_out() {
                // One of the others polls.
                if threads.spare > self.helpers {
                    break;
                }
                until = Instant::now() + SPARE_TIME;
            }
        }
        threads.spare -= 1;
        let is_wanted = threads.wanted > 0;
        threads.wanted -= usize::from(is_wanted);
        is_wanted
    }
}

/// The thread of the monitor: adds a thread whenever none polls and none has got on for a tick, and more each time that only
/// those that it added have.
fn watch(shared: &Arc<Shared>) {
    let mut looks = 0usize;
    let mut added = 0;
    let mut idle_ticks = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        let before = std::mem::replace(&mut looks, shared.looks.load(Ordering::Relaxed));
        if shared.is_polled.load(Ordering::SeqCst) {
            idle_ticks += 1;
            added = 0;
        } else {
            idle_ticks = 0;
            added = if looks.wrapping_sub(before) <= added {
                (2 * added).clamp(1, ADDED_MAX)
            } else {
                0
            };
            (0..added).for_each(|_| shared.add_thread());
        }
        if idle_ticks >= TICKS_AWAKE {
            idle_ticks = 0;
            shared.monitor_sleeps.store(true, Ordering::SeqCst);
            // A thread that took the last event before the flag was set does not wake this one.
            while shared.is_polled.load(Ordering::SeqCst)
                && shared.monitor_sleeps.load(Ordering::SeqCst)
                && !shared.stop.load(Ordering::SeqCst)
            {
                thread::park();
            }
            shared.monitor_sleeps.store(false, Ordering::SeqCst);
        }
        thread::sleep(TICK);
    }
}

// States of a task. A woken one is run once more when it stops running.
const WAITING: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const WOKEN: u8 = 3;
const ENDED: u8 = 4;

/// A future with its socket's state.
struct Task {
    pool: Weak<Shared>,
    token: u64,
    ready: Arc<Ready>,
    state: AtomicU8,
    /// Locked by the thread that runs it.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Task {
    /// Notes that it is to be run. True if it was waiting and is now in the state `next`.
    fn notify(&self, next: u8) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let to = match state {
                WAITING => next,
                RUNNING => WOKEN,
                _ => return false,
            };
            match (self.state).compare_exchange_weak(state, to, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return to == next,
                Err(now) => state = now,
            }
        }
    }

    /// Stops running, unless it was woken meanwhile.
    fn pause(&self) -> bool {
        let paused =
            (self.state).compare_exchange(RUNNING, WAITING, Ordering::AcqRel, Ordering::Acquire);
        if paused.is_err() {
            self.state.store(RUNNING, Ordering::Release);
        }
        paused.is_ok()
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        if self.notify(QUEUED)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.push(self);
        }
    }
}

/// The readiness of a socket. A bit is cleared before the call that tests it, so that an event during the call is not lost.
#[derive(Default)]
struct Ready {
    bits: AtomicU8,
    /// Whether the other side has closed the socket, for others than its task.
    gone: Arc<AtomicBool>,
}

const READ: u8 = 1;
const WRITE: u8 = 2;
/// The other side has closed it: whatever is left can be read without waiting.
const CLOSED: u8 = 4;

impl Ready {
    fn add(&self, flags: epoll::EventFlags) {
        let mut bits = 0;
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(closed) {
            bits |= CLOSED | READ;
            self.gone.store(true, Ordering::Relaxed);
        }
        if flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            bits |= WRITE;
        }
        if flags.intersects(epoll::EventFlags::IN) {
            bits |= READ;
        }
        if flags.intersects(epoll::EventFlags::OUT) {
            bits |= WRITE;
        }
        self.bits.fetch_or(bits, Ordering::AcqRel);
    }

    fn set(&self, bit: u8) {
        self.bits.fetch_or(bit, Ordering::AcqRel);
    }

    fn take(&self, bit: u8) -> bool {
        self.bits.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    fn is_closed(&self) -> bool {
        self.bits.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Calls until it does not have to wait. `bytes` is the number that the call was asked for: if it has fewer, the next
    /// one would have to wait for an event.
    fn when(
        &self,
        bit: u8,
        bytes: usize,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.take(bit) {
                // The event runs the task again.
                return Poll::Pending;
            }
            match call() {
                Ok(n) => {
                    if n == bytes || n == 0 || self.is_closed() {
                        self.set(bit);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.set(bit),
                Err(error) => {
                    self.set(bit);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

/// A stream of a task of the pool. Only this task may use it: events of the socket wake no other.
pub struct Socket<S> {
    stream: S,
    ready: Arc<Ready>,
}

impl<S> Socket<S> {
    /// A flag that is set when the client closes the socket, also while its task does not read.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.ready.gone.clone()
    }
}

impl<S: AsFd> Socket<S> {
    /// Waits for enough bytes to fill a buffer, and leaves them to be read. There are fewer if the client closes the socket
    /// before.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len();
        poll_fn(|_| {
            loop {
                let peek = || Ok(recv(&self.stream, &mut *buffer, RecvFlags::PEEK)?.1);
                match ready!(self.ready.when(READ, wanted, peek)) {
                    // More may come: its event runs the task again.
                    Ok(bytes) if (1..wanted).contains(&bytes) && !self.ready.is_closed() => {}
                    peeked => return Poll::Ready(peeked),
                }
            }
        })
        .await
    }
}

impl<S> AsyncRead for Socket<S>
where
    S: Unpin,
    for<'s> &'s S: Read,
{
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        let read = self
            .ready
            .when(READ, room.len(), || (&self.stream).read(room));
        read.map_ok(|bytes| buffer.advance(bytes))
    }
}

impl<S> AsyncWrite for Socket<S>
where
    S: AsFd + Unpin,
    for<'s> &'s S: Write,
{
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = || (&self.stream).write(bytes);
        self.ready.when(WRITE, bytes.len(), write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let write = || (&self.stream).write_vectored(parts);
        self.ready.when(WRITE, bytes, write)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests;
