//! Statistics of one tree.

/// Statistics of a tree. An engine leaves what it does not have at zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Keys in leaves and messages in buffers; an estimate, as messages may replace keys.
    pub entries_estimate: u64,
    /// Bytes of the keys and values in leaves, and of pending messages.
    pub logical_bytes: u64,
    /// Bytes of the data file that the tree's extents take.
    pub disk_bytes: u64,
    /// Levels from the root to the leaves: 0 for an empty tree, 1 for a single leaf.
    pub height: u32,
    pub leaves: u64,
    pub internal_nodes: u64,
    /// Bytes of pending messages.
    pub pending_bytes: u64,
    /// Bytes of the keys and values of messages in memtables: they are in memory and in the log, and the next memtable
    /// flush writes them to the data file.
    pub memtable_bytes: u64,
    /// Bytes of search structures: internal nodes, indexes of runs and filters on disk, which `disk_bytes` counts
    /// too, and the index nodes of memtables.
    pub search_bytes: u64,
}
