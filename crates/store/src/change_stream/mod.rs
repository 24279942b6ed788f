//! Change streams: `$changeStream` over the oplog.

mod description;
mod spec;
mod token;
