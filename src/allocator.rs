//! The allocator's settings, which it reads from the environment when the process starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

use frond_server::usable_bytes;

/// The variable from which jemalloc reads settings beyond those of the build (`.cargo/config.toml`).
const SETTINGS: &str = "_RJEM_MALLOC_CONF";
/// Few arenas, which all threads share, and freed memory is returned within 10 ms.
const SMALL_MEMORY_SETTINGS: &str =
    "narenas:4,background_thread:true,dirty_decay_ms:10,muzzy_decay_ms:0,thp:never";
/// The same, and the caches of threads have only small allocations.
const LEAST_MEMORY_SETTINGS: &str = "narenas:4,background_thread:true,dirty_decay_ms:10,muzzy_decay_ms:0,thp:never,lg_tcache_max:12";
/// The variable and its settings for a process that runs functions of JavaScript: one thread, which may start no others, and a limit
/// of memory that counts what is kept for later, too.
pub const WORKER_SETTINGS: (&str, &str) = (
    SETTINGS,
    "narenas:1,background_thread:false,dirty_decay_ms:1000,muzzy_decay_ms:0,thp:never,retain:false",
);
/// The settings apply with less memory than this.
const SMALL_MEMORY_BYTES: u64 = 2 << 30;
/// The settings for the least memory apply with less than this.
const LEAST_MEMORY_BYTES: u64 = 384 << 20;

/// Starts the program again in this process, with settings for little memory, if there is little and the environment has no
/// settings of its own.
///
/// An allocator with a heap for each thread keeps partly used pages for each size of allocation and each thread: with
/// mimalloc, 50 sorts, batches of 16 MiB, unread replies and idle cursors at the same time took 500 MiB in a group of
/// 512 MiB where 290 MiB were in use, and the group's limit killed the server. With four shared arenas they take 100 MiB less.
/// The caches of a hundred threads for allocations of up to 32 KiB take another 30 MiB. Without those for buffers of pages (a limit of 4 KiB)
/// transactions of small operations in 512 MiB ran at 0.8 of the speed, so this is done only where 30 MiB are a large part of the memory.
/// Freed memory stays for 10 ms, so that the next command can reuse it. When it was returned at once, the kernel mapped and cleared new
/// pages for each large document, and a load of documents of 770 KB ran at three quarters of the speed.
pub fn return_memory_early() {
    if usable_bytes() >= SMALL_MEMORY_BYTES || std::env::var_os(SETTINGS).is_some() {
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
    let again = again.args(arguments);
    let settings = if usable_bytes() < LEAST_MEMORY_BYTES {
        LEAST_MEMORY_SETTINGS
    } else {
        SMALL_MEMORY_SETTINGS
    };
    let _ = again.env(SETTINGS, settings).exec();
}
