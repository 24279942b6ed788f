//! The state of a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use frond_auth::UserName;
use frond_bson::{Doc, DocBuf};
use frond_store::{OpStats, Progress as WorkProgress, ShownPlan, Waits};
use frond_striped::{STRIPES, Striped, stripe};
use frond_wire::Compressor;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::access::User;
use crate::addresses::Addresses;
use crate::last_error::LastError;
use crate::logins::Progress;
use crate::observability::metrics::LastUsed;
pub use crate::peer::Peer;
use crate::sessions::SessionId;
use crate::shown_command::{COMMAND_BYTES_SHOWN, short_command, without_secrets};
use frond_runtime::Owner;

/// Bytes of a command that are kept while it runs or its cursor is open, for a `$currentOp` that does not
/// truncate.
pub const COMMAND_BYTES_KEPT: usize = 64 << 10;

/// The operation that a connection runs, or ran last. Its buffers are reused.
#[derive(Debug, Default)]
pub struct Running {
    pub active: bool,
    /// Its number, for `killOp`.
    pub id: i64,
    pub started: Option<Instant>,
    /// `command`, `query`, `insert` …
    pub kind: &'static str,
    /// Whether it writes, for `globalLock.activeClients`.
    pub writes: bool,
    /// The event that it waits for without a thread.
    pub waits_for: Option<&'static str>,
    /// `database.collection`.
    pub namespace: String,
    /// The command's document: whole, or reduced to its short fields if it is very long, and without secrets.
    pub command: Vec<u8>,
    pub session: Option<SessionId>,
    /// The number of the transaction that it is a statement of.
    pub transaction: Option<i64>,
    /// Its progress, for operations that report it.
    pub progress: Option<Arc<WorkProgress>>,
}

impl Running {
    /// The command that was kept.
    pub fn command_doc(&self) -> DocBuf {
        DocBuf::from_vec(self.command.clone()).unwrap_or_default()
    }

    /// Keeps a command, without the values of the fields that hold secrets.
    pub fn keep_command(&mut self, body: &Doc, secrets: &[&str]) {
        self.command.clear();
        if !secrets.is_empty() {
            let shown = short_command(&without_secrets(body, secrets));
            self.command.extend_from_slice(shown.as_bytes());
        } else if body.len_bytes() <= COMMAND_BYTES_KEPT {
            self.command.extend_from_slice(body.as_bytes());
        } else {
            self.command
                .extend_from_slice(short_command(body).as_bytes());
        }
    }

    /// Frees the memory of a long command after its operation: there may be many connections.
    pub fn forget_long_command(&mut self) {
        if self.command.capacity() > 2 * COMMAND_BYTES_SHOWN {
            self.command = Vec::new();
        }
    }
}

/// The part of a connection that other connections can see.
#[derive(Debug)]
pub struct Connection {
    /// Its number, from 1.
    pub id: i64,
    /// `conn` and its number, the context of its log lines.
    pub name: String,
    pub peer: Peer,
    /// The client metadata of the first hello.
    pub client: OnceLock<DocBuf>,
    /// The subject of the client's certificate, as RFC 2253 writes it, if TLS has verified one.
    pub certificate_subject: OnceLock<String>,
    /// Set if that certificate is one of a member of the replica set, by its organisation.
    pub has_member_certificate: AtomicBool,
    /// The address of the server that the client is connected to, over TCP.
    pub local_ip: OnceLock<IpAddr>,
    /// Identifies the connection in the audit log.
    pub audit_id: OnceLock<[u8; 16]>,
    /// The logged-in user. The connection's own commands read [`ClientState::identity`].
    pub identity: Mutex<Option<Arc<User>>>,
    /// The operation that it runs.
    pub running: Mutex<Running>,
    pub killed: Arc<AtomicBool>,
    /// Set when the client has closed it.
    pub gone: Arc<AtomicBool>,
    /// Set by a fail point: the server closes it instead of a reply.
    pub closes: AtomicBool,
    /// The plan of its operation, if that takes longer.
    pub plan: Arc<ShownPlan>,
    /// The waits of its operation's commits.
    pub commit_waits: Arc<Waits>,
    /// Wakes its operation, if that waits.
    pub wake: Arc<Notify>,
}

impl Connection {
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The application name of the client, if it sent one.
    pub fn application(&self) -> Option<&str> {
        self.client.get()?.get_doc("application")?.get_str("name")
    }
}

/// Whether a client reads the results of writes by old messages, which have no replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsksForLastError {
    /// No write was seen yet.
    #[default]
    Unknown,
    /// The client has sent one write, and nothing since.
    NotYet,
    /// The client has asked for results at least once.
    Yes,
}

