//! The threads that run the tasks of connections, and wait for their sockets.
//!
//! The tasks are divided into groups, each with an epoll instance, a queue and threads of its own, so that the clients of different
//! groups share no lock and no cache line here. A machine with few processors has one group. Otherwise there is one for each
//! processor, and the monitor moves busy tasks to groups that have fewer of them: a few busy connections get a
//! thread each.
//!
//! One thread of a group polls its epoll instance. It reads the request of the first event, runs the command, writes the reply, and then
//! waits for the next event. So the commands of one client run on one thread without a context switch, as long as its next
//! request arrives in time. Further events are queued, and one resting thread is woken for each free processor to run them.
//! A thread that finds the queue empty polls, if no other thread does, or rests.
//!
//! While the polling thread runs a command, no thread polls. Before work that is known to be long, another thread takes over the
//! polling. When no thread has polled for a tick and none has made progress, the monitor wakes or adds a thread, so commands
//! may block or take as long as they need.
//!
//! While only one connection of a group is busy, the polling thread busy-polls for its next request for a moment before it sleeps: waking a
//! sleeping thread, often on a processor that sleeps too, takes longer than most requests. It yields the processor meanwhile,
//! and sleeps at once when requests are rare ([`BusyPoll`]).
//!
//! A task that has its reply ready lets queued tasks go first while these are short ([`yield_to_queued_tasks`]), so that the
//! clients are woken one after the other, and not each in the middle of the next request.
//!
//! Timers, signals and listeners belong to the Tokio runtime. A task that is woken from there, or by another task, passes through
//! a queue, whose event is registered at the same epoll instance.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

mod busy_poll;
mod common;
mod group;
mod monitor;
mod socket;
mod task;
mod yield_state;

use common::Common;
use group::Group;
pub use socket::Socket;
use task::{Group as _, Task};
pub use yield_state::yield_to_queued_tasks;

/// Machines with fewer processors have one group: their threads are in each other's way rather than their caches.
const PROCESSORS_OF_GROUPS: usize = 4;

/// Threads that run tasks.
pub struct Pool {
    common: Arc<Common>,
    groups: Vec<Arc<Group>>,
    /// The number of tasks so far, which go to the groups in turns.
    spawned: AtomicUsize,
}

/// The number of groups that suits the machine.
pub fn groups_for(processors: usize) -> usize {
    if processors < PROCESSORS_OF_GROUPS {
        1
    } else {
        processors
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads, of which `helpers` of each group stay when there is nothing to do. Its tasks use the
    /// timers of the runtime that this is called in. The threads are started with the first task.
    pub fn new(groups: usize, helpers: usize, threads_max: usize) -> io::Result<Pool> {
        let common = Arc::new(Common::new(threads_max));
        let groups: io::Result<Vec<_>> = (0..groups.max(1))
            .map(|index| Ok(Arc::new(Group::new(index, helpers, &common)?)))
            .collect();
        Ok(Pool {
            common,
            groups: groups?,
            spawned: AtomicUsize::new(0),
        })
    }

    /// Runs a task that uses a socket, which does not block.
    pub fn spawn<S, F>(&self, stream: S, task: impl FnOnce(Socket<S>) -> F) -> io::Result<()>
    where
        S: AsFd + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.start_threads()?;
        let turn = self.spawned.fetch_add(1, Ordering::Relaxed) % self.groups.len();
        let group = self.groups.get(turn).ok_or(io::ErrorKind::NotFound)?;
        let ready = Arc::default();
        let stream = Arc::new(stream);
        let file = Arc::downgrade(&stream) as Weak<dyn AsFd + Send + Sync>;
        let future = task(Socket::new(stream.clone(), Arc::clone(&ready)));
        let home: Arc<dyn task::Group> = group.clone();
        let task = Arc::new(Task::new(Arc::downgrade(&home), file, ready, future));
        let mut tasks = group.tasks.write();
        let token = tasks
            .insert(task.clone())
            .ok_or(io::ErrorKind::QuotaExceeded)?;
        if let Err(error) = group.register(&stream, token) {
            tasks.remove(token);
            return Err(error.into());
        }
        task.home.lock().token = token;
        drop(tasks);
        group.push(task);
        Ok(())
    }

    /// Makes sure that a thread waits for the events of this thread's group, which is not going to look for one soon.
    pub fn leave(&self) {
        let group = group::current().and_then(|index| self.groups.get(index));
        if let Some(group) = group
            && !group.is_polled.load(Ordering::Acquire)
        {
            group.add_thread();
        }
    }

    /// The number of threads.
    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.common.threads.load(Ordering::SeqCst)
    }

    fn start_threads(&self) -> io::Result<()> {
        let mut monitor = self.common.monitor.lock();
        if monitor.is_none() {
            let (common, groups) = (self.common.clone(), self.groups.clone());
            let thread = thread::Builder::new()
                .name("frond-monitor".into())
                .spawn(move || monitor::watch(&common, &groups))?;
            *monitor = Some(thread.thread().clone());
            self.groups.iter().for_each(Group::start_helpers);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::SeqCst);
        // The threads are not waited for: one of them may be dropping this.
        for group in &self.groups {
            group.spare_wanted.notify_all();
            group.signal();
        }
        if let Some(monitor) = &*self.common.monitor.lock() {
            monitor.unpark();
        }
    }
}

#[cfg(test)]
mod tests;
