//! `logApplicationMessage`, `getAuditConfig` and `setAuditConfig`.

use frond_bson::{Doc, DocBuf, ObjectId, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::{Audit, AuditConfig, Audited};
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

/// The longest message of a client.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

pub struct LogApplicationMessage;

const LOG_APPLICATION_MESSAGE: Spec = Spec {
    names: &["logApplicationMessage"],
    doc: "Adds a message to the audit log; without one it has no effect.",
    work: Work::Short,
    admin_only: true,
    audits: Audited::ApplicationMessage,
    ..Spec::CHEAP
};

impl Command for LogApplicationMessage {
    fn spec(&self) -> &'static Spec {
        &LOG_APPLICATION_MESSAGE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ApplicationMessage))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        match cx.body.first() {
            Some((_, Value::String(message))) if message.len() <= MESSAGE_BYTES_MAX => {
                Ok(DocBuf::new())
            }
            Some((_, Value::String(_))) => Err(Error::bad_value(format!(
                "logApplicationMessage takes at most {MESSAGE_BYTES_MAX} bytes"
            ))),
            _ => Err(Error::bad_value(
                "logApplicationMessage only accepts string messages",
            )),
        }
    }
}

pub struct GetAuditConfig;

const GET_AUDIT_CONFIG: Spec = Spec {
    names: &["getAuditConfig"],
    doc: "Shows which audit events are recorded.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetAuditConfig {
    fn spec(&self) -> &'static Spec {
        &GET_AUDIT_CONFIG
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::AuditConfigure))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        Ok(audit(cx)?.config().to_doc())
    }
}

pub struct SetAuditConfig;

const SET_AUDIT_CONFIG: Spec = Spec {
    names: &["setAuditConfig"],
    doc: "Changes which audit events are recorded, if auditLog.runtimeConfiguration is on.",
    fields: &["filter", "auditAuthorizationSuccess"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    admin_only: true,
    audits: Audited::AuditConfigure,
    ..Spec::CHEAP
};

impl Command for SetAuditConfig {
    fn spec(&self) -> &'static Spec {
        &SET_AUDIT_CONFIG
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::AuditConfigure))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let audit = audit(cx)?;
        if !audit.is_runtime() {
            return Err(Error::new(
                ErrorCode::from_code(345),
                "Runtime audit configuration has not been enabled: start the servers with auditLog.runtimeConfiguration: true",
            ));
        }
        let args = cx.args();
        let filter = args.doc_field("filter")?.unwrap_or(Doc::empty());
        let success = args.flag("auditAuthorizationSuccess")?.unwrap_or(false);
        let config = AuditConfig::new(Some(ObjectId::new()), filter, success)?;
        config.store(&cx.server.store)?;
        audit.configure(config);
        Ok(DocBuf::new())
    }
}

/// The audit log, or the error of a server without one.
fn audit<'a>(cx: &Context<'a>) -> Result<&'a Audit> {
    let audit = cx.server.audit.as_ref();
    audit.ok_or_else(|| Error::new(ErrorCode::from_code(344), "Auditing is not enabled"))
}
