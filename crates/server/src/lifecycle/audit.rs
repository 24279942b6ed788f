//! The event of the start in the audit log.

use frond_bson::{ArrayBuf, doc};

use super::{FatalError, exit};
use crate::audit::{Actor, When};
use crate::cluster_parameters::CHANGE_STREAM_OPTIONS;
use crate::commands::diagnostics::get_cmd_line_opts;
use crate::state::Server;

/// Records the start in the audit log, with the settings.
pub(super) fn record_start(server: &Server) -> Result<(), FatalError> {
    let Some(audit) = &server.audit else {
        return Ok(());
    };
    (audit.reload(&server.store)).map_err(|error| FatalError::new(exit::DATA_ERROR, error))?;
    let mut parameters = ArrayBuf::new();
    if let Ok(parameter) = server.set.cluster_parameters.get(CHANGE_STREAM_OPTIONS) {
        parameters.push(&parameter);
    }
    let param = doc! {
        "startupOptions": get_cmd_line_opts::parsed(&server.settings),
        "initialClusterServerParameters": parameters.as_value(),
    };
    (audit.record(Actor::Server, "startup", &param, 0, When::Before))
        .map_err(|error| FatalError::new(exit::BAD_OPTIONS, error))
}
