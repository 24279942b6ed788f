//! `fsync`

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;
use crate::context::unsupported_option;
use crate::exec::{Lane, Work};

/// Syncs the journal and writes a checkpoint.
pub struct Fsync;

impl Command for Fsync {
    fn names(&self) -> &'static [&'static str] {
        &["fsync"]
    }

    fn doc(&self) -> &'static str {
        "Syncs the journal and writes a checkpoint."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["lock", "async", "fsyncLockAcquisitionTimeoutMillis"]
    }

    fn traits(&self) -> Traits {
        Traits {
            work: Work::Long,
            lane: Some(Lane::Maintenance),
            ..Traits::CHEAP
        }
        .admin()
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Fsync))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        if cx.args().flag("lock")?.unwrap_or(false) {
            return Err(unsupported_option("fsync", "lock"));
        }
        cx.server.store.flush_log()?;
        cx.server.store.checkpoint()?;
        Ok(doc! {"numFiles": 1})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_checkpoints() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("admin", doc! {"fsync": 1}),
            doc! {"numFiles": 1, "ok": 1.0}
        );
        assert_eq!(server.code("admin", doc! {"fsync": 1, "lock": true}), 238);
    }
}
