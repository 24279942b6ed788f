//! Actions: the verbs of privileges, with MongoDB's names.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

macro_rules! actions {
    ($($variant:ident = $name:literal,)*) => {
        /// An action that a privilege grants. The names are those of MongoDB 8; some of them exist for clusters or
        /// tools only, so that custom roles of other servers can be stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Action {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        impl Action {
            /// Every action, in the order of their names.
            pub const ALL: &'static [Action] = &[$(Action::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Action::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    AddShard = "addShard",
    AdvanceClusterTime = "advanceClusterTime",
    AllCollectionStats = "allCollectionStats",
    Analyze = "analyze",
    AnalyzeShardKey = "analyzeShardKey",
    AnyAction = "anyAction",
    AppendOplogNote = "appendOplogNote",
    ApplicationMessage = "applicationMessage",
    ApplyOps = "applyOps",
    AuditConfigure = "auditConfigure",
    AuditLogRotate = "auditLogRotate",
    AuthCheck = "authCheck",
    Authenticate = "authenticate",
    AuthSchemaUpgrade = "authSchemaUpgrade",
    BypassDocumentValidation = "bypassDocumentValidation",
    BypassWriteBlockingMode = "bypassWriteBlockingMode",
    ChangeCustomData = "changeCustomData",
    ChangeOwnCustomData = "changeOwnCustomData",
    ChangeOwnPassword = "changeOwnPassword",
    ChangePassword = "changePassword",
    ChangeStream = "changeStream",
    CheckFreeMonitoringStatus = "checkFreeMonitoringStatus",
    CheckMetadataConsistency = "checkMetadataConsistency",
    CleanupOrphaned = "cleanupOrphaned",
    CleanupStructuredEncryptionData = "cleanupStructuredEncryptionData",
    ClearJumboFlag = "clearJumboFlag",
    CloseAllDatabases = "closeAllDatabases",
    CollMod = "collMod",
    CollStats = "collStats",
    Compact = "compact",
    CompactStructuredEncryptionData = "compactStructuredEncryptionData",
    ConfigureQueryAnalyzer = "configureQueryAnalyzer",
    ConnPoolStats = "connPoolStats",
    ConnPoolSync = "connPoolSync",
    ConvertToCapped = "convertToCapped",
    CpuProfiler = "cpuProfiler",
    CreateCollection = "createCollection",
    CreateDatabase = "createDatabase",
    CreateIndex = "createIndex",
    CreateRole = "createRole",
    CreateSearchIndexes = "createSearchIndexes",
    CreateUser = "createUser",
    DbCheck = "dbCheck",
    DbHash = "dbHash",
    DbStats = "dbStats",
    DropAllRolesFromDatabase = "dropAllRolesFromDatabase",
    DropAllUsersFromDatabase = "dropAllUsersFromDatabase",
    DropCollection = "dropCollection",
    DropConnections = "dropConnections",
    DropDatabase = "dropDatabase",
    DropIndex = "dropIndex",
    DropRole = "dropRole",
    DropSearchIndex = "dropSearchIndex",
    DropUser = "dropUser",
    Emptycapped = "emptycapped",
    EnableProfiler = "enableProfiler",
    EnableSharding = "enableSharding",
    ExportCollection = "exportCollection",
    Find = "find",
    FlushRouterConfig = "flushRouterConfig",
    ForceUuid = "forceUUID",
    Fsync = "fsync",
    FsyncUnlock = "fsyncUnlock",
    GetChangeStreamState = "getChangeStreamState",
    GetClusterParameter = "getClusterParameter",
    GetCmdLineOpts = "getCmdLineOpts",
    GetDatabaseVersion = "getDatabaseVersion",
    GetDefaultRwConcern = "getDefaultRWConcern",
    GetLog = "getLog",
    GetParameter = "getParameter",
    GetShardMap = "getShardMap",
    GetShardVersion = "getShardVersion",
    GrantPrivilegesToRole = "grantPrivilegesToRole",
    GrantRole = "grantRole",
    GrantRolesToRole = "grantRolesToRole",
    GrantRolesToUser = "grantRolesToUser",
    HostInfo = "hostInfo",
    Impersonate = "impersonate",
    ImportCollection = "importCollection",
    IndexStats = "indexStats",
    Inprog = "inprog",
    Insert = "insert",
    Internal = "internal",
    InvalidateUserCache = "invalidateUserCache",
    IssueDirectShardOperations = "issueDirectShardOperations",
    KillAnyCursor = "killAnyCursor",
    KillAnySession = "killAnySession",
    KillCursors = "killCursors",
    Killop = "killop",
    ListCachedAndActiveUsers = "listCachedAndActiveUsers",
    ListCollections = "listCollections",
    ListCursors = "listCursors",
    ListDatabases = "listDatabases",
    ListIndexes = "listIndexes",
    ListSampledQueries = "listSampledQueries",
    ListSearchIndexes = "listSearchIndexes",
    ListSessions = "listSessions",
    ListShards = "listShards",
    LogRotate = "logRotate",
    MoveChunk = "moveChunk",
    MoveCollection = "moveCollection",
    Netstat = "netstat",
    OidcListKeys = "oidcListKeys",
    OidcRefreshKeys = "oidcRefreshKeys",
    OidReset = "oidReset",
    OperationMetrics = "operationMetrics",
    PlanCacheIndexFilter = "planCacheIndexFilter",
    PlanCacheRead = "planCacheRead",
    PlanCacheWrite = "planCacheWrite",
    QuerySettings = "querySettings",
    QueryStatsRead = "queryStatsRead",
    QueryStatsReadTransformed = "queryStatsReadTransformed",
    RefineCollectionShardKey = "refineCollectionShardKey",
    ReIndex = "reIndex",
    Remove = "remove",
    RemoveShard = "removeShard",
    RenameCollection = "renameCollection",
    RenameCollectionSameDb = "renameCollectionSameDB",
    RepairDatabase = "repairDatabase",
    ReplSetConfigure = "replSetConfigure",
    ReplSetGetConfig = "replSetGetConfig",
    ReplSetGetStatus = "replSetGetStatus",
    ReplSetHeartbeat = "replSetHeartbeat",
    ReplSetReconfig = "replSetReconfig",
    ReplSetResizeOplog = "replSetResizeOplog",
    ReplSetStateChange = "replSetStateChange",
    ReshardCollection = "reshardCollection",
    Resync = "resync",
    RevokePrivilegesFromRole = "revokePrivilegesFromRole",
    RevokeRole = "revokeRole",
    RevokeRolesFromRole = "revokeRolesFromRole",
    RevokeRolesFromUser = "revokeRolesFromUser",
    RotateCertificates = "rotateCertificates",
    RunAsLessPrivilegedUser = "runAsLessPrivilegedUser",
    RunTenantMigration = "runTenantMigration",
    ServerStatus = "serverStatus",
    SetAuthenticationRestriction = "setAuthenticationRestriction",
    SetChangeStreamState = "setChangeStreamState",
    SetClusterParameter = "setClusterParameter",
    SetDefaultRwConcern = "setDefaultRWConcern",
    SetFeatureCompatibilityVersion = "setFeatureCompatibilityVersion",
    SetFreeMonitoring = "setFreeMonitoring",
    SetParameter = "setParameter",
    SetUserWriteBlockMode = "setUserWriteBlockMode",
    ShardCollection = "shardCollection",
    ShardedDataDistribution = "shardedDataDistribution",
    ShardingState = "shardingState",
    Shutdown = "shutdown",
    SplitChunk = "splitChunk",
    SplitVector = "splitVector",
    StorageDetails = "storageDetails",
    Top = "top",
    Touch = "touch",
    TrafficRecord = "trafficRecord",
    TransitionFromDedicatedConfigServer = "transitionFromDedicatedConfigServer",
    TransitionToDedicatedConfigServer = "transitionToDedicatedConfigServer",
    Unlock = "unlock",
    UnshardCollection = "unshardCollection",
    Update = "update",
    UpdateRole = "updateRole",
    UpdateSearchIndex = "updateSearchIndex",
    UpdateUser = "updateUser",
    UseTenant = "useTenant",
    UseUuid = "useUUID",
    Validate = "validate",
    ViewRole = "viewRole",
    ViewUser = "viewUser",
}

impl Action {
    /// The action with a name. Names are compared exactly.
    pub fn parse(name: &str) -> Option<Action> {
        static BY_NAME: LazyLock<HashMap<&'static str, Action>> =
            LazyLock::new(|| Action::ALL.iter().map(|it| (it.name(), *it)).collect());
        BY_NAME.get(name).copied()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const WORDS: usize = 3;
const _: () = assert!(Action::ALL.len() <= WORDS * 64);

/// A set of actions, as bits. `anyAction` stands for every action.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ActionSet([u64; WORDS]);

impl ActionSet {
    pub const fn new() -> ActionSet {
        ActionSet([0; WORDS])
    }

    /// A set of these actions.
    pub const fn from_actions(actions: &[Action]) -> ActionSet {
        let mut set = ActionSet::new();
        let mut at = 0;
        while at < actions.len() {
            set = set.with(actions[at]);
            at += 1;
        }
        set
    }

    pub const fn any() -> ActionSet {
        let mut set = ActionSet::new();
        let mut at = 0;
        while at < Action::ALL.len() {
            let bit = Action::ALL[at] as usize;
            set.0[bit / 64] |= 1 << (bit % 64);
            at += 1;
        }
        set
    }

    /// The set with one more action.
    #[must_use]
    pub const fn with(mut self, action: Action) -> ActionSet {
        if matches!(action, Action::AnyAction) {
            return ActionSet::any();
        }
        let bit = action as usize;
        self.0[bit / 64] |= 1 << (bit % 64);
        self
    }

    pub fn insert(&mut self, action: Action) {
        *self = self.with(action);
    }

    /// Whether the set has an action.
    pub const fn contains(&self, action: Action) -> bool {
        let bit = action as usize;
        self.0[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// Whether the set has every action of the other one.
    pub fn contains_all(&self, other: &ActionSet) -> bool {
        self.0
            .iter()
            .zip(other.0)
            .all(|(own, other)| other & !own == 0)
    }

    /// The actions of both sets.
    #[must_use]
    pub const fn union(mut self, other: ActionSet) -> ActionSet {
        let mut at = 0;
        while at < WORDS {
            self.0[at] |= other.0[at];
            at += 1;
        }
        self
    }

    /// The actions of this set that the other one lacks. A set that has lost an action is not `anyAction` any more.
    #[must_use]
    pub fn without(mut self, other: ActionSet) -> ActionSet {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own &= !other;
        }
        if !other.is_empty() {
            let bit = Action::AnyAction as usize;
            self.0[bit / 64] &= !(1 << (bit % 64));
        }
        self
    }

    /// Whether the set has no action.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The actions, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        Action::ALL.iter().copied().filter(|it| self.contains(*it))
    }

    /// The names as replies and stored roles have them: `anyAction` alone if the set has all.
    pub fn names(&self) -> Vec<&'static str> {
        if self.contains(Action::AnyAction) {
            return vec![Action::AnyAction.name()];
        }
        self.iter().map(Action::name).collect()
    }
}

impl From<&[Action]> for ActionSet {
    fn from(actions: &[Action]) -> ActionSet {
        ActionSet::from_actions(actions)
    }
}

impl From<Action> for ActionSet {
    fn from(action: Action) -> ActionSet {
        ActionSet::new().with(action)
    }
}

impl<const N: usize> From<[Action; N]> for ActionSet {
    fn from(actions: [Action; N]) -> ActionSet {
        ActionSet::from_actions(&actions)
    }
}

impl FromIterator<Action> for ActionSet {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> ActionSet {
        actions.into_iter().fold(ActionSet::new(), ActionSet::with)
    }
}

impl fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_sorted() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.name()), Some(*action));
        }
        let names: Vec<String> = Action::ALL
            .iter()
            .map(|it| it.name().to_lowercase())
            .collect();
        assert!(names.is_sorted());
        assert_eq!(Action::parse("Find"), None, "names are compared exactly");
        assert_eq!(Action::parse(""), None);
    }

    #[test]
    fn a_set_has_what_was_added() {
        let set = ActionSet::from_actions(&[Action::Find, Action::ViewUser]);
        for action in Action::ALL {
            let is_in = [Action::Find, Action::ViewUser].contains(action);
            assert_eq!(set.contains(*action), is_in, "{action}");
        }
        assert_eq!(set.names(), ["find", "viewUser"]);
        assert!(ActionSet::new().is_empty() && !set.is_empty());
        assert!(set.contains_all(&ActionSet::from_actions(&[Action::Find])));
        assert!(!ActionSet::from_actions(&[Action::Find]).contains_all(&set));
        assert_eq!(
            set.without(ActionSet::from_actions(&[Action::Find]))
                .names(),
            ["viewUser"]
        );
        assert_eq!(
            ActionSet::from_actions(&[Action::Find])
                .union(ActionSet::from_actions(&[Action::ViewUser])),
            set
        );
    }

    #[test]
    fn any_action_stands_for_all() {
        let any = ActionSet::from_actions(&[Action::AnyAction]);
        assert!(Action::ALL.iter().all(|it| any.contains(*it)));
        assert_eq!(any.names(), ["anyAction"]);
        let less = any.without(ActionSet::from_actions(&[Action::Find]));
        assert!(!less.contains(Action::AnyAction) && less.contains(Action::Insert));
        assert_eq!(less.names().len(), Action::ALL.len() - 2);
    }
}
