#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::waiting::{PATIENCE, wait_until};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Both ends of a connection: the client's, and the one for the pool.
fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (client, server)
}

/// Tests that do not depend on the number of groups run with these.
const GROUPS: [usize; 2] = [1, 4];

/// Holds threads until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    holds: AtomicUsize,
}

impl Gate {
    fn hold(&self) {
        let mut is_open = self.is_open.lock();
        self.holds.fetch_add(1, Ordering::SeqCst);
        while !*is_open {
            self.opened.wait(&mut is_open);
        }
        self.holds.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_for_held(&self, threads: usize) {
        wait_until("held threads", || {
            self.holds.load(Ordering::SeqCst) == threads
        });
    }

    fn set_open(&self, is_open: bool) {
        *self.is_open.lock() = is_open;
        self.opened.notify_all();
    }
}

/// A byte that is returned at once, and one that holds its thread at the gate before.
const AT_ONCE: u8 = 0;
const HELD: u8 = 1;

async fn echo(mut socket: Socket<TcpStream>, gate: Arc<Gate>) {
    let mut byte = [0];
    while socket.read_exact(&mut byte).await.is_ok() {
        if byte == [HELD] {
            gate.hold();
        }
        socket.write_all(&byte).await.unwrap();
    }
}

/// A client of a new task that returns each byte.
fn client_of_echo(pool: &Pool, listener: &TcpListener, gate: &Arc<Gate>) -> TcpStream {
    let (client, server) = pair(listener);
    let gate = gate.clone();
    pool.spawn(server, |socket| echo(socket, gate)).unwrap();
    client
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(&[AT_ONCE]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// A client is served while any number of others keep their threads.
#[test]
fn threads_that_are_busy_for_long_do_not_stop_the_others() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (busy, groups) in [1, 2, 20]
        .into_iter()
        .flat_map(|busy| GROUPS.map(|groups| (busy, groups)))
    {
        let pool = Pool::new(groups, 2, 30).unwrap();
        let gate = Arc::new(Gate::default());
        let mut clients: Vec<_> = (0..=busy)
            .map(|_| client_of_echo(&pool, &listener, &gate))
            .collect();
        clients.iter_mut().for_each(ask);
        let (quick, slow) = clients.split_first_mut().unwrap();
        for stream in slow.iter_mut() {
            stream.write_all(&[HELD]).unwrap();
        }
        (0..20).for_each(|_| ask(quick));
        gate.wait_for_held(busy);
        (0..20).for_each(|_| ask(quick));
        assert!(pool.threads() > busy);
        gate.set_open(true);
        for stream in slow {
            stream.read_exact(&mut [0]).unwrap();
        }
    }
}

/// More tasks than threads may be busy: the others are served when a thread is free.
#[test]
fn the_number_of_threads_is_bounded() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(1, 1, 3).unwrap();
    let gate = Arc::new(Gate::default());
    let mut clients: Vec<_> = (0..12)
        .map(|_| {
            let mut client = client_of_echo(&pool, &listener, &gate);
            client.write_all(&[HELD]).unwrap();
            client
        })
        .collect();
    gate.wait_for_held(3);
    gate.set_open(true);
    for client in &mut clients {
        client.read_exact(&mut [0]).unwrap();
        assert!(pool.threads() <= 3);
    }
    clients.iter_mut().for_each(ask);
}

/// Messages that exceed the buffers of the sockets are read and written piece by piece, timers and other tasks wake a task, and
/// a panic ends only its own task.
#[test]
fn tasks_read_write_sleep_and_wake_each_other() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(1, 2, 4).unwrap();
    let (mut client, server) = pair(&listener);
    let (mut doomed, other) = pair(&listener);
    let notify = Arc::new(tokio::sync::Notify::new());
    let ended = Arc::new(AtomicU64::new(0));
    let (woken, over) = (notify.clone(), ended.clone());
    pool.spawn(server, |mut socket| async move {
        let mut bytes = vec![0; 20 << 20];
        socket.read_exact(&mut bytes).await.unwrap();
        woken.notified().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        socket.write_all(&bytes).await.unwrap();
        over.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap();
    pool.spawn(other, |mut socket| async move {
        let _ = socket.read_u8().await;
        notify.notify_one();
        panic!("an expected panic");
    })
    .unwrap();
    let sent: Vec<u8> = (0..20 << 20).map(|n: u32| (n % 251) as u8).collect();
    client.write_all(&sent).unwrap();
    doomed.write_all(&[1]).unwrap();
    assert_eq!(doomed.read(&mut [0]).unwrap(), 0);
    let mut found = Vec::new();
    client.read_to_end(&mut found).unwrap();
    assert!(found == sent);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    wait_until("no tasks", || {
        let tasks = pool.groups[0].tasks.read();
        tasks.places.iter().all(Option::is_none)
    });
}

/// Tasks of a pool that ends are dropped, and its threads end.
#[test]
fn a_pool_ends_with_its_threads() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for groups in GROUPS {
        let pool = Pool::new(groups, 3, 20).unwrap();
        let mut clients: Vec<_> = (0..groups)
            .map(|_| client_of_echo(&pool, &listener, &Arc::default()))
            .collect();
        clients.iter_mut().for_each(ask);
        let groups: Vec<_> = pool.groups.iter().map(Arc::downgrade).collect();
        drop(pool);
        wait_until("the end of all threads", || {
            groups.iter().all(|group| group.strong_count() == 0)
        });
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
    }
}

/// Of many connections those that are busy at once are served by different groups, also if they came to the same one.
#[test]
fn busy_tasks_spread_over_the_groups() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(4, 2, 20).unwrap();
    let gate = Arc::new(Gate::default());
    let clients: Vec<_> = (0..16)
        .map(|_| client_of_echo(&pool, &listener, &gate))
        .collect();
    let tasks_of = |group: &Arc<Group>| group.tasks.read().places.iter().flatten().count();
    assert!(pool.groups.iter().all(|group| tasks_of(group) == 4));
    // All of the first group, so that each other group gets one.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut client in clients.into_iter().step_by(4) {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    ask(&mut client);
                }
                // The connection is not closed before the tasks are counted.
                client
            });
        }
        let spread = || {
            let counts: Vec<_> = pool.groups.iter().map(tasks_of).collect();
            counts.first() == Some(&1)
        };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            wait_until("a move of busy tasks", spread)
        }));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

