//! `local.startup_log`: an entry for each start of the server.

use frond_bson::{Value, doc};
use frond_error::{ErrorCode, Result};
use frond_store::{Durability, InsertOptions, Namespace};

use crate::commands::diagnostics::build_info::{COMPATIBLE_VERSION, GIT_VERSION};
use crate::commands::diagnostics::get_cmd_line_opts::parsed;
use crate::host::clock::now_ms;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::observability::log::{Component, iso_ms};
use crate::state::Server;

/// The most bytes of the collection, as in MongoDB.
const BYTES_MAX: i64 = 10 << 20;

/// Adds an entry. The server starts without it, too: the disk may be full. A secondary writes nothing of its own.
pub fn write(server: &Server) {
    if !server.leads() {
        return;
    }
    if let Err(error) = try_write(server) {
        server.log.warning(
            Component::Storage,
            9_100_041,
            "initandlisten",
            "The start of the server could not be written to local.startup_log",
            &doc! {"error": error.to_string()},
        );
    }
}

fn try_write(server: &Server) -> Result<()> {
    let ns = Namespace::new("local", "startup_log")?;
    let options = doc! {"capped": true, "size": BYTES_MAX};
    match server.store.create_collection(&ns, &options) {
        Err(error) if error.code() != ErrorCode::NamespaceExists => return Err(error.into()),
        _ => {}
    }
    let now = now_ms();
    let entry = doc! {
        "_id": format!("{}-{now}", server.instance.host),
        "hostname": &server.instance.host,
        "startTime": Value::DateTime(now / 1000 * 1000),
        "startTimeLocal": iso_ms(now),
        "cmdLine": &parsed(&server.settings),
        "pid": i64::from(std::process::id()),
        "buildinfo": {
            "version": COMPATIBLE_VERSION,
            "gitVersion": GIT_VERSION,
            "bits": i32::try_from(usize::BITS).unwrap_or(64),
            "debug": cfg!(debug_assertions),
            "maxBsonObjectSize": DOCUMENT_BYTES_MAX as i32,
            "storageEngines": ["frond"],
            "frond": {"version": env!("CARGO_PKG_VERSION")},
        },
    };
    let options = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: true,
        keep_empty_timestamps: true,
    };
    server.store.insert(&ns, &[&entry], options)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_start_has_an_entry() {
        let mut server = TestServer::new();
        write(&server.server);
        std::thread::sleep(std::time::Duration::from_millis(2));
        write(&server.server);
        let reply = server.run("local", doc! {"find": "startup_log"});
        let entries = server.batch(&reply, "firstBatch");
        assert_eq!(entries.len(), 2);
        let pid = i64::from(std::process::id());
        assert_eq!(entries[1].get_i64("pid"), Some(pid));
        assert!(entries[1].get_doc("cmdLine").is_some());
        let stats = server.run("local", doc! {"collStats": "startup_log"});
        assert_eq!(stats.get_bool("capped"), Some(true));
    }
}
