//! The memory of the machine, the limit of this process, and what the process uses.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::proc;

/// Bytes of the machine's memory.
pub fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The field widths differ between platforms.
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit).max(1))
}

/// Bytes that this process may use: the machine's memory, or the limit of the innermost control
/// group (version 1 or 2) that has a smaller one.
pub fn usable_bytes() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine_bytes().min(group_limit(&groups, Path::new("/sys/fs/cgroup")).unwrap_or(u64::MAX))
}

/// The smallest limit among the control groups named by the text of `/proc/self/cgroup`.
pub fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            if controllers.is_empty() {
                smallest(root, path, "memory.max")
            } else if controllers.split(',').any(|name| name == "memory") {
                smallest(&root.join("memory"), path, "memory.limit_in_bytes")
            } else {
                None
            }
        })
        .min()
}

/// The smallest limit from a group up to the root. In a container the group's own path may not be
/// visible, so the root itself counts too.
fn smallest(root: &Path, path: &str, file: &str) -> Option<u64> {
    let mut limit: Option<u64> = None;
    let mut place: PathBuf = root.join(path.trim_start_matches('/'));
    loop {
        // "max" means no limit and is not a number.
        if let Some(bytes) = fs::read_to_string(place.join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            limit = Some(limit.map_or(bytes, |other: u64| other.min(bytes)));
        }
        if place == root || !place.pop() {
            return limit;
        }
    }
}

/// The default size of the cache, at least 64 MiB: half of the machine's memory, which other programs use too, or five
/// eighths of a control group's limit, which is meant for this process. Its page cache gives way to clients.
pub fn default_cache_bytes() -> u64 {
    default_cache(usable_bytes(), machine_bytes())
}

/// The default size of the cache with so much usable memory, on a machine with so much.
pub fn default_cache(usable: u64, machine: u64) -> u64 {
    let bytes = if usable < machine {
        // In a small group the memory that does not grow with it weighs more.
        (usable / 8 * 5).min(usable.saturating_sub(REST_BYTES))
    } else {
        usable / 2
    };
    bytes.max(64 << 20)
}

/// The default cache leaves at least so much of a control group's limit: for the process itself, and for what clients hold in spite of
/// all bounds, such as a message of the largest size in each direction.
const REST_BYTES: u64 = 144 << 20;

/// With less usable memory than this there is little.
const LITTLE_BYTES: u64 = 384 << 20;

/// The memory of the process beside its budget: its code, threads, and tables that do not grow with the load.
const FIXED_BYTES: u64 = 48 << 20;

/// Memory for what clients make grow, beside a cache of `cache_bytes`: what is left of the usable memory, less a
/// sixteenth and what the process takes anyway, and five ninths of that for the allocator, which rounds sizes up and has
/// memory that is free between what is in use. At least 16 MiB. The cache lends them more.
pub fn client_bytes(usable: u64, cache_bytes: u64) -> u64 {
    let left = (usable / 16 * 15).saturating_sub(cache_bytes + FIXED_BYTES);
    (left / 9 * 4).max(16 << 20)
}

/// Bytes that idle connections may take, of so much usable memory: a quarter, and an eighth of little memory, where what does not grow
/// with it weighs more.
pub fn idle_connections_bytes(usable: u64) -> u64 {
    if usable < LITTLE_BYTES {
        usable / 8
    } else {
        usable / 4
    }
}

/// The memory use of this process, as the system counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    /// Bytes of address space.
    pub virtual_bytes: u64,
    pub resident_bytes: u64,
    /// The most bytes that were in memory.
    pub resident_bytes_max: u64,
    /// Major page faults since the start.
    pub page_faults: u64,
    /// Page faults since the start that read nothing from disk.
    pub page_reclaims: u64,
    /// Processor time in microseconds, in the program and in the system.
    pub user_micros: u64,
    /// See `user_micros`.
    pub system_micros: u64,
    pub threads: u64,
    /// Bytes read from and written to disks.
    pub disk_read_bytes: u64,
    /// See `disk_read_bytes`.
    pub disk_written_bytes: u64,
}

/// Reads the current memory use; zeros where the system does not report it.
pub fn process_memory() -> ProcessMemory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| proc::size(&status, name).unwrap_or(0);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let field = |number: usize| proc::stat_field(&stat, number).unwrap_or(0);
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let micros = |count: u64| count.saturating_mul(1_000_000) / ticks;
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let transferred = |name: &str| proc::number(&io, name).unwrap_or(0);
    ProcessMemory {
        virtual_bytes: bytes("VmSize"),
        resident_bytes: bytes("VmRSS"),
        resident_bytes_max: bytes("VmHWM"),
        page_faults: field(12),
        page_reclaims: field(10),
        user_micros: micros(field(14)),
        system_micros: micros(field(15)),
        threads: field(20),
        disk_read_bytes: transferred("read_bytes"),
        disk_written_bytes: transferred("write_bytes"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let memory = process_memory();
        assert!(memory.resident_bytes > 1 << 20 && memory.virtual_bytes >= memory.resident_bytes);
        assert!(usable_bytes() <= machine_bytes() && machine_bytes() > memory.resident_bytes);
        assert!(default_cache_bytes() >= 64 << 20);
    }

    #[test]
    fn the_default_cache_depends_on_whose_memory_it_is() {
        let default = |usable: u64, machine: u64| default_cache(usable << 20, machine << 20) >> 20;
        assert_eq!(default(8192, 8192), 4096);
        assert_eq!(default(512, 8192), 320);
        assert_eq!(default(2048, 8192), 1280);
        assert_eq!((default(256, 8192), default(192, 8192)), (112, 64));
        assert_eq!((default(128, 8192), default(100, 100)), (64, 64));
    }

    #[test]
    fn idle_connections_take_a_part_of_the_memory() {
        assert_eq!(idle_connections_bytes(512 << 20), 128 << 20);
        assert_eq!(idle_connections_bytes(256 << 20), 32 << 20);
    }

    #[test]
    fn clients_get_what_the_cache_leaves() {
        assert_eq!(client_bytes(512 << 20, 320 << 20) >> 20, 49);
        assert_eq!(client_bytes(512 << 20, 64 << 20) >> 20, 163);
        assert_eq!(client_bytes(512 << 20, 500 << 20), 16 << 20);
        assert_eq!(client_bytes(64 << 20, 64 << 20), 16 << 20);
        assert!(client_bytes(u64::MAX, 1 << 30) > 1 << 59);
    }

    #[test]
    fn group_limits() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        write("memory/docker/x/memory.limit_in_bytes", "700");
        write("memory/memory.limit_in_bytes", "9223372036854771712");
        let cases = [
            ("0::/a/b\n", Some(1000)),
            ("0::/a\n", Some(1000)),
            ("0::/\n", None),
            ("0::/not/there\n", None),
            ("12:cpu,memory:/docker/x\n0::/a/b\n", Some(700)),
            ("12:memory:/hidden\n", Some(9_223_372_036_854_771_712)),
            ("12:cpu:/docker/x\n", None),
            ("rubbish", None),
            ("", None),
        ];
        for (groups, expected) in cases {
            assert_eq!(group_limit(groups, root), expected, "{groups:?}");
        }
    }
}
