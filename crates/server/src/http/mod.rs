//! The HTTP server: the console, and whatever else is read by HTTP.

mod listen;

pub use listen::accept_http;

use std::sync::Arc;

use frond_console::http::Router;

use crate::state::Server;

/// What the HTTP server answers.
fn routes(_server: &Arc<Server>) -> Router {
    Router::new()
}
