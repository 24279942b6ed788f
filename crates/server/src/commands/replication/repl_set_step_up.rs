//! `replSetStepUp`: makes a standby a primary.

use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use super::repl_set_config::replica_set;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use crate::replication::{Cause, refusal};
use crate::standby::{Directory, DirectoryState, Phase, Source, Standby};
use crate::state::Server;
use frond_runtime::{AdmissionClass, Work};

/// The limit of the wait for the last entries of a primary that can be reached.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The limit of an election.
const ELECTION: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct ReplSetStepUp;

const SPEC: Spec = Spec {
    names: &["replSetStepUp"],
    doc: "Makes a secondary or a standby the primary.",
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
        match &cx.server.set.standby {
            Some(standby) => standby.step_up(|| step_up(cx.server, standby)),
            None => stand_for_election(cx.server),
        }
    }
}

/// Makes this member the primary, unless it is.
fn stand_for_election(server: &Server) -> Result<DocBuf> {
    let set = replica_set(server)?;
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
    let failed = |error: Error| {
        Error::new(
            ErrorCode::CommandFailed,
            format!("Election failed: {}", error.message()),
        )
    };
    let stood = consensus.stand(Cause::StepUp)?;
    stood.map_err(|error| failed(refusal(&error)))?;
    let until = Instant::now() + ELECTION;
    while !set.is_primary() {
        if Instant::now() >= until {
            return Err(Error::new(ErrorCode::CommandFailed, "Election failed."));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(DocBuf::new())
}

/// Each step may fail, and is then done by the next attempt.
fn step_up(server: &Server, standby: &Standby) -> Result<DocBuf> {
    let set = replica_set(server)?;
    let is_caught_up = catch_up(server, standby);
    standby.set_phase(Phase::SteppingUp);
    standby.join();
    let last = server.store.oplog().last();
    if server.store.is_following() {
        server.store.lead()?;
    }
    if !set.has_own_configuration()? {
        set.step_up()?;
    }
    let directory = Directory::new(&server.settings.db_path);
    directory.set(DirectoryState::Promoted).map_err(|error| {
        Error::internal(format!("noting the step up in the data directory: {error}"))
    })?;
    let reply = doc! {
        "appliedOptime": last,
        "primaryOptime": standby.primary_last(),
        "caughtUp": is_caught_up,
        "term": set.initiated()?.term,
    };
    server.log.warning(
        Component::Control,
        9_922_010,
        "follow",
        "The standby is a primary now. Do not start the old primary again with its data: as a standby of this server it \
         begins with an empty data directory",
        &reply,
    );
    server.maintenance.ttl.wake();
    Ok(reply)
}

/// Waits for the entries that the primary has now, if it can be reached. Returns whether all of them are applied.
fn catch_up(server: &Server, standby: &Standby) -> bool {
    if standby.phase() != Phase::Following {
        return false;
    }
    let asked = Source::connect(&standby.uri, standby.stop.clone());
    let Ok(hello) = asked.and_then(|mut source| source.hello()) else {
        return false;
    };
    let until = Instant::now() + CATCH_UP;
    while server.store.oplog().last() < hello.last {
        if Instant::now() >= until || standby.phase() != Phase::Following {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
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
