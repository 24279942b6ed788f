//! The harness of a run: targets that take turns, so that the machine's drift affects all of them.

mod options;
mod pauses;
mod runner;

#[cfg(test)]
pub use options::parse_work;
pub use options::{CommonOptions, Options, WriteOptions, number, scale};
use pauses::Pauses;
pub use pauses::parent_process;
use runner::alternate;
pub use runner::{Runner, StepOutcome};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::documents::Source;
use crate::machine::Machine;
use crate::null::{self, NullServer};
use crate::report::{Columns, Report, Section, Server, TraceFile, make_folder};
use crate::signals::stop_on_signals;
use crate::system::{Defaults, Scheme, Session, Status, System, WriteConcern, wait_until_idle};
use frond_client::{Collection, Error, Result, uri::without_passwords};

/// Turns of each target if there are several and `--turns` is not given: 5% of the work each, so
/// that the last turn is what "exit speed" means.
const TURNS: u32 = 20;

/// The database when neither command line nor connection string names one.
const DATABASE: &str = "frond_bench";

/// A workload with its settings.
pub trait Workload {
    fn name(&self) -> &'static str;

    /// Refuses settings that contradict each other.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Runs the workload on all targets. The section holds what was measured, also after an error.
    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)>;
}

pub struct Target {
    /// The description of the server in reports.
    pub server: Server,
    system: Box<dyn System>,
}

/// The targets, settings and stop flag that all workloads of a run share.
pub struct Run {
    /// The targets in the order of the command line. Ratios are relative to the first.
    pub targets: Vec<Target>,
    pub options: CommonOptions,
    /// Set when the user asked to stop.
    pub stop: Arc<AtomicBool>,
    pub folder: PathBuf,
    /// The trace of all workloads.
    pub trace: TraceFile,
    /// Each workload drops its collections, so that the next one finds the disk as it was.
    pub drop_after: bool,
    started: jiff::Timestamp,
    /// Serves until the run is over.
    _null: Option<NullServer>,
}

impl Run {
    /// Connects to each system once, and makes the folder of the report.
    pub fn open(options: &CommonOptions, workload: &str, schemes: &[&dyn Scheme]) -> Result<Run> {
        let stop = stop_on_signals()?;
        let mut targets = Vec::new();
        for uri in options.uris() {
            targets.push(Target::open(&uri, schemes, &stop)?);
        }
        let null = if options.null {
            Some(null::start(&null::any_port())?)
        } else {
            None
        };
        if let Some(null) = &null {
            let mut target = Target::open(&null.uri(), schemes, &stop)?;
            // Its port means nothing to a reader of the report.
            target.server.uri.clear();
            targets.push(target);
        }
        number_labels(&mut targets);
        let started = jiff::Timestamp::now();
        let folder = make_folder(options.out.as_deref(), workload, started)?;
        Ok(Run {
            trace: TraceFile::create(&folder)?,
            targets,
            options: options.clone(),
            drop_after: false,
            stop,
            folder,
            started,
            _null: null,
        })
    }

    pub fn report(&self) -> Report {
        let servers = self.targets.iter().map(|target| target.server.clone());
        Report::new(servers.collect(), self.started, &Machine::read())
    }

    pub fn turns(&self) -> u32 {
        let default = if self.targets.len() > 1 { TURNS } else { 1 };
        self.options.turns.unwrap_or(default)
    }

    /// The longest that a workload may take on one server.
    pub fn limit(&self) -> Option<Duration> {
        let minutes = self.options.minutes?;
        Some(Duration::from_secs_f64(minutes * 60.0))
    }

    /// Returns an error once the user asked to stop.
    pub fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }

    /// In a run of several workloads, drops the collections of one of them. An error is reported only:
    /// the results are there already.
    pub fn drop_collections<'c>(
        &self,
        target: &Target,
        session: &mut dyn Session,
        collections: impl IntoIterator<Item = &'c Collection>,
    ) {
        if !self.drop_after {
            return;
        }
        let mut collections = collections.into_iter();
        if let Err(error) = collections.try_for_each(|name| session.drop_collection(name)) {
            eprintln!("frond bench: {}: {error}", target.label());
        }
    }

    /// Returns the time that a target may still run after it has run for `used`.
    pub fn time_left(&self, used: Duration) -> Duration {
        self.limit().unwrap_or(Duration::MAX).saturating_sub(used)
    }

    /// Compares the number of documents with the expected one.
    pub fn check_count(
        &self,
        session: &mut dyn Session,
        collection: &Collection,
        expected: u64,
    ) -> Result<()> {
        match session.count(collection)? {
            counted if counted == expected => Ok(()),
            counted => Err(Error::Wrong(format!(
                "{collection} holds {counted} documents instead of {expected}"
            ))),
        }
    }

    /// Waits for idle compaction, at most as long as `--compaction-wait` says.
    pub fn wait_until_idle(&self, session: &mut dyn Session) -> Result<Status> {
        self.wait_until_idle_or(session, 10.0)
    }

    /// As [`Run::wait_until_idle`], with a default of `seconds`.
    pub fn wait_until_idle_or(&self, session: &mut dyn Session, seconds: f64) -> Result<Status> {
        let seconds = self.options.compaction_wait.unwrap_or(seconds);
        wait_until_idle(session, Duration::from_secs_f64(seconds), &|| self.go_on())
    }

    /// Opens a runner for each target and runs them in turns until all have ended. `section` reports the
    /// results by target. Returns it with the first error of a runner.
    pub fn measure<'r, R: Runner>(
        &'r self,
        open: impl Fn(&'r Target) -> Result<R>,
        section: impl FnOnce(&[R::Results]) -> Section,
    ) -> Result<(Section, Result<()>)> {
        let mut runners: Vec<R> = self.targets.iter().map(open).collect::<Result<_>>()?;
        let pauses = self.pauses()?;
        let (endings, result) = alternate(&mut runners, &self.stop, |turn| pauses.let_run(turn));
        drop(pauses);
        let results: Vec<R::Results> = runners.into_iter().map(Runner::into_results).collect();
        let mut section = section(&results);
        section.endings = endings.iter().map(ToString::to_string).collect();
        Ok((section, result))
    }

    /// The pauses of servers during the turns of others, if they are wanted.
    fn pauses(&self) -> Result<Pauses> {
        if !self.options.pause || self.targets.len() < 2 {
            return Ok(Pauses::default());
        }
        let mut processes = Vec::new();
        for target in &self.targets {
            let process = target.connect(&self.stop)?.process()?;
            // The null server is this program.
            if process.is_none() && !target.is_null() {
                return Err(Error::Settings(format!(
                    "--pause: the process of {} is not known",
                    target.label()
                )));
            }
            processes.push(process.filter(|_| !target.is_null()));
        }
        Ok(Pauses::for_servers(processes))
    }

    /// The columns of tables: the targets.
    pub fn columns(&self) -> Columns {
        let servers = || self.targets.iter().map(|target| &target.server);
        Columns {
            labels: servers().map(|server| server.label.clone()).collect(),
            nulls: servers().map(|server| server.description.null).collect(),
        }
    }
}

