//! `applyOps`

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use super::{Command, Traits};
use crate::context::Context;

/// Refuses: there is no oplog.
pub struct ApplyOps;

impl Command for ApplyOps {
    fn names(&self) -> &'static [&'static str] {
        &["applyOps"]
    }

    fn doc(&self) -> &'static str {
        "Refuses: there is no oplog. Restore without --oplogReplay and --preserveUUID."
    }

    fn traits(&self) -> Traits {
        Traits {
            takes_any_field: true,
            on_collection: false,
            ..Traits::CATALOG_WRITE.stable(false)
        }
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::not_supported("the command 'applyOps'"))
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_is_refused_by_name() {
        let mut server = TestServer::new();
        assert_eq!(
            server.code("admin", doc! {"applyOps": [], "alwaysUpsert": true}),
            238
        );
    }
}
