//! Tables of figures: a line for each figure, a column for each engine.

use std::collections::BTreeSet;

use super::{BASE, Group};

/// What figures are called, in the order of the tables. A figure that is not here comes last, under
/// its own name.
const NAMES: &str = "\
documents: documents
documents_per_s: documents/s
last_5_percent_per_s: documents/s of the last 5%
median_second: documents in the median second
worst_second: documents in the worst second
ops_per_s: operations/s
entries: entries
entries_per_s: entries/s
entries_per_op: entries for an operation
seconds: seconds
settle_s: seconds until at rest
settle_cpu_s: processor seconds until at rest
p50_us: latency p50, µs
p99_us: latency p99, µs
p999_us: latency p99.9, µs
max_us: latency max, µs
cpu_s_per_million: processor seconds for a million documents
cpu_us_per_op: processor µs for an operation
written_per_logical: bytes written by the process for a byte of keys and values
device_written_per_logical: bytes written to the whole device for a byte of keys and values
read_bytes_per_document: bytes read for a document
read_bytes_per_op: bytes read for an operation
read_calls_per_op: read calls for an operation
major_faults_per_op: major page faults for an operation
device_reads_per_op: reads of the whole device for an operation
disk_mib: MiB on disk
disk_per_logical: bytes on disk for a byte of keys and values
resident_mib: MiB resident
resident_max_mib: MiB resident, high-water mark
cgroup_max_mib: MiB of the cgroup, peak";

fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.lines().filter_map(|line| line.split_once(": "))
}

/// The lines of an overview: the phase, the figure, and whether more of it is better.
const OVERVIEW: &[(&str, &str, bool)] = &[
    ("load", "documents", true),
    ("load", "documents_per_s", true),
    ("load", "last_5_percent_per_s", true),
    ("load", "worst_second", true),
    ("load", "p99_us", false),
    ("load", "max_us", false),
    ("load", "cpu_s_per_million", false),
    ("settled", "settle_s", false),
    ("settled", "written_per_logical", false),
    ("settled", "disk_per_logical", false),
    ("settled", "resident_max_mib", false),
    ("point-primary", "ops_per_s", true),
    ("point-primary", "cpu_us_per_op", false),
    ("point-primary", "read_bytes_per_op", false),
    ("absent-primary", "ops_per_s", true),
    ("absent-secondary", "ops_per_s", true),
    ("scan-secondary1", "ops_per_s", true),
    ("scan-secondary2", "ops_per_s", true),
    ("scan-secondary3", "ops_per_s", true),
    ("full-scan-secondary1", "entries_per_s", true),
    ("delete", "documents_per_s", true),
    ("half-scan-secondary1", "ops_per_s", true),
    ("half-full-scan-secondary1", "entries_per_s", true),
];

/// Figures of which aged stores are compared with fresh ones.
const AGEING: &[&str] = &["ops_per_s", "entries_per_s", "disk_mib"];

fn title(name: &str) -> &str {
    titles()
        .find(|(known, _)| *known == name)
        .map_or(name, |(_, title)| title)
}

/// A number with about three digits, or with commas if it is large.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let digits = format!("{size:.0}");
        let mut text = if value < 0.0 { "-" } else { "" }.to_owned();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn head(first: &str, engines: &[&str]) -> String {
    format!(
        "| {first} | {} |\n| --- |{}\n",
        engines.join(" | "),
        " ---: |".repeat(engines.len())
    )
}

pub fn of_group(group: &Group<'_>, engines: &[&str]) -> String {
    let measured: Vec<&str> = engines
        .iter()
        .copied()
        .filter(|engine| group.engines.contains_key(engine))
        .collect();
    let present: BTreeSet<&str> = group
        .engines
        .values()
        .flatten()
        .flat_map(|record| record.values.keys().map(String::as_str))
        .filter(|name| !name.starts_with("engine:"))
        .collect();
    let known = titles().map(|(name, _)| name);
    let mut names: Vec<&str> = known.filter(|name| present.contains(name)).collect();
    let others = present
        .iter()
        .filter(|name| titles().all(|(known, _)| known != **name));
    names.extend(others);

    let threads = match group.threads {
        1 => String::new(),
        threads => format!(", {threads} threads"),
    };
    let mut text = format!("### {}{threads}\n\n", group.phase);
    text += &head("", &measured);
    for name in names {
        text += &line(title(name), group, name, &measured);
    }
    text.push('\n');
    text
}

