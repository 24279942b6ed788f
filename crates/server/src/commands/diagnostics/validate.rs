use frond_bson::{DocBuf, Value};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::AdmissionClass;

const NON_COMPLIANT: &str = "Detected one or more documents not compliant with the collection's \
                             schema. A find with {$nor: [<the validator>]} returns them.";

pub struct Validate;

const SPEC: Spec = Spec {
    names: &["validate"],
    doc: "Checks that a collection and its indexes agree.",
    // The check is always full, and reads a snapshot without blocking writers.
    fields: &["full", "background", "scandata", "checkBSONConformance"],
    unsupported_fields: &["repair", "metadata", "enforceFastCount", "fixMultikey"],
    admission: Some(AdmissionClass::Maintenance),
    on_collection: true,
    stable_api: false,
    ..Spec::CATALOG
};

impl Command for Validate {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Validate)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        for flag in ["full", "background", "scandata", "checkBSONConformance"] {
            cx.args().flag(flag)?;
        }
        let report = cx.server.store.verify(&namespace)?;
        // Such documents are an error if the validator refuses writes, and a warning if it only warns.
        let non_compliant = (report.non_compliant_documents > 0).then_some(NON_COMPLIANT);
        let (error, warning) = if report.refuses_non_compliant {
            (non_compliant, None)
        } else {
            (None, non_compliant)
        };
        let mut reply = DocBuf::new();
        reply.push("ns", namespace.as_str());
        if let Some(uuid) = cx.server.store.uuid_of(&namespace) {
            let (subtype, bytes) = (4, uuid.as_slice());
            reply.push("uuid", Value::Binary { subtype, bytes });
        }
        reply.push("nInvalidDocuments", report.invalid_documents as i64);
        reply.push(
            "nNonCompliantDocuments",
            report.non_compliant_documents as i64,
        );
        reply.push("nrecords", report.documents as i64);
        reply.push("nIndexes", report.indexes.len() as i32);
        reply.push_doc("keysPerIndex", |keys| {
            for index in &report.indexes {
                keys.push(&index.name, index.keys as i64);
            }
        });
        reply.push_doc("indexDetails", |details| {
            for index in &report.indexes {
                details.push_doc(&index.name, |detail| detail.push("valid", index.valid));
            }
        });
        reply.push("valid", report.errors.is_empty() && error.is_none());
        reply.push("repaired", false);
        reply.push_array("warnings", |warnings| {
            warning
                .into_iter()
                .for_each(|warning| warnings.push(warning));
        });
        for list in ["extraIndexEntries", "missingIndexEntries", "corruptRecords"] {
            reply.push_array(list, |_| ());
        }
        reply.push_array("errors", |errors| {
            let found = report.errors.iter().map(String::as_str).chain(error);
            found.for_each(|error| errors.push(error));
        });
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sound_collection_is_valid() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"a": [1, 2]}, {"a": 3}]},
        );
        let reply = server.run("test", doc! {"validate": "c", "full": true});
        assert_eq!(
            (reply.get_bool("valid"), reply.get_i64("nrecords")),
            (Some(true), Some(2))
        );
        let keys = reply.get_doc("keysPerIndex").unwrap();
        assert_eq!(
            (keys.get_i64("_id_"), keys.get_i64("a_1")),
            (Some(2), Some(3))
        );
        assert_eq!(server.code("test", doc! {"validate": "none"}), 26);
        assert_eq!(
            server.code("test", doc! {"validate": "c", "repair": true}),
            238
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn documents_that_the_validator_refuses_are_counted() {
        for (action, valid, warnings) in [("error", false, 0), ("warn", true, 1)] {
            let mut server = TestServer::new();
            server.run(
                "test",
                doc! {
                    "create": "c", "validator": {"s": "a"}, "validationAction": action,
                    "collation": {"locale": "en", "strength": 2},
                },
            );
            server.run(
                "test",
                doc! {
                    "insert": "c", "documents": [{"s": "a"}, {"s": "A"}, {"s": "b"}],
                    "bypassDocumentValidation": true,
                },
            );
            let reply = server.run("test", doc! {"validate": "c"});
            let listed = |name| reply.get_array(name).unwrap().count();
            assert_eq!(reply.get_i64("nNonCompliantDocuments"), Some(1));
            assert_eq!(reply.get_bool("valid"), Some(valid), "{action}");
            assert_eq!(listed("warnings"), warnings, "{action}");
            assert_eq!(listed("errors"), 1 - warnings, "{action}");
            server.run("test", doc! {"collMod": "c", "validationLevel": "off"});
            let reply = server.run("test", doc! {"validate": "c"});
            assert_eq!(reply.get_i64("nNonCompliantDocuments"), Some(0));
            assert_eq!(reply.get_bool("valid"), Some(true));
        }
    }
}
