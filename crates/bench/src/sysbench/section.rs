//! The section of a run of Sysbench.

use super::kind::{KINDS, OPERATIONS};
use super::options::{Work, compression_name};
use super::runner::{Loaded, Results, Size, threads_name};
use super::tally::Level;
use super::transaction::Races;
use crate::format::{show, thousands};
use crate::harness::Run;
use crate::meter::{MAX, P50, P95, P99, Percentile, Percentiles, rate};
use crate::report::section::ResultRow;
use crate::report::{
    Axis, Chart, Columns, Higher, Lower, Neither, Panel, ResultRows, Row, Section, Table,
};
use crate::system::{Compression, Sizes};

const ABOUT: &str = "Sysbench for MongoDB of 2013. Each thread chooses a collection at random for \
    each transaction: 10 point lookups of c, then over 100 documents each a range of c, a sum of k, \
    an ordered range of c and the different values of c; an update of k, which is indexed, one of c, \
    which is not; a delete, and an insert with the same _id. All is found by _id.";

/// The figure of the summary, where there are several thread levels.
const BEST: &str = "best thread level";

/// The percentiles of reports.
const PERCENTILES: [Percentile; 4] = [P50, P95, P99, MAX];

/// The moments at which sizes are taken.
const WHEN: [(bool, &str); 2] = [(false, "after the load"), (true, "after the run")];

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let mut section = Section::new("sysbench", "W4: Sysbench", ABOUT);
    section.settings = work.settings(run.turns());
    let columns = run.columns();
    let builder = SectionBuilder {
        work,
        results,
        columns: &columns,
    };
    section.result_rows = builder.result_rows();
    section.headline = match builder.runs().as_slice() {
        [(_, _, only)] => only.clone(),
        _ => BEST.to_owned(),
    };
    section.details = builder.details();
    section.tables = vec![builder.levels(), builder.kinds(), builder.sizes()];
    let losses = builder.losses();
    if losses.rows.len() > 1 {
        section.tables.push(losses);
    }
    if work.threads.len() > 1 {
        section.charts.push(builder.by_threads());
    }
    section.charts.push(builder.over_time());
    section
}

type PickSize = fn(&Sizes) -> Option<f64>;

struct SectionBuilder<'a> {
    work: &'a Work,
    results: &'a [Results],
    columns: &'a Columns,
}

