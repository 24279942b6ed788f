use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};
use frond_store::Namespace;

use crate::audit::Audited;
use crate::authorization::{
    Action, ActionSet, Needs, Place, Requested, is_normal_collection, split,
};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors;

pub struct RenameCollection;

const SPEC: Spec = Spec {
    names: &["renameCollection"],
    audits: Audited::Catalog,
    doc: "Renames a collection.",
    // Old drivers send `stayTemp`, which has no effect here.
    fields: &["collectionUUID", "to", "dropTarget", "stayTemp"],
    on_collection: false,
    admin_only: true,
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for RenameCollection {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let name = |field| args.str(field)?.ok_or_else(|| args.missing(field));
        let (from, to) = (name("renameCollection")?, name("to")?);
        let dropped = args.bool("dropTarget")?.unwrap_or(false);
        needs(from, to, dropped)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let name = |field| args.str(field)?.ok_or_else(|| args.missing(field));
        let from = Namespace::parse(name("renameCollection")?)?;
        let to = Namespace::parse(name("to")?)?;
        cx.check_uuid(&from)?;
        let is_profile = from.coll() == "system.profile";
        if is_profile && cx.server.records.profiler.level(from.db()).level != 0 {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "turn off profiling before renaming system.profile collection",
            ));
        }
        let drop_target = args.bool("dropTarget")?.unwrap_or(false);
        let (uuid, replaced) = (cx.store().uuid_of(&from), cx.store().uuid_of(&to));
        cx.store().rename_collection(&from, &to, drop_target)?;
        if let Some(uuid) = replaced {
            cx.server
                .clients
                .cursors
                .end(to.as_str(), &cursors::dropped(&uuid));
        }
        if let Some(uuid) = uuid {
            let why = cursors::renamed(from.as_str(), to.as_str(), &uuid);
            cx.server.clients.cursors.end(from.as_str(), &why);
        }
        cx.server.metrics.forget(from.as_str());
        Ok(DocBuf::new())
    }
}

/// Within one database there is a privilege to rename; otherwise it is copying and dropping. Dropping what has the new
/// name needs the privilege to do so in both cases.
fn needs<'a>(from: &'a str, to: &'a str, drops_target: bool) -> Result<Needs<'a>> {
    let ((db, name), (to_db, to_name)) = (split(from)?, split(to)?);
    let dropping = Needs::on_namespace(to, Action::DropCollection)?;
    let mut written = ActionSet::from_actions(&[Action::Insert, Action::CreateIndex]);
    if drops_target {
        written.insert(Action::DropCollection);
    }
    let copied = Needs::on_namespace(from, [Action::Find, Action::DropCollection])?
        .and(Needs::on_namespace(to, written)?);
    if db != to_db || !is_normal_collection(db, name) || !is_normal_collection(to_db, to_name) {
        return Ok(copied);
    }
    // A rename must not make a collection readable to its user.
    let reading = Needs::on_namespace(from, Action::Find)?;
    let mut renamed = Needs::on(Place::database(db), Action::RenameCollectionSameDb)
        .and(reading.if_allowed(Needs::on_namespace(to, Action::Find)?));
    if drops_target {
        renamed = renamed.and(dropping);
    }
    Ok(renamed.or(copied))
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collection_moves() {
        let mut server = TestServer::new();
        server.run("test", doc! {"insert": "a", "documents": [{"_id": 1}]});
        server.run("test", doc! {"create": "taken"});
        let cases = [
            (doc! {"renameCollection": "test.a", "to": "test.taken"}, 48),
            (doc! {"renameCollection": "test.none", "to": "test.x"}, 26),
            (doc! {"renameCollection": "test.a"}, 40414),
            (doc! {"renameCollection": "a", "to": "test.x"}, 73),
            (doc! {"renameCollection": 1, "to": "test.x"}, 14),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
        let rename = doc! {"renameCollection": "test.a", "to": "test.taken", "dropTarget": true};
        assert_eq!(server.code("test", rename.clone()), 13);
        server.run("admin", rename);
        assert_eq!(
            server.run("test", doc! {"count": "taken"}).get_i32("n"),
            Some(1)
        );
        assert_eq!(
            server.run("test", doc! {"count": "a"}).get_i32("n"),
            Some(0)
        );
    }
}
