//! `buildInfo`

use frond_bson::{DocBuf, doc};

use super::{Command, Traits};
use crate::context::Context;
use crate::context::DOCUMENT_BYTES_MAX;
use crate::failure::Result;

/// Says which server this is and what it was built from.
pub struct BuildInfo;

impl Command for BuildInfo {
    fn names(&self) -> &'static [&'static str] {
        &["buildInfo", "buildinfo"]
    }

    fn doc(&self) -> &'static str {
        "Says which server this is and what it was built from."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {
            "version": COMPATIBLE_VERSION,
            "gitVersion": GIT_VERSION,
            "modules": [],
            "allocator": "mimalloc",
            "javascriptEngine": "none",
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

/// The feature compatibility version, which cannot be changed.
pub const FEATURE_COMPATIBILITY_VERSION: &str = "8.0";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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

    /// The commit comes from the build.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_commit_is_that_of_the_repository() {
        let mut server = TestServer::new();
        let shown = server.run("any", doc! {"buildInfo": 1});
        let shown = shown.get_str("gitVersion").unwrap().to_owned();
        let explained = server.run("any", doc! {"explain": {"find": "c"}});
        let info = explained.get_doc("serverInfo").unwrap();
        assert_eq!(info.get_str("gitVersion"), Some(&*shown));
        // Whoever builds without a repository, or says the commit himself, has nothing to compare with.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let here = std::path::Path::new(root).join(".git").exists();
        if here && std::env::var_os("FROND_GIT_VERSION").is_none() {
            let is_hash = shown.len() >= 40 && shown.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_hash, "{shown}");
        }
    }
}
