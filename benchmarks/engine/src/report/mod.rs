//! Tables, curves and a chart out of the records of many measurements.

mod chart;
mod machine;
mod table;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::record::Record;

/// The engine that the others are compared with.
const BASE: &str = "rocksdb";

/// Modes and their titles.
const MODES: [(&str, &str); 2] = [("limited", "Little memory"), ("memory", "All in memory")];

/// Records of the same phase, with threads 0 for those without figures, one for each engine.
struct Group<'a> {
    mode: &'a str,
    scenario: &'a str,
    phase: &'a str,
    threads: usize,
    engines: BTreeMap<&'a str, Vec<&'a Record>>,
}

impl Group<'_> {
    /// The median of a figure over the repetitions.
    fn value(&self, engine: &str, name: &str) -> Option<f64> {
        let records = self.engines.get(engine)?;
        let mut values: Vec<f64> = records
            .iter()
            .filter_map(|record| record.values.get(name).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }
}

/// Groups in the order in which they were measured.
fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for record in records {
        let same = |group: &&mut Group<'_>| {
            group.mode == record.mode
                && group.scenario == record.scenario
                && group.phase == record.phase
                && group.threads == record.threads
        };
        if let Some(group) = groups.iter_mut().find(same) {
            let engine = group.engines.entry(&record.engine).or_default();
            engine.push(record);
        } else {
            groups.push(Group {
                mode: &record.mode,
                scenario: &record.scenario,
                phase: &record.phase,
                threads: record.threads,
                engines: BTreeMap::from([(record.engine.as_str(), vec![record])]),
            });
        }
    }
    groups
}

/// Engines in the order of the report: as they were first measured.
fn engines(records: &[Record]) -> Vec<&str> {
    let mut engines: Vec<&str> = Vec::new();
    for record in records {
        if !engines.contains(&record.engine.as_str()) {
            engines.push(&record.engine);
        }
    }
    engines
}

/// Writes `summary.md`, `chart-MODE.svg` and `curves.csv` into a folder.
pub fn write(records: &Path, out: &Path, notes: &[String]) -> Result<()> {
    let records = Record::read_all(records)?;
    if records.is_empty() {
        return Err(Error::Settings("there are no records".to_owned()));
    }
    fs::create_dir_all(out).map_err(Error::file(format!("making {}", out.display())))?;
    let groups = groups(&records);
    let engines = engines(&records);
    let save = |name: &str, text: &str| {
        let path = out.join(name);
        fs::write(&path, text).map_err(Error::file(format!("writing {}", path.display())))
    };
    for (mode, _) in MODES {
        if let Some(svg) = chart::loads(&groups, &engines, mode)? {
            save(&format!("chart-{mode}.svg"), &svg)?;
        }
    }
    save("curves.csv", &curves(&records))?;
    save("summary.md", &summary(&records, &groups, &engines, notes))
}

/// The work of each second of all phases that write.
fn curves(records: &[Record]) -> String {
    let mut text = "engine,mode,scenario,phase,threads,round,second,documents\n".to_owned();
    for record in records {
        for (second, documents) in record.seconds.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{second},{documents}",
                record.engine,
                record.mode,
                record.scenario,
                record.phase,
                record.threads,
                record.round,
            );
        }
    }
    text
}

