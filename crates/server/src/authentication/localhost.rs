//! The localhost exception: until there is a user, who is on this machine may create the first one.

use frond_auth::{Action, Privilege, Resource};

use crate::connection::{ClientState, Connection};
use crate::log::Component;
use crate::state::Server;

/// Whether a client without a login has the privileges of [`localhost_privileges`]: it is on this machine, and there is
/// no user and no role, nor was since the start of the server.
pub fn localhost_exception(
    server: &Server,
    connection: &Connection,
    state: &mut ClientState,
) -> bool {
    if !server.access.is_enforced()
        || !server.settings.logins.localhost_bypass
        || !connection.peer.is_local()
        || server.access.has_users()
    {
        return false;
    }
    if !std::mem::replace(&mut state.told_of_exception, true) {
        server.log.info(
            Component::Access,
            20248,
            &connection.name,
            "note: no users configured in admin.system.users, allowing localhost access",
            &frond_bson::DocBuf::new(),
        );
    }
    true
}

/// What the exception allows: to create the first user, with roles of `admin`, and to initiate the replica set before.
pub fn localhost_privileges() -> Vec<Privilege> {
    let on = |resource, actions: &[Action]| Privilege {
        resource,
        actions: actions.into(),
    };
    vec![
        on(
            Resource::Database("admin".into()),
            &[Action::CreateUser, Action::GrantRole],
        ),
        on(
            Resource::Database("$external".into()),
            &[Action::CreateUser],
        ),
        on(
            Resource::Cluster,
            &[
                Action::AddShard,
                Action::ReplSetConfigure,
                Action::ReplSetGetStatus,
            ],
        ),
    ]
}
