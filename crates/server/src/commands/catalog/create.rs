use frond_bson::{Doc, DocBuf};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested, of_view};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;

/// Fields that all commands share and that are not options of the collection.
const COMMON: [&str; 14] = [
    "create",
    "$db",
    "lsid",
    "comment",
    "writeConcern",
    "maxTimeMS",
    "$readPreference",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "readConcern",
    "txnNumber",
    "startTransaction",
    "autocommit",
];

pub struct Create;

const SPEC: Spec = Spec {
    names: &["create"],
    audits: Audited::Catalog,
    doc: "Creates a collection.",
    in_transactions: InTransactions::Always,
    // The store reads the options and refuses unknown ones by name.
    takes_any_field: true,
    ..Spec::CATALOG_WRITE
};

impl Command for Create {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let created = Needs::on_collection(request, Action::CreateCollection)?;
        let args = request.args();
        let mut needs = match args.str("viewOn")? {
            Some(source) => {
                let stages = args.array("pipeline")?.unwrap_or(Doc::empty());
                created.and(of_view(request, source, stages)?)
            }
            None => created.or(Needs::on_collection(request, Action::Insert)?),
        };
        if args.get("capped").is_some_and(|capped| capped.truthy()) {
            needs = needs.and(Needs::on_collection(request, Action::ConvertToCapped)?);
        }
        Ok(needs)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let mut options = DocBuf::new();
        for (name, value) in cx.body.iter() {
            if !COMMON.contains(&name) && name != "$clusterTime" {
                options.push(name, value);
            }
        }
        // Outside of transactions a collection with the same options may be created again.
        if cx.statement.is_some() && cx.store().uuid_of(&namespace).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        cx.store().create_collection(&namespace, &options)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn names_and_options_are_checked() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("test", doc! {"create": "c", "comment": "x"}),
            doc! {"ok": 1.0}
        );
        // Creating it again with the same options succeeds, as in MongoDB.
        assert_eq!(server.run("test", doc! {"create": "c"}), doc! {"ok": 1.0});
        let cases = [
            (doc! {"create": ""}, 73),
            (doc! {"create": 1}, 73),
            (doc! {"create": "a$b"}, 73),
            (doc! {"create": "d", "capped": true}, 72),
            (doc! {"create": "d", "nonsense": 1}, 40415),
            (doc! {"create": "d", "writeConcern": {"w": 3}}, 2),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
