//! A control group with a limit of memory, for one server.

#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group. It is removed when it is dropped, after its process has ended.
pub struct MemoryGroup {
    path: PathBuf,
    is_v2: bool,
}

impl MemoryGroup {
    /// A group with a limit. None where groups cannot be made: then a line says that the test is passed over.
    pub fn new(test: &str, bytes: u64) -> Option<MemoryGroup> {
        let made = MemoryGroup::make(test, bytes);
        if made.is_none() {
            println!("{test}: passed over, because no memory control group can be made here");
        }
        made
    }

    fn make(test: &str, bytes: u64) -> Option<MemoryGroup> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let root = Path::new("/sys/fs/cgroup");
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_v2 = controllers.is_empty();
            if !is_v2 && !controllers.split(',').any(|name| name == "memory") {
                return None;
            }
            let parent = if is_v2 {
                root.to_owned()
            } else {
                root.join("memory")
            };
            let name = format!("frond-{test}-{}", std::process::id());
            let path = parent.join(path.trim_start_matches('/')).join(name);
            fs::create_dir(&path).ok()?;
            let group = MemoryGroup { path, is_v2 };
            let limit = if is_v2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            fs::write(group.path.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }

    /// A command that runs the same program in the group.
    pub fn command(&self, inner: &Command) -> Command {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("echo $$ > \"$0\" && exec \"$@\"")
            .arg(self.path.join("cgroup.procs"))
            .arg(inner.get_program())
            .args(inner.get_args());
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The process may take a moment to leave it.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// The largest resident memory that a process has had, and what it has now, in bytes.
pub fn resident(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the server is alive");
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    };
    (kib("VmHWM:") << 10, kib("VmRSS:") << 10)
}
