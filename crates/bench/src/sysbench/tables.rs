//! The tables of a run of Sysbench.

use super::kind::{KINDS, OPERATIONS};
use super::options::compression_name;
use super::runner::{Ran, Results, Size};
use super::section::{PERCENTILES, PerDocument, SectionBuilder};
use crate::format::{show, thousands};
use crate::meter::Percentiles;
use crate::report::Table;

impl SectionBuilder<'_> {
    fn table(
        &self,
        title: &str,
        head: &[&str],
        rows: impl Fn(&Results) -> Vec<Vec<String>>,
    ) -> Table {
        self.columns.table(title, head, self.results, rows)
    }

    /// Rates and latencies at each thread level.
    pub(super) fn levels(&self) -> Table {
        let head = [
            "compression",
            "threads",
            "transactions",
            "transactions/s",
            "operations/s",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "max ms",
            "lost races",
        ];
        self.table("Transactions", &head, |target| {
            let row = |ran: &Ran| {
                let mut row = vec![
                    compression_name(ran.compression).to_owned(),
                    ran.threads.to_string(),
                    thousands(ran.level.transactions as f64),
                    show(ran.level.transactions_per_s()),
                    show(ran.level.operations_per_s()),
                ];
                row.extend(milliseconds(&ran.level.whole));
                row.push(thousands(ran.level.races.total() as f64));
                row
            };
            target.levels.iter().map(row).collect()
        })
    }

    /// Latencies of each kind of operation.
    pub(super) fn kinds(&self) -> Table {
        let head = [
            "compression",
            "threads",
            "operation",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "max ms",
        ];
        let title = format!("Each of the {OPERATIONS} operations of a transaction, by kind");
        self.table(&title, &head, |target| {
            let mut rows = Vec::new();
            for ran in &target.levels {
                for kind in KINDS {
                    let mut row = vec![
                        compression_name(ran.compression).to_owned(),
                        ran.threads.to_string(),
                        kind.name().to_owned(),
                    ];
                    row.extend(milliseconds(&ran.level.kind(kind)));
                    rows.push(row);
                }
            }
            rows
        })
    }

    pub(super) fn sizes(&self) -> Table {
        let head = [
            "compression",
            "when",
            "documents",
            "logical bytes a document",
            "on disk",
            "index entries on disk",
            "together",
            "on disk / logical",
        ];
        self.table("Sizes", &head, |target| {
            let row = |size: &Size| {
                let each = PerDocument::new(size);
                let ratio = each
                    .on_disk()
                    .zip(each.logical)
                    .map(|(disk, logical)| disk / logical);
                vec![
                    compression_name(size.compression).to_owned(),
                    if size.after_run {
                        "after the run"
                    } else {
                        "after the load"
                    }
                    .to_owned(),
                    show(size.sizes.documents.map(|n| n as f64)),
                    show(each.logical),
                    show(each.storage),
                    show(each.indexes),
                    show(each.on_disk()),
                    show(ratio),
                ]
            };
            target.sizes.iter().map(row).collect()
        })
    }

    /// Conflicts between threads, where there were any.
    pub(super) fn losses(&self) -> Table {
        let head = ["compression", "threads", "what found nothing", "times"];
        let title = "Documents that another thread was replacing at the moment";
        self.table(title, &head, |target| {
            let mut rows = Vec::new();
            for ran in &target.levels {
                for (what, count) in ran.level.races.pairs().into_iter().filter(|(_, n)| *n > 0) {
                    rows.push(vec![
                        compression_name(ran.compression).to_owned(),
                        ran.threads.to_string(),
                        what.to_owned(),
                        thousands(count as f64),
                    ]);
                }
            }
            rows
        })
    }
}

fn milliseconds(latency: &Percentiles) -> Vec<String> {
    PERCENTILES
        .iter()
        .map(|(_, pick)| format!("{:.3}", pick(latency)))
        .collect()
}
