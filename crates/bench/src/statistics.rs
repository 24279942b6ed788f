//! Statistics each second beside a run, as mongostat shows them, by a connection of their own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::csv_file::CsvFile;
use crate::system::{OPERATIONS, Session, Status};
use frond_client::{Error, Result};

/// Lines between two heads on the terminal.
const HEAD_EVERY: usize = 20;

/// One interval, as the server reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// End of the interval, in seconds since the start.
    pub elapsed_s: f64,
    /// The phase of the run; a row ends with its phase.
    pub phase: Arc<str>,
    /// Operations a second, in the order of [`OPERATIONS`].
    pub operations: [Option<f64>; 6],
    /// Bytes a second.
    pub log_bytes: Option<f64>,
    pub data_bytes: Option<f64>,
    pub network_in: Option<f64>,
    pub network_out: Option<f64>,
    /// The server's status at its end.
    pub now: Status,
}

/// A column behind those of the operations: its name in the file, that on the terminal if it is there, and its value.
type Column = (&'static str, Option<&'static str>, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 8] = [
    ("log_bytes_per_s", Some("log"), |row| row.log_bytes),
    ("data_file_bytes_per_s", Some("file"), |row| row.data_bytes),
    ("network_in_bytes_per_s", Some("netIn"), |row| {
        row.network_in
    }),
    ("network_out_bytes_per_s", Some("netOut"), |row| {
        row.network_out
    }),
    ("resident_mib", Some("res"), |row| {
        row.now.memory.resident_mib
    }),
    ("virtual_mib", None, |row| row.now.virtual_mib),
    ("cache_mib", None, |row| row.now.memory.cache_mib),
    ("connections", Some("conn"), |row| row.now.connections),
];

impl Row {
    fn between(before: &Status, now: Status, elapsed_s: f64, seconds: f64) -> Row {
        // A counter that went back belongs to a server that was started again.
        let rate =
            |before: Option<f64>, now: Option<f64>| Some((now? - before?).max(0.0) / seconds);
        Row {
            elapsed_s,
            phase: Arc::default(),
            operations: std::array::from_fn(|n| rate(before.operations[n], now.operations[n])),
            log_bytes: rate(before.log_bytes, now.log_bytes),
            data_bytes: rate(before.data_bytes, now.data_bytes),
            network_in: rate(before.network_in, now.network_in),
            network_out: rate(before.network_out, now.network_out),
            now,
        }
    }

    /// Names of the columns of the file.
    fn columns() -> Vec<String> {
        let mut columns = vec!["elapsed_s".to_owned(), "phase".to_owned()];
        columns.extend(OPERATIONS.map(|name| format!("{name}_per_s")));
        columns.extend(COLUMNS.map(|(name, ..)| name.to_owned()));
        columns
    }

    /// The values of the columns, empty where the server does not report them.
    fn values(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or_else(String::new, |n| format!("{n:.0}"));
        let mut values = vec![format!("{:.3}", self.elapsed_s), self.phase.to_string()];
        values.extend(self.operations.map(number));
        values.extend(COLUMNS.map(|(_, _, value)| number(value(self))));
        values
    }

    /// A line for the terminal.
    fn line(&self) -> String {
        let mut cells = vec![format!("{:.1}", self.elapsed_s)];
        let short = |value: Option<f64>| value.map_or_else(String::new, short);
        cells.extend(self.operations.map(short));
        for (name, shown, value) in COLUMNS {
            let unit = if name.ends_with("_mib") {
                1_048_576.0
            } else {
                1.0
            };
            if shown.is_some() {
                cells.push(short(value(self).map(|value| value * unit)));
            }
        }
        aligned(&cells, &self.phase)
    }

    fn head() -> String {
        let mut cells = vec!["time"];
        cells.extend(OPERATIONS);
        cells.extend(COLUMNS.iter().filter_map(|(_, shown, _)| *shown));
        aligned(&cells, "phase")
    }
}

fn aligned(cells: &[impl AsRef<str>], phase: &str) -> String {
    let cells = cells.iter().map(|cell| format!("{:>8}", cell.as_ref()));
    cells.collect::<String>() + "  " + phase
}

/// A number in few letters: 950, 12.3k, 4.5m.
fn short(number: f64) -> String {
    for (unit, size) in [("g", 1e9), ("m", 1e6), ("k", 1e3)] {
        if number >= size {
            let number = number / size;
            let decimals = usize::from(number < 100.0);
            return format!("{number:.decimals$}{unit}");
        }
    }
    format!("{number:.0}")
}

