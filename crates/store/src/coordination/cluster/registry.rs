//! The registered servers, and their leases.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::Instant;

use frond_bson::{Doc, DocBuf, Value, doc};

use super::{Cluster, Pauses, SERVER, ServerId, read_doc};
use frond_storage::error::{Result, corrupt};
use frond_storage::keyspace::{CATALOG_TREE, Direction, Snapshot, WriteSet};

/// A part of the lease in which a server does not rely on it any more, because clocks do not run alike.
const MARGIN_SHARE: u32 = 10;
/// The grace period after the end of a lease, before others remove the server, as a share of the lease.
const GRACE_SHARE: i64 = 10;

/// Attempts of a server to remove its records when it ends.
const LEAVE_ATTEMPTS: u32 = 20;

/// The records of a server.
const LEASE: u8 = 0;
const DONE: u8 = 1;
const SETTLED: u8 = 2;

/// A server that is registered for the keyspace, with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its number, which no other live server has.
    pub number: u32,
    /// Where clients reach it: host and port.
    pub address: String,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: i64,
    /// The end of its lease, by the shared clock.
    pub lease_end_ms: i64,
    pub software: String,
    /// The version of the catalog that it has loaded.
    pub catalog_version: i64,
    /// Whether its lease is valid.
    pub is_live: bool,
    /// Whether it is this server.
    pub is_self: bool,
}

/// A server as others see it.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub number: u32,
    pub id: ServerId,
    pub lease_end_ms: i64,
    lease_ms: i64,
    address: String,
    started_ms: i64,
    software: String,
    pub done: Done,
    /// In a cluster: the first stamp that its commits may still take.
    settled: Option<i64>,
    /// In a cluster: the instance of the engine that commits for it.
    pub instance: Option<u32>,
    /// In a cluster: the oldest version that it reads.
    pub oldest: Option<u64>,
}

/// The progress of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The gates of the state with this sequence number are closed.
    pub closed: i64,
    /// The version of the catalog that it has loaded.
    pub loaded: i64,
    /// The changes of watched collections that it has heard of.
    pub watched: i64,
}

impl Registered {
    /// Whether its lease is over for so long that others may remove it.
    pub fn is_over(&self, now_ms: i64) -> bool {
        now_ms > self.lease_end_ms + self.lease_ms / GRACE_SHARE
    }
}

/// Milliseconds as the engine of a cluster takes them.
fn unsigned(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

fn server_key(number: u32, record: u8) -> [u8; 6] {
    let mut key = [SERVER; 6];
    key[1..5].copy_from_slice(&number.to_be_bytes());
    key[5] = record;
    key
}

pub(super) fn binary(id: &ServerId) -> Value<'_> {
    Value::Binary {
        subtype: 0,
        bytes: id,
    }
}

pub(super) fn id_of(doc: &Doc, name: &str) -> Option<ServerId> {
    doc.get_binary(name)?.try_into().ok()
}

impl Done {
    fn to_doc(self, id: &ServerId) -> DocBuf {
        let mut doc = doc! {"id": binary(id)};
        doc.push("closed", self.closed);
        doc.push("loaded", self.loaded);
        doc.push("watched", self.watched);
        doc
    }

    fn read(doc: &Doc) -> Done {
        let number = |name| doc.get_i64(name).unwrap_or(0);
        Done {
            closed: number("closed"),
            loaded: number("loaded"),
            watched: number("watched"),
        }
    }
}

