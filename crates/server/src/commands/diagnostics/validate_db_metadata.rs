//! `validateDBMetadata`: whether collections, indexes and views use only what the Stable API has.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{CollectionInfo, CollectionKind, Namespace};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

/// The most bytes of errors in a reply.
const ERRORS_BYTES_MAX: usize = 12 << 20;

/// Stages that version 1 of the Stable API does not have.
const UNSTABLE_STAGES: [&str; 15] = [
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$currentOp",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$search",
    "$searchMeta",
    "$shardedDataDistribution",
    "$vectorSearch",
];

pub struct ValidateDbMetadata;

const SPEC: Spec = Spec {
    names: &["validateDBMetadata"],
    doc: "Lists the indexes and views that use what version 1 of the Stable API does not have.",
    fields: &["apiParameters", "db", "collection"],
    work: Work::Long,
    admission: Some(AdmissionClass::Read),
    ..Spec::CHEAP
};

impl Command for ValidateDbMetadata {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let place = match (args.str("db")?, args.str("collection")?) {
            (Some(db), Some(collection)) => Place::collection(db, collection),
            (Some(db), None) => Place::database(db),
            (None, _) => Place::AnyNormal,
        };
        Ok(Needs::on(place, Action::Validate))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let parameters = args
            .doc_field("apiParameters")?
            .ok_or_else(|| args.missing("apiParameters"))?;
        let parameters = Arguments::new("validateDBMetadata.apiParameters", parameters);
        parameters.only(&["version", "strict", "deprecationErrors"])?;
        let version = parameters
            .str("version")?
            .ok_or_else(|| parameters.missing("version"))?;
        if version != "1" {
            return Err(Error::new(
                ErrorCode::APIVersionError,
                "API version must be \"1\"",
            ));
        }
        let strict = parameters.bool("strict")?.unwrap_or(false);
        // Version 1 has deprecated nothing.
        parameters.bool("deprecationErrors")?;
        let (db, collection) = (args.str("db")?, args.str("collection")?);
        let store = &cx.server.store;
        let databases = match db {
            Some(db) => vec![db.to_owned()],
            None => {
                let all = store.list_databases()?.into_iter();
                all.map(|database| database.name).collect()
            }
        };
        let mut errors = Errors::default();
        for db in databases.iter().filter(|_| strict) {
            for info in store.list_collections(db)? {
                cx.limits.check()?;
                if collection.is_none_or(|wanted| wanted == info.name) {
                    errors.check(cx, &Namespace::new(db, &info.name)?, &info)?;
                }
            }
        }
        let mut reply = DocBuf::new();
        reply.push_array("apiVersionErrors", |list| {
            errors.list.iter().for_each(|error| list.push(error));
        });
        if errors.has_more {
            reply.push("hasMoreErrors", true);
        }
        Ok(reply)
    }
}

#[derive(Default)]
struct Errors {
    list: Vec<DocBuf>,
    bytes: usize,
    has_more: bool,
}

impl Errors {
    fn add(&mut self, ns: &Namespace, message: &str) {
        let code = ErrorCode::APIStrictError;
        let error = doc! {
            "ns": ns.as_str(), "code": code.code(), "codeName": &*code.name(), "errmsg": message,
        };
        self.bytes += error.len_bytes();
        if self.bytes > ERRORS_BYTES_MAX {
            self.has_more = true;
        } else {
            self.list.push(error);
        }
    }

