//! The report of a run: figures, charts, `rounds.csv`.

use super::Work;
use super::results::Results;
use super::runner::READS;
use crate::csv_file::CsvFile;
use crate::documents::manykeys::Schema;
use crate::harness::Run;
use crate::meter::{P50, P95, P99, Percentiles};
use crate::report::{Chart, Columns, Higher, Lower, Neither, Panel, ResultRows, Section, Table};
use crate::statistics::Row;
use frond_client::Result;

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
    let schemas = work.schemas();
    let columns = run.columns();
    let mut result_rows = ResultRows::new(results);
    for acknowledged in concerns {
        for schema in &schemas {
            update_rows(*schema, *acknowledged, &mut result_rows);
        }
        if schemas.len() > 1 {
            let name = format!("plain / bucketed, w: {}", u8::from(*acknowledged));
            result_rows.add(Neither, name, "", |target| target.ratio(*acknowledged));
        }
    }
    for schema in &schemas {
        load_rows(*schema, &mut result_rows);
    }
    if work.reads > 0 {
        for schema in &schemas {
            read_rows(*schema, &mut result_rows);
        }
    }
    for schema in &schemas {
        let name = format!("{}: documents compared, all right", schema.name());
        result_rows.add(Neither, name, "", |target| {
            let mut verified = target.verified.iter();
            let (_, count) = verified.find(|(of, _)| of == schema)?;
            Some(*count as f64)
        });
    }
    section.result_rows = result_rows.list;
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

fn update_rows(schema: Schema, acknowledged: bool, out: &mut ResultRows<'_, Results>) {
    let of = format!("{}, w: {}", schema.name(), u8::from(acknowledged));
    let updated = |target: &Results| target.updated(schema, acknowledged).cloned();
    let unit = "updates/s";
    out.add(Higher, &of, unit, |t| updated(t)?.updates_per_s());
    out.add_known(Higher, format!("{of}: slowest round"), unit, |t| {
        Some(updated(t)?.extremes()?.0)
    });
    out.add_known(Higher, format!("{of}: fastest round"), unit, |t| {
        Some(updated(t)?.extremes()?.1)
    });
    if acknowledged {
        for (name, pick) in [P50, P99] {
            out.add(Lower, format!("{of}: latency {name}"), "ms", |t| {
                Some(pick(&updated(t)?.latency()?))
            });
        }
    }
    out.add(Neither, format!("{of}: updates"), "", |t| {
        Some(updated(t)?.updates() as f64)
    });
    out.add(Lower, format!("{of}: log bytes an update"), "bytes", |t| {
        updated(t)?.written.log
    });
    let name = format!("{of}: data file bytes an update");
    out.add(Lower, name, "bytes", |t| updated(t)?.written.data);
}

fn load_rows(schema: Schema, out: &mut ResultRows<'_, Results>) {
    let of = format!("{}: load", schema.name());
    let unit = "documents/s";
    out.add(Higher, &of, unit, |t| {
        Some(t.load(schema)?.documents_per_s())
    });
    let name = format!("{of}, bytes of documents");
    out.add(Neither, name, "MB/s", |t| Some(t.load(schema)?.mb_per_s()));
    let name = format!("{of}, last 5%");
    out.add(Higher, name, unit, |t| t.load(schema)?.exit_per_s);
    for (name, pick) in [P50, P99] {
        out.add(Lower, format!("{of}, latency {name}"), "ms", |t| {
            Some(pick(&t.load(schema)?.latency))
        });
    }
    out.add(Neither, format!("{of}, size of a document"), "bytes", |t| {
        let loaded = t.load(schema)?;
        Some(loaded.bytes.checked_div(loaded.documents)? as f64)
    });
    let name = format!("{of}, log bytes a document");
    out.add(Lower, name, "bytes", |t| t.load(schema)?.written.log);
    let name = format!("{of}, data file bytes a document");
    out.add(Lower, name, "bytes", |t| t.load(schema)?.written.data);
}

fn read_rows(schema: Schema, out: &mut ResultRows<'_, Results>) {
    for when in READS {
        for (whole, what) in [(true, "whole document"), (false, "one key")] {
            let of = format!("{}: {what} by _id {when}", schema.name());
            for (name, pick) in [P50, P95, P99] {
                out.add(Lower, format!("{of}, {name}"), "ms", |t| {
                    Some(pick(&t.read(schema, when, whole)?.latency))
                });
            }
            out.add(Neither, format!("{of}, found"), "bytes", |t| {
                Some(t.read(schema, when, whole)?.bytes as f64)
            });
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
            let title = format!("Updates: {}, w: {}", schema.name(), u8::from(*acknowledged));
            panels.push(Panel::low(
                title,
                "updates/s",
                columns.curves(results, of_target),
            ));
        }
    }
    Chart::new(panels, each * work.rounds as f64, "updates")
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
    let panels = values.map(|(title, unit, value)| {
        let curves = columns.curves(results, |target| {
            let rows = target.statistics.iter();
            rows.filter_map(|row| Some((row.elapsed_s, value(row)?)))
                .collect()
        });
        Panel::low(title, unit, curves)
    });
    let drawn = panels.into_iter().filter(|panel| !panel.curves.is_empty());
    let panels: Vec<Panel> = drawn.collect();
    let ends = results.iter().filter_map(|target| target.statistics.last());
    let x_max = ends.map(|row| row.elapsed_s).fold(1e-3, f64::max);
    (!panels.is_empty()).then(|| Chart::new(panels, x_max, "seconds"))
}

/// Writes `rounds.csv`: a line for each round of updates on each server.
pub fn write_rounds(run: &Run, results: &[Results]) -> Result<()> {
    let columns = "server,schema,w,round,updates,elapsed_s,updates_per_s,p50_ms,p99_ms,max_ms";
    let mut file = CsvFile::create(&run.folder.join("rounds.csv"), columns.split(','))?;
    for (target, result) in run.targets.iter().zip(results) {
        for updated in &result.updates {
            for (index, round) in updated.rounds.iter().enumerate() {
                let ms = |pick: fn(&Percentiles) -> f64| {
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
