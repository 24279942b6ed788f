//! `replSetStepUp`: makes a secondary the primary.

use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::repl_set_config::replica_set;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::replication::{Cause, Replication, refusal};
use frond_runtime::{AdmissionClass, Work};

/// The limit of all attempts together.
const ELECTION: Duration = Duration::from_secs(10);

/// An attempt that has not succeeded after this time is repeated.
const ATTEMPT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct ReplSetStepUp;

const SPEC: Spec = Spec {
    names: &["replSetStepUp"],
    audits: Audited::Itself,
    doc: "Makes a secondary the primary.",
    fields: &["skipDryRun"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetStepUp {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetStateChange))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        set.initiated()?;
        // A dry run of an election does not exist here.
        cx.args().flag("skipDryRun")?;
        stand_for_election(cx, set)
    }
}

/// Makes this member the primary, unless it is.
fn stand_for_election(cx: &Context<'_>, set: &Replication) -> Result<DocBuf> {
    let (member, consensus) = (set.initiated()?, set.consensus());
    let Some(consensus) = consensus.filter(|_| !member.is_primary()) else {
        return Ok(DocBuf::new());
    };
    let stands = member.configured().is_some_and(|own| own.is_electable());
    if !stands {
        return Err(Error::new(
            ErrorCode::CommandFailed,
            "Election failed: member has zero priority, or is not in the configuration",
        ));
    }
    let until = Instant::now() + ELECTION;
    consensus.stand(Cause::StepUp)?.map_err(|error| {
        let reason = format!("Election failed: {}", refusal(&error).message());
        Error::new(ErrorCode::CommandFailed, reason)
    })?;
    while !wait_for_office(cx, set, until.min(Instant::now() + ATTEMPT))? {
        if Instant::now() >= until {
            return Err(Error::new(ErrorCode::CommandFailed, "Election failed."));
        }
        // The votes were split, or the primary's hand-over was lost. A member that was elected and is not the primary yet goes on. An
        // error is that of a change of the primary, which the next attempt meets no more.
        let _ = consensus.stand(Cause::StepUp)?;
    }
    Ok(DocBuf::new())
}

/// Returns whether this member is the primary before `until`.
///
/// # Errors
/// The command was interrupted.
fn wait_for_office(cx: &Context<'_>, set: &Replication, until: Instant) -> Result<bool> {
    while !set.is_primary() {
        if Instant::now() >= until {
            return Ok(false);
        }
        cx.limits.check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_primary_has_nothing_to_do() {
        let mut server = TestServer::new();
        assert_eq!(server.code("admin", doc! {"replSetStepUp": 1}), 76);
        let mut server = TestServer::member("rs0");
        assert_eq!(server.code("admin", doc! {"replSetStepUp": 1}), 94);
        server.run("admin", doc! {"replSetInitiate": {}});
        server.run("admin", doc! {"replSetStepUp": 1});
    }
}
