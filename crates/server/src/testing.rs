//! A server in a temporary directory, for the tests of commands.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/waiting.rs"]
mod waiting;

mod hooked_disk;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use frond_auth::{Privilege, UserName};
use frond_bson::{DocBuf, doc};
use frond_store::disk::{Disk, FsDisk};
use frond_store::{DocumentStore, NoListener, StorageOptions, StoreOptions};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::access::User;
use crate::background;
use crate::client::Client;
use crate::commands::COMMANDS;
use crate::connection::{ClientState, Connection, Peer};
use crate::host::memory::usable_bytes;
use crate::memory_quota::MemoryQuotas;
use crate::observability::log::Log;
use crate::observability::metrics::Metrics;
use crate::operation::Exhaust;
use crate::outcome::Wait;
use crate::replication::Replication;
use crate::request::{Answer, InFlight, Request, Step};
use crate::sessions::SessionOwner;
use crate::settings::Settings;
use crate::state::Server;
use crate::tls::Tls;

pub use hooked_disk::HookedDisk;
pub use waiting::{PATIENCE, wait_for, wait_until};

/// A server with one client, without sockets.
pub struct TestServer {
    pub server: Arc<Server>,
    pub connection: Arc<Connection>,
    pub state: ClientState,
    _directory: tempfile::TempDir,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Before the directory is removed.
        if let Some(consensus) = self.server.set.consensus() {
            consensus.stop();
        }
    }
}

impl TestServer {
    /// A new, empty server.
    pub fn new() -> TestServer {
        TestServer::with(|_| {})
    }

    /// A new, empty server that was started as the member of a replica set, which is not initiated.
    pub fn member(set: &str) -> TestServer {
        TestServer::with(|settings| settings.replica_set = Some(set.to_owned()))
    }

    /// A new, empty server with other settings.
    pub fn with(change: impl FnOnce(&mut Settings)) -> TestServer {
        TestServer::on(|_| None::<Arc<FsDisk>>, change)
    }

