//! Facts and limits of the machine and of the process.

pub mod clock;
pub mod cpu;
pub mod file_handles;
pub mod lock_file;
pub mod memory;
pub mod proc;
pub mod random;
