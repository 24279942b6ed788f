//! The settings of a server whose data is in a TiKV cluster.

use std::path::PathBuf;

use super::SettingsError;
use super::table::{Kind, Setting, SettingValue, path, text};

/// Where the cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TikvSettings {
    /// Whether the data is there.
    pub is_on: bool,
    /// Addresses of PD, `host:port`.
    pub pd: Vec<String>,
    /// The authorities that the cluster's certificates are checked with.
    pub ca_file: Option<PathBuf>,
    /// This server's certificate, for the cluster.
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// With what all keys begin.
    pub key_prefix: String,
}

impl Default for TikvSettings {
    fn default() -> Self {
        TikvSettings {
            is_on: false,
            pd: Vec::new(),
            ca_file: None,
            cert_file: None,
            key_file: None,
            key_prefix: "frond/".to_owned(),
        }
    }
}

/// Settings that are of no use without a cluster.
static NEED_TIKV: &[Setting] = &[PD, CA_FILE, CERT_FILE, KEY_FILE, KEY_PREFIX];

/// Keys of settings that are about files of data, and why a server without such files refuses them.
static NEED_FILES: &[(&str, &str)] = &[
    (
        "storage.cacheSizeGB",
        "TiKV caches the data: set storage.block-cache.capacity there",
    ),
    (
        "storage.journal.enabled",
        "TiKV logs every write: there is no journal here",
    ),
    (
        "storage.journal.commitIntervalMs",
        "TiKV logs every write: there is no journal here",
    ),
    (
        "storage.journal.recovery",
        "TiKV logs every write: there is no journal here",
    ),
    (
        "storage.diskReserveMB",
        "set storage.reserve-space in TiKV's configuration",
    ),
    (
        "replication.replSetName",
        "TiKV replicates the data, and all servers of the cluster are alike",
    ),
    (
        "replication.follow",
        "TiKV replicates the data: start as many servers as you need",
    ),
    (
        "replication.followAnew",
        "TiKV replicates the data: start as many servers as you need",
    ),
];

impl TikvSettings {
    /// Checks the settings together, when all of them are known. `given` tells whether a setting was given.
    pub(super) fn check(&self, given: impl Fn(&str) -> bool) -> Result<(), SettingsError> {
        let refused = |text: String| Err(SettingsError(text));
        if !self.is_on {
            return match NEED_TIKV.iter().find(|setting| given(setting.key)) {
                None => Ok(()),
                Some(setting) => refused(format!(
                    "{} needs the storage engine tikv: set --storageEngine tikv (storage.engine)",
                    setting.name()
                )),
            };
        }
        if self.pd.is_empty() {
            return refused(
                "the storage engine tikv needs the addresses of PD: --pd HOST:PORT,… (storage.tikv.pd)"
                    .into(),
            );
        }
        let files = [&self.ca_file, &self.cert_file, &self.key_file];
        let named = files.iter().filter(|file| file.is_some()).count();
        if named != 0 && named != files.len() {
            return refused(
                "TLS to the cluster needs all three of --tikvCAFile (storage.tikv.CAFile), --tikvCertFile \
                 (storage.tikv.certFile) and --tikvKeyFile (storage.tikv.keyFile)"
                    .into(),
            );
        }
        match NEED_FILES.iter().find(|(key, _)| given(key)) {
            None => Ok(()),
            Some((key, why)) => refused(format!(
                "{key} has no meaning with the storage engine tikv: {why}"
            )),
        }
    }
}

pub(super) const STORAGE_ENGINE: Setting = Setting {
    flag: "storageEngine",
    key: "storage.engine",
    aliases: &[],
    kind: Kind::Choice(&["frond", "tikv"]),
    help: "Where the data is: in files of this server (frond, the default), or in a TiKV cluster (tikv), which any number of \
           servers share",
    apply: |s, v| {
        s.tikv.is_on = text(v)? == "tikv";
        Ok(())
    },
};

pub(super) const PD: Setting = Setting {
    flag: "pd",
    key: "storage.tikv.pd",
    aliases: &[],
    kind: Kind::List("HOST:PORT,…"),
    help: "Addresses of the cluster's placement drivers (PD)",
    apply: |s, v| {
        let SettingValue::List(addresses) = v else {
            return Err("must be a list of addresses".into());
        };
        for address in addresses {
            let port = address.rsplit_once(':').map(|(_, port)| port);
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                return Err(format!(
                    "'{address}' is not of the form HOST:PORT, such as 10.0.0.1:2379"
                ));
            }
        }
        s.tikv.pd.clone_from(addresses);
        Ok(())
    },
};

pub(super) const CA_FILE: Setting = Setting {
    flag: "tikvCAFile",
    key: "storage.tikv.CAFile",
    aliases: &[],
    kind: Kind::Text("FILE"),
    help: "The authorities that the certificates of PD and TiKV are checked with (PEM); turns TLS to them on",
    apply: |s, v| path(v).map(|path| s.tikv.ca_file = Some(path)),
};

pub(super) const CERT_FILE: Setting = Setting {
    flag: "tikvCertFile",
    key: "storage.tikv.certFile",
    aliases: &[],
    kind: Kind::Text("FILE"),
    help: "This server's certificate for PD and TiKV (PEM)",
    apply: |s, v| path(v).map(|path| s.tikv.cert_file = Some(path)),
};

pub(super) const KEY_FILE: Setting = Setting {
    flag: "tikvKeyFile",
    key: "storage.tikv.keyFile",
    aliases: &[],
    kind: Kind::Text("FILE"),
    help: "The private key of this certificate (PEM)",
    apply: |s, v| path(v).map(|path| s.tikv.key_file = Some(path)),
};

pub(super) const KEY_PREFIX: Setting = Setting {
    flag: "tikvKeyPrefix",
    key: "storage.tikv.keyPrefix",
    aliases: &[],
    kind: Kind::Text("TEXT"),
    help: "With what all keys begin (default frond/), so that several deployments can share a cluster; the servers of one \
           deployment have the same",
    apply: |s, v| {
        let prefix = text(v)?;
        if prefix.is_empty()
            || prefix.len() > 64
            || !prefix.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err("must be 1 to 64 printable characters of ASCII, without spaces".into());
        }
        if prefix.starts_with(['m', 't']) {
            return Err("must not begin with m or t: those are TiDB's keys".into());
        }
        s.tikv.key_prefix = prefix.to_owned();
        Ok(())
    },
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::settings::{Settings, command_line};

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let parsed = command_line()
            .try_get_matches_from(std::iter::once(&"serve").chain(arguments))
            .map_err(|error| error.to_string())?;
        Settings::from_arguments(&parsed).map_err(|error| error.0)
    }

    #[test]
    fn a_cluster_is_named_by_its_pd() {
        let on = settings(&[
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
        let off = settings(&["--storageEngine", "frond"]).unwrap();
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
            (
                &["--follow", "mongodb://h"],
                "replication.follow has no meaning",
            ),
            (&["--tikvCAFile", "ca.pem"], "needs all three"),
        ];
        for (arguments, expected) in cases {
            let error = settings(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
        for (arguments, expected) in also {
            let all: Vec<&str> = tikv.iter().chain(arguments.iter()).copied().collect();
            let error = settings(&all).unwrap_err();
            assert!(error.contains(expected), "{all:?}: {error}");
        }
    }
}
