use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::OplogSettings;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

/// Bounds of `size`, in MiB, as in MongoDB: 990 MiB and a pebibyte.
const MIB_MIN: f64 = 990.0;
const MIB_MAX: f64 = (1u64 << 30) as f64;

pub struct ReplSetResizeOplog;

const SPEC: Spec = Spec {
    names: &["replSetResizeOplog"],
    audits: Audited::Itself,
    doc: "Changes the size of the oplog, and how long its entries are kept at least.",
    fields: &["size", "minRetentionHours"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetResizeOplog {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetResizeOplog))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let size = number(cx, "size", MIB_MIN, MIB_MAX)?;
        let hours = number(cx, "minRetentionHours", 0.0, f64::MAX)?;
        let oplog = cx.server.store.oplog();
        if !oplog.is_on() {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                "oplog does not exist",
            ));
        }
        let current = oplog.settings();
        oplog.resize(OplogSettings {
            bytes_max: size.map_or(current.bytes_max, |mib| (mib * (1u64 << 20) as f64) as u64),
            min_retention_hours: hours.unwrap_or(current.min_retention_hours),
        })?;
        Ok(DocBuf::new())
    }
}

/// A number in an inclusive range.
fn number(cx: &Context<'_>, field: &str, low: f64, high: f64) -> Result<Option<f64>> {
    let args = cx.args();
    let Some(given) = args.get(field).filter(|given| *given != Value::Null) else {
        return Ok(None);
    };
    let Some(number) = given.as_f64().filter(|_| given.is_number()) else {
        return Err(args.wrong_type(field, &given, "types '[double, int, decimal, long]'"));
    };
    if number < low || number.is_nan() {
        return Err(Error::bad_value(format!(
            "BSON field 'replSetResizeOplog.{field}' value must be >= {low}, actual value '{number}'"
        )));
    }
    if number > high {
        return Err(Error::bad_value(format!(
            "BSON field 'replSetResizeOplog.{field}' value must be <= {high}, actual value '{number}'"
        )));
    }
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::settings::OplogMode;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_size_and_the_retention_change_for_good() {
        let mut server = TestServer::with(|settings| {
            settings.oplog = OplogMode::On;
            settings.oplog_bytes = Some(1 << 20);
        });
        let resize = doc! {"replSetResizeOplog": 1, "size": 1000.5, "minRetentionHours": 1.5};
        server.run("admin", resize);
        let settings = server.server.store.oplog().settings();
        assert_eq!(settings.bytes_max, 1_049_100_288);
        assert_eq!(settings.min_retention_hours, 1.5);
        server.run("admin", doc! {"replSetResizeOplog": 1, "size": 990});
        let settings = server.server.store.oplog().settings();
        assert_eq!(settings.bytes_max, 990 << 20);
        assert_eq!(settings.min_retention_hours, 1.5);
        let wrong = [
            (doc! {"replSetResizeOplog": 1, "size": 989}, 2),
            (doc! {"replSetResizeOplog": 1, "size": 2e9}, 2),
            (doc! {"replSetResizeOplog": 1, "size": "x"}, 14),
            (doc! {"replSetResizeOplog": 1, "minRetentionHours": -1}, 2),
            (doc! {"replSetResizeOplog": 1, "nonsense": 1}, 40415),
        ];
        for (command, code) in wrong {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn there_has_to_be_an_oplog() {
        let mut server = TestServer::new();
        let resize = doc! {"replSetResizeOplog": 1, "size": 1000};
        assert_eq!(server.code("admin", resize), 26);
    }
}
