//! What a run leaves: tables, a chart, `rounds.csv`.

use std::fmt::Write;
use std::path::Path;

use frond_bson::{DocBuf, extjson};

use super::document::Schema;
use super::phase::{Reads, Round};
use crate::error::{Error, Result};
use crate::meter::{Outcome, Percentiles};
use crate::monitor::Status;
use crate::report::plot::{self, Curve, FIRST, Panel, SECOND};
use crate::report::{Facts, Page, Section, thousands};
use crate::statistics::Row;

/// Bytes that the server wrote for each of what was done, if it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Written {
    /// To the log.
    pub log: Option<f64>,
    /// To data files.
    pub data: Option<f64>,
}

impl Written {
    /// Between two moments, for each of `count`.
    #[must_use]
    pub fn between(before: &Status, after: &Status, count: u64) -> Written {
        let each = |before: Option<f64>, after: Option<f64>| {
            (count > 0).then_some((after? - before?) / count as f64)
        };
        Written {
            log: each(before.log_bytes, after.log_bytes),
            data: each(before.data_bytes, after.data_bytes),
        }
    }
}

/// A load.
pub struct Loaded {
    schema: Schema,
    documents: u64,
    bytes: u64,
    elapsed_s: f64,
    exit_per_s: Option<f64>,
    latency: Percentiles,
    written: Written,
}

impl Loaded {
    /// Of what a meter measured; `bytes` are those of the documents.
    #[must_use]
    pub fn new(
        schema: Schema,
        outcome: &Outcome,
        bytes: u64,
        before: &Status,
        after: &Status,
    ) -> Self {
        Loaded {
            schema,
            documents: outcome.documents,
            bytes,
            elapsed_s: outcome.elapsed.as_secs_f64(),
            exit_per_s: outcome.timeline.speed_of_part(0.95, 1.0),
            latency: Percentiles::of(&outcome.latencies),
            written: Written::between(before, after, outcome.documents),
        }
    }

    /// Documents a second.
    #[must_use]
    pub fn documents_per_s(&self) -> f64 {
        self.documents as f64 / self.elapsed_s.max(1e-9)
    }

    fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed_s.max(1e-9)
    }
}

/// All rounds of updates of a schema and write concern.
pub struct Updated {
    schema: Schema,
    acknowledged: bool,
    rounds: Vec<Round>,
    written: Written,
}

impl Updated {
    /// Rounds, and what the server said before and after them.
    #[must_use]
    pub fn new(
        schema: Schema,
        acknowledged: bool,
        rounds: Vec<Round>,
        before: &Status,
        after: Option<&Status>,
    ) -> Self {
        let updates = rounds.iter().map(|round| round.updates).sum();
        Updated {
            schema,
            acknowledged,
            rounds,
            written: after.map_or_else(Written::default, |after| {
                Written::between(before, after, updates)
            }),
        }
    }

    fn updates(&self) -> u64 {
        self.rounds.iter().map(|round| round.updates).sum()
    }

    fn elapsed_s(&self) -> f64 {
        self.rounds.iter().map(|r| r.elapsed.as_secs_f64()).sum()
    }

    /// Updates a second over all rounds; `None` if no round came to its end.
    fn updates_per_s(&self) -> Option<f64> {
        (!self.rounds.is_empty()).then(|| self.updates() as f64 / self.elapsed_s().max(1e-9))
    }

    /// The slowest and the fastest round.
    fn extremes(&self) -> Option<(f64, f64)> {
        let speeds = self.rounds.iter().map(round_speed);
        speeds.fold(None, |extremes, speed| match extremes {
            None => Some((speed, speed)),
            Some((low, high)) => Some((low.min(speed), high.max(speed))),
        })
    }

    /// The round in the middle by its median latency.
    fn latency(&self) -> Option<Percentiles> {
        let mut all: Vec<Percentiles> = self.rounds.iter().filter_map(|r| r.latency).collect();
        all.sort_by(|a, b| a.p50_ms.total_cmp(&b.p50_ms));
        all.get(all.len() / 2).copied()
    }
}

