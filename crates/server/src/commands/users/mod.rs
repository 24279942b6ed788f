//! Logins, users and roles.

use crate::commands::spec::Command;

pub mod authenticate;
pub mod connection_status;
pub mod create_role;
pub mod create_user;
pub mod drop_role;
pub mod drop_user;
pub mod invalidate_user_cache;
pub mod logout;
pub mod merge_authz_collections;
pub mod privileges_of_role;
pub mod roles_info;
pub mod roles_of_role;
pub mod roles_of_user;
pub mod sasl;
pub mod update_role;
pub mod update_user;
pub mod users_info;

pub static COMMANDS: &[&dyn Command] = &[
    &authenticate::Authenticate,
    &authenticate::GetNonce,
    &connection_status::ConnectionStatus,
    &create_role::CreateRole,
    &create_user::CreateUser,
    &drop_role::DropAllRolesFromDatabase,
    &drop_role::DropRole,
    &drop_user::DropAllUsersFromDatabase,
    &drop_user::DropUser,
    &invalidate_user_cache::InvalidateUserCache,
    &logout::Logout,
    &merge_authz_collections::MergeAuthzCollections,
    &privileges_of_role::GRANT,
    &privileges_of_role::REVOKE,
    &roles_info::RolesInfo,
    &roles_of_role::GRANT,
    &roles_of_role::REVOKE,
    &roles_of_user::GRANT,
    &roles_of_user::REVOKE,
    &sasl::SaslContinue,
    &sasl::SaslStart,
    &update_role::UpdateRole,
    &update_user::UpdateUser,
    &users_info::UsersInfo,
];
