//! The file system of the data directory: its type, how it is mounted, its free space, its speed.

use std::path::Path;

use frond_store::default_disk_reserve;

use super::finding::{Finding, size};
use super::host::Host;
use super::speed::Speed;
use crate::observability::startup_warnings;

const AREA: &str = "file system";

/// The least number of free inodes: the log and large sorts make files.
const INODES_MIN: u64 = 1000;

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    kind: String,
    options: Vec<String>,
}

/// The mount that holds a path, of the text of `/proc/self/mountinfo`.
fn mount_of(text: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in text.lines() {
        let Some((head, tail)) = line.split_once(" - ") else {
            continue;
        };
        let (head, tail): (Vec<_>, Vec<_>) = (
            head.split_whitespace().collect(),
            tail.split_whitespace().collect(),
        );
        let ([_, _, _, _, point, own, ..], [kind, _, of_all]) = (&head[..], &tail[..]) else {
            continue;
        };
        let point = unescaped(point);
        // Of mounts on the same place the last one is visible.
        let is_better = best.as_ref().is_none_or(|(len, _)| point.len() >= *len);
        if path.starts_with(&point) && is_better {
            let options = own.split(',').chain(of_all.split(','));
            let mount = Mount {
                kind: (*kind).to_owned(),
                options: options.map(str::to_owned).collect(),
            };
            best = Some((point.len(), mount));
        }
    }
    best.map(|(_, mount)| mount)
}

/// The kernel writes spaces and some other characters as three octal digits.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (code, character)| {
            text.replace(code, character)
        })
}

