//! The settings of the server, from the command line and from a mongod.conf.
//!
//! [`table::SETTINGS`] is the only list of settings: the command line, the configuration file and
//! the help are generated from it. The command line overrides the file, and the file the defaults.

mod backup;
mod file;
mod javascript;
mod log_components;
mod logins;
mod network;
mod planning;
mod profiling;
mod secret;
mod security;
mod standby;
mod syslog;
mod table;
mod telemetry;
#[cfg(test)]
mod tests;
mod tikv;
mod tls;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use frond_store::{LargeDocuments, LogRecovery, NaturalOrder};
use frond_wire::Compressor;
use zeroize::Zeroizing;

pub use javascript::JavaScriptSettings;
pub use logins::{ITERATIONS, LoginSettings};
pub use network::{CONNECTIONS_PER_ADDRESS, Exempt};
pub use profiling::ProfilingSettings;
pub use secret::{SHOWN, Secret};
pub use security::SecuritySettings;
pub use table::{
    Kind, SETTINGS, Setting, SettingValue, from_parameter, parameter, resolve, shown_arguments,
};
pub use tikv::TikvSettings;
pub use tls::{TlsMode, TlsSettings};

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
    /// Always.
    On,
    /// Never.
    Off,
}

/// The path of the Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UnixSocket {
    /// No Unix socket.
    #[default]
    Off,
    /// `mongodb-PORT.sock` in this directory.
    InDirectory(PathBuf),
    /// This path.
    At(PathBuf),
}

/// All settings, with defaults applied.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the data files.
    pub db_path: PathBuf,
    /// TCP port; 0 asks the system for a free one.
    pub port: u16,
    /// Addresses to listen on. Names are resolved when the server starts.
    pub bind_ip: Vec<String>,
    /// Whether they were chosen, not those by default.
    pub bind_ip_given: bool,
    /// Unix socket, besides TCP.
    pub unix_socket: UnixSocket,
    /// Permission bits of the Unix socket.
    pub unix_socket_permissions: u32,
    /// Maximum number of simultaneous connections.
    pub connections_max: usize,
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
    /// The TLS settings.
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
    pub log_components: [Option<u8>; 8],
    /// No lines about connections.
    pub quiet: bool,
    /// File that holds the process id while the server runs.
    pub pid_file: Option<PathBuf>,
    /// Operations at least this long are logged.
    pub slow_operation: Duration,
    /// Whether queries with conditions must not read whole collections.
    pub no_collection_scans: bool,
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
    /// The longest wait of a transaction's statement for a lock: see [`crate::state::Server::transaction_lock_wait_ms`].
    pub transaction_lock_wait_ms: i32,
    /// Whether documents expire by TTL indexes.
    pub ttl_monitor: bool,
    /// Time between two passes that delete expired documents.
    pub ttl_monitor_sleep: Duration,
    /// Whether commands for tests are enabled.
    pub test_commands: bool,
    /// Which documents are stored in parts.
    pub large_documents: LargeDocuments,
    /// The natural order of new collections, unless `create` sets it.
    pub natural_order: NaturalOrder,
    /// See [`TikvSettings`].
    pub tikv: TikvSettings,
    /// The name of the replica set that this server is the only member of; none for a standalone server.
    pub replica_set: Option<String>,
    /// The directory below which all copies are that clients ask the server for; none if they may be anywhere.
    pub backup_root: Option<PathBuf>,
    /// The connection string of the primary that this server is a standby of; none if it is no standby.
    pub follow: Option<Secret>,
    /// Whether a standby that is too far behind starts anew from a copy.
    pub follow_anew: bool,
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
    pub logins: LoginSettings,
    /// The settings that were given, for `getCmdLineOpts`: configuration key to value.
    pub given: BTreeMap<&'static str, SettingValue>,
    /// The configuration file that was read.
    pub config_file: Option<PathBuf>,
    /// Log messages about settings that were accepted but have no effect.
    pub notes: Vec<String>,
    /// Dangers in the form of the given settings, for the log.
    pub warnings: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            db_path: PathBuf::from("/data/db"),
            port: 27017,
            bind_ip: vec!["127.0.0.1".into()],
            bind_ip_given: false,
            unix_socket: UnixSocket::Off,
            unix_socket_permissions: 0o700,
            connections_max: 65_536,
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
            log_components: [None; 8],
            quiet: false,
            pid_file: None,
            slow_operation: Duration::from_millis(100),
            no_collection_scans: false,
            checkpoint_secs: 0,
            query_stats_rate: 100,
            profiling: ProfilingSettings::default(),
            cursor_timeout: Duration::from_secs(600),
            session_timeout: Duration::from_secs(30 * 60),
            transaction_lifetime: Duration::from_secs(60),
            transaction_lock_wait_ms: 5,
            ttl_monitor: true,
            ttl_monitor_sleep: Duration::from_secs(60),
            test_commands: false,
            large_documents: LargeDocuments::default(),
            natural_order: NaturalOrder::default(),
            tikv: TikvSettings::default(),
            replica_set: None,
            follow: None,
            follow_anew: false,
            oplog: OplogMode::Auto,
            oplog_bytes: None,
            oplog_min_retention: Duration::ZERO,
            pre_image_period: Duration::from_secs(10),
            javascript: JavaScriptSettings::default(),
            security: SecuritySettings::default(),
            logins: LoginSettings::default(),
            given: BTreeMap::new(),
            config_file: None,
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// The text of a configuration file, and whether only its owner may read it.
fn read_config(path: &Path) -> io::Result<(Zeroizing<String>, bool)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let is_private = !metadata.is_file() || metadata.mode() & 0o077 == 0;
    // It does not grow while it is read, so no part of a password is left behind. Of a longer file the error says that it is too long.
    let limit = yaml::BYTES_MAX as u64 + 1;
    let capacity = metadata.len().min(limit) as usize + 1;
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    file.take(limit).read_to_string(&mut text)?;
    Ok((text, is_private))
}