/// No byte is lost while the tasks of connections move between groups all the time.
#[test]
fn a_task_that_moves_answers_every_request() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(3, 2, 20).unwrap();
    let gate = Arc::new(Gate::default());
    let mut clients: Vec<_> = (0..6)
        .map(|_| client_of_echo(&pool, &listener, &gate))
        .collect();
    for round in 0..2_000 {
        let next = |offset: usize| &pool.groups[(round + offset) % 3];
        next(0).relieve_by(next(1));
        next(1).relieve_by(next(2));
        let client = &mut clients[round % 6];
        // The second request arrives while the task runs, or moves.
        client.write_all(&[AT_ONCE]).unwrap();
        client.write_all(&[AT_ONCE]).unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
    }
    drop(clients);
    wait_until("no tasks", || {
        let is_empty = |group: &Arc<Group>| group.tasks.read().places.iter().all(Option::is_none);
        pool.groups.iter().all(is_empty)
    });
}

/// Tasks that have run wait for those that are queued, unless these are expected to take long.
#[test]
fn short_tasks_that_are_queued_go_first() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(1, 1, 1).unwrap();
    let (send, steps) = std::sync::mpsc::channel();
    // The average time of a task, as each task finds it.
    let run_ns = Arc::new(AtomicU32::new(0));
    let mut clients: Vec<_> = [0u8, 1]
        .map(|task| {
            let (client, server) = pair(&listener);
            let (send, run_ns) = (send.clone(), run_ns.clone());
            let group = Arc::downgrade(&pool.groups[0]);
            let talk = move |mut socket: Socket<TcpStream>| async move {
                while socket.read_u8().await.is_ok() {
                    send.send((task, "ran")).unwrap();
                    let average = run_ns.load(Ordering::SeqCst);
                    let group = group.upgrade().unwrap();
                    group.run_ns.store(average, Ordering::Relaxed);
                    drop(group);
                    yield_to_queued_tasks().await;
                    send.send((task, "answered")).unwrap();
                    socket.write_all(&[0]).await.unwrap();
                }
            };
            pool.spawn(server, talk).unwrap();
            client
        })
        .into();
    let gate = Arc::new(Gate::default());
    let mut holder = client_of_echo(&pool, &listener, &gate);
    let mut orders = |average: u32| -> Vec<Vec<&str>> {
        run_ns.store(average, Ordering::SeqCst);
        let order = |_| {
            // Both requests are there when the only thread is free again.
            gate.set_open(false);
            holder.write_all(&[HELD]).unwrap();
            gate.wait_for_held(1);
            for client in &mut clients {
                client.write_all(&[1]).unwrap();
            }
            gate.set_open(true);
            for client in clients.iter_mut().chain([&mut holder]) {
                client.read_exact(&mut [0]).unwrap();
            }
            steps.try_iter().map(|(_, step)| step).collect()
        };
        (0..5).map(order).collect()
    };
    let after_long = orders(100_000_000);
    assert!(
        after_long
            .iter()
            .all(|steps| steps[..2] == ["ran", "answered"]),
        "{after_long:?}"
    );
    // An interruption of the thread counts as a long task.
    let in_turns = |steps: &Vec<&str>| steps[..2] == ["ran", "ran"];
    wait_until("tasks in turns", || orders(0).iter().any(in_turns));
}

/// The system kept what closed connections had not read: 348 MiB of 4,000 clients.
#[test]
fn a_connection_that_is_reset_keeps_nothing_for_its_client() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(1, 1, 1).unwrap();
    let (mut client, server) = pair(&listener);
    let close = move |mut socket: Socket<TcpStream>| async move {
        socket.write_all(&[7; 1000]).await.unwrap();
        socket.read_u8().await.unwrap();
        socket.reset_when_closed();
    };
    pool.spawn(server, close).unwrap();
    client.write_all(&[1]).unwrap();
    let failure = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(failure.kind(), std::io::ErrorKind::ConnectionReset);
}
