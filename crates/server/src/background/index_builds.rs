//! Index builds that the last run of the server did not finish.

use std::sync::Arc;

use frond_bson::doc;
use frond_error::{Error, ErrorCode};

use super::Job;
use crate::log::Component;
use crate::state::Server;

/// Starts a thread that builds them. When it is interrupted, the next run of the server begins anew.
///
/// # Errors
/// The system refuses to start a thread.
pub fn resume_index_builds(server: &Arc<Server>) -> std::io::Result<Job> {
    let server = server.clone();
    Job::start("frond-indexes", move |limits| {
        let writing = server
            .fsync_lock
            .write(|| match Job::is_interrupted(limits) {
                true => Err(Error::new(ErrorCode::Interrupted, "the server stops")),
                false => Ok(()),
            });
        let Ok(_writing) = writing else {
            return;
        };
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
    })
}
