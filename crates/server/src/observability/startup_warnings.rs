//! Warnings about the system for its operator: shells show it to those who connect.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use frond_bson::{DocBuf, doc};

use crate::host::proc;
use crate::observability::log::Log;
use crate::settings::Settings;

/// A limit of open files below this is too low for many connections.
const OPEN_FILES_MIN: u64 = 64_000;

/// A warning: its number, its text and its attributes.
pub type Warning = (u32, &'static str, DocBuf);

/// Warns about unrestricted access, addresses, the user of the process and settings of the system. `open_files` is the limit of open
/// files.
pub fn warn(settings: &Settings, log: &Log, open_files: u64) {
    let read = |path: &str| fs::read_to_string(path).ok();
    let file_system = file_system_of(&settings.db_path);
    let found = of_settings(settings)
        .into_iter()
        .chain(of_kernel(read))
        .chain(of_open_files(open_files))
        .chain(file_system.and_then(|kind| of_file_system(kind, &settings.db_path)));
    for (id, message, attributes) in found {
        log.startup_warning(id, message, &attributes);
    }
}

/// The circumstances of the start.
pub fn of_settings(settings: &Settings) -> Vec<Warning> {
    let mut found = Vec::new();
    if !settings.security.authorization {
        found.push((
            22120,
            "Access control is not enabled for the database. Read and write access to data and configuration is \
             unrestricted",
            doc! {"bindIp": settings.bind_ip.join(",")},
        ));
    }
    if rustix::process::geteuid().is_root() {
        found.push((
            22138,
            "You are running this process as the root user, which is not recommended",
            DocBuf::new(),
        ));
    }
    if !settings.bind_ip_explicit {
        found.push((
            22140,
            "This server is bound to localhost. Remote systems cannot connect to it. Start the server with --bind_ip \
             <address> to choose the addresses that it serves, or with --bind_ip_all to serve all. With --bind_ip \
             127.0.0.1 this line is not shown",
            DocBuf::new(),
        ));
    }
    let key_file = settings.encryption.key_file.as_deref();
    if let Some(file) = key_file.filter(|file| file.starts_with(&settings.db_path)) {
        found.push((
            9_937_071,
            "The file with the master key is in the data directory that it encrypts. Whoever gets the directory gets the key",
            doc! {"file": file.display().to_string()},
        ));
    }
    if !settings.journal {
        found.push((
            22185,
            "The journal is off: a crash loses every write since the last checkpoint",
            DocBuf::new(),
        ));
    }
    found.extend(settings.audit.path.as_deref().and_then(of_audit_file));
    found
}

/// Permissions of others for the audit log. The server creates the file for its owner only.
fn of_audit_file(path: &Path) -> Option<Warning> {
    let mode = |path: &Path| Some(std::fs::metadata(path).ok()?.permissions().mode());
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let message = if mode(path).is_some_and(|mode| mode & 0o077 != 0) {
        "Other users of the machine have permissions for the file of the audit log"
    } else if mode(folder).is_some_and(|mode| mode & 0o066 != 0) {
        "Other users of the machine may read or change the folder of the audit log"
    } else {
        return None;
    };
    let attributes = doc! {"path": &*path.to_string_lossy()};
    Some((9_940_006, message, attributes))
}

/// Settings of the kernel, as files of `/proc` have them. The allocator asks for no transparent huge pages, so these may be
/// on.
pub fn of_kernel(read: impl Fn(&str) -> Option<String>) -> Vec<Warning> {
    let number = |path: &str| read(path)?.trim().parse::<i64>().ok();
    let attributes = |path: &str, value: i64| doc! {"sysfsFile": path, "currentValue": value};
    let mut found = Vec::new();
    let path = "/proc/sys/vm/overcommit_memory";
    if let Some(value) = number(path).filter(|value| *value == 2) {
        found.push((
            22171,
            "Memory allocation works best if overcommit_memory is set to 1",
            attributes(path, value),
        ));
    }
    let path = "/proc/sys/vm/zone_reclaim_mode";
    if let Some(value) = number(path).filter(|value| *value != 0) {
        found.push((
            22174,
            "We suggest setting zone_reclaim_mode to 0",
            attributes(path, value),
        ));
    }
    let path = "/proc/sys/vm/swappiness";
    let has_swap = || {
        let info = read("/proc/meminfo").unwrap_or_default();
        proc::number(&info, "SwapTotal") != Some(0)
    };
    if let Some(value) = number(path).filter(|value| *value > 1 && has_swap()) {
        found.push((
            8_386_700,
            "We suggest setting swappiness to 0 or 1, as swapping can cause performance problems",
            attributes(path, value),
        ));
    }
    found
}

/// The limit of open files.
pub fn of_open_files(limit: u64) -> Option<Warning> {
    (limit < OPEN_FILES_MIN).then(|| {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        (
            22184,
            "Soft rlimits for open file descriptors too low",
            doc! {"currentValue": limit, "recommendedMinimum": OPEN_FILES_MIN as i64},
        )
    })
}

/// The type of the file system that holds a directory, from `statfs`.
pub fn file_system_of(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statfs(path).ok()?;
    u64::try_from(stat.f_type).ok()
}

/// The type of the file system that holds the data.
pub fn of_file_system(kind: u64, path: &Path) -> Option<Warning> {
    let (name, message) = match kind {
        0x6969 => ("nfs", REMOTE),
        0x517b => ("smb", REMOTE),
        0xfe53_4d42 => ("smb2", REMOTE),
        0xff53_4d42 => ("cifs", REMOTE),
        0x0102_1994 => (
            "tmpfs",
            "The data directory is on a file system in memory: all data is lost when the machine stops",
        ),
        _ => return None,
    };
    let path = path.to_string_lossy().into_owned();
    Some((
        9_100_050,
        message,
        doc! {"fileSystem": name, "dbPath": path},
    ))
}

const REMOTE: &str = "The data directory is on a file system of another machine. Its locks and syncs may not hold what is \
                      needed to keep data over a crash. We suggest a local one";

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(found: impl IntoIterator<Item = Warning>) -> Vec<u32> {
        found.into_iter().map(|(id, ..)| id).collect()
    }

    #[test]
    fn settings_of_the_kernel_that_harm_are_told() {
        let with = |values: &'static [(&str, &str)]| {
            move |path: &str| {
                let found = values.iter().find(|(name, _)| path.ends_with(name));
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        assert_eq!(ids(of_kernel(|_| None)), [0; 0]);
        let good = with(&[
            ("overcommit_memory", "0\n"),
            ("swappiness", "1\n"),
            ("zone_reclaim_mode", "0\n"),
        ]);
        assert_eq!(ids(of_kernel(good)), [0; 0]);
        let bad = with(&[
            ("overcommit_memory", "2\n"),
            ("swappiness", "60\n"),
            ("zone_reclaim_mode", "1\n"),
            ("meminfo", "MemTotal: 1 kB\nSwapTotal:  2097148 kB\n"),
        ]);
        assert_eq!(ids(of_kernel(bad)), [22171, 22174, 8_386_700]);
        let without_swap = with(&[("swappiness", "60\n"), ("meminfo", "SwapTotal:  0 kB\n")]);
        assert_eq!(ids(of_kernel(without_swap)), [0; 0]);
    }

    #[test]
    fn limits_file_systems_and_access_are_told() {
        assert_eq!(ids(of_open_files(1024)), [22184]);
        assert_eq!(ids(of_open_files(64_000)), [0; 0]);
        let path = Path::new("/data");
        assert_eq!(ids(of_file_system(0x6969, path)), [9_100_050]);
        assert_eq!(ids(of_file_system(0x0102_1994, path)), [9_100_050]);
        assert_eq!(ids(of_file_system(0x5846_5342, path)), [0; 0], "xfs");
        let mut settings = Settings::default();
        let of = |settings: &Settings| {
            let mut found = ids(of_settings(settings));
            found.retain(|id| *id != 22138);
            found
        };
        assert_eq!(of(&settings), [22120, 22140]);
        settings.security.authorization = true;
        settings.bind_ip_explicit = true;
        assert_eq!(of(&settings), [0; 0]);
    }
}
