//! Authentication and authorization without sockets and storage: names of users, the SCRAM mechanisms for both sides,
//! actions, resources, privileges and the built-in roles.
#![forbid(unsafe_code)]

mod action;
pub mod builtin_roles;
mod mechanism;
pub mod mongo_cr;
mod name;
mod privileges;
mod random;
mod resource;
pub mod restrictions;
pub mod roles;
pub mod scram;

pub use action::{Action, ActionSet};
pub use mechanism::LoginMechanism;
pub use mongo_cr::password_digest;
pub use name::UserName;
pub use privileges::{Privilege, Privileges, merge};
pub use random::{NoRandomness, random_bytes};
pub use resource::{Resource, Target, is_normal_collection};
pub use restrictions::{Ends, Range as AddressRange, Restrictions};
pub use roles::{Resolved, Role, RoleSource};