fn round_speed(round: &Round) -> f64 {
    round.updates as f64 / round.elapsed.as_secs_f64().max(1e-9)
}

/// Finds by `_id`.
pub struct Read {
    /// Of this collection.
    pub schema: Schema,
    /// At which point of the run.
    pub when: &'static str,
    /// The whole document, or one key of it.
    pub whole: bool,
    /// How long they took.
    pub reads: Reads,
}

/// All that a run found out.
pub struct Results {
    /// "complete", or why the run ended early.
    pub ending: String,
    settings: Vec<(&'static str, String)>,
    facts: Facts,
    /// By schema.
    pub loads: Vec<Loaded>,
    /// By write concern and schema.
    pub updates: Vec<Updated>,
    /// By time and schema.
    pub reads: Vec<Read>,
    /// Documents compared, all of them right.
    pub verified: Vec<(Schema, u64)>,
    /// Of each second.
    pub statistics: Vec<Row>,
}

impl Results {
    /// Nothing yet.
    #[must_use]
    pub fn new(settings: Vec<(&'static str, String)>, facts: Facts) -> Self {
        Results {
            ending: "complete".to_owned(),
            settings,
            facts,
            loads: Vec::new(),
            updates: Vec::new(),
            reads: Vec::new(),
            verified: Vec::new(),
            statistics: Vec::new(),
        }
    }

    /// Updates a second on the plain schema for each on the bucketed one.
    fn ratio(&self, acknowledged: bool) -> Option<f64> {
        let speed = |schema| {
            let of = |u: &&Updated| u.schema == schema && u.acknowledged == acknowledged;
            self.updates.iter().find(of)?.updates_per_s()
        };
        Some(speed(Schema::Plain)? / speed(Schema::Bucketed)?)
    }

    fn tables(&self) -> Vec<Section> {
        let mut sections = vec![self.overview(), self.update_table(), self.load_table()];
        if !self.reads.is_empty() {
            sections.push(self.read_table());
        }
        sections
    }

    fn overview(&self) -> Section {
        let mut pairs = vec![("ended", self.ending.clone())];
        for (acknowledged, name) in [
            (false, "plain / bucketed, w: 0"),
            (true, "plain / bucketed, w: 1"),
        ] {
            if let Some(ratio) = self.ratio(acknowledged) {
                pairs.push((name, format!("{ratio:.3}")));
            }
        }
        for (schema, count) in &self.verified {
            let name = match schema {
                Schema::Plain => "plain: documents compared, all right",
                Schema::Bucketed => "bucketed: documents compared, all right",
            };
            pairs.push((name, thousands(*count as f64)));
        }
        Section::of_pairs("Result", &pairs)
    }

    fn update_table(&self) -> Section {
        let mut rows = vec![cells(&[
            "schema",
            "w",
            "rounds",
            "updates",
            "updates/s",
            "slowest round",
            "fastest",
            "p50 ms",
            "p99 ms",
            "log bytes/update",
            "file bytes/update",
        ])];
        for updated in &self.updates {
            let (low, high) = updated.extremes().unzip();
            let latency = updated.latency();
            rows.push(vec![
                updated.schema.name().to_owned(),
                u8::from(updated.acknowledged).to_string(),
                updated.rounds.len().to_string(),
                thousands(updated.updates() as f64),
                number(updated.updates_per_s()),
                number(low),
                number(high),
                ms(latency.map(|l| l.p50_ms)),
                ms(latency.map(|l| l.p99_ms)),
                number(updated.written.log),
                number(updated.written.data),
            ]);
        }
        Section {
            title: "Updates".to_owned(),
            rows,
        }
    }

    fn load_table(&self) -> Section {
        let mut rows = vec![cells(&[
            "schema",
            "documents",
            "seconds",
            "documents/s",
            "MB/s",
            "last 5%, documents/s",
            "p50 ms",
            "p99 ms",
            "log bytes/document",
            "file bytes/document",
        ])];
        for loaded in &self.loads {
            rows.push(vec![
                loaded.schema.name().to_owned(),
                thousands(loaded.documents as f64),
                format!("{:.2}", loaded.elapsed_s),
                number(Some(loaded.documents_per_s())),
                number(Some(loaded.mb_per_s())),
                number(loaded.exit_per_s),
                ms(Some(loaded.latency.p50_ms)),
                ms(Some(loaded.latency.p99_ms)),
                number(loaded.written.log),
                number(loaded.written.data),
            ]);
        }
        Section {
            title: "Load".to_owned(),
            rows,
        }
    }

    fn read_table(&self) -> Section {
        let mut rows = vec![cells(&[
            "schema", "when", "what", "finds", "bytes", "p50 ms", "p95 ms", "p99 ms",
        ])];
        for read in &self.reads {
            let what = if read.whole {
                "whole document"
            } else {
                "one key"
            };
            let latency = &read.reads.latency;
            rows.push(vec![
                read.schema.name().to_owned(),
                read.when.to_owned(),
                what.to_owned(),
                thousands(read.reads.count as f64),
                thousands(read.reads.bytes as f64),
                ms(Some(latency.p50_ms)),
                ms(Some(latency.p95_ms)),
                ms(Some(latency.p99_ms)),
            ]);
        }
        Section {
            title: "Finds by _id".to_owned(),
            rows,
        }
    }

    /// For people.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut sections = self.tables();
        sections.push(Section::of_pairs("Settings", &self.settings));
        let facts = self.facts.pairs();
        sections.push(Section::of_pairs("Versions and machine", &facts));
        Page {
            title: "Updates of documents with very many keys",
            sections,
        }
    }

