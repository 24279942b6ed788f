#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use frond_bson::{Value, doc};
use frond_wire::Compressor;

use super::runtime::Setter;
use super::*;
use crate::settings::{self, LogFormat, OplogMode, SettingValue, Settings};
use crate::testing::TestServer;

fn from_words(words: &[&str]) -> Result<Settings, String> {
    let words = std::iter::once(&"serve").chain(words);
    let arguments = command_line()
        .try_get_matches_from(words)
        .map_err(|e| e.to_string())?;
    read(&arguments).map_err(|e| e.to_string())
}

fn from_line(line: &str) -> Result<Settings, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    from_words(&words)
}

fn from_file(yaml: &str, line: &str) -> Result<Settings, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mongod.conf");
    std::fs::write(&path, yaml).unwrap();
    from_line(&format!("--config {} {line}", path.display()))
}

#[test]
fn defaults_are_those_of_mongod() {
    let s = from_line("").unwrap();
    assert_eq!(s.db_path, PathBuf::from("/data/db"));
    assert_eq!(
        (s.port, s.bind_ip.as_slice()),
        (27017, &["127.0.0.1".to_string()][..])
    );
    assert!(s.journal && !s.quiet);
    assert_eq!(s.journal_commit_interval, Duration::from_millis(100));
    assert_eq!((s.cache_bytes, s.unix_socket_path(1)), (None, None));
}

#[test]
fn command_line_is_read() {
    let s = from_line(
        "--dbpath /d --port 0 --bind_ip localhost,::1,/run/f.sock --cacheSizeGB 0.25 --nojournal \
         --journalCommitInterval 7 --logFormat text --logpath /l --logappend --quiet --maxConns 10 \
         --networkMessageCompressors zlib,snappy --slowms 0 --filePermissions 0777",
    )
    .unwrap();
    assert_eq!((s.db_path.to_str(), s.port), (Some("/d"), 0));
    assert_eq!(s.bind_ip, ["localhost", "::1"]);
    assert_eq!(s.unix_socket_path(5), Some("/run/f.sock".into()));
    assert_eq!(s.cache_bytes, Some(1 << 28));
    assert!(!s.journal && s.quiet && s.log_append);
    assert_eq!(s.journal_commit_interval, Duration::from_millis(7));
    assert_eq!((s.log_format, s.connections_max), (LogFormat::Text, 10));
    assert_eq!(s.compressors, [Compressor::Zlib, Compressor::Snappy]);
    assert_eq!(
        (s.slow_operation, s.unix_socket_permissions),
        (Duration::ZERO, 0o777)
    );
    assert_eq!(s.explicit["net.port"], SettingValue::Integer(0));
    assert_eq!(
        from_line("--unixSocketPrefix /run")
            .unwrap()
            .unix_socket_path(9),
        Some("/run/mongodb-9.sock".into())
    );
}

#[test]
fn parameters_are_set_on_the_command_line() {
    let s = from_line(
        "--setParameter enableTestCommands=1 --setParameter cursorTimeoutMillis=5 \
         --setParameter ttlMonitorEnabled=false",
    )
    .unwrap();
    assert!(s.test_commands && !s.ttl_monitor);
    assert_eq!(s.cursor_timeout, Duration::from_millis(5));
    assert_eq!(
        s.explicit["setParameter.enableTestCommands"],
        SettingValue::Switch(true)
    );
    for wrong in [
        "nonsense=1",
        "cursorTimeoutMillis",
        "cursorTimeoutMillis=x",
        "enableTestCommands=2",
    ] {
        let error = from_line(&format!("--setParameter {wrong}")).unwrap_err();
        assert!(error.to_string().contains("--setParameter"), "{error}");
    }
}

#[test]
fn the_oplog_is_on_or_off_or_as_the_set_needs_it() {
    let s = from_line("").unwrap();
    assert_eq!((s.oplog, s.oplog_bytes), (OplogMode::Auto, None));
    assert_eq!(s.oplog_min_retention, Duration::ZERO);
    for (line, mode) in [
        ("--oplog", OplogMode::On),
        ("--oplog --dbpath /d", OplogMode::On),
        ("--oplog on", OplogMode::On),
        ("--oplog=off", OplogMode::Off),
        ("--replSet rs0 --oplog auto", OplogMode::Auto),
    ] {
        assert_eq!(from_line(line).unwrap().oplog, mode, "{line}");
    }
    let s = from_file(
        "replication:\n  oplog: on\n  oplogSizeMB: 64\nstorage:\n  oplogMinRetentionHours: 1.5\n",
        "",
    )
    .unwrap();
    assert_eq!((s.oplog, s.oplog_bytes), (OplogMode::On, Some(64 << 20)));
    assert_eq!(s.oplog_min_retention, Duration::from_secs(5400));
    let s = from_file("replication:\n  oplog: false\n", "").unwrap();
    assert_eq!(s.oplog, OplogMode::Off);
    let s = from_file("replication:\n  oplog: true\n", "").unwrap();
    assert_eq!(s.oplog, OplogMode::On);
}

