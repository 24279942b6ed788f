//! The HTTP server: the console, and whatever else is read by HTTP.

mod listen;
mod monitoring;

pub use listen::accept_http;

use std::sync::Arc;

use frond_console::http::Router;

use crate::http::monitoring::Monitoring;
use crate::state::Server;

/// What the HTTP server answers.
fn routes(server: &Arc<Server>) -> Router {
    let monitoring = Arc::new(Monitoring::new(server));
    let [scraped, live, ready] = std::array::from_fn(|_| monitoring.clone());
    Router::new()
        .get("/metrics", move |call| {
            let monitoring = scraped.clone();
            async move { monitoring.metrics(&call).await }
        })
        .get("/health/live", move |_| std::future::ready(live.live()))
        .get("/health/ready", move |_| std::future::ready(ready.ready()))
}
