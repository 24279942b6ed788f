//! Status that a system reports about itself.

/// The memory that a system uses at one moment. `None` where it does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// Resident memory of the server's process, in MiB.
    pub resident_mib: Option<f64>,
    /// Contents of its cache, in MiB.
    pub cache_mib: Option<f64>,
}

/// The operations that servers count (`opcounters`), in the order of mongostat.
pub const OPERATIONS: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];

/// Counters since the start of the server, and what it uses now. `None` where it does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Status {
    /// Operations, in the order of [`OPERATIONS`].
    pub operations: [Option<f64>; 6],
    /// Bytes written to the log.
    pub log_bytes: Option<f64>,
    /// Bytes written to data files.
    pub data_bytes: Option<f64>,
    /// Bytes received over the network.
    pub network_in: Option<f64>,
    /// Bytes sent over the network.
    pub network_out: Option<f64>,
    pub connections: Option<f64>,
    /// Virtual memory of the process, in MiB.
    pub virtual_mib: Option<f64>,
    /// Resident memory and cache.
    pub memory: MemoryUsage,
}
