use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use crate::limits::DOCUMENT_BYTES_MAX;

pub struct BuildInfo;

const SPEC: Spec = Spec {
    names: &["buildInfo", "buildinfo"],
    doc: "Reports the version of the server and what it was built from.",
    in_transactions: InTransactions::Later,
    ..Spec::CHEAP
};

impl Command for BuildInfo {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {
            "version": COMPATIBLE_VERSION,
            "gitVersion": GIT_VERSION,
            "modules": [],
            "allocator": "jemalloc",
            "javascriptEngine": if cx.server.execution.javascript.is_some() { "quickjs" } else { "none" },
            "sysInfo": "deprecated",
            "versionArray": [8, 0, 15, 0],
            "openssl": {"running": "disabled", "compiled": "disabled"},
            "buildEnvironment": {
                "target_arch": std::env::consts::ARCH,
                "target_os": std::env::consts::OS,
            },
            "bits": i32::try_from(usize::BITS).unwrap_or(64),
            "debug": cfg!(debug_assertions),
            "maxBsonObjectSize": DOCUMENT_BYTES_MAX as i32,
            "storageEngines": ["frond"],
            "frond": {"version": env!("CARGO_PKG_VERSION")},
        })
    }
}

/// The commit that this server was built from; `unknown` without a repository.
pub const GIT_VERSION: &str = env!("FROND_GIT_VERSION");

/// The MongoDB version whose behaviour this server follows. Drivers and tools choose features by it.
pub const COMPATIBLE_VERSION: &str = "8.0.15";

pub use frond_store::FEATURE_COMPATIBILITY_VERSION;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn versions_agree() {
        let mut server = TestServer::new();
        let reply = server.run("any", doc! {"buildinfo": 1});
        assert_eq!(reply.get_str("version"), Some(super::COMPATIBLE_VERSION));
        let parts: Vec<String> = reply
            .get_array("versionArray")
            .unwrap()
            .values()
            .take(3)
            .map(|part| part.as_i64_lossless().unwrap().to_string())
            .collect();
        assert_eq!(parts.join("."), super::COMPATIBLE_VERSION);
        let own = reply
            .get_doc("frond")
            .and_then(|frond| frond.get_str("version"));
        assert_eq!(own, Some(env!("CARGO_PKG_VERSION")));
    }

    /// The commits that were checked out here, from the reflog. None if there is no reflog.
    fn checked_out() -> Option<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repository = root.join(".git");
        // In a worktree this is a file that names the folder.
        let folder = match std::fs::read_to_string(&repository) {
            Ok(text) => root.join(text.strip_prefix("gitdir: ")?.trim()),
            Err(_) => repository,
        };
        let log = std::fs::read_to_string(folder.join("logs/HEAD")).ok()?;
        (!log.is_empty()).then_some(log)
    }

    /// The commit comes from the build.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_commit_is_that_of_the_repository() {
        let mut server = TestServer::new();
        let shown = server.run("any", doc! {"buildInfo": 1});
        let shown = shown.get_str("gitVersion").unwrap().to_owned();
        let explained = server.run("any", doc! {"explain": {"find": "c"}});
        let info = explained.get_doc("serverInfo").unwrap();
        assert_eq!(info.get_str("gitVersion"), Some(&*shown));
        // The variable sets another commit. Without a reflog there may be no commit to compare with: no repository, no
        // commit yet, or references in a table.
        if std::env::var_os("FROND_GIT_VERSION").is_none()
            && let Some(log) = checked_out()
        {
            assert!(shown.len() >= 40 && log.contains(&shown), "{shown}");
        }
    }
}
