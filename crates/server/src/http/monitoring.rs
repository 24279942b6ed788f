//! What monitoring reads by HTTP: `/metrics`, `/health/live` and `/health/ready`.

use std::sync::Arc;

use bytes::Bytes;
use frond_console::http::{self, Call, Reply, StatusCode};
use frond_error::Result;
use frond_store::{CollectionKind, Namespace};
use frond_telemetry::{CONTENT_TYPE, CollectionFigures, IndexFigures, Report, render};
use tokio::sync::Mutex;

use crate::commands::{coll_stats, db_stats, server_status, top};
use crate::state::Server;

/// Collections whose figures a scrape has. A server with more has `frond_collections_left_out`.
const COLLECTIONS_MAX: usize = 1000;

/// The two sets of names, as the parameter `collect[]` of a scrape selects them.
const SETS: [&str; 2] = ["frond", "mongodb"];

/// Answers scrapes.
pub struct Monitoring {
    server: Arc<Server>,
    /// Held during a scrape: others wait, since each would take the same time of the processor.
    scrape: Mutex<()>,
}

impl Monitoring {
    /// For a server.
    pub fn new(server: &Arc<Server>) -> Monitoring {
        Monitoring {
            server: server.clone(),
            scrape: Mutex::new(()),
        }
    }

    /// `/metrics`: the text of the metrics. The parameter `collect[]`, as other exporters have it, selects one set of names.
    pub async fn metrics(&self, call: &Call) -> Reply {
        let asked = call
            .query("collect[]")
            .or_else(|| call.query("collect%5B%5D"));
        let wants = |set: &str| asked.as_deref().is_none_or(|asked| asked == set);
        let [own, of_exporter] = SETS.map(wants);
        if !own && !of_exporter {
            let sets = SETS.join(" and ");
            let message = format!("collect[] takes {sets}");
            return http::refusal(StatusCode::BAD_REQUEST, &message);
        }
        let _turn = self.scrape.lock().await;
        let server = self.server.clone();
        let scrape = tokio::task::spawn_blocking(move || {
            gather(&server).map(|report| render(&report, own, of_exporter))
        });
        match scrape.await {
            Ok(Ok(text)) => http::bytes(StatusCode::OK, CONTENT_TYPE, Bytes::from(text)),
            Ok(Err(error)) => http::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            Err(error) => http::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// `/health/live`: the process answers.
    pub fn live(&self) -> Reply {
        http::json(StatusCode::OK, r#"{"status":"live"}"#)
    }

    /// `/health/ready`: the server accepts requests. While the disk is full it does, but refuses writes.
    pub fn ready(&self) -> Reply {
        if self.server.is_stopping() {
            let body = r#"{"status":"stopping"}"#;
            return http::json(StatusCode::SERVICE_UNAVAILABLE, body);
        }
        let disk = self.server.store.engine_stats().disk_space;
        let writable = disk.low_since.is_none();
        let body = format!(r#"{{"status":"ready","writable":{writable}}}"#);
        http::json(StatusCode::OK, body)
    }
}

/// The figures of a scrape.
fn gather(server: &Server) -> Result<Report> {
    let mut report = Report {
        server_status: server_status::report(server, |_| true),
        top: top::totals(server),
        ..Report::default()
    };
    for database in server.store.list_databases()? {
        let name = database.name;
        for collection in server.store.list_collections(&name)? {
            if collection.kind == CollectionKind::View {
                continue;
            }
            if report.collections.len() >= COLLECTIONS_MAX {
                report.collections_left_out += 1;
                continue;
            }
            let ns = Namespace::new(&name, &collection.name)?;
            report.collections.extend(figures(server, &ns));
        }
        let stats = db_stats::describe(server, &name, 1)?;
        report.databases.push((name, stats));
    }
    Ok(report)
}

/// The figures of a collection; none if it was dropped meanwhile.
fn figures(server: &Server, ns: &Namespace) -> Option<CollectionFigures> {
    let stats = server.store.collection_stats(ns).ok()?;
    let usage = server.store.index_usage(ns).ok()?;
    let indexes = usage.iter().map(|index| {
        let accesses = index
            .get_doc("accesses")
            .and_then(|uses| uses.get_i64("ops"));
        IndexFigures {
            name: index.get_str("name").unwrap_or_default().to_string(),
            accesses: u64::try_from(accesses.unwrap_or(0)).unwrap_or(0),
        }
    });
    Some(CollectionFigures {
        database: ns.db().to_string(),
        collection: ns.coll().to_string(),
        storage: coll_stats::describe(ns.as_str(), &stats, 1),
        indexes: indexes.collect(),
    })
}
