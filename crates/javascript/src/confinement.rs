//! Limits that a worker sets on itself, so that nothing that a function does to it reaches further than its socket.
//!
//! Each is one more of several: a system that lacks one, as some sandboxes do, keeps the others.

/// Memory beside the engine's: messages, conversions, the program itself.
#[cfg(target_os = "linux")]
const MARGIN_BYTES: u64 = 256 << 20;

/// The nice value of workers. Commands without functions take a moment only and must not wait for a hundred endless functions, so
/// the server's threads get the processor first.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Sets what holds for as long as the process lives: it ends with the server, has no rights to gain, opens no further files,
/// starts no processes, leaves no image of its memory, and is the first to end where the memory of the machine does not suffice.
#[cfg(target_os = "linux")]
pub fn begin() {
    use rustix::process::{
        DumpableBehavior, Resource, Signal, nice, set_dumpable_behavior,
        set_parent_process_death_signal,
    };
    use rustix::thread::{set_name, set_no_new_privs};

    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = set_name(c"frond-js");
    let _ = nice(NICE);
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let _ = set_no_new_privs(true);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Nproc, 0),
        (Resource::Nofile, 16),
    ] {
        set_limit(resource, most, Some(most));
    }
}

/// Bounds the memory of the process for an engine of `heap` bytes. What the allocator loses between pieces is a part of it.
#[cfg(target_os = "linux")]
pub fn bound_memory(heap: u64) {
    use rustix::process::{Resource, getrlimit};

    let most = heap.saturating_add(heap / 4).saturating_add(MARGIN_BYTES);
    set_limit(Resource::Data, most, getrlimit(Resource::Data).maximum);
}

#[cfg(target_os = "linux")]
fn set_limit(resource: rustix::process::Resource, most: u64, maximum: Option<u64>) {
    use rustix::process::{Rlimit, setrlimit};

    let current = Some(maximum.map_or(most, |maximum| maximum.min(most)));
    let _ = setrlimit(resource, Rlimit { current, maximum });
}

/// The memory that the process has now, in bytes.
#[cfg(target_os = "linux")]
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    pages.map_or(0, |pages| pages.saturating_mul(page))
}

/// Only Linux has these limits.
#[cfg(not(target_os = "linux"))]
pub fn begin() {}

/// Only Linux has this limit.
#[cfg(not(target_os = "linux"))]
pub fn bound_memory(_heap: u64) {}

/// Known on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn resident_bytes() -> u64 {
    0
}
