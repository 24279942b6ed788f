//! Helpers that several commands share.

pub mod access_fields;
pub mod asked_names;
pub mod password;
pub mod role_checks;
pub mod statement_record;
pub mod write;