/// The part of a connection that only its own commands see.
#[derive(Default)]
pub struct ClientState {
    /// For `getLastError`.
    pub last_error: LastError,
    /// Whether the client sends `getLastError` after writes by old messages.
    pub asks_for_last_error: AsksForLastError,
    /// Compressors that both sides support.
    pub compressors: Vec<Compressor>,
    /// True after the first hello.
    pub greeted: bool,
    /// The session used last, and when its idle time was restarted.
    pub session: Option<(SessionId, Instant)>,
    /// The logged-in user as of the last check; see [`crate::authentication::current_user`].
    pub identity: Option<Arc<User>>,
    /// The tickets of that user.
    pub tickets: Owner,
    /// The login that was begun, and those that failed.
    pub login: Progress,
    /// The number of the member's store whose channel the connection becomes after the reply.
    pub channel_of: Option<u64>,
    /// Number of the last reply.
    pub last_reply: i32,
    /// The counters of the collection that was used last.
    pub last_used: LastUsed,
    /// Empty figures for the next operation, which saves an allocation.
    pub spare_figures: Option<Box<OpStats>>,
}

impl ClientState {
    /// Numbers the next reply. Replies are numbered per connection; an exhaust reply answers the one before it.
    pub fn next_reply_id(&mut self) -> i32 {
        self.last_reply = self.last_reply.wrapping_add(1);
        self.last_reply
    }
}

#[derive(Default)]
pub struct Connections {
    all: Mutex<HashMap<i64, Arc<Connection>>>,
    next: AtomicI64,
    count: AtomicUsize,
    /// Connections that run a command now. The two ends of a command may run on different threads, so one copy alone means nothing.
    active: Striped<AtomicI64>,
    /// Connections by the address of their client.
    pub addresses: Addresses,
    /// The number of operations of each copy.
    operations: Striped<AtomicI64>,
}

