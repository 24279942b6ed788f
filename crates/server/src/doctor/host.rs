//! The machine: limits of processes, the kernel's settings, memory, the clock. Everything is read from files of `/proc` and `/sys`
//! below a root, which a test replaces.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::finding::{Finding, size};
use crate::host::memory::{client_bytes, default_cache, group_limit};
use crate::host::proc;
use crate::observability::startup_warnings;

/// The least limit of processes of one user that the server's threads need.
const PROCESSES_MIN: u64 = 4096;
/// A clock that jumps by more than this between two readings was set.
const CLOCK_JUMP: Duration = Duration::from_millis(100);

/// The paths of the system's files.
pub struct Host {
    root: PathBuf,
}

impl Host {
    pub fn real() -> Host {
        Host::at(Path::new("/"))
    }

    /// The files below another root.
    pub fn at(root: &Path) -> Host {
        Host {
            root: root.to_owned(),
        }
    }

    /// The text of a file with an absolute path.
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }

    /// A field of `/proc/meminfo` in bytes.
    fn memory_info(&self, name: &str) -> Option<u64> {
        proc::size(&self.read("/proc/meminfo")?, name)
    }

    /// The hard limit of a process, as `/proc/PID/limits` names it.
    fn hard_limit(&self, process: &str, name: &str) -> Option<u64> {
        let text = self.read(&format!("/proc/{process}/limits"))?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_whitespace().nth(1)? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }
}

fn number(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => limit.to_string(),
    }
}

/// The limits of a running server, or of this process, whose limits a server gets that is started from here.
pub fn limits(host: &Host, server: Option<u32>) -> Vec<Finding> {
    const AREA: &str = "limits";
    let (process, whose) = match server {
        Some(pid) if host.exists(&format!("/proc/{pid}/limits")) => {
            (pid.to_string(), "of the running server")
        }
        _ => ("self".to_owned(), "of a server that is started from here"),
    };
    let mut found = Vec::new();
    // The server raises its soft limit to the hard one.
    if let Some(limit) = host.hard_limit(&process, "Max open files") {
        let what = format!("open files {whose}: {}", number(limit));
        found.push(match startup_warnings::of_open_files(limit) {
            Some(_) => Finding::warning(
                AREA,
                what,
                "each connection needs one: raise the hard limit to 64000 or more (LimitNOFILE= of the systemd unit, nofile in \
                 /etc/security/limits.conf, ulimit -Hn)",
            ),
            None => Finding::good(AREA, what),
        });
    }
    if let Some(limit) = host.hard_limit(&process, "Max processes") {
        let what = format!("processes and threads {whose}: {}", number(limit));
        found.push(if limit < PROCESSES_MIN { Finding::warning(
                AREA,
                what,
                "raise the limit to 64000 (LimitNPROC= of the systemd unit, nproc in /etc/security/limits.conf, ulimit -u)",
            ) } else { Finding::good(AREA, what) });
    }
    if let Some(limit) = host.hard_limit(&process, "Max locked memory") {
        let limit = match limit {
            u64::MAX => number(limit),
            bytes => size(bytes),
        };
        found.push(Finding::good(
            AREA,
            format!("locked memory: {limit}; the server locks none"),
        ));
    }
    if let Some(limit) = host.hard_limit(&process, "Max file size")
        && limit != u64::MAX
    {
        found.push(Finding::problem(
            AREA,
            format!("size of files {whose}: {}", size(limit)),
            "the data is in one file: remove the limit (LimitFSIZE=infinity of the systemd unit, ulimit -f unlimited)",
        ));
    }
    found
}

/// The advice for a warning about the kernel's settings.
fn kernel_advice(id: u32) -> &'static str {
    match id {
        22171 => "sysctl -w vm.overcommit_memory=1, and the same in a file in /etc/sysctl.d",
        22174 => "sysctl -w vm.zone_reclaim_mode=0, and the same in a file in /etc/sysctl.d",
        8_386_700 => "sysctl -w vm.swappiness=1, and the same in a file in /etc/sysctl.d",
        _ => "",
    }
}

