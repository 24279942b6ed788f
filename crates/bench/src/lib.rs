//! Workloads that measure any server that speaks MongoDB's wire protocol.