    fn check(&mut self, cx: &Context<'_>, ns: &Namespace, info: &CollectionInfo) -> Result<()> {
        if info.kind == CollectionKind::View {
            let pipeline = info.options.get_array("pipeline");
            if let Some(stage) = pipeline.and_then(unstable_stage) {
                let message =
                    format!("stage {stage} is not allowed with 'apiStrict: true' in API Version 1");
                self.add(ns, &message);
            }
            return Ok(());
        }
        for index in cx.server.store.list_indexes(ns)? {
            let name = index.get_str("name").unwrap_or_default();
            let is_text = index
                .get_doc("key")
                .is_some_and(|key| key.values().any(|kind| kind.as_str() == Some("text")));
            let is_sparse = index.get("sparse").is_some_and(|sparse| sparse.truthy());
            if is_text || is_sparse {
                let what = if is_text { "text" } else { "sparse" };
                let message = format!(
                    "The index with name {name} is not allowed in API version 1: it is {what}."
                );
                self.add(ns, &message);
            }
        }
        Ok(())
    }
}

/// The first stage of a pipeline, or of one inside of it, that is not stable.
fn unstable_stage(pipeline: &Doc) -> Option<&str> {
    pipeline.values().find_map(|stage| {
        let (name, value) = stage.as_doc()?.first()?;
        if UNSTABLE_STAGES.contains(&name) {
            return Some(name);
        }
        let inner = match (name, value) {
            ("$facet", Value::Document(facets)) => {
                let mut pipelines = facets.values();
                return pipelines.find_map(|one| match one {
                    Value::Array(inner) => unstable_stage(inner),
                    _ => None,
                });
            }
            ("$lookup" | "$unionWith", Value::Document(spec)) => spec.get_array("pipeline"),
            _ => None,
        };
        inner.and_then(unstable_stage)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_stable_is_listed() {
        let mut server = TestServer::new();
        let indexes = doc! {"createIndexes": "c", "indexes": [
            {"key": {"a": "text"}, "name": "t"}, {"key": {"b": 1}, "name": "s", "sparse": true},
            {"key": {"c": 1}, "name": "plain"},
        ]};
        server.run("test", indexes);
        let inner = doc! {"$unionWith": {"coll": "c", "pipeline": [{"$indexStats": {}}]}};
        let view = doc! {"create": "v", "viewOn": "c", "pipeline": [{"$match": {}}, {"$facet": {"f": [inner]}}]};
        // A view that this server does not accept is not there.
        let has_view = server.reply("test", view).get_f64("ok") == Some(1.0);
        server.run(
            "test",
            doc! {"create": "w", "viewOn": "c", "pipeline": [{"$match": {}}]},
        );
        let mut found = |command: &DocBuf| -> Vec<String> {
            let reply = server.run("test", command.clone());
            let errors = reply.get_array("apiVersionErrors").unwrap();
            let of = |error: frond_bson::Value<'_>| {
                let error = error.as_doc().unwrap();
                assert_eq!(error.get_i32("code"), Some(323));
                error.get_str("ns").unwrap().to_owned()
            };
            errors.values().map(of).collect()
        };
        let strict = doc! {"version": "1", "strict": true, "deprecationErrors": true};
        let all = doc! {"validateDBMetadata": 1, "apiParameters": &strict};
        let mut expected = vec!["test.c", "test.c"];
        expected.extend(has_view.then_some("test.v"));
        assert_eq!(found(&all), expected);
        let one = doc! {
            "validateDBMetadata": 1, "apiParameters": &strict, "db": "test", "collection": "w",
        };
        assert!(found(&one).is_empty());
        let other = doc! {"validateDBMetadata": 1, "apiParameters": &strict, "db": "other"};
        assert!(found(&other).is_empty());
        let lax = doc! {"validateDBMetadata": 1, "apiParameters": {"version": "1"}};
        assert!(found(&lax).is_empty());
        for (command, code) in [
            (doc! {"validateDBMetadata": 1}, 40414),
            (
                doc! {"validateDBMetadata": 1, "apiParameters": {"version": "2"}},
                322,
            ),
            (
                doc! {"validateDBMetadata": 1, "apiParameters": {"version": "1", "x": 1}},
                40415,
            ),
            (
                doc! {"validateDBMetadata": 1, "apiParameters": {"strict": true}},
                40414,
            ),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
