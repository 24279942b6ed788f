//! Connections that many threads share, as an application's pool or PgBouncer does: a connection is a
//! process of the server with caches of its own, so that 256 of them take more memory than there is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frond_bench::{Error, Result};

use crate::client::Client;
use crate::uri::Uri;

/// How often a thread that waits for a connection looks whether it should end.
const POLL: Duration = Duration::from_millis(250);

/// The connections. Threads that wait get theirs in the order in which they came.
pub struct Pool {
    uri: Uri,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sessions that use the pool.
    users: usize,
    /// Connections that are open or about to be.
    open: usize,
    free: Vec<Client>,
    /// Each is sent a connection, or `None`: it may open one in place of one that broke.
    waiting: VecDeque<SyncSender<Option<Client>>>,
}

impl Pool {
    /// No connection yet.
    pub fn new(uri: Uri) -> Pool {
        Pool {
            uri,
            state: Mutex::default(),
        }
    }

    /// A session begins to use it.
    pub fn enter(&self) {
        self.state().users += 1;
    }

    /// A session ends. With the last one the connections are closed.
    pub fn leave(&self) {
        let mut state = self.state();
        state.users = state.users.saturating_sub(1);
        if state.users == 0 {
            state.open -= state.free.len();
            state.free.clear();
        }
    }

    /// Does something with a connection.
    pub fn with<R>(
        &self,
        stop: &Arc<AtomicBool>,
        work: impl FnOnce(&mut Client) -> Result<R>,
    ) -> Result<R> {
        let mut client = self.take(stop)?;
        let result = work(&mut client);
        // After an error of the server itself a connection goes on.
        let broken = matches!(&result, Err(error) if !matches!(error, Error::Server { .. }));
        self.give_back((!broken).then_some(client));
        result
    }

    fn take(&self, stop: &Arc<AtomicBool>) -> Result<Client> {
        let mut state = self.state();
        if let Some(client) = state.free.pop() {
            return Ok(client);
        }
        if state.open < self.uri.pool {
            state.open += 1;
        } else {
            let (sender, receiver) = sync_channel(1);
            state.waiting.push_back(sender);
            drop(state);
            loop {
                match receiver.recv_timeout(POLL) {
                    Ok(Some(client)) => return Ok(client),
                    Ok(None) => break,
                    Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                    Err(_) => return Err(Error::Stopped),
                }
            }
            state = self.state();
        }
        drop(state);
        match Client::connect(&self.uri.config, stop) {
            Ok(client) => Ok(client),
            Err(error) => {
                self.give_back(None);
                Err(error)
            }
        }
    }

    /// A connection, or the place of one, goes to who waits longest.
    fn give_back(&self, mut client: Option<Client>) {
        let mut state = self.state();
        while let Some(waiting) = state.waiting.pop_front() {
            match waiting.try_send(client) {
                Ok(()) => return,
                // It has given up.
                Err(unsent) => {
                    client = match unsent {
                        std::sync::mpsc::TrySendError::Full(client)
                        | std::sync::mpsc::TrySendError::Disconnected(client) => client,
                    }
                }
            }
        }
        match client {
            Some(client) => state.free.push(client),
            None => state.open -= 1,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left numbers that are right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    const READY: &[u8] = b"Z\0\0\0\x05I";

    /// Lets everybody in, and answers each message alike. `DIE` ends a connection.
    fn serve(mut socket: TcpStream) -> Option<()> {
        let mut logged_in = false;
        loop {
            // The first message has no letter for its kind.
            if logged_in {
                socket.read_exact(&mut [0]).ok()?;
            }
            let mut length = [0; 4];
            socket.read_exact(&mut length).ok()?;
            let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
            socket.read_exact(&mut body).ok()?;
            if body.starts_with(b"DIE") {
                return None;
            }
            let answer = match logged_in {
                false => &b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0015.0\0"[..],
                true => b"C\0\0\0\x0dSELECT 1\0",
            };
            logged_in = true;
            socket.write_all(&[answer, READY].concat()).ok()?;
        }
    }

    #[test]
    fn threads_share_connections_and_replace_broken_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        thread::spawn(move || {
            for socket in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || serve(socket.unwrap()));
            }
        });
        let uri = Uri::parse(&format!("postgres://127.0.0.1:{port}/?pool=2")).unwrap();
        let pool = Pool::new(uri);
        let stop = Arc::new(AtomicBool::new(false));
        let ask = |sql: &str| pool.with(&stop, |client| client.run(sql));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    pool.enter();
                    for _ in 0..50 {
                        assert_eq!(ask("SELECT").unwrap(), 1);
                    }
                });
            }
        });
        assert!((1..=2).contains(&accepted.load(Ordering::SeqCst)));

        for _ in 0..3 {
            assert!(ask("DIE").is_err());
        }
        assert_eq!(ask("SELECT").unwrap(), 1);
        assert!(pool.state().open <= 2);
        for _ in 0..8 {
            pool.leave();
        }
        assert_eq!(pool.state().open, 0);
    }

    #[test]
    fn who_waits_for_a_connection_can_be_stopped() {
        let uri = Uri::parse("postgres://127.0.0.1:1/?pool=1").unwrap();
        let pool = Pool::new(uri);
        pool.state().open = 1;
        let stop = Arc::new(AtomicBool::new(true));
        let result = pool.with(&stop, |_| Ok(()));
        assert!(matches!(result, Err(Error::Stopped)));
        // Nothing waits any more, so that the connection is free.
        pool.give_back(None);
        assert_eq!(pool.state().open, 0);
    }
}
