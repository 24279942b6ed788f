//! TLS for both sides of a connection, by `rustls`.
#![forbid(unsafe_code)]

pub use rustls;