#[test]
fn a_packaged_configuration_file_is_read() {
    let s = from_file(
        "# mongod.conf\nstorage:\n  dbPath: /var/lib/mongodb\n  journal:\n    enabled: true\n\
         #  engine:\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 2\n\
         systemLog:\n  destination: file\n  logAppend: true\n  path: /var/log/mongod.log\n\
         net:\n  port: 27018\n  bindIp: 127.0.0.1\n\
         processManagement:\n  timeZoneInfo: /usr/share/zoneinfo\n#security:\noperationProfiling:\n  mode: off\n",
        "--port 27019",
    )
    .unwrap();
    assert_eq!(s.db_path.to_str(), Some("/var/lib/mongodb"));
    assert_eq!(s.port, 27019, "the command line wins");
    assert_eq!(s.cache_bytes, Some(2 << 30));
    assert_eq!(
        s.log_path.as_deref().and_then(|p| p.to_str()),
        Some("/var/log/mongod.log")
    );
    assert_eq!(s.notes.len(), 1);
    assert!(s.config_file.is_some());

    let s = from_file(
        "net.port: 4\nstorage.journal.commitIntervalMs: 3\nstorage:\n",
        "",
    )
    .unwrap();
    assert_eq!(
        (s.port, s.journal_commit_interval),
        (4, Duration::from_millis(3))
    );
    let s = from_file("net: {unixDomainSocket: {enabled: yes}}", "").unwrap();
    assert_eq!(
        s.unix_socket_path(27017),
        Some("/tmp/mongodb-27017.sock".into())
    );
    assert!(from_file("", "").is_ok());
}

