//! The commands. Each one, or each family, is a file with one struct: its names, its description, its fields, its
//! implementation, and its tests. [`COMMANDS`] lists them; adding a command touches its file and that list.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use crate::authorization::{Needs, Requested};
use crate::context::Context;
use crate::exec::{Lane, Work};
use crate::metrics::{Class, Op};
use crate::outcome::{Outcome, Wait};
use crate::state::Server;

pub mod abort_transaction;
pub mod absent;
mod access_fields;
pub mod aggregate;
pub mod append_oplog_note;
pub mod apply_ops;
mod asked_names;
pub mod authenticate;
pub mod backup_stream;
pub mod build_info;
pub mod bulk_write;
pub mod clone_collection_as_capped;
pub mod cluster_parameters;
pub mod coll_mod;
mod coll_mod_index;
pub mod coll_stats;
pub mod commit_transaction;
pub mod compact;
pub mod configure_fail_point;
pub mod conn_pool_stats;
pub mod connection_status;
pub mod convert_to_capped;
pub mod count;
pub mod create;
pub mod create_backup;
pub mod create_indexes;
pub mod create_role;
pub mod create_user;
pub mod current_op;
pub mod data_size;
pub mod db_hash;
pub mod db_stats;
pub mod default_rw_concern;
pub mod delete;
pub mod diagnostic_history;
pub mod distinct;
pub mod drop;
pub mod drop_database;
pub mod drop_indexes;
pub mod drop_role;
pub mod drop_user;
pub mod end_sessions;
pub mod explain;
pub mod features;
pub mod file_md5;
pub mod find;
pub mod find_and_modify;
pub mod fsync;
pub mod get_cmd_line_opts;
pub mod get_diagnostic_data;
pub mod get_last_error;
pub mod get_log;
pub mod get_more;
pub mod get_prev_error;
pub mod hello;
pub mod host_info;
pub mod insert;
pub mod invalidate_user_cache;
pub mod kill_all_sessions;
pub mod kill_all_sessions_by_pattern;
pub mod kill_cursors;
pub mod kill_op;
pub mod kill_sessions;
pub mod list_collections;
pub mod list_commands;
pub mod list_databases;
pub mod list_indexes;
pub mod lock_info;
pub mod log_rotate;
pub mod logout;
pub mod map_reduce;
pub mod merge_authz_collections;
pub mod old_scripts;
pub mod oplog_size;
pub mod parameters;
mod password;
pub mod ping;
pub mod plan_cache;
pub mod privileges_of_role;
pub mod profile;
pub mod query_settings;
pub mod re_index;
pub mod refresh_sessions;
pub mod rename_collection;
pub mod repl_set_config;
pub mod repl_set_status;
mod repl_set_step_up;
pub mod reset_error;
mod role_checks;
pub mod roles_info;
pub mod roles_of_role;
pub mod roles_of_user;
pub mod rotate_certificates;
pub mod sasl;
pub mod server_status;
pub mod set_feature_compatibility_version;
pub mod sharding;
pub mod shutdown;
pub mod start_session;
mod statement_record;
pub mod top;
pub mod truncate_capped;
pub mod update;
pub mod update_role;
pub mod update_user;
pub mod users_info;
pub mod validate;
pub mod validate_db_metadata;
pub mod watch;
pub mod whatsmyuri;
mod write;

#[cfg(test)]
mod needs_tests;
#[cfg(test)]
mod options_tests;