/// The type and the options of the file system that holds a directory.
pub fn file_system(host: &Host, directory: &Path, magic: Option<u64>) -> Vec<Finding> {
    let mut found = Vec::new();
    let warning = magic.and_then(|magic| startup_warnings::of_file_system(magic, directory));
    if let Some((_, message, _)) = warning {
        found.push(Finding::warning(
            AREA,
            message,
            "put the data on ext4 or XFS of a local disk",
        ));
    }
    let mounts = host.read("/proc/self/mountinfo").unwrap_or_default();
    let Some(Mount { kind, options }) = mount_of(&mounts, directory) else {
        return found;
    };
    let has = |names: &[&str]| {
        let given = options.iter().find(|given| names.contains(&given.as_str()));
        given.cloned()
    };
    let of_kind = match kind.as_str() {
        "overlay" | "aufs" => Some((
            "the data is in the writable layer of a container and goes with it",
            "mount a volume on the directory",
        )),
        kind if kind.starts_with("fuse") => Some((
            "a program in user space serves the files: its syncs may not reach a disk, and each costs more",
            "put the data on ext4 or XFS of a local disk",
        )),
        "9p" | "virtiofs" | "vboxsf" | "ceph" | "glusterfs" | "lustre" => Some((
            "another machine serves the files: its locks and syncs may not hold what is needed to keep data over a crash",
            "put the data on ext4 or XFS of a local disk",
        )),
        _ => None,
    };
    if let Some((what, advice)) = of_kind {
        found.push(Finding::warning(AREA, format!("{kind}: {what}"), advice));
    }
    if has(&["ro"]).is_some() {
        found.push(Finding::problem(
            AREA,
            "mounted read-only",
            "see dmesg for an error of the disk, and remount it with rw",
        ));
    }
    if let Some(option) = has(&["nobarrier", "barrier=0"]) {
        found.push(Finding::problem(
            AREA,
            format!("mounted with {option}: a sync does not reach the disk"),
            "remove the option: acknowledged writes would be lost when the power fails",
        ));
    }
    if let Some(option) = has(&["sync", "dirsync"]) {
        found.push(Finding::warning(
            AREA,
            format!("mounted with {option}: each write waits for the disk"),
            "remove the option: the server syncs what it needs",
        ));
    }
    if let Some(option) = has(&["strictatime"]) {
        found.push(Finding::note(
            AREA,
            format!("mounted with {option}: reads cause writes"),
            "mount it with noatime",
        ));
    }
    if matches!(kind.as_str(), "ext4" | "xfs") && has(&["discard"]).is_some() {
        found.push(Finding::note(
            AREA,
            "mounted with discard: reads wait while space is freed, such as that of a log segment",
            "remove the option and run fstrim regularly: on most systems fstrim.timer does",
        ));
    }
    if kind == "btrfs" && has(&["nodatacow"]).is_none() {
        found.push(Finding::note(
            AREA,
            "btrfs copies on each write, which the engine does, too",
            "chattr +C on the empty directory turns that off; blocks have checksums in any case",
        ));
    }
    if found.is_empty() {
        found.push(Finding::good(
            AREA,
            format!("{kind}, {}", options.join(",")),
        ));
    }
    found
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystemSpace {
    /// Its size in bytes.
    pub total: u64,
    /// The space for processes other than those of root.
    pub available: u64,
    /// Inodes that are free, and all; zero for file systems without a fixed number.
    pub inodes: (u64, u64),
}

impl FileSystemSpace {
    /// Asks the file system that holds a directory.
    pub fn of_directory(directory: &Path) -> Option<FileSystemSpace> {
        let stat = rustix::fs::statvfs(directory).ok()?;
        Some(FileSystemSpace {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
            inodes: (stat.f_favail, stat.f_files),
        })
    }
}

/// Free space, beside the reserve that the server keeps; none means the default.
pub fn free_space(free_space: FileSystemSpace, reserve: Option<u64>) -> Vec<Finding> {
    const AREA: &str = "free space";
    let reserve = reserve.unwrap_or_else(|| default_disk_reserve(free_space.total));
    let what = format!(
        "{} of {}, of which the server reserves {} for deletes",
        size(free_space.available),
        size(free_space.total),
        size(reserve)
    );
    let mut found = Vec::new();
    found.push(if free_space.available <= reserve {
        Finding::problem(
            AREA,
            what,
            "the server refuses to write: free some space, or take a larger file system",
        )
    } else if free_space.available < free_space.total / 10 || free_space.available < 3 * reserve {
        Finding::warning(
            AREA,
            what,
            "free some space before it is used up: below the reserve only deletes and drops go on",
        )
    } else {
        Finding::good(AREA, what)
    });
    let (free, all) = free_space.inodes;
    if all > 0 && free < INODES_MIN {
        found.push(Finding::warning(
            AREA,
            format!("{free} of {all} inodes are free"),
            "delete files, or make the file system with more inodes",
        ));
    }
    found
}

/// The result of the speed test.
pub fn speed(speed: &Speed) -> Vec<Finding> {
    const AREA: &str = "disk speed";
    const SLOW_BYTES: f64 = 50e6;
    const SLOW_SYNC_MS: f64 = 20.0;
    const FAST_SYNC_MS: f64 = 0.03;
    const SLOW_READ_MS: f64 = 10.0;
    let mut found = Vec::new();
    if !speed.is_direct {
        found.push(Finding::note(
            AREA,
            "the file system has no direct I/O: reads are measured from the system's page cache",
            "",
        ));
    }
    let rates = format!(
        "writes {:.0} MB/s, reads {:.0} MB/s",
        speed.write_bytes_per_second / 1e6,
        speed.read_bytes_per_second / 1e6
    );
    let is_slow = speed
        .write_bytes_per_second
        .min(speed.read_bytes_per_second)
        < SLOW_BYTES;
    found.push(if is_slow { Finding::warning(
            AREA,
            rates,
            "less than 50 MB/s limits inserts, index builds and scans: use a local SSD, or more throughput of the cloud disk",
        ) } else { Finding::good(AREA, rates) });
    let syncs = format!(
        "a sync takes {:.2} ms, one in a hundred {:.2} ms",
        speed.sync_ms.0, speed.sync_ms.1
    );
    found.push(if speed.sync_ms.0 > SLOW_SYNC_MS {
        Finding::warning(
            AREA,
            syncs,
            "writes with j: true wait for one: use a disk whose cache survives a power failure",
        )
    } else if speed.sync_ms.0 < FAST_SYNC_MS {
        Finding::note(
            AREA,
            syncs,
            "that is faster than disks are: see whether a sync reaches one (a virtual machine may ignore it)",
        )
    } else {
        Finding::good(AREA, syncs)
    });
    let reads = format!(
        "a read of 4 KiB takes {:.2} ms, one in a hundred {:.2} ms",
        speed.read_ms.0, speed.read_ms.1
    );
    found.push(if speed.read_ms.0 > SLOW_READ_MS { Finding::warning(
            AREA,
            reads,
            "each read beyond the cache waits for the disk: use an SSD, or a cache that holds what is read",
        ) } else { Finding::good(AREA, reads) });
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::finding::Level;
    use super::*;

    const MOUNTS: &str = r"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 22 0:5 / /proc rw,nosuid - proc proc rw
40 22 8:1 / /data rw,noatime - xfs /dev/sdb rw,attr2
41 40 8:2 / /data/ro\040disk ro,noatime - ext4 /dev/sdc ro,nobarrier
42 22 0:9 / /merged rw - overlay overlay rw,lowerdir=/a
43 22 8:3 / /old rw,sync,strictatime - fuse.sshfs x rw
44 22 8:3 / /b rw - btrfs /dev/x rw,space_cache
not a mount
";

    fn host() -> (tempfile::TempDir, Host) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("proc/self")).unwrap();
        std::fs::write(directory.path().join("proc/self/mountinfo"), MOUNTS).unwrap();
        let host = Host::at(directory.path());
        (directory, host)
    }

    #[test]
    fn the_mount_of_a_path() {
        for (path, kind) in [
            ("/var/lib/frond", "ext4"),
            ("/data", "xfs"),
            ("/data/db", "xfs"),
            ("/database", "ext4"),
            ("/data/ro disk/db", "ext4"),
            ("/merged/x", "overlay"),
        ] {
            let mount = mount_of(MOUNTS, Path::new(path)).unwrap();
            assert_eq!(mount.kind, kind, "{path}");
        }
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn types_and_options() {
        use Level::{Good, Note, Problem, Warning};
        let (_directory, host) = host();
        let levels = |path: &str, magic| -> Vec<Level> {
            let found = file_system(&host, Path::new(path), magic);
            assert!(
                found
                    .iter()
                    .all(|f| f.level == Good || !f.advice.is_empty())
            );
            found.iter().map(|finding| finding.level).collect()
        };
        assert_eq!(levels("/data/db", None), [Good]);
        assert_eq!(levels("/var/lib/frond", None), [Note]);
        assert_eq!(levels("/data/ro disk", None), [Problem, Problem]);
        assert_eq!(levels("/merged", None), [Warning]);
        assert_eq!(levels("/old/db", None), [Warning, Warning, Note]);
        assert_eq!(levels("/b/db", None), [Note]);
        // NFS, by the number that the server warns of at its start.
        assert_eq!(levels("/data/db", Some(0x6969)), [Warning]);
    }

    #[test]
    fn space_beside_the_reserve() {
        const GIB: u64 = 1 << 30;
        let level = |available, reserve, inodes| {
            let given = FileSystemSpace {
                total: 100 * GIB,
                available,
                inodes,
            };
            free_space(given, reserve).last().unwrap().level
        };
        assert_eq!(level(50 * GIB, None, (0, 0)), Level::Good);
        assert_eq!(level(9 * GIB, None, (0, 0)), Level::Warning);
        assert_eq!(level(GIB / 2, None, (0, 0)), Level::Problem);
        assert_eq!(level(50 * GIB, Some(20 * GIB), (0, 0)), Level::Warning);
        assert_eq!(level(50 * GIB, None, (10, 50)), Level::Warning);
        assert_eq!(level(50 * GIB, None, (10_000, 50_000)), Level::Good);
    }

    #[test]
    fn speeds() {
        let fast = Speed {
            is_direct: true,
            write_bytes_per_second: 900e6,
            read_bytes_per_second: 2e9,
            sync_ms: (0.4, 2.0),
            read_ms: (0.1, 0.2),
        };
        assert!(speed(&fast).iter().all(|f| f.level == Level::Good));
        let slow = Speed {
            is_direct: false,
            write_bytes_per_second: 40e6,
            sync_ms: (25.0, 90.0),
            read_ms: (12.0, 30.0),
            ..fast.clone()
        };
        let levels: Vec<Level> = speed(&slow).iter().map(|finding| finding.level).collect();
        assert_eq!(
            levels,
            [Level::Note, Level::Warning, Level::Warning, Level::Warning]
        );
        let too_fast = Speed {
            sync_ms: (0.001, 0.01),
            ..fast
        };
        assert_eq!(speed(&too_fast)[1].level, Level::Note);
    }
}