impl Connections {
    /// Counts a connection that begins a command.
    pub fn begin_command(&self) {
        self.active.own().fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that ends one.
    pub fn end_command(&self) {
        self.active.own().fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that run a command now.
    pub fn active(&self) -> i64 {
        let parts = self.active.iter();
        let sum: i64 = parts.map(|part| part.load(Ordering::Relaxed)).sum();
        // Commands begin and end while the copies are read.
        sum.max(0)
    }

    /// Admits a connection, unless there are `max` already. `gone` is set when the client closes it.
    pub fn open(&self, peer: Peer, max: usize, gone: Arc<AtomicBool>) -> Option<Arc<Connection>> {
        let mut all = self.all.lock();
        if all.len() >= max {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(Connection {
            id,
            name: format!("conn{id}"),
            peer,
            client: OnceLock::new(),
            certificate_subject: OnceLock::new(),
            has_member_certificate: AtomicBool::new(false),
            local_ip: OnceLock::new(),
            audit_id: OnceLock::new(),
            identity: Mutex::default(),
            running: Mutex::new(Running::default()),
            killed: Arc::new(AtomicBool::new(false)),
            gone,
            closes: AtomicBool::new(false),
            plan: Arc::default(),
            commit_waits: Arc::default(),
            wake: Arc::default(),
        });
        all.insert(id, connection.clone());
        self.count.store(all.len(), Ordering::Relaxed);
        Some(connection)
    }

    /// Removes a connection that closed.
    pub fn close(&self, id: i64) {
        let mut all = self.all.lock();
        all.remove(&id);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All connections, by number.
    pub fn list(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<_> = self.all.lock().values().cloned().collect();
        all.sort_by_key(|connection| connection.id);
        all
    }

    /// Returns a new number for an operation. Numbers ascend only among the operations of one thread, so that threads share no counter.
    pub fn operation_id(&self) -> i64 {
        let before = self.operations.own().fetch_add(1, Ordering::Relaxed);
        before * STRIPES as i64 + stripe() as i64 + 1
    }

    /// The user for whom an operation runs, `None` inside for an anonymous client; `None` if there is no such operation.
    pub fn owner_of(&self, operation: i64) -> Option<Option<UserName>> {
        let all = self.list();
        let mut running = all.iter().filter(|connection| {
            let running = connection.running.lock();
            running.active && running.id == operation
        });
        let user = running.next()?.identity.lock().clone();
        Some(user.map(|user| user.name.clone()))
    }

    /// Interrupts an operation, if the user for whom it runs (`None` for an anonymous client) passes a test. The operation cannot end
    /// in between. False if it was not interrupted.
    pub fn kill_operation(&self, id: i64, may: impl Fn(Option<&UserName>) -> bool) -> bool {
        for connection in self.list() {
            let running = connection.running.lock();
            if running.active && running.id == id {
                let user = connection.identity.lock().clone();
                let may = may(user.as_ref().map(|user| &user.name));
                if may {
                    connection.kill();
                }
                return may;
            }
        }
        false
    }

    pub fn kill_all_operations(&self) {
        for connection in self.list() {
            connection.kill();
        }
    }

    /// Interrupts the operations of a session.
    pub fn kill_session(&self, session: SessionId) {
        for connection in self.list() {
            let running = connection.running.lock();
            if running.active && running.session == Some(session) {
                connection.kill();
            }
        }
    }

    /// Interrupts the operations of sessions that are chosen, but not that of one connection.
    pub fn kill_sessions(&self, but: i64, is_chosen: impl Fn(SessionId) -> bool) {
        for connection in self.list() {
            let running = connection.running.lock();
            if running.active && running.session.is_some_and(&is_chosen) && connection.id != but {
                connection.kill();
            }
        }
    }

    /// Interrupts the statement that runs in a transaction.
    pub fn kill_transaction(&self, session: SessionId, number: i64) {
        for connection in self.list() {
            let running = connection.running.lock();
            let is_part = running.session == Some(session) && running.transaction == Some(number);
            if running.active && is_part {
                connection.kill();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    #[test]
    fn connections_are_counted_and_limited() {
        let all = Connections::default();
        let first = all.open(Peer::Unix, 2, Arc::default()).unwrap();
        let second = all.open(Peer::Unix, 2, Arc::default()).unwrap();
        assert!(all.open(Peer::Unix, 2, Arc::default()).is_none());
        assert_eq!((first.id, second.id, all.len()), (1, 2, 2));
        all.close(1);
        assert_eq!(
            all.open(Peer::Unix, 2, Arc::default()).unwrap().name,
            "conn3"
        );
    }

    #[test]
    fn operations_of_all_threads_have_different_numbers() {
        let all = Connections::default();
        let numbers = || (0..100).map(|_| all.operation_id()).collect::<Vec<_>>();
        let mut found = numbers();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * STRIPES).map(|_| scope.spawn(numbers)).collect();
            for thread in threads {
                found.extend(thread.join().unwrap());
            }
        });
        let count = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((found.len(), found[0] > 0), (count, true));
    }

    #[test]
    fn only_the_named_running_operation_is_killed() {
        let all = Connections::default();
        let connection = all.open(Peer::Unix, 2, Arc::default()).unwrap();
        let id = all.operation_id();
        connection.running.lock().id = id;
        assert!(!all.kill_operation(id, |_| true));
        connection.running.lock().active = true;
        assert!(!all.kill_operation(id + 1, |_| true));
        assert!(!all.kill_operation(id, |user| user.is_some()));
        assert!(!connection.killed.load(Ordering::Relaxed));
        assert!(all.kill_operation(id, |user| user.is_none()));
        assert!(connection.killed.load(Ordering::Relaxed));
    }

    #[test]
    fn secrets_are_not_kept() {
        let mut running = Running::default();
        let body = doc! {"createUser": "u", "pwd": "pencil", "roles": [], "$db": "d"};
        running.keep_command(&body, &["pwd", "payload"]);
        let shown = doc! {"createUser": "u", "pwd": "xxx", "roles": [], "$db": "d"};
        assert_eq!(running.command_doc(), shown);
        // A field that is there twice, and one of another type.
        let mut body = doc! {"createUser": "u", "pwd": {"a": "pencil"}};
        body.push("pwd", "pencil");
        running.keep_command(&body, &["pwd"]);
        assert!(!format!("{:?}", running.command_doc()).contains("pencil"));
        let long =
            doc! {"createUser": "u", "pwd": "p".repeat(COMMAND_BYTES_KEPT), "x": "y".repeat(2000)};
        running.keep_command(&long, &["pwd"]);
        let shown = doc! {"createUser": "u", "pwd": "xxx", "$truncated": true};
        assert_eq!(running.command_doc(), shown);
    }

    #[test]
    fn long_commands_are_cut() {
        let mut running = Running::default();
        let short = doc! {"ping": 1};
        running.keep_command(&short, &[]);
        assert_eq!(running.command_doc(), short);
        let cut = doc! {"insert": "c", "$db": "d", "$truncated": true};
        let long = doc! {"insert": "c", "x": "y".repeat(5000), "$db": "d"};
        running.keep_command(&long, &[]);
        assert_eq!(running.command_doc(), long);
        assert_eq!(short_command(&running.command_doc()), cut);
        running.forget_long_command();
        assert_eq!(running.command.capacity(), 0);
        let longer = doc! {"insert": "c", "x": "y".repeat(COMMAND_BYTES_KEPT), "$db": "d"};
        running.keep_command(&longer, &[]);
        assert_eq!(running.command_doc(), cut);
        assert!(Peer::Tcp("127.0.0.1:1".parse().unwrap()).is_local());
        assert!(Peer::Tcp("[::ffff:127.0.0.1]:1".parse().unwrap()).is_local());
        assert!(!Peer::Tcp("10.0.0.1:1".parse().unwrap()).is_local());
    }
}
