//! `replSetGetStatus`

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::{Command, Traits};
use crate::context::Context;

/// Refuses: this server is not a member of a replica set.
pub struct ReplSetGetStatus;

impl Command for ReplSetGetStatus {
    fn names(&self) -> &'static [&'static str] {
        &["replSetGetStatus"]
    }

    fn doc(&self) -> &'static str {
        "Refuses: this server is not a member of a replica set."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["initialSync"]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP.admin()
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::new(
            ErrorCode::NoReplicationEnabled,
            "not running with --replSet",
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
        let mut server = TestServer::new();
        assert_eq!(server.code("admin", doc! {"replSetGetStatus": 1}), 76);
        assert_eq!(server.code("test", doc! {"replSetGetStatus": 1}), 13);
    }
}
