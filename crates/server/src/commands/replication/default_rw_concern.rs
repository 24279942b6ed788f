//! `getDefaultRWConcern` and `setDefaultRWConcern`: the read and write concern of commands that have none.

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::concern::{Level, ReadConcern, ReadPlace, WriteConcern};
use crate::context::Context;
use crate::replication::Replication;
use frond_runtime::{AdmissionClass, Work};

fn replica_set<'a>(cx: &Context<'a>) -> Result<&'a Replication> {
    cx.server.set.replication.as_ref().ok_or_else(|| {
        Error::new(
            ErrorCode::IllegalOperation,
            format!("'{}' is not supported on a standalone server", cx.name),
        )
    })
}

pub struct GetDefaultRwConcern;

const GET_DEFAULT_RW_CONCERN: Spec = Spec {
    names: &["getDefaultRWConcern"],
    doc: "Returns the default read and write concern.",
    // There is one copy of the defaults, in memory.
    fields: &["inMemory"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetDefaultRwConcern {
    fn spec(&self) -> &'static Spec {
        &GET_DEFAULT_RW_CONCERN
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::GetDefaultRwConcern))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx)?;
        cx.args().bool("inMemory")?;
        Ok(set.defaults.describe())
    }
}

pub struct SetDefaultRwConcern;

const SET_DEFAULT_RW_CONCERN: Spec = Spec {
    names: &["setDefaultRWConcern"],
    audits: Audited::Itself,
    doc: "Sets the default read and write concern.",
    fields: &["defaultReadConcern", "defaultWriteConcern"],
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for SetDefaultRwConcern {
    fn spec(&self) -> &'static Spec {
        &SET_DEFAULT_RW_CONCERN
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::SetDefaultRwConcern))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx)?;
        let member = set.initiated()?;
        let read = cx.args().doc_field("defaultReadConcern")?;
        let write = cx.args().doc_field("defaultWriteConcern")?;
        if read.is_none() && write.is_none() {
            return Err(Error::bad_value(
                "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
            ));
        }
        if let Some(read) = read.filter(|read| !read.is_empty()) {
            check_read(read)?;
        }
        if let Some(write) = write.filter(|write| !write.is_empty()) {
            let parsed =
                WriteConcern::parse(write, cx.server.settings.journal, Some(&member.config))?;
            if write.get("w").is_none() {
                return Err(Error::bad_value(
                    "'defaultWriteConcern' must be specified with a 'w' value",
                ));
            }
            if !parsed.acknowledged {
                return Err(Error::bad_value(
                    "Default write concern must not be unacknowledged: 'w' must not be 0",
                ));
            }
            if let Some(error) = parsed.unsatisfiable {
                return Err(error);
            }
        }
        set.defaults.set(&cx.server.store, read, write)?;
        Ok(set.defaults.describe())
    }
}

fn check_read(read: &Doc) -> Result<()> {
    let place = ReadPlace {
        command: "find",
        replicated: true,
        in_transaction: false,
    };
    let parsed = ReadConcern::parse(read, place)?;
    let is_level = matches!(parsed.level, Some(Level::Local | Level::Majority));
    if !is_level || read.count() > 1 {
        return Err(Error::bad_value(
            "Default read concern must have the level 'local', 'available' or 'majority', and nothing else",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;
    use frond_store::Durability;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_defaults_are_majority_until_they_are_set() {
        let mut server = TestServer::new();
        assert_eq!(server.code("admin", doc! {"getDefaultRWConcern": 1}), 20);
        let set = doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1}};
        assert_eq!(server.code("admin", set.clone()), 20);

        let mut server = TestServer::member("rs0");
        server.run("admin", doc! {"replSetInitiate": {}});
        let defaults = server.run("admin", doc! {"getDefaultRWConcern": 1});
        let write = doc! {"w": "majority", "wtimeout": 0};
        assert_eq!(defaults.get_doc("defaultWriteConcern"), Some(&*write));
        assert_eq!(
            defaults.get_str("defaultWriteConcernSource"),
            Some("implicit")
        );
        for (wrong, code) in [
            (doc! {"setDefaultRWConcern": 1}, 2),
            (
                doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 0}},
                2,
            ),
            (
                doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 2}},
                100,
            ),
            (
                doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"j": true}},
                2,
            ),
            (
                doc! {"setDefaultRWConcern": 1, "defaultReadConcern": {"level": "x"}},
                2,
            ),
        ] {
            assert_eq!(server.code("admin", wrong.clone()), code, "{wrong:?}");
        }
        server.run("admin", set);
        let read = doc! {"setDefaultRWConcern": 1, "defaultReadConcern": {"level": "majority"}};
        let defaults = server.run("admin", read);
        assert_eq!(
            defaults.get_doc("defaultWriteConcern"),
            Some(&*doc! {"w": 1})
        );
        assert_eq!(defaults.get_str("defaultReadConcernSource"), Some("global"));
        let parsed = server
            .server
            .set
            .replication
            .as_ref()
            .unwrap()
            .defaults
            .with_write_concern(|concern| {
                WriteConcern::parse(concern, true, None).unwrap().durability
            });
        assert_eq!(parsed, Durability::Logged);
        let unset = doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {}};
        assert_eq!(server.code("admin", unset), 20);
    }
}
