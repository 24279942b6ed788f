//! Garbage of a TiKV cluster: old versions, dropped trees, and what gone servers have left. One server collects it for all.

use std::time::Duration;

use super::Cluster;
use frond_storage::error::Result;

/// The task that one server leads.
const TASK: &str = "garbage";
/// Time between two runs of the collector.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(300);

impl Cluster {
    /// The time between two runs of the collector.
    pub fn garbage_pause(&self) -> Duration {
        (self.options.retention / 2).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// The time in seconds since 1970 from which on all versions are kept, with a margin for servers that do not hear of a reader at once.
    pub fn kept_from(&self) -> u64 {
        let kept = i64::try_from((self.options.retention / 10 * 9).as_secs()).unwrap_or(i64::MAX);
        let from = (self.about_now_ms() / 1000).saturating_sub(kept);
        u64::try_from(from).unwrap_or(0)
    }

    /// Collects what no server needs, if this server leads. The lease of every server names the versions that it needs, so those of
    /// one that has just been started or has ended are kept until it is removed.
    ///
    /// # Errors
    /// Errors of the engine. The next run tries again.
    pub fn collect_garbage(&self) -> Result<()> {
        if !self.leads(TASK)? {
            return Ok(());
        }
        self.remove_dead()?;
        let servers = self.registered(&self.engine.snapshot())?;
        let mut needed = u64::MAX;
        for server in &servers {
            let Some(oldest) = server.oldest else {
                // A server of another version, which does not publish it.
                return Ok(());
            };
            needed = needed.min(oldest);
        }
        let live: Vec<u32> = servers
            .iter()
            .filter_map(|server| server.instance)
            .collect();
        if let Some(cluster) = &self.fenced {
            cluster.collect_garbage(needed, self.options.retention, &live)?;
        }
        Ok(())
    }
}
