//! Commands of old versions, which old drivers still send.

use crate::commands::spec::Command;

pub mod file_md5;
pub mod get_last_error;
pub mod get_prev_error;
pub mod old_scripts;
pub mod reset_error;

pub static COMMANDS: &[&dyn Command] = &[
    &file_md5::FileMd5,
    &get_last_error::GetLastError,
    &get_prev_error::GetPrevError,
    &old_scripts::Eval,
    &old_scripts::Group,
    &reset_error::ResetError,
];