#[test]
fn errors_name_the_setting() {
    let files: &[(&str, &str)] = &[
        ("net:\n  prot: 1", "unknown option 'net.prot'"),
        ("nett:\n", "unknown option 'nett'"),
        (
            "storage:\n  journal: true",
            "unknown option 'storage.journal'",
        ),
        (
            "net:\n  port: many",
            "'net.port' must be a whole number from 0 to 65535, not 'many'",
        ),
        ("net:\n  port: 70000", "'net.port' must be"),
        ("net:\n  port:", "'net.port' has no value"),
        ("net:\n  bindIp: [a, b]", "'net.bindIp' must be one value"),
        (
            "storage:\n  engine: wiredTiger",
            "'storage.engine' must be one of frond, tikv, not 'wiredTiger'",
        ),
        (
            "storage:\n  cacheSizeGB: 1\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 2",
            "'storage.cacheSizeGB' is given twice",
        ),
        (
            "replication:\n  enableMajorityReadConcern: true",
            "'replication.enableMajorityReadConcern' is not supported: there is no such setting under `replication`",
        ),
        (
            "net:\n  tls:\n    mode: requireTLS",
            "need --tlsCertificateKeyFile (net.tls.certificateKeyFile) when TLS is enabled",
        ),
        (
            "security:\n  authorization: true",
            "'security.authorization' must be one of enabled, disabled",
        ),
        (
            "security:\n  ldap:\n    servers: x",
            "'security.ldap' is not supported",
        ),
        (
            "processManagement:\n  fork: true",
            "processManagement.fork: is not supported",
        ),
        (
            "systemLog:\n  destination: file",
            "systemLog.destination: needs systemLog.path",
        ),
        (
            "systemLog:\n  logAppend: true",
            "systemLog.logAppend needs a log file",
        ),
        (
            "storage:\n  journal:\n    enabled: maybe",
            "must be true or false, not 'maybe'",
        ),
        ("a: [", "not valid YAML"),
        ("1: 2", "a key under '' is not text"),
    ];
    for (yaml, expected) in files {
        let error = from_file(yaml, "").unwrap_err();
        assert!(error.contains(expected), "{yaml:?}: {error}");
    }
    let lines: &[(&str, &str)] = &[
        (
            "--port 65536",
            "--port must be a whole number from 0 to 65535, not '65536'",
        ),
        ("--port -1", "--port must be"),
        (
            "--cacheSizeGB 0",
            "--cacheSizeGB must be a number from 0.015",
        ),
        ("--cacheSizeGB NaN", "--cacheSizeGB must be"),
        (
            "--logFormat xml",
            "--logFormat must be one of json, text, not 'xml'",
        ),
        (
            "--networkMessageCompressors lz4",
            "does not know the compressor 'lz4'",
        ),
        ("--bind_ip ,", "has an empty address"),
        ("--dbpath=", "--dbpath (storage.dbPath): must not be empty"),
        ("--filePermissions 888", "must be an octal number"),
        (
            "--config /nonexistent/f",
            "cannot read the configuration file /nonexistent/f",
        ),
        ("--replSet a/b:1", "without a list of hosts"),
        (
            "--replSet rs0 --nojournal",
            "a member of a replica set needs the journal: remove --nojournal",
        ),
        ("--oplog maybe", "--oplog must be one of auto, on, off"),
        ("--oplogSize 0", "--oplogSize must be a whole number"),
        ("--oplogMinRetentionHours -1", "must be a number from 0"),
        (
            "--oplog --nojournal",
            "the oplog needs the journal: remove --nojournal",
        ),
        ("--shardsvr", "unexpected argument '--shardsvr'"),
        (
            "--auth --noauth",
            "--auth and --noauth cannot both be given",
        ),
        ("--keyFile /nonexistent/k", "cannot read /nonexistent/k"),
        ("--clusterAuthMode x509", "needs TLS: set --tlsMode"),
        (
            "--clusterAuthMode no",
            "must be one of keyFile, sendKeyFile",
        ),
    ];
    for (line, expected) in lines {
        let error = from_line(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn entries_of_the_table_are_complete() {
    let parameters: Vec<&Parameter> = all().collect();
    for (at, parameter) in parameters.iter().enumerate() {
        let label = parameter.label();
        assert!(!parameter.doc.is_empty(), "{label}");
        let is_setting = parameter.apply.is_some();
        assert!(
            is_setting || (parameter.option.is_empty() && parameter.key.is_empty()),
            "{label}"
        );
        assert_eq!(
            parameter.get.is_some(),
            !parameter.name.is_empty(),
            "{label}"
        );
        assert!(
            parameter.set.is_none() || parameter.get.is_some(),
            "{label}"
        );
        let kind_fits = match parameter.set {
            Some(Setter::Switch(_)) => matches!(parameter.kind, Kind::Switch(_)),
            Some(Setter::Integer(_) | Setter::TryInteger(_)) => {
                matches!(parameter.kind, Kind::Integer(..))
            }
            Some(Setter::Value(_)) | None => true,
        };
        assert!(kind_fits, "{label}");
        let is_shown = parameter.doc.contains("{default}");
        assert!(!is_shown || !parameter.default.is_empty(), "{label}");
        for other in &parameters[..at] {
            // A word of the command line is another way to set a parameter.
            let is_word = matches!(parameter.kind, Kind::Word(_));
            assert!(is_word || parameter.key() != other.key(), "{label}");
            for (one, two) in [
                (parameter.option, other.option),
                (parameter.name, other.name),
            ] {
                assert!(one.is_empty() || one != two, "{label}");
            }
        }
    }
    command_line().debug_assert();
}

/// The default in the help is the one that the server uses.
#[test]
fn defaults_of_the_table_are_those_of_the_settings() {
    for parameter in all().filter(|parameter| !parameter.default.is_empty()) {
        let mut settings = Settings::default();
        let before = format!("{settings:?}");
        let value = parameter.kind.parse(parameter.default).unwrap();
        parameter.apply.unwrap()(&mut settings, &value).unwrap();
        settings.bind_ip_explicit = false;
        assert_eq!(format!("{settings:?}"), before, "{}", parameter.label());
    }
}

/// `getParameter` returns the values of the start.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_start_are_read_at_runtime() {
    let line = "--setParameter maxIncomingConnectionsOverride=10.0.0.0/8,/run/f.sock --setParameter \
                maxIncomingConnectionsPerAddress=0 --setParameter honorSystemUmask=true";
    let start = from_line(line).unwrap();
    let mut server = TestServer::with(|settings| {
        *settings = Settings {
            db_path: settings.db_path.clone(),
            log_path: settings.log_path.clone(),
            ..start
        };
    });
    for (name, value) in [
        (
            "maxIncomingConnectionsOverride",
            doc! {"": {"ranges": ["10.0.0.0/8", "/run/f.sock"]}},
        ),
        ("maxIncomingConnectionsPerAddress", doc! {"": 0_i64}),
        ("honorSystemUmask", doc! {"": true}),
        ("tlsMode", doc! {"": "disabled"}),
    ] {
        let mut command = doc! {"getParameter": 1};
        command.push(name, 1);
        let reply = server.run("admin", command);
        assert_eq!(reply.get(name), value.get(""), "{name}");
    }
}

/// Each parameter of the running server takes its own value, and refuses values out of its range.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_take_values_in_their_range() {
    let mut server = TestServer::member("rs");
    for parameter in readable() {
        let name = parameter.name;
        let mut get = doc! {"getParameter": 1};
        get.push(name, 1);
        let before = server.run("admin", get.clone());
        let value = before.get(name).unwrap();
        let set = |value: Value<'_>| {
            let mut command = doc! {"setParameter": 1};
            command.push(name, value);
            command
        };
        let Some(setter) = parameter.set else {
            assert_eq!(server.code("admin", set(value)), 20, "{name}");
            continue;
        };
        let reply = server.run("admin", set(value));
        assert_eq!(reply.get("was"), before.get(name), "{name}");
        assert_eq!(server.run("admin", get), before, "{name}");
        if let (Setter::Integer(_) | Setter::TryInteger(_), Kind::Integer(low, _)) =
            (setter, parameter.kind)
        {
            assert_eq!(
                server.code("admin", set(Value::Int64(low - 1))),
                2,
                "{name}"
            );
            assert_eq!(server.code("admin", set(Value::String("x"))), 14, "{name}");
        }
    }
}

