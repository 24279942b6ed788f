use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::coll_mod_index;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested, of_view};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

/// Fields that change options of the collection or the view, which the store handles, and those that change
/// an index.
const FIELDS: &[&str] = &[
    "index",
    "dryRun",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "cappedSize",
    "cappedMax",
    "expireAfterSeconds",
    "timeseries",
    "changeStreamPreAndPostImages",
    "fastUpdates",
];

pub struct CollMod;

const SPEC: Spec = Spec {
    names: &["collMod"],
    audits: Audited::Itself,
    doc: "Changes the options of a collection or an index.",
    fields: FIELDS,
    unsupported_fields: &[
        "index.forceNonUnique",
        "isTimeseriesNamespace",
        "recordPreImages",
        // A time series has no buckets here.
        "timeseriesBucketsMayHaveMixedSchemaData",
    ],
    ..Spec::CATALOG_WRITE
};

impl Command for CollMod {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let changed = Needs::on_collection(request, Action::CollMod)?;
        let args = request.args();
        let (source, stages) = (args.str("viewOn")?, args.array("pipeline")?);
        match (source, stages) {
            (None, None) => Ok(changed),
            (Some(source), Some(stages)) => Ok(changed.and(of_view(request, source, stages)?)),
            // With one of them the rest of the view would show something else.
            _ => Err(Error::new(
                ErrorCode::InvalidOptions,
                "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled",
            )),
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let mut changes = DocBuf::new();
        for (name, value) in cx.body.iter() {
            if FIELDS.contains(&name) && name != "index" && name != "dryRun" {
                changes.push(name, value);
            }
        }
        // Without any changes it still fails if the collection does not exist, and has an entry in the oplog.
        if !changes.is_empty() || !cx.body.contains_key("index") {
            cx.store().modify_collection(&namespace, &changes)?;
        } else if !cx.store().collection_exists(&namespace)
            && !cx.store().catalog().is_view(&namespace)
        {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("ns does not exist: {namespace}"),
            ));
        }
        let mut reply = DocBuf::new();
        coll_mod_index::change(cx, &namespace, &mut reply)?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    /// The code and the `errInfo` of a write's first error.
    fn failed(reply: &DocBuf) -> Option<(i32, DocBuf)> {
        let errors = reply.get_array("writeErrors")?;
        let error = errors.get_doc("0")?;
        let info = error.get_doc("errInfo").unwrap().to_owned();
        Some((error.get_i32("code")?, info))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn validators_check_every_write() {
        let mut server = TestServer::new();
        let good = doc! {"insert": "c", "documents": [{"_id": 1, "a": 5}]};
        let bad = doc! {"insert": "c", "documents": [{"_id": 2, "a": 1}]};
        server.run("test", doc! {"create": "c", "validator": {"a": {"$gt": 3}}});
        assert_eq!(failed(&server.run("test", good)), None);
        let (code, info) = failed(&server.run("test", bad.clone())).unwrap();
        assert_eq!((code, info.get_i32("failingDocumentId")), (121, Some(2)));
        let updates = [
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}]},
            doc! {"update": "c", "updates": [{"q": {"_id": 7}, "u": {"$set": {"a": 1}}, "upsert": true}]},
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": -4}}, "multi": true}]},
        ];
        for update in updates {
            assert_eq!(failed(&server.run("test", update)).unwrap().0, 121);
        }
        let modify = doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"a": 0}};
        let reply = server.reply("test", modify.clone());
        assert_eq!(reply.get_i32("code"), Some(121));
        assert!(reply.get_doc("errInfo").is_some());
        let merge = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
            {"$set": {"a": 0}}, {"$merge": {"into": "c"}},
        ]};
        assert_eq!(server.code("test", merge.clone()), 121);

        for command in [modify, merge, bad.clone()] {
            let mut bypassing = command;
            bypassing.push("bypassDocumentValidation", true);
            assert_eq!(failed(&server.run("test", bypassing)), None);
        }
        // An invalid document may become valid; with the level moderate it may stay invalid.
        let change = doc! {"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"b": 1}}}]};
        assert_eq!(failed(&server.run("test", change.clone())).unwrap().0, 121);
        server.run("test", doc! {"collMod": "c", "validationLevel": "moderate"});
        assert_eq!(failed(&server.run("test", change)), None);
        server.run("test", doc! {"collMod": "c", "validationAction": "warn"});
        let other = doc! {"insert": "c", "documents": [{"_id": 3}]};
        assert_eq!(failed(&server.run("test", other)), None);
        let told = server.run("admin", doc! {"getLog": "global"});
        assert!(format!("{told:?}").contains("would fail validation"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn options_are_changed_and_shown() {
        let mut server = TestServer::new();
        server.run("test", doc! {"create": "c"});
        server.run(
            "test",
            doc! {"collMod": "c", "validator": {"a": {"$exists": true}}, "validationLevel": "off"},
        );
        let reply = server.run("test", doc! {"listCollections": 1});
        let info = server.batch(&reply, "firstBatch").remove(0);
        assert_eq!(
            info.get_doc("options").unwrap(),
            &*doc! {"validator": {"a": {"$exists": true}}, "validationLevel": "off", "validationAction": "error"}
        );
        let cases = [
            (doc! {"collMod": "none"}, 26),
            (doc! {"collMod": "c", "nonsense": 1}, 40415),
            (doc! {"collMod": "c", "validator": {"$where": "1"}}, 2),
            (doc! {"collMod": "c", "cappedSize": 10}, 72),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        let own = doc! {"create": "c", "validator": {"a": 1}};
        assert_eq!(server.code("admin", own), 72);
        assert_eq!(server.code("test", doc! {"create": "c"}), 48);
    }
}
