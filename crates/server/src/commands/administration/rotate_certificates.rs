use frond_bson::{DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use frond_runtime::Work;

pub struct RotateCertificates;

const SPEC: Spec = Spec {
    names: &["rotateCertificates"],
    audits: Audited::Itself,
    doc: "Reads the files of TLS again, for new connections.",
    fields: &["message"],
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for RotateCertificates {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::RotateCertificates))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let message = Arguments::new("rotateCertificates", cx.body).str("message")?;
        let failed = |why: &str| Error::new(ErrorCode::from_code(140), why);
        let log = &cx.server.log;
        let tls = cx.server.clients.tls.as_ref().ok_or_else(|| {
            failed("TLS is not enabled on this server: there are no certificates to rotate")
        })?;
        tls.rotate(log)
            .map_err(|why| failed(&format!("the certificates stay as they were: {why}")))?;
        log.info(
            Component::Command,
            4_988_500,
            &cx.connection.name,
            "Certificate rotation completed successfully",
            &doc! {"message": message.unwrap_or_default()},
        );
        Ok(DocBuf::new())
    }
}
