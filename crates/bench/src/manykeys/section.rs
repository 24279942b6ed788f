//! The report of a run: figures, charts, `rounds.csv`.

use super::Work;
use super::results::{Loaded, Read, Results, Updated};
use super::runner::READS;
use crate::csv_file::CsvFile;
use crate::documents::manykeys::Schema;
use crate::harness::Run;
use crate::meter::Percentiles;
use crate::report::plot::Panel;
use crate::report::{Axis, Chart, Columns, Figure, Section, Table};
use crate::statistics::Row;
use frond_client::Result;

const PANEL_HEIGHT: u32 = 230;

/// Where updates are in a [`Row`].
const UPDATES: usize = 2;

pub fn build(run: &Run, work: &Work, concerns: &[bool], results: &[Results]) -> Section {
    let mut section = Section::new(
        super::NAME,
        "W3: documents with very many keys",
        format!(
            "Each update finds a document of {} keys by an index, sets a string and increments six \
             integers. Plain has the keys side by side, bucketed in documents of their own by two \
             digits of their MD5. With w: 0 nothing is answered; the clock stops when the server has \
             applied the last update.",
            work.keys
        ),
    );
    section.settings = work.settings();
    for target in results {
        section.ended(&target.ending);
    }
    let schemas = work.schemas();
    let columns = run.columns();
    section.figures = figures(work, &schemas, concerns, results, &columns.nulls);
    let servers = columns.labels.iter().zip(&columns.nulls);
    let not_compared: Vec<(&str, String)> = servers
        .filter(|(_, null)| **null)
        .map(|(label, _)| (label.as_str(), "it stores nothing".to_owned()))
        .collect();
    if !not_compared.is_empty() {
        let table = Table::of_pairs("Not compared with what they must hold", &not_compared);
        section.tables.push(table);
    }
    section.charts = vec![speeds(work, &schemas, concerns, &columns, results)];
    section.charts.extend(statistics(&columns, results));
    section
}

fn figures(
    work: &Work,
    schemas: &[Schema],
    concerns: &[bool],
    results: &[Results],
    nulls: &[bool],
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for acknowledged in concerns {
        for schema in schemas {
            update_figures(*schema, *acknowledged, results, &mut figures);
        }
        if schemas.len() > 1 {
            figures.push(Figure::neutral(
                format!("plain / bucketed, w: {}", u8::from(*acknowledged)),
                "",
                results
                    .iter()
                    .map(|target| target.ratio(*acknowledged))
                    .collect(),
            ));
        }
    }
    for schema in schemas {
        load_figures(*schema, results, &mut figures);
    }
    if work.reads > 0 {
        for schema in schemas {
            read_figures(*schema, results, &mut figures);
        }
    }
    for schema in schemas {
        let verified = results.iter().zip(nulls).map(|(target, null)| {
            let found = target.verified.iter().find(|(of, _)| of == schema);
            found.filter(|_| !null).map(|(_, count)| *count as f64)
        });
        figures.push(Figure::neutral(
            format!("{}: documents compared, all right", schema.name()),
            "",
            verified.collect(),
        ));
    }
    figures
}

fn update_figures(schema: Schema, acknowledged: bool, results: &[Results], out: &mut Vec<Figure>) {
    let of = format!("{}, w: {}", schema.name(), u8::from(acknowledged));
    let each = |value: &dyn Fn(&Updated) -> Option<f64>| -> Vec<Option<f64>> {
        let value = |target: &Results| value(target.updated(schema, acknowledged)?);
        results.iter().map(value).collect()
    };
    let unit = "updates/s";
    out.push(Figure::higher(
        of.clone(),
        unit,
        each(&Updated::updates_per_s),
    ));
    let slowest = each(&|updated| Some(updated.extremes()?.0));
    if slowest.iter().any(Option::is_some) {
        out.push(Figure::higher(
            format!("{of}: slowest round"),
            unit,
            slowest,
        ));
        let fastest = each(&|updated| Some(updated.extremes()?.1));
        out.push(Figure::higher(
            format!("{of}: fastest round"),
            unit,
            fastest,
        ));
    }
    if acknowledged {
        for (name, pick) in PERCENTILES {
            let values = each(&|updated| Some(pick(&updated.latency()?)));
            out.push(Figure::lower(format!("{of}: latency {name}"), "ms", values));
        }
    }
    out.push(Figure::neutral(
        format!("{of}: updates"),
        "",
        each(&|updated| Some(updated.updates() as f64)),
    ));
    out.push(Figure::lower(
        format!("{of}: log bytes an update"),
        "bytes",
        each(&|updated| updated.written.log),
    ));
    out.push(Figure::lower(
        format!("{of}: data file bytes an update"),
        "bytes",
        each(&|updated| updated.written.data),
    ));
}

type Pick = fn(&Percentiles) -> f64;

/// The percentiles of latencies that are shown.
const PERCENTILES: [(&str, Pick); 2] = [("p50", |l| l.p50_ms), ("p99", |l| l.p99_ms)];

