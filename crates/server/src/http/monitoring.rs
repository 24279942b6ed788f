//! The endpoints of monitoring: `/metrics`, `/health/live` and `/health/ready`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use frond_bson::doc;
use frond_console::{
    Backend, Broken, Link, Login, LoginError, LoginThrottle, check_origin, log_in,
};
use frond_error::Result;
use frond_http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use frond_http::{Call, Refusal, Reply, Router, StatusCode};
use frond_store::{CollectionKind, Namespace};
use frond_telemetry::{CONTENT_TYPE, CollectionStats, IndexStats, Report, render};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::commands::diagnostics::{coll_stats, db_stats, server_status, top};
use crate::http::backend::InProcess;
use crate::state::Server;

/// Collections whose figures a scrape has. A server with more has `frond_collections_left_out`.
const COLLECTIONS_MAX: usize = 1000;

/// The longest wait for scrapes that came before.
const TURN_TIME_MAX: Duration = Duration::from_secs(10);

/// The two sets of names, as the parameter `collect[]` of a scrape selects them.
const SETS: [&str; 2] = ["frond", "mongodb"];

/// Answers scrapes, and questions for the health.
pub struct Monitoring {
    server: Arc<Server>,
    backend: InProcess,
    throttle: Arc<LoginThrottle>,
    /// Held during a scrape: others wait, since each would take the same time of the processor.
    scrape: Mutex<()>,
}

impl Monitoring {
    pub fn new(server: &Arc<Server>, throttle: Arc<LoginThrottle>) -> Arc<Monitoring> {
        Arc::new(Monitoring {
            server: server.clone(),
            backend: InProcess::new(server.clone()),
            throttle,
            scrape: Mutex::new(()),
        })
    }

    pub fn routes(self: Arc<Self>, router: Router) -> Router {
        let [scraped, live, ready] = std::array::from_fn(|_| self.clone());
        router
            .get("/metrics", move |call| {
                let monitoring = scraped.clone();
                async move { monitoring.metrics(&call).await }
            })
            .get("/health/live", move |_| std::future::ready(live.live()))
            .get("/health/ready", move |_| std::future::ready(ready.ready()))
    }

    /// Checks, with authorization, that the client has logged in as a user who may run `serverStatus`.
    ///
    /// # Errors
    /// The reply to others.
    async fn admit(&self, call: &Call) -> std::result::Result<(), Reply> {
        if !self.backend.needs_login() {
            return Ok(());
        }
        let Some(login) = basic_login(call) else {
            return Err(asks_login("log in as a user of the database admin"));
        };
        let broken = |broken: Broken| refusal(StatusCode::SERVICE_UNAVAILABLE, &broken.to_string());
        let delay = self.backend.failed_login_delay();
        let from = call.ends.client.ip();
        let attempt = (self.throttle).begin(from, &login.user, &login.db, delay)?;
        let mut link = self.backend.open(&call.ends, None).await.map_err(broken)?;
        log_in(&mut link, login)
            .await
            .map_err(|error| match error {
                LoginError::Refused(message) => asks_login(&message),
                LoginError::Broken(error) => broken(error),
            })?;
        self.throttle.succeeded(&attempt);
        // The gate of the server decides, as for every client.
        let status = doc! {"serverStatus": 1, "metrics": 0, "wiredTiger": 0, "frond": 0};
        link.send("admin", &status).await.map_err(broken)?;
        link.ended().await.map_err(broken)?;
        let reply = link.receive().await.map_err(broken)?;
        match reply.get_f64("ok") {
            Some(1.0) => Ok(()),
            _ => {
                let message = reply.get_str("errmsg").unwrap_or("not authorized");
                Err(refusal(StatusCode::FORBIDDEN, message))
            }
        }
    }

