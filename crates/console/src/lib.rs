//! The console of Frond: its page and its API over HTTP.
//!
//! It knows `frond-http` and the trait [`Backend`], by which the server runs database commands for a user. It never checks a privilege itself: each
//! command passes the gate of the server.
#![forbid(unsafe_code)]

mod backend;
mod console;
mod login;
mod memory_quota;
mod origin;
mod page;
mod sessions;
mod throttle;

pub use backend::{Backend, Broken, Link};
pub use console::{Console, TOKEN};
pub use login::{Login, LoginError, log_in};
pub use origin::check as check_origin;
pub use throttle::LoginThrottle;
