//! Resources: what privileges are granted on, and what commands touch.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};

const SYSTEM: &str = "system.";
const BUCKETS: &str = "system.buckets.";

/// The resource pattern of a privilege.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `{anyResource: true}`: everything.
    AnyResource,
    /// `{db: "", collection: ""}`: every database and collection, except of `local`, `config` and system collections.
    AnyNormal,
    /// `{db: "d", collection: ""}`: a database and its collections, except of system collections.
    Database(String),
    /// `{db: "", collection: "c"}`: the collections of this name in all databases.
    CollectionInAny(String),
    /// `{db: "d", collection: "c"}`: one collection, which may be a system collection.
    Collection(String, String),
    /// `{cluster: true}`: the server as a whole.
    Cluster,
    /// `{db: "d", system_buckets: "c"}`: the buckets of time series. An empty name stands for all.
    SystemBuckets { db: String, collection: String },
}

/// The resource that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target<'a> {
    /// The server as a whole.
    Cluster,
    /// A database as a whole.
    Database(&'a str),
    /// A collection of a database.
    Collection(&'a str, &'a str),
    /// All normal databases and collections at once, as a change stream of the whole server.
    AnyNormal,
    /// Everything at once, as `applyOps` with operations that nothing describes.
    AnyResource,
}

/// The kind of a collection, which decides what patterns cover it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Normal,
    System,
    /// The buckets of this time series.
    Buckets(&'a str),
}

/// The kind of a collection.
pub(crate) fn kind<'a>(db: &str, collection: &'a str) -> Kind<'a> {
    match collection.strip_prefix(BUCKETS) {
        Some(series) if !series.is_empty() => Kind::Buckets(series),
        _ if collection.starts_with(SYSTEM) => Kind::System,
        // Configuration of replica sets before MongoDB 3.0, and internal state of today.
        _ if db == "local" && collection.starts_with("replset.") => Kind::System,
        _ => Kind::Normal,
    }
}

/// Whether privileges on a database as a whole cover a collection of it: not if it is one of the system's.
pub fn is_normal_collection(db: &str, collection: &str) -> bool {
    kind(db, collection) == Kind::Normal
}

/// Whether a pattern for all normal databases covers a database.
pub(crate) fn is_normal_database(db: &str) -> bool {
    db != "local" && db != "config"
}

