//! A server of a cluster registers itself at intervals, as MongoDB's routers do.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;

use super::every;
use crate::observability::log::Component;
use crate::sharding;
use crate::state::Server;

const PERIOD: Duration = Duration::from_secs(10);

/// Writes to `config.mongos` until the server stops, with the version that the server reports to clients. Does nothing on a server with files
/// of its own.
pub async fn tell_life(server: Arc<Server>, version: &'static str) {
    if !server.settings.tikv.is_on {
        return;
    }
    let mut described = false;
    let mut record = || {
        let told = tokio::task::block_in_place(|| {
            if !described {
                sharding::describe_cluster(&server.store, &server.settings.tikv.pd)?;
                described = true;
            }
            let up = server.instance.started.elapsed().as_secs();
            sharding::tell_life(&server.store, &server.host_and_port(), version, up)
        });
        if let Err(error) = told {
            server.log.warning(
                Component::Control,
                9_923_001,
                "router",
                "This server could not be recorded in config.mongos; trying again",
                &doc! {"error": error.to_string()},
            );
        }
    };
    record();
    every(&server, PERIOD, record).await;
}
