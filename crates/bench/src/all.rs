//! All workloads, one after the other, in one report.

use clap::{Args, FromArgMatches};

use crate::contest::{Contest, Servers, scale};
use crate::error::{Error, Result};
use crate::indexcost;
use crate::insert;
use crate::manykeys;
use crate::report::{Book, Chapter};
use crate::sysbench;
use crate::system::Scheme;

/// Command line of `frond bench all`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Whom to measure.
    #[command(flatten)]
    pub servers: Servers,

    /// Size of each workload as a part of the original run's
    #[arg(long, default_value_t = 0.01, value_name = "PART", value_parser = scale)]
    pub scale: f64,

    /// Workloads to run, in this order
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum,
          default_values_t = Workload::ALL)]
    pub only: Vec<Workload>,

    /// More options for a workload, such as --with "insert --journal --documents 5000000"
    #[arg(long = "with", value_name = "WORKLOAD OPTIONS")]
    pub with: Vec<String>,
}

/// A workload of [`Options::only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// W1
    Insert,
    /// W2
    Multikey,
    /// W3
    Manykeys,
    /// W4
    Sysbench,
    /// W5
    Indexcost,
}

impl Workload {
    const ALL: [Workload; 5] = [
        Workload::Insert,
        Workload::Multikey,
        Workload::Manykeys,
        Workload::Sysbench,
        Workload::Indexcost,
    ];

    fn name(self) -> &'static str {
        match self {
            Workload::Insert => "insert",
            Workload::Multikey => "multikey",
            Workload::Manykeys => manykeys::NAME,
            Workload::Sysbench => "sysbench",
            Workload::Indexcost => "indexcost",
        }
    }
}

/// A workload, ready to run.
enum Ready {
    Insert(insert::Work),
    Manykeys(manykeys::Work),
    Sysbench(sysbench::Work),
    Indexcost(indexcost::Work),
}

impl Ready {
    fn measure(&self, contest: &Contest) -> Result<(Chapter, Result<()>)> {
        match self {
            Ready::Insert(work) => insert::measure(contest, work),
            Ready::Manykeys(work) => manykeys::measure(contest, work),
            Ready::Sysbench(work) => sysbench::measure(contest, work),
            Ready::Indexcost(work) => indexcost::measure(contest, work),
        }
    }
}

/// Runs the workloads. The report is written after each of them. An error of one does not keep the
/// others from running; the user's wish to stop does.
pub fn run(options: &Options, schemes: &[&dyn Scheme]) -> Result<()> {
    let ready = options.ready()?;
    let mut contest = Contest::open(&options.servers, "all", schemes)?;
    contest.drop_after = true;
    let mut book = Book::new(&contest);
    let mut result = Ok(());
    for workload in &ready {
        let measured = match workload.measure(&contest) {
            Ok((chapter, measured)) => {
                book.chapters.push(chapter);
                measured
            }
            Err(error) => Err(error),
        };
        book.write(&contest.folder)?;
        let stopped = matches!(measured, Err(Error::Stopped));
        if let Err(error) = &measured
            && !stopped
        {
            eprintln!("frond bench: {error}");
        }
        result = result.and(measured);
        if stopped {
            break;
        }
    }
    print!("{}", book.to_text(&contest.folder));
    result
}