#[test]
fn authorization_is_switched_on() {
    let shown = |s: &Settings| s.explicit.get("security.authorization").cloned();
    let text = |word: &str| Some(SettingValue::Text(word.to_owned()));
    let s = from_line("").unwrap();
    assert_eq!((s.security.authorization, shown(&s)), (false, None));
    let s = from_line("--auth").unwrap();
    assert_eq!(
        (s.security.authorization, shown(&s)),
        (true, text("enabled"))
    );
    let s = from_line("--noauth").unwrap();
    assert_eq!(
        (s.security.authorization, shown(&s)),
        (false, text("disabled"))
    );
    let on = "security:\n  authorization: enabled";
    assert!(from_file(on, "").unwrap().security.authorization);
    let s = from_file(on, "--noauth").unwrap();
    assert!(!s.security.authorization);
    assert!(
        from_file("security.authorization: disabled", "--auth")
            .unwrap()
            .security
            .authorization
    );
}

#[test]
fn a_key_file_switches_authorization_on_and_is_checked() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let with_key = |key: &str, mode: u32, line: &str| {
        std::fs::write(&path, key).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        from_line(&format!("--keyFile {} {line}", path.display()))
    };
    for key in [
        "abc123",
        "abc 1\n23==\n",
        &"x".repeat(1024),
        "- abc123\n- \"def456\"\n  - 'ghi789'\n",
    ] {
        let s = with_key(key, 0o600, "--replSet rs").unwrap();
        assert!(s.security.authorization);
        assert_eq!(s.security.key_file.as_ref(), Some(&path));
        let keys: Vec<&str> = s.security.keys.iter().map(|key| key.expose()).collect();
        match key.lines().count() {
            3 => assert_eq!(keys, ["abc123", "def456", "ghi789"]),
            2 => assert_eq!(keys, ["abc123=="]),
            _ => assert_eq!(keys, [key]),
        }
    }
    assert!(with_key("abc123", 0o400, "--clusterAuthMode keyFile").is_ok());
    // As in mongod, a key file wins.
    assert!(
        with_key("abc123", 0o400, "--noauth")
            .unwrap()
            .security
            .authorization
    );
    for (key, mode, expected) in [
        ("abc123", 0o640, "permissions on"),
        ("abc123", 0o604, "permissions on"),
        ("abc123", 0o610, "permissions on"),
        ("abc12", 0o600, "has 5 characters; it must have 6 to 1024"),
        ("", 0o600, "has 0 characters"),
        (&"x".repeat(1025), 0o600, "has 1025 characters"),
        ("abc-123", 0o600, "a character that is not base64"),
        ("- abc123\n- def", 0o600, "has 3 characters"),
        ("- abc123\ndef456", 0o600, "each line of a list"),
        (&"x\n".repeat(50_000), 0o600, "more than 65536 bytes"),
    ] {
        let error = with_key(key, mode, "").unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(key.is_empty() || !error.contains(key), "{error}");
    }
}