/// Every command.
pub static COMMANDS: &[&dyn Command] = &[
    &abort_transaction::AbortTransaction,
    &aggregate::Aggregate,
    &append_oplog_note::AppendOplogNote,
    &apply_ops::ApplyOps,
    &authenticate::Authenticate,
    &create_backup::BackupStart,
    &create_backup::BackupStatus,
    &create_backup::BackupThrottle,
    &build_info::BuildInfo,
    &bulk_write::BulkWrite,
    &truncate_capped::Captrunc,
    &clone_collection_as_capped::CloneCollectionAsCapped,
    &coll_mod::CollMod,
    &coll_stats::CollStats,
    &commit_transaction::CommitTransaction,
    &compact::Compact,
    &configure_fail_point::ConfigureFailPoint,
    &conn_pool_stats::ConnPoolStats,
    &connection_status::ConnectionStatus,
    &convert_to_capped::ConvertToCapped,
    &count::Count,
    &create::Create,
    &create_backup::CreateBackup,
    &create_indexes::CreateIndexes,
    &create_role::CreateRole,
    &create_user::CreateUser,
    &current_op::CurrentOp,
    &data_size::DataSize,
    &db_hash::DbHash,
    &db_stats::DbStats,
    &delete::Delete,
    &distinct::Distinct,
    &drop::Drop,
    &drop_role::DropAllRolesFromDatabase,
    &drop_user::DropAllUsersFromDatabase,
    &drop_database::DropDatabase,
    &drop_indexes::DropIndexes,
    &drop_role::DropRole,
    &drop_user::DropUser,
    &truncate_capped::EmptyCapped,
    &end_sessions::EndSessions,
    &old_scripts::Eval,
    &explain::Explain,
    &features::Features,
    &file_md5::FileMd5,
    &find::Find,
    &find_and_modify::FindAndModify,
    &fsync::Fsync,
    &fsync::FsyncUnlock,
    &get_cmd_line_opts::GetCmdLineOpts,
    &cluster_parameters::GetClusterParameter,
    &default_rw_concern::GetDefaultRwConcern,
    &get_diagnostic_data::GetDiagnosticData,
    &diagnostic_history::GetDiagnosticHistory,
    &get_last_error::GetLastError,
    &get_log::GetLog,
    &get_more::GetMore,
    &authenticate::GetNonce,
    &get_prev_error::GetPrevError,
    &privileges_of_role::GRANT,
    &roles_of_role::GRANT,
    &roles_of_user::GRANT,
    &old_scripts::Group,
    &hello::Hello,
    &host_info::HostInfo,
    &insert::Insert,
    &invalidate_user_cache::InvalidateUserCache,
    &kill_all_sessions::KillAllSessions,
    &kill_all_sessions_by_pattern::KillAllSessionsByPattern,
    &kill_cursors::KillCursors,
    &kill_op::KillOp,
    &kill_sessions::KillSessions,
    &list_collections::ListCollections,
    &list_commands::ListCommands,
    &list_databases::ListDatabases,
    &list_indexes::ListIndexes,
    &lock_info::LockInfo,
    &log_rotate::LogRotate,
    &logout::Logout,
    &map_reduce::MapReduce,
    &merge_authz_collections::MergeAuthzCollections,
    &parameters::GetParameter,
    &parameters::SetParameter,
    &ping::Ping,
    &plan_cache::PlanCacheClear,
    &plan_cache::PlanCacheClearFilters,
    &plan_cache::PlanCacheListFilters,
    &plan_cache::PlanCacheListPlans,
    &plan_cache::PlanCacheListQueryShapes,
    &plan_cache::PlanCacheSetFilter,
    &profile::Profile,
    &re_index::ReIndex,
    &refresh_sessions::RefreshSessions,
    &query_settings::RemoveQuerySettings,
    &rename_collection::RenameCollection,
    &repl_set_status::ReplSetFreeze,
    &repl_set_config::ReplSetGetConfig,
    &repl_set_status::ReplSetGetStatus,
    &repl_set_config::ReplSetInitiate,
    &repl_set_status::ReplSetMaintenance,
    &repl_set_step_up::ReplSetStepUp,
    &repl_set_config::ReplSetReconfig,
    &oplog_size::ReplSetResizeOplog,
    &repl_set_status::ReplSetStepDown,
    &reset_error::ResetError,
    &privileges_of_role::REVOKE,
    &roles_of_role::REVOKE,
    &roles_of_user::REVOKE,
    &roles_info::RolesInfo,
    &rotate_certificates::RotateCertificates,
    &sasl::SaslContinue,
    &sasl::SaslStart,
    &server_status::ServerStatus,
    &cluster_parameters::SetClusterParameter,
    &default_rw_concern::SetDefaultRwConcern,
    &query_settings::SetQuerySettings,
    &set_feature_compatibility_version::SetFeatureCompatibilityVersion,
    &sharding::BALANCER_START,
    &sharding::BALANCER_STATUS,
    &sharding::BALANCER_STOP,
    &sharding::ENABLE_SHARDING,
    &sharding::FLUSH_ROUTER_CONFIG,
    &sharding::GET_SHARD_MAP,
    &sharding::IS_DB_GRID,
    &sharding::LIST_SHARDS,
    &sharding::SHARD_COLLECTION,
    &shutdown::Shutdown,
    &start_session::StartSession,
    &top::Top,
    &update::Update,
    &update_role::UpdateRole,
    &update_user::UpdateUser,
    &users_info::UsersInfo,
    &validate::Validate,
    &validate_db_metadata::ValidateDbMetadata,
    &configure_fail_point::WaitForFailPoint,
    &whatsmyuri::WhatsMyUri,
];

