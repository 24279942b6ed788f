//! What a run without and with an index has to say.

use super::document::{NAMES, WANTED};
use super::lane::{Batch, Ended};
use super::options::Work;
use crate::contest::Contest;
use crate::report::plot::{self, Curve, Panel};
use crate::report::{Axis, Chapter, Chart, Figure, Section, show, thousands};
use crate::system::Sizes;

/// Takes one of the sizes.
type PickBytes = fn(&Sizes) -> Option<u64>;

/// The two collections, in their order.
const SIDES: [&str; 2] = ["without the index", "with the index"];

/// The chapter of a run.
#[must_use]
pub fn of(contest: &Contest, work: &Work, lanes: &[Ended]) -> Chapter {
    let about = format!(
        "Documents of 2,400 bytes go into a collection without a secondary index and into one with an \
         index on name, batch by batch in turns, each batch timed until the server has worked on all \
         of it. After each batch the name {WANTED}, one of {}, is looked for in both.",
        thousands(NAMES as f64)
    );
    let mut chapter = Chapter::new("indexcost", "W5: the cost of an index", about);
    let acknowledged: Vec<bool> = lanes.iter().map(|lane| lane.acknowledged).collect();
    chapter.settings = work.settings(&acknowledged);
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
    chapter.tables = vec![report.batches(), report.sizes()];
    if work.finds > 0 {
        chapter.tables.insert(1, report.finds());
    }
    chapter.charts.push(report.chart());
    chapter
}

struct Report<'a> {
    work: &'a Work,
    lanes: &'a [Ended],
    labels: &'a [String],
}

impl Ended {
    /// Documents a second in one of the collections, over all batches.
    fn rate(&self, side: usize) -> Option<f64> {
        let mut sum = Batch::default();
        for batch in self.batches.iter().filter_map(|sides| sides.get(side)) {
            sum.documents += batch.documents;
            sum.elapsed += batch.elapsed;
        }
        sum.rate()
    }

    /// The rate with the index for that without, of each batch that has both.
    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.batches.iter().filter_map(ratio)
    }

    /// The last batch with the finds behind it.
    fn last(&self, side: usize) -> Option<&Batch> {
        let batches = self
            .batches
            .iter()
            .rev()
            .filter_map(|sides| sides.get(side));
        let mut batches = batches.filter(|batch| !batch.finds.is_empty());
        batches.next()
    }
}

fn ratio([without, with]: &[Batch; 2]) -> Option<f64> {
    Some(with.rate()? / without.rate()?)
}

/// The mean time of a batch's finds, in milliseconds.
fn find_ms(batch: &Batch) -> Option<f64> {
    let sum: f64 = batch
        .finds
        .iter()
        .map(|time| time.as_secs_f64() * 1e3)
        .sum();
    (!batch.finds.is_empty()).then(|| sum / batch.finds.len() as f64)
}

fn each(bytes: Option<u64>, sizes: &Sizes) -> Option<f64> {
    let documents = sizes.documents.filter(|n| *n > 0)?;
    Some(bytes? as f64 / documents as f64)
}