impl Options {
    /// The workloads with their options.
    fn ready(&self) -> Result<Vec<Ready>> {
        for with in &self.with {
            let name = with.split_whitespace().next().unwrap_or_default();
            if !self.only.iter().any(|workload| workload.name() == name) {
                return Err(Error::Settings(format!(
                    "--with {with:?} begins with no workload of this run"
                )));
            }
        }
        self.only
            .iter()
            .map(|workload| match workload {
                Workload::Insert => {
                    let mut work: insert::Work = self.parse(*workload)?;
                    if work.documents.is_none() {
                        work.scale.get_or_insert(self.scale);
                    }
                    Ok(Ready::Insert(work))
                }
                Workload::Multikey => {
                    let multikey: insert::MultikeyWork = self.parse(*workload)?;
                    let mut work = multikey.into_work();
                    if work.documents.is_none() {
                        work.scale.get_or_insert(self.scale);
                    }
                    Ok(Ready::Insert(work))
                }
                Workload::Manykeys => {
                    let mut work: manykeys::Work = self.parse(*workload)?;
                    if work.documents.is_none() {
                        work.scale.get_or_insert(self.scale);
                    }
                    Ok(Ready::Manykeys(work))
                }
                Workload::Sysbench => {
                    let mut work: sysbench::Work = self.parse(*workload)?;
                    if work.documents.is_none() {
                        work.scale.get_or_insert(self.scale);
                    }
                    work.check()?;
                    Ok(Ready::Sysbench(work))
                }
                Workload::Indexcost => {
                    let mut work: indexcost::Work = self.parse(*workload)?;
                    if work.documents.is_none() {
                        work.scale.get_or_insert(self.scale);
                    }
                    work.check()?;
                    Ok(Ready::Indexcost(work))
                }
            })
            .collect()
    }

    /// The options of a workload: its defaults, and what `--with` says.
    fn parse<T: Args + FromArgMatches>(&self, workload: Workload) -> Result<T> {
        let mut words = vec![workload.name()];
        for with in &self.with {
            let mut more = with.split_whitespace();
            if more.next() == Some(workload.name()) {
                words.extend(more);
            }
        }
        let command = T::augment_args(clap::Command::new(workload.name()));
        command
            .try_get_matches_from(words)
            .and_then(|matches| T::from_arg_matches(&matches))
            .map_err(|error| Error::Settings(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn ready(args: &[&str]) -> Result<Vec<Ready>> {
        let args = std::iter::once("bench").chain(args.iter().copied());
        Cli::try_parse_from(args).unwrap().options.ready()
    }

    fn inserts(args: &[&str]) -> Vec<insert::Work> {
        let ready = ready(args).unwrap().into_iter();
        let insert = |ready| match ready {
            Ready::Insert(work) => Some(work),
            _ => None,
        };
        ready.filter_map(insert).collect()
    }

    #[test]
    fn scale_and_options_reach_the_workloads() {
        let works = inserts(&[
            "--only",
            "multikey,insert",
            "--scale",
            "0.1",
            "--with",
            "insert --journal --documents 7",
            "--with",
            "insert --threads 3",
            "--with",
            "multikey --elements 9",
        ]);
        let [multikey, insert] = &works[..] else {
            panic!("two workloads were asked for");
        };
        assert_eq!((multikey.documents(), multikey.elements), (350_000, 9));
        assert_eq!((insert.documents(), insert.threads), (7, 3));
        assert!(insert.journal && !multikey.journal);
    }

    #[test]
    fn transactions_and_the_cost_of_an_index_have_their_own_sizes() {
        let ready = ready(&[
            "--only",
            "sysbench,indexcost",
            "--scale",
            "0.001",
            "--with",
            "sysbench --threads 8,64",
            "--with",
            "indexcost --documents 70",
        ]);
        let [Ready::Sysbench(sysbench), Ready::Indexcost(indexcost)] = &ready.unwrap()[..] else {
            panic!("two workloads were asked for");
        };
        assert_eq!(sysbench.documents(), 10_000);
        assert_eq!(sysbench.threads, [8, 64]);
        assert_eq!(indexcost.documents(), 70);
    }

    #[test]
    fn options_of_a_workload_that_does_not_run_are_refused() {
        for (args, part) in [
            (
                &["--only", "insert", "--with", "multikey --journal"][..],
                "multikey",
            ),
            (&["--with", "insert --fast"][..], "--fast"),
            (&["--with", "sysbench --run-each"][..], "--run-each"),
            (&["--with", "indexcost --documents 3"][..], "--batches"),
            (&["--with", ""][..], "no workload"),
        ] {
            let error = ready(args).err().unwrap().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