/// A command.
pub trait Command: Send + Sync {
    /// Its names, the proper one first. Names are compared exactly; the other spellings that MongoDB
    /// accepts (`ismaster`, `findandmodify`) are listed.
    fn names(&self) -> &'static [&'static str];

    /// What it does, in one line.
    fn doc(&self) -> &'static str;

    /// The fields it accepts, besides its name and the fields that all commands share.
    fn fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Fields that MongoDB's command accepts and this one does not: an error names them.
    fn unsupported_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// How the dispatcher treats it.
    fn traits(&self) -> Traits;

    /// What its client needs. It is asked before anything is done, and only if the server checks authorization, so it
    /// must not have an effect. A command that is malformed may be described as what it would do at most.
    ///
    /// # Errors
    /// If it cannot be said what the command touches. The command is not run then.
    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>>;

    /// Runs it. The reply is without `ok`. A command that may wait without a thread has [`Command::start`] instead.
    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::internal("the command only runs where it may wait"))
    }

    /// Runs it to its end, or until it waits.
    fn start(&self, cx: &mut Context<'_>) -> Result<Outcome> {
        self.run(cx).map(Outcome::Reply)
    }

    /// Continues after a wait that [`Command::start`] or an earlier call returned.
    fn resume(&self, cx: &mut Context<'_>, wait: Wait) -> Result<Outcome> {
        drop(wait);
        self.start(cx)
    }
}

/// What the dispatcher needs to know of a command.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// For `opLatencies` and `top`.
    pub class: Class,
    /// For `opcounters`. Writes count their own statements, so for them it is only used by `top`.
    pub op: Op,
    /// How long it may keep its thread.
    pub work: Work,
    /// Whose tickets it needs, if any.
    pub lane: Option<Lane>,
    /// Whether it runs on the database `admin` only.
    pub admin_only: bool,
    /// Whether it is part of MongoDB's Stable API, version 1.
    pub stable_api: bool,
    /// Whether unknown fields are accepted, as for a handshake.
    pub takes_any_field: bool,
    /// Whether its first field names a collection.
    pub on_collection: bool,
    /// Whether a later `getLastError` still reports the write before this command.
    pub keeps_last_error: bool,
    /// Whether it accepts a write concern.
    pub writes: bool,
    /// Whether it may be a statement of a transaction.
    pub in_transactions: InTransactions,
    /// Fields that hold secrets. They are shown nowhere: not in `currentOp`, not in the log.
    pub secrets: &'static [&'static str],
    /// Whether it may run on `$external`, the database of users that another authority vouches for.
    pub on_external: bool,
    /// Whether `maxTimeMS` says how long it waits for documents, and does not limit its work.
    pub max_time_is_wait: bool,
}

/// Whether a command may be a statement of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTransactions {
    /// It may not.
    Never,
    /// It may, but not be the first one.
    Later,
    /// It may.
    Always,
}

