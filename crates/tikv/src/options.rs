//! Settings of a cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::{MergeOperator, NoMerge, TreeId};

/// Gets a line of text for the log.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// Settings of a connection to a cluster.
#[derive(Clone)]
pub struct ClusterOptions {
    /// Addresses of PD, `host:port`.
    pub pd: Vec<String>,
    /// Files in PEM format: the authority that has signed the cluster's certificates, and this server's own certificate with
    /// its key. TLS is used if all three are given.
    pub ca_file: Option<PathBuf>,
    /// See `ca_file`.
    pub certificate_file: Option<PathBuf>,
    /// See `ca_file`.
    pub key_file: Option<PathBuf>,
    /// All keys begin with this, so that several deployments can share a cluster.
    pub key_prefix: Vec<u8>,
    /// The time limit of one request. Nodes that answer, but not in time, get more.
    pub request_timeout: Duration,
    /// The time for which an operation without a limit is tried again while the cluster does not answer.
    pub patience: Duration,
    /// The memory for what clients make grow, in bytes.
    pub client_bytes: usize,
    /// Threads that wait for the network.
    pub threads: usize,
    pub merge: Arc<dyn MergeOperator>,
    /// Keys of one tree, those with this prefix, whose update messages commute. They are kept once for each writer, so that
    /// writers do not conflict on them.
    pub counters: Option<(TreeId, Vec<u8>)>,
    /// Old versions are kept for so long, for snapshots of the past.
    pub retention: Duration,
    /// Gets what an administrator has to know of the collection of garbage: refusals of PD, and runs that failed.
    pub report: Option<Report>,
}

impl ClusterOptions {
    /// The defaults for a cluster whose PD has these addresses.
    pub fn new(pd: Vec<String>) -> ClusterOptions {
        ClusterOptions {
            pd,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            key_prefix: b"frond/".to_vec(),
            request_timeout: Duration::from_secs(2),
            patience: Duration::from_secs(45),
            client_bytes: 256 << 20,
            threads: 2,
            merge: Arc::new(NoMerge),
            counters: None,
            retention: Duration::from_secs(600),
            report: None,
        }
    }
}

#[cfg(feature = "client")]
impl ClusterOptions {
    /// The files of the authority, the certificate and its key, if all are given.
    pub(crate) fn tls_files(&self) -> Option<[PathBuf; 3]> {
        let [ca, certificate, key] = [&self.ca_file, &self.certificate_file, &self.key_file];
        Some([ca.clone()?, certificate.clone()?, key.clone()?])
    }
}

impl std::fmt::Debug for ClusterOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterOptions")
            .field("pd", &self.pd)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}