impl Cluster {
    /// The registered servers in a snapshot, by number.
    pub(super) fn registered(&self, snapshot: &Snapshot) -> Result<Vec<Registered>> {
        let mut cursor = snapshot.cursor(
            CATALOG_TREE,
            Bound::Included(&[SERVER]),
            Bound::Excluded(&[SERVER + 1]),
            Direction::Forward,
        )?;
        let wrong = || corrupt("the entry of a server");
        let mut servers: Vec<Registered> = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            let (number, record) = match *key {
                [_, a, b, c, d, record] => (u32::from_be_bytes([a, b, c, d]), record),
                _ => return Err(wrong()),
            };
            let doc = Doc::validate(value).map_err(|_| wrong())?;
            let id = id_of(doc, "id").ok_or_else(wrong)?;
            match (record, servers.last_mut()) {
                (LEASE, _) => servers.push(Registered {
                    number,
                    id,
                    lease_end_ms: doc.get_i64("leaseEndMs").ok_or_else(wrong)?,
                    lease_ms: doc.get_i64("leaseMs").unwrap_or(0),
                    address: doc.get_str("address").unwrap_or_default().to_owned(),
                    started_ms: doc.get_i64("startedMs").unwrap_or(0),
                    software: doc.get_str("software").unwrap_or_default().to_owned(),
                    done: Done::default(),
                    settled: None,
                    instance: (doc.get_i64("instance")).and_then(|n| u32::try_from(n).ok()),
                    oldest: (doc.get_i64("oldest")).and_then(|at| u64::try_from(at).ok()),
                }),
                (DONE, Some(last)) if last.number == number && last.id == id => {
                    last.done = Done::read(doc);
                }
                (SETTLED, Some(last)) if last.number == number && last.id == id => {
                    last.settled = doc.get_i64("stamp");
                }
                _ => {}
            }
        }
        Ok(servers)
    }

    /// The registered servers, by number.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn servers(&self) -> Result<Vec<ServerInfo>> {
        let (now_ms, me) = (self.now_ms(), *self.me.lock());
        let servers = self.registered(&self.engine.snapshot())?;
        let describe = |server: Registered| ServerInfo {
            number: server.number,
            address: server.address,
            started_ms: server.started_ms,
            lease_end_ms: server.lease_end_ms,
            software: server.software,
            catalog_version: server.done.loaded,
            is_live: now_ms <= server.lease_end_ms,
            is_self: me.is_registered && me.id == server.id,
        };
        Ok(servers.into_iter().map(describe).collect())
    }

    /// Whether a server is registered, and others have to wait for it.
    pub(super) fn is_live(&self, id: &ServerId) -> Result<bool> {
        self.remove_dead()?;
        let servers = self.registered(&self.engine.snapshot())?;
        Ok(servers.iter().any(|server| server.id == *id))
    }

    /// Removes servers whose leases are over. What they began may be taken over then.
    pub(super) fn remove_dead(&self) -> Result<()> {
        let snapshot = self.engine.snapshot();
        let now_ms = self.now_ms();
        for server in self.registered(&snapshot)? {
            if server.is_over(now_ms) {
                // A commit that the server has begun must not come later.
                if let Some((cluster, instance)) = self.fenced.as_ref().zip(server.instance) {
                    cluster.fence(instance, unsigned(server.lease_end_ms))?;
                }
                self.remove(server.number, &server.id)?;
            }
        }
        Ok(())
    }

    /// Removes the records of a server whose lease is over, or of this one. Returns whether they are gone; they may not be if another server
    /// writes them at the same time.
    fn remove(&self, number: u32, id: &ServerId) -> Result<bool> {
        // A snapshot serves for one commit.
        let snapshot = self.engine.snapshot();
        let stored = read_doc(&snapshot, &server_key(number, LEASE))?;
        let is_same = |stored: &DocBuf| {
            id_of(stored, "id") == Some(*id)
                && (stored.get_i64("leaseEndMs"))
                    .is_some_and(|end| *id == self.id() || end < self.now_ms())
        };
        if !stored.as_ref().is_some_and(is_same) {
            return Ok(true);
        }
        let mut batch = WriteSet::with_snapshot(&snapshot);
        batch.set_frees_space();
        batch.delete_guarded(CATALOG_TREE, &server_key(number, LEASE));
        batch.delete(CATALOG_TREE, &server_key(number, DONE));
        batch.delete(CATALOG_TREE, &server_key(number, SETTLED));
        match self.commit(batch) {
            // It has renewed its lease, or another server has removed it.
            Err(error) if error.is_conflict() => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    fn lease_doc(&self, id: &ServerId, end_ms: i64) -> DocBuf {
        let lease_ms = i64::try_from(self.options.lease.as_millis()).unwrap_or(i64::MAX);
        let mut doc = doc! {
            "id": binary(id),
            "address": &*self.options.address,
            "startedMs": self.started_ms,
            "leaseEndMs": end_ms,
            "leaseMs": lease_ms,
            "software": env!("CARGO_PKG_VERSION"),
        };
        if let Some(cluster) = &self.fenced {
            let oldest = i64::try_from(cluster.oldest_snapshot()).unwrap_or(i64::MAX);
            doc.push("instance", i64::from(cluster.instance()));
            doc.push("oldest", oldest);
        }
        doc
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.options.lease.as_millis()).unwrap_or(i64::MAX)
    }

    /// The lease is valid from `asked` on, when the time was requested of the shared clock.
    fn set_valid(&self, asked: Instant, now_ms: i64) {
        let since = asked.saturating_duration_since(self.origin);
        let lease = self.options.lease - self.options.lease / MARGIN_SHARE;
        let until = u64::try_from((since + lease).as_nanos()).unwrap_or(u64::MAX);
        let base = now_ms - i64::try_from(since.as_millis()).unwrap_or(0);
        self.clock.store(base, Ordering::Relaxed);
        *self.lost_at.lock() = None;
        self.valid_until.store(until, Ordering::Release);
    }

    /// Registers this server. The caller holds the lock of the state, so no change of the catalog is under way, and has loaded
    /// this version of the catalog.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn register(&self, id: ServerId, done: Done) -> Result<()> {
        if self.me.lock().number > 0 {
            // The others have fenced the instance that was removed.
            if let Some(cluster) = &self.fenced {
                cluster.begin_instance()?;
            }
        }
        let mut pauses = Pauses::default();
        loop {
            let (asked, now_ms) = (Instant::now(), self.now_ms());
            let snapshot = self.engine.snapshot();
            let taken = self.registered(&snapshot)?;
            let is_free = |number: &u32| !taken.iter().any(|server| server.number == *number);
            let before = Some(self.me.lock().number).filter(|number| *number > 0);
            let Some(number) = before.filter(is_free).or_else(|| (1..).find(is_free)) else {
                return Err(corrupt("the numbers of the servers"));
            };
            let end_ms = now_ms.saturating_add(self.lease_ms());
            let mut batch = WriteSet::with_snapshot(&snapshot);
            batch.set_frees_space();
            let lease = self.lease_doc(&id, end_ms);
            batch.put_guarded(CATALOG_TREE, &server_key(number, LEASE), lease.as_bytes());
            batch.put(
                CATALOG_TREE,
                &server_key(number, DONE),
                done.to_doc(&id).as_bytes(),
            );
            match self.commit(batch) {
                Ok(()) => {
                    if let Some((cluster, since)) = self.fenced.as_ref().zip(snapshot.cluster()) {
                        cluster.set_lease(since.timestamp()?, unsigned(end_ms));
                    }
                    *self.me.lock() = super::Registration {
                        number,
                        id,
                        is_registered: true,
                    };
                    self.set_valid(asked, now_ms);
                    return Ok(());
                }
                Err(error) if error.is_conflict() => pauses.wait(),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it is registered, as far as it knows.
    pub fn is_registered(&self) -> bool {
        self.me.lock().is_registered
    }

    /// Renews the lease. Returns whether the server is registered still.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn renew(&self) -> Result<bool> {
        let me = *self.me.lock();
        if !me.is_registered {
            return Ok(false);
        }
        // The clock may have to be read from PD first, and the lease is not to begin before that.
        let _ = self.now_ms();
        let (asked, now_ms) = (Instant::now(), self.now_ms());
        let key = server_key(me.number, LEASE);
        let end_ms = now_ms.saturating_add(self.lease_ms());
        let renewed = self.update(&key, |stored| {
            let is_mine = stored.and_then(|stored| id_of(stored, "id")) == Some(me.id);
            Ok((is_mine.then(|| self.lease_doc(&me.id, end_ms)), is_mine))
        })?;
        if renewed {
            if let Some(cluster) = &self.fenced {
                cluster.extend_lease(unsigned(end_ms));
            }
            self.set_valid(asked, now_ms);
        } else {
            self.on_lease_lost()
        }
        Ok(renewed)
    }

    /// Others have removed this server.
    fn on_lease_lost(&self) {
        self.valid_until.store(0, Ordering::Release);
        self.me.lock().is_registered = false;
        self.id_allocator.forget();
    }

    /// Says what this server has done.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn publish_progress(&self, done: Done) -> Result<()> {
        let me = *self.me.lock();
        self.update(&server_key(me.number, DONE), |stored| {
            let is_mine = stored.and_then(|stored| id_of(stored, "id")) == Some(me.id);
            Ok((is_mine.then(|| done.to_doc(&me.id)), ()))
        })
    }

    /// Publishes which stamps this server takes no more. Has no effect without a cluster.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn publish_low_watermark(&self) -> Result<()> {
        let me = *self.me.lock();
        let Some(cluster) = self.fenced.as_ref().filter(|_| me.is_registered) else {
            return Ok(());
        };
        let bound = i64::try_from(cluster.stamps_bound()?).unwrap_or(i64::MAX);
        let doc = doc! {"id": binary(&me.id), "stamp": bound};
        let mut batch = WriteSet::new();
        batch.set_frees_space();
        batch.put(
            CATALOG_TREE,
            &server_key(me.number, SETTLED),
            doc.as_bytes(),
        );
        self.commit(batch)
    }

    /// The first stamp that any server may still take, if this one takes none below `own`; `None` if a server has not published that.
    /// A server that registers later takes later ones.
    pub fn global_low_watermark(&self, own: u64) -> Option<u64> {
        let me = self.id();
        let servers = self.registered(&self.engine.snapshot()).ok()?;
        let mut others = servers.iter().filter(|server| server.id != me);
        others.try_fold(own, |least, server| {
            let settled = server.settled.and_then(|stamp| u64::try_from(stamp).ok())?;
            Some(least.min(settled))
        })
    }

    /// Removes this server, which ends.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn leave(&self) -> Result<()> {
        let me = *self.me.lock();
        self.valid_until.store(0, Ordering::Release);
        self.me.lock().is_registered = false;
        if !me.is_registered {
            return Ok(());
        }
        // Its own threads may be saying something still.
        let mut pauses = Pauses::default();
        for _ in 0..LEAVE_ATTEMPTS {
            if self.remove(me.number, &me.id)? {
                break;
            }
            pauses.wait();
        }
        // The garbage collector may fold its counters.
        match &self.fenced {
            Some(cluster) => Ok(cluster.fence(cluster.instance(), 0)?),
            None => Ok(()),
        }
    }
}
