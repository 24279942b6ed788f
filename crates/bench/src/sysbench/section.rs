//! The section of a run of Sysbench.

use super::kind::KINDS;
use super::options::{Work, compression_name};
use super::runner::{Ran, Results, Size};
use crate::harness::Run;
use crate::meter::Percentiles;
use crate::report::{Columns, Figure, Section};
use crate::system::Compression;

const ABOUT: &str = "Sysbench for MongoDB of 2013. Each thread chooses a collection at random for \
    each transaction: 10 point lookups of c, then over 100 documents each a range of c, a sum of k, \
    an ordered range of c and the different values of c; an update of k, which is indexed, one of c, \
    which is not; a delete, and an insert with the same _id. All is found by _id.";

/// The figure of the summary, where there are several thread levels.
const BEST: &str = "best thread level";

/// Takes a number out of something.
type Pick<T, N> = fn(&T) -> N;

/// The percentiles of reports.
pub(super) const PERCENTILES: [(&str, Pick<Percentiles, f64>); 4] = [
    ("p50", |l| l.p50_ms),
    ("p95", |l| l.p95_ms),
    ("p99", |l| l.p99_ms),
    ("max", |l| l.max_ms),
];

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let mut section = Section::new("sysbench", "W4: Sysbench", ABOUT);
    section.settings = work.settings(run.turns());
    for target in results {
        section.ended(&target.ending);
    }
    let columns = run.columns();
    let builder = SectionBuilder {
        work,
        results,
        columns: &columns,
    };
    section.figures = builder.figures();
    if builder.runs().len() > 1 {
        section.headline = BEST.to_owned();
    } else if let Some((_, _, name)) = builder.runs().first() {
        section.headline.clone_from(name);
    }
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

/// The data of the section.
pub(super) struct SectionBuilder<'a> {
    pub(super) work: &'a Work,
    pub(super) results: &'a [Results],
    pub(super) columns: &'a Columns,
}

