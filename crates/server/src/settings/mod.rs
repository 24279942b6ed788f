//! The settings of the server, with their defaults. `parameters` has the table that reads them.

mod audit;
mod encryption;
mod javascript;
mod logins;
mod network;
mod profiling;
mod secret;
mod security;
mod tikv;
mod tls;
mod ttl_batches;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use frond_store::{LargeDocuments, LogRecovery, NaturalOrder};
use frond_wire::Compressor;

pub use audit::{AuditDestination, AuditFormat, AuditSettings, parse_audit_filter};
pub use encryption::EncryptionSettings;
pub use javascript::JavaScriptSettings;
pub use logins::LoginSettings;
pub use network::{CONNECTIONS_PER_ADDRESS, Exempt, resolve};
pub use profiling::ProfilingSettings;
pub use secret::{PASSWORD_PLACEHOLDER, Secret, without_secrets};
pub use security::{ClusterAuthMode, SecuritySettings, read_key_file};
pub use tikv::TikvSettings;
pub use tls::{TlsMode, TlsSettings};
pub use ttl_batches::TtlBatches;
pub use value::SettingValue;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON document with mongod's fields.
    #[default]
    Json,
    /// One line of plain text.
    Text,
}

/// The fate of the log file at a log rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogRotate {
    /// It is renamed with the time as a suffix, and a new file begins.
    #[default]
    Rename,
    /// It is closed and reopened, because another program moved it.
    Reopen,
}

/// Whether the server keeps an oplog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OplogMode {
    /// As a member of a replica set, from its initiation on.
    #[default]
    Auto,
    On,
    Off,
}

/// The path of the Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnixSocket {
    #[default]
    Off,
    /// `mongodb-PORT.sock` in this directory.
    InDirectory(PathBuf),
    At(PathBuf),
}

