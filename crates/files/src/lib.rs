//! Files of the tools and of the server: private to their owner, inside the folders that are meant, never reached through
//! a symbolic link.
#![forbid(unsafe_code)]

mod file;
mod name;

pub use file::{
    append, check_folder, create_folder, create_new, folder_with_parents, only_for_owner, open,
    open_to_write, replace,
};
pub use name::{NameError, component};
