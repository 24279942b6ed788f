//! The built-in roles against the manual.
#![allow(clippy::expect_used)]

use std::collections::HashSet;

use super::*;
use crate::action::Action;
use crate::privileges::Privileges;
use crate::resource::Target;

/// A role, its database, a target, and actions that the role has there, or has not (`!`).
const CASES: &str = "\
read a a.c find listIndexes changeStream !insert !createIndex
read a a listCollections dbStats dbHash !dropDatabase
read a b.c !find
read a a.system.js find !insert
read a a.system.profile !find
read a a.system.views !find
read local local.oplog.rs find !insert
read local local.system.replset !find
readWrite a a.c find insert update remove createIndex dropCollection !collMod !validate
readWrite a a.system.js find insert remove !collMod
readWrite a a renameCollectionSameDB !dropDatabase !createUser
readWrite admin admin.system.users !find !insert
dbAdmin a a.c collMod validate configureQueryAnalyzer planCacheWrite !find !insert !remove
dbAdmin a a dropDatabase enableProfiler !createUser
dbAdmin a a.system.profile find dropCollection !insert !remove
userAdmin a a createUser grantRole revokeRole viewUser setAuthenticationRestriction !listCollections
userAdmin a b !createUser
dbOwner a a createUser dropDatabase find insert !shutdown
dbOwner a a.system.views !find
enableSharding a b.c enableSharding reshardCollection !find
readAnyDatabase admin z.c find collStats !insert
readAnyDatabase admin local.oplog.rs !find
readAnyDatabase admin config.c !find
readAnyDatabase admin z.system.js find !insert
readAnyDatabase admin z.system.buckets.t find !insert
readAnyDatabase admin cluster listDatabases !serverStatus
readWriteAnyDatabase admin z.c find insert !collMod
readWriteAnyDatabase admin admin.system.users !find !insert
userAdminAnyDatabase admin z createUser listCachedAndActiveUsers !find
userAdminAnyDatabase admin local viewUser !listCachedAndActiveUsers
userAdminAnyDatabase admin admin.system.users find createIndex !insert !remove
userAdminAnyDatabase admin z.system.users find !createIndex
userAdminAnyDatabase admin admin.system.version find !update
userAdminAnyDatabase admin cluster invalidateUserCache viewUser !shutdown
dbAdminAnyDatabase admin z.system.profile find !insert
dbAdminAnyDatabase admin z.system.buckets.t collMod !configureQueryAnalyzer !find
dbAdminAnyDatabase admin cluster applyOps listDatabases !serverStatus
clusterMonitor admin cluster serverStatus inprog listDatabases getLog !killop !shutdown
clusterMonitor admin local.oplog.rs find indexStats !insert
clusterMonitor admin local.replset.election find !insert
clusterMonitor admin z.c collStats !find
clusterMonitor admin config.system.sessions collStats !find
hostManager admin cluster shutdown killop setParameter rotateCertificates !serverStatus
hostManager admin z.c killCursors !find
clusterManager admin cluster replSetConfigure setDefaultRWConcern !shutdown
clusterManager admin config.c find insert update remove !dropCollection
clusterManager admin z.system.views dbCheck !find
clusterAdmin admin z dropDatabase !find
clusterAdmin admin cluster shutdown serverStatus replSetConfigure !anyAction
backup admin admin.system.users find !insert
backup admin local.oplog.rs find !insert
backup admin config.settings find insert update !remove
backup admin z.system.views collStats listIndexes !find
restore admin z.c insert createIndex collMod !find !update !remove
restore admin admin.system.users find insert update remove
restore admin admin.system.roles createIndex !find !insert
restore admin admin.tempusers find insert !update
restore admin z createUser grantRole dropRole
root admin z.c find insert collMod validate !anyAction
root admin z.system.views validate listIndexes !insert
root admin admin.system.users find insert
root admin config.system.preimages find remove !insert
root admin cluster shutdown serverStatus applyOps issueDirectShardOperations !internal !anyAction
searchCoordinator admin __mdb_internal_search.c insert find !collMod
searchCoordinator admin z.c find !insert
directShardOperations admin cluster issueDirectShardOperations !listDatabases
__system admin cluster internal anyAction shutdown
__system admin local.system.replset find insert remove";

fn privileges(name: &str, db: &str) -> Privileges {
    let found = builtin(&UserName::new(name, db));
    Privileges::new(found.unwrap_or_else(|| panic!("{name} in {db}")))
}

#[test]
fn every_database_has_the_roles_of_the_manual() {
    let everywhere = [
        "read",
        "readWrite",
        "dbAdmin",
        "dbOwner",
        "userAdmin",
        "enableSharding",
    ];
    assert_eq!(names("test").collect::<Vec<_>>(), everywhere);
    let in_admin: HashSet<_> = names("admin").collect();
    assert_eq!(in_admin.len(), ROLES.len());
    for name in [
        "clusterAdmin",
        "clusterManager",
        "clusterMonitor",
        "hostManager",
        "directShardOperations",
        "backup",
        "restore",
        "readAnyDatabase",
        "readWriteAnyDatabase",
        "userAdminAnyDatabase",
        "dbAdminAnyDatabase",
        "root",
        "searchCoordinator",
        "__queryableBackup",
        "__system",
    ] {
        assert!(in_admin.contains(name), "{name}");
        assert!(!is_builtin(&UserName::new(name, "test")), "{name}");
        assert!(builtin(&UserName::new(name, "test")).is_none(), "{name}");
    }
    for name in everywhere {
        assert!(in_admin.contains(name), "{name}");
    }
    assert_eq!(names("$external").count(), 0);
    assert!(builtin(&UserName::new("read", "$external")).is_none());
    assert!(builtin(&UserName::new("Read", "test")).is_none());
}

#[test]
fn the_table_inherits_from_roles_that_exist_and_grants_something() {
    for role in ROLES {
        for (name, db) in role.inherits {
            assert!(definition(name, db.unwrap_or(ADMIN)).is_some(), "{name}");
        }
        let own = builtin(&UserName::new(role.name, ADMIN)).unwrap_or_default();
        assert!(!own.is_empty(), "{}", role.name);
        let resources: HashSet<_> = own.iter().map(|one| &one.resource).collect();
        assert_eq!(resources.len(), own.len(), "{}", role.name);
    }
}

#[test]
fn privileges_are_those_of_the_manual() {
    for line in CASES.lines() {
        let mut words = line.split_whitespace();
        let mut next = || words.next().expect(line);
        let (role, db, on) = (next(), next(), next());
        let target = match on.split_once('.') {
            _ if on == "cluster" => Target::Cluster,
            Some((db, collection)) => Target::Collection(db, collection),
            None => Target::Database(on),
        };
        let privileges = privileges(role, db);
        for word in words {
            let (has, name) = match word.strip_prefix('!') {
                Some(name) => (false, name),
                None => (true, word),
            };
            let action = Action::parse(name).expect(word);
            assert_eq!(privileges.allows(&target, action), has, "{line}: {name}");
        }
    }
}
