//! Finds a figure in the files of a run. A page's text names runs as `benchmarks/pages/runs.txt` does, so
//! that one line there replaces a run by a newer one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::pages::source::{self, Row, pick};

/// Names of figures in `results.csv`, and their names in `summary.json`, which older runs have instead.
const BEFORE_RESULTS: &[(&str, &str)] = &[
    ("documents", "documents"),
    ("time", "elapsed_s"),
    ("speed on average", "documents_per_s"),
    (
        "speed from 10% to 20%",
        "documents_per_s_from_10_to_20_percent",
    ),
    ("exit speed (last 5%)", "exit_documents_per_s"),
    ("exit speed / early speed", "exit_over_early"),
    ("index entries on average", "index_entries_per_s"),
    ("index entries at exit", "exit_index_entries_per_s"),
];

/// The runs that pages may name.
pub struct Runs {
    /// `benchmarks/runs`.
    pub folder: PathBuf,
    /// Folders inside of it, by the names that pages use.
    pub names: BTreeMap<String, String>,
    /// The files read so far.
    rows: RefCell<BTreeMap<PathBuf, Rc<Vec<Row>>>>,
}

impl Runs {
    /// Reads the list of names: `name = folder` on each line, `#` before remarks.
    pub fn read(folder: PathBuf, list: &Path) -> Result<Runs, String> {
        let text =
            fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
        let mut names = BTreeMap::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (name, run) = line
                .split_once('=')
                .ok_or_else(|| format!("{line}: not `name = folder`"))?;
            names.insert(name.trim().to_owned(), run.trim().to_owned());
        }
        Ok(Runs {
            folder,
            names,
            rows: RefCell::default(),
        })
    }

    /// The folder of a run, inside of `benchmarks/runs`.
    pub fn run(&self, name: &str) -> Result<&str, String> {
        let run = self.names.get(name);
        run.map(String::as_str)
            .ok_or_else(|| format!("no run is named {name:?} in runs.txt"))
    }

    /// The path of a run's file.
    pub fn path(&self, run: &str, file: &str) -> Result<PathBuf, String> {
        Ok(self.folder.join(self.run(run)?).join(file))
    }

    fn rows(&self, run: &str, file: &str) -> Result<Rc<Vec<Row>>, String> {
        let path = self.path(run, file)?;
        if let Some(rows) = self.rows.borrow().get(&path) {
            return Ok(Rc::clone(rows));
        }
        let rows = Rc::new(source::rows(&path)?);
        self.rows.borrow_mut().insert(path, Rc::clone(&rows));
        Ok(rows)
    }

    /// The value of a reference, as written in the run. Parts of a reference are separated by semicolons:
    ///
    /// - `run; workload; figure; server`: a figure of `results.csv`. The server's name may be a prefix; the
    ///   figure `server` is its full name, `ended` how its part of the workload ended.
    /// - `run; workload; settings; name` and `run; machine; name`: of `summary.json`.
    /// - `run file; column = value; …; column`: the column of the one row that has these values. `column = value or
    ///   value` serves where reports changed a name.
    /// - `run file; section = heading; text # more`: the number in place of `#` in a line of text.
    ///
    /// Of several rows that fit, the condition `nth = 2` takes the second one, `greatest` that of the greatest number.
    pub fn value(&self, reference: &str) -> Result<String, String> {
        let parts: Vec<&str> = reference.split(';').map(str::trim).collect();
        let found = match (parts[0].split_once(' '), &parts[1..]) {
            (Some((run, file)), [conditions @ .., wanted]) => self
                .rows(run, file)
                .and_then(|rows| pick(&rows, conditions, wanted)),
            (None, [workload, "settings", name]) => self.setting(parts[0], workload, name),
            (None, ["machine", name]) => self.machine(parts[0], name),
            (None, [workload, "ended", server]) => self.ended(parts[0], workload, server),
            (None, [workload, figure, server]) => self.result(parts[0], workload, figure, server),
            _ => {
                Err("neither `run; workload; figure; server` nor `run file; …; column`".to_owned())
            }
        };
        found.map_err(|error| format!("{reference}: {error}"))
    }

    fn result(
        &self,
        run: &str,
        workload: &str,
        figure: &str,
        server: &str,
    ) -> Result<String, String> {
        if !self.path(run, "results.csv")?.exists() {
            let old = BEFORE_RESULTS.iter().find(|(name, _)| *name == figure);
            let (_, old) = old.ok_or("neither in results.csv nor in the summary.json of old")?;
            return pick(&self.rows(run, "summary.json")?, &[], old);
        }
        let rows = self.rows(run, "results.csv")?;
        let workload = format!("workload = {workload}");
        let server = format!("server = {server}");
        match figure {
            "server" => pick(&rows, &[&workload, &server, "nth = 1"], "server"),
            figure => pick(
                &rows,
                &[&workload, &server, &format!("figure = {figure}")],
                "value",
            ),
        }
    }

    fn ended(&self, run: &str, workload: &str, server: &str) -> Result<String, String> {
        let server = self.result(run, workload, "server", server)?;
        let name = format!("workloads.{workload}.ended.{server}");
        pick(&self.rows(run, "summary.json")?, &[], &name)
    }

    fn setting(&self, run: &str, workload: &str, name: &str) -> Result<String, String> {
        let rows = self.rows(run, "summary.json")?;
        pick(&rows, &[], &format!("workloads.{workload}.settings.{name}")).or_else(|error| {
            let old = match name {
                "documents in an insert" => "batch",
                name => name,
            };
            let value = pick(&rows, &[], &format!("settings.{old}")).map_err(|_| error)?;
            Ok(match (name, value.as_str()) {
                ("journal", "yes") => "waited for".to_owned(),
                ("journal", "no") => "not waited for".to_owned(),
                _ => value,
            })
        })
    }

    fn machine(&self, run: &str, name: &str) -> Result<String, String> {
        let rows = self.rows(run, "summary.json")?;
        pick(&rows, &[], &format!("Client's machine.{name}"))
            .or_else(|error| pick(&rows, &[], &format!("facts.client's {name}")).map_err(|_| error))
    }
}