    /// For the terminal.
    #[must_use]
    pub fn to_text(&self, folder: &Path) -> String {
        let mut out = String::new();
        for section in self.tables() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", section.to_text());
        }
        let chart = folder.join("chart.html");
        let _ = writeln!(out, "chart  {}", chart.display());
        out
    }

    /// For programs: plain numbers, in the unit that the name says.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut doc = DocBuf::new();
        doc.push("workload", "manykeys");
        doc.push("ended", self.ending.as_str());
        doc.push("started", self.facts.started.to_string().as_str());
        doc.push("plain_over_bucketed_w0", self.ratio(false));
        doc.push("plain_over_bucketed_w1", self.ratio(true));
        doc.push_array("updates", |array| {
            for updated in &self.updates {
                array.push_doc(|doc| {
                    doc.push("schema", updated.schema.name());
                    doc.push("w", i32::from(updated.acknowledged));
                    doc.push("rounds", updated.rounds.len() as i64);
                    doc.push("updates", updated.updates() as i64);
                    doc.push("elapsed_s", updated.elapsed_s());
                    doc.push("updates_per_s", updated.updates_per_s());
                    let (low, high) = updated.extremes().unzip();
                    doc.push("slowest_round_updates_per_s", low);
                    doc.push("fastest_round_updates_per_s", high);
                    doc.push("p50_ms", updated.latency().map(|l| l.p50_ms));
                    doc.push("p99_ms", updated.latency().map(|l| l.p99_ms));
                    doc.push("log_bytes_per_update", updated.written.log);
                    doc.push("data_file_bytes_per_update", updated.written.data);
                });
            }
        });
        doc.push_array("loads", |array| {
            for loaded in &self.loads {
                array.push_doc(|doc| {
                    doc.push("schema", loaded.schema.name());
                    doc.push("documents", loaded.documents as i64);
                    doc.push("bytes", loaded.bytes as i64);
                    doc.push("elapsed_s", loaded.elapsed_s);
                    doc.push("documents_per_s", loaded.documents_per_s());
                    doc.push("exit_documents_per_s", loaded.exit_per_s);
                    doc.push("mb_per_s", loaded.mb_per_s());
                    doc.push("p50_ms", loaded.latency.p50_ms);
                    doc.push("p99_ms", loaded.latency.p99_ms);
                    doc.push("log_bytes_per_document", loaded.written.log);
                    doc.push("data_file_bytes_per_document", loaded.written.data);
                });
            }
        });
        doc.push_array("reads", |array| {
            for read in &self.reads {
                array.push_doc(|doc| {
                    doc.push("schema", read.schema.name());
                    doc.push("when", read.when);
                    doc.push("what", if read.whole { "whole" } else { "one key" });
                    doc.push("finds", read.reads.count as i64);
                    doc.push("bytes", read.reads.bytes as i64);
                    doc.push("p50_ms", read.reads.latency.p50_ms);
                    doc.push("p95_ms", read.reads.latency.p95_ms);
                    doc.push("p99_ms", read.reads.latency.p99_ms);
                });
            }
        });
        doc.push_doc("documents_verified", |doc| {
            for (schema, count) in &self.verified {
                doc.push(schema.name(), *count as i64);
            }
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

    /// The statistics of each second, drawn.
    pub fn chart(&self) -> Result<String> {
        let rows = &self.statistics;
        let curve = |name: &str, color, width, value: &dyn Fn(&Row) -> Option<f64>| Curve {
            name: name.to_owned(),
            color,
            width,
            points: rows
                .iter()
                .filter_map(|row| Some((row.elapsed_s, value(row)?)))
                .collect(),
        };
        let [insert, query, update] = [0, 1, 2];
        let operation = |row: &Row, index: usize| *row.operations.get(index)?;
        let updates_of = |schema: Schema| {
            move |row: &Row| {
                let other = !row.phase.starts_with(schema.name());
                operation(row, update).map(|n| if other { 0.0 } else { n })
            }
        };
        let mb = |value: Option<f64>| value.map(|bytes| bytes / 1e6);
        let panel = |height, title: &str, unit, curves| Panel {
            height,
            title: title.to_owned(),
            unit,
            curves,
        };
        let panels = [
            panel(
                400,
                "Operations of each second",
                "operations/s",
                vec![
                    curve("inserts and finds", plot::pale(FIRST), 1, &|row| {
                        Some(operation(row, insert)? + operation(row, query)?)
                    }),
                    curve(
                        "updates, bucketed",
                        SECOND,
                        2,
                        &updates_of(Schema::Bucketed),
                    ),
                    curve("updates, plain", FIRST, 2, &updates_of(Schema::Plain)),
                ],
            ),
            panel(
                230,
                "Bytes written",
                "MB/s",
                vec![
                    curve("log", SECOND, 1, &|row| mb(row.log_bytes)),
                    curve("data files", FIRST, 2, &|row| mb(row.data_bytes)),
                ],
            ),
            panel(
                230,
                "Server's memory",
                "MiB",
                vec![
                    curve("resident", SECOND, 2, &|row| row.now.figures.resident_mib),
                    curve("cache", FIRST, 2, &|row| row.now.figures.cache_mib),
                ],
            ),
        ];
        let end = rows.last().map_or(0.0, |row| row.elapsed_s);
        plot::svg(&panels, end.max(1e-3), "seconds")
    }

    /// Writes `rounds.csv`: a line for each round of updates.
    pub fn write_rounds(&self, folder: &Path) -> Result<()> {
        let mut text =
            String::from("schema,w,round,updates,elapsed_s,updates_per_s,p50_ms,p99_ms,max_ms\n");
        for updated in &self.updates {
            for (index, round) in updated.rounds.iter().enumerate() {
                let ms = |pick: fn(&Percentiles) -> f64| {
                    let latency = round.latency.as_ref();
                    latency.map_or_else(String::new, |l| format!("{:.3}", pick(l)))
                };
                let _ = writeln!(
                    text,
                    "{},{},{},{},{:.6},{:.1},{},{},{}",
                    updated.schema.name(),
                    u8::from(updated.acknowledged),
                    index + 1,
                    round.updates,
                    round.elapsed.as_secs_f64(),
                    round_speed(round),
                    ms(|l| l.p50_ms),
                    ms(|l| l.p99_ms),
                    ms(|l| l.max_ms),
                );
            }
        }
        let path = folder.join("rounds.csv");
        std::fs::write(&path, text)
            .map_err(|error| Error::Io(format!("writing {}", path.display()), error))
    }
}

fn cells(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn number(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), thousands)
}

fn ms(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"))
}