impl SectionBuilder<'_> {
    fn each(&self, value: impl Fn(&Results) -> Option<f64>) -> Vec<Option<f64>> {
        self.results.iter().map(value).collect()
    }

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
                let mut name = match threads {
                    1 => "1 thread".to_owned(),
                    threads => format!("{threads} threads"),
                };
                if several {
                    name = format!("{name}, {}", compression_name(compression));
                }
                runs.push((compression, *threads, name));
            }
        }
        runs
    }

    fn figures(&self) -> Vec<Figure> {
        let first = self.work.compressions().first().copied().flatten();
        let mut figures = vec![Figure::higher(
            "load",
            "documents/s",
            self.each(|target| {
                let load = target.loads.iter().find(|load| load.compression == first)?;
                rate(load.documents, load.elapsed)
            }),
        )];
        let (runs, ran) = (self.runs(), Results::ran);
        for (compression, threads, name) in &runs {
            figures.push(Figure::higher(
                name.as_str(),
                "transactions/s",
                self.each(|target| {
                    ran(target, *compression, *threads)?
                        .level
                        .transactions_per_s()
                }),
            ));
        }
        if runs.len() > 1 {
            let rates = |target: &Results| {
                let rates = target
                    .levels
                    .iter()
                    .filter_map(|ran| ran.level.transactions_per_s());
                rates.max_by(f64::total_cmp)
            };
            figures.push(Figure::higher(BEST, "transactions/s", self.each(rates)));
            let most = self.work.threads.iter().max().copied().unwrap_or(1);
            figures.push(Figure::neutral(
                format!("{most} threads / best"),
                "",
                self.each(|target| {
                    Some(ran(target, first, most)?.level.transactions_per_s()? / rates(target)?)
                }),
            ));
        }
        for (compression, threads, name) in &runs {
            figures.push(Figure::lower(
                format!("{name}: 95% of transactions within"),
                "ms",
                self.each(|target| Some(ran(target, *compression, *threads)?.level.whole.p95_ms)),
            ));
        }
        figures.extend(self.size_figures());
        figures
    }

    fn size_figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let several = self.work.compressions().len() > 1;
        for compression in self.work.compressions() {
            for (after_run, when) in [(false, "after the load"), (true, "after the run")] {
                let size =
                    |target: &Results| target.size(compression, after_run).map(PerDocument::new);
                if self.results.iter().all(|target| size(target).is_none()) {
                    continue;
                }
                let name = if several {
                    format!("{} {when}", compression_name(compression))
                } else {
                    when.to_owned()
                };
                if !after_run && !figures.iter().any(|f: &Figure| f.unit == "logical bytes") {
                    figures.push(Figure::neutral(
                        "a document",
                        "logical bytes",
                        self.each(|target| size(target)?.logical),
                    ));
                }
                figures.push(Figure::lower(
                    format!("a document and its index entries on disk, {name}"),
                    "bytes",
                    self.each(|target| size(target)?.on_disk()),
                ));
            }
        }
        figures
    }

    /// Everything that tables show, for programs.
    fn details(&self) -> Vec<Figure> {
        let mut details = Vec::new();
        for (compression, threads, name) in self.runs() {
            let ran = |target: &Results| target.ran(compression, threads).cloned();
            details.push(Figure::neutral(
                format!("{name}: transactions"),
                "",
                self.each(|target| Some(ran(target)?.level.transactions as f64)),
            ));
            details.push(Figure::higher(
                format!("{name}: operations"),
                "operations/s",
                self.each(|target| ran(target)?.level.operations_per_s()),
            ));
            for (percentile, pick) in PERCENTILES {
                details.push(Figure::lower(
                    format!("{name}: transaction {percentile}"),
                    "ms",
                    self.each(|target| Some(pick(&ran(target)?.level.whole))),
                ));
            }
            for kind in KINDS {
                for (percentile, pick) in PERCENTILES {
                    details.push(Figure::lower(
                        format!("{name}: {} {percentile}", kind.name()),
                        "ms",
                        self.each(|target| Some(pick(&ran(target)?.level.kind(kind)))),
                    ));
                }
            }
            for index in 0..5 {
                let pair = |target: &Results| ran(target)?.level.races.pairs().get(index).copied();
                let what = self
                    .results
                    .iter()
                    .find_map(pair)
                    .map_or("", |(what, _)| what);
                details.push(Figure::neutral(
                    format!("{name}: {what} lost to other threads"),
                    "",
                    self.each(|target| Some(pair(target)?.1 as f64)),
                ));
            }
        }
        for compression in self.work.compressions() {
            for (after_run, when) in [(false, "after the load"), (true, "after the run")] {
                let size =
                    |target: &Results| target.size(compression, after_run).map(PerDocument::new);
                if self.results.iter().all(|target| size(target).is_none()) {
                    continue;
                }
                let name = compression_name(compression);
                for (what, pick) in PerDocument::PARTS {
                    details.push(Figure::lower(
                        format!("{name} {when}: {what}"),
                        "bytes",
                        self.each(|target| pick(&size(target)?)),
                    ));
                }
            }
            let load = |target: &Results| {
                let mut loads = target.loads.iter();
                loads.find(|load| load.compression == compression).cloned()
            };
            let name = compression_name(compression);
            details.push(Figure::higher(
                format!("load, {name}"),
                "documents/s",
                self.each(|target| {
                    let load = load(target)?;
                    rate(load.documents, load.elapsed)
                }),
            ));
            for (percentile, pick) in PERCENTILES {
                details.push(Figure::lower(
                    format!("load, {name}: insert {percentile}"),
                    "ms",
                    self.each(|target| Some(pick(&load(target)?.latency))),
                ));
            }
        }
        details
    }
}

impl Results {
    fn ran(&self, compression: Option<Compression>, threads: u16) -> Option<&Ran> {
        let of = |ran: &&Ran| ran.compression == compression && ran.threads == threads;
        self.levels.iter().find(of)
    }

    fn size(&self, compression: Option<Compression>, after_run: bool) -> Option<&Size> {
        let of = |size: &&Size| size.compression == compression && size.after_run == after_run;
        self.sizes.iter().find(of)
    }
}

/// Bytes of a document.
pub(super) struct PerDocument {
    pub(super) logical: Option<f64>,
    pub(super) storage: Option<f64>,
    pub(super) indexes: Option<f64>,
}

impl PerDocument {
    const PARTS: [(&str, Pick<PerDocument, Option<f64>>); 4] = [
        ("a document, logical", |each| each.logical),
        ("a document on disk", |each| each.storage),
        ("its index entries on disk", |each| each.indexes),
        ("both on disk", PerDocument::on_disk),
    ];

    pub(super) fn new(size: &Size) -> PerDocument {
        let documents = size.sizes.documents.filter(|n| *n > 0);
        let each = |bytes: Option<u64>| Some(bytes? as f64 / documents? as f64);
        PerDocument {
            logical: each(size.sizes.logical_bytes),
            storage: each(size.sizes.storage_bytes),
            indexes: each(size.sizes.index_bytes),
        }
    }

    pub(super) fn on_disk(&self) -> Option<f64> {
        Some(self.storage? + self.indexes?)
    }
}

fn rate(documents: u64, elapsed: std::time::Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0 && documents > 0).then(|| documents as f64 / seconds)
}
