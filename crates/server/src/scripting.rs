//! The engine of JavaScript, as the server sets it up.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use frond_bson::doc;
use frond_javascript::{JavaScript, WorkerProgram};
use frond_store::{DocumentStore, check_request};

use crate::observability::log::{Component, Log};
use crate::settings::Settings;
use frond_runtime::Sharing;

/// The part of the memory of this process that all engines may have together.
const HEAP_SHARE: u64 = 4;

/// An engine for the functions of requests, which `store` uses from now on. `None` if the settings turn JavaScript off.
pub fn start(
    settings: &Settings,
    store: &DocumentStore,
    log: &Arc<Log>,
    tickets: Sharing,
    usable_bytes: u64,
) -> Option<JavaScript> {
    if !settings.javascript.is_enabled {
        return None;
    }
    let total = usize::try_from(usable_bytes / HEAP_SHARE).unwrap_or(usize::MAX);
    let log = log.clone();
    let engine = JavaScript::new(
        settings.javascript.placement.clone(),
        total,
        bytes(settings.javascript.heap_limit_mb),
        move || {
            check_request()?;
            tickets.share();
            Ok(())
        },
        move |text| {
            let attributes = doc! {"jsPrint": text};
            log.info(Component::Query, 20162, "js", "print", &attributes);
        },
    );
    store.queries().set_engine(Arc::new(engine.clone()));
    Some(engine)
}

/// The argument with which the program runs as a worker. It is no command of the command line, which no user calls.
const WORKER: &str = "javascript-worker";

/// This program as a worker for functions of JavaScript, with a variable of its environment. A file that replaces the
/// program's meanwhile is not run.
pub fn worker_program((name, value): (&str, &str)) -> WorkerProgram {
    let path = if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    };
    WorkerProgram {
        path: path.unwrap_or_else(|_| PathBuf::from("frond")),
        arguments: vec![WORKER.into()],
        variables: vec![(name.into(), value.into())],
    }
}

/// Runs as a worker, if the arguments of this process say so.
pub fn run_as_worker() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let is_worker = arguments.next().is_some_and(|first| first == WORKER);
    (is_worker && arguments.next().is_none()).then(frond_javascript::run_worker)
}

pub fn bytes(mib: u32) -> usize {
    usize::try_from(u64::from(mib) << 20).unwrap_or(usize::MAX)
}
