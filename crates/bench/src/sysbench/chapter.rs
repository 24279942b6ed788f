//! What a run of Sysbench has to say.

use super::kind::KINDS;
use super::lane::{Ended, Ran, Size};
use super::options::{Work, compression_name};
use crate::contest::Contest;
use crate::meter::Percentiles;
use crate::report::{Chapter, Figure};
use crate::system::Compression;

const ABOUT: &str = "Sysbench for MongoDB of 2013. Each thread chooses a collection at random for \
    each transaction: 10 point lookups of c, then over 100 documents each a range of c, a sum of k, \
    an ordered range of c and the different values of c; an update of k, which is indexed, one of c, \
    which is not; a delete, and an insert with the same _id. All is found by _id.";

/// Takes a number out of something.
type Pick<T, N> = fn(&T) -> N;

/// The percentiles of reports.
pub(super) const PERCENTILES: [(&str, Pick<Percentiles, f64>); 4] = [
    ("p50", |l| l.p50_ms),
    ("p95", |l| l.p95_ms),
    ("p99", |l| l.p99_ms),
    ("max", |l| l.max_ms),
];

/// The chapter of a run.
#[must_use]
pub fn of(contest: &Contest, work: &Work, lanes: &[Ended]) -> Chapter {
    let mut chapter = Chapter::new("sysbench", "W4: Sysbench", ABOUT);
    chapter.settings = work.settings(contest.turns());
    for lane in lanes {
        chapter.ended(&lane.ending);
    }
    let labels = contest.labels();
    let report = Report {
        work,
        lanes,
        labels: &labels,
    };
    chapter.figures = report.figures();
    chapter.details = report.details();
    chapter.tables = vec![report.levels(), report.kinds(), report.sizes()];
    let losses = report.losses();
    if losses.rows.len() > 1 {
        chapter.tables.push(losses);
    }
    if work.threads.len() > 1 {
        chapter.charts.push(report.by_threads());
    }
    chapter.charts.push(report.over_time());
    chapter
}

/// All that the parts of the chapter are made of.
pub(super) struct Report<'a> {
    /// The settings.
    pub(super) work: &'a Work,
    /// By server.
    pub(super) lanes: &'a [Ended],
    /// The servers' names.
    pub(super) labels: &'a [String],
}

impl Report<'_> {
    fn each(&self, value: impl Fn(&Ended) -> Option<f64>) -> Vec<Option<f64>> {
        self.lanes.iter().map(value).collect()
    }

    /// Levels of the run by their numbers, each with the words that tell it from others.
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
        let mut figures = vec![Figure::more(
            "load",
            "documents/s",
            self.each(|lane| {
                let load = lane.loads.iter().find(|load| load.compression == first)?;
                rate(load.documents, load.elapsed)
            }),
        )];
        let (runs, ran) = (self.runs(), Ended::ran);
        for (compression, threads, name) in &runs {
            figures.push(Figure::more(
                name.as_str(),
                "transactions/s",
                self.each(|lane| {
                    ran(lane, *compression, *threads)?
                        .level
                        .transactions_per_s()
                }),
            ));
        }
        if runs.len() > 1 {
            let rates = |lane: &Ended| {
                let rates = lane
                    .levels
                    .iter()
                    .filter_map(|ran| ran.level.transactions_per_s());
                rates.max_by(f64::total_cmp)
            };
            figures.push(Figure::more(
                "best thread level",
                "transactions/s",
                self.each(rates),
            ));
            let most = self.work.threads.iter().max().copied().unwrap_or(1);
            figures.push(Figure::told(
                format!("{most} threads / best"),
                "",
                self.each(|lane| {
                    Some(ran(lane, first, most)?.level.transactions_per_s()? / rates(lane)?)
                }),
            ));
        }
        for (compression, threads, name) in &runs {
            figures.push(Figure::less(
                format!("{name}: 95% of transactions within"),
                "ms",
                self.each(|lane| Some(ran(lane, *compression, *threads)?.level.whole.p95_ms)),
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
                let size = |lane: &Ended| lane.size(compression, after_run).map(PerDocument::of);
                if self.lanes.iter().all(|lane| size(lane).is_none()) {
                    continue;
                }
                let name = match several {
                    true => format!("{} {when}", compression_name(compression)),
                    false => when.to_owned(),
                };
                if !after_run && !figures.iter().any(|f: &Figure| f.unit == "logical bytes") {
                    figures.push(Figure::told(
                        "a document",
                        "logical bytes",
                        self.each(|lane| size(lane)?.logical),
                    ));
                }
                figures.push(Figure::less(
                    format!("a document and its index entries on disk, {name}"),
                    "bytes",
                    self.each(|lane| size(lane)?.on_disk()),
                ));
            }
        }
        figures
    }

    /// Everything that tables show, for programs.
    fn details(&self) -> Vec<Figure> {
        let mut details = Vec::new();
        for (compression, threads, name) in self.runs() {
            let ran = |lane: &Ended| lane.ran(compression, threads).cloned();
            details.push(Figure::told(
                format!("{name}: transactions"),
                "",
                self.each(|lane| Some(ran(lane)?.level.transactions as f64)),
            ));
            details.push(Figure::more(
                format!("{name}: operations"),
                "operations/s",
                self.each(|lane| ran(lane)?.level.operations_per_s()),
            ));
            for (percentile, pick) in PERCENTILES {
                details.push(Figure::less(
                    format!("{name}: transaction {percentile}"),
                    "ms",
                    self.each(|lane| Some(pick(&ran(lane)?.level.whole))),
                ));
            }
            for kind in KINDS {
                for (percentile, pick) in PERCENTILES {
                    details.push(Figure::less(
                        format!("{name}: {} {percentile}", kind.name()),
                        "ms",
                        self.each(|lane| Some(pick(&ran(lane)?.level.kind(kind)))),
                    ));
                }
            }
            for index in 0..5 {
                let pair = |lane: &Ended| ran(lane)?.level.races.pairs().get(index).copied();
                let what = self
                    .lanes
                    .iter()
                    .find_map(pair)
                    .map_or("", |(what, _)| what);
                details.push(Figure::told(
                    format!("{name}: {what} lost to other threads"),
                    "",
                    self.each(|lane| Some(pair(lane)?.1 as f64)),
                ));
            }
        }
        for compression in self.work.compressions() {
            for (after_run, when) in [(false, "after the load"), (true, "after the run")] {
                let size = |lane: &Ended| lane.size(compression, after_run).map(PerDocument::of);
                if self.lanes.iter().all(|lane| size(lane).is_none()) {
                    continue;
                }
                let name = compression_name(compression);
                for (what, pick) in PerDocument::PARTS {
                    details.push(Figure::less(
                        format!("{name} {when}: {what}"),
                        "bytes",
                        self.each(|lane| pick(&size(lane)?)),
                    ));
                }
            }
            let load = |lane: &Ended| {
                let mut loads = lane.loads.iter();
                loads.find(|load| load.compression == compression).cloned()
            };
            let name = compression_name(compression);
            details.push(Figure::more(
                format!("load, {name}"),
                "documents/s",
                self.each(|lane| {
                    let load = load(lane)?;
                    rate(load.documents, load.elapsed)
                }),
            ));
            for (percentile, pick) in PERCENTILES {
                details.push(Figure::less(
                    format!("load, {name}: insert {percentile}"),
                    "ms",
                    self.each(|lane| Some(pick(&load(lane)?.latency))),
                ));
            }
        }
        details
    }
}

impl Ended {
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

    pub(super) fn of(size: &Size) -> PerDocument {
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
