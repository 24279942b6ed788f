//! The built-in roles of MongoDB 8, and the privileges that each of them grants.
//!
//! Most roles exist in the database `admin` only. The others exist in every database, and grant privileges on their own.

use crate::action::Action::*;
use crate::action::ActionSet;
use crate::name::UserName;
use crate::privileges::{Privilege, merge};
use crate::resource::Resource;

/// The database of the roles that concern more than one database.
const ADMIN: &str = "admin";

/// The database of users that another authority vouches for. It has no roles.
const EXTERNAL: &str = "$external";

struct Definition {
    name: &'static str,
    admin_only: bool,
    /// The roles that it inherits from, each in the role's own database or in another one.
    inherits: &'static [(&'static str, Option<&'static str>)],
    grants: &'static [(On, ActionSet)],
}

/// The resource of a built-in role's privilege.
enum On {
    /// Everything, system collections included.
    Everything,
    /// All normal collections of all databases but `local` and `config`.
    AnyNormal,
    /// The server as a whole.
    Cluster,
    /// The normal collections of the role's own database.
    Own,
    /// A system collection of the role's own database.
    OwnCollection(&'static str),
    /// The normal collections of a database.
    Database(&'static str),
    Collection(&'static str, &'static str),
    /// A collection in any database.
    InAnyDatabase(&'static str),
    /// The buckets of all time series.
    AnyBuckets,
}

impl On {
    fn resource(&self, own: &str) -> Resource {
        match self {
            On::Everything => Resource::AnyResource,
            On::AnyNormal => Resource::AnyNormal,
            On::Cluster => Resource::Cluster,
            On::Own => Resource::Database(own.into()),
            On::OwnCollection(name) => Resource::Collection(own.into(), (*name).into()),
            On::Database(db) => Resource::Database((*db).into()),
            On::Collection(db, name) => Resource::Collection((*db).into(), (*name).into()),
            On::InAnyDatabase(name) => Resource::CollectionInAny((*name).into()),
            On::AnyBuckets => Resource::SystemBuckets {
                db: String::new(),
                collection: String::new(),
            },
        }
    }
}

const FIND: ActionSet = ActionSet::from_actions(&[Find]);

const READ: ActionSet = ActionSet::from_actions(&[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

const READ_WRITE: ActionSet = READ.union(ActionSet::from_actions(&[
    CleanupStructuredEncryptionData,
    CompactStructuredEncryptionData,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    DropIndex,
    DropSearchIndex,
    Insert,
    Remove,
    RenameCollectionSameDb,
    Update,
    UpdateSearchIndex,
]));

const READ_AND_INDEX: ActionSet = READ.union(ActionSet::from_actions(&[
    CreateIndex,
    CreateSearchIndexes,
    DropIndex,
    DropSearchIndex,
]));

const USER_ADMIN: ActionSet = ActionSet::from_actions(&[
    ChangeCustomData,
    ChangePassword,
    CreateUser,
    CreateRole,
    DropUser,
    DropRole,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewUser,
    ViewRole,
]);

const DB_ADMIN: ActionSet = ActionSet::from_actions(&[
    Analyze,
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConvertToCapped,
    CreateCollection,
    DbStats,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropSearchIndex,
    CreateIndex,
    CreateSearchIndexes,
    EnableProfiler,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    UpdateSearchIndex,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDb,
    StorageDetails,
    Validate,
]);

/// Also granted to administrators of databases, but not on the buckets of time series.
const QUERY_ANALYZER: ActionSet = ActionSet::from_actions(&[ConfigureQueryAnalyzer]);

const PROFILE_ADMIN: ActionSet = READ.union(ActionSet::from_actions(&[
    ConvertToCapped,
    CreateCollection,
    DropCollection,
]));

const MONITOR_CLUSTER: ActionSet = ActionSet::from_actions(&[
    ConnPoolStats,
    GetCmdLineOpts,
    GetDefaultRwConcern,
    GetLog,
    GetParameter,
    GetShardMap,
    HostInfo,
    ListDatabases,
    ListSampledQueries,
    ListSessions,
    ListShards,
    Netstat,
    OperationMetrics,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ServerStatus,
    Top,
    UseUuid,
    Inprog,
    ShardingState,
    AllCollectionStats,
    ShardedDataDistribution,
]);

const MONITOR_DATABASE: ActionSet = ActionSet::from_actions(&[
    CollStats,
    DbStats,
    GetDatabaseVersion,
    GetShardVersion,
    IndexStats,
]);

const HOST_CLUSTER: ActionSet = ActionSet::from_actions(&[
    ApplicationMessage,
    AuditConfigure,
    ConnPoolSync,
    DropConnections,
    LogRotate,
    OidReset,
    SetParameter,
    Shutdown,
    Touch,
    Unlock,
    FlushRouterConfig,
    Fsync,
    InvalidateUserCache,
    KillAnyCursor,
    KillAnySession,
    Killop,
    ReplSetResizeOplog,
    Resync,
    TrafficRecord,
    RotateCertificates,
    OidcListKeys,
    OidcRefreshKeys,
]);

const MANAGER_CLUSTER: ActionSet = ActionSet::from_actions(&[
    AppendOplogNote,
    ApplicationMessage,
    ReplSetConfigure,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ReplSetStateChange,
    Resync,
    AddShard,
    RemoveShard,
    ListSessions,
    ListShards,
    FlushRouterConfig,
    CleanupOrphaned,
    GetDefaultRwConcern,
    RunTenantMigration,
    SetDefaultRwConcern,
    SetFeatureCompatibilityVersion,
    SetClusterParameter,
    GetClusterParameter,
    SetChangeStreamState,
    GetChangeStreamState,
    QuerySettings,
    QueryStatsRead,
    QueryStatsReadTransformed,
    CheckMetadataConsistency,
    TransitionFromDedicatedConfigServer,
    TransitionToDedicatedConfigServer,
]);

const MANAGER_DATABASE: ActionSet = ActionSet::from_actions(&[
    AnalyzeShardKey,
    ConfigureQueryAnalyzer,
    ClearJumboFlag,
    SplitChunk,
    MoveChunk,
    MoveCollection,
    EnableSharding,
    SplitVector,
    RefineCollectionShardKey,
    ReshardCollection,
]);

const MANAGER_WRITE: ActionSet = ActionSet::from_actions(&[Insert, Update, Remove]);

const RESTORE: ActionSet = ActionSet::from_actions(&[
    BypassDocumentValidation,
    CollMod,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    Insert,
    UpdateSearchIndex,
]);

/// All roles, in the order of MongoDB's manual.
static ROLES: &[Definition] = &[
    Definition {
        name: "read",
        admin_only: false,
        inherits: &[],
        grants: &[(On::Own, READ), (On::OwnCollection("system.js"), READ)],
    },
    Definition {
        name: "readWrite",
        admin_only: false,
        inherits: &[],
        grants: &[
            (On::Own, READ_WRITE),
            (On::OwnCollection("system.js"), READ_WRITE),
        ],
    },
    Definition {
        name: "dbAdmin",
        admin_only: false,
        inherits: &[],
        grants: &[
            (On::Own, DB_ADMIN),
            (On::Own, QUERY_ANALYZER),
            (On::OwnCollection("system.profile"), PROFILE_ADMIN),
        ],
    },
    Definition {
        name: "dbOwner",
        admin_only: false,
        inherits: &[("readWrite", None), ("dbAdmin", None), ("userAdmin", None)],
        grants: &[],
    },
    Definition {
        name: "userAdmin",
        admin_only: false,
        inherits: &[],
        grants: &[(On::Own, USER_ADMIN)],
    },
    Definition {
        name: "enableSharding",
        admin_only: false,
        inherits: &[],
        grants: &[(
            On::AnyNormal,
            ActionSet::from_actions(&[
                AnalyzeShardKey,
                EnableSharding,
                MoveCollection,
                RefineCollectionShardKey,
                ReshardCollection,
            ]),
        )],
    },
    Definition {
        name: "clusterAdmin",
        admin_only: true,
        inherits: &[
            ("clusterMonitor", None),
            ("hostManager", None),
            ("clusterManager", None),
        ],
        grants: &[
            (On::AnyNormal, ActionSet::from_actions(&[DropDatabase])),
            (
                On::Everything,
                ActionSet::from_actions(&[ImportCollection, ExportCollection]),
            ),
        ],
    },
    Definition {
        name: "clusterManager",
        admin_only: true,
        inherits: &[("read", Some("config"))],
        grants: &[
            (On::Cluster, MANAGER_CLUSTER),
            (On::AnyNormal, MANAGER_DATABASE),
            (On::AnyBuckets, MANAGER_DATABASE),
            (On::Database("config"), MANAGER_DATABASE),
            (On::Database("local"), MANAGER_DATABASE),
            (On::Collection("local", "system.replset"), READ),
            (On::Everything, ActionSet::from_actions(&[DbCheck])),
            (On::Collection("local", "system.healthlog"), READ),
            (On::Database("config"), MANAGER_WRITE),
            (On::Database("local"), MANAGER_WRITE),
            (On::Collection("local", "replset.election"), MANAGER_WRITE),
            (On::Collection("local", "replset.minvalid"), MANAGER_WRITE),
        ],
    },
    Definition {
        name: "clusterMonitor",
        admin_only: true,
        inherits: &[("read", Some("config")), ("read", Some("local"))],
        grants: &[
            (On::Cluster, MONITOR_CLUSTER),
            (On::AnyNormal, MONITOR_DATABASE),
            (On::Database("config"), MONITOR_DATABASE),
            (
                On::Collection("config", "system.sessions"),
                MONITOR_DATABASE,
            ),
            (On::Database("local"), MONITOR_DATABASE),
            (On::Collection("local", "system.replset"), FIND),
            (On::Collection("local", "replset.election"), FIND),
            (On::Collection("local", "replset.minvalid"), FIND),
            (On::InAnyDatabase("system.profile"), FIND),
        ],
    },
    Definition {
        name: "hostManager",
        admin_only: true,
        inherits: &[],
        grants: &[
            (On::Cluster, HOST_CLUSTER),
            (On::AnyNormal, ActionSet::from_actions(&[KillCursors])),
        ],
    },
    Definition {
        name: "directShardOperations",
        admin_only: true,
        inherits: &[],
        grants: &[(
            On::Cluster,
            ActionSet::from_actions(&[IssueDirectShardOperations]),
        )],
    },
    Definition {
        name: "backup",
        admin_only: true,
        inherits: &[("__queryableBackup", None)],
        grants: &[
            (
                On::Cluster,
                ActionSet::from_actions(&[AppendOplogNote, ServerStatus, SetUserWriteBlockMode]),
            ),
            (
                On::Collection("config", "settings"),
                ActionSet::from_actions(&[Insert, Update]),
            ),
        ],
    },
    Definition {
        name: "restore",
        admin_only: true,
        inherits: &[],
        grants: &[
            (
                On::Cluster,
                ActionSet::from_actions(&[
                    GetParameter,
                    ForceUuid,
                    UseUuid,
                    BypassWriteBlockingMode,
                    SetUserWriteBlockMode,
                    ApplyOps,
                ]),
            ),
            (On::Database("local"), RESTORE),
            (On::Database("config"), RESTORE),
            (On::AnyBuckets, RESTORE),
            (On::Collection("local", "system.replset"), RESTORE),
            (On::Collection("local", "replset.election"), RESTORE),
            (On::Collection("local", "replset.minvalid"), RESTORE),
            (On::Everything, ActionSet::from_actions(&[ListCollections])),
            (On::AnyNormal, RESTORE.union(USER_ADMIN)),
            (On::InAnyDatabase("system.js"), RESTORE),
            (On::Collection(ADMIN, "tempusers"), FIND),
            (On::Collection(ADMIN, "temproles"), FIND),
            (On::Collection(ADMIN, "system.backup_users"), RESTORE),
            (On::Collection(ADMIN, "system.version"), RESTORE.union(FIND)),
            (
                On::InAnyDatabase("system.users"),
                RESTORE.union(ActionSet::from_actions(&[Find, Update, Remove])),
            ),
            (
                On::Collection(ADMIN, "system.roles"),
                ActionSet::from_actions(&[CreateIndex]),
            ),
        ],
    },
    Definition {
        name: "readAnyDatabase",
        admin_only: true,
        inherits: &[],
        grants: &[
            (On::AnyNormal, READ),
            (On::Cluster, ActionSet::from_actions(&[ListDatabases])),
            (On::InAnyDatabase("system.js"), READ),
            (On::AnyBuckets, READ),
        ],
    },
    Definition {
        name: "readWriteAnyDatabase",
        admin_only: true,
        inherits: &[("readAnyDatabase", None)],
        grants: &[
            (On::AnyNormal, READ_WRITE),
            (On::InAnyDatabase("system.js"), READ_WRITE),
            (On::AnyBuckets, READ_WRITE),
        ],
    },
    Definition {
        name: "userAdminAnyDatabase",
        admin_only: true,
        inherits: &[],
        grants: &[
            (On::AnyNormal, USER_ADMIN.with(ListCachedAndActiveUsers)),
            (On::Database("local"), USER_ADMIN),
            (On::Database("config"), USER_ADMIN),
            (
                On::Cluster,
                ActionSet::from_actions(&[
                    ListDatabases,
                    AuthSchemaUpgrade,
                    InvalidateUserCache,
                    ViewUser,
                ]),
            ),
            (On::Collection(ADMIN, "system.users"), READ_AND_INDEX),
            (On::Collection(ADMIN, "system.roles"), READ_AND_INDEX),
            (On::InAnyDatabase("system.users"), READ),
            (On::Collection(ADMIN, "system.version"), READ),
            (On::Collection(ADMIN, "system.backup_users"), READ),
        ],
    },
    Definition {
        name: "dbAdminAnyDatabase",
        admin_only: true,
        inherits: &[],
        grants: &[
            (
                On::Cluster,
                ActionSet::from_actions(&[ListDatabases, ApplyOps]),
            ),
            (On::AnyNormal, DB_ADMIN),
            (On::AnyNormal, QUERY_ANALYZER),
            (On::InAnyDatabase("system.profile"), PROFILE_ADMIN),
            (On::AnyBuckets, DB_ADMIN),
        ],
    },
    Definition {
        name: "root",
        admin_only: true,
        inherits: &[
            ("clusterAdmin", None),
            ("userAdminAnyDatabase", None),
            ("dbAdminAnyDatabase", None),
            ("readWriteAnyDatabase", None),
            ("backup", None),
            ("restore", None),
            ("directShardOperations", None),
        ],
        grants: &[
            (On::Everything, ActionSet::from_actions(&[Validate])),
            (On::Cluster, ActionSet::from_actions(&[UseTenant])),
            (
                On::Collection("config", "system.preimages"),
                ActionSet::from_actions(&[Find, Remove]),
            ),
            (
                On::Collection("config", "system.change_collection"),
                ActionSet::from_actions(&[Find, Insert, Remove, Update]),
            ),
        ],
    },
    Definition {
        name: "searchCoordinator",
        admin_only: true,
        inherits: &[
            ("clusterMonitor", None),
            ("directShardOperations", None),
            ("readAnyDatabase", None),
        ],
        grants: &[(On::Database("__mdb_internal_search"), READ_WRITE)],
    },
    Definition {
        name: "__queryableBackup",
        admin_only: true,
        inherits: &[],
        grants: &[
            (
                On::Everything,
                ActionSet::from_actions(&[
                    CollStats,
                    ListCollections,
                    ListIndexes,
                    ListSearchIndexes,
                ]),
            ),
            (On::AnyNormal, FIND),
            (On::AnyBuckets, FIND),
            (
                On::Cluster,
                ActionSet::from_actions(&[GetParameter, ListDatabases, UseUuid]),
            ),
            (On::Database("config"), FIND),
            (On::Database("local"), FIND),
            (On::Collection("local", "replset.election"), FIND),
            (On::Collection("local", "replset.minvalid"), FIND),
            (On::InAnyDatabase("system.js"), FIND),
            (On::InAnyDatabase("system.users"), FIND),
            (On::InAnyDatabase("system.profile"), FIND),
            (On::Collection(ADMIN, "system.backup_users"), FIND),
            (On::Collection(ADMIN, "system.roles"), FIND),
            (On::Collection(ADMIN, "system.version"), FIND),
            (On::Collection("config", "settings"), FIND),
        ],
    },
    Definition {
        name: "__system",
        admin_only: true,
        inherits: &[],
        grants: &[(On::Everything, ActionSet::any())],
    },
];

fn definition(name: &str, db: &str) -> Option<&'static Definition> {
    if db == EXTERNAL {
        return None;
    }
    let role = ROLES.iter().find(|role| role.name == name)?;
    (!role.admin_only || db == ADMIN).then_some(role)
}

/// Whether a role is built in.
pub fn is_builtin(role: &UserName) -> bool {
    definition(&role.name, &role.db).is_some()
}

/// The privileges of a built-in role, one for each resource. `None` if there is no such role.
pub fn builtin(role: &UserName) -> Option<Vec<Privilege>> {
    let definition = definition(&role.name, &role.db)?;
    let mut privileges = Vec::new();
    definition.add(&role.db, &mut privileges);
    Some(merge(privileges))
}

/// The names of the built-in roles of a database.
pub fn names(db: &str) -> impl Iterator<Item = &'static str> {
    let all = ROLES.iter().map(|role| role.name);
    let of_db: Vec<_> = all.filter(|name| definition(name, db).is_some()).collect();
    of_db.into_iter()
}

impl Definition {
    /// Adds the privileges of the role, in this database: first those that it inherits.
    fn add(&self, own: &str, out: &mut Vec<Privilege>) {
        for (name, db) in self.inherits {
            let db = db.unwrap_or(own);
            // The table names no other roles, which a test checks.
            if let Some(inherited) = definition(name, db) {
                inherited.add(db, out);
            }
        }
        let grants = self.grants.iter();
        out.extend(grants.map(|(on, actions)| Privilege::new(on.resource(own), *actions)));
    }
}

#[cfg(test)]
mod tests;