#[test]
fn addresses_are_resolved() {
    let found = settings::resolve(&["127.0.0.1".into(), "localhost".into(), "::1".into()]).unwrap();
    assert_eq!(found[0], IpAddr::from([127, 0, 0, 1]));
    assert_eq!(found.iter().filter(|ip| **ip == found[0]).count(), 1);
    let error = settings::resolve(&["256.1.1.1.".into()]).unwrap_err();
    assert!(error.to_string().contains("'256.1.1.1.'"));
}

#[test]
fn mechanisms_of_logins_are_named() {
    let s = from_line("").unwrap();
    let names =
        |s: &Settings| -> Vec<&str> { s.logins.mechanisms.iter().map(|one| one.name()).collect() };
    assert_eq!(names(&s), ["MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256"]);
    assert!(s.logins.localhost_bypass);
    let s = from_line(
        "--setParameter authenticationMechanisms=SCRAM-SHA-1,MONGODB-CR,SCRAM-SHA-1 --setParameter \
         scramIterationCount=5000 --setParameter scramSHA256IterationCount=20000 --setParameter \
         authFailedDelayMs=0 --setParameter enableLocalhostAuthBypass=0",
    )
    .unwrap();
    assert_eq!(names(&s), ["MONGODB-CR", "SCRAM-SHA-1"]);
    assert_eq!(
        (s.logins.sha1_iterations, s.logins.sha256_iterations),
        (5000, 20_000)
    );
    assert!(s.logins.failed_delay.is_zero() && !s.logins.localhost_bypass);
    for (wrong, why) in [
        ("authenticationMechanisms=PLAIN", "'PLAIN'"),
        ("authenticationMechanisms=", "not supported"),
        ("authenticationMechanisms=scram-sha-1", "SCRAM-SHA-1"),
        ("scramIterationCount=4999", "5000"),
        ("authFailedDelayMs=5001", "5000"),
    ] {
        let error = from_line(&format!("--setParameter {wrong}")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// One address must not keep all others out, however few connections there may be.
#[test]
fn one_address_leaves_connections_to_others() {
    for (line, max, expected) in [
        ("", 65_536, 32_768),
        ("--maxConns 20000", 65_536, 19_000),
        ("", 3000, 2850),
        ("--maxConns 5", 3000, 5),
        (
            "--setParameter maxIncomingConnectionsPerAddress=3000",
            2000,
            3000,
        ),
        (
            "--setParameter maxIncomingConnectionsPerAddress=0",
            2000,
            usize::MAX,
        ),
    ] {
        let mut s = from_line(line).unwrap();
        s.limit_connections(max);
        assert_eq!(s.connections_per_address, expected, "{line}");
    }
}

#[test]
fn a_password_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("frond.conf");
    let with_tls = "net: {tls: {mode: requireTLS, certificateKeyFile: /c, CAFile: /a";
    for (more, mode, expected) in [
        (", certificateKeyFilePassword: pencil", 0o600, None),
        (
            ", certificateKeyFilePassword: pencil",
            0o640,
            Some("chmod 600"),
        ),
        ("", 0o644, None),
    ] {
        std::fs::write(&path, format!("{with_tls}{more}}}}}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let s = from_line(&format!("--config {}", path.display())).unwrap();
        assert_eq!(s.warnings.len(), usize::from(expected.is_some()));
        assert!(expected.is_none_or(|part| s.warnings[0].contains(part)));
        if more.is_empty() {
            let line = "--tlsCertificateKeyFilePassword pencil --config";
            let s = from_line(&format!("{line} {}", path.display())).unwrap();
            assert!(
                s.warnings[0].contains("on the command line"),
                "{:?}",
                s.warnings
            );
            assert!(!s.warnings[0].contains("pencil"));
        }
    }
}

#[test]
fn settings_of_tls_are_not_ignored_without_it() {
    for line in [
        "--tlsLogVersions TLS1_2",
        "--tlsAllowInvalidCertificates",
        "--tlsAllowInvalidHostnames",
    ] {
        let error = from_line(line).unwrap_err();
        assert!(error.contains("needs TLS"), "{line}: {error}");
    }
    let off =
        "net: {tls: {allowInvalidHostnames: false, allowConnectionsWithoutCertificates: false}}";
    assert!(
        from_file(off, "").is_ok(),
        "a switch that is off needs no TLS"
    );
}

#[test]
fn a_cluster_is_named_by_its_pd() {
    let on = from_words(&[
        "--storageEngine",
        "tikv",
        "--pd",
        "10.0.0.1:2379,pd-2:2379",
        "--tikvKeyPrefix",
        "shop/",
    ])
    .unwrap();
    assert!(on.tikv.is_on);
    assert_eq!(on.tikv.pd, ["10.0.0.1:2379", "pd-2:2379"]);
    assert_eq!(on.tikv.key_prefix, "shop/");
    let off = from_words(&["--storageEngine", "frond"]).unwrap();
    assert!(!off.tikv.is_on);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let tikv = ["--storageEngine", "tikv", "--pd", "h:1"];
    let cases: &[(&[&str], &str)] = &[
        (&["--storageEngine", "tikv"], "needs the addresses of PD"),
        (&["--pd", "h:1"], "needs the storage engine tikv"),
        (&["--storageEngine", "tikv", "--pd", "h"], "HOST:PORT"),
        (
            &["--storageEngine", "wiredTiger"],
            "must be one of frond, tikv",
        ),
        (&["--tikvKeyPrefix", "t/"], "TiDB"),
        (&["--tikvKeyPrefix", "a b"], "printable"),
    ];
    let also: &[(&[&str], &str)] = &[
        (
            &["--replSet", "rs"],
            "replication.replSetName has no meaning",
        ),
        (&["--nojournal"], "storage.journal.enabled has no meaning"),
        (
            &["--cacheSizeGB", "1"],
            "storage.cacheSizeGB has no meaning",
        ),
        (&["--tikvCAFile", "ca.pem"], "needs all three"),
    ];
    for (arguments, expected) in cases {
        let error = from_words(arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for (arguments, expected) in also {
        let all: Vec<&str> = tikv.iter().chain(arguments.iter()).copied().collect();
        let error = from_words(&all).unwrap_err();
        assert!(error.contains(expected), "{all:?}: {error}");
    }
}

#[test]
fn encryption_has_one_master_key() {
    let on = ["--enableEncryption", "--encryptionKeyFile", "/keys/master"];
    let settings = from_words(&on).unwrap();
    assert!(settings.encryption.is_on && settings.encryption.source().is_some());
    assert!(from_words(&[]).unwrap().encryption.source().is_none());
    let cases: &[(&[&str], &str)] = &[
        (&["--enableEncryption"], "needs the master key"),
        (&["--encryptionKeyFile", "/k"], "needs --enableEncryption"),
        (&["--encryptionKeyCommand", "k"], "needs --enableEncryption"),
        (
            &[
                "--enableEncryption",
                "--encryptionKeyFile",
                "/k",
                "--encryptionKeyCommand",
                "k",
            ],
            "cannot both be given",
        ),
        (
            &["--encryptionCipherMode", "AES256-CBC"],
            "does not notice changed data",
        ),
        (&["--encryptionCipherMode", "none"], "must be AES256-GCM"),
        (
            &[
                "--enableEncryption",
                "--encryptionKeyFile",
                "/k",
                "--storageEngine",
                "tikv",
                "--pd",
                "h:1",
            ],
            "own encryption at rest",
        ),
    ];
    for (arguments, expected) in cases {
        let error = from_words(arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for (file, expected) in [
        ("security:\n  kmip:\n    port: 5696\n", "KMIP"),
        ("security:\n  vault:\n    port: 8200\n", "vault kv get"),
    ] {
        let error = from_file(file, "").unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_options_of_a_standby_are_refused_with_advice() {
    let advice = "rs.add({host: \"HOST:PORT\", votes: 0, priority: 0})";
    let lines = [
        "--follow mongodb://u:secret@h",
        "--follow=mongodb://u:secret@h",
        "--replSet rs0 --followAnew",
    ];
    for line in lines {
        let error = from_line(line).unwrap_err();
        assert!(error.starts_with("--follow"), "{error}");
        assert!(error.contains(advice) && error.contains("--replSet"));
        assert!(!error.contains("secret"), "{error}");
    }
    for file in [
        "replication:\n  follow: mongodb://u:secret@h\n",
        "replication.followAnew: true\n",
        "replication:\n  follow:\n",
    ] {
        let error = from_file(file, "").unwrap_err();
        assert!(error.contains("'replication.follow"), "{error}");
        assert!(error.contains(advice) && !error.contains("secret"));
    }
}
