//! Tests on a cluster: they run if `FROND_TEST_PD` has the address of its PD (`scripts/cluster.sh start`).

#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod keyspace;