impl Settings {
    /// Settings from parsed arguments of [`command_line`], and from the configuration file that
    /// they name.
    pub fn from_arguments(arguments: &clap::ArgMatches) -> Result<Settings, SettingsError> {
        let mut values: BTreeMap<&'static str, (&'static Setting, SettingValue)> = BTreeMap::new();
        let mut warnings = Vec::new();
        let config_file = arguments.get_one::<String>("config").map(PathBuf::from);
        if let Some(path) = &config_file {
            let (text, is_private) = read_config(path).map_err(|error| {
                SettingsError(format!(
                    "cannot read the configuration file {}: {error}",
                    path.display()
                ))
            })?;
            for (setting, given) in file::parse(&text)
                .map_err(|error| SettingsError(format!("{}: {error}", path.display())))?
            {
                if matches!(given, SettingValue::Secret(_)) && !is_private {
                    warnings.push(format!(
                        "{} is in the configuration file {}, which others than its owner may read; change that with \
                         chmod 600",
                        setting.key,
                        path.display()
                    ));
                }
                values.insert(setting.key, (setting, given));
            }
        }
        let mut flags = BTreeMap::new();
        for setting in SETTINGS {
            if let Some(given) = table::from_arguments(setting, arguments)? {
                if let Some(other) = flags.insert(setting.key, setting.flag) {
                    return Err(SettingsError(format!(
                        "--{other} and --{} cannot both be given",
                        setting.flag
                    )));
                }
                if matches!(given, SettingValue::Secret(_)) {
                    warnings.push(format!(
                        "--{} is on the command line, which all users of this machine can see; set {} in a configuration \
                         file that only its owner can read",
                        setting.flag, setting.key
                    ));
                }
                values.insert(setting.key, (setting, given));
            }
        }
        for text in arguments
            .get_many::<String>("setParameter")
            .into_iter()
            .flatten()
        {
            let (setting, given) = from_parameter(text)?;
            values.insert(setting.key, (setting, given));
        }
        let settings = Settings::from_values(values.into_values(), config_file)?;
        Ok(Settings {
            warnings,
            ..settings
        })
    }

    fn from_values(
        values: impl Iterator<Item = (&'static Setting, SettingValue)>,
        config_file: Option<PathBuf>,
    ) -> Result<Settings, SettingsError> {
        let mut settings = Settings {
            config_file,
            ..Settings::default()
        };
        let mut values: Vec<_> = values.collect();
        // In the order of the table, where a setting that depends on another comes after it.
        values.sort_by_key(|(setting, _)| {
            SETTINGS
                .iter()
                .position(|other| std::ptr::eq(other, *setting))
        });
        for (setting, given) in values {
            (setting.apply)(&mut settings, &given)
                .map_err(|why| SettingsError(format!("{}: {why}", setting.name())))?;
            let shown = match given {
                SettingValue::Secret(_) => SettingValue::Text(SHOWN.to_owned()),
                given => given,
            };
            settings.given.insert(setting.key, shown);
        }
        settings.tls.check(|key| settings.given.contains_key(key))?;
        settings
            .tikv
            .check(|key| settings.given.contains_key(key))?;
        if settings.log_append && settings.log_path.is_none() {
            return Err(SettingsError(
                "systemLog.logAppend needs a log file: set systemLog.path".into(),
            ));
        }
        if settings.follow.is_some() && (!settings.journal || settings.oplog == OplogMode::Off) {
            return Err(SettingsError(
                "a standby needs the journal and the oplog: remove --nojournal (storage.journal.enabled: false) and --oplog off \
                 (replication.oplog), or --follow (replication.follow)"
                    .into(),
            ));
        }
        if settings.replica_set.is_some() && !settings.journal {
            return Err(SettingsError(
                "a member of a replica set needs the journal: remove --nojournal (storage.journal.enabled: false), or --replSet \
                 (replication.replSetName)"
                    .into(),
            ));
        }
        if settings.oplog == OplogMode::On && !settings.journal {
            return Err(SettingsError(
                "the oplog needs the journal: remove --nojournal (storage.journal.enabled: false), or --oplog \
                 (replication.oplog)"
                    .into(),
            ));
        }
        Ok(settings)
    }

    /// Where the clients of a replica set reach this server if nothing else is configured: the first address that it
    /// listens on and that other machines may use, or the name of this machine if it listens on all addresses, else
    /// the local address.
    pub fn reached_at(&self, host: &str, port: u16) -> String {
        let is_local = |name: &str| {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        let is_any =
            |name: &str| name == "*" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        let name = match self.bind_ip.iter().find(|name| !is_local(name)) {
            Some(name) if is_any(name) => host,
            Some(name) => name,
            None => self.bind_ip.first().map_or("localhost", String::as_str),
        };
        match name.contains(':') {
            true => format!("[{name}]:{port}"),
            false => format!("{name}:{port}"),
        }
    }

    /// The Unix socket's path, if there is one, once the port is known.
    pub fn unix_socket_path(&self, port: u16) -> Option<PathBuf> {
        match &self.unix_socket {
            UnixSocket::Off => None,
            UnixSocket::InDirectory(directory) => {
                Some(directory.join(format!("mongodb-{port}.sock")))
            }
            UnixSocket::At(path) => Some(path.clone()),
        }
    }
}

/// The command line of `frond serve`, generated from the table.
pub fn command_line() -> clap::Command {
    let mut command = clap::Command::new("serve")
        .about("Start the database server")
        .arg(
            clap::Arg::new("config")
                .long("config")
                .short('f')
                .value_name("FILE")
                .help("Configuration file in mongod's YAML format"),
        )
        .arg(
            clap::Arg::new("setParameter")
                .long("setParameter")
                .value_name("NAME=VALUE")
                .action(clap::ArgAction::Append)
                .help("Set a server parameter, like setParameter.NAME in the file"),
        );
    for setting in SETTINGS {
        if let Some(argument) = table::argument(setting) {
            command = command.arg(argument);
        }
    }
    command
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
