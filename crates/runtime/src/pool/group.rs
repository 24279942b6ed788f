//! A part of the tasks with an epoll instance, a queue and threads of its own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use super::busy_poll::BusyPoll;
use super::common::{Common, TICK};
use super::task::{self, Group as _, Home, Task, state};
use super::yield_state::{YIELD_STATE, YieldState};

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

/// The index of a thread that belongs to no group.
const NO_GROUP: usize = usize::MAX;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(NO_GROUP) };
}

/// The index of the group that this thread works for.
pub(super) fn current() -> Option<usize> {
    Some(CURRENT.get()).filter(|index| *index != NO_GROUP)
}

pub(super) struct Group {
    index: usize,
    pub common: Arc<Common>,
    epoll: OwnedFd,
    queue_event: OwnedFd,
    /// Tasks that were woken otherwise than by their socket.
    queue: Mutex<VecDeque<Arc<Task>>>,
    pub tasks: RwLock<Tasks>,
    /// Whether a thread polls.
    pub is_polled: AtomicBool,
    patience: BusyPoll,
    /// The average run time of a task, in nanoseconds.
    pub run_ns: AtomicU32,
    /// Threads that the queue may keep busy, and that rest for as long as the pool lives.
    helpers: usize,
    /// Counts the searches for work. It changes while threads make progress.
    pub looks: AtomicUsize,
    pub threads: Mutex<Threads>,
    pub spare_wanted: Condvar,
    /// Tasks that were busy in this interval.
    pub busy_tasks: AtomicU32,
    /// Whether there is a receiver.
    is_crowded: AtomicBool,
    /// The group that gets the next task that stops running.
    receiver: Mutex<Option<Weak<Group>>>,
}

#[derive(Default)]
pub(super) struct Threads {
    pub all: usize,
    /// Threads that are not needed now.
    spare: usize,
    /// Spare threads that are to go on.
    wanted: usize,
}

/// The unfinished tasks. A token is the place of a task and how many tasks there were before it.
#[derive(Default)]
pub(super) struct Tasks {
    pub places: Vec<Option<(u64, Arc<Task>)>>,
    free: Vec<u32>,
    count: u32,
}

impl Tasks {
    /// Returns the token of the task; `None` if there is no place for more.
    pub fn insert(&mut self, task: Arc<Task>) -> Option<u64> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.places.push(None);
                u32::try_from(self.places.len() - 1).ok()?
            }
        };
        self.count = self.count.wrapping_add(1);
        let token = u64::from(self.count) << 32 | u64::from(place);
        if let Some(entry) = self.places.get_mut(place as usize) {
            *entry = Some((token, task));
        }
        Some(token)
    }

    pub fn remove(&mut self, token: u64) {
        let place = token as u32;
        if let Some(entry) = self.places.get_mut(place as usize)
            && entry.take_if(|(of, _)| *of == token).is_some()
        {
            self.free.push(place);
        }
    }
}

