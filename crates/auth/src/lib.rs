//! Who may do what, without sockets and without storage: names of users, the SCRAM mechanisms for both sides, actions,
//! resources, privileges and the built-in roles.
#![forbid(unsafe_code)]

mod mechanism;
pub mod mongo_cr;
mod name;
mod random;
pub mod scram;

pub use mechanism::LoginMechanism;
pub use mongo_cr::password_digest;
pub use name::UserName;
pub use random::{NoRandomness, random_bytes};
