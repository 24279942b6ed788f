//! Waits for idle compaction: until a store's background work is done, and measures its cost.

use std::time::{Duration, Instant};

use super::Bench;
use crate::error::Result;
use crate::record::Record;
use crate::usage::{cgroup_peak_mib, disk_bytes, resident_mib};

/// A store is idle when it has had no job and has written nothing for this long. Frond's engine starts
/// some of its work only when there was no commit for a second.
const IDLE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);

impl Bench {
    /// Records the space on disk and in memory.
    pub(super) fn set_space(&self, record: &mut Record) {
        let mib = f64::from(1 << 20);
        let disk = disk_bytes(&self.folder) as f64;
        record.set("disk_mib", disk / mib);
        let (high_water, now) = resident_mib();
        record.set("resident_max_mib", high_water);
        record.set("resident_mib", now);
        if let Some(peak) = cgroup_peak_mib() {
            record.set("cgroup_max_mib", peak);
        }
    }

    /// Waits for idle compaction. Its writes are counted with those of the phase before.
    pub fn wait_until_idle(&mut self, phase: &str) -> Result<()> {
        let before = self.meter.now();
        let start = Instant::now();
        self.engine.flush()?;
        let mut last_work = Instant::now();
        let mut written = self.meter.now().write_bytes;
        let mut at_rest = true;
        while last_work.elapsed() < IDLE {
            if start.elapsed() > self.limits.compaction {
                at_rest = false;
                break;
            }
            std::thread::sleep(STEP);
            let now = self.meter.now().write_bytes;
            if now != written || self.engine.background()? > 0 {
                (last_work, written) = (Instant::now(), now);
            }
        }
        let (began, logical) = self.written;
        let cpu_s = self.meter.since(before).cpu_s;
        let used = self.meter.since(began);
        let mut record = self.record(phase, 1);
        record.set("settle_s", (last_work - start).as_secs_f64());
        record.set("settle_cpu_s", cpu_s);
        record.set("written_per_logical", used.write_bytes / logical);
        record.set(
            "device_written_per_logical",
            used.device_write_bytes / logical,
        );
        self.set_space(&mut record);
        let held = self.content.logical_bytes() as f64;
        record.set("disk_per_logical", disk_bytes(&self.folder) as f64 / held);
        for (name, value) in self.engine.figures() {
            record.set(&format!("engine:{name}"), value);
        }
        if !at_rest {
            let limit = self.limits.compaction;
            record.notes.push(format!("not at rest after {limit:?}"));
        }
        self.keep(&record)
    }
}