impl Group {
    pub fn new(index: usize, helpers: usize, common: &Arc<Common>) -> io::Result<Group> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let queue_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &epoll,
            &queue_event,
            epoll::EventData::new_u64(QUEUE),
            flags,
        )?;
        Ok(Group {
            index,
            common: common.clone(),
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
            spare_wanted: Condvar::new(),
            busy_tasks: AtomicU32::new(0),
            is_crowded: AtomicBool::new(false),
            receiver: Mutex::default(),
        })
    }

    /// Starts the threads that rest when there is nothing to do.
    pub fn start_helpers(self: &Arc<Group>) {
        (0..self.helpers).for_each(|_| self.add_thread());
    }

    /// Makes the next task that stops running move to another group.
    pub fn relieve_by(&self, receiver: &Arc<Group>) {
        *self.receiver.lock() = Some(Arc::downgrade(receiver));
        self.is_crowded.store(true, Ordering::Relaxed);
    }

    /// Makes the polling thread look into the queue.
    pub fn signal(&self) {
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
        task.set_state(state::RUNNING);
        Some(task)
    }

    /// The loop of a thread, which ends when the thread is not needed.
    fn work(self: &Arc<Group>) {
        let _timers = self.common.runtime.enter();
        CURRENT.set(self.index);
        loop {
            if self.common.stop.load(Ordering::SeqCst) {
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
        self.end_thread();
    }

    fn end_thread(&self) {
        self.threads.lock().all -= 1;
        self.common.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits for events. Returns the task of the first one, and queues the others.
    fn poll(self: &Arc<Group>) -> Option<Arc<Task>> {
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
                None => first = self.task_of(*event, state::RUNNING),
                Some(_) => others.extend(self.task_of(*event, state::QUEUED)),
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
        if self.patience.is_left()
            && let Some(_awake) = self.common.stay_awake()
        {
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
        self.common.wake_monitor();
    }

    /// The task of an event, if it is to be run; it has the state `next` then.
    fn task_of(&self, event: epoll::Event, next: u8) -> Option<Arc<Task>> {
        let token = event.data.u64();
        if token == QUEUE {
            return None;
        }
        let task = {
            let tasks = self.tasks.read();
            let (of, task) = tasks.places.get(token as u32 as usize)?.as_ref()?;
            // The place may have been given to another task meanwhile.
            (*of == token).then(|| task.clone())?
        };
        task.ready.add(event.flags);
        task.notify(next).then_some(task)
    }

    /// Runs a task until it waits for something.
    fn run(&self, task: &Arc<Task>) {
        let waker = Waker::from(task.clone());
        let mut future = task.future.lock();
        if task.note_run(self.common.interval.load(Ordering::Relaxed)) {
            self.busy_tasks.fetch_add(1, Ordering::Relaxed);
        }
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
                    task.set_state(state::QUEUED);
                    queue.push_back(task.clone());
                    return;
                }
                if self.is_crowded.load(Ordering::Relaxed)
                    && let Err(_broken) = self.give_away(task)
                {
                    // No epoll instance has its socket, so it would wait for ever.
                    task.set_state(state::ENDED);
                    *future = None;
                    return;
                }
                if task.pause() {
                    return;
                }
                continue;
            }
            task.set_state(state::ENDED);
            // It ends its connection.
            let ended = future.take();
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
            let home = task.home.lock();
            if let Some(group) = home.group.upgrade() {
                group.forget(home.token);
            }
            return;
        }
    }

    /// Moves a task that this thread runs to the group that has the fewest busy ones. Events that occur meanwhile are not lost:
    /// the new epoll instance reports all that the socket is ready for.
    fn give_away(&self, task: &Arc<Task>) -> Result<(), Errno> {
        let receiver = self.receiver.lock().take();
        self.is_crowded.store(false, Ordering::Relaxed);
        let Some(to) = receiver.and_then(|group| group.upgrade()) else {
            return Ok(());
        };
        let Some(file) = task.file.upgrade() else {
            return Ok(());
        };
        let mut home = task.home.lock();
        let from = home.group.upgrade();
        let Some(from) = from.filter(|from| from.index() != to.index) else {
            return Ok(());
        };
        let Some(token) = to.tasks.write().insert(task.clone()) else {
            return Ok(());
        };
        from.release(file.as_fd(), home.token)
            .inspect_err(|_| to.forget(token))?;
        let group: Arc<dyn task::Group> = to.clone();
        *home = Home {
            group: Arc::downgrade(&group),
            token,
        };
        to.register(&file, token).inspect_err(|_| to.forget(token))
    }

    /// Watches a socket, whose first event reports all that it is ready for.
    pub fn register(&self, file: impl AsFd, token: u64) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(token), flags)
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
    pub fn add_thread(self: &Arc<Group>) {
        let mut threads = self.threads.lock();
        if threads.spare > threads.wanted {
            threads.wanted += 1;
            self.spare_wanted.notify_one();
            return;
        }
        if !self.common.count_thread() {
            return;
        }
        threads.all += 1;
        drop(threads);
        let group = self.clone();
        let started = thread::Builder::new()
            .name("frond-worker".into())
            .spawn(move || group.work());
        if started.is_err() {
            // The monitor tries again.
            self.end_thread();
        }
    }

    /// Waits until this thread is needed again. False if it is not.
    fn rest(&self) -> bool {
        let mut until = Instant::now() + SPARE_TIME;
        let mut threads = self.threads.lock();
        threads.spare += 1;
        while threads.wanted == 0 && !self.common.stop.load(Ordering::SeqCst) {
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

impl task::Group for Group {
    fn index(&self) -> usize {
        self.index
    }

    fn push(&self, task: Arc<Task>) {
        self.queue.lock().push_back(task);
        self.signal();
    }

    fn release(&self, file: BorrowedFd<'_>, token: u64) -> Result<(), Errno> {
        epoll::delete(&self.epoll, file)?;
        self.forget(token);
        Ok(())
    }

    fn forget(&self, token: u64) {
        self.tasks.write().remove(token);
    }
}
