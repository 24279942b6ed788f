//! A bounded HTTP/1.1 server over hyper: requests, replies, routes, and connections with limits.
#![forbid(unsafe_code)]

mod call;
mod places;
mod reply;
mod router;
mod serve;
#[cfg(test)]
mod tests;

pub use call::{Call, Ends};
pub use hyper::{StatusCode, header};
pub use places::{Place, Places, network};
pub use reply::{Body, Refusal, Reply, bytes, json, text};
pub use router::Router;
pub use serve::{CONNECTIONS_MAX, serve_connection};