/// All settings, with defaults applied.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the data files.
    pub db_path: PathBuf,
    /// TCP port; with 0 the system chooses a free one.
    pub port: u16,
    /// Addresses to listen on. Names are resolved when the server starts.
    pub bind_ip: Vec<String>,
    /// Whether the operator sets the addresses.
    pub bind_ip_explicit: bool,
    /// Unix socket, besides TCP.
    pub unix_socket: UnixSocket,
    /// Permission bits of the Unix socket.
    pub unix_socket_permissions: u32,
    /// Maximum number of simultaneous connections.
    pub connections_max: usize,
    /// Groups of connections with threads of their own; 0 for the number that suits the machine.
    pub connection_groups: usize,
    /// Maximum number of simultaneous connections of one address.
    pub connections_per_address: usize,
    /// Clients that these two limits do not stop.
    pub connections_exempt: Vec<Exempt>,
    /// The port of the HTTP server, which has the console; none if there is no HTTP server.
    pub http_port: Option<u16>,
    /// Further names under which browsers reach the console.
    pub http_hosts: Vec<String>,
    /// The collector of OpenTelemetry that spans go to; none if nothing is traced.
    pub otlp_endpoint: Option<String>,
    /// The share of the commands that are traced.
    pub trace_sampling: f64,
    /// Whether files are created with the permissions that the umask of the system leaves.
    pub honor_umask: bool,
    /// The settings of JavaScript.
    pub javascript: JavaScriptSettings,
    pub tls: TlsSettings,
    /// Compressors that a client may negotiate, in order of preference.
    pub compressors: Vec<Compressor>,
    /// Size of the cache in bytes; none means the default, which depends on the memory that this process may use.
    pub cache_bytes: Option<u64>,
    /// Whether acknowledged writes go through the journal.
    pub journal: bool,
    /// Time between syncs of the journal when no write waits for one.
    pub journal_commit_interval: Duration,
    /// The treatment of a damaged journal at the start.
    pub journal_recovery: LogRecovery,
    /// Bytes of the file system that only deletes and drops may use; none means a share of it.
    pub disk_reserve_bytes: Option<u64>,
    /// The log file; none means standard output.
    pub log_path: Option<PathBuf>,
    /// Whether the log goes to the system's, and with which facility.
    pub syslog: bool,
    /// See `syslog`.
    pub syslog_facility: String,
    /// Append to an existing log file instead of renaming it.
    pub log_append: bool,
    /// See [`LogRotate`].
    pub log_rotate: LogRotate,
    /// See [`LogFormat`].
    pub log_format: LogFormat,
    /// Level of debug lines; 0 means none.
    pub log_verbosity: u8,
    /// That of components with their own, in the order of the log's components.
    pub log_components: [Option<u8>; 9],
    /// No lines about connections.
    pub quiet: bool,
    /// File that holds the process id while the server runs.
    pub pid_file: Option<PathBuf>,
    /// Operations at least this long are logged.
    pub slow_operation: Duration,
    /// Whether queries with conditions must not read whole collections.
    pub no_collection_scans: bool,
    /// Whether a member writes the documents that it discards to files.
    pub creates_rollback_files: bool,
    /// Seconds after which a checkpoint is written if there were commits; 0 leaves it to the engine.
    pub checkpoint_secs: u64,
    /// Queries a second that `$queryStats` counts.
    pub query_stats_rate: i64,
    /// See [`ProfilingSettings`].
    pub profiling: ProfilingSettings,
    /// An idle cursor is closed after this time.
    pub cursor_timeout: Duration,
    /// An unused session expires after this time.
    pub session_timeout: Duration,
    /// A transaction that is open for longer is aborted.
    pub transaction_lifetime: Duration,
    /// The longest wait of a transaction's statement for a lock.
    pub transaction_lock_wait_ms: i32,
    /// Whether documents expire by TTL indexes.
    pub ttl_monitor: bool,
    /// Time between two passes that delete expired documents.
    pub ttl_monitor_sleep: Duration,
    /// See [`TtlBatches`].
    pub ttl_batches: TtlBatches,
    /// Whether commands for tests are enabled.
    pub test_commands: bool,
    /// Which documents are stored in parts.
    pub large_documents: LargeDocuments,
    /// The natural order of new collections, unless `create` sets it.
    pub natural_order: NaturalOrder,
    /// See [`TikvSettings`].
    pub tikv: TikvSettings,
    pub encryption: EncryptionSettings,
    /// The name of the replica set that this server is a member of; none for a standalone server.
    pub replica_set: Option<String>,
    /// The directory below which all copies are that clients ask the server for; none if they may be anywhere.
    pub backup_root: Option<PathBuf>,
    /// See [`OplogMode`].
    pub oplog: OplogMode,
    /// Size in bytes beyond which the oldest entries of a new oplog are removed; none means a share of the file system.
    pub oplog_bytes: Option<u64>,
    /// Entries of the oplog that are younger than this are not removed, whatever its size.
    pub oplog_min_retention: Duration,
    /// Time between two passes that remove expired pre-images.
    pub pre_image_period: Duration,
    /// Whether users need privileges.
    pub security: SecuritySettings,
    /// See [`AuditSettings`].
    pub audit: AuditSettings,
    pub logins: LoginSettings,
    /// The values that the operator sets, by configuration key, without passwords.
    pub explicit: BTreeMap<String, SettingValue>,
    /// The command line of the process, without passwords.
    pub arguments: Vec<String>,
    /// The configuration file that was read.
    pub config_file: Option<PathBuf>,
    /// Log messages about settings that were accepted but have no effect.
    pub notes: Vec<String>,
    /// Dangers in the form of the settings, for the log.
    pub warnings: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            db_path: PathBuf::from("/data/db"),
            port: 27017,
            bind_ip: vec!["127.0.0.1".into()],
            bind_ip_explicit: false,
            unix_socket: UnixSocket::Off,
            unix_socket_permissions: 0o700,
            connections_max: 65_536,
            connection_groups: 0,
            connections_per_address: CONNECTIONS_PER_ADDRESS,
            connections_exempt: Vec::new(),
            http_port: None,
            http_hosts: Vec::new(),
            backup_root: None,
            otlp_endpoint: None,
            trace_sampling: 1.0,
            honor_umask: false,
            tls: TlsSettings::default(),
            compressors: vec![Compressor::Snappy, Compressor::Zstd, Compressor::Zlib],
            cache_bytes: None,
            journal: true,
            journal_commit_interval: Duration::from_millis(100),
            journal_recovery: LogRecovery::Complete,
            disk_reserve_bytes: None,
            log_path: None,
            syslog: false,
            syslog_facility: "user".into(),
            log_append: false,
            log_rotate: LogRotate::Rename,
            log_format: LogFormat::Json,
            log_verbosity: 0,
            log_components: [None; 9],
            quiet: false,
            pid_file: None,
            slow_operation: Duration::from_millis(100),
            no_collection_scans: false,
            creates_rollback_files: true,
            checkpoint_secs: 0,
            query_stats_rate: 100,
            profiling: ProfilingSettings::default(),
            cursor_timeout: Duration::from_secs(600),
            session_timeout: Duration::from_secs(30 * 60),
            transaction_lifetime: Duration::from_secs(60),
            transaction_lock_wait_ms: 5,
            ttl_monitor: true,
            ttl_monitor_sleep: Duration::from_secs(60),
            ttl_batches: TtlBatches::default(),
            test_commands: false,
            large_documents: LargeDocuments::default(),
            natural_order: NaturalOrder::default(),
            tikv: TikvSettings::default(),
            encryption: EncryptionSettings::default(),
            replica_set: None,
            oplog: OplogMode::Auto,
            oplog_bytes: None,
            oplog_min_retention: Duration::ZERO,
            pre_image_period: Duration::from_secs(10),
            javascript: JavaScriptSettings::default(),
            security: SecuritySettings::default(),
            audit: AuditSettings::default(),
            logins: LoginSettings::default(),
            explicit: BTreeMap::new(),
            arguments: Vec::new(),
            config_file: None,
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Whether the server is a member of a replica set that elects its primary: not one over a cluster.
    pub fn is_member(&self) -> bool {
        self.replica_set.is_some() && !self.tikv.is_on
    }

    /// Whether the operator sets the parameter with this key, even to its default.
    pub fn is_explicit(&self, key: &str) -> bool {
        self.explicit.contains_key(key)
    }
}

/// A setting that is unknown, invalid or not supported; the text names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError(pub String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}
