//! All workloads, one after the other, in one report.

use clap::{Args, FromArgMatches, ValueEnum};

use crate::format::value_name;

use crate::counters;
use crate::everyday;
use crate::groups;
use crate::harness::{CommonOptions, Run, Workload, scale};
use crate::indexcost;
use crate::insert;
use crate::manykeys;
use crate::mixed;
use crate::rolling;
use crate::sysbench;
use crate::system::Scheme;
use frond_client::{Error, Result};

/// Command line of `frond bench all`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The options that all workloads share.
    #[command(flatten)]
    pub common: CommonOptions,

    /// Size of each workload as a part of the original run's
    #[arg(long, default_value_t = 0.01, value_name = "PART", value_parser = scale)]
    pub scale: f64,

    /// Workloads to run, in this order
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_enum,
          default_values_t = Name::value_variants().iter().copied())]
    pub only: Vec<Name>,

    /// More options for a workload, such as --with "insert --journal --documents 5000000"
    #[arg(long = "with", value_name = "WORKLOAD OPTIONS")]
    pub with: Vec<String>,
}

/// A workload of [`Options::only`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
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
    /// W6
    Groups,
    /// W7
    Rolling,
    /// W8
    Counters,
    /// W9
    Everyday,
    /// W10
    Mixed,
}