    /// `/metrics`: the text of the metrics. The parameter `collect[]`, as other exporters have it, selects sets of names.
    async fn metrics(&self, call: &Call) -> Reply {
        // Without logins, a page whose name is pointed at this server could read the names of all collections.
        if let Err(refused) = check_origin(call, self.backend.host_names()) {
            return refused.into();
        }
        if let Err(refusal) = self.admit(call).await {
            return refusal;
        }
        let asked: Vec<String> = call.queries("collect[]").collect();
        let [own, of_exporter] =
            SETS.map(|set| asked.is_empty() || asked.iter().any(|asked| asked == set));
        if !asked.iter().all(|asked| SETS.contains(&&**asked)) {
            let sets = SETS.join(" and ");
            let message = format!("collect[] takes {sets}");
            return refusal(StatusCode::BAD_REQUEST, &message);
        }
        let Ok(_turn) = timeout(TURN_TIME_MAX, self.scrape.lock()).await else {
            return Refusal::busy("other scrapes take too long").into();
        };
        let server = self.server.clone();
        let scrape = tokio::task::spawn_blocking(move || {
            gather(&server).map(|report| render(&report, own, of_exporter))
        });
        match scrape.await {
            Ok(Ok(text)) => frond_http::bytes(StatusCode::OK, CONTENT_TYPE, Bytes::from(text)),
            Ok(Err(error)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    /// `/health/live`: the process answers.
    fn live(&self) -> Reply {
        frond_http::json(StatusCode::OK, r#"{"status":"live"}"#)
    }

    /// `/health/ready`: the server accepts requests. While the disk is full it does, but refuses writes.
    fn ready(&self) -> Reply {
        if self.server.is_stopping() {
            let body = r#"{"status":"stopping"}"#;
            return frond_http::json(StatusCode::SERVICE_UNAVAILABLE, body);
        }
        let disk = self.server.store.engine_stats().disk_space;
        let writable = disk.low_since.is_none();
        let body = format!(r#"{{"status":"ready","writable":{writable}}}"#);
        frond_http::json(StatusCode::OK, body)
    }
}

/// The name and the password of HTTP's basic authentication (RFC 7617).
fn basic_login(call: &Call) -> Option<Login> {
    let (scheme, encoded) = call.header(&AUTHORIZATION)?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(Login {
        user: user.to_string(),
        db: "admin".to_string(),
        password: Zeroizing::new(password.to_string()),
    })
}

fn refusal(status: StatusCode, message: &str) -> Reply {
    Refusal::new(status, message).into()
}

/// The reply to a client that has not logged in.
fn asks_login(message: &str) -> Reply {
    let mut reply = refusal(StatusCode::UNAUTHORIZED, message);
    let scheme = HeaderValue::from_static("Basic realm=\"frond\", charset=\"UTF-8\"");
    reply.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    reply
}

/// The figures of a scrape.
fn gather(server: &Server) -> Result<Report> {
    let mut report = Report {
        server_status: server_status::report_with_histograms(server, |_| true),
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
            report.collections.extend(collection_stats(server, &ns));
        }
        let stats = db_stats::describe(server, &name, 1)?;
        report.databases.push((name, stats));
    }
    Ok(report)
}

/// The figures of a collection; none if it was dropped meanwhile.
fn collection_stats(server: &Server, ns: &Namespace) -> Option<CollectionStats> {
    let stats = server.store.collection_stats(ns).ok()?;
    let usage = server.store.index_usage(ns).ok()?;
    let indexes = usage.iter().map(|index| {
        let accesses = index
            .get_doc("accesses")
            .and_then(|uses| uses.get_i64("ops"));
        IndexStats {
            name: index.get_str("name").unwrap_or_default().to_string(),
            accesses: u64::try_from(accesses.unwrap_or(0)).unwrap_or(0),
        }
    });
    Some(CollectionStats {
        database: ns.db().to_string(),
        collection: ns.coll().to_string(),
        storage: coll_stats::describe(ns.as_str(), &stats, 1),
        indexes: indexes.collect(),
    })
}
