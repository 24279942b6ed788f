//! Removal of the leftovers of other servers over the same keyspace, and index builds that the last run of the server did not finish.

use std::sync::Arc;
use std::time::Duration;

use frond_bson::doc;
use frond_error::{Error, ErrorCode};
use frond_store::OpContext;

use super::Job;
use crate::observability::log::Component;
use crate::state::Server;

/// The interval of the checks whether the thread is to end, and the checks between two searches for builds.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS_PER_SEARCH: u32 = 8;

/// Starts a thread that builds them. When it is interrupted, the next run of the server starts over.
///
/// # Errors
/// The system refuses to start a thread.
pub fn resume_index_builds(server: &Arc<Server>) -> std::io::Result<Job> {
    let server = server.clone();
    let mut ticks: u32 = 0;
    Job::start("frond-indexes", move |limits| {
        resume(&server, limits);
        // Other servers may leave builds behind at any time.
        while server.store.is_shared() && !Job::is_interrupted(limits) {
            std::thread::sleep(LOOK);
            ticks += 1;
            if ticks.is_multiple_of(LOOKS_PER_SEARCH) {
                resume(&server, limits);
            }
        }
    })
}

fn resume(server: &Server, limits: &OpContext) {
    let writing = server.maintenance.fsync_lock.write(|| {
        if Job::is_interrupted(limits) {
            Err(Error::new(ErrorCode::Interrupted, "the server stops"))
        } else {
            Ok(())
        }
    });
    let Ok(_writing) = writing else {
        return;
    };
    // The next look comes soon.
    let _ = server.store.remove_leftovers();
    for build in server.store.resume_index_builds(limits) {
        let mut attributes = doc! {"namespace": build.ns.as_str()};
        attributes.push_array("indexes", |names| {
            build
                .indexes
                .iter()
                .for_each(|name| names.push(name.as_str()));
        });
        let (log, component) = (&server.log, Component::Index);
        let (id, context) = (20_660, "IndexBuildsCoordinator");
        match build.outcome {
            Ok(()) => {
                let done = "Index build: resumed and done";
                log.info(component, id, context, done, &attributes);
            }
            Err(error) => {
                attributes.push("error", &error.to_string());
                let failed = "Index build: resumed and failed";
                log.error(component, id, context, failed, &attributes);
            }
        }
    }
}
