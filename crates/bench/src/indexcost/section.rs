//! The section of a run without and with an index.

use super::options::Work;
use super::runner::{Batch, Results};
use crate::documents::indexcost::{NAMES, WANTED};
use crate::format::{show, thousands};
use crate::harness::Run;
use crate::report::plot::{self, Curve, Panel};
use crate::report::{Axis, Chart, Columns, Figure, Section, Table};
use crate::system::Sizes;

/// Takes one of the sizes.
type PickBytes = fn(&Sizes) -> Option<u64>;

/// The two collections, in their order.
const SIDES: [&str; 2] = ["without the index", "with the index"];

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "Documents of 2,400 bytes go into a collection without a secondary index and into one with an \
         index on name, batch by batch in turns, each batch timed until the server has worked on all \
         of it. After each batch the name {WANTED}, one of {}, is looked for in both.",
        thousands(NAMES as f64)
    );
    let mut section = Section::new("indexcost", "W5: the cost of an index", about);
    let acknowledged: Vec<bool> = results.iter().map(|target| target.acknowledged).collect();
    section.settings = work.settings(&acknowledged);
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
    section.headline = format!("{}, on average", SIDES[1]);
    section.details = builder.details();
    section.tables = vec![builder.batches(), builder.sizes()];
    if work.finds > 0 {
        section.tables.insert(1, builder.finds());
    }
    section.charts.push(builder.chart());
    section
}

struct SectionBuilder<'a> {
    work: &'a Work,
    results: &'a [Results],
    columns: &'a Columns,
}

impl Results {
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

impl SectionBuilder<'_> {
    fn each(&self, value: impl Fn(&Results) -> Option<f64>) -> Vec<Option<f64>> {
        self.results.iter().map(value).collect()
    }

    fn figures(&self) -> Vec<Figure> {
        let rate = "documents/s";
        let last = |target: &Results, side: usize| target.batches.last()?.get(side)?.rate();
        let mut figures = Vec::new();
        for (side, name) in SIDES.into_iter().enumerate() {
            figures.push(Figure::higher(
                format!("{name}, on average"),
                rate,
                self.each(|target| target.rate(side)),
            ));
            figures.push(Figure::higher(
                format!("{name}, last batch"),
                rate,
                self.each(|target| last(target, side)),
            ));
        }
        figures.extend([
            Figure::neutral(
                "with / without, on average",
                "",
                self.each(|target| Some(target.rate(1)? / target.rate(0)?)),
            ),
            Figure::neutral(
                "with / without, worst batch",
                "",
                self.each(|target| target.ratios().min_by(f64::total_cmp)),
            ),
            Figure::neutral(
                "with / without, last batch",
                "",
                self.each(|target| target.batches.last().and_then(ratio)),
            ),
        ]);
        if self.work.finds > 0 {
            for (side, name) in SIDES.into_iter().enumerate() {
                figures.push(Figure::lower(
                    format!("find by name {name}, after the last batch"),
                    "ms",
                    self.each(|target| find_ms(target.last(side)?)),
                ));
            }
            figures.push(Figure::neutral(
                "documents that it finds",
                "",
                self.each(|target| Some(target.last(1)?.found as f64)),
            ));
        }
        figures.extend(self.size_figures());
        figures
    }

    fn size_figures(&self) -> Vec<Figure> {
        let size = |side: usize, bytes: PickBytes| {
            self.each(|target| {
                let sizes = target.at_rest.as_ref()?.get(side)?;
                each(bytes(sizes), sizes)
            })
        };
        let mut figures = vec![Figure::neutral(
            "logical size of a document",
            "bytes",
            size(0, |sizes| sizes.logical_bytes),
        )];
        for (side, name) in SIDES.into_iter().enumerate() {
            figures.push(Figure::lower(
                format!("a document on disk, {name}"),
                "bytes",
                size(side, |sizes| sizes.storage_bytes),
            ));
            figures.push(Figure::lower(
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
                let batch = |target: &Results| target.batches.get(number)?.get(side).cloned();
                details.push(Figure::higher(
                    format!("{name} {words}"),
                    "documents/s",
                    self.each(|target| batch(target)?.rate()),
                ));
                for find in 0..self.work.finds as usize {
                    details.push(Figure::lower(
                        format!("{name} {words}: find {}", find + 1),
                        "ms",
                        self.each(|target| {
                            Some(batch(target)?.finds.get(find)?.as_secs_f64() * 1e3)
                        }),
                    ));
                }
                let parts: [(&str, PickBytes); 4] = [
                    ("documents", |sizes| sizes.documents),
                    ("size", |sizes| sizes.logical_bytes),
                    ("storage size", |sizes| sizes.storage_bytes),
                    ("index size", |sizes| sizes.index_bytes),
                ];
                for (what, pick) in parts {
                    details.push(Figure::neutral(
                        format!("{name} {words}: {what}"),
                        if what == "documents" { "" } else { "bytes" },
                        self.each(|target| Some(pick(&batch(target)?.sizes)? as f64)),
                    ));
                }
            }
            details.push(Figure::neutral(
                format!("{name}: with / without"),
                "",
                self.each(|target| target.batches.get(number).and_then(ratio)),
            ));
        }
        details
    }

    /// A row for each batch of each server.
    fn table(
        &self,
        title: String,
        head: &[&str],
        row: impl Fn(&[Batch; 2]) -> Option<Vec<String>>,
    ) -> Table {
        let mut columns = vec!["batch"];
        columns.extend(head);
        self.columns.table(title, &columns, self.results, |target| {
            let batches = (1_usize..).zip(&target.batches);
            batches
                .filter_map(|(number, batch)| {
                    let mut whole = vec![number.to_string()];
                    whole.extend(row(batch)?);
                    Some(whole)
                })
                .collect()
        })
    }

    fn batches(&self) -> Table {
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
                show(without.rate()),
                show(with.rate()),
                show(ratio(batch)),
            ])
        })
    }

    fn finds(&self) -> Table {
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
                row.extend(times.map(|ms| show(Some(ms))));
            }
            (row.len() == head.len()).then_some(row)
        })
    }

    fn sizes(&self) -> Table {
        let head = [
            "documents",
            "size, MB",
            "without the index: storage, MB",
            "indexes, MB",
            "with the index: storage, MB",
            "indexes, MB",
        ];
        let mb = |bytes: Option<u64>| show(bytes.map(|bytes| bytes as f64 / 1e6));
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
        let mut curves = self.columns.curves(self.results, |target| {
            let x = |batch: usize| self.work.numbers(batch as u32).end as f64 / 1e6;
            let batches = target.batches.iter().enumerate();
            batches
                .filter_map(|(number, batch)| Some((x(number), value(batch)?)))
                .collect()
        });
        for curve in &mut curves {
            curve.name.push_str(name);
        }
        curves
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
