//! The result of a run in numbers and words.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use frond_bson::{DocBuf, extjson};

use super::{Facts, Page, Section, thousands};
use crate::meter::Percentiles;

/// All that a report says, but for the trace.
pub struct Summary {
    /// Settings by name.
    pub settings: Vec<(&'static str, String)>,
    /// Versions and machine.
    pub facts: Facts,
    /// Documents to insert.
    pub requested: u64,
    /// Entries of each document in all secondary indexes.
    pub index_entries: u64,
    /// Documents inserted.
    pub documents: u64,
    /// From the first batch to the last answer.
    pub elapsed: Duration,
    /// Documents a second on the whole.
    pub speed: Option<f64>,
    /// Between 10% and 20% of the documents.
    pub early_speed: Option<f64>,
    /// In the last 5% of the documents.
    pub exit_speed: Option<f64>,
    /// Of all batches.
    pub latency: Percentiles,
    /// Inserts sent.
    pub batches: u64,
    /// The most memory that the server said it had resident, in MiB.
    pub resident_max_mib: Option<f64>,
    /// "complete", or why the run ended early.
    pub ending: String,
}

impl Summary {
    /// Exit speed as a part of the early speed: 1 is a speed that does not fall.
    #[must_use]
    pub fn steadiness(&self) -> Option<f64> {
        Some(self.exit_speed? / self.early_speed?)
    }

    /// Index entries a second at so many documents a second.
    fn entries(&self, documents: Option<f64>) -> Option<f64> {
        Some(documents? * self.index_entries as f64)
    }

    /// Numbers of the run as (name, value), values as people read them.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        let speed = |speed: Option<f64>| {
            speed.map_or_else(|| "-".to_owned(), |s| format!("{}/s", thousands(s)))
        };
        let ms = |ms: f64| format!("{ms:.2} ms");
        let mut figures = vec![
            ("ended", self.ending.clone()),
            ("documents", thousands(self.documents as f64)),
            ("time", format!("{:.1} s", self.elapsed.as_secs_f64())),
            ("speed on average", speed(self.speed)),
            ("speed from 10% to 20%", speed(self.early_speed)),
            ("exit speed (last 5%)", speed(self.exit_speed)),
            ("index entries on average", speed(self.entries(self.speed))),
            (
                "index entries at exit",
                speed(self.entries(self.exit_speed)),
            ),
            (
                "exit speed / early speed",
                self.steadiness()
                    .map_or_else(|| "-".to_owned(), |part| format!("{part:.2}")),
            ),
            ("batches", thousands(self.batches as f64)),
            ("batch latency p50", ms(self.latency.p50_ms)),
            ("batch latency p95", ms(self.latency.p95_ms)),
            ("batch latency p99", ms(self.latency.p99_ms)),
            ("batch latency p99.9", ms(self.latency.p999_ms)),
            ("batch latency max", ms(self.latency.max_ms)),
        ];
        if let Some(mib) = self.resident_max_mib {
            figures.push(("server's resident memory, max", format!("{mib:.0} MiB")));
        }
        figures
    }

    /// For programs: plain numbers, in the unit that the name says.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut doc = DocBuf::new();
        doc.push("workload", "insert");
        doc.push("ended", self.ending.as_str());
        doc.push("started", self.facts.started.to_string().as_str());
        doc.push("requested", self.requested as i64);
        doc.push("documents", self.documents as i64);
        doc.push("elapsed_s", self.elapsed.as_secs_f64());
        for (name, value) in [
            ("documents_per_s", self.speed),
            ("documents_per_s_from_10_to_20_percent", self.early_speed),
            ("exit_documents_per_s", self.exit_speed),
            ("index_entries_per_s", self.entries(self.speed)),
            ("exit_index_entries_per_s", self.entries(self.exit_speed)),
            ("exit_over_early", self.steadiness()),
            ("server_resident_max_mib", self.resident_max_mib),
        ] {
            doc.push(name, value);
        }
        doc.push("batches", self.batches as i64);
        doc.push_doc("batch_latency_ms", |latency| {
            latency.push("p50", self.latency.p50_ms);
            latency.push("p95", self.latency.p95_ms);
            latency.push("p99", self.latency.p99_ms);
            latency.push("p99_9", self.latency.p999_ms);
            latency.push("max", self.latency.max_ms);
        });
        for (name, pairs) in [("settings", &self.settings), ("facts", &self.facts.pairs())] {
            doc.push_doc(name, |inner| {
                for (key, value) in pairs {
                    inner.push(key, value.as_str());
                }
            });
        }
        let mut json = extjson::to_relaxed(&doc);
        json.push('\n');
        json
    }

    /// For people.
    #[must_use]
    pub fn page(&self) -> Page {
        Page {
            title: "Indexed insertion",
            sections: vec![
                Section::of_pairs("Result", &self.figures()),
                Section::of_pairs("Settings", &self.settings),
                Section::of_pairs("Versions and machine", &self.facts.pairs()),
            ],
        }
    }

    /// For the terminal.
    #[must_use]
    pub fn to_text(&self, folder: &Path) -> String {
        let mut out = String::new();
        for (name, value) in self.figures() {
            let _ = writeln!(out, "{name:<30} {value}");
        }
        let chart = folder.join("chart.html");
        let _ = writeln!(out, "{:<30} {}", "chart", chart.display());
        out
    }
}
