//! The catalog of one of several servers: its own changes, and how it follows those of others.
//!
//! A thread in the background polls the state of the cluster ([`crate::coordination`]). When another server closes the gates of
//! collections, it holds the gates of this server until the state changes again, and says so. When there is a newer version of
//! the catalog, it reads the catalog and publishes the new view. Another thread renews the lease.
//!
//! Readers and writers are kept in step as in one server, see [`super`], with two additions:
//! - While the gate of a collection is closed, its epoch is odd. A reader then compares the version of the catalog in its
//!   snapshot with that of the view. If they differ, it waits until the view is loaded. So it needs to know neither when the
//!   other server commits, nor whether it does.
//! - New collections need no gates. A look-up that finds no collection looks for a newer version of the catalog.
//!
//! The lease is looked at after the snapshot was taken, and when a commit begins, so no other server has gone on without this one
//! before.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{
    Catalog, CatalogSnapshot, CatalogState, Closed, Collection, DROPPED, Uuid, View, persist,
    reload,
};
use crate::coordination::cluster::{Closing, Done, NoReload, SETTLE_PAUSE, State, TAILS_PAUSE};
use crate::coordination::{Cluster, Coordination, ServerInfo};
use frond_storage::error::{Result, Unannounced};
use frond_storage::keyspace::{
    EngineError, Interrupt, Snapshot, TreeId, ValueRef, Wait, WaitFor, WriteSet,
};
use frond_storage::namespace::Namespace;

/// The time between two looks at the state while gates are closed.
const CLOSED_PAUSE: Duration = Duration::from_millis(1);
/// The time between two looks whether the server that closed them is still there.
const SEARCH_PAUSE: Duration = Duration::from_millis(250);
/// The pause after a renewal of the lease that has failed, or came too late.
const RENEWAL_RETRY: Duration = Duration::from_millis(100);
/// The longest wait for a change of this server before the thread checks again.
const OWN_CHANGE_WAIT: Duration = Duration::from_millis(20);

/// The lock on changes of the catalog, of this server and of all.
pub(super) struct Changing<'a> {
    state: &'a CatalogState,
    of_all: Option<OfAll<'a>>,
    own: Option<MutexGuard<'a, ()>>,
}

/// The lock of all servers.
struct OfAll<'a> {
    cluster: &'a Cluster,
    /// The version when it was taken.
    version: i64,
    reloading: Option<MutexGuard<'a, ()>>,
    no_reload: Option<NoReload>,
}

impl Changing<'_> {
    /// Ends the change, and waits until all other servers know it.
    ///
    /// # Errors
    /// `NotWritablePrimary` (10107) if the lease was lost meanwhile; errors of the engine.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut of_all) = self.of_all.take() else {
            return Ok(());
        };
        let released = of_all.cluster.release();
        if let Ok((version, true)) = released {
            // Announced collections are published, or were not committed.
            self.state.publish(|view| view.version = version);
        }
        drop(of_all.reloading.take());
        drop(of_all.no_reload.take());
        drop(self.own.take());
        let (version, _) = released?;
        if version > of_all.version {
            of_all.cluster.await_loaded(version)
        } else {
            Ok(())
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // The change is done. A server that loses its lease reads the catalog again.
        let _ = self.end();
    }
}

/// The gates of collections that are held.
type Gates<'a> = Vec<(&'a Arc<Collection>, Closed<'a>)>;

