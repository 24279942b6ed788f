//! `replSetStepUp`: makes a standby a primary.

use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};

use super::repl_set_config::replica_set;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use crate::standby::{Directory, DirectoryState, Phase, Source, Standby};
use crate::state::Server;
use frond_runtime::{AdmissionClass, Work};

/// The limit of the wait for the last entries of a primary that can be reached.
const CATCH_UP: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct ReplSetStepUp;

const SPEC: Spec = Spec {
    names: &["replSetStepUp"],
    doc: "Makes a standby a primary, which takes writes.",
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
            // This server is a primary already.
            None => Ok(DocBuf::new()),
        }
    }
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
