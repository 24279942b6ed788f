//! The console of Frond: a bounded HTTP server, and the routes that hang in it.
//!
//! It knows HTTP and the trait [`Backend`], by which the server runs database commands for a user. It never checks a privilege itself: each
//! command passes the gate of the server.
#![forbid(unsafe_code)]

pub mod http;
