//! The settings of a server whose data is in a TiKV cluster.

use std::path::PathBuf;

/// The cluster, and this server's certificate for it.
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
    pub key_file: Option<PathBuf>,
    /// Prefix of all keys.
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
