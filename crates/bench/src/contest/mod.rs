//! One run over one or more systems, which take turns so that the machine's drift hits all of them.

mod lanes;
mod options;

pub use lanes::{Ending, Lane, Turn, alternate};
pub use options::{Servers, scale};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::null::{self, NullServer};
use crate::report::{TraceFile, make_folder};
use crate::signals::stop_on_signals;
use crate::system::{Defaults, Description, Scheme, Session, System, WriteConcern};

/// Turns of each server if there are several and nothing else is asked for: 5% of the work each, so
/// that the last turn is what "exit speed" means.
const TURNS: u32 = 20;

/// The database when neither command line nor connection string names one.
const DATABASE: &str = "frond_bench";

/// A system in the run.
pub struct Contestant {
    /// How reports call it: its name, with a number if another one has the same.
    pub label: String,
    /// Where it is; empty for a null server inside of this process.
    pub uri: String,
    /// Who it says it is.
    pub description: Description,
    system: Box<dyn System>,
}

/// What all workloads of a run share.
pub struct Contest {
    /// Who takes part, in the order of the command line. Ratios are taken of the first.
    pub contestants: Vec<Contestant>,
    /// The settings.
    pub servers: Servers,
    /// Set when the user asked to stop.
    pub stop: Arc<AtomicBool>,
    /// Where the report goes.
    pub folder: PathBuf,
    /// When the run began.
    pub started: jiff::Timestamp,
    /// Where the client runs.
    pub machine: Machine,
    /// The trace of all workloads.
    pub trace: TraceFile,
    /// Each workload drops what it made, so that the next one finds the disk as it was.
    pub drop_after: bool,
    /// Serves until the run is over.
    _null: Option<NullServer>,
}

impl Contest {
    /// Connects to each system once, and makes the folder of the report.
    pub fn open(servers: &Servers, workload: &str, schemes: &[&dyn Scheme]) -> Result<Contest> {
        let stop = stop_on_signals()?;
        let mut contestants: Vec<Contestant> = Vec::new();
        for uri in servers.uris() {
            let system = open(&uri, schemes)?;
            let description = system.connect(&stop)?.describe();
            contestants.push(Contestant {
                label: description.name.clone(),
                uri,
                description,
                system,
            });
        }
        let null = if servers.null {
            let null = null::start(&null::any_port())?;
            let system = open(&null.uri(), schemes)?;
            let description = system.connect(&stop)?.describe();
            contestants.push(Contestant {
                label: description.name.clone(),
                uri: String::new(),
                description,
                system,
            });
            Some(null)
        } else {
            None
        };
        number_labels(&mut contestants);
        let started = jiff::Timestamp::now();
        let folder = make_folder(servers.out.as_deref(), workload, started)?;
        Ok(Contest {
            trace: TraceFile::create(&folder)?,
            contestants,
            servers: servers.clone(),
            drop_after: false,
            stop,
            folder,
            started,
            machine: Machine::read(),
            _null: null,
        })
    }

    /// Turns that each server takes.
    #[must_use]
    pub fn turns(&self) -> u32 {
        let default = if self.contestants.len() > 1 { TURNS } else { 1 };
        self.servers.turns.unwrap_or(default)
    }

    /// The longest that a workload may take on one server.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.servers
            .minutes
            .map(|m| Duration::from_secs_f64(m * 60.0))
    }

    /// Fails when the user asked to stop.
    pub fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// In a run of several workloads, drops what one of them made.
    pub fn leave(&self, session: &mut dyn Session, collection: &Collection) -> Result<()> {
        if self.drop_after {
            session.drop_collection(collection)?;
        }
        Ok(())
    }

    /// Lets lanes take turns until all have ended. Returns the first error, after all have ended.
    pub fn alternate(&self, lanes: &mut [impl Lane]) -> Result<()> {
        alternate(lanes, &self.stop)
    }

    /// How reports call the systems.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.contestants.iter().map(|c| c.label.clone()).collect()
    }

    /// Whether each of them is a null server.
    #[must_use]
    pub fn nulls(&self) -> Vec<bool> {
        self.contestants
            .iter()
            .map(|c| c.description.null)
            .collect()
    }
}

impl Contestant {
    /// Opens a connection.
    pub fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        self.system.connect(stop)
    }

    /// Opens several.
    pub fn connect_all(
        &self,
        count: usize,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn Session>>> {
        (0..count).map(|_| self.connect(stop)).collect()
    }

    /// What the connection string says.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.system.defaults()
    }

    /// A collection: its database is that of the option `--db`, else that of the connection string,
    /// else a default.
    pub fn collection(&self, database: Option<&str>, name: &str) -> Result<Collection> {
        let defaults = self.system.defaults();
        let database = database.or(defaults.database.as_deref());
        Collection::new(database.unwrap_or(DATABASE), name)
    }

    /// What writes wait for: what the command line says, else the connection string, else `w`.
    pub fn concern(&self, asked: Option<u8>, journal: bool, w: u8) -> Result<WriteConcern> {
        let defaults = self.system.defaults();
        let acknowledged = asked.or(defaults.write_concern).unwrap_or(w) == 1;
        let journal = journal || defaults.journal.unwrap_or(false);
        if journal && !acknowledged {
            return Err(Error::Settings(
                "--journal waits for an answer, which --write-concern 0 does not get".to_owned(),
            ));
        }
        Ok(WriteConcern {
            acknowledged,
            journal,
        })
    }
}

/// The system that a connection string leads to.
fn open(uri: &str, schemes: &[&dyn Scheme]) -> Result<Box<dyn System>> {
    match schemes
        .iter()
        .find(|scheme| uri.starts_with(scheme.prefix()))
    {
        Some(scheme) => scheme.open(uri),
        None => {
            let known: Vec<&str> = schemes.iter().map(|scheme| scheme.prefix()).collect();
            Err(Error::Uri(format!(
                "{uri:?} must start with {}",
                known.join(" or ")
            )))
        }
    }
}

/// Tells systems of the same name apart.
fn number_labels(contestants: &mut [Contestant]) {
    let names: Vec<String> = contestants.iter().map(|c| c.label.clone()).collect();
    for (index, contestant) in contestants.iter_mut().enumerate() {
        let same = |other: &&String| **other == contestant.label;
        if names.iter().filter(same).count() > 1 {
            let nth = names.iter().take(index + 1).filter(same).count();
            contestant.label = format!("{} #{nth}", contestant.label);
        }
    }
}
