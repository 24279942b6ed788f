//! Running the server: start, signals, clean shutdown.

mod audit;
mod old_standby;
mod service_manager;
mod startup_log;

use std::fs::Permissions;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use frond_javascript::{Placement, WorkerProgram};
use frond_store::{
    ActivityEvent, ClusterOptions, Damage, DocumentStore, EventListener, LogCut, SharedOptions,
    StorageOptions, StoreOptions,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::audit::Actor;
use crate::background;
use crate::commands::COMMANDS;
use crate::commands::administration::log_rotate::rotate_logs;
use crate::commands::diagnostics::build_info::COMPATIBLE_VERSION;
use crate::commands::replication::repl_set_status;
use crate::feature_version;
use crate::host::file_handles::HandleLimit;
use crate::host::lock_file::LockFile;
use crate::host::memory::{
    client_bytes, default_cache_bytes, idle_connections_bytes, usable_bytes,
};
use crate::host::proc;
use crate::http::accept_http;
use crate::net::listen::{AddressError, Addresses, UnixSocketFile, accept_all, bind_all};
use crate::net::serve::CONNECTION_BYTES;
use crate::observability::log::{Component, Log, Severity};
use crate::observability::metrics::Metrics;
use crate::observability::startup_warnings;
use crate::parameters;
use crate::replication::{is_new_to_sets, leave_old_set};
use crate::resync;
use crate::settings::{Settings, resolve};
use crate::state::{Server, StartError};
use crate::tls::Tls;
use frond_runtime::panic_text;
use frond_store::encryption::MasterKey;

/// Exit codes, those of mongod.
mod exit {
    /// A setting is wrong.
    pub const BAD_OPTIONS: u8 = 2;
    /// An address cannot be bound.
    pub const NET_ERROR: u8 = 48;
    /// The data directory or its files cannot be used.
    pub const DATA_ERROR: u8 = 100;
}

/// The wait of the shutdown for running operations.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(15);

/// Why the server could not start or continue, with its exit code.
struct FatalError {
    code: u8,
    message: String,
}

impl FatalError {
    fn new(code: u8, message: impl ToString) -> FatalError {
        FatalError {
            code,
            message: message.to_string(),
        }
    }

    fn thread(error: &std::io::Error) -> FatalError {
        FatalError::new(1, format!("cannot start a thread: {error}"))
    }

    fn address(error: &AddressError) -> FatalError {
        FatalError::new(exit::NET_ERROR, error)
    }
}

/// Serves until a signal or the command `shutdown`. The exit code is 0 after a clean shutdown,
/// 2 for a wrong setting, 48 if an address is in use, 100 if the data directory cannot be used.
///
/// Functions of JavaScript run in the `workers`; without any in this process, where not every one of them can be interrupted.
#[must_use]
pub fn run(arguments: &clap::ArgMatches, workers: Option<WorkerProgram>) -> ExitCode {
    let settings = match parameters::read(arguments) {
        Ok(mut settings) => {
            if let Some(program) = workers {
                settings.javascript.placement = Placement::Workers(program);
            }
            settings
        }
        Err(error) => {
            eprintln!("frond serve: {error}");
            return ExitCode::from(exit::BAD_OPTIONS);
        }
    };
    if !settings.honor_umask {
        frond_files::only_for_owner();
    }
    let handles = HandleLimit::raise();
    let log = match Log::open(&settings) {
        Ok(log) => Arc::new(log),
        Err(error) => {
            eprintln!("frond serve: {error}");
            return ExitCode::from(exit::BAD_OPTIONS);
        }
    };
    log_panics(&log);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        // For timers, listeners and jobs of the server; commands run in a pool of their own.
        .worker_threads(2)
        .enable_all()
        .thread_name("frond-front")
        .max_blocking_threads(16)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("frond serve: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let settings = limit_connections(settings, &handles, &log);
    let ended = runtime.block_on(serve(settings, log.clone()));
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(Ended::Stopped) => ExitCode::SUCCESS,
        Ok(Ended::StartAnew) => start_anew(),
        Err(stop) => {
            let attributes = doc! {"error": &stop.message, "exitCode": i32::from(stop.code)};
            log.error(
                Component::Control,
                23138,
                "initandlisten",
                "Shutting down",
                &attributes,
            );
            eprintln!("frond serve: {}", stop.message);
            ExitCode::from(stop.code)
        }
    }
}

/// The connections that the memory of the process allows.
fn connections_in(usable_bytes: u64) -> usize {
    let most = idle_connections_bytes(usable_bytes) / CONNECTION_BYTES as u64;
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Limits the connections so that the server has the file handles and the memory that it needs.
fn limit_connections(mut settings: Settings, handles: &HandleLimit, log: &Log) -> Settings {
    log.info(
        Component::Control,
        9_100_001,
        "initandlisten",
        "Limit of open files",
        &handles.to_doc(),
    );
    let connections_max = settings.connections_max.min(handles.connections_max());
    if connections_max < settings.connections_max {
        let attributes = doc! {
            "maxConns": settings.connections_max as i64, "limit": connections_max as i64,
        };
        log.info(
            Component::Network,
            9_100_002,
            "initandlisten",
            "maxConns is more than the limit of open files allows; raise that limit (ulimit -n) for more connections",
            &attributes,
        );
    }
    let by_memory = connections_in(usable_bytes());
    if by_memory < connections_max {
        let attributes = doc! {"limit": i64::try_from(by_memory).unwrap_or(i64::MAX)};
        log.info(
            Component::Network,
            9_100_053,
            "initandlisten",
            "Idle connections take at most a part of the memory of the process; give it more for more connections",
            &attributes,
        );
    }
    settings.limit_connections(connections_max.min(by_memory));
    settings
}

/// The end of the server.
enum Ended {
    /// It was asked to.
    Stopped,
    /// The program is to start again.
    StartAnew,
}

/// Starts this program again in the same process, with the same arguments.
fn start_anew() -> ExitCode {
    use std::os::unix::process::CommandExt;

    let mut arguments = std::env::args_os().skip(1);
    let failed = std::env::current_exe().map(|program| {
        let mut command = std::process::Command::new(program);
        command.args(&mut arguments).exec()
    });
    let error = failed.unwrap_or_else(|error| error);
    eprintln!("frond serve: starting anew: {error}; start it again");
    ExitCode::FAILURE
}

async fn serve(settings: Settings, log: Arc<Log>) -> Result<Ended, FatalError> {
    let began = Instant::now();
    log_start(&settings, &log);
    let tls =
        Tls::open(&settings.tls).map_err(|error| FatalError::new(exit::BAD_OPTIONS, error))?;
    let ips =
        resolve(&settings.bind_ip).map_err(|error| FatalError::new(exit::BAD_OPTIONS, error))?;
    let lock = LockFile::take(&settings.db_path)
        .map_err(|error| FatalError::new(exit::DATA_ERROR, error))?;
    let of_files = |error| {
        FatalError::new(
            exit::DATA_ERROR,
            format!("taking over a copy of another member: {error}"),
        )
    };
    old_standby::refuse(&settings.db_path).map_err(|why| FatalError::new(exit::DATA_ERROR, why))?;
    resync::take_over(&settings.db_path, &log).map_err(of_files)?;
    let sockets = Sockets::bind(&settings, &ips)?;
    let port = sockets.addresses.port;
    let mut signals = Signals::new().map_err(|error| FatalError::new(1, error))?;
    warn(&settings, &log, &lock);
    if let Some(tls) = &tls {
        tls.log_files(&log);
        tls.warn_at_start(&settings.tls, &log);
    }

    service_manager::status("Opening the data files");
    let store = tokio::task::block_in_place(|| open_store(&settings, &log, port))?;
    let _pid_file = settings
        .pid_file
        .clone()
        .map(PidFile::write)
        .transpose()
        .map_err(|error| FatalError::new(exit::BAD_OPTIONS, error))?;
    let server = open_server(settings, log, store, tls, port)?;
    let index_builds =
        background::resume_index_builds(&server).map_err(|error| FatalError::thread(&error))?;
    let reencryption =
        background::reencrypt(&server).map_err(|error| FatalError::thread(&error))?;
    let unix = sockets.accept(&server)?;
    let ttl = start_background(&server)?;
    log_listening(&server, &ips, began);

    service_manager::ready(port);
    service_manager::keep_alive(&server);

    signals.until_stop(&server).await;
    service_manager::stopping();
    tokio::task::block_in_place(|| repl_set_status::hand_over(&server));
    server.stop();
    // Writes that wait are interrupted, and the last checkpoint is written.
    tokio::task::block_in_place(|| server.maintenance.fsync_lock.release());
    drain_connections(&server).await;
    index_builds.stop();
    reencryption.stop();
    ttl.stop();
    drop(unix);
    close(&server)?;
    lock.release().map_err(|error| {
        FatalError::new(exit::DATA_ERROR, format!("closing mongod.lock: {error}"))
    })?;
    server.log.info(
        Component::Control,
        23138,
        "main",
        "Shutting down",
        &doc! {"exitCode": 0},
    );
    Ok(if server.instance.restarts.load(Ordering::SeqCst) {
        Ended::StartAnew
    } else {
        Ended::Stopped
    })
}

/// The sockets of a server that does not accept yet.
struct Sockets {
    addresses: Addresses,
    http: Option<Addresses>,
    unix: Option<UnixSocketFile>,
}

impl Sockets {
    fn bind(settings: &Settings, ips: &[IpAddr]) -> Result<Sockets, FatalError> {
        let address = |error: AddressError| FatalError::address(&error);
        let addresses = bind_all(ips, settings.port).map_err(address)?;
        let http = settings.http_port.map(|port| bind_all(ips, port));
        let http = http.transpose().map_err(address)?;
        let unix = settings.unix_socket_path(addresses.port);
        let unix = unix.map(|path| UnixSocketFile::listen(&path, settings.unix_socket_permissions));
        Ok(Sockets {
            http,
            unix: unix.transpose().map_err(address)?,
            addresses,
        })
    }

    /// Accepts connections from here on. Returns the file of the Unix socket, which is removed when it is dropped.
    fn accept(mut self, server: &Arc<Server>) -> Result<Option<UnixSocketFile>, FatalError> {
        let address = |error: AddressError| FatalError::address(&error);
        accept_all(server, self.addresses, self.unix.as_mut()).map_err(address)?;
        if let Some(addresses) = self.http {
            accept_http(server, addresses).map_err(address)?;
        }
        Ok(self.unix)
    }
}

/// The server over its open store, which notes the start.
fn open_server(
    settings: Settings,
    log: Arc<Log>,
    store: DocumentStore,
    tls: Option<Tls>,
    port: u16,
) -> Result<Arc<Server>, FatalError> {
    let metrics = Metrics::new(COMMANDS.iter().map(|command| command.spec().name()));
    let server = Server::new(settings, log, store, metrics, tls, port)
        .map(Arc::new)
        .map_err(|error| match error {
            StartError::Thread(error) => FatalError::thread(&error),
            StartError::Tracing(error) => FatalError::new(exit::BAD_OPTIONS, error),
            StartError::Random(error) => FatalError::new(1, error),
            StartError::ReplicaSet(error) => FatalError::new(exit::BAD_OPTIONS, error),
            StartError::Store(error) => FatalError::new(exit::DATA_ERROR, error),
            StartError::Audit(error) => FatalError::new(exit::BAD_OPTIONS, error),
            StartError::ProfileFilter(error) => FatalError::new(exit::BAD_OPTIONS, error),
        })?;
    background::follow_set(&server);
    tokio::task::block_in_place(|| background::lead_alone(&server))
        .map_err(|error| FatalError::new(exit::DATA_ERROR, error))?;
    tokio::task::block_in_place(|| {
        audit::record_start(&server)?;
        startup_log::write(&server);
        feature_version::write(&server);
        Ok(())
    })?;
    Ok(server)
}

/// Starts the jobs of the server itself.
fn start_background(server: &Arc<Server>) -> Result<background::TtlMonitor, FatalError> {
    tokio::spawn(background::expire(server.clone()));
    tokio::spawn(background::write_checkpoints(server.clone()));
    tokio::spawn(background::record_history(server.clone()));
    tokio::spawn(background::write_profiles(server.clone()));
    tokio::spawn(background::watch_disk_space(server.clone()));
    tokio::spawn(background::report_fast_updates(server.clone()));
    tokio::spawn(background::release_memory(server.clone()));
    tokio::spawn(background::trim_oplog(server.clone()));
    tokio::spawn(background::expire_transactions(server.clone()));
    tokio::spawn(background::watch_certificates(server.clone()));
    tokio::spawn(background::sync_audit(server.clone()));
    tokio::spawn(background::tell_life(server.clone(), COMPATIBLE_VERSION));
    background::TtlMonitor::start(server).map_err(|error| FatalError::thread(&error))
}

/// Logs the addresses, and that the server is ready.
fn log_listening(server: &Server, ips: &[IpAddr], began: Instant) {
    let port = server.instance.port;
    let tcp = ips.iter().map(|ip| SocketAddr::new(*ip, port).to_string());
    let unix = server.settings.unix_socket_path(port);
    let unix = unix.map(|path| path.to_string_lossy().into_owned());
    for address in tcp.chain(unix) {
        server.log.info(
            Component::Network,
            23015,
            "listener",
            "Listening on",
            &doc! {"address": address},
        );
    }
    server.log.info(
        Component::Network,
        23016,
        "listener",
        "Waiting for connections",
        &doc! {
            "port": i32::from(port), "ssl": if server.clients.tls.is_some() { "on" } else { "off" }, "startupMillis": began.elapsed().as_millis() as i64,
        },
    );
    if server.settings.log_path.is_some() {
        // The log goes to a file, so the terminal gets a line when the server is ready.
        println!("frond: waiting for connections on port {port}");
    }
}

/// Closes the store of a server without connections.
fn close(server: &Server) -> Result<(), FatalError> {
    if let Some(tracing) = &server.records.tracing {
        tokio::task::block_in_place(|| tracing.stop());
    }
    let resync = server.set.resync.lock().clone();
    if let Some(resync) = resync {
        tokio::task::block_in_place(|| resync.stop());
    }
    if let Some(consensus) = server.set.consensus() {
        tokio::task::block_in_place(|| {
            if consensus.is_leading() {
                // Otherwise the next start moves the clock ahead.
                let _ = server.store.lower_clock_bound();
            }
            consensus.stop();
        });
    }
    tokio::task::block_in_place(|| server.store.close()).map_err(|error| {
        FatalError::new(exit::DATA_ERROR, format!("closing the data files: {error}"))
    })?;
    if let Some(audit) = &server.audit {
        tokio::task::block_in_place(|| audit.close());
    }
    Ok(())
}

fn open_store(settings: &Settings, log: &Arc<Log>, port: u16) -> Result<DocumentStore, FatalError> {
    let temporary = settings.db_path.join("_tmp");
    let plain = || {
        StoreOptions::with_temporary_files(temporary.clone())
            .with_large_documents(settings.large_documents)
            .with_natural_order(settings.natural_order)
    };
    let options = if settings.is_member() {
        if is_new_to_sets(&settings.db_path) {
            let store = open_directory(settings, log, plain())?;
            leave_old_set(&store)
                .map_err(|error| FatalError::new(exit::DATA_ERROR, error.to_string()))?;
        }
        plain().of_member()
    } else {
        plain()
    };
    if settings.tikv.is_on {
        open_cluster(settings, log, options, port)
    } else {
        open_directory(settings, log, options)
    }
}

/// Opens the store in a TiKV cluster.
fn open_cluster(
    settings: &Settings,
    log: &Arc<Log>,
    options: StoreOptions,
    port: u16,
) -> Result<DocumentStore, FatalError> {
    let began = Instant::now();
    let tikv = &settings.tikv;
    let mut cluster = ClusterOptions::new(tikv.pd.clone());
    cluster.ca_file.clone_from(&tikv.ca_file);
    cluster.certificate_file.clone_from(&tikv.cert_file);
    cluster.key_file.clone_from(&tikv.key_file);
    cluster.key_prefix = tikv.key_prefix.clone().into_bytes();
    let reports = log.clone();
    cluster.report = Some(Arc::new(move |text: &str| {
        reports.warning(
            Component::Storage,
            9_937_030,
            "garbage",
            "Collection of garbage in the TiKV cluster",
            &doc! {"what": text},
        );
    }));
    // There is no cache of pages that would need the rest.
    let for_clients = usable_bytes() / 2;
    cluster.client_bytes = usize::try_from(for_clients).unwrap_or(usize::MAX);
    let uname = rustix::system::uname();
    let options = options.sharing(SharedOptions {
        address: settings.reached_at(&uname.nodename().to_string_lossy(), port),
        ..SharedOptions::default()
    });
    let store = DocumentStore::open_cluster(cluster, options).map_err(|error| {
        let text = format!(
            "opening the store in the TiKV cluster of the PD at {}: {error}",
            tikv.pd.join(",")
        );
        FatalError::new(exit::DATA_ERROR, text)
    })?;
    log.info(
        Component::Storage,
        4795906,
        "initandlisten",
        "Storage engine opened",
        &doc! {
            "durationMillis": began.elapsed().as_millis() as i64,
            "pd": tikv.pd.join(","),
            "keyPrefix": &*tikv.key_prefix,
            "clientMemoryBytes": i64::try_from(store.memory().client_limit()).unwrap_or(i64::MAX),
        },
    );
    Ok(store)
}

/// Opens the store in files of this server.
fn open_directory(
    settings: &Settings,
    log: &Arc<Log>,
    options: StoreOptions,
) -> Result<DocumentStore, FatalError> {
    let began = Instant::now();
    let cache = settings.cache_bytes.unwrap_or_else(default_cache_bytes);
    let for_clients = client_bytes(usable_bytes(), cache);
    let storage = StorageOptions {
        cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
        client_bytes: Some(usize::try_from(for_clients).unwrap_or(usize::MAX)),
        journal: settings.journal,
        journal_commit_interval: settings.journal_commit_interval,
        listener: Arc::new(EngineEvents(log.clone())),
        disk_reserve_bytes: settings.disk_reserve_bytes,
        log_recovery: settings.journal_recovery,
        master_key: master_key(settings)?,
    };
    let store =
        DocumentStore::open_directory(&settings.db_path, &storage, options).map_err(|error| {
            let text = format!(
                "opening the data files: {error} (if they are damaged: `frond verify` lists the damage, `frond salvage` \
                 copies what can be read, and --journalRecovery pointInTime cuts a damaged journal)"
            );
            FatalError::new(exit::DATA_ERROR, text)
        })?;
    log.info(
        Component::Storage,
        4795906,
        "initandlisten",
        "Storage engine opened",
        &doc! {
            "durationMillis": began.elapsed().as_millis() as i64,
            "cacheSizeBytes": i64::try_from(cache).unwrap_or(i64::MAX),
            "clientMemoryBytes": i64::try_from(store.memory().client_limit()).unwrap_or(i64::MAX),
            "journal": settings.journal,
        },
    );
    Ok(store)
}

/// The master key of an encrypted data directory.
fn master_key(settings: &Settings) -> Result<Option<MasterKey>, FatalError> {
    let read = settings.encryption.master_key();
    read.map_err(|error| FatalError::new(exit::BAD_OPTIONS, error.to_string()))
}

/// Logs what the engine reports.
struct EngineEvents(Arc<Log>);

impl EventListener for EngineEvents {
    fn damage_found(&self, damage: &Damage) {
        let attributes = doc! {
            "error": &damage.what,
            "tree": damage.tree.map(|tree| i64::from(tree.0)),
        };
        self.0.error(
            Component::Storage,
            9_915_001,
            "storage",
            "Damaged data: reads that need it fail, everything else goes on. serverStatus names its collection; \
             validate finds all damage in a collection",
            &attributes,
        );
    }

    fn log_cut(&self, cut: &LogCut) {
        self.0.error(
            Component::Storage,
            9_915_002,
            "initandlisten",
            "The journal is damaged. It ends before the damage now, as --journalRecovery pointInTime allows; writes that \
             came after are lost",
            &doc! {"error": &cut.error, "setAside": cut.set_aside.join(", ")},
        );
    }

    fn activity(&self, event: &ActivityEvent) {
        let severity = Severity::Debug(1);
        if !self.0.wants(Component::Storage, severity) {
            return;
        }
        let (id, text) = match event.took {
            None => (9_915_003, "Storage activity begins"),
            Some(_) => (9_915_004, "Storage activity ended"),
        };
        let mut attributes = doc! {
            "activity": event.activity.name(),
            "bytes": i64::try_from(event.bytes).unwrap_or(i64::MAX),
        };
        if let Some(took) = event.took {
            attributes.push("durationMillis", took.as_millis() as i64);
        }
        if let Some(error) = &event.error {
            attributes.push("error", error.as_str());
        }
        self.0.line(
            severity,
            Component::Storage,
            id,
            "storage",
            text,
            &attributes,
        );
    }
}

fn log_start(settings: &Settings, log: &Log) {
    let attributes = doc! {
        "pid": i64::from(std::process::id()),
        "port": i32::from(settings.port),
        "dbPath": settings.db_path.to_string_lossy().into_owned(),
        "version": env!("CARGO_PKG_VERSION"),
        "compatibleWith": COMPATIBLE_VERSION,
        "memoryLimitBytes": i64::try_from(usable_bytes()).unwrap_or(i64::MAX),
    };
    log.info(
        Component::Control,
        4615611,
        "initandlisten",
        "Frond starting",
        &attributes,
    );
}

/// Logs what an operator should know before storing data.
fn warn(settings: &Settings, log: &Log, lock: &LockFile) {
    for warning in &settings.warnings {
        log.startup_warning(9_100_047, warning, &DocBuf::new());
    }
    for note in &settings.notes {
        log.info(
            Component::Control,
            20720,
            "initandlisten",
            note,
            &DocBuf::new(),
        );
    }
    if lock.was_unclean() {
        log.warning(
            Component::Storage,
            22271,
            "initandlisten",
            "Detected unclean shutdown - Lock file is not empty",
            &doc! {"lockFile": settings.db_path.join("mongod.lock").to_string_lossy().into_owned()},
        );
    }
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    startup_warnings::warn(settings, log, open_files.unwrap_or(u64::MAX));
}

/// Writes panics to the log; the command that panicked fails.
fn log_panics(log: &Arc<Log>) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |info| {
        let place = info
            .location()
            .map(|at| format!("{}:{}", at.file(), at.line()));
        let attributes = doc! {
            "what": panic_text(info.payload()),
            "at": place.unwrap_or_default(),
            "thread": std::thread::current().name().unwrap_or(""),
            "backtrace": std::backtrace::Backtrace::force_capture().to_string(),
        };
        log.error(
            Component::Control,
            6384300,
            "panic",
            "The server panicked",
            &attributes,
        );
    }));
}

