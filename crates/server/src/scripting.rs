//! The engine of JavaScript, as the server sets it up.

use std::sync::Arc;

use frond_bson::doc;
use frond_javascript::JavaScript;
use frond_store::{DocumentStore, check_request};

use crate::log::{Component, Log};
use crate::settings::Settings;

/// The part of the memory of this process that all engines may have together.
const HEAP_SHARE: u64 = 4;

/// An engine for the functions of requests, which `store` uses from now on. `None` if the settings turn JavaScript off.
pub fn start(
    settings: &Settings,
    store: &DocumentStore,
    log: &Arc<Log>,
    usable_bytes: u64,
) -> Option<JavaScript> {
    if !settings.javascript.is_enabled {
        return None;
    }
    let total = usize::try_from(usable_bytes / HEAP_SHARE).unwrap_or(usize::MAX);
    let log = log.clone();
    let engine = JavaScript::new(
        total,
        bytes(settings.javascript.heap_limit_mb),
        check_request,
        move |text| {
            let attributes = doc! {"jsPrint": text};
            log.info(Component::Query, 20162, "js", "print", &attributes);
        },
    );
    store.queries().set_engine(Arc::new(engine.clone()));
    Some(engine)
}

/// MiB as bytes.
pub fn bytes(mib: u32) -> usize {
    usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX)
}
