//! `frond migrate`.

mod apply;
mod changes;
mod compare;
mod copy;
mod dry_run;
mod feed;
mod follow;
mod oplog;
mod options;
mod run;
mod state;
mod stream;

pub use options::Options;
pub use run::run;
