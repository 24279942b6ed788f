//! The machine of a run, as far as the system reports it.

use std::fs;

/// Facts for a report. What cannot be read is "unknown" or 0.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// The system and its version.
    pub system: String,
}

impl Machine {
    pub fn read() -> Machine {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory_info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: value_of(&cpu_info, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_total(&memory_info).unwrap_or(0),
            system: format!("{} {}", std::env::consts::OS, release.trim())
                .trim()
                .to_owned(),
        }
    }
}

/// The value of the first line `name : value`.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn memory_total(text: &str) -> Option<u64> {
    let kib = value_of(text, "MemTotal")?.strip_suffix(" kB")?;
    kib.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_the_systems_tables() {
        let cpu = "processor\t: 0\nmodel name\t: A Fine CPU @ 2.0GHz\nmodel name\t: Other\n";
        assert_eq!(value_of(cpu, "model name"), Some("A Fine CPU @ 2.0GHz"));
        assert_eq!(value_of(cpu, "model"), None);
        let memory = "MemTotal:       24689552 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_total(memory), Some(24_689_552 * 1024));
        assert_eq!(memory_total("MemTotal: many"), None);
        assert!(Machine::read().cores > 0);
    }
}
