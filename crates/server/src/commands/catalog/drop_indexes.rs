use frond_bson::{DocBuf, Value, doc};
use frond_error::Result;
use frond_store::IndexSelector;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct DropIndexes;

const SPEC: Spec = Spec {
    names: &["dropIndexes", "deleteIndexes"],
    audits: Audited::Catalog,
    doc: "Drops indexes.",
    fields: &["collectionUUID", "index"],
    unsupported_fields: &["isTimeseriesNamespace"],
    ..Spec::CATALOG_WRITE
};

impl Command for DropIndexes {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::DropIndex)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let index = args.get("index").ok_or_else(|| args.missing("index"))?;
        let wrong =
            |value: &Value<'_>| args.wrong_type("index", value, "types '[array, object, string]'");
        let which = match index {
            Value::String("*") => IndexSelector::All,
            Value::String(name) => IndexSelector::Name(name.to_string()),
            Value::Document(key) => IndexSelector::Key(key.to_owned()),
            Value::Array(list) => {
                let mut names = Vec::new();
                for value in list.values() {
                    names.push(value.as_str().ok_or_else(|| wrong(&value))?.to_string());
                }
                IndexSelector::Names(names)
            }
            other => return Err(wrong(&other)),
        };
        let were = cx.store().drop_indexes(&namespace, &which)?;
        let mut reply = doc! {"nIndexesWas": were as i32};
        if matches!(which, IndexSelector::All) {
            reply.push("msg", "non-_id indexes dropped for collection");
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_go_by_name_key_list_and_all() {
        let mut server = TestServer::new();
        let make = doc! {"createIndexes": "c", "indexes": [
            {"key": {"a": 1}, "name": "a_1"}, {"key": {"b": 1}, "name": "b_1"},
            {"key": {"c": 1}, "name": "c_1"}, {"key": {"d": 1}, "name": "d_1"},
        ]};
        server.run("test", make);
        let cases = [
            (doc! {"dropIndexes": "c", "index": "a_1"}, 5),
            (doc! {"deleteIndexes": "c", "index": {"b": 1}}, 4),
            (doc! {"dropIndexes": "c", "index": ["c_1"]}, 3),
            (doc! {"dropIndexes": "c", "index": "*"}, 2),
        ];
        for (command, were) in cases {
            assert_eq!(
                server.run("test", command).get_i32("nIndexesWas"),
                Some(were)
            );
        }
        let wrong = [
            (doc! {"dropIndexes": "c", "index": "none"}, 27),
            (doc! {"dropIndexes": "c", "index": "_id_"}, 72),
            (doc! {"dropIndexes": "c", "index": 1}, 14),
            (doc! {"dropIndexes": "c"}, 40414),
            (doc! {"dropIndexes": "none", "index": "x"}, 26),
        ];
        for (command, code) in wrong {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
