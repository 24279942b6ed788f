//! The one table of parameters: the settings of the start, and the parameters that `getParameter` and `setParameter` know.
//!
//! A parameter is one entry of a file in `table/`. The command line, the configuration file, `--setParameter`, `getParameter`,
//! `setParameter`, `getCmdLineOpts`, the help, the manual pages and `docs/configuration.md` are made from the entries. The
//! command line overrides the file, and the file the defaults, which `settings` has.
//!
//! A value of the start is a field of `Settings`, which `apply` writes; `get` and `set` read and change the running `Server`.
//! `needs` refuses a setting without TLS, without a TiKV cluster, or without data files. This is a whole entry:
//!
//! ```text
//! Parameter {
//!     option: "slowms",                            // --slowms
//!     key: "operationProfiling.slowOpThresholdMs", // in the configuration file
//!     name: "slowOpThresholdMs",                   // in getParameter and setParameter
//!     kind: Kind::Integer(0, i32::MAX as i64),     // at the start and for setParameter
//!     default: "100",                              // a test compares it with `Settings::default()`
//!     doc: "Log operations that take at least this many milliseconds (default {default})",
//!     apply: Some(|s, v| v.integer().map(|ms| s.slow_operation = Duration::from_millis(ms))),
//!     get: Some(|server| owned(server.slow_operation().as_millis() as i64)),
//!     set: Some(Setter::Integer(|server, ms| server.set_slow_operation(Duration::from_millis(ms.unsigned_abs())))),
//!     ..Parameter::EMPTY
//! }
//! ```

mod command_line;
mod file;
mod kind;
mod parameter;
mod replaced;
mod runtime;
mod startup;
mod table;
#[cfg(test)]
mod tests;
mod yaml;

pub use command_line::command_line;
pub use kind::Kind;
pub use parameter::Parameter;
pub use startup::read;
pub use table::{all, by_name, readable};