/// Runs the workloads. The report is written after each of them. An error of one does not stop the
/// others; a stop by the user does.
pub fn run(options: &Options, schemes: &[&dyn Scheme]) -> Result<()> {
    let workloads = options.workloads()?;
    let mut run = Run::open(&options.common, "all", schemes)?;
    run.drop_after = true;
    let mut report = run.report();
    let mut result = Ok(());
    for workload in &workloads {
        let measured = match workload.measure(&run) {
            Ok((section, measured)) => {
                report.sections.push(section);
                measured
            }
            Err(error) => Err(error),
        };
        report.write(&run.folder)?;
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
    print!("{}", report.to_text(&run.folder));
    result
}

impl Options {
    fn workloads(&self) -> Result<Vec<Box<dyn Workload>>> {
        for with in &self.with {
            let name = with.split_whitespace().next().unwrap_or_default();
            if !self
                .only
                .iter()
                .any(|workload| value_name(workload) == name)
            {
                return Err(Error::Settings(format!(
                    "--with {with:?} begins with no workload of this run"
                )));
            }
        }
        let boxed = |name: &Name| -> Result<Box<dyn Workload>> {
            let workload: Box<dyn Workload> = match name {
                Name::Insert => Box::new(self.parse::<insert::Work>(*name)?),
                Name::Multikey => Box::new(self.parse::<insert::MultikeyWork>(*name)?.into_work()),
                Name::Manykeys => Box::new(self.parse::<manykeys::Work>(*name)?),
                Name::Sysbench => Box::new(self.parse::<sysbench::Work>(*name)?),
                Name::Indexcost => Box::new(self.parse::<indexcost::Work>(*name)?),
                Name::Groups => Box::new(self.parse::<groups::Work>(*name)?),
                Name::Rolling => Box::new(self.parse::<rolling::Work>(*name)?),
                Name::Counters => Box::new(self.parse::<counters::Work>(*name)?),
                Name::Everyday => Box::new(self.parse::<everyday::Work>(*name)?),
                Name::Mixed => Box::new(self.parse::<mixed::Work>(*name)?),
            };
            workload.check()?;
            Ok(workload)
        };
        self.only.iter().map(boxed).collect()
    }

    /// The options of a workload: its defaults, those of `--with`, and the scale of this run, unless it has a size of its own.
    fn parse<T: Args + FromArgMatches>(&self, workload: Name) -> Result<T> {
        let name = value_name(&workload);
        let mut words = vec![name.as_str()];
        for with in &self.with {
            let mut more = with.split_whitespace();
            if more.next() == Some(name.as_str()) {
                words.extend(more);
            }
        }
        let scale = format!("--scale={}", self.scale);
        let sized = |word: &&str| {
            ["--scale", "--documents", "--retention"]
                .iter()
                .any(|option| word.starts_with(option))
        };
        if !words.iter().any(sized) {
            words.push(&scale);
        }
        let command = T::augment_args(clap::Command::new("workload"));
        command
            .try_get_matches_from(words)
            .and_then(|matches| T::from_arg_matches(&matches))
            .map_err(|error| Error::Settings(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &[&str]) -> Options {
        let args = std::iter::once("bench").chain(args.iter().copied());
        Cli::try_parse_from(args).unwrap().options
    }

    #[test]
    fn scale_and_options_reach_the_workloads() {
        let options = parse(&[
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
        let workloads = options.workloads().unwrap();
        let names: Vec<&str> = workloads.iter().map(|workload| workload.name()).collect();
        assert_eq!(names, ["multikey", "insert"]);
        let multikey: insert::MultikeyWork = options.parse(Name::Multikey).unwrap();
        let (multikey, insert) = (
            multikey.into_work(),
            options.parse::<insert::Work>(Name::Insert),
        );
        let insert = insert.unwrap();
        assert_eq!((multikey.documents(), multikey.elements), (350_000, 9));
        assert_eq!((insert.documents(), insert.write.threads), (7, 3));
        assert!(insert.write.journal && !multikey.write.journal);
    }

    #[test]
    fn transactions_and_the_cost_of_an_index_have_their_own_sizes() {
        let options = parse(&[
            "--scale",
            "0.001",
            "--with",
            "sysbench --threads 8,64",
            "--with",
            "indexcost --documents 70",
        ]);
        let sysbench: sysbench::Work = options.parse(Name::Sysbench).unwrap();
        assert_eq!(sysbench.documents(), 10_000);
        assert_eq!(sysbench.threads, [8, 64]);
        let indexcost: indexcost::Work = options.parse(Name::Indexcost).unwrap();
        assert_eq!(indexcost.documents(), 70);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (workload, options, part) in [
            ("insert", "--threads 1025", "threads"),
            ("insert", "--threads 0", "threads"),
            ("insert", "--batch 0", "batch"),
            ("insert", "--documents 0", "documents"),
            ("insert", "--scale 0", "scale"),
            ("insert", "--scale 1 --documents 3", "--documents"),
            ("insert", "--indexes 5", "indexes"),
            ("insert", "--write-concern 2", "write-concern"),
            ("insert", "--fast", "--fast"),
            ("manykeys", "--documents 0", "documents"),
            ("manykeys", "--keys 4", "keys"),
            ("manykeys", "--schema hashed", "schema"),
            ("manykeys", "--write-concern 2", "write-concern"),
            ("manykeys", "--verify some", "verify"),
            ("manykeys", "--connections 0", "connections"),
            ("manykeys", "--scale 1 --documents 3", "--documents"),
            ("manykeys", "--journal --write-concern 0", "--journal"),
            ("sysbench", "--documents 0", "documents"),
            ("sysbench", "--documents 3000000000", "documents"),
            ("sysbench", "--collections 0", "collections"),
            ("sysbench", "--threads 0", "threads"),
            ("sysbench", "--threads 8,1025", "threads"),
            ("sysbench", "--threads=", "threads"),
            ("sysbench", "--seconds 0", "seconds"),
            ("sysbench", "--scale 0", "scale"),
            ("sysbench", "--documents 17 --scale 2", "--scale"),
            ("sysbench", "--compression lzma", "compression"),
            ("sysbench", "--compression zlib,zstd,zlib", "--compression"),
            ("sysbench", "--run-each", "--run-each"),
            ("sysbench", "--compression zlib --run-each", "--run-each"),
            ("indexcost", "--documents 0", "documents"),
            ("indexcost", "--documents 9 --batches 10", "--batches"),
            ("indexcost", "--documents 3", "--batches"),
            ("indexcost", "--batches 0", "batches"),
            ("indexcost", "--scale 0", "scale"),
            ("indexcost", "--threads 0", "threads"),
            ("indexcost", "--write-concern 2", "write-concern"),
            ("multikey", "--journal", "multikey"),
            ("", "", "no workload"),
        ] {
            let with = format!("{workload} {options}");
            let only = "insert,manykeys,sysbench,indexcost";
            let options = parse(&["--only", only, "--with", &with]);
            let error = options.workloads().err().unwrap().to_string();
            assert!(error.contains(part), "{with}: {error}");
        }
        for (option, part) in [
            ("--report-every=0", "report-every"),
            ("--minutes=0", "minutes"),
            ("--turns=0", "turns"),
            ("--compaction-wait=-1", "compaction-wait"),
            // Its former name, which kept runs have in their command lines.
            ("--settle=-1", "compaction-wait"),
        ] {
            let error = Cli::try_parse_from(["bench", option]).err().unwrap();
            assert!(error.to_string().contains(part), "{option}: {error}");
        }
    }
}
