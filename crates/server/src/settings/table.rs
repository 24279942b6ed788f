//! The one table of settings.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};
use frond_bson::MAX_DOCUMENT_BYTES;
use frond_store::{LogRecovery, NaturalOrder};
use frond_wire::Compressor;

use super::backup;
use super::javascript;
use super::log_components;
use super::logins;
use super::network;
use super::planning;
use super::profiling;
use super::secret::{Secret, without_secrets};
use super::security;
use super::syslog;
use super::telemetry;
use super::{LogFormat, LogRotate, OplogMode, Settings, SettingsError, UnixSocket};
use super::{standby, tikv, tls};

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A boolean. On the command line its presence means this value.
    Switch(bool),
    /// Any text; the string is the placeholder in the help.
    Text(&'static str),
    /// A password; the string is the placeholder in the help. It is shown nowhere.
    Secret(&'static str),
    /// Several texts; the string is the placeholder in the help. On the command line and in a parameter they are
    /// separated by commas.
    List(&'static str),
    /// A whole number in an inclusive range.
    Integer(i64, i64),
    /// A number in an inclusive range.
    Number(f64, f64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Only on the command line: its presence means this word.
    Word(&'static str),
}

/// A value that was given.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// For [`Kind::Switch`].
    Switch(bool),
    /// For [`Kind::Text`] and [`Kind::Choice`].
    Text(String),
    /// For [`Kind::Secret`].
    Secret(Secret),
    /// For [`Kind::List`].
    List(Vec<String>),
    /// For [`Kind::Integer`].
    Integer(i64),
    /// For [`Kind::Number`].
    Number(f64),
}

/// One setting.
pub struct Setting {
    /// Long option of the command line, without dashes; empty if it has none.
    pub flag: &'static str,
    /// Path in the configuration file.
    pub key: &'static str,
    /// Alternative paths in the configuration file.
    pub aliases: &'static [&'static str],
    /// Its type.
    pub kind: Kind,
    /// One line of help.
    pub help: &'static str,
    /// Applies a value, or returns why it cannot.
    pub apply: fn(&mut Settings, &SettingValue) -> Result<(), String>,
}

impl Setting {
    /// The name for error messages: the option if there is one, else the key.
    pub fn name(&self) -> String {
        if self.flag.is_empty() {
            self.key.to_string()
        } else {
            format!("--{} ({})", self.flag, self.key)
        }
    }
}

pub(super) fn switch(given: &SettingValue) -> Result<bool, String> {
    match given {
        SettingValue::Switch(on) => Ok(*on),
        _ => Err("must be true or false".into()),
    }
}

pub(super) fn text(given: &SettingValue) -> Result<&str, String> {
    match given {
        SettingValue::Text(text) => Ok(text),
        _ => Err("must be text".into()),
    }
}

pub(super) fn path(given: &SettingValue) -> Result<PathBuf, String> {
    match text(given)? {
        "" => Err("must not be empty".into()),
        path => Ok(PathBuf::from(path)),
    }
}

pub(super) fn integer<T: TryFrom<i64>>(given: &SettingValue) -> Result<T, String> {
    match given {
        SettingValue::Integer(n) => T::try_from(*n).map_err(|_| "is out of range".into()),
        _ => Err("must be a whole number".into()),
    }
}

pub(super) fn number(given: &SettingValue) -> Result<f64, String> {
    match given {
        SettingValue::Number(n) => Ok(*n),
        SettingValue::Integer(n) => Ok(*n as f64),
        _ => Err("must be a number".into()),
    }
}

/// For a setting of MongoDB that this server does not support; the value that means "off" is accepted.
fn only_off(given: &SettingValue, what: &str) -> Result<(), String> {
    if switch(given)? {
        Err(format!("is not supported by this server: {what}"))
    } else {
        Ok(())
    }
}

/// All settings. A setting that depends on another comes after it.
pub static SETTINGS: &[Setting] = &[
    Setting {
        flag: "dbpath",
        key: "storage.dbPath",
        aliases: &[],
        kind: Kind::Text("DIR"),
        help: "Directory of the data files (default /data/db)",
        apply: |s, v| path(v).map(|path| s.db_path = path),
    },
    Setting {
        flag: "port",
        key: "net.port",
        aliases: &[],
        kind: Kind::Integer(0, 65_535),
        help: "TCP port (default 27017; 0 chooses a free one)",
        apply: |s, v| integer(v).map(|port| s.port = port),
    },
    Setting {
        flag: "bind_ip",
        key: "net.bindIp",
        aliases: &[],
        kind: Kind::Text("ADDRESSES"),
        help: "Addresses to listen on, separated by commas (default 127.0.0.1)",
        apply: |s, v| {
            let mut names = Vec::new();
            for name in text(v)?.split(',').map(str::trim) {
                match name {
                    "" => return Err("has an empty address".into()),
                    "*" => names.push("0.0.0.0".to_string()),
                    // As in mongod, a path in the list is a Unix socket.
                    _ if name.starts_with('/') => s.unix_socket = UnixSocket::At(name.into()),
                    _ => names.push(name.to_string()),
                }
            }
            if names.is_empty() {
                return Err("names no address".into());
            }
            s.bind_ip = names;
            s.bind_ip_given = true;
            Ok(())
        },
    },
    Setting {
        flag: "bind_ip_all",
        key: "net.bindIpAll",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "Listen on all IPv4 addresses",
        apply: |s, v| {
            if switch(v)? {
                s.bind_ip = vec!["0.0.0.0".into()];
                s.bind_ip_given = true;
            }
            Ok(())
        },
    },
    Setting {
        flag: "ipv6",
        key: "net.ipv6",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "With --bind_ip_all, also listen on all IPv6 addresses",
        apply: |s, v| {
            if switch(v)? && s.bind_ip.iter().any(|ip| ip == "0.0.0.0") {
                s.bind_ip.push("::".into());
            }
            Ok(())
        },
    },
    Setting {
        flag: "",
        key: "net.unixDomainSocket.enabled",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "Also listen on a Unix socket /tmp/mongodb-PORT.sock",
        apply: |s, v| {
            s.unix_socket = if switch(v)? {
                UnixSocket::InDirectory("/tmp".into())
            } else {
                UnixSocket::Off
            };
            Ok(())
        },
    },
    Setting {
        flag: "unixSocketPrefix",
        key: "net.unixDomainSocket.pathPrefix",
        aliases: &[],
        kind: Kind::Text("DIR"),
        help: "Also listen on a Unix socket mongodb-PORT.sock in this directory",
        apply: |s, v| path(v).map(|path| s.unix_socket = UnixSocket::InDirectory(path)),
    },
    Setting {
        flag: "unixSocket",
        key: "net.unixDomainSocket.path",
        aliases: &[],
        kind: Kind::Text("FILE"),
        help: "Also listen on this Unix socket",
        apply: |s, v| path(v).map(|path| s.unix_socket = UnixSocket::At(path)),
    },
    Setting {
        flag: "filePermissions",
        key: "net.unixDomainSocket.filePermissions",
        aliases: &[],
        kind: Kind::Text("OCTAL"),
        help: "Permissions of the Unix socket (default 0700)",
        apply: |s, v| {
            s.unix_socket_permissions = match u32::from_str_radix(text(v)?, 8) {
                Ok(bits) if bits <= 0o777 => bits,
                _ => return Err("must be an octal number up to 0777".into()),
            };
            Ok(())
        },
    },
    Setting {
        flag: "maxConns",
        key: "net.maxIncomingConnections",
        aliases: &[],
        kind: Kind::Integer(5, 1_000_000),
        help: "Maximum number of simultaneous connections (default 65536, or what the limit of open files allows)",
        apply: |s, v| integer(v).map(|n| s.connections_max = n),
    },
    Setting {
        flag: "networkMessageCompressors",
        key: "net.compression.compressors",
        aliases: &[],
        kind: Kind::Text("NAMES"),
        help: "Compressors to offer: snappy, zstd, zlib, or disabled (default snappy,zstd,zlib)",
        apply: |s, v| {
            let mut compressors = Vec::new();
            let list = text(v)?;
            if list != "disabled" {
                for name in list.split(',').map(str::trim) {
                    compressors.push(
                        Compressor::from_name(name)
                            .ok_or_else(|| format!("does not know the compressor '{name}'"))?,
                    );
                }
            }
            s.compressors = compressors;
            Ok(())
        },
    },
    network::HTTP_PORT,
    network::HTTP_HOSTS,
    telemetry::OTLP_ENDPOINT,
    telemetry::TRACE_SAMPLING,
    network::OVERRIDE,
    network::PER_ADDRESS,
    tls::MODE,
    tls::OLD_MODE,
    tls::CERTIFICATE_KEY_FILE,
    tls::PASSWORD,
    tls::CA_FILE,
    tls::CRL_FILE,
    tls::WITHOUT_CERTIFICATES,
    tls::INVALID_CERTIFICATES,
    tls::INVALID_HOSTNAMES,
    tls::DISABLED_PROTOCOLS,
    tls::LOG_VERSIONS,
    tls::CLUSTER_FILE,
    tls::CLUSTER_PASSWORD,
    tls::CLUSTER_CA_FILE,
    tls::CERTIFICATE_SELECTOR,
    tls::CLUSTER_CERTIFICATE_SELECTOR,
    tls::CIPHER_CONFIG,
    tls::FIPS_MODE,
    tls::ON_NORMAL_PORTS,
    Setting {
        flag: "cacheSizeGB",
        key: "storage.cacheSizeGB",
        aliases: &["storage.wiredTiger.engineConfig.cacheSizeGB"],
        kind: Kind::Number(0.015, 10_000.0),
        help: "Size of the cache in GiB (default half of the machine's memory, or five eighths of a smaller limit of the control group)",
        apply: |s, v| {
            s.cache_bytes = Some((number(v)? * (1u64 << 30) as f64) as u64);
            Ok(())
        },
    },
    Setting {
        flag: "nojournal",
        key: "storage.journal.enabled",
        aliases: &[],
        kind: Kind::Switch(false),
        help: "Disable the journal (enabled: false): faster, but a crash loses writes since the last checkpoint",
        apply: |s, v| switch(v).map(|on| s.journal = on),
    },
    Setting {
        flag: "journalCommitInterval",
        key: "storage.journal.commitIntervalMs",
        aliases: &["setParameter.journalCommitInterval"],
        kind: Kind::Integer(1, 500),
        help: "Milliseconds between syncs of the journal (default 100)",
        apply: |s, v| integer(v).map(|ms| s.journal_commit_interval = Duration::from_millis(ms)),
    },
    Setting {
        flag: "journalRecovery",
        key: "storage.journal.recovery",
        aliases: &[],
        kind: Kind::Choice(&["complete", "pointInTime"]),
        help: "With a damaged journal: do not start (complete, the default), or start with the writes before the damage \
               (pointInTime), and keep the files of the rest",
        apply: |s, v| {
            s.journal_recovery = match text(v)? {
                "complete" => LogRecovery::Complete,
                _ => LogRecovery::PointInTime,
            };
            Ok(())
        },
    },
    Setting {
        flag: "diskReserveMB",
        key: "storage.diskReserveMB",
        aliases: &[],
        kind: Kind::Integer(0, 1 << 20),
        help: "Space in MiB that only deletes and drops may use (default 5% of the file system, 16 to 512)",
        apply: |s, v| {
            let mib: u64 = integer(v)?;
            s.disk_reserve_bytes = Some(mib << 20);
            Ok(())
        },
    },
    tikv::STORAGE_ENGINE,
    tikv::PD,
    tikv::CA_FILE,
    tikv::CERT_FILE,
    tikv::KEY_FILE,
    tikv::KEY_PREFIX,
    Setting {
        flag: "logpath",
        key: "systemLog.path",
        aliases: &[],
        kind: Kind::Text("FILE"),
        help: "Write the log to this file instead of standard output",
        apply: |s, v| path(v).map(|path| s.log_path = Some(path)),
    },
    syslog::DESTINATION,
    syslog::SYSLOG,
    syslog::FACILITY,
    Setting {
        flag: "logappend",
        key: "systemLog.logAppend",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "Append to an existing log file instead of renaming it",
        apply: |s, v| switch(v).map(|on| s.log_append = on),
    },
    Setting {
        flag: "logRotate",
        key: "systemLog.logRotate",
        aliases: &[],
        kind: Kind::Choice(&["rename", "reopen"]),
        help: "What SIGUSR1 does to the log file (default rename)",
        apply: |s, v| {
            s.log_rotate = match text(v)? {
                "reopen" if !s.log_append => return Err("reopen needs logAppend".into()),
                "reopen" => LogRotate::Reopen,
                _ => LogRotate::Rename,
            };
            Ok(())
        },
    },
    Setting {
        flag: "logFormat",
        key: "systemLog.format",
        aliases: &[],
        kind: Kind::Choice(&["json", "text"]),
        help: "Format of log lines (default json)",
        apply: |s, v| {
            s.log_format = if text(v)? == "text" {
                LogFormat::Text
            } else {
                LogFormat::Json
            };
            Ok(())
        },
    },
    Setting {
        flag: "quiet",
        key: "systemLog.quiet",
        aliases: &["setParameter.quiet"],
        kind: Kind::Switch(true),
        help: "Do not log connections",
        apply: |s, v| switch(v).map(|on| s.quiet = on),
    },
    Setting {
        flag: "verbosity",
        key: "systemLog.verbosity",
        aliases: &["setParameter.logLevel"],
        kind: Kind::Integer(0, 5),
        help: "Level of debug lines in the log: 0 (none, the default) to 5",
        apply: |s, v| integer(v).map(|n| s.log_verbosity = n),
    },
    log_components::CONTROL,
    log_components::NETWORK,
    log_components::ACCESS,
    log_components::COMMAND,
    log_components::STORAGE,
    log_components::INDEX,
    log_components::QUERY,
    log_components::TRANSACTION,
    Setting {
        flag: "pidfilepath",
        key: "processManagement.pidFilePath",
        aliases: &[],
        kind: Kind::Text("FILE"),
        help: "Write the process id to this file",
        apply: |s, v| path(v).map(|path| s.pid_file = Some(path)),
    },
    network::HONOR_UMASK,
    Setting {
        flag: "",
        key: "processManagement.fork",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "Only false: let the service manager run it in the background",
        apply: |_, v| {
            only_off(
                v,
                "let the service manager run it in the background (systemd Type=exec)",
            )
        },
    },
    Setting {
        flag: "",
        key: "processManagement.timeZoneInfo",
        aliases: &[],
        kind: Kind::Text("DIR"),
        help: "Accepted and not used: the time zone database is built in",
        apply: |s, v| {
            let directory = path(v)?;
            s.notes.push(format!(
                "processManagement.timeZoneInfo ({}) is not used: the time zone database \
                 is built in",
                directory.display()
            ));
            Ok(())
        },
    },
    profiling::THRESHOLD,
    profiling::SAMPLE_RATE,
    profiling::MODE,
    profiling::LEVEL,
    profiling::FILTER,
    profiling::QUERY_STATS,
    Setting {
        flag: "",
        key: "setParameter.cursorTimeoutMillis",
        aliases: &[],
        kind: Kind::Integer(1, i64::MAX / 1_000_000),
        help: "Milliseconds until an idle cursor is closed (default 600000)",
        apply: |s, v| integer(v).map(|ms| s.cursor_timeout = Duration::from_millis(ms)),
    },
    Setting {
        flag: "",
        key: "setParameter.enableTestCommands",
        aliases: &[],
        kind: Kind::Switch(false),
        help: "Enable configureFailPoint, which makes commands fail on demand",
        apply: |s, v| switch(v).map(|on| s.test_commands = on),
    },
    Setting {
        flag: "",
        key: "setParameter.expiredChangeStreamPreImageRemovalJobSleepSecs",
        aliases: &[],
        kind: Kind::Integer(1, i32::MAX as i64),
        help: "Seconds between passes that remove expired pre-images of change streams (default 10)",
        apply: |s, v| integer(v).map(|secs| s.pre_image_period = Duration::from_secs(secs)),
    },
    Setting {
        flag: "",
        key: "setParameter.largeDocumentBytes",
        aliases: &[],
        kind: Kind::Integer(0, MAX_DOCUMENT_BYTES as i64),
        help: "Bytes from which documents with a large sub-document are stored in parts; 0 for never (default 32768)",
        apply: |s, v| {
            s.large_documents.threshold_bytes = match integer(v)? {
                0 => usize::MAX,
                bytes => bytes,
            };
            Ok(())
        },
    },
    Setting {
        flag: "",
        key: "setParameter.localLogicalSessionTimeoutMinutes",
        aliases: &[],
        kind: Kind::Integer(1, i32::MAX as i64),
        help: "Minutes until an unused session expires (default 30)",
        apply: |s, v| {
            integer(v).map(|minutes: u64| s.session_timeout = Duration::from_secs(minutes * 60))
        },
    },
    Setting {
        flag: "",
        key: "setParameter.maxTransactionLockRequestTimeoutMillis",
        aliases: &[],
        kind: Kind::Integer(-1, i32::MAX as i64),
        help: "Accepted without effect: statements of transactions wait for no locks (default 5)",
        apply: |s, v| integer(v).map(|ms| s.transaction_lock_wait_ms = ms),
    },
    Setting {
        flag: "",
        key: "setParameter.transactionLifetimeLimitSeconds",
        aliases: &[],
        kind: Kind::Integer(1, i32::MAX as i64),
        help: "Seconds until an open transaction is aborted (default 60)",
        apply: |s, v| integer(v).map(|secs| s.transaction_lifetime = Duration::from_secs(secs)),
    },
    Setting {
        flag: "",
        key: "setParameter.naturalOrder",
        aliases: &[],
        kind: Kind::Choice(&["_id", "insertion"]),
        help: "The natural order of new collections, unless create sets it (default _id)",
        apply: |s, v| {
            s.natural_order = NaturalOrder::named(text(v)?).unwrap_or_default();
            Ok(())
        },
    },
    Setting {
        flag: "",
        key: "setParameter.largeDocumentSegmentBytes",
        aliases: &[],
        kind: Kind::Integer(16, 1024 * 1024),
        help: "Approximate bytes of such a part (default 4096)",
        apply: |s, v| integer(v).map(|bytes| s.large_documents.segment_bytes = bytes),
    },
    Setting {
        flag: "",
        key: "setParameter.ttlMonitorEnabled",
        aliases: &[],
        kind: Kind::Switch(true),
        help: "Delete documents that expire by a TTL index (default true)",
        apply: |s, v| switch(v).map(|on| s.ttl_monitor = on),
    },
    Setting {
        flag: "",
        key: "setParameter.ttlMonitorSleepSecs",
        aliases: &[],
        kind: Kind::Integer(1, i32::MAX as i64),
        help: "Seconds between passes of the TTL monitor (default 60)",
        apply: |s, v| integer(v).map(|secs| s.ttl_monitor_sleep = Duration::from_secs(secs)),
    },
    planning::NO_TABLE_SCAN,
    planning::SYNC_DELAY,
    logins::MECHANISMS,
    logins::SHA1_ITERATIONS,
    logins::SHA256_ITERATIONS,
    logins::FAILED_DELAY,
    logins::LOCALHOST_BYPASS,
    security::AUTHORIZATION,
    security::AUTH,
    security::NO_AUTH,
    security::REDACT,
    javascript::DISABLED,
    javascript::HEAP_LIMIT,
    javascript::OLD_COMMANDS,
    security::KEY_FILE,
    security::CLUSTER_AUTH_MODE,
    Setting {
        flag: "replSet",
        key: "replication.replSetName",
        aliases: &["replication.replSet"],
        kind: Kind::Text("NAME"),
        help: "Be the only member of this replica set (default: a standalone server)",
        apply: |s, v| match text(v)? {
            "" => Err("must not be empty".into()),
            name if name.contains('/') => {
                Err("must be the name of a set, without a list of hosts".into())
            }
            name => {
                s.replica_set = Some(name.to_owned());
                Ok(())
            }
        },
    },
    standby::FOLLOW,
    standby::FOLLOW_ANEW,
    backup::ROOT,
    Setting {
        flag: "oplog",
        key: "replication.oplog",
        aliases: &[],
        kind: Kind::Choice(&["auto", "on", "off"]),
        help: "Keep an oplog, which change streams need: in a replica set (auto, the default), always (on; --oplog alone \
               means this), or never (off)",
        apply: |s, v| {
            s.oplog = match text(v)? {
                "on" => OplogMode::On,
                "off" => OplogMode::Off,
                _ => OplogMode::Auto,
            };
            Ok(())
        },
    },
    Setting {
        flag: "oplogSize",
        key: "replication.oplogSizeMB",
        aliases: &[],
        kind: Kind::Integer(1, 1 << 30),
        help: "Size in MiB of a new oplog (default 5% of the free space, 990 to 51200); replSetResizeOplog changes it later",
        apply: |s, v| {
            let mib: u64 = integer(v)?;
            s.oplog_bytes = Some(mib << 20);
            Ok(())
        },
    },
    Setting {
        flag: "oplogMinRetentionHours",
        key: "storage.oplogMinRetentionHours",
        aliases: &[],
        kind: Kind::Number(0.0, 1e6),
        help: "Keep entries of the oplog for at least so many hours, also beyond its size (default 0: only the size counts)",
        apply: |s, v| {
            s.oplog_min_retention = Duration::from_secs_f64(number(v)? * 3600.0);
            Ok(())
        },
    },
];

/// Reads a value from text.
pub fn parse_text(kind: Kind, value: &str) -> Result<SettingValue, String> {
    match kind {
        Kind::Switch(_) => match value {
            "true" | "1" => Ok(SettingValue::Switch(true)),
            "false" | "0" => Ok(SettingValue::Switch(false)),
            _ => Err(format!("must be true or false, not '{value}'")),
        },
        Kind::Text(_) | Kind::Word(_) => Ok(SettingValue::Text(value.to_string())),
        Kind::Secret(_) => Ok(SettingValue::Secret(Secret::new(value))),
        Kind::List(_) => {
            let parts = value.split(',').map(|part| part.trim().to_owned());
            Ok(SettingValue::List(parts.collect()))
        }
        Kind::Integer(low, high) => match value.parse::<i64>() {
            Ok(n) if (low..=high).contains(&n) => Ok(SettingValue::Integer(n)),
            _ => Err(format!(
                "must be a whole number from {low} to {high}, not '{value}'"
            )),
        },
        Kind::Number(low, high) => match value.parse::<f64>() {
            Ok(n) if (low..=high).contains(&n) => Ok(SettingValue::Number(n)),
            _ => Err(format!(
                "must be a number from {low} to {high}, not '{value}'"
            )),
        },
        Kind::Choice(words) => {
            if words.contains(&value) {
                Ok(SettingValue::Text(value.to_string()))
            } else {
                Err(format!(
                    "must be one of {}, not '{value}'",
                    words.join(", ")
                ))
            }
        }
    }
}

/// The command-line argument of a setting.
pub fn argument(setting: &'static Setting) -> Option<Arg> {
    if setting.flag.is_empty() {
        return None;
    }
    let argument = Arg::new(setting.flag)
        .long(setting.flag)
        .aliases(tls::old_flags(setting.flag).iter().copied())
        .help(setting.help);
    Some(match setting.kind {
        Kind::Switch(_) | Kind::Word(_) => argument.action(ArgAction::SetTrue),
        Kind::Text(name) | Kind::Secret(name) | Kind::List(name) => argument.value_name(name),
        Kind::Integer(..) | Kind::Number(..) => {
            argument.value_name("N").allow_negative_numbers(true)
        }
        // `--oplog` alone switches it on, as the flags of mongod that need no value.
        Kind::Choice(words) if words.contains(&"on") => argument
            .value_name("WORD")
            .num_args(0..=1)
            .default_missing_value("on"),
        Kind::Choice(_) => argument.value_name("WORD"),
    })
}

/// The value of a setting on the command line.
pub fn from_arguments(
    setting: &'static Setting,
    arguments: &ArgMatches,
) -> Result<Option<SettingValue>, SettingsError> {
    if setting.flag.is_empty() {
        return Ok(None);
    }
    if let Kind::Switch(value) = setting.kind {
        return Ok(arguments
            .get_flag(setting.flag)
            .then_some(SettingValue::Switch(value)));
    }
    if let Kind::Word(word) = setting.kind {
        let is_given = arguments.get_flag(setting.flag);
        return Ok(is_given.then(|| SettingValue::Text(word.to_owned())));
    }
    arguments
        .get_one::<String>(setting.flag)
        .map(|value| parse_text(setting.kind, value))
        .transpose()
        .map_err(|why| SettingsError(format!("--{} {why}", setting.flag)))
}

/// The arguments of the process, without passwords.
pub fn shown_arguments() -> Vec<String> {
    let secrets = SETTINGS
        .iter()
        .filter(|setting| matches!(setting.kind, Kind::Secret(_)));
    let flags: Vec<&str> = secrets
        .flat_map(|setting| std::iter::once(&setting.flag).chain(tls::old_flags(setting.flag)))
        .copied()
        .collect();
    without_secrets(std::env::args().collect(), &flags)
}

/// The setting of a parameter that can be set at startup.
pub fn parameter(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let mut keys = std::iter::once(&setting.key).chain(setting.aliases);
        keys.any(|key| key.strip_prefix("setParameter.") == Some(name))
    })
}

/// Reads `NAME=VALUE`, the argument of `--setParameter`.
pub fn from_parameter(text: &str) -> Result<(&'static Setting, SettingValue), SettingsError> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        SettingsError(format!(
            "--setParameter {text} must have the form NAME=VALUE"
        ))
    })?;
    let setting = parameter(name)
        .ok_or_else(|| SettingsError(format!("--setParameter: unknown parameter '{name}'")))?;
    let given = parse_text(setting.kind, value)
        .map_err(|why| SettingsError(format!("--setParameter {name} {why}")))?;
    Ok((setting, given))
}

/// Resolves the addresses to listen on.
pub fn resolve(names: &[String]) -> Result<Vec<IpAddr>, SettingsError> {
    use std::net::ToSocketAddrs;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for name in names {
        let found = (name.as_str(), 0).to_socket_addrs().map_err(|error| {
            SettingsError(format!("--bind_ip: cannot resolve '{name}': {error}"))
        })?;
        for address in found {
            if !addresses.contains(&address.ip()) {
                addresses.push(address.ip());
            }
        }
    }
    Ok(addresses)
}
