//! The HTTP server: the console, metrics and health.

mod backend;
mod listen;
mod monitoring;

pub use listen::accept_http;

use std::sync::Arc;

use frond_auth::NoRandomness;
use frond_console::{Console, LoginThrottle};
use frond_http::Router;

use crate::http::backend::InProcess;
use crate::http::monitoring::Monitoring;
use crate::net::serve::stopped;
use crate::state::Server;

/// The routes of the HTTP server.
///
/// # Errors
/// If the system gives no random bytes.
fn routes(server: &Arc<Server>) -> Result<Router, NoRandomness> {
    let throttle = Arc::<LoginThrottle>::default();
    let console = Console::new(InProcess::new(server.clone()), throttle.clone())?;
    let router = console.routes(Router::new());
    let router = Monitoring::new(server, throttle).routes(router);
    let mut stop = server.stop_signal();
    tokio::spawn(async move {
        tokio::select! {
            () = console.expire() => {}
            () = stopped(&mut stop) => {}
        }
    });
    Ok(router)
}
