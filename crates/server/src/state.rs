//! Everything that the connections of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_auth::NoRandomness;
use frond_bson::{Doc, DocBuf, ObjectId, doc};
use frond_error::Error;
use frond_javascript::JavaScript;
use frond_store::{DocumentStore, Namespace, OthersFirst, Wait, WaitFor};
use frond_telemetry::history::History;
use frond_telemetry::{SpanError, Tracing, TracingOptions};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::access::Access;
use crate::audit::Audit;
use crate::backups::Backups;
use crate::cluster_parameters::ClusterParameters;
use crate::connection::Connections;
use crate::cursors::Cursors;
use crate::fail_points::FailPoints;
use crate::fsync_lock::FsyncLock;
use crate::host::memory::usable_bytes;
use crate::logins::Logins;
use crate::memory_quota::MemoryQuotas;
use crate::observability::log::{Component, Log, Severity};
use crate::observability::metric_samples::{self, Sources};
use crate::observability::metrics::{Metrics, micros};
use crate::observability::profiler::{ProfileFilter, ProfileLevel, Profiler};
use crate::observability::query_stats::QueryStats;
use crate::oplog::{self, OplogUpkeep};
use crate::peers::{PeerIdentity, PeerSide, Peers};
use crate::query_settings::AllQuerySettings;
use crate::replication::{Consensus, Replication};
use crate::resync::Resync;
use crate::scripting;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::sharding;
use crate::tail_throttle::TailThrottle;
use crate::tls::Tls;
use crate::ttl::Ttl;
use frond_runtime::{Executor, Sharing};

pub struct Server {
    pub settings: Settings,
    pub log: Arc<Log>,
    pub store: DocumentStore,
    pub metrics: Metrics,
    pub instance: Instance,
    pub maintenance: Maintenance,
    pub set: ReplicaSet,
    pub clients: Clients,
    pub execution: Execution,
    pub records: Records,
    /// None if nothing is audited.
    pub audit: Option<Audit>,
}

/// The identity of this run of the server, and its end.
pub struct Instance {
    pub started: Instant,
    /// Identifies this run of the server, so that clients notice a restart.
    pub process_id: ObjectId,
    /// The TCP port it listens on.
    pub port: u16,
    pub host: String,
    /// The command line, without passwords.
    pub arguments: Vec<String>,
    stop: watch::Sender<bool>,
    stopping: AtomicBool,
    /// Whether the program starts again after the end.
    pub restarts: AtomicBool,
}

/// Maintenance of the stored data.
pub struct Maintenance {
    /// Backups that are being made.
    pub backups: Backups,
    /// The lock of `fsync`.
    pub fsync_lock: FsyncLock,
    /// Seconds after which a checkpoint is written if there were commits; 0 leaves it to the engine.
    pub checkpoint_secs: AtomicU64,
    pub oplog: OplogUpkeep,
    pub ttl: Ttl,
    /// The number of the last store key that all data was encrypted with; 0 if that is not known yet.
    pub reencrypted_key: AtomicU32,
}

/// The replica set of the server.
pub struct ReplicaSet {
    /// None for a standalone server.
    pub replication: Option<Replication>,
    /// The side that answers other members.
    pub peers: PeerSide,
    /// The way to other members; none if the server is not one.
    pub network: Option<Arc<Peers>>,
    /// Parameters that are stored.
    pub cluster_parameters: ClusterParameters,
    /// The copy of another member's store that is being made.
    pub resync: Mutex<Option<Arc<Resync>>>,
    /// Whether documents that are discarded are written to files.
    pub creates_rollback_files: AtomicBool,
    /// Notified when another member was heard of, or the members may have to change.
    pub stirred: Arc<Notify>,
    /// Counts the changes of stored settings, users and roles.
    pub stored: Arc<watch::Sender<u64>>,
}

/// The clients, and the state that they leave between their requests.
pub struct Clients {
    pub access: Access,
    /// The mechanisms and the counters of logins.
    pub logins: Logins,
    pub connections: Connections,
    pub sessions: Sessions,
    pub cursors: Cursors,
    /// Milliseconds until an idle cursor is closed.
    cursor_timeout_ms: AtomicU64,
    /// The longest wait of a transaction's statement for a lock, in milliseconds. There are no such locks, so it has no effect.
    pub transaction_lock_wait_ms: AtomicI32,
    /// None if connections are not encrypted.
    pub tls: Option<Tls>,
}

