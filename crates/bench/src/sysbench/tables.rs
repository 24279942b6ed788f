//! The tables of a run of Sysbench.

use super::chapter::{PERCENTILES, PerDocument, Report};
use super::kind::{KINDS, OPERATIONS};
use super::lane::{Ended, Ran, Size};
use super::options::compression_name;
use crate::meter::Percentiles;
use crate::report::{Section, show, thousands};

impl Report<'_> {
    /// Rows of all servers, each with the server's name first if there are several.
    fn table(
        &self,
        title: &str,
        head: &[&str],
        rows: impl Fn(&Ended) -> Vec<Vec<String>>,
    ) -> Section {
        let several = self.labels.len() > 1;
        let mut all = vec![
            head.iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        ];
        for (label, lane) in self.labels.iter().zip(self.lanes) {
            for mut row in rows(lane) {
                if several {
                    row.insert(0, label.clone());
                }
                all.push(row);
            }
        }
        if let (true, Some(head)) = (several, all.first_mut()) {
            head.insert(0, "server".to_owned());
        }
        Section {
            title: title.to_owned(),
            rows: all,
        }
    }

    /// Rates and latencies at each thread level.
    pub(super) fn levels(&self) -> Section {
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
        self.table("Transactions", &head, |lane| {
            let row = |ran: &Ran| {
                let mut row = vec![
                    compression_name(ran.compression).to_owned(),
                    ran.threads.to_string(),
                    thousands(ran.level.transactions as f64),
                    show(ran.level.transactions_per_s(), ""),
                    show(ran.level.operations_per_s(), ""),
                ];
                row.extend(milliseconds(&ran.level.whole));
                row.push(thousands(ran.level.races.total() as f64));
                row
            };
            lane.levels.iter().map(row).collect()
        })
    }

    /// Latencies of each kind of operation.
    pub(super) fn kinds(&self) -> Section {
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
        self.table(&title, &head, |lane| {
            let mut rows = Vec::new();
            for ran in &lane.levels {
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

    /// What the collections take.
    pub(super) fn sizes(&self) -> Section {
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
        self.table("Sizes", &head, |lane| {
            let row = |size: &Size| {
                let each = PerDocument::of(size);
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
                    show(size.sizes.documents.map(|n| n as f64), ""),
                    show(each.logical, ""),
                    show(each.storage, ""),
                    show(each.indexes, ""),
                    show(each.on_disk(), ""),
                    show(ratio, ""),
                ]
            };
            lane.sizes.iter().map(row).collect()
        })
    }

    /// What threads lost to each other, where they did.
    pub(super) fn losses(&self) -> Section {
        let head = ["compression", "threads", "what found nothing", "times"];
        let title = "Documents that another thread was replacing at the moment";
        self.table(title, &head, |lane| {
            let mut rows = Vec::new();
            for ran in &lane.levels {
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
