use frond_bson::DocBuf;
use frond_error::{Error, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::diagnostics::build_info::FEATURE_COMPATIBILITY_VERSION;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::feature_version;

pub struct SetFeatureCompatibilityVersion;

const SPEC: Spec = Spec {
    names: &["setFeatureCompatibilityVersion"],
    audits: Audited::Itself,
    doc: "Confirms the feature compatibility version, which is always 8.0.",
    fields: &["confirm"],
    unsupported_fields: &["downgradeOnDiskChanges", "fromConfigServer", "phase"],
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for SetFeatureCompatibilityVersion {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::SetFeatureCompatibilityVersion))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let version = args
            .str(cx.name)?
            .ok_or_else(|| args.missing("setFeatureCompatibilityVersion"))?;
        if version != FEATURE_COMPATIBILITY_VERSION {
            return Err(Error::location(
                4_926_900,
                format!(
                    "Invalid feature compatibility version value '{version}'; this server has only \
                     '{FEATURE_COMPATIBILITY_VERSION}', and its files are not those of MongoDB"
                ),
            ));
        }
        if !args.bool("confirm")?.unwrap_or(false) {
            return Err(Error::location(
                7_369_100,
                "Once you have upgraded to 8.0, you will not be able to downgrade FCV and binary version without \
                 support assistance. Please re-run this command with 'confirm: true' to acknowledge this and \
                 continue with the FCV upgrade.",
            ));
        }
        feature_version::ensure(&cx.server.store)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn only_one_version_is_confirmed() {
        let mut server = TestServer::new();
        let name = "setFeatureCompatibilityVersion";
        server.run("admin", doc! {name: "8.0", "confirm": true});
        let cases = [
            (doc! {name: "8.0"}, 7_369_100),
            (doc! {name: "8.0", "confirm": false}, 7_369_100),
            (doc! {name: "7.0", "confirm": true}, 4_926_900),
            (doc! {name: 8, "confirm": true}, 14),
            (doc! {name: "8.0", "confirm": true, "x": 1}, 40415),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
        assert_eq!(server.code("test", doc! {name: "8.0", "confirm": true}), 13);
    }
}
