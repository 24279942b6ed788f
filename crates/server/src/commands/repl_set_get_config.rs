//! `replSetGetConfig`

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::{Command, Traits};
use crate::context::Context;

/// Refuses: this server is not a member of a replica set.
pub struct ReplSetGetConfig;

impl Command for ReplSetGetConfig {
    fn names(&self) -> &'static [&'static str] {
        &["replSetGetConfig"]
    }

    fn doc(&self) -> &'static str {
        "Refuses: this server is not a member of a replica set."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["commitmentStatus"]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.admin()
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::new(
            ErrorCode::NoReplicationEnabled,
            "This node was not started with replication enabled.",
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn there_is_no_replica_set() {
        assert_eq!(
            TestServer::new().code("admin", doc! {"replSetGetConfig": 1}),
            76
        );
    }
}