/// One figure of all engines, with its ratio to the base.
fn line(title: &str, group: &Group<'_>, name: &str, engines: &[&str]) -> String {
    let mut text = format!("| {title} |");
    for engine in engines {
        text += &match (group.value(engine, name), group.value(BASE, name)) {
            (None, _) => " |".to_owned(),
            (Some(value), Some(base)) if *engine != BASE && base != 0.0 => {
                format!(" {} ({:.2}) |", number(value), value / base)
            }
            (Some(value), _) => format!(" {} |", number(value)),
        };
    }
    text.push('\n');
    text
}

/// The main figures of a mode, with one thread.
pub fn overview(groups: &[Group<'_>], engines: &[&str], mode: &str) -> String {
    let mut text = String::new();
    for (phase, name, more_is_better) in OVERVIEW {
        let group = groups.iter().find(|group| {
            let here = (group.mode, group.scenario, group.threads);
            here == (mode, "main", 1) && group.phase == *phase
        });
        let Some(group) = group else {
            continue;
        };
        let better = if *more_is_better { "more" } else { "less" };
        let title = format!("{phase}: {} ({better} is better)", title(name));
        text += &line(&title, group, name, engines);
    }
    if text.is_empty() {
        return text;
    }
    format!("{}{text}\n", head("", engines))
}

/// Says which engines hold fewer documents than others, because their load took too long.
pub fn unfinished(groups: &[Group<'_>], engines: &[&str], mode: &str) -> String {
    let load = groups.iter().find(|group| {
        (group.mode, group.scenario, group.phase, group.threads) == (mode, "main", "load", 1)
    });
    let Some(load) = load else {
        return String::new();
    };
    let loaded: Vec<(&str, f64)> = engines
        .iter()
        .filter_map(|engine| Some((*engine, load.value(engine, "documents")?)))
        .collect();
    let most = loaded
        .iter()
        .map(|(_, documents)| *documents)
        .fold(0.0, f64::max);
    let fewer: Vec<String> = loaded
        .iter()
        .filter(|(_, documents)| *documents < most)
        .map(|(engine, documents)| format!("{engine} ({})", number(*documents)))
        .collect();
    if fewer.is_empty() {
        return String::new();
    }
    format!(
        "Not all documents were loaded within the time limit by {}. All later figures of these are of a \
         smaller store, and their ratios compare unlike things.\n\n",
        fewer.join(", ")
    )
}

/// Compares each scenario with the one that has the same content in a fresh store.
pub fn aged_and_fresh(groups: &[Group<'_>], engines: &[&str]) -> String {
    let mut text = String::new();
    for aged in groups {
        let scenario = format!("{}-fresh", aged.scenario);
        let Some(fresh) = groups.iter().find(|fresh| {
            fresh.scenario == scenario
                && (fresh.mode, fresh.phase, fresh.threads) == (aged.mode, aged.phase, aged.threads)
        }) else {
            continue;
        };
        for name in AGEING {
            let ratios: Vec<Option<f64>> = engines
                .iter()
                .map(|engine| Some(aged.value(engine, name)? / fresh.value(engine, name)?))
                .collect();
            if aged.phase == "load" || ratios.iter().all(Option::is_none) {
                continue;
            }
            text += &format!("| {}, {}: {} |", aged.scenario, aged.phase, title(name));
            for ratio in ratios {
                text += &ratio.map_or(" |".to_owned(), |ratio| format!(" {ratio:.2} |"));
            }
            text.push('\n');
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "## Aged stores and fresh ones of the same content\n\n\
         The figure of the aged store divided by that of the fresh one.\n\n{}{text}\n",
        head("scenario and phase", engines)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_loads_are_named() {
        let load = |engine: &str, documents| {
            let mut record = crate::record::Record {
                engine: engine.to_owned(),
                mode: "limited".to_owned(),
                scenario: "main".to_owned(),
                phase: "load".to_owned(),
                threads: 1,
                ..Default::default()
            };
            record.set("documents", documents);
            record
        };
        let records = [load("tree", 12_000.0), load("redb", 9_000.0)];
        let groups = crate::report::groups(&records);
        let text = unfinished(&groups, &["tree", "redb"], "limited");
        assert!(text.contains("by redb (9,000)."), "{text}");
        assert_eq!(unfinished(&groups, &["tree"], "limited"), "");
        assert_eq!(unfinished(&groups, &["tree", "redb"], "memory"), "");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.4, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