impl Resource {
    /// Whether a privilege on this resource is one on the target.
    pub fn covers(&self, target: &Target<'_>) -> bool {
        match (self, *target) {
            (Resource::AnyResource, _) => true,
            (Resource::Cluster, Target::Cluster) => true,
            (Resource::AnyNormal, Target::AnyNormal) => true,
            (Resource::AnyNormal, Target::Database(db)) => is_normal_database(db),
            (Resource::AnyNormal, Target::Collection(db, collection)) => {
                is_normal_database(db) && kind(db, collection) == Kind::Normal
            }
            (Resource::Database(own), Target::Database(db)) => own == db,
            (Resource::Database(own), Target::Collection(db, collection)) => {
                own == db && kind(db, collection) == Kind::Normal
            }
            (Resource::CollectionInAny(own), Target::Collection(_, collection)) => {
                own == collection
            }
            (Resource::Collection(own_db, own), Target::Collection(db, collection)) => {
                own_db == db && own == collection
            }
            (
                Resource::SystemBuckets {
                    db: own_db,
                    collection: own,
                },
                Target::Collection(db, collection),
            ) => match kind(db, collection) {
                Kind::Buckets(series) => {
                    (own_db.is_empty() || own_db == db) && (own.is_empty() || own == series)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Reads the field `resource` of a privilege.
    ///
    /// # Errors
    /// `BadValue` if the fields do not describe one resource.
    pub fn parse(doc: &Doc) -> Result<Resource> {
        let text = |field: &str| match doc.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Error::type_mismatch(format!(
                "BSON field 'resource.{field}' is the wrong type '{}', expected type 'string'",
                other.type_name()
            ))),
        };
        for (name, resource) in [
            ("cluster", Resource::Cluster),
            ("anyResource", Resource::AnyResource),
        ] {
            let Some(value) = doc.get(name) else {
                continue;
            };
            if !matches!(value, Value::Bool(_)) && !value.is_number() {
                return Err(Error::type_mismatch(format!(
                    "BSON field 'resource.{name}' is the wrong type '{}', expected types \
                     '[bool, long, int, decimal, double]'",
                    value.type_name()
                )));
            }
            if !value.truthy() {
                return Err(Error::bad_value(format!(
                    "resource: {{{name}: false}} must be true"
                )));
            }
            let others = [
                "cluster",
                "anyResource",
                "db",
                "collection",
                "system_buckets",
            ];
            for other in others.iter().filter(|it| **it != name) {
                if doc.contains_key(other) {
                    return Err(conflict(&format!("resource: {{{name}: true}}"), other));
                }
            }
            return Ok(resource);
        }
        let db = text("db")?;
        match (db, text("collection")?, text("system_buckets")?) {
            (_, Some(_), Some(_)) => {
                Err(conflict("resource: {collection: '...'}", "system_buckets"))
            }
            (None, Some(_), None) => Err(Error::bad_value(
                "resource {collection: '...'} must include 'db' field as well",
            )),
            (Some(db), Some(collection), None) => {
                if !is_valid_collection(db, collection) {
                    return Err(Error::bad_value(format!(
                        "'{collection}' is not a valid collection name"
                    )));
                }
                Ok(match (db.is_empty(), collection.is_empty()) {
                    (true, true) => Resource::AnyNormal,
                    (true, false) => Resource::CollectionInAny(collection.into()),
                    (false, true) => Resource::Database(db.into()),
                    (false, false) => Resource::Collection(db.into(), collection.into()),
                })
            }
            (db, None, Some(collection)) => Ok(Resource::SystemBuckets {
                db: db.unwrap_or_default().into(),
                collection: collection.into(),
            }),
            (_, None, None) => Err(Error::bad_value(
                "resource pattern must contain 'collection' or 'systemBuckets' specifier",
            )),
        }
    }

    /// The document that describes the resource.
    pub fn to_doc(&self) -> DocBuf {
        match self {
            Resource::AnyResource => doc! {"anyResource": true},
            Resource::Cluster => doc! {"cluster": true},
            Resource::AnyNormal => doc! {"db": "", "collection": ""},
            Resource::Database(db) => doc! {"db": db.as_str(), "collection": ""},
            Resource::CollectionInAny(collection) => {
                doc! {"db": "", "collection": collection.as_str()}
            }
            Resource::Collection(db, collection) => {
                doc! {"db": db.as_str(), "collection": collection.as_str()}
            }
            Resource::SystemBuckets { db, collection } if db.is_empty() => {
                doc! {"system_buckets": collection.as_str()}
            }
            Resource::SystemBuckets { db, collection } => {
                doc! {"db": db.as_str(), "system_buckets": collection.as_str()}
            }
        }
    }

    /// The database that the resource lies in, if it lies in one.
    pub fn database(&self) -> Option<&str> {
        match self {
            Resource::Database(db) | Resource::Collection(db, _) => Some(db),
            Resource::SystemBuckets { db, .. } if !db.is_empty() => Some(db),
            _ => None,
        }
    }
}

fn conflict(resource: &str, field: &str) -> Error {
    Error::bad_value(format!("{resource} conflicts with resource type '{field}'"))
}

fn is_valid_collection(db: &str, collection: &str) -> bool {
    let is_common = !collection.starts_with('.') && !collection.contains(['$', '\0']);
    is_common || (db == "local" && collection == "oplog.$main")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(db: &str, collection: &str) -> Resource {
        Resource::SystemBuckets {
            db: db.into(),
            collection: collection.into(),
        }
    }

    /// A resource, the targets that it covers, and targets that it does not cover.
    #[test]
    fn a_resource_covers_what_mongodb_says() {
        use Target::{AnyNormal, AnyResource, Cluster, Collection, Database};
        let all = [
            Cluster,
            AnyNormal,
            AnyResource,
            Database("a"),
            Database("b"),
            Database("admin"),
            Database("local"),
            Database("config"),
            Collection("a", "c"),
            Collection("a", "d"),
            Collection("b", "c"),
            Collection("a", "systematic"),
            Collection("a", "system.js"),
            Collection("a", "system.views"),
            Collection("b", "system.js"),
            Collection("a", "system.buckets.c"),
            Collection("a", "system.buckets.d"),
            Collection("b", "system.buckets.c"),
            Collection("a", "system.buckets."),
            Collection("admin", "c"),
            Collection("admin", "system.users"),
            Collection("local", "c"),
            Collection("local", "oplog.rs"),
            Collection("local", "replset.election"),
            Collection("local", "system.replset"),
            Collection("config", "c"),
            Collection("config", "system.sessions"),
        ];
        let normal = [
            AnyNormal,
            Database("a"),
            Database("b"),
            Database("admin"),
            Collection("a", "c"),
            Collection("a", "d"),
            Collection("b", "c"),
            Collection("a", "systematic"),
            Collection("admin", "c"),
        ];
        let table: [(Resource, &[Target<'_>]); 13] = [
            (Resource::AnyResource, &all),
            (Resource::Cluster, &[Cluster]),
            (Resource::AnyNormal, &normal),
            (
                Resource::Database("a".into()),
                &[
                    Database("a"),
                    Collection("a", "c"),
                    Collection("a", "d"),
                    Collection("a", "systematic"),
                ],
            ),
            (
                Resource::Database("local".into()),
                &[
                    Database("local"),
                    Collection("local", "c"),
                    Collection("local", "oplog.rs"),
                ],
            ),
            (
                Resource::CollectionInAny("c".into()),
                &[
                    Collection("a", "c"),
                    Collection("b", "c"),
                    Collection("admin", "c"),
                    Collection("local", "c"),
                    Collection("config", "c"),
                ],
            ),
            (
                Resource::CollectionInAny("system.js".into()),
                &[Collection("a", "system.js"), Collection("b", "system.js")],
            ),
            (
                Resource::Collection("a".into(), "c".into()),
                &[Collection("a", "c")],
            ),
            (
                Resource::Collection("admin".into(), "system.users".into()),
                &[Collection("admin", "system.users")],
            ),
            (
                buckets("", ""),
                &[
                    Collection("a", "system.buckets.c"),
                    Collection("a", "system.buckets.d"),
                    Collection("b", "system.buckets.c"),
                ],
            ),
            (
                buckets("a", ""),
                &[
                    Collection("a", "system.buckets.c"),
                    Collection("a", "system.buckets.d"),
                ],
            ),
            (
                buckets("", "c"),
                &[
                    Collection("a", "system.buckets.c"),
                    Collection("b", "system.buckets.c"),
                ],
            ),
            (buckets("a", "c"), &[Collection("a", "system.buckets.c")]),
        ];
        for (resource, covered) in table {
            for target in &all {
                assert_eq!(
                    resource.covers(target),
                    covered.contains(target),
                    "{resource:?} {target:?}"
                );
            }
        }
    }

    #[test]
    fn documents_are_read_back() {
        for resource in [
            Resource::AnyResource,
            Resource::Cluster,
            Resource::AnyNormal,
            Resource::Database("a".into()),
            Resource::CollectionInAny("c".into()),
            Resource::Collection("a".into(), "c".into()),
            Resource::Collection("local".into(), "oplog.$main".into()),
            buckets("", ""),
            buckets("a", ""),
            buckets("", "c"),
            buckets("a", "c"),
        ] {
            assert_eq!(Resource::parse(&resource.to_doc()), Ok(resource));
        }
    }

    #[test]
    fn what_describes_no_resource_is_refused() {
        for (doc, message) in [
            (doc! {}, "must contain 'collection'"),
            (doc! {"db": "a"}, "must contain 'collection'"),
            (doc! {"collection": "c"}, "must include 'db'"),
            (doc! {"cluster": false}, "must be true"),
            (doc! {"cluster": "yes"}, "wrong type 'string'"),
            (doc! {"cluster": true, "db": ""}, "conflicts"),
            (doc! {"anyResource": true, "collection": "c"}, "conflicts"),
            (doc! {"anyResource": true, "cluster": true}, "conflicts"),
            (
                doc! {"db": "", "collection": "", "system_buckets": ""},
                "conflicts",
            ),
            (doc! {"db": 1, "collection": ""}, "wrong type 'int'"),
            (
                doc! {"db": "a", "collection": "$c"},
                "not a valid collection",
            ),
        ] {
            let message_of = Resource::parse(&doc)
                .expect_err(message)
                .message()
                .to_owned();
            assert!(message_of.contains(message), "{doc:?}: {message_of}");
        }
    }
}
