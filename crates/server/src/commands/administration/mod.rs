//! The settings and the operation of the server.

use crate::commands::spec::Command;

pub mod audit;
pub mod cluster_parameters;
pub mod compact;
pub mod configure_fail_point;
pub mod create_backup;
pub mod fsync;
pub mod kill_op;
pub mod log_rotate;
pub mod parameters;
pub mod plan_cache;
pub mod query_settings;
pub mod rotate_certificates;
pub mod rotate_master_key;
pub mod set_feature_compatibility_version;
pub mod shutdown;

pub static COMMANDS: &[&dyn Command] = &[
    &audit::GetAuditConfig,
    &audit::LogApplicationMessage,
    &audit::SetAuditConfig,
    &cluster_parameters::GetClusterParameter,
    &cluster_parameters::SetClusterParameter,
    &compact::Compact,
    &configure_fail_point::ConfigureFailPoint,
    &configure_fail_point::WaitForFailPoint,
    &create_backup::BackupStart,
    &create_backup::BackupStatus,
    &create_backup::BackupThrottle,
    &create_backup::CreateBackup,
    &fsync::Fsync,
    &fsync::FsyncUnlock,
    &kill_op::KillOp,
    &log_rotate::LogRotate,
    &parameters::GetParameter,
    &parameters::SetParameter,
    &plan_cache::PlanCacheClear,
    &plan_cache::PlanCacheClearFilters,
    &plan_cache::PlanCacheListFilters,
    &plan_cache::PlanCacheListPlans,
    &plan_cache::PlanCacheListQueryShapes,
    &plan_cache::PlanCacheSetFilter,
    &query_settings::RemoveQuerySettings,
    &query_settings::SetQuerySettings,
    &rotate_certificates::RotateCertificates,
    &rotate_master_key::RotateMasterKey,
    &set_feature_compatibility_version::SetFeatureCompatibilityVersion,
    &shutdown::Shutdown,
];
