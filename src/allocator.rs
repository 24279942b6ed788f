//! The allocator's settings, which it reads from the environment when the process starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use frond_server::usable_bytes;

/// How long mimalloc keeps memory that a thread has freed before it returns it to the system, in milliseconds.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
/// With less memory than this it is returned at once.
const SMALL_MEMORY_BYTES: u64 = 2 << 30;

/// Starts the program again in this process, with memory that is freed returned to the system at once, if there is little
/// memory and the environment has no other wish.
///
/// mimalloc waits for 10 ms, and each thread returns only what it has freed itself, when it allocates again. Fifty sorts that
/// spilled kept 190 MiB of a group of 512 MiB in this way, beside the 169 MiB that they used, and the group's limit killed
/// the server. Indexed insertion takes the same processor time with and without the delay.
pub fn return_memory_early() {
    if usable_bytes() >= SMALL_MEMORY_BYTES || std::env::var_os(PURGE_DELAY).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else {
        return;
    };
    let mut arguments = std::env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // It returns only if it fails, and then the server uses more memory.
    let _ = again.args(arguments).env(PURGE_DELAY, "0").exec();
}