/// The execution of commands: threads, memory, rules.
pub struct Execution {
    pub executor: Executor,
    /// Lets other operations of clients go before long reads.
    pub others_first: OthersFirst,
    /// Limits the readers that follow the end of a collection or of the oplog.
    pub tail_throttle: TailThrottle,
    /// Memory for requests and replies.
    pub quotas: MemoryQuotas,
    /// None if JavaScript is turned off.
    pub javascript: Option<JavaScript>,
    /// Store handle through which JavaScript resolves `system.js` functions.
    pub functions: Arc<DocumentStore>,
    /// Fail points, for tests.
    pub fail_points: FailPoints,
    /// Settings of queries by their shape.
    pub query_settings: AllQuerySettings,
    /// Whether queries with conditions must not read whole collections.
    pub no_collection_scans: AtomicBool,
}

/// Records of the operations of the server.
pub struct Records {
    /// Samples of the metrics of the server.
    pub history: History,
    /// Statistics of queries by their shape.
    pub query_stats: QueryStats,
    pub profiler: Profiler,
    /// Sends spans of commands; none if nothing is traced.
    pub tracing: Option<Tracing>,
    /// Microseconds from which an operation is logged as slow.
    slow_micros: AtomicU64,
}

/// Why a server cannot start on its store.
#[derive(Debug)]
pub enum StartError {
    /// The system gives it no thread.
    Thread(std::io::Error),
    /// The store belongs to another replica set, or its configuration cannot be used.
    ReplicaSet(Error),
    /// Spans cannot be sent.
    Tracing(SpanError),
    /// The destination of audit events cannot be opened, or their filter is none.
    Audit(String),
    /// The filter of the profiler is none.
    ProfileFilter(Error),
    /// The system gives it no random bytes.
    Random(NoRandomness),
    /// The stored parameters cannot be read, or the oplog cannot be turned on or off.
    Store(Error),
}

impl Server {
    /// A server over an open store, on the runtime that this is called in. `metrics` has a counter
    /// for each command, `tls` is made of the settings.
    ///
    /// # Errors
    /// If threads cannot be started, or the store belongs to another replica set.
    pub fn new(
        settings: Settings,
        log: Arc<Log>,
        store: DocumentStore,
        metrics: Metrics,
        tls: Option<Tls>,
        port: u16,
    ) -> Result<Server, StartError> {
        let audit = Audit::open(&settings, &log, port).map_err(StartError::Audit)?;
        let instance = Instance::new(&settings, port);
        set_hooks(&store, &log, &metrics, &instance);
        let set = ReplicaSet::open(&settings, &store, &instance, &log)?;
        let query_settings = AllQuerySettings::load(&store).map_err(StartError::Store)?;
        if set.consensus().is_none() {
            // A member opens it when it becomes the primary.
            let is_in_set = (set.replication.as_ref()).is_some_and(|set| set.member().is_some());
            open_oplog(&store, &settings, &log, is_in_set).map_err(StartError::Store)?;
        }
        let records = Records::new(&settings, &instance)?;
        let clients = Clients::new(&settings, &store, &instance, &set, tls)?;
        let execution = Execution::new(&settings, &store, &log, query_settings)?;
        Ok(Server {
            maintenance: Maintenance::new(&settings),
            instance,
            set,
            clients,
            execution,
            records,
            settings,
            log,
            store,
            metrics,
            audit,
        })
    }

    /// `host:port`, as the server names itself.
    pub fn host_and_port(&self) -> String {
        self.instance.host_and_port()
    }

    /// The `topologyVersion`. A standalone server never changes its role, so the counter is 0.
    pub fn topology_version(&self) -> DocBuf {
        doc! {"processId": self.instance.process_id, "counter": self.topology_counter()}
    }

    /// The counter of the `topologyVersion`.
    pub fn topology_counter(&self) -> i64 {
        let set = self.set.replication.as_ref();
        set.map_or(0, |set| *set.topology().borrow())
    }

    /// Whether this server writes on its own account, such as the deletes of expired documents: not while another one is the primary.
    pub fn leads(&self) -> bool {
        match &self.set.replication {
            Some(set) if set.consensus().is_some() => set.is_primary(),
            _ => true,
        }
    }