/// A thread that polls the server at each interval, and writes a file.
pub struct Statistics {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Vec<Row>>>,
}

struct Shared {
    end: AtomicBool,
    phase: Mutex<Arc<str>>,
}

impl Shared {
    fn phase(&self) -> MutexGuard<'_, Arc<str>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Statistics {
    /// Begins. `verbose` shows each interval on the terminal.
    pub fn start(
        session: Box<dyn Session>,
        path: &Path,
        every: Duration,
        verbose: bool,
    ) -> Result<Statistics> {
        let file = CsvFile::create(path, Row::columns())?;
        let shared = Arc::new(Shared {
            end: AtomicBool::new(false),
            phase: Mutex::default(),
        });
        let poller = Poller {
            session,
            file,
            every,
            verbose,
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::Builder::new()
            .name("statistics".to_owned())
            .spawn(move || poller.run())
            .map_err(|error| Error::Io("starting a thread".to_owned(), error))?;
        Ok(Statistics {
            shared,
            thread: Some(thread),
        })
    }

    /// Sets the phase of the run.
    pub fn phase(&self, name: &str) {
        *self.shared.phase() = Arc::from(name);
    }

    /// Ends, and returns all rows.
    pub fn end(mut self) -> Vec<Row> {
        self.shared.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        // A thread that panicked has shown why; the run itself is as good as it was.
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
    }
}

struct Poller {
    session: Box<dyn Session>,
    file: CsvFile,
    every: Duration,
    verbose: bool,
    shared: Arc<Shared>,
}

impl Poller {
    /// Statistics are additional information: an error ends them and nothing else.
    fn run(mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Err(error) = self.poll(&mut rows)
            && !matches!(error, Error::Stopped)
        {
            eprintln!("frond bench: statistics end: {error}");
        }
        rows
    }

    fn poll(&mut self, rows: &mut Vec<Row>) -> Result<()> {
        let start = Instant::now();
        let mut before = self.session.status()?;
        let mut before_s = start.elapsed().as_secs_f64();
        let mut at = self.every;
        loop {
            let phase = Arc::clone(&self.shared.phase());
            let last = self.wait(start, at, &phase);
            let now = self.session.status()?;
            let elapsed_s = start.elapsed().as_secs_f64();
            let seconds = (elapsed_s - before_s).max(1e-9);
            let mut row = Row::between(&before, now, elapsed_s, seconds);
            row.phase = phase;
            self.file.add(row.values())?;
            if self.verbose {
                if rows.len().is_multiple_of(HEAD_EVERY) {
                    eprintln!("{}", Row::head());
                }
                eprintln!("{}", row.line());
            }
            rows.push(row);
            if last {
                return Ok(());
            }
            (before, before_s) = (now, elapsed_s);
            at = start.elapsed() + self.every;
        }
    }

    /// Waits until a moment or the end of the phase. True at the end of the run.
    fn wait(&self, start: Instant, at: Duration, phase: &Arc<str>) -> bool {
        const NAP: Duration = Duration::from_millis(20);
        loop {
            if self.shared.end.load(Ordering::Relaxed) {
                return true;
            }
            let left = at.saturating_sub(start.elapsed());
            if left.is_zero() || !Arc::ptr_eq(phase, &self.shared.phase()) {
                return false;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let status = |n: f64| Status {
            operations: [Some(n), None, Some(2.0 * n), None, None, None],
            log_bytes: Some(n * 100.0),
            connections: Some(3.0),
            ..Status::default()
        };
        let row = Row::between(&status(10.0), status(30.0), 7.0, 2.0);
        assert_eq!(
            row.operations,
            [Some(10.0), None, Some(20.0), None, None, None]
        );
        assert_eq!((row.log_bytes, row.data_bytes), (Some(1000.0), None));
        let values = row.values();
        assert_eq!(values.len(), Row::columns().len());
        assert_eq!(values.join(","), "7.000,,10,,20,,,,1000,,,,,,,3");
        let back = Row::between(&status(30.0), status(10.0), 7.0, 2.0);
        assert_eq!(back.log_bytes, Some(0.0));
        assert!(row.line().starts_with("     7.0      10              20"));
    }

    #[test]
    fn numbers_in_few_letters() {
        for (number, text) in [
            (0.0, "0"),
            (950.0, "950"),
            (12_345.0, "12.3k"),
            (412_345.0, "412k"),
            (4_500_000.0, "4.5m"),
            (2.5e9, "2.5g"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
