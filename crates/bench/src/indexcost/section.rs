//! The section of a run without and with an index.

use super::options::Work;
use super::runner::{Batch, Results};
use crate::documents::indexcost::{NAMES, WANTED};
use crate::format::{show, thousands};
use crate::harness::Run;
use crate::meter::milliseconds;
use crate::report::plot::{self, Curve};
use crate::report::section::ResultRow;
use crate::report::{Chart, Columns, Higher, Lower, Neither, Panel, ResultRows, Section, Table};
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
    let columns = run.columns();
    let builder = SectionBuilder {
        work,
        results,
        columns: &columns,
    };
    section.result_rows = builder.result_rows();
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
    let sum: f64 = batch.finds.iter().map(milliseconds).sum();
    (!batch.finds.is_empty()).then(|| sum / batch.finds.len() as f64)
}

impl SectionBuilder<'_> {
    fn result_rows(&self) -> Vec<ResultRow> {
        let mut result_rows = ResultRows::new(self.results);
        for (side, name) in SIDES.into_iter().enumerate() {
            let rate = "documents/s";
            result_rows.add(Higher, format!("{name}, on average"), rate, |t| {
                t.rate(side)
            });
            result_rows.add(Higher, format!("{name}, last batch"), rate, |t| {
                t.batches.last()?.get(side)?.rate()
            });
        }
        result_rows.add(Neither, "with / without, on average", "", |t| {
            Some(t.rate(1)? / t.rate(0)?)
        });
        result_rows.add(Neither, "with / without, worst batch", "", |t| {
            t.batches.iter().filter_map(ratio).min_by(f64::total_cmp)
        });
        result_rows.add(Neither, "with / without, last batch", "", |t| {
            t.batches.last().and_then(ratio)
        });
        if self.work.finds > 0 {
            for (side, name) in SIDES.into_iter().enumerate() {
                let name = format!("find by name {name}, after the last batch");
                result_rows.add(Lower, name, "ms", |t| find_ms(t.last(side)?));
            }
            result_rows.add(Neither, "documents that it finds", "", |t| {
                Some(t.last(1)?.found as f64)
            });
        }
        let size = |target: &Results, side: usize| target.at_rest.as_ref()?.get(side).copied();
        result_rows.add(Neither, "logical size of a document", "bytes", |t| {
            size(t, 0)?.logical()
        });
        for (side, name) in SIDES.into_iter().enumerate() {
            result_rows.add(Lower, format!("a document on disk, {name}"), "bytes", |t| {
                size(t, side)?.storage()
            });
            let name = format!("its index entries on disk, {name}");
            result_rows.add(Lower, name, "bytes", |t| size(t, side)?.indexes());
        }
        result_rows.list
    }

    /// Everything that tables show, for programs.
    fn details(&self) -> Vec<ResultRow> {
        let mut details = ResultRows::new(self.results);
        for number in 0..self.work.batches as usize {
            let name = format!("batch {}", number + 1);
            for (side, words) in SIDES.into_iter().enumerate() {
                let of = format!("{name} {words}");
                let batch = |target: &Results| target.batches.get(number)?.get(side).cloned();
                details.add(Higher, &of, "documents/s", |t| batch(t)?.rate());
                for find in 0..self.work.finds as usize {
                    details.add(Lower, format!("{of}: find {}", find + 1), "ms", |t| {
                        batch(t)?.finds.get(find).map(milliseconds)
                    });
                }
                let parts: [(&str, &str, PickBytes); 4] = [
                    ("documents", "", |sizes| sizes.documents),
                    ("size", "bytes", |sizes| sizes.logical_bytes),
                    ("storage size", "bytes", |sizes| sizes.storage_bytes),
                    ("index size", "bytes", |sizes| sizes.index_bytes),
                ];
                for (what, unit, pick) in parts {
                    details.add(Neither, format!("{of}: {what}"), unit, |t| {
                        Some(pick(&batch(t)?.sizes)? as f64)
                    });
                }
            }
            details.add(Neither, format!("{name}: with / without"), "", |t| {
                t.batches.get(number).and_then(ratio)
            });
        }
        details.list
    }

    /// A row for each batch of each server.
    fn table(
        &self,
        title: String,
        head: &str,
        row: impl Fn(&[Batch; 2]) -> Option<Vec<String>>,
    ) -> Table {
        let head = format!("batch|{head}");
        self.columns.table(title, &head, self.results, |target| {
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
        let head =
            "documents|without the index, documents/s|with the index, documents/s|with / without";
        self.table("Batches".to_owned(), head, |batch| {
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
        self.table(format!("Finds of {WANTED}"), &head.join("|"), |batch| {
            let [without, _] = batch;
            let mut row = vec![thousands(without.found as f64)];
            for batch in batch {
                let times = batch.finds.iter().map(milliseconds);
                row.extend(times.map(|ms| show(Some(ms))));
            }
            (row.len() == head.len()).then_some(row)
        })
    }

    fn sizes(&self) -> Table {
        let head = "documents|size, MB|without the index: storage, MB|indexes, MB|with the index: storage, MB|indexes, MB";
        let mb = |bytes: Option<u64>| show(bytes.map(|bytes| bytes as f64 / 1e6));
        self.table(
            "What collStats tells after each batch".to_owned(),
            head,
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

    /// The curves without the index, in a pale shade, and those with it.
    fn both(&self, value: fn(&Batch) -> Option<f64>) -> Vec<Curve> {
        let mut both = self.curves(", without", |[without, _]| value(without));
        for curve in &mut both {
            curve.color = plot::pale(curve.color);
        }
        both.extend(self.curves(", with", |[_, with]| value(with)));
        both
    }

    fn chart(&self) -> Chart {
        let (rates, finds) = (self.both(Batch::rate), self.both(find_ms));
        let ratios = self.curves("", ratio);
        let mut panels = vec![
            Panel::tall("Documents a second in each batch", "documents/s", rates),
            Panel::low("Rate with the index / rate without", "", ratios),
        ];
        if !finds.is_empty() {
            panels.push(Panel::low("A find by name", "milliseconds", finds));
        }
        let x_max = (self.work.documents() as f64 / 1e6).max(1e-6);
        Chart::new(panels, x_max, "million documents in each collection")
    }
}