    /// Asks the server to end, and its program to start again in the same process.
    pub fn restart(&self) {
        self.instance.restarts.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Operations at least this long are logged.
    pub fn slow_operation(&self) -> Duration {
        Duration::from_micros(self.records.slow_micros.load(Ordering::Relaxed))
    }

    /// Changes [`Server::slow_operation`].
    pub fn set_slow_operation(&self, threshold: Duration) {
        self.records.slow_micros.store(
            crate::observability::metrics::micros(threshold),
            Ordering::Relaxed,
        );
    }

    /// An idle cursor is closed after this time.
    pub fn cursor_timeout(&self) -> Duration {
        Duration::from_millis(self.clients.cursor_timeout_ms.load(Ordering::Relaxed))
    }

    /// Changes [`Server::cursor_timeout`].
    pub fn set_cursor_timeout(&self, timeout: Duration) {
        self.clients
            .cursor_timeout_ms
            .store(millis(timeout), Ordering::Relaxed);
    }

    /// The source of a sample for the history.
    pub fn sources(&self) -> Sources<'_> {
        let clients = &self.clients;
        let whole = |count: i64| u64::try_from(count).unwrap_or(0);
        Sources {
            metrics: &self.metrics,
            store: &self.store,
            executor: &self.execution.executor,
            connections: clients.connections.len() as u64,
            active_connections: whole(clients.connections.active()),
            open_cursors: whole(clients.cursors.counts().open),
            open_transactions: clients.sessions.open_transactions().len() as u64,
        }
    }

    /// Asks everything to stop.
    pub fn stop(&self) {
        self.instance.stopping.store(true, Ordering::Relaxed);
        self.instance.stop.send_replace(true);
    }

    /// True once the server was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.instance.stopping.load(Ordering::Relaxed)
    }

    /// Becomes true when the server is to stop.
    pub fn stop_signal(&self) -> watch::Receiver<bool> {
        self.instance.stop.subscribe()
    }
}

/// Connects what the store reports with the log and the counters of the server.
fn set_hooks(store: &DocumentStore, log: &Arc<Log>, metrics: &Metrics, instance: &Instance) {
    let warnings = log.clone();
    let hooks = store.catalog().hooks();
    hooks.on_invalid_document(move |ns, info| warn_of_invalid(&warnings, ns, info));
    let teller = metrics.teller();
    hooks.tell_usage(move |ns, part, options| teller(ns.as_str(), part, options));
    hooks.name_host(instance.host_and_port());
}

/// Turns the oplog on or off, as the settings say. `is_in_set` says whether the server is a member of a set that is initiated.
///
/// # Errors
/// Errors of the store.
pub fn open_oplog(
    store: &DocumentStore,
    settings: &Settings,
    log: &Log,
    is_in_set: bool,
) -> Result<(), Error> {
    let opened = oplog::open(store, settings, is_in_set)?;
    if let Some(what) = opened {
        let bytes = i64::try_from(store.oplog().settings().bytes_max).unwrap_or(i64::MAX);
        log.info(
            Component::Storage,
            9_100_031,
            "initandlisten",
            what,
            &doc! {"maxBytes": bytes},
        );
    }
    Ok(())
}

impl Instance {
    fn new(settings: &Settings, port: u16) -> Instance {
        let uname = rustix::system::uname();
        Instance {
            started: Instant::now(),
            process_id: ObjectId::new(),
            port,
            host: uname.nodename().to_string_lossy().into_owned(),
            arguments: settings.arguments.clone(),
            stop: watch::Sender::new(false),
            stopping: AtomicBool::new(false),
            restarts: AtomicBool::new(false),
        }
    }

    fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Maintenance {
    fn new(settings: &Settings) -> Maintenance {
        Maintenance {
            backups: Backups::default(),
            fsync_lock: FsyncLock::default(),
            checkpoint_secs: AtomicU64::new(settings.checkpoint_secs),
            oplog: OplogUpkeep::new(settings.pre_image_period),
            ttl: Ttl::new(
                settings.ttl_monitor,
                settings.ttl_monitor_sleep,
                settings.ttl_batches,
            ),
            reencrypted_key: AtomicU32::new(0),
        }
    }
}

impl ReplicaSet {
    fn open(
        settings: &Settings,
        store: &DocumentStore,
        instance: &Instance,
        log: &Arc<Log>,
    ) -> Result<ReplicaSet, StartError> {
        let (incoming, mut outgoing) = (PeerSide::default(), None);
        let reached = settings.reached_at(&instance.host, instance.port);
        let replication = if settings.tikv.is_on {
            Some(Replication::open_router(store, reached))
        } else {
            settings.replica_set.as_deref().map(|name| {
                Replication::open(store, name, reached, &settings.db_path, |id, handle| {
                    let set = name.to_owned();
                    let identity = PeerIdentity { id, set };
                    incoming.identify(identity.clone());
                    let peers = Peers::new(identity, settings, log.clone(), handle);
                    outgoing.insert(Arc::new(peers)).clone()
                })
            })
        };
        Ok(ReplicaSet {
            replication: replication.transpose().map_err(StartError::ReplicaSet)?,
            peers: incoming,
            network: outgoing,
            cluster_parameters: ClusterParameters::load(store).map_err(StartError::Store)?,
            resync: Mutex::default(),
            creates_rollback_files: AtomicBool::new(settings.creates_rollback_files),
            stirred: Arc::default(),
            stored: Arc::new(watch::Sender::new(0)),
        })
    }

