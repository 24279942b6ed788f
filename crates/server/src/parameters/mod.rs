//! The one table of parameters: the settings of the start, and the parameters that `getParameter` and `setParameter` know.
//!
//! A parameter is one entry of a file in `table/`. The command line, the configuration file, `--setParameter`, `getParameter`,
//! `setParameter`, `getCmdLineOpts`, the help, the manual pages and `docs/configuration.md` are made from the entries. The
//! command line overrides the file, and the file the defaults, which `settings` has.

mod command_line;
mod file;
mod kind;
mod parameter;
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
