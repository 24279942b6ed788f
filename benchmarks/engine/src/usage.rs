//! Resource usage of a process and its disk, from the kernel's counters.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Counters at one moment, or their difference between two.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub elapsed_s: f64,
    /// Processor time of all threads, in user and in kernel mode, in seconds.
    pub cpu_s: f64,
    pub read_calls: f64,
    /// Bytes fetched from the storage layer for this process.
    pub read_bytes: f64,
    /// Bytes this process caused to be written to the storage layer. Pages of buffered files are
    /// counted when they become dirty.
    pub write_bytes: f64,
    /// Page faults that read from the disk.
    pub major_faults: f64,
    /// Reads that the whole device completed, whoever asked.
    pub device_reads: f64,
    /// Bytes that were written to the whole device, whoever asked.
    pub device_write_bytes: f64,
}

/// Reads the counters of this process and of the device that holds a folder.
pub struct Meter {
    start: Instant,
    device: Option<PathBuf>,
}

impl Meter {
    /// A meter for this process and for the device of `folder`.
    pub fn new(folder: &Path) -> Meter {
        let device = fs::metadata(folder).ok().and_then(|metadata| {
            let device = metadata.dev();
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let file = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
            file.exists().then_some(file)
        });
        Meter {
            start: Instant::now(),
            device,
        }
    }

    pub fn now(&self) -> Usage {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let device = match &self.device {
            Some(file) => fs::read_to_string(file).unwrap_or_default(),
            None => String::new(),
        };
        let device_field = |index| number(device.split_whitespace().nth(index));
        Usage {
            elapsed_s: self.start.elapsed().as_secs_f64(),
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            read_calls: field(&io, "syscr"),
            read_bytes: field(&io, "read_bytes"),
            write_bytes: field(&io, "write_bytes"),
            major_faults: major_faults(&stat),
            device_reads: device_field(0),
            device_write_bytes: device_field(6) * 512.0,
        }
    }

    pub fn since(&self, before: Usage) -> Usage {
        let now = self.now();
        Usage {
            elapsed_s: now.elapsed_s - before.elapsed_s,
            cpu_s: now.cpu_s - before.cpu_s,
            read_calls: now.read_calls - before.read_calls,
            read_bytes: now.read_bytes - before.read_bytes,
            write_bytes: now.write_bytes - before.write_bytes,
            major_faults: now.major_faults - before.major_faults,
            device_reads: now.device_reads - before.device_reads,
            device_write_bytes: now.device_write_bytes - before.device_write_bytes,
        }
    }
}

fn number(text: Option<&str>) -> f64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// The number behind `name:` in a table of the kernel; 0 if there is none.
fn field(table: &str, name: &str) -> f64 {
    table
        .lines()
        .find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key == name).then(|| number(value.split_whitespace().next()))
        })
        .unwrap_or(0.0)
}

/// The twelfth field of `/proc/self/stat`. The second one, the name, may hold blanks.
fn major_faults(stat: &str) -> f64 {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    number(behind_name.split_whitespace().nth(9))
}

/// The process's resident memory in MiB: its high-water mark, and now.
pub fn resident_mib() -> (f64, f64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mib = |name| field(&status, name) / 1024.0;
    (mib("VmHWM"), mib("VmRSS"))
}

/// The peak of this process's memory cgroup in MiB, page cache included; none outside of one.
pub fn cgroup_peak_mib() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let bytes = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let file = if controllers.split(',').any(|name| name == "memory") {
            format!("/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes")
        } else if controllers.is_empty() {
            format!("/sys/fs/cgroup{path}/memory.peak")
        } else {
            return None;
        };
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse::<f64>().ok()
    })?;
    Some(bytes / f64::from(1 << 20))
}

/// Bytes that the files of a folder take on the disk; holes are not counted.
pub fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_tables() {
        let io = "rchar: 1\nsyscr: 7\nread_bytes: 4096\ncancelled_write_bytes: 5\n";
        assert_eq!(field(io, "syscr"), 7.0);
        assert_eq!(field(io, "read_bytes"), 4096.0);
        assert_eq!(field(io, "write_bytes"), 0.0);
        assert_eq!(field("VmHWM:\t  2048 kB\n", "VmHWM"), 2048.0);
        let stat = "1 (a ) b) S 1 2 3 4 5 6 7 8 99 10 11 12";
        assert_eq!(major_faults(stat), 99.0);
    }

    #[test]
    fn a_meter_sees_work() {
        let meter = Meter::new(Path::new("."));
        let before = meter.now();
        let mut sum = 0u64;
        while meter.since(before).cpu_s < 0.01 {
            sum = sum.wrapping_add(before.read_calls as u64);
        }
        let used = meter.since(before);
        assert!(used.elapsed_s > 0.0 && used.read_calls > 0.0, "{sum}");
        assert!(resident_mib().0 > 1.0);
    }
}