    /// Whether a copy of another member's store is being made.
    pub fn is_copying(&self) -> bool {
        self.resync.lock().is_some()
    }

    /// The member of consensus that the server runs.
    pub fn consensus(&self) -> Option<&Consensus> {
        self.replication.as_ref()?.consensus()
    }
}

impl Clients {
    fn new(
        settings: &Settings,
        store: &DocumentStore,
        instance: &Instance,
        set: &ReplicaSet,
        tls: Option<Tls>,
    ) -> Result<Clients, StartError> {
        let stored = set.stored.clone();
        let hook = move || stored.send_modify(|changes| *changes += 1);
        let mut cursors = Cursors::new(store.memory());
        if settings.tikv.is_on {
            cursors = cursors.marked(sharding::mark(&instance.host_and_port()));
        }
        Ok(Clients {
            access: Access::with_hook(store.clone(), settings.security.authorization, hook)
                .with_members(&settings.security),
            logins: Logins::new(&settings.logins).map_err(StartError::Random)?,
            connections: Connections::default(),
            sessions: Sessions::new(settings.session_timeout, settings.transaction_lifetime),
            cursors,
            cursor_timeout_ms: AtomicU64::new(millis(settings.cursor_timeout)),
            transaction_lock_wait_ms: AtomicI32::new(settings.transaction_lock_wait_ms),
            tls,
        })
    }
}

impl Execution {
    fn new(
        settings: &Settings,
        store: &DocumentStore,
        log: &Arc<Log>,
        query_settings: AllQuerySettings,
    ) -> Result<Execution, StartError> {
        let executor = Executor::new(settings.connection_groups).map_err(StartError::Thread)?;
        let javascript = scripting::start(settings, store, log, executor.sharing(), usable_bytes());
        Ok(Execution {
            others_first: others_first(executor.sharing()),
            executor,
            tail_throttle: TailThrottle::of_this_machine(),
            quotas: MemoryQuotas::new(store.memory(), store.memory().client_limit()),
            javascript,
            functions: Arc::new(store.clone()),
            fail_points: FailPoints::default(),
            query_settings,
            no_collection_scans: AtomicBool::new(settings.no_collection_scans),
        })
    }
}

impl Records {
    fn new(settings: &Settings, instance: &Instance) -> Result<Records, StartError> {
        let tracing = settings.otlp_endpoint.clone().map(|endpoint| {
            Tracing::start(&TracingOptions {
                endpoint,
                sampling: settings.trace_sampling,
                instance: instance.host_and_port(),
                version: env!("CARGO_PKG_VERSION").to_string(),
            })
        });
        let tracing = tracing.transpose().map_err(StartError::Tracing)?;
        let profiling = &settings.profiling;
        let filter = profiling.filter.as_deref();
        let level = ProfileLevel {
            level: profiling.level,
            filter: filter
                .map(|filter| ProfileFilter::parse(filter).map(Arc::new))
                .transpose()
                .map_err(StartError::ProfileFilter)?,
        };
        let slow = micros(settings.slow_operation);
        Ok(Records {
            history: History::new(
                settings.db_path.join("diagnostic.data"),
                metric_samples::sampled_metrics(),
            ),
            query_stats: QueryStats::new(settings.query_stats_rate),
            profiler: Profiler::new(level, profiling.sample_rate),
            tracing,
            slow_micros: AtomicU64::new(slow),
        })
    }
}

/// Lets other operations of clients go before long reads. `currentOp` shows the wait.
fn others_first(tickets: Sharing) -> OthersFirst {
    OthersFirst::new(move |limits| {
        let mut shown = None;
        tickets.let_others_go_first(|| {
            if shown.is_none() {
                shown = Some(Wait::begin(WaitFor::Ticket)?);
            }
            limits.check()
        })
    })
}

/// Logs a document that was stored although it fails its collection's validator.
fn warn_of_invalid(log: &Log, ns: &Namespace, info: &Doc) {
    let attributes = doc! {"namespace": ns.as_str(), "errInfo": info};
    log.line(
        Severity::Warning,
        Component::Storage,
        20294,
        "validation",
        "Document would fail validation",
        &attributes,
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