impl Traits {
    /// Reads memory only.
    pub const CHEAP: Traits = Traits {
        class: Class::Command,
        op: Op::Command,
        work: Work::Instant,
        lane: None,
        admin_only: false,
        stable_api: false,
        takes_any_field: false,
        on_collection: false,
        keeps_last_error: false,
        writes: false,
        in_transactions: InTransactions::Never,
        secrets: &[],
        on_external: false,
        max_time_is_wait: false,
    };

    /// Reads documents of a collection.
    pub const READ: Traits = Traits {
        class: Class::Read,
        op: Op::Query,
        work: Work::Short,
        lane: Some(Lane::Read),
        on_collection: true,
        stable_api: true,
        ..Traits::CHEAP
    };

    /// Changes documents of a collection.
    pub const WRITE: Traits = Traits {
        class: Class::Write,
        op: Op::Command,
        lane: Some(Lane::Write),
        writes: true,
        ..Traits::READ
    };

    /// Reads the catalog.
    pub const CATALOG: Traits = Traits {
        work: Work::Long,
        lane: Some(Lane::Read),
        stable_api: true,
        ..Traits::CHEAP
    };

    /// Changes the catalog.
    pub const CATALOG_WRITE: Traits = Traits {
        lane: Some(Lane::Maintenance),
        writes: true,
        on_collection: true,
        ..Traits::CATALOG
    };

    /// The same, but only on the database `admin`.
    pub const fn admin(mut self) -> Traits {
        self.admin_only = true;
        self
    }

    /// The same, as part of the Stable API or not.
    pub const fn stable(mut self, stable: bool) -> Traits {
        self.stable_api = stable;
        self
    }

    /// The same, as a statement that transactions may have.
    pub const fn in_transactions(mut self, allowed: InTransactions) -> Traits {
        self.in_transactions = allowed;
        self
    }

    /// The same, with fields that hold secrets.
    pub const fn with_secrets(mut self, fields: &'static [&'static str]) -> Traits {
        self.secrets = fields;
        self
    }

    /// The same, also on `$external`.
    pub const fn external(mut self) -> Traits {
        self.on_external = true;
        self
    }

    /// The same, counted as this kind of operation.
    pub const fn counted(mut self, op: Op) -> Traits {
        self.op = op;
        self
    }
}

/// A command and its index in the table, by any of its names.
pub fn find(name: &str) -> Option<(usize, &'static dyn Command)> {
    static BY_NAME: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
        let mut by_name = HashMap::new();
        for (at, command) in COMMANDS.iter().enumerate() {
            for name in command.names() {
                by_name.insert(*name, at);
            }
        }
        by_name
    });
    let at = *BY_NAME.get(name)?;
    Some((at, *COMMANDS.get(at)?))
}

/// Whether a command, by its index in the table, is refused to those who are not logged in.
pub fn requires_login(server: &Server, index: usize) -> bool {
    // Whether a command is open to anyone does not depend on its fields.
    static OPEN: OnceLock<Vec<bool>> = OnceLock::new();
    let is_open = |command: &&dyn Command| {
        let name = proper_name(*command);
        let mut body = DocBuf::new();
        body.push(name, 1);
        let request = Requested {
            server,
            name,
            db: "admin",
            body: &body,
            sequences: &[],
            user: None,
        };
        matches!(command.needs(&request), Ok(Needs::Anyone))
    };
    let open = OPEN.get_or_init(|| COMMANDS.iter().map(is_open).collect());
    open.get(index) != Some(&true)
}

/// The proper name of a command.
pub fn proper_name(command: &dyn Command) -> &'static str {
    command.names().first().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_command_is_named_once_and_described() {
        let mut seen = HashSet::new();
        for command in COMMANDS {
            assert!(!command.names().is_empty());
            assert!(
                !command.doc().is_empty() && command.doc().ends_with('.'),
                "{}",
                command.doc()
            );
            for name in command.names() {
                assert!(seen.insert(*name), "{name} is there twice");
                assert!(find(name).is_some());
            }
            for field in command.unsupported_fields() {
                assert!(!command.fields().contains(field), "{field}");
            }
        }
        assert!(find("Ping").is_none(), "names are compared exactly");
    }
}
