use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};
use frond_replset::CommitQuorum;
use frond_store::index::spec::IndexSpec;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;

pub struct CreateIndexes;

const SPEC: Spec = Spec {
    names: &["createIndexes"],
    audits: Audited::Catalog,
    doc: "Creates indexes, also over existing documents.",
    fields: &[
        "collectionUUID",
        "indexes",
        "commitQuorum",
        "ignoreUnknownIndexOptions",
    ],
    unsupported_fields: &["isTimeseriesNamespace"],
    in_transactions: InTransactions::Always,
    ..Spec::CATALOG_WRITE
};

impl Command for CreateIndexes {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::CreateIndex)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let specs = cx.documents("indexes")?;
        if specs.is_empty() {
            return Err(Error::bad_value(
                "Must specify at least one index to create",
            ));
        }
        let ignore = args.flag("ignoreUnknownIndexOptions")? == Some(true);
        let known = |spec: &&Doc| {
            if ignore {
                IndexSpec::known(spec)
            } else {
                (*spec).to_owned()
            }
        };
        let quorum = quorum(cx)?;
        let specs: Vec<DocBuf> = specs.iter().map(known).collect();
        let specs: Vec<&Doc> = specs.iter().map(|spec| &**spec).collect();
        specs
            .iter()
            .try_for_each(|spec| IndexSpec::check_has_name(spec))?;
        let progress = cx.limits.progress.insert(Arc::default()).clone();
        cx.connection.running.lock().progress = Some(progress);
        let made = cx.store().build_indexes(&namespace, &specs, &cx.limits)?;
        if let Some(quorum) = quorum {
            await_quorum(cx, &quorum)?;
        }
        let mut reply = DocBuf::new();
        reply.push("numIndexesBefore", made.before as i32);
        reply.push("numIndexesAfter", made.after as i32);
        if made.before == made.after {
            reply.push("note", "all indexes already exist");
        } else {
            reply.push("createdCollectionAutomatically", made.created_collection);
        }
        Ok(reply)
    }
}

/// The members that must have the indexes before the reply, if the command names some and the server is in a set.
///
/// # Errors
/// `FailedToParse` (9), `UnsatisfiableCommitQuorum` (278), `UnknownReplWriteConcern` (79).
fn quorum(cx: &Context<'_>) -> Result<Option<CommitQuorum>> {
    let Some(given) = cx
        .args()
        .get("commitQuorum")
        .filter(|given| !given.is_nullish())
    else {
        return Ok(None);
    };
    let quorum = CommitQuorum::parse(&given)?;
    let set = cx.server.set.replication.as_ref();
    let Some(member) = set.and_then(|set| set.member()) else {
        return Ok(None);
    };
    quorum.check(&member.config)?;
    Ok(Some(quorum))
}

/// The interval of checks whether the command is interrupted.
const CHECK: Duration = Duration::from_millis(100);

/// Waits until the members have the indexes, whose entries they receive with the log.
fn await_quorum(cx: &Context<'_>, quorum: &CommitQuorum) -> Result<()> {
    let set = cx.server.set.replication.as_ref();
    let Some((member, consensus)) = set.and_then(|set| Some((set.member()?, set.consensus()?)))
    else {
        return Ok(());
    };
    let position = consensus.end_position();
    loop {
        cx.limits.check()?;
        let (quorum, config) = (quorum.clone(), member.config.clone());
        let has = move |ids: &BTreeSet<i32>| {
            // A mode that is gone meanwhile is not waited for.
            quorum
                .holds(&config, |member| ids.contains(&member.id))
                .unwrap_or(true)
        };
        let waited = consensus.held_by(position, has);
        let waited = async move { tokio::time::timeout(CHECK, waited).await };
        if let Ok(done) = consensus.wait_for(waited)? {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn indexes_are_made_once() {
        let mut server = TestServer::new();
        let command = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]};
        let made = doc! {
            "numIndexesBefore": 1, "numIndexesAfter": 2, "createdCollectionAutomatically": true,
            "ok": 1.0,
        };
        assert_eq!(server.run("test", command.clone()), made);
        let again = doc! {
            "numIndexesBefore": 2, "numIndexesAfter": 2, "note": "all indexes already exist",
            "ok": 1.0,
        };
        assert_eq!(server.run("test", command), again);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_indexes_are_refused() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}, {"a": 1}]},
        );
        let cases = [
            (doc! {"createIndexes": "c", "indexes": []}, 2),
            (doc! {"createIndexes": "c"}, 40414),
            (doc! {"createIndexes": "c", "indexes": [1]}, 14),
            (
                doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "u", "unique": true}]},
                11000,
            ),
            (
                doc! {"createIndexes": "c", "indexes": [{"key": {"a": "nonsense"}, "name": "x"}]},
                67,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