/// Interrupts running operations and waits for them to end.
async fn drain_connections(server: &Server) {
    let began = Instant::now();
    server.log.info(
        Component::Control,
        23381,
        "main",
        "Closing connections",
        &doc! {"connections": server.clients.connections.len() as i64},
    );
    while !server.clients.connections.is_empty() && began.elapsed() < SHUTDOWN_WAIT {
        server.clients.connections.kill_all_operations();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.clients.cursors.kill_all();
}

/// The signals that the server handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// None if it is ignored, as `nohup` has it.
    hangup: Option<Signal>,
    rotate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: if hangup_is_ignored() {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            },
            rotate: signal(SignalKind::user_defined1())?,
        })
    }

    /// Returns when the server is to stop.
    async fn until_stop(&mut self, server: &Server) {
        let mut stop = server.stop_signal();
        loop {
            let name = tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                // As mongod: the end of a terminal is no crash.
                () = received(&mut self.hangup) => "SIGHUP",
                _ = stop.wait_for(|stop| *stop) => return,
                _ = self.rotate.recv() => {
                    let rotated = tokio::task::block_in_place(|| {
                        rotate_logs(server, Actor::Server, (true, true))
                    });
                    if let Err(error) = rotated {
                        let attributes = doc! {"error": error.to_string()};
                        server.log.error(
                            Component::Control, 23168, "SignalHandler", "Log rotation failed", &attributes,
                        );
                    }
                    continue;
                }
            };
            let attributes = doc! {"signal": name};
            server.log.info(
                Component::Control,
                23377,
                "SignalHandler",
                "Received signal",
                &attributes,
            );
            return;
        }
    }
}

/// Returns when a signal has come; never if it is not handled.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether the process was started with the signal ignored.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored =
        proc::value(&status, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

/// A file with the process id, removed on shutdown.
struct PidFile(std::path::PathBuf);

impl PidFile {
    fn write(path: std::path::PathBuf) -> Result<PidFile, String> {
        let failed = |error| format!("cannot write the pid file {}: {error}", path.display());
        let mut file = frond_files::replace(&path).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
            .map_err(failed)?;
        // As mongod's: other programs of the machine look for the process.
        file.set_permissions(Permissions::from_mode(0o644))
            .map_err(failed)?;
        Ok(PidFile(path))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // It may be removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}
