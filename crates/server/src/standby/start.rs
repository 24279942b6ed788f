//! The preparation of a standby before its store is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_bson::DocBuf;
use frond_store::{DocumentStore, NoListener, OpContext, StorageOptions, StoreOptions};

use super::directory::{Directory, State};
use super::start_error::StartError;
use super::{copy, source};
use crate::host::memory::default_cache_bytes;
use crate::observability::log::Log;
use crate::settings::Settings;

/// Sees to it that a standby has a copy of its primary. Returns whether the server is to follow; none if `stop` was set meanwhile.
///
/// # Errors
/// A directory that is a standby's while the settings are not, or that cannot be filled.
pub fn prepare(
    settings: &Settings,
    log: &Log,
    stop: &Arc<AtomicBool>,
) -> Result<Option<bool>, StartError> {
    let directory = Directory::new(&settings.db_path);
    let state = directory.state()?;
    let Some(uri) = &settings.follow else {
        return match state {
            State::Own | State::Promoted => Ok(Some(false)),
            State::Following | State::Copying => Err(StartError::new(
                "the data directory is a standby's: start it with --follow; to make it a primary, then run \
                 db.adminCommand({replSetStepUp: 1})",
            )),
        };
    };
    if state == State::Promoted {
        log.startup_warning(
            9_922_020,
            "This server was a standby and was made a primary, so it does not follow: remove --follow (replication.follow), and set \
             --replSet (replication.replSetName)",
            &DocBuf::new(),
        );
        return Ok(Some(false));
    }
    let uri = source::uri(uri.expose()).map_err(|error| StartError::new(error.to_string()))?;
    if state == State::Copying || !directory.has_store() {
        directory.set(State::Copying)?;
        directory.clear()?;
        if !copy::fill(&settings.db_path, &uri, log, stop)? || !build_indexes(settings, stop)? {
            return Ok(None);
        }
    }
    if state != State::Following {
        directory.set(State::Following)?;
    }
    Ok(Some(true))
}

/// Builds the indexes that are not in a copy, because the primary was loading them. Until that is done, it is no copy that can be
/// followed: an index whose build is interrupted would be taken for one that the primary has not finished.
fn build_indexes(settings: &Settings, stop: &Arc<AtomicBool>) -> Result<bool, StartError> {
    let failed = |error: frond_store::Error| {
        StartError::new(format!(
            "opening the copy of the primary: {}",
            error.message()
        ))
    };
    let cache = settings.cache_bytes.unwrap_or_else(default_cache_bytes);
    let storage = StorageOptions {
        cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
        client_bytes: None,
        journal: settings.journal,
        journal_commit_interval: settings.journal_commit_interval,
        listener: Arc::new(NoListener),
        disk_reserve_bytes: settings.disk_reserve_bytes,
        log_recovery: settings.journal_recovery,
    };
    let options = StoreOptions::default()
        .with_large_documents(settings.large_documents)
        .following(true);
    let store =
        DocumentStore::open_directory(&settings.db_path, &storage, options).map_err(failed)?;
    let mut context = OpContext::new();
    context.killed = stop.clone();
    for build in store.resume_index_builds(&context) {
        match build.outcome {
            Err(_) if stop.load(Ordering::SeqCst) => return Ok(false),
            outcome => outcome.map_err(failed)?,
        }
    }
    store.close().map_err(failed)?;
    Ok(true)
}

/// Discards the data of a standby, so that the next start begins with a copy.
///
/// # Errors
/// Errors of the file system.
pub fn discard(settings: &Settings) -> Result<(), StartError> {
    Directory::new(&settings.db_path).set(State::Copying)?;
    Ok(())
}