impl SectionBuilder<'_> {
    /// Levels of the run by their numbers, each with a label that distinguishes it.
    fn runs(&self) -> Vec<(Option<Compression>, u16, String)> {
        let mut compressions = self.work.compressions();
        if !self.work.run_each {
            compressions.truncate(1);
        }
        let several = compressions.len() > 1;
        let mut runs = Vec::new();
        for compression in compressions {
            for threads in &self.work.threads {
                let mut name = threads_name(*threads);
                if several {
                    name = format!("{name}, {}", compression_name(compression));
                }
                runs.push((compression, *threads, name));
            }
        }
        runs
    }

    fn result_rows(&self) -> Vec<ResultRow> {
        let unit = "transactions/s";
        let first = self.work.compressions().first().copied().flatten();
        let mut result_rows = ResultRows::new(self.results);
        result_rows.add(Higher, "load", "documents/s", |t| t.load(first)?.rate());
        let runs = self.runs();
        for (compression, threads, name) in &runs {
            result_rows.add(Higher, name, unit, |t| {
                t.level(*compression, *threads)?.transactions_per_s()
            });
        }
        if runs.len() > 1 {
            let best = |target: &Results| {
                let rates = target.levels.iter().filter_map(Level::transactions_per_s);
                rates.max_by(f64::total_cmp)
            };
            result_rows.add(Higher, BEST, unit, best);
            let most = self.work.threads.iter().max().copied().unwrap_or(1);
            result_rows.add(Neither, format!("{most} threads / best"), "", |t| {
                Some(t.level(first, most)?.transactions_per_s()? / best(t)?)
            });
        }
        for (compression, threads, name) in &runs {
            let name = format!("{name}: 95% of transactions within");
            result_rows.add(Lower, name, "ms", |t| {
                Some(t.level(*compression, *threads)?.whole.p95_ms)
            });
        }
        let several = self.work.compressions().len() > 1;
        for compression in self.work.compressions() {
            for (after_run, when) in WHEN {
                let size = |target: &Results| target.size(compression, after_run);
                if self.results.iter().all(|target| size(target).is_none()) {
                    continue;
                }
                let mut name = when.to_owned();
                if several {
                    name = format!("{} {when}", compression_name(compression));
                }
                if !after_run && result_rows.list.iter().all(|f| f.unit != "logical bytes") {
                    result_rows.add(Neither, "a document", "logical bytes", |t| {
                        size(t)?.logical()
                    });
                }
                let name = format!("a document and its index entries on disk, {name}");
                result_rows.add(Lower, name, "bytes", |t| size(t)?.on_disk());
            }
        }
        result_rows.list
    }

    /// Everything that tables show, for programs.
    fn details(&self) -> Vec<ResultRow> {
        let mut details = ResultRows::new(self.results);
        for (compression, threads, name) in self.runs() {
            let level = |target: &Results| target.level(compression, threads).cloned();
            details.add(Neither, format!("{name}: transactions"), "", |t| {
                Some(level(t)?.transactions as f64)
            });
            let operations = format!("{name}: operations");
            details.add(Higher, operations, "operations/s", |t| {
                level(t)?.operations_per_s()
            });
            for (percentile, pick) in PERCENTILES {
                let name = format!("{name}: transaction {percentile}");
                details.add(Lower, name, "ms", |t| Some(pick(&level(t)?.whole)));
            }
            for kind in KINDS {
                for (percentile, pick) in PERCENTILES {
                    let name = format!("{name}: {} {percentile}", kind.name());
                    details.add(Lower, name, "ms", |t| Some(pick(&level(t)?.kind(kind))));
                }
            }
            for (index, what) in Races::NAMES.into_iter().enumerate() {
                let name = format!("{name}: {what} lost to other threads");
                details.add(Neither, name, "", |t| Some(level(t)?.races.0[index] as f64));
            }
        }
        for compression in self.work.compressions() {
            let name = compression_name(compression);
            for (after_run, when) in WHEN {
                let size = |target: &Results| target.size(compression, after_run);
                if self.results.iter().all(|target| size(target).is_none()) {
                    continue;
                }
                let parts: [(&str, PickSize); 4] = [
                    ("a document, logical", Sizes::logical),
                    ("a document on disk", Sizes::storage),
                    ("its index entries on disk", Sizes::indexes),
                    ("both on disk", Sizes::on_disk),
                ];
                for (what, pick) in parts {
                    let name = format!("{name} {when}: {what}");
                    details.add(Lower, name, "bytes", |t| pick(&size(t)?));
                }
            }
            details.add(Higher, format!("load, {name}"), "documents/s", |t| {
                t.load(compression)?.rate()
            });
            for (percentile, pick) in PERCENTILES {
                let name = format!("load, {name}: insert {percentile}");
                details.add(Lower, name, "ms", |t| {
                    Some(pick(&t.load(compression)?.latency))
                });
            }
        }
        details.list
    }

    /// A table of rows of each level: its compression, its threads and then what `rows` makes.
    fn of_levels(
        &self,
        title: &str,
        head: &str,
        rows: impl Fn(&Level) -> Vec<Vec<String>>,
    ) -> Table {
        let head = format!("compression|threads|{head}");
        self.columns.table(title, &head, self.results, |target| {
            let mut all = Vec::new();
            for level in &target.levels {
                for row in rows(level) {
                    let compression = compression_name(level.compression).to_owned();
                    let first = vec![compression, level.threads.to_string()];
                    all.push([first, row].concat());
                }
            }
            all
        })
    }

    /// Rates and latencies at each thread level.
    fn levels(&self) -> Table {
        let head =
            "transactions|transactions/s|operations/s|p50 ms|p95 ms|p99 ms|max ms|lost races";
        self.of_levels("Transactions", head, |level| {
            let mut row = vec![
                thousands(level.transactions as f64),
                show(level.transactions_per_s()),
                show(level.operations_per_s()),
            ];
            row.extend(milliseconds(&level.whole));
            row.push(thousands(level.races.total() as f64));
            vec![row]
        })
    }

    fn kinds(&self) -> Table {
        let head = "operation|p50 ms|p95 ms|p99 ms|max ms";
        let title = format!("Each of the {OPERATIONS} operations of a transaction, by kind");
        self.of_levels(&title, head, |level| {
            let rows = KINDS.map(|kind| {
                let mut row = vec![kind.name().to_owned()];
                row.extend(milliseconds(&level.kind(kind)));
                row
            });
            rows.to_vec()
        })
    }

    fn sizes(&self) -> Table {
        let head = "compression|when|documents|logical bytes a document|on disk|index entries on disk|together|on disk / logical";
        self.columns.table("Sizes", head, self.results, |target| {
            let row = |size: &Size| {
                let sizes = size.sizes;
                let disk = sizes.on_disk().zip(sizes.logical());
                vec![
                    compression_name(size.compression).to_owned(),
                    WHEN[usize::from(size.after_run)].1.to_owned(),
                    show(sizes.documents.map(|n| n as f64)),
                    show(sizes.logical()),
                    show(sizes.storage()),
                    show(sizes.indexes()),
                    show(sizes.on_disk()),
                    show(disk.map(|(disk, logical)| disk / logical)),
                ]
            };
            target.sizes.iter().map(row).collect()
        })
    }

    /// Conflicts between threads, where there were any.
    fn losses(&self) -> Table {
        let title = "Documents that another thread was replacing at the moment";
        self.of_levels(title, "what found nothing|times", |level| {
            let races = Races::NAMES.into_iter().zip(level.races.0);
            races
                .filter(|(_, count)| *count > 0)
                .map(|(what, count)| vec![what.to_owned(), thousands(count as f64)])
                .collect()
        })
    }

    /// Rate and latency over the number of threads.
    fn by_threads(&self) -> Chart {
        let first = self.work.compressions().first().copied().flatten();
        let curves = |value: fn(&Level) -> Option<f64>| {
            self.columns.curves(self.results, |target| {
                let levels = target.levels.iter().filter(|l| l.compression == first);
                let mut points: Vec<(f64, f64)> = levels
                    .filter_map(|level| Some((f64::from(level.threads).log2(), value(level)?)))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            })
        };
        let (rates, latencies) = (
            curves(Level::transactions_per_s),
            curves(|level| Some(level.whole.p95_ms)),
        );
        let panels = vec![
            Panel::tall("Transactions a second by threads", "transactions/s", rates),
            Panel::low("95% of transactions within", "milliseconds", latencies),
        ];
        let most = self.work.threads.iter().max().copied().unwrap_or(1);
        Chart {
            axis: Axis::Log2,
            ..Chart::new(panels, f64::from(most).log2().max(1.0), "threads")
        }
    }

    fn over_time(&self) -> Chart {
        let end = |target: &Results| target.rows.last().map_or(0.0, |row| row.elapsed_s);
        let levels: Vec<String> = self.work.threads.iter().map(u16::to_string).collect();
        let title = format!(
            "Transactions a second over time, with {} threads",
            levels.join(", ")
        );
        let over = |value: fn(&Row) -> f64| {
            self.columns.curves(self.results, |target| {
                let rows = target.rows.iter();
                rows.map(|row| (row.elapsed_s, value(row))).collect()
            })
        };
        let latencies = over(|row| row.p99_ms);
        let panels = vec![
            Panel::tall(title, "transactions/s", over(|row| row.per_s)),
            Panel::low("99% of transactions within", "milliseconds", latencies),
        ];
        let x_max = self.results.iter().map(end).fold(1.0, f64::max);
        Chart::new(panels, x_max, "seconds of transactions")
    }
}

impl Results {
    fn load(&self, compression: Option<Compression>) -> Option<&Loaded> {
        let mut loads = self.loads.iter();
        loads.find(|load| load.compression == compression)
    }

    fn level(&self, compression: Option<Compression>, threads: u16) -> Option<&Level> {
        let mut levels = self.levels.iter();
        levels.find(|level| level.compression == compression && level.threads == threads)
    }

    fn size(&self, compression: Option<Compression>, after_run: bool) -> Option<Sizes> {
        let mut sizes = self.sizes.iter();
        let size =
            sizes.find(|size| size.compression == compression && size.after_run == after_run);
        size.map(|size| size.sizes)
    }
}

impl Loaded {
    fn rate(&self) -> Option<f64> {
        rate(self.documents, self.elapsed)
    }
}

fn milliseconds(latency: &Percentiles) -> [String; PERCENTILES.len()] {
    PERCENTILES.map(|(_, pick)| format!("{:.3}", pick(latency)))
}
