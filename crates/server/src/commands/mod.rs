//! The commands, in families. Each command, or a few that belong together, is a file: its specification, its implementation
//! and its tests. To add one, write its file and add it to the module of its family. [`table`] is composed of the families.
//!
//! | family | commands |
//! | --- | --- |
//! | `crud` | documents: queries, writes, cursors, `explain` |
//! | `catalog` | databases, collections, indexes |
//! | `users` | logins, users, roles |
//! | `replication` | replica sets, the oplog, clusters |
//! | `sessions` | logical sessions, transactions |
//! | `diagnostics` | the state of the server and its data, read only; the handshake |
//! | `administration` | settings and operation of the server |
//! | `legacy` | commands of old versions, which old drivers still send |
//!
//! Families use each other only downwards: replication, catalog, legacy, administration, crud, then the others, then `support`.

pub mod absent;
pub mod administration;
pub mod catalog;
pub mod crud;
pub mod diagnostics;
pub mod legacy;
pub mod replication;
pub mod sessions;
pub mod spec;
pub mod support;
pub mod table;
pub mod users;

pub use crud::{aggregate, watch};
pub use spec::{Command, InTransactions, Spec};
pub use table::{COMMANDS, find, requires_login};

#[cfg(test)]
mod needs_tests;
#[cfg(test)]
mod options_tests;
