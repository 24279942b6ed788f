//! Who may do what, without sockets and without storage: names of users, the SCRAM mechanisms for both sides, actions,
//! resources, privileges and the built-in roles.
#![forbid(unsafe_code)]

mod name;

pub use name::UserName;
