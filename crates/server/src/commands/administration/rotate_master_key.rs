use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use frond_runtime::Work;

pub struct RotateMasterKey;

const SPEC: Spec = Spec {
    names: &["rotateMasterKey"],
    doc: "Reads the master key of encryption at rest again, and encrypts the store keys with it.",
    fields: &["newStoreKey"],
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for RotateMasterKey {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::RotateCertificates))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let arguments = Arguments::new("rotateMasterKey", cx.body);
        let adds_key = arguments.bool("newStoreKey")?.unwrap_or(false);
        let failed = |why: String| Error::new(ErrorCode::OperationFailed, why);
        let master = cx.server.settings.encryption.master_key();
        let master = master.map_err(|why| failed(format!("the keys stay as they were: {why}")))?;
        let master = master.ok_or_else(|| {
            failed("the data directory is not encrypted: there is no key to rotate".to_owned())
        })?;
        let keys = cx.server.store.rotate_master_key(&master, adds_key)?;
        let long = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        cx.server.log.info(
            Component::Command,
            9_937_070,
            &cx.connection.name,
            "The store keys are encrypted with the master key that was read now",
            &doc! {"storeKeys": keys.count as i64, "currentKey": i64::from(keys.current), "version": long(keys.version)},
        );
        Ok(DocBuf::new())
    }
}