/// Settings of the kernel: those that the server warns of when it starts, and transparent huge pages.
pub fn kernel(host: &Host) -> Vec<Finding> {
    const AREA: &str = "kernel";
    let warnings = startup_warnings::of_kernel(|path| host.read(path));
    let mut found: Vec<Finding> = warnings
        .into_iter()
        .map(|(id, message, _)| Finding::warning(AREA, message, kernel_advice(id)))
        .collect();
    if found.is_empty() {
        found.push(Finding::good(
            AREA,
            "overcommit, swappiness and zone reclaim are set well",
        ));
    }
    let pages = host.read("/sys/kernel/mm/transparent_hugepage/enabled");
    let mode = pages.as_deref().and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(mode, _)| mode.to_owned())
    });
    match mode.as_deref() {
        Some(mode @ "always") => found.push(Finding::note(
            AREA,
            format!("transparent huge pages: {mode}; the server's allocator asks for none"),
            "other databases on this machine may want madvise or never",
        )),
        Some(mode) => found.push(Finding::good(
            AREA,
            format!("transparent huge pages: {mode}"),
        )),
        None => {}
    }
    found
}

/// The memory that a server may use, and the size of its cache; none means the default.
pub fn memory(host: &Host, cache: Option<u64>) -> Vec<Finding> {
    const AREA: &str = "memory";
    let Some(machine) = host.memory_info("MemTotal") else {
        return vec![Finding::note(AREA, "cannot read /proc/meminfo", "")];
    };
    let groups = host.read("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, &host.root.join("sys/fs/cgroup"));
    let usable = machine.min(limit.unwrap_or(u64::MAX));
    let whose = if usable < machine {
        "limit of the control group"
    } else {
        "memory of the machine"
    };
    let is_default = cache.is_none();
    let cache = cache.unwrap_or_else(|| default_cache(usable, machine));
    let what = format!(
        "cache {} ({}), {whose} {}",
        size(cache),
        if is_default { "default" } else { "configured" },
        size(usable)
    );
    let mut found = Vec::new();
    found.push(if cache > usable / 20 * 19 {
        Finding::problem(
            AREA,
            what,
            "the system will kill the server: set storage.cacheSizeGB to at most half of the memory, or leave it out",
        )
    } else if cache.saturating_add(client_bytes(usable, cache)) > usable / 10 * 9 {
        Finding::warning(
            AREA,
            what,
            "little is left for connections, sorts and the system's page cache: set storage.cacheSizeGB lower, or leave \
             it out",
        )
    } else {
        Finding::good(AREA, what)
    });
    if let Some(available) = host.memory_info("MemAvailable")
        && cache > available
    {
        found.push(Finding::note(
            AREA,
            format!("{} are available now, less than the cache", size(available)),
            "a server that is running already uses a part of the difference; otherwise see what does: ps aux --sort -rss",
        ));
    }
    let swap = host.memory_info("SwapTotal").unwrap_or(0);
    let used = swap.saturating_sub(host.memory_info("SwapFree").unwrap_or(0));
    found.push(match swap {
        0 => Finding::good("swap", "none"),
        _ if used > swap / 2 => Finding::warning(
            "swap",
            format!("{} of {} in use", size(used), size(swap)),
            "the machine has too little memory for what runs on it: reads from the cache become reads from the disk",
        ),
        _ => Finding::good("swap", format!("{} of {} in use", size(used), size(swap))),
    });
    found
}

/// Whether the clock is synchronised: what `timedatectl` prints, if it is there, or the traces of services that do it.
pub fn clock(host: &Host, timedatectl: Option<&str>) -> Vec<Finding> {
    const AREA: &str = "clock";
    const ADVICE: &str = "install chrony or turn on systemd-timesyncd: timestamps of the oplog, ObjectIds and the expiry of \
                          documents follow the clock";
    let mut found = Vec::new();
    let traces = [
        "/run/systemd/timesync/synchronized",
        "/run/chrony/chronyd.pid",
        "/run/chronyd.pid",
        "/run/ntpd.pid",
        "/run/ntpsec.pid",
    ];
    found.push(match timedatectl.map(str::trim) {
        Some("yes") => Finding::good(AREA, "synchronised"),
        Some("no") => Finding::warning(AREA, "not synchronised", ADVICE),
        _ => match traces.iter().find(|path| host.exists(path)) {
            Some(path) => Finding::good(AREA, format!("a service sets it ({path})")),
            None => Finding::note(
                AREA,
                "no service that synchronises it was found; in a container the host does it",
                ADVICE,
            ),
        },
    });
    let source = host.read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Some(source) = source.as_deref().map(str::trim)
        && matches!(
            source,
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit"
        )
    {
        found.push(Finding::warning(
            AREA,
            format!("the kernel reads the slow clock source {source}"),
            "each operation reads the clock: see dmesg for why tsc is not used",
        ));
    }
    found
}

/// The state of the synchronisation by `timedatectl`.
pub fn timedatectl() -> Option<String> {
    let mut command = std::process::Command::new("timedatectl");
    let output = command
        .args(["show", "--property=NTPSynchronized", "--value"])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares the clock with the monotonic one, for as long as it lives.
pub struct ClockWatch {
    clock: SystemTime,
    steady: Instant,
}

impl ClockWatch {
    pub fn start() -> ClockWatch {
        ClockWatch {
            clock: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// A finding if the clock was set meanwhile, or if it is behind the newest file.
    pub fn end(&self, newest_file: Option<SystemTime>) -> Vec<Finding> {
        let now = SystemTime::now();
        let moved = now.duration_since(self.clock).unwrap_or_default();
        of_times(moved, self.steady.elapsed(), now, newest_file)
    }
}

fn of_times(
    moved: Duration,
    elapsed: Duration,
    now: SystemTime,
    newest_file: Option<SystemTime>,
) -> Vec<Finding> {
    const AREA: &str = "clock";
    let mut found = Vec::new();
    let jump = moved.abs_diff(elapsed);
    if jump > CLOCK_JUMP {
        found.push(Finding::warning(
            AREA,
            format!("it jumped by {} ms during the checks", jump.as_millis()),
            "let one service only set the clock, and let it slew",
        ));
    }
    let ahead = newest_file.and_then(|time| time.duration_since(now).ok());
    if let Some(ahead) = ahead.filter(|ahead| *ahead > Duration::from_secs(2)) {
        found.push(Finding::warning(
            AREA,
            format!(
                "it is {} s behind the newest file of the data directory",
                ahead.as_secs()
            ),
            "it was set back: until it has caught up, documents expire late and new ObjectIds sort before older ones",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::finding::Level;
    use super::*;

    /// A root with these files.
    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = Host::at(directory.path());
        (directory, host)
    }

    fn levels(found: &[Finding]) -> Vec<(&'static str, Level)> {
        found
            .iter()
            .map(|finding| (finding.area, finding.level))
            .collect()
    }

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max file size             unlimited            unlimited            bytes     
Max processes             95824                95824                processes 
Max open files            1024                 1048576              files     
Max locked memory         8388608              8388608              bytes     
";

    #[test]
    fn hard_limits_of_the_server_or_of_this_process() {
        use Level::{Good, Problem, Warning};
        let low = LIMITS
            .replace("1048576 ", "4096    ")
            .replace("95824 ", "512   ")
            .replace("unlimited            bytes", "1000000              bytes");
        let (_directory, host) = fake(&[("proc/self/limits", LIMITS), ("proc/7/limits", &low)]);
        let found = limits(&host, None);
        assert_eq!(levels(&found), [("limits", Good); 3]);
        assert!(found[0].what.ends_with("started from here: 1048576"));
        assert_eq!(levels(&limits(&host, Some(8))), [("limits", Good); 3]);
        let found = limits(&host, Some(7));
        let expected = [Warning, Warning, Good, Problem].map(|level| ("limits", level));
        assert_eq!(levels(&found), expected);
        assert_eq!(found[0].what, "open files of the running server: 4096");
        assert!(
            found
                .iter()
                .all(|f| f.level == Good || !f.advice.is_empty())
        );
        assert_eq!(limits(&fake(&[]).1, None), []);
    }

    #[test]
    fn settings_of_the_kernel() {
        use Level::{Good, Note, Warning};
        let pages = "sys/kernel/mm/transparent_hugepage/enabled";
        let (_directory, host) = fake(&[(pages, "always [madvise] never\n")]);
        assert_eq!(levels(&kernel(&host)), [("kernel", Good); 2]);
        let (_directory, host) = fake(&[
            (pages, "[always] madvise never\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/vm/overcommit_memory", "2\n"),
            ("proc/sys/vm/zone_reclaim_mode", "1\n"),
            ("proc/meminfo", "SwapTotal: 5 kB\n"),
        ]);
        let found = kernel(&host);
        let expected = [Warning, Warning, Warning, Note].map(|level| ("kernel", level));
        assert_eq!(levels(&found), expected);
        assert!(found.iter().all(|finding| !finding.advice.is_empty()));
    }

    #[test]
    fn the_cache_and_the_memory() {
        use Level::{Good, Note, Problem, Warning};
        const GIB: u64 = 1 << 30;
        let info =
            "MemTotal: 8388608 kB\nMemAvailable: 7340032 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n";
        let (_directory, host) = fake(&[("proc/meminfo", info)]);
        for (cache, level) in [
            (None, Good),
            (Some(GIB), Good),
            (Some(15 * GIB / 2), Warning),
            (Some(8 * GIB), Problem),
        ] {
            let found = memory(&host, cache);
            assert_eq!(levels(&found)[0], ("memory", level), "{cache:?}");
            assert_eq!(found.last().unwrap().what, "none");
        }
        // A control group of 1 GiB, and little of the machine is available.
        let (_directory, host) = fake(&[
            (
                "proc/meminfo",
                "MemTotal: 8388608 kB\nMemAvailable: 1000 kB\nSwapTotal: 1000 kB\nSwapFree: 10 kB\n",
            ),
            ("proc/self/cgroup", "0::/frond\n"),
            ("sys/fs/cgroup/frond/memory.max", "1073741824\n"),
        ]);
        let found = memory(&host, None);
        assert_eq!(
            found[0].what,
            "cache 640.0 MiB (default), limit of the control group 1.0 GiB"
        );
        let expected = [("memory", Good), ("memory", Note), ("swap", Warning)];
        assert_eq!(levels(&found), expected);
        assert_eq!(memory(&host, Some(2 * GIB))[0].level, Problem);
        assert_eq!(levels(&memory(&fake(&[]).1, None)), [("memory", Note)]);
    }

    #[test]
    fn clocks() {
        use Level::{Good, Note, Warning};
        let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let (_directory, host) = fake(&[(source, "hpet\n")]);
        let level = |host: &Host, said| levels(&clock(host, said))[0].1;
        assert_eq!(clock(&host, Some("yes\n")).len(), 2);
        assert_eq!(level(&host, Some("yes\n")), Good);
        assert_eq!(level(&host, Some("no\n")), Warning);
        assert_eq!(level(&host, None), Note);
        let (_directory, host) = fake(&[("run/chrony/chronyd.pid", "1"), (source, "tsc\n")]);
        assert_eq!(levels(&clock(&host, None)), [("clock", Good)]);

        let (second, now) = (Duration::from_secs(1), SystemTime::now());
        assert_eq!(of_times(second, second, now, None), []);
        assert_eq!(of_times(second * 60, second, now, Some(now)).len(), 1);
        assert_eq!(of_times(Duration::ZERO, second, now, None).len(), 1);
        let found = of_times(second, second, now, Some(now + second * 100));
        assert!(found[0].what.starts_with("it is 100 s behind"));
    }
}
