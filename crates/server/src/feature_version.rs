//! The document with the feature compatibility version, which tools and agents read.

use frond_bson::doc;
use frond_error::{ErrorCode, Result};
use frond_store::{DocumentStore, FEATURE_COMPATIBILITY_ID, FEATURE_COMPATIBILITY_VERSION};

use crate::access::stored::VERSION;
use crate::internal_collections::{find_one, replace_one};
use crate::observability::log::Component;
use crate::state::Server;

/// Stores the document at the start. The server starts without it, too: the disk may be full. A secondary
/// has that of the primary.
pub fn write(server: &Server) {
    if !server.leads() {
        return;
    }
    if let Err(error) = ensure(&server.store) {
        server.log.warning(
            Component::Storage,
            9_100_048,
            "initandlisten",
            "The feature compatibility version could not be written to admin.system.version",
            &doc! {"error": error.to_string()},
        );
    }
}

/// Stores the document unless it is there.
///
/// # Errors
/// Errors of the store.
pub fn ensure(store: &DocumentStore) -> Result<()> {
    let id = doc! {"_id": FEATURE_COMPATIBILITY_ID};
    if find_one(store, VERSION.parts, id)?.is_some() {
        return Ok(());
    }
    let document = doc! {
        "_id": FEATURE_COMPATIBILITY_ID,
        "version": FEATURE_COMPATIBILITY_VERSION,
    };
    match replace_one(store, VERSION.parts, FEATURE_COMPATIBILITY_ID, &document) {
        // Another server of the cluster was faster.
        Err(error) if error.code() == ErrorCode::DuplicateKey => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_feature_compatibility_version_can_be_read_and_not_changed() {
        let mut server = TestServer::new();
        let fcv = doc! {"_id": "featureCompatibilityVersion", "version": "8.0"};
        write(&server.server);
        write(&server.server);
        for filter in [doc! {}, doc! {"_id": "featureCompatibilityVersion"}] {
            let reply = server.run("admin", doc! {"find": "system.version", "filter": filter});
            assert_eq!(
                server.batch(&reply, "firstBatch"),
                std::slice::from_ref(&fcv)
            );
        }
        let set = |version: &str| doc! {"$set": {"version": version}};
        let id = doc! {"_id": "featureCompatibilityVersion"};
        let update = |version: &str| {
            doc! {"update": "system.version", "updates": [{"q": &id, "u": &set(version)}]}
        };
        let delete = |filter: frond_bson::DocBuf| doc! {"delete": "system.version", "deletes": [{"q": &filter, "limit": 0}]};
        let cases = [
            (update("7.0"), 4_926_900),
            (
                doc! {"findAndModify": "system.version", "query": &id, "update": &set("7.0")},
                4_926_900,
            ),
            (
                doc! {"findAndModify": "system.version", "query": &id, "remove": true},
                40670,
            ),
            (
                doc! {"insert": "system.version", "documents": [{"_id": "featureCompatibilityVersion", "version": "7.0"}]},
                4_926_900,
            ),
            // That of a dump is equal, and there already.
            (
                doc! {"insert": "system.version", "documents": [&fcv]},
                11000,
            ),
            (delete(doc! {}), 40670),
            (doc! {"drop": "system.version"}, 50755),
            (doc! {"dropDatabase": 1}, 20),
            (
                doc! {"renameCollection": "admin.system.version", "to": "admin.x"},
                50755,
            ),
            (
                doc! {"renameCollection": "admin.x", "to": "admin.system.version", "dropTarget": true},
                50755,
            ),
        ];
        server.run("admin", doc! {"insert": "x", "documents": [{"_id": 1}]});
        for (command, code) in cases {
            let reply = server.reply("admin", command.clone());
            let of_write = reply
                .get_array("writeErrors")
                .and_then(|errors| errors.values().next()?.as_doc()?.get_i32("code"));
            assert_eq!(
                reply.get_i32("code").or(of_write),
                Some(code),
                "{command:?}: {reply:?}"
            );
        }
        // Writes that change nothing, and those of other documents of the collection, are allowed.
        server.run("admin", update("8.0"));
        server.run("admin", doc! {"insert": "system.version", "documents": [{"_id": "authSchema", "currentVersion": 5}]});
        server.run("admin", delete(doc! {"_id": "authSchema"}));
        let reply = server.run("admin", doc! {"find": "system.version"});
        assert_eq!(server.batch(&reply, "firstBatch"), [fcv]);
    }
}
