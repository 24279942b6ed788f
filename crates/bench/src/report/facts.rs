//! What every report says about versions and machine.

use crate::client::{Client, Dialect};
use crate::machine::Machine;
use crate::monitor::ServerFacts;

use super::thousands;

/// Who measured whom, and when.
pub struct Facts {
    /// When the run began.
    pub started: jiff::Timestamp,
    server: ServerFacts,
    dialect: Dialect,
    compressor: Option<&'static str>,
    machine: Machine,
}

impl Facts {
    /// Asks the server and the system. `dialect` is how writes travel.
    #[must_use]
    pub fn ask(client: &mut Client, dialect: Dialect) -> Facts {
        Facts {
            started: jiff::Timestamp::now(),
            server: ServerFacts::ask(client),
            dialect,
            compressor: client.compressor().map(|compressor| compressor.name()),
            machine: Machine::read(),
        }
    }

    /// As (name, value).
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let mib = |mib: f64| format!("{} MiB", thousands(mib));
        let memory = self.machine.memory_bytes as f64 / 1_048_576.0;
        let mut facts = vec![
            (
                "started",
                self.started.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            ),
            ("server version", self.server.version.clone()),
            ("storage engine", self.server.engine.clone()),
            ("frond-bench version", env!("CARGO_PKG_VERSION").to_owned()),
            ("writes sent as", self.dialect.name().to_owned()),
            ("compression", self.compressor.unwrap_or("none").to_owned()),
            ("client's CPU", self.machine.cpu.clone()),
            ("client's cores", self.machine.cores.to_string()),
            ("client's memory", mib(memory)),
            ("client's system", self.machine.system.clone()),
        ];
        if let Some(limit) = self.server.memory_limit_mib {
            facts.push(("server's memory limit", mib(limit)));
        }
        facts
    }
}
