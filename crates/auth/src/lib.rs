//! Who may do what, without sockets and without storage: names of users, the SCRAM mechanisms for both sides, actions,
//! resources, privileges and the built-in roles.
#![forbid(unsafe_code)]

mod action;
mod name;
mod privileges;
mod resource;

pub use action::{Action, ActionSet};
pub use name::UserName;
pub use privileges::{Privilege, Privileges};
pub use resource::{Resource, Target, is_normal_collection};
