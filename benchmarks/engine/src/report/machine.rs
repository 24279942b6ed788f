//! The machine of a run, as far as the system reports it.

use std::fs;

/// Lines for the report.
pub fn facts() -> Vec<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let kib: u64 = value_of(&memory, "MemTotal")
        .and_then(|text| text.strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0);
    vec![
        format!(
            "processor: {}, {} cores",
            value_of(&processor, "model name").unwrap_or("unknown"),
            std::thread::available_parallelism().map_or(0, usize::from)
        ),
        format!("memory: {} MiB", kib >> 10),
        format!(
            "system: Linux {}",
            read("/proc/sys/kernel/osrelease").trim()
        ),
    ]
}

/// The value of the first line `name : value`.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}