impl CatalogState {
    /// Begins a change of the catalog.
    ///
    /// # Errors
    /// With other servers: `NotWritablePrimary` (10107), errors of the engine.
    pub(super) fn lock_changes(&self) -> Result<Changing<'_>> {
        // The commit reports other errors.
        if let Err(error @ EngineError::Interrupted { .. }) =
            Interrupt::before_change(|| self.engine.await_room())
        {
            return Err(error.into());
        }
        let own = Some(Wait::for_lock(&self.changing, WaitFor::Schema)?);
        let state = self;
        let Some((cluster, version)) = self.coordination.acquire()? else {
            let of_all = None;
            return Ok(Changing { state, of_all, own });
        };
        let of_all = OfAll {
            cluster,
            version,
            reloading: Some(Wait::for_lock(&self.reloading, WaitFor::Schema)?),
            no_reload: Some(NoReload::new()),
        };
        let changing = Changing {
            state,
            of_all: Some(of_all),
            own,
        };
        self.reload(&mut Vec::new(), false)?;
        Ok(changing)
    }

    /// Keeps the writers of collections on all other servers waiting, until the next commit of a change. The lock on changes is
    /// held.
    ///
    /// # Errors
    /// As [`Cluster::close_gates`].
    pub(super) fn close_gates(&self, uuids: &[Uuid]) -> Result<()> {
        self.coordination.close_gates(uuids)
    }

    /// The same for all collections.
    ///
    /// # Errors
    /// As [`Cluster::close_gates`].
    pub(super) fn close_all_gates(&self) -> Result<()> {
        self.coordination.close_all_gates()
    }

    /// Fails if this server has no lease.
    ///
    /// # Errors
    /// As [`Cluster::check_commit`].
    pub(super) fn check_lease(&self) -> Result<()> {
        self.coordination.check_commit()
    }

    /// Loads the catalog if there is a newer version. Returns whether there was one.
    pub(super) fn refresh(&self) -> bool {
        if !self.coordination.has_newer(self.current.load().version) {
            return false;
        }
        let _one = self.reloading.lock();
        self.reload(&mut Vec::new(), false).is_ok()
    }

    /// Reads the catalog and publishes it, if it has changed. `held` are gates that the caller holds; others are taken.
    /// `is_odd` says that the epoch of the catalog is odd already. The lock on reloads is held.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    fn reload(&self, held: &mut Gates<'_>, is_odd: bool) -> Result<()> {
        let Coordination::Cluster(cluster) = &self.coordination else {
            return Ok(());
        };
        let snapshot = self.engine.snapshot();
        let state = cluster.state(&snapshot)?;
        let before = self.current.load_full();
        if state.version == before.version && !state.announced {
            return Ok(());
        }
        cluster.note_change();
        let mut after = reload::load(
            &snapshot,
            &before,
            &self.hooks,
            self.large,
            &self.coordination,
        )?;
        after.version = state.version;
        self.session_tree.set(persist::session_tree(&snapshot)?);
        self.oplog.reload(&snapshot)?;
        // Collections that were changed or dropped.
        let next: std::collections::HashMap<Uuid, u64> = after
            .iter()
            .map(|collection| (collection.uuid, collection.version))
            .collect();
        let version_of = |collection: &Collection| *next.get(&collection.uuid).unwrap_or(&DROPPED);
        let mut changed: Vec<&Arc<Collection>> = before
            .iter()
            .filter(|collection| version_of(collection) != collection.version)
            .collect();
        changed.sort_unstable_by_key(|collection| collection.uuid);
        changed.retain(|collection| !held.iter().any(|(other, _)| other.uuid == collection.uuid));
        let mut taken: Gates<'_> = Vec::new();
        for collection in changed {
            taken.push((collection, collection.shared.gate.close()?));
        }
        let steps = u64::from(!is_odd);
        self.epoch.fetch_add(steps, Ordering::SeqCst);
        for (collection, _) in &taken {
            collection.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.show(after);
        for (collection, _) in &taken {
            collection.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.epoch.fetch_add(steps, Ordering::SeqCst);
        let pass = |collection: &Collection, gate: &mut u64| {
            let version = version_of(collection);
            if *gate != version {
                *gate = version;
                collection.shared.records.tail.notify();
            }
        };
        for (collection, gate) in held {
            pass(collection, gate);
        }
        for (collection, gate) in &mut taken {
            pass(collection, gate);
        }
        Ok(())
    }

    /// The progress of this server, for which others wait.
    fn done(&self, closed: i64, watched: i64) -> Done {
        Done {
            closed,
            watched,
            loaded: self.current.load().version,
        }
    }

    /// Registers this server, and loads the catalog.
    ///
    /// # Errors
    /// Errors of the engine.
    fn join(&self, cluster: &Cluster) -> Result<()> {
        let id = rand::random();
        cluster.acquire_to_register(&id)?;
        let _one = self.reloading.lock();
        let join = || -> Result<()> {
            // Another server may have changed the catalog while the lease of this one was over.
            self.reload(&mut Vec::new(), false)?;
            let watched = cluster.watched(&self.engine.snapshot())?;
            cluster.register(id, self.done(0, watched))?;
            self.hooks.changed();
            Ok(())
        };
        let joined = join();
        let released = cluster.release_as(&id);
        joined?;
        released?;
        Ok(())
    }

    /// Holds the gates that another server closes, until it opens them.
    fn hold_gates(&self, cluster: &Cluster, state: &State, watched: i64) -> Result<()> {
        let Some(_one) = self.reloading.try_lock_for(OWN_CHANGE_WAIT) else {
            return Ok(());
        };
        self.reload(&mut Vec::new(), false)?;
        let view = self.current.load_full();
        let mut closed: Vec<&Arc<Collection>> = match &state.closing {
            Closing::None => return Ok(()),
            Closing::All => view.iter().collect(),
            Closing::Some(uuids) => (view.iter())
                .filter(|collection| uuids.contains(&collection.uuid))
                .collect(),
        };
        closed.sort_unstable_by_key(|collection| collection.uuid);
        let mut held: Gates<'_> = Vec::with_capacity(closed.len());
        for collection in closed {
            held.push((collection, collection.shared.gate.close()?));
        }
        let begin_or_end = || {
            self.epoch.fetch_add(1, Ordering::SeqCst);
            for collection in view.iter() {
                let is_closed = match &state.closing {
                    Closing::Some(uuids) => uuids.contains(&collection.uuid),
                    _ => true,
                };
                if is_closed {
                    collection.shared.epoch.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        begin_or_end();
        let mut wait = || -> Result<()> {
            cluster.publish_progress(self.done(state.seq, watched))?;
            let mut searched = Instant::now();
            loop {
                std::thread::sleep(CLOSED_PAUSE);
                let now = cluster.state(&self.engine.snapshot())?;
                if now.seq != state.seq {
                    return self.reload(&mut held, true);
                }
                if !cluster.is_valid() || cluster.is_stopped() {
                    return Ok(());
                }
                if searched.elapsed() > SEARCH_PAUSE {
                    cluster.clear_dead_lock()?;
                    searched = Instant::now();
                }
            }
        };
        let followed = wait();
        begin_or_end();
        followed
    }

    /// One look at the state: follows what others do. `said` is what this server has said last.
    fn follow(&self, cluster: &Cluster, said: &mut Done) -> Result<()> {
        if !cluster.is_registered() {
            self.join(cluster)?;
            *said = Done::default();
        }
        let snapshot = self.engine.snapshot();
        cluster.prefetch(&snapshot)?;
        let state = cluster.state(&snapshot)?;
        let watched = cluster.watched(&snapshot)?;
        drop(snapshot);
        if watched != said.watched {
            self.hooks.changed();
        }
        let is_mine = state
            .lock
            .as_ref()
            .is_some_and(|lock| lock.id == cluster.id());
        if !is_mine && state.closing != Closing::None {
            self.hold_gates(cluster, &state, watched)?;
            // Progress that it has published meanwhile is void.
            said.closed = 0;
        } else if !is_mine
            && state.version != self.current.load().version
            && let Some(_one) = self.reloading.try_lock_for(OWN_CHANGE_WAIT)
        {
            self.reload(&mut Vec::new(), false)?;
        }
        let done = self.done(0, watched);
        if done != *said {
            cluster.publish_progress(done)?;
            *said = done;
        }
        Ok(())
    }
}

/// Registers the server, and starts the threads in the background.
pub(super) fn start(state: &Arc<CatalogState>, cluster: &Arc<Cluster>) -> Result<()> {
    state.join(cluster)?;
    let spawn = |name: &str, run: fn(&Weak<CatalogState>, &Cluster)| {
        let (weak, cluster) = (Arc::downgrade(state), cluster.clone());
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || run(&weak, &cluster))
    };
    let mut started = spawn("servers-lease", renew).and_then(|_| spawn("servers-follow", follow));
    if cluster.combine_stamps() {
        started = started
            .and_then(|_| spawn("servers-stamps", settle))
            .and_then(|_| spawn("servers-garbage", collect));
    }
    started.map_err(|error| {
        frond_storage::error::command(
            frond_error::ErrorCode::InternalError,
            format!("cannot start a thread: {error}"),
        )
    })?;
    Ok(())
}

/// Renews the lease as long as the store is open.
fn renew(state: &Weak<CatalogState>, cluster: &Cluster) {
    let mut pause = cluster.renewal_pause();
    while cluster.sleep(pause) && state.strong_count() > 0 {
        if cluster.is_stalled() {
            continue;
        }
        // Without success the lease ends. A renewal that has waited for the keyspace may come too late: a lease begins when its renewal
        // does, so the next one follows at once.
        let renewed = cluster.renew();
        pause = if renewed.is_ok() && cluster.is_valid() {
            cluster.renewal_pause()
        } else {
            cluster.renewal_pause().min(RENEWAL_RETRY)
        };
    }
}

/// Publishes to the other servers which stamps this one takes no more, and reads what they publish and have written, as long as the store is
/// open.
fn settle(state: &Weak<CatalogState>, cluster: &Cluster) {
    while cluster.sleep(SETTLE_PAUSE) {
        let Some(state) = state.upgrade() else {
            return;
        };
        if !cluster.is_stalled() {
            // Readers in the order of stamps wait for the next try.
            let _ = cluster.publish_low_watermark();
            let _ = cluster.engine().flush_log();
            let _ = state.oplog.poll_remote_entries();
        }
    }
}

/// Collects garbage for all servers now and then, as long as the store is open.
fn collect(state: &Weak<CatalogState>, cluster: &Cluster) {
    while cluster.sleep(cluster.garbage_pause()) && state.strong_count() > 0 {
        if !cluster.is_stalled() {
            // The next run tries again.
            let _ = cluster.collect_garbage();
        }
    }
}

/// Follows the other servers as long as the store is open.
fn follow(state: &Weak<CatalogState>, cluster: &Cluster) {
    let mut said = Done::default();
    let mut looked = Instant::now();
    while cluster.sleep(cluster.poll_pause()) {
        let Some(state) = state.upgrade() else {
            return;
        };
        if !cluster.is_stalled() {
            // The next look comes soon. Without success others go on without this server when its lease is over.
            let _ = state.follow(cluster, &mut said);
            if looked.elapsed() > TAILS_PAUSE {
                let _ = cluster.look_at_tails();
                looked = Instant::now();
            }
        }
    }
}

impl Catalog {
    /// A number for a new tree.
    ///
    /// # Errors
    /// With other servers: errors of the engine.
    pub(crate) fn allocate_tree(&self) -> Result<TreeId> {
        let in_transaction = self.transaction().is_some();
        (self.state.coordination).allocate_tree(&self.state.engine, in_transaction)
    }

    /// This server among the others.
    pub(crate) fn coordination(&self) -> &Coordination {
        &self.state.coordination
    }

    /// The registered servers; none if no others can share the store.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn servers(&self) -> Result<Vec<ServerInfo>> {
        self.state.coordination.servers()
    }

    /// Lets all servers know new multikey paths of indexes, and waits until they do. Then documents may be committed that need
    /// them.
    ///
    /// # Errors
    /// As [`Changing::finish`].
    pub(crate) fn announce_multikey(&self, unannounced: &Unannounced) -> Result<()> {
        // Also for a transaction, whose definitions have the same indexes.
        let catalog = Catalog {
            scope: super::Scope::Live,
            ..self.clone()
        };
        let changing = catalog.begin_change()?;
        let Some(collection) = catalog.by_uuid(&unannounced.uuid) else {
            // The commit finds that it is gone.
            return changing.finish();
        };
        let mut batch = WriteSet::new();
        let mut announced = Vec::new();
        for (tree, paths) in &unannounced.paths {
            let index = collection.indexes.iter().find(|index| index.tree == *tree);
            if let Some(index) = index.filter(|index| !index.is_multikey_stored(paths)) {
                persist::add_multikey(&mut batch, &collection.uuid, index, paths);
                announced.push((index, paths));
            }
        }
        if !announced.is_empty() {
            for (index, paths) in &announced {
                index.add_multikey(paths);
            }
            catalog.commit_beside_view(batch, None)?;
        }
        changing.finish()?;
        for (index, paths) in announced {
            index.stored_multikey(paths);
        }
        Ok(())
    }

    /// As [`Catalog::read`], with other servers.
    pub(super) fn read_shared(
        &self,
        ns: &Namespace,
        cluster: &Cluster,
    ) -> Result<Option<(Arc<Collection>, Snapshot)>> {
        loop {
            cluster.await_lease()?;
            let Some(collection) = self.collection(ns) else {
                return Ok(None);
            };
            let before = collection.shared.epoch.load(Ordering::SeqCst);
            let view = self.state.current.load_full();
            let snapshot = self.state.engine.snapshot();
            let current = self.collection(ns);
            if !current.is_some_and(|now| Arc::ptr_eq(&now, &collection)) || !cluster.is_valid() {
                continue;
            }
            let after = collection.shared.epoch.load(Ordering::SeqCst);
            let is_at_rest = before == after && before.is_multiple_of(2);
            if is_at_rest || cluster.state(&snapshot)?.version == view.version {
                return Ok(Some((collection, snapshot)));
            }
            // A change of this server is about to be published, or one of another server is to be loaded.
            if !self.state.refresh() {
                Interrupt::check_current()?;
                std::thread::sleep(super::PUBLICATION_WAIT);
            }
        }
    }

    /// The document with a key of a collection, as it is now. In a cluster this takes a request less than a snapshot and a look-up.
    /// `None` if that is not possible at present: then [`Catalog::read`] is.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn get_latest(
        &self,
        ns: &Namespace,
        collection: &Arc<Collection>,
        key: &[u8],
    ) -> Result<Option<Option<ValueRef>>> {
        if !self.is_live() {
            return Ok(None);
        }
        let epoch = || collection.shared.epoch.load(Ordering::SeqCst);
        // As in `read_shared`, but the look-up takes the place of the snapshot.
        let before = epoch();
        if !before.is_multiple_of(2) {
            return Ok(None);
        }
        let found = (self.state.coordination).get_latest(collection.primary, key)?;
        let current = self.collection(ns);
        let is_same = current.is_some_and(|now| Arc::ptr_eq(&now, collection));
        Ok(found.filter(|_| is_same && epoch() == before))
    }

    /// As [`Catalog::catalog_snapshot`], with other servers.
    pub(super) fn catalog_snapshot_shared(&self, cluster: &Cluster) -> CatalogSnapshot {
        let state = &self.state;
        loop {
            let leased = cluster.await_lease();
            let before = state.epoch.load(Ordering::SeqCst);
            let view: Arc<View> = state.current.load_full();
            let snapshot = state.engine.snapshot();
            let after = state.epoch.load(Ordering::SeqCst);
            let is_at_rest = before == after
                && before.is_multiple_of(2)
                && Arc::ptr_eq(&view, &state.current.load());
            let agree = is_at_rest
                || cluster
                    .state(&snapshot)
                    .is_ok_and(|now| now.version == view.version && !now.announced);
            // Without a lease, or when the keyspace cannot be read, what is read of it fails.
            if (agree && cluster.is_valid()) || leased.is_err() {
                let view = state.with_announced(view, &snapshot);
                return CatalogSnapshot::new(view, snapshot);
            }
            if !state.refresh() {
                std::thread::sleep(super::PUBLICATION_WAIT);
            }
        }
    }

    /// All collections as they were in the snapshot with this stamp, which any server may have taken. `None` if the stamp is not
    /// that of a snapshot, or of too long ago.
    ///
    /// # Errors
    /// Errors of the engine, `DataCorruptionDetected` (301).
    pub(crate) fn catalog_snapshot_at(&self, stamp: u64) -> Result<Option<CatalogSnapshot>> {
        let state = &self.state;
        let Coordination::Cluster(cluster) = &state.coordination else {
            return Ok(None);
        };
        let Some(snapshot) = cluster.snapshot_at(stamp) else {
            return Ok(None);
        };
        cluster.await_lease()?;
        if stamp >> 32 < cluster.kept_from() {
            return Ok(None);
        }
        let mut view = state.current.load_full();
        let then = cluster.state(&snapshot)?;
        if then.version != view.version || then.announced {
            let mut loaded = reload::load(
                &snapshot,
                &view,
                &state.hooks,
                state.large,
                &state.coordination,
            )?;
            loaded.version = then.version;
            view = Arc::new(loaded);
        }
        Ok(Some(CatalogSnapshot::new(view, snapshot)))
    }

    /// Waits for the lease before a write. Without one, the commit fails.
    pub(super) fn await_lease(&self) {
        let _ = self.state.coordination.await_lease();
    }

    /// Leaves the other servers, when the store is closed.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn leave(&self) -> Result<()> {
        self.state.coordination.leave()
    }
}