impl Target {
    /// The system that a connection string leads to, connected once to ask for its name.
    fn open(uri: &str, schemes: &[&dyn Scheme], stop: &Arc<AtomicBool>) -> Result<Target> {
        let system = open(uri, schemes)?;
        let description = system.connect(stop)?.describe();
        Ok(Target {
            server: Server {
                label: description.name.clone(),
                uri: without_passwords(uri),
                description,
            },
            system,
        })
    }

    /// The name in reports, with a number if another target has the same one.
    pub fn label(&self) -> &str {
        &self.server.label
    }

    /// Whether it stores nothing.
    pub fn is_null(&self) -> bool {
        self.server.description.null
    }

    pub fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        self.system.connect(stop)
    }

    pub fn connect_all(
        &self,
        count: usize,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Box<dyn Session>>> {
        (0..count).map(|_| self.connect(stop)).collect()
    }

    /// Returns the defaults that the connection string sets.
    pub fn defaults(&self) -> Defaults {
        self.system.defaults()
    }

    /// A collection, dropped if `--drop` says so: its database is that of the option `--db`, else that of the connection
    /// string, else a default. One that still holds documents is an error, unless `keep`. Returns how many it holds.
    pub fn collection(
        &self,
        run: &Run,
        session: &mut dyn Session,
        name: &str,
        keep: Option<bool>,
    ) -> Result<(Collection, u64)> {
        let defaults = self.system.defaults();
        let database = run.options.db.as_deref().or(defaults.database.as_deref());
        let collection = Collection::new(database.unwrap_or(DATABASE), name)?;
        if run.options.drop {
            session.drop_collection(&collection)?;
        }
        let already = session.count(&collection)?;
        if already > 0 && keep != Some(true) {
            let hint = keep.map_or("", |_| ", --keep keeps them");
            return Err(Error::Settings(format!(
                "{collection} of {} holds {already} documents: --drop drops them{hint}",
                self.label()
            )));
        }
        Ok((collection, already))
    }

    /// A connection, after a look whether the server takes such batches.
    pub fn watcher(
        &self,
        run: &Run,
        acknowledged: bool,
        batch: u32,
        source: &dyn Source,
    ) -> Result<Box<dyn Session>> {
        let watcher = self.connect(&run.stop)?;
        watcher.check_batch(acknowledged, batch, source.document_bytes())?;
        Ok(watcher)
    }

    /// The write concern of the command line, else of the connection string, else `w`.
    pub fn concern(&self, options: &WriteOptions, w: u8) -> Result<WriteConcern> {
        let defaults = self.system.defaults();
        let given = options.write_concern.or(defaults.write_concern);
        let acknowledged = options.majority || given.unwrap_or(w) == 1;
        let journal = options.journal || defaults.journal.unwrap_or(false);
        if journal && !acknowledged {
            return Err(Error::Settings(
                "--journal waits for an answer, which --write-concern 0 does not get".to_owned(),
            ));
        }
        Ok(WriteConcern {
            acknowledged,
            journal,
            majority: options.majority,
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
                "{:?} must start with {}",
                without_passwords(uri),
                known.join(" or ")
            )))
        }
    }
}

/// Numbers targets of the same name.
fn number_labels(targets: &mut [Target]) {
    let names: Vec<String> = targets.iter().map(|t| t.server.label.clone()).collect();
    for (index, target) in targets.iter_mut().enumerate() {
        let label = &mut target.server.label;
        let same = |other: &&String| *other == label;
        if names.iter().filter(same).count() > 1 {
            let nth = names.iter().take(index + 1).filter(same).count();
            *label = format!("{label} #{nth}");
        }
    }
}
