#![allow(clippy::unwrap_used)]

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

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
    (client, server)
}

/// Sleeps for as many 10 ms as each byte says, holding its thread, and returns the byte.
async fn sleepy(mut socket: Socket<TcpStream>) {
    let mut byte = [0];
    while socket.read_exact(&mut byte).await.is_ok() {
        thread::sleep(Duration::from_millis(u64::from(byte[0]) * 10));
        socket.write_all(&byte).await.unwrap();
    }
}

fn ask(stream: &mut TcpStream, byte: u8) {
    stream.write_all(&[byte]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// A client is served while any number of others keep their threads, and unneeded threads end.
#[test]
fn threads_that_are_busy_for_long_do_not_stop_the_others() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for busy in [1, 2, 20] {
        let pool = Pool::new(2, 30).unwrap();
        let mut clients: Vec<_> = (0..=busy)
            .map(|_| {
                let (client, server) = pair(&listener);
                pool.spawn(server, sleepy).unwrap();
                client
            })
            .collect();
        clients.iter_mut().for_each(|client| ask(client, 0));
        let (quick, slow) = clients.split_first_mut().unwrap();
        for stream in slow.iter_mut() {
            stream.write_all(&[100]).unwrap();
        }
        let began = Instant::now();
        for _ in 0..20 {
            ask(quick, 0);
        }
        let took = began.elapsed();
        assert!(took < Duration::from_millis(900), "{busy} busy: {took:?}");
        assert!(pool.threads() > busy);
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
    let pool = Pool::new(1, 3).unwrap();
    let mut clients: Vec<_> = (0..12)
        .map(|_| {
            let (mut client, server) = pair(&listener);
            pool.spawn(server, sleepy).unwrap();
            client.write_all(&[3]).unwrap();
            client
        })
        .collect();
    for client in &mut clients {
        client.read_exact(&mut [0]).unwrap();
        assert!(pool.threads() <= 3);
    }
    let again = Instant::now();
    clients.iter_mut().for_each(|client| ask(client, 0));
    assert!(again.elapsed() < Duration::from_millis(500));
}

/// What does not fit into the buffers of the sockets is read and written piece by piece, timers and other tasks wake
/// a task, and a panic ends only its own.
#[test]
fn tasks_read_write_sleep_and_wake_each_other() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(2, 4).unwrap();
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
    thread::sleep(Duration::from_millis(50));
    let mut found = Vec::new();
    client.read_to_end(&mut found).unwrap();
    assert!(found == sent);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert!(pool.shared.tasks.read().places.iter().all(Option::is_none));
}

/// Tasks of a pool that ends are dropped, and its threads end.
#[test]
fn a_pool_ends_with_its_threads() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(3, 4).unwrap();
    let (mut client, server) = pair(&listener);
    pool.spawn(server, sleepy).unwrap();
    ask(&mut client, 0);
    let shared = Arc::downgrade(&pool.shared);
    drop(pool);
    let until = Instant::now() + Duration::from_secs(20);
    while shared.strong_count() > 0 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// Tasks that have run wait for those that are queued, unless these are expected to take long.
#[test]
fn short_tasks_that_are_queued_go_first() {
    let runtime = runtime();
    let _context = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pool = Pool::new(1, 1).unwrap();
    let (send, steps) = std::sync::mpsc::channel();
    let mut clients: Vec<_> = [0u8, 1]
        .map(|task| {
            let (client, server) = pair(&listener);
            let send = send.clone();
            let talk = move |mut socket: Socket<TcpStream>| async move {
                while socket.read_u8().await.is_ok() {
                    send.send((task, "ran")).unwrap();
                    let_others_go_first().await;
                    send.send((task, "answered")).unwrap();
                    socket.write_all(&[0]).await.unwrap();
                }
            };
            pool.spawn(server, talk).unwrap();
            client
        })
        .into();
    let (mut holder, server) = pair(&listener);
    pool.spawn(server, sleepy).unwrap();
    // Both requests are there when the only thread is free again.
    let mut orders = |run_ns: u32| -> Vec<Vec<&str>> {
        let order = |_| {
            holder.write_all(&[1]).unwrap();
            thread::sleep(Duration::from_millis(2));
            for client in &mut clients {
                client.write_all(&[1]).unwrap();
            }
            pool.shared.run_ns.store(run_ns, Ordering::Relaxed);
            for client in clients.iter_mut().chain([&mut holder]) {
                client.read_exact(&mut [0]).unwrap();
            }
            steps.try_iter().map(|(_, step)| step).collect()
        };
        (0..5).map(order).collect()
    };
    // The holder's 10 ms are in the average.
    let after_long = orders(100_000_000);
    assert!(
        after_long
            .iter()
            .all(|steps| steps[..2] == ["ran", "answered"]),
        "{after_long:?}"
    );
    let after_short = orders(0);
    let in_turns = |steps: &Vec<&str>| steps[..2] == ["ran", "ran"];
    assert!(after_short.iter().any(in_turns), "{after_short:?}");
}