fn summary(records: &[Record], groups: &[Group<'_>], engines: &[&str], notes: &[String]) -> String {
    let mut text = "# One workload on several engines\n\n".to_owned();
    text += &format!(
        "Figures are followed by their ratio to {BASE}. Of repetitions the median is shown.\n\n"
    );
    for (mode, title) in MODES {
        let overview = table::overview(groups, engines, mode);
        if !overview.is_empty() {
            text += &format!(
                "## {title}: overview\n\n![Documents a second over the load](chart-{mode}.svg)\n\n{overview}{}",
                table::unfinished(groups, engines, mode)
            );
        }
    }
    text += &table::aged_and_fresh(groups, engines);
    text += &remarks(records);
    let mut part = (String::new(), String::new());
    for group in groups.iter().filter(|group| group.threads > 0) {
        let here = (group.mode.to_owned(), group.scenario.to_owned());
        if here != part {
            let mode = MODES.iter().find(|(mode, _)| *mode == group.mode);
            let title = mode.map_or(group.mode, |(_, title)| title);
            text += &format!("## {title}: {}\n\n", group.scenario);
            part = here;
        }
        text += &table::of_group(group, engines);
    }
    text += &settings(groups, engines);
    text += "## Machine and run\n\n";
    for fact in machine::facts().iter().chain(notes) {
        text += &format!("- {fact}\n");
    }
    text += "\nRaw records: [records.jsonl](records.jsonl). Documents of each second: [curves.csv](curves.csv).\n";
    text
}

/// The phases that were cut short, and their engines.
fn remarks(records: &[Record]) -> String {
    let mut text = String::new();
    let phases = records.iter().filter(|record| record.phase != "settings");
    for record in phases {
        for note in &record.notes {
            text += &format!(
                "- {}, {}, {}, {}: {note}\n",
                record.engine, record.mode, record.scenario, record.phase
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("## Remarks\n\n{text}\n")
}

fn settings(groups: &[Group<'_>], engines: &[&str]) -> String {
    let mut text = "## Versions and settings\n\n".to_owned();
    let mut seen = Vec::new();
    for group in groups.iter().filter(|group| group.phase == "settings") {
        if seen.contains(&group.mode) {
            continue;
        }
        seen.push(group.mode);
        text += &format!("Mode `{}`:\n\n", group.mode);
        for engine in engines {
            let records = group.engines.get(engine);
            if let Some(record) = records.and_then(|records| records.first()) {
                text += &format!("- {engine}: {}\n", record.notes.join("; "));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &str, scenario: &str, phase: &str, speed: f64) -> Record {
        let mut record = Record {
            engine: engine.to_owned(),
            mode: "limited".to_owned(),
            scenario: scenario.to_owned(),
            phase: phase.to_owned(),
            threads: 1,
            round: 1,
            ..Record::default()
        };
        record.set("ops_per_s", speed);
        record
    }

    #[test]
    fn groups_compare_engines_and_take_medians() {
        let records = [
            record("tree", "main", "point-primary", 10.0),
            record("rocksdb", "main", "point-primary", 4.0),
            record("tree", "main", "point-primary", 30.0),
            record("tree", "main", "point-primary", 20.0),
            record("tree", "main", "scan", 1.0),
        ];
        let groups = groups(&records);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].value("tree", "ops_per_s"), Some(20.0));
        assert_eq!(groups[0].value("lmdb", "ops_per_s"), None);
        let table = table::of_group(&groups[0], &engines(&records));
        assert!(table.contains("| 20.0 (5.00) | 4.00 |"), "{table}");
    }

    #[test]
    fn a_whole_report_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("records.jsonl");
        let mut load = record("rocksdb", "main", "load", 5.0);
        load.seconds = vec![100, 200, 300];
        load.set("documents", 600.0);
        load.notes.push("stopped early".to_owned());
        let mut about = record("rocksdb", "main", "settings", 0.0);
        about.notes.push("version 1".to_owned());
        for record in [
            about,
            load,
            record("rocksdb", "delete", "scan-secondary1", 5.0),
            record("rocksdb", "delete-fresh", "scan-secondary1", 10.0),
        ] {
            record.append(&file).unwrap();
        }
        let out = folder.path().join("out");
        write(&file, &out, &["commit abc".to_owned()]).unwrap();
        let summary = fs::read_to_string(out.join("summary.md")).unwrap();
        for part in ["stopped early", "version 1", "commit abc", "0.50"] {
            assert!(summary.contains(part), "{part} is not in {summary}");
        }
        let curves = fs::read_to_string(out.join("curves.csv")).unwrap();
        assert!(curves.ends_with("rocksdb,limited,main,load,1,1,2,300\n"));
        let chart = fs::read_to_string(out.join("chart-limited.svg")).unwrap();
        assert!(chart.starts_with("<svg"));
    }
}