fn load_figures(schema: Schema, results: &[Results], out: &mut Vec<Figure>) {
    let of = format!("{}: load", schema.name());
    let each = |value: &dyn Fn(&Loaded) -> Option<f64>| -> Vec<Option<f64>> {
        results
            .iter()
            .map(|target| value(target.load(schema)?))
            .collect()
    };
    let unit = "documents/s";
    let speed = each(&|loaded| Some(loaded.documents_per_s()));
    out.push(Figure::higher(of.clone(), unit, speed));
    out.push(Figure::neutral(
        format!("{of}, bytes of documents"),
        "MB/s",
        each(&|loaded| Some(loaded.mb_per_s())),
    ));
    let exit = each(&|loaded| loaded.exit_per_s);
    out.push(Figure::higher(format!("{of}, last 5%"), unit, exit));
    for (name, pick) in PERCENTILES {
        let values = each(&|loaded| Some(pick(&loaded.latency)));
        out.push(Figure::lower(format!("{of}, latency {name}"), "ms", values));
    }
    out.push(Figure::neutral(
        format!("{of}, size of a document"),
        "bytes",
        each(&|loaded| (loaded.documents > 0).then(|| (loaded.bytes / loaded.documents) as f64)),
    ));
    out.push(Figure::lower(
        format!("{of}, log bytes a document"),
        "bytes",
        each(&|loaded| loaded.written.log),
    ));
    out.push(Figure::lower(
        format!("{of}, data file bytes a document"),
        "bytes",
        each(&|loaded| loaded.written.data),
    ));
}

fn read_figures(schema: Schema, results: &[Results], out: &mut Vec<Figure>) {
    for when in READS {
        for (whole, what) in [(true, "whole document"), (false, "one key")] {
            let each = |value: &dyn Fn(&Read) -> f64| -> Vec<Option<f64>> {
                let value = |target: &Results| Some(value(target.read(schema, when, whole)?));
                results.iter().map(value).collect()
            };
            let of = format!("{}: {what} by _id {when}", schema.name());
            for (name, pick) in [
                ("p50", (|l| l.p50_ms) as Pick),
                ("p95", |l| l.p95_ms),
                ("p99", |l| l.p99_ms),
            ] {
                let values = each(&|read| pick(&read.latency));
                out.push(Figure::lower(format!("{of}, {name}"), "ms", values));
            }
            let bytes = each(&|read| read.bytes as f64);
            out.push(Figure::neutral(format!("{of}, found"), "bytes", bytes));
        }
    }
}

/// Speeds over the updates: a panel for each schema and write concern, a curve for each server.
fn speeds(
    work: &Work,
    schemas: &[Schema],
    concerns: &[bool],
    columns: &Columns,
    results: &[Results],
) -> Chart {
    let each = work.updates() as f64;
    let mut panels = Vec::new();
    for acknowledged in concerns {
        for schema in schemas {
            let of_target = |target: &Results| {
                let rounds = target.updated(*schema, *acknowledged).map(|u| &u.rounds);
                let mut points = Vec::new();
                for (number, round) in (0..).zip(rounds.into_iter().flatten()) {
                    let start = f64::from(number) * each;
                    let done = round.updates as f64;
                    let speeds = round.speeds.iter();
                    points.extend(speeds.map(|(part, speed)| (start + part * done, *speed)));
                }
                points
            };
            panels.push(Panel {
                height: PANEL_HEIGHT,
                title: format!("Updates: {}, w: {}", schema.name(), u8::from(*acknowledged)),
                unit: "updates/s",
                curves: columns.curves(results, of_target),
            });
        }
    }
    Chart {
        panels,
        x_max: each * work.rounds as f64,
        x_unit: "updates".to_owned(),
        axis: Axis::Linear,
    }
}

/// Statistics that the servers reported, over the time of the run.
fn statistics(columns: &Columns, results: &[Results]) -> Option<Chart> {
    type Value = fn(&Row) -> Option<f64>;
    let values: [(&str, &'static str, Value); 4] = [
        ("Updates, as the servers count them", "updates/s", |row| {
            row.operations.get(UPDATES).copied().flatten()
        }),
        ("Log", "MB/s", |row| Some(row.log_bytes? / 1e6)),
        ("Data files", "MB/s", |row| Some(row.data_bytes? / 1e6)),
        ("Resident memory, as the servers tell it", "MiB", |row| {
            row.now.memory.resident_mib
        }),
    ];
    let panels = values.map(|(title, unit, value)| Panel {
        height: PANEL_HEIGHT,
        title: title.to_owned(),
        unit,
        curves: columns.curves(results, |target| {
            let rows = target.statistics.iter();
            rows.filter_map(|row| Some((row.elapsed_s, value(row)?)))
                .collect()
        }),
    });
    let panels: Vec<Panel> = panels
        .into_iter()
        .filter(|panel| !panel.curves.is_empty())
        .collect();
    let ends = results.iter().filter_map(|target| target.statistics.last());
    let x_max = ends.map(|row| row.elapsed_s).fold(1e-3, f64::max);
    (!panels.is_empty()).then(|| Chart {
        panels,
        x_max,
        x_unit: "seconds".to_owned(),
        axis: Axis::Linear,
    })
}

/// Writes `rounds.csv`: a line for each round of updates on each server.
pub fn write_rounds(run: &Run, results: &[Results]) -> Result<()> {
    let columns = [
        "server",
        "schema",
        "w",
        "round",
        "updates",
        "elapsed_s",
        "updates_per_s",
        "p50_ms",
        "p99_ms",
        "max_ms",
    ];
    let mut file = CsvFile::create(&run.folder.join("rounds.csv"), columns)?;
    for (target, result) in run.targets.iter().zip(results) {
        for updated in &result.updates {
            for (index, round) in updated.rounds.iter().enumerate() {
                let ms = |pick: Pick| {
                    let latency = round.latency.as_ref();
                    latency.map_or_else(String::new, |l| format!("{:.3}", pick(l)))
                };
                file.add([
                    target.label().to_owned(),
                    updated.schema.name().to_owned(),
                    u8::from(updated.acknowledged).to_string(),
                    (index + 1).to_string(),
                    round.updates.to_string(),
                    format!("{:.6}", round.elapsed.as_secs_f64()),
                    format!("{:.1}", round.per_s()),
                    ms(|l| l.p50_ms),
                    ms(|l| l.p99_ms),
                    ms(|l| l.max_ms),
                ])?;
            }
        }
    }
    Ok(())
}