impl Report<'_> {
    fn each(&self, value: impl Fn(&Ended) -> Option<f64>) -> Vec<Option<f64>> {
        self.lanes.iter().map(value).collect()
    }

    fn figures(&self) -> Vec<Figure> {
        let rate = "documents/s";
        let last = |lane: &Ended, side: usize| lane.batches.last()?.get(side)?.rate();
        let mut figures = Vec::new();
        for (side, name) in SIDES.into_iter().enumerate() {
            figures.push(Figure::more(
                format!("{name}, on average"),
                rate,
                self.each(|lane| lane.rate(side)),
            ));
            figures.push(Figure::more(
                format!("{name}, last batch"),
                rate,
                self.each(|lane| last(lane, side)),
            ));
        }
        figures.extend([
            Figure::told(
                "with / without, on average",
                "",
                self.each(|lane| Some(lane.rate(1)? / lane.rate(0)?)),
            ),
            Figure::told(
                "with / without, worst batch",
                "",
                self.each(|lane| lane.ratios().min_by(f64::total_cmp)),
            ),
            Figure::told(
                "with / without, last batch",
                "",
                self.each(|lane| lane.batches.last().and_then(ratio)),
            ),
        ]);
        if self.work.finds > 0 {
            for (side, name) in SIDES.into_iter().enumerate() {
                figures.push(Figure::less(
                    format!("find by name {name}, after the last batch"),
                    "ms",
                    self.each(|lane| find_ms(lane.last(side)?)),
                ));
            }
            figures.push(Figure::told(
                "documents that it finds",
                "",
                self.each(|lane| Some(lane.last(1)?.found as f64)),
            ));
        }
        figures.extend(self.size_figures());
        figures
    }

    fn size_figures(&self) -> Vec<Figure> {
        let size = |side: usize, bytes: PickBytes| {
            self.each(|lane| {
                let sizes = lane.at_rest.as_ref()?.get(side)?;
                each(bytes(sizes), sizes)
            })
        };
        let mut figures = vec![Figure::told(
            "logical size of a document",
            "bytes",
            size(0, |sizes| sizes.logical_bytes),
        )];
        for (side, name) in SIDES.into_iter().enumerate() {
            figures.push(Figure::less(
                format!("a document on disk, {name}"),
                "bytes",
                size(side, |sizes| sizes.storage_bytes),
            ));
            figures.push(Figure::less(
                format!("its index entries on disk, {name}"),
                "bytes",
                size(side, |sizes| sizes.index_bytes),
            ));
        }
        figures
    }

    /// Everything that tables show, for programs.
    fn details(&self) -> Vec<Figure> {
        let mut details = Vec::new();
        for number in 0..self.work.batches as usize {
            let name = format!("batch {}", number + 1);
            for (side, words) in SIDES.into_iter().enumerate() {
                let batch = |lane: &Ended| lane.batches.get(number)?.get(side).cloned();
                details.push(Figure::more(
                    format!("{name} {words}"),
                    "documents/s",
                    self.each(|lane| batch(lane)?.rate()),
                ));
                for find in 0..self.work.finds as usize {
                    details.push(Figure::less(
                        format!("{name} {words}: find {}", find + 1),
                        "ms",
                        self.each(|lane| Some(batch(lane)?.finds.get(find)?.as_secs_f64() * 1e3)),
                    ));
                }
                let parts: [(&str, PickBytes); 4] = [
                    ("documents", |sizes| sizes.documents),
                    ("size", |sizes| sizes.logical_bytes),
                    ("storage size", |sizes| sizes.storage_bytes),
                    ("index size", |sizes| sizes.index_bytes),
                ];
                for (what, pick) in parts {
                    details.push(Figure::told(
                        format!("{name} {words}: {what}"),
                        if what == "documents" { "" } else { "bytes" },
                        self.each(|lane| Some(pick(&batch(lane)?.sizes)? as f64)),
                    ));
                }
            }
            details.push(Figure::told(
                format!("{name}: with / without"),
                "",
                self.each(|lane| lane.batches.get(number).and_then(ratio)),
            ));
        }
        details
    }

    /// A row for each batch of each server, with the server's name first if there are several.
    fn table(
        &self,
        title: String,
        head: &[&str],
        row: impl Fn(&[Batch; 2]) -> Option<Vec<String>>,
    ) -> Section {
        let several = self.labels.len() > 1;
        let mut first = vec!["batch".to_owned()];
        first.extend(head.iter().map(|name| (*name).to_owned()));
        if several {
            first.insert(0, "server".to_owned());
        }
        let mut rows = vec![first];
        for (label, lane) in self.labels.iter().zip(self.lanes) {
            for (number, batch) in lane.batches.iter().enumerate() {
                let Some(cells) = row(batch) else { continue };
                let mut whole = vec![(number + 1).to_string()];
                whole.extend(cells);
                if several {
                    whole.insert(0, label.clone());
                }
                rows.push(whole);
            }
        }
        Section { title, rows }
    }

    fn batches(&self) -> Section {
        let head = [
            "documents",
            "without the index, documents/s",
            "with the index, documents/s",
            "with / without",
        ];
        self.table("Batches".to_owned(), &head, |batch| {
            let [without, with] = batch;
            let documents = without.documents.max(with.documents);
            Some(vec![
                thousands(documents as f64),
                show(without.rate(), ""),
                show(with.rate(), ""),
                show(ratio(batch), ""),
            ])
        })
    }

    fn finds(&self) -> Section {
        let mut head = vec!["found".to_owned()];
        for side in SIDES {
            head.extend((1..=self.work.finds).map(|find| format!("{side}, find {find}, ms")));
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        self.table(format!("Finds of {WANTED}"), &head, |batch| {
            let [without, _] = batch;
            let mut row = vec![thousands(without.found as f64)];
            for batch in batch {
                let times = batch.finds.iter().map(|time| time.as_secs_f64() * 1e3);
                row.extend(times.map(|ms| show(Some(ms), "")));
            }
            (row.len() == head.len()).then_some(row)
        })
    }

    fn sizes(&self) -> Section {
        let head = [
            "documents",
            "size, MB",
            "without the index: storage, MB",
            "indexes, MB",
            "with the index: storage, MB",
            "indexes, MB",
        ];
        let mb = |bytes: Option<u64>| show(bytes.map(|bytes| bytes as f64 / 1e6), "");
        self.table(
            "What collStats tells after each batch".to_owned(),
            &head,
            |batch| {
                let [without, with] = batch;
                let documents = without.sizes.documents?;
                Some(vec![
                    thousands(documents as f64),
                    mb(without.sizes.logical_bytes),
                    mb(without.sizes.storage_bytes),
                    mb(without.sizes.index_bytes),
                    mb(with.sizes.storage_bytes),
                    mb(with.sizes.index_bytes),
                ])
            },
        )
    }

    /// A curve for each server from a value of each batch, over millions of documents.
    fn curves(&self, name: &str, value: impl Fn(&[Batch; 2]) -> Option<f64>) -> Vec<Curve> {
        let servers = self.labels.iter().zip(self.lanes).enumerate();
        let curves = servers.map(|(index, (label, lane))| {
            let x = |batch: usize| self.work.numbers(batch as u32).end as f64 / 1e6;
            let batches = lane.batches.iter().enumerate();
            Curve {
                name: format!("{label}{name}"),
                color: plot::color(index),
                width: 2,
                points: batches
                    .filter_map(|(number, batch)| Some((x(number), value(batch)?)))
                    .collect(),
            }
        });
        curves.filter(|curve| !curve.points.is_empty()).collect()
    }

    fn chart(&self) -> Chart {
        let mut rates = self.curves(", without", |[without, _]| without.rate());
        for curve in &mut rates {
            curve.color = plot::pale(curve.color);
        }
        rates.extend(self.curves(", with", |[_, with]| with.rate()));
        let mut finds = self.curves(", without", |[without, _]| find_ms(without));
        for curve in &mut finds {
            curve.color = plot::pale(curve.color);
        }
        finds.extend(self.curves(", with", |[_, with]| find_ms(with)));
        let mut panels = vec![
            Panel {
                height: 400,
                title: "Documents a second in each batch".to_owned(),
                unit: "documents/s",
                curves: rates,
            },
            Panel {
                height: 230,
                title: "Rate with the index / rate without".to_owned(),
                unit: "",
                curves: self.curves("", ratio),
            },
        ];
        if !finds.is_empty() {
            panels.push(Panel {
                height: 230,
                title: "A find by name".to_owned(),
                unit: "milliseconds",
                curves: finds,
            });
        }
        Chart {
            panels,
            x_max: (self.work.documents() as f64 / 1e6).max(1e-6),
            x_unit: "million documents in each collection".to_owned(),
            axis: Axis::Linear,
        }
    }
}
