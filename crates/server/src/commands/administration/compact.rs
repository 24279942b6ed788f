use std::sync::Arc;

use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

pub struct Compact;

const SPEC: Spec = Spec {
    names: &["compact"],
    doc: "Moves the pending messages of a collection and its indexes to the leaves, and returns the space that this frees to the \
          file system, while others read and write.",
    fields: &["force", "freeSpaceTargetMB", "dryRun"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    on_collection: true,
    ..Spec::CHEAP
};

impl Command for Compact {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Compact)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let (force, dry_run) = (args.flag("force")?, args.flag("dryRun")?.unwrap_or(false));
        let target = args.i64("freeSpaceTargetMB")?;
        if let Some(megabytes @ ..1) = target {
            return Err(Error::bad_value(format!(
                "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{megabytes}'"
            )));
        }
        let store = &cx.server.store;
        let long = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        if dry_run {
            let estimate = store.estimate_compaction(&namespace)?;
            return Ok(doc! {"estimatedBytesFreed": long(estimate.freed_bytes)});
        }
        let set = cx.server.set.replication.as_ref();
        let is_primary = set.is_some_and(|set| set.is_primary() && !set.is_router());
        if is_primary && !force.unwrap_or(false) {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "will not run compact on an active replica set primary as this will slow down other running operations. \
                 use force:true to force",
            ));
        }
        if let Some(megabytes) = target {
            let estimate = store.estimate_compaction(&namespace)?;
            if estimate.freed_bytes < megabytes.unsigned_abs().saturating_mul(1 << 20) {
                return Ok(doc! {"bytesFreed": 0i64});
            }
        }
        let progress = cx.limits.progress.insert(Arc::default()).clone();
        cx.connection.running.lock().progress = Some(progress);
        let freed = store.compact(&namespace, &cx.limits)?;
        Ok(doc! {"bytesFreed": long(freed)})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collection_is_compacted() {
        let mut server = TestServer::new();
        server.fill("c", 2000);
        let delete = doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]};
        server.run("test", delete);
        server.run("admin", doc! {"fsync": 1});
        let dry = server.run("test", doc! {"compact": "c", "dryRun": true});
        assert!(dry.get_i64("estimatedBytesFreed").is_some(), "{dry:?}");
        let little = server.run("test", doc! {"compact": "c", "freeSpaceTargetMB": 100});
        assert_eq!(little.get_i64("bytesFreed"), Some(0));
        let done = server.run("test", doc! {"compact": "c", "force": true, "comment": "x"});
        assert!(done.get_i64("bytesFreed").unwrap() >= 0);
        for (command, code) in [
            (doc! {"compact": "none"}, 26),
            (doc! {"compact": "c", "freeSpaceTargetMB": 0}, 2),
            (doc! {"compact": "c", "paddingFactor": 1.1}, 40415),
            (doc! {"compact": 5}, 73),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        server.run("test", doc! {"create": "v", "viewOn": "c", "pipeline": []});
        assert_eq!(server.code("test", doc! {"compact": "v"}), 166);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_primary_is_compacted_only_by_force() {
        let mut server = TestServer::member("rs0");
        server.run("admin", doc! {"replSetInitiate": {}});
        server.fill("c", 3);
        assert_eq!(server.code("test", doc! {"compact": "c"}), 20);
        server.run("test", doc! {"compact": "c", "dryRun": true});
        server.run("test", doc! {"compact": "c", "force": true});
        assert_eq!(
            server.code("local", doc! {"compact": "oplog.rs", "force": true}),
            20
        );
    }
}