    /// A new, empty server with other settings, on the disk that is made for its directory, if it is not the usual one.
    pub fn on<D: Disk + 'static>(
        disk: impl FnOnce(PathBuf) -> Option<Arc<D>>,
        change: impl FnOnce(&mut Settings),
    ) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            db_path: directory.path().to_path_buf(),
            log_path: Some(directory.path().join("log")),
            quiet: true,
            ..Settings::default()
        };
        change(&mut settings);
        let storage = StorageOptions {
            cache_bytes: settings
                .cache_bytes
                .map_or(32 << 20, |bytes| bytes as usize),
            client_bytes: None,
            journal: settings.journal,
            journal_commit_interval: settings.journal_commit_interval,
            listener: Arc::new(NoListener),
            disk_reserve_bytes: settings.disk_reserve_bytes,
            master_key: None,
            log_recovery: settings.journal_recovery,
        };
        let mut options = StoreOptions::with_temporary_files(directory.path().join("_tmp"));
        if settings.is_member() {
            options = options.of_member();
        }
        let store = match disk(directory.path().to_owned()) {
            Some(disk) => DocumentStore::open_on_disk(disk, options),
            None => DocumentStore::open_directory(directory.path(), &storage, options),
        };
        let store = store.unwrap();
        let log = Arc::new(Log::open(&settings).unwrap());
        let metrics = Metrics::new(COMMANDS.iter().map(|command| command.spec().name()));
        let tls = Tls::open(&settings.tls).unwrap();
        let mut server = Server::new(settings, log, store, metrics, tls, 27017).unwrap();
        // As large as in a server that has all of the machine, whatever the budget of the store.
        server.execution.quotas = MemoryQuotas::new(server.store.memory(), usable_bytes() / 4);
        let server = Arc::new(server);
        background::follow_set(&server);
        let connection = server
            .clients
            .connections
            .open(Peer::Unix, 10, Arc::default())
            .unwrap();
        TestServer {
            server,
            connection,
            state: ClientState::default(),
            _directory: directory,
        }
    }

    /// A new, empty server that checks authorization. Its client is not logged in, and uses no localhost exception.
    pub fn with_authorization() -> TestServer {
        TestServer::with(|settings| {
            settings.security.authorization = true;
            settings.logins.localhost_bypass = false;
        })
    }

    /// Logs the client in as a user of the database `admin` with these privileges: documents as a role has them.
    pub fn log_in(&mut self, name: &str, privileges: &[DocBuf]) {
        let privileges = privileges.iter().map(|one| Privilege::parse(one).unwrap());
        let user = Arc::new(User {
            name: UserName::new(name, "admin"),
            id: None,
            sessions: SessionOwner::for_user(&UserName::new(name, "admin")),
            all_roles: Default::default(),
            privileges: Arc::new(privileges.collect()),
            restrictions: Vec::new(),
            generation: self.server.clients.access.generation(),
        });
        *self.connection.identity.lock() = Some(user.clone());
        self.state.identity = Some(user);
    }

    /// Logs the client in as a user who was created.
    pub fn log_in_as(&mut self, name: &str, db: &str) {
        let found = self
            .server
            .clients
            .access
            .find(&UserName::new(name, db))
            .unwrap();
        *self.connection.identity.lock() = found.clone();
        self.state.identity = found;
    }

    /// Logs the client in as a user with one privilege.
    pub fn log_in_with(&mut self, name: &str, resource: DocBuf, actions: &[&str]) {
        let mut privilege = doc! {"resource": &resource};
        privilege.push_array("actions", |list| {
            for action in actions {
                list.push(*action);
            }
        });
        self.log_in(name, &[privilege]);
    }

    /// Logs the client in as a user who may do everything.
    pub fn log_in_as_root(&mut self) {
        self.log_in_with("root", doc! {"anyResource": true}, &["anyAction"]);
    }

    /// The client, as the handlers of its messages see it.
    pub fn client(&mut self) -> Client<'_> {
        Client {
            server: &self.server,
            connection: &self.connection,
            state: &mut self.state,
        }
    }

    /// Runs a command as a client that may allow several replies.
    pub fn answer(&mut self, db: &str, command: &DocBuf, exhaust_allowed: bool) -> Answer {
        let mut exhaust = Exhaust {
            allowed: exhaust_allowed,
            ..Exhaust::default()
        };
        self.answer_after(db, command, &mut exhaust, |_| {})
    }

    /// Runs a command, and calls `meanwhile` when it waits. A reader that waits for documents waits no longer then.
    pub fn answer_after(
        &mut self,
        db: &str,
        command: &DocBuf,
        exhaust: &mut Exhaust,
        mut meanwhile: impl FnMut(&Wait),
    ) -> Answer {
        let server = self.server.clone();
        let request = Request::new(db, command);
        let mut client = self.client();
        let mut running = match InFlight::begin(&mut client, &request, exhaust) {
            Ok(running) => running,
            Err(answer) => return *answer,
        };
        let mut step = running.run(None);
        loop {
            match step {
                Step::Done(answer) => return answer,
                Step::Wait(Wait::Durability(wait)) => {
                    let consensus = server.set.replication.as_ref();
                    let consensus = consensus.and_then(Replication::consensus);
                    let waited = wait.until.wait(&server.store, consensus);
                    let waited = block_in_place(|| Handle::current().block_on(waited));
                    return running.after_durability(wait.outcome, waited.err());
                }
                Step::Wait(mut wait) => {
                    meanwhile(&wait);
                    if let Wait::Tail(tail) = &mut wait {
                        (tail.until, tail.has_turn) = (Instant::now(), true);
                    } else {
                        let waited = running.wait(&mut wait);
                        let waited = block_in_place(|| Handle::current().block_on(waited));
                        waited.unwrap();
                    }
                    step = running.resume(None, wait);
                }
            }
        }
    }

    /// The reply of a command, successful or not.
    pub fn reply(&mut self, db: &str, command: DocBuf) -> DocBuf {
        self.answer(db, &command, false).reply
    }

    /// The reply of a command that must succeed.
    pub fn run(&mut self, db: &str, command: DocBuf) -> DocBuf {
        let reply = self.reply(db, command.clone());
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{command:?} {reply:?}");
        reply
    }

    /// The error code of a command that must fail.
    pub fn code(&mut self, db: &str, command: DocBuf) -> i32 {
        let reply = self.reply(db, command.clone());
        assert_eq!(reply.get_f64("ok"), Some(0.0), "{command:?} {reply:?}");
        assert!(reply.get_str("errmsg").is_some() && reply.get_str("codeName").is_some());
        reply.get_i32("code").unwrap()
    }

    /// The documents of a reply with a cursor.
    pub fn batch(&self, reply: &DocBuf, name: &str) -> Vec<DocBuf> {
        let batch = reply.get_doc("cursor").unwrap().get_array(name).unwrap();
        batch
            .values()
            .map(|value| value.as_doc().unwrap().to_owned())
            .collect()
    }

    /// Inserts `{_id: n, a: 10 n}` for the first numbers into a collection of the database `test`.
    pub fn fill(&mut self, collection: &str, count: i32) {
        let mut command = doc! {"insert": collection};
        command.push_array("documents", |list| {
            for n in 0..count {
                list.push(&doc! {"_id": n, "a": 10 * n});
            }
        });
        let reply = self.run("test", command);
        assert_eq!(reply.get_i32("n"), Some(count));
    }
}

/// Runs a command on a connection of its own.
pub fn on_other_connection(server: &Server, db: &str, command: &DocBuf) -> DocBuf {
    on_connection_of(server, None, db, command)
}

/// Runs a command on a connection of its own, where this user is logged in.
pub fn on_connection_of(
    server: &Server,
    user: Option<Arc<User>>,
    db: &str,
    command: &DocBuf,
) -> DocBuf {
    let connection = server
        .clients
        .connections
        .open(Peer::Unix, 1000, Arc::default())
        .unwrap();
    let mut client = Client {
        server,
        connection: &connection,
        state: &mut ClientState {
            identity: user,
            ..ClientState::default()
        },
    };
    let request = Request::new(db, command);
    let mut exhaust = Exhaust::default();
    let answer = match InFlight::begin(&mut client, &request, &mut exhaust) {
        Err(answer) => *answer,
        Ok(mut running) => match running.run(None) {
            Step::Done(answer) => answer,
            Step::Wait(Wait::Durability(wait)) => running.after_durability(wait.outcome, None),
            Step::Wait(wait) => panic!("{command:?} waits for {}", wait.description()),
        },
    };
    server.clients.connections.close(connection.id);
    answer.reply
}
