//! Reads the files of a run, of any format, as rows of named columns.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use frond_bson::{Doc, Value, extjson};

/// Values by column. Numbers stay as the run has them.
pub type Row = BTreeMap<String, String>;

/// The rows of a file, by its ending:
///
/// - `csv`: its lines; `jsonl`: a row for each line.
/// - `json`: one row. Names of nested fields are joined by dots. Of a list of pairs the first one's
///   name is the last part.
/// - `md`: the rows of all tables, with the heading above them as `section`; every other
///   line is a row with a `text`.
/// - anything else: each line is a row with a `text`.
pub fn rows(path: &Path) -> Result<Vec<Row>, String> {
    let told = |error: String| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => csv_rows(&text).map_err(told),
        Some("json") => json_row(&text).map(|row| vec![row]).map_err(told),
        Some("jsonl") => text
            .lines()
            .map(json_row)
            .collect::<Result<_, _>>()
            .map_err(told),
        Some("md") => Ok(markdown_rows(&text)),
        _ => Ok(text.lines().map(|line| text_row("", line)).collect()),
    }
}

fn csv_rows(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows = reader.deserialize::<Row>();
    rows.map(|row| row.map_err(|error| error.to_string()))
        .collect()
}

fn json_row(text: &str) -> Result<Row, String> {
    let doc = extjson::parse(text).map_err(|error| format!("{error:?}"))?;
    let mut row = Row::new();
    flatten("", &doc, &mut row);
    Ok(row)
}

fn flatten(above: &str, doc: &Doc, row: &mut Row) {
    for (name, value) in doc.iter() {
        let name = if above.is_empty() {
            name.to_owned()
        } else {
            format!("{above}.{name}")
        };
        match value {
            Value::Document(inner) => flatten(&name, inner, row),
            Value::Array(list) => {
                for pair in list.values().filter_map(|value| value.as_array()) {
                    let mut words = pair.values();
                    if let (Some(key), Some(value)) = (words.next(), words.next()) {
                        let key = key.as_str().unwrap_or_default();
                        row.insert(format!("{name}.{key}"), shown(value));
                    }
                }
            }
            value => {
                row.insert(name, shown(value));
            }
        }
    }
}

fn shown(value: Value<'_>) -> String {
    match value {
        Value::String(text) => text.to_owned(),
        value => value
            .as_f64()
            .map_or_else(String::new, |number| number.to_string()),
    }
}

fn text_row(section: &str, line: &str) -> Row {
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    Row::from([
        ("section".to_owned(), section.to_owned()),
        ("text".to_owned(), words),
    ])
}

fn markdown_rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = "";
    let mut columns: Vec<&str> = Vec::new();
    for line in text.lines() {
        let Some(inner) = line.strip_prefix('|') else {
            columns.clear();
            if let Some(heading) = line.strip_prefix('#') {
                section = heading.trim_start_matches('#').trim();
            } else if !line.trim().is_empty() {
                rows.push(text_row(section, line));
            }
            continue;
        };
        let cells: Vec<&str> = inner
            .trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        if columns.is_empty() {
            columns = cells;
        } else if !cells
            .iter()
            .all(|cell| cell.starts_with(['-', ':']) && cell.ends_with(['-', ':']))
        {
            let pairs = columns.iter().zip(&cells);
            let mut row: Row = pairs
                .map(|(column, cell)| ((*column).to_owned(), (*cell).to_owned()))
                .collect();
            row.insert("section".to_owned(), section.to_owned());
            rows.push(row);
        }
    }
    rows
}

/// The wanted column of the only row that fits all conditions, which are `column = value` or, where reports
/// changed a name, `column = value or value`. A server's name may be cut short. If `wanted` has a `#`, it is the number in its place in a line of text.
///
/// Of several rows `nth = 2` takes the second one, `greatest` that of the greatest number.
pub fn pick(rows: &[Row], conditions: &[&str], wanted: &str) -> Result<String, String> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    let (mut nth, mut greatest) = (None, false);
    for condition in conditions {
        match condition.split_once(" = ") {
            None if *condition == "greatest" => greatest = true,
            None => return Err(format!("{condition:?} is not `column = value`")),
            Some(("nth", value)) => {
                nth = Some(
                    value
                        .parse::<usize>()
                        .map_err(|_| format!("nth = {value}: which?"))?,
                );
            }
            Some((column, value)) => {
                let fits = |found: &String| {
                    value.split(" or ").any(|value| found == value)
                        || (column == "server" && found.starts_with(value))
                };
                rows.retain(|row| row.get(column).is_some_and(fits));
            }
        }
    }
    let found = rows
        .into_iter()
        .filter_map(|row| match wanted.split_once('#') {
            Some((before, after)) => between(row.get("text")?, before, after),
            None => row.get(wanted).cloned(),
        });
    let mut found: Vec<String> = found.collect();
    if greatest {
        found.sort_by(|a, b| {
            number(a)
                .unwrap_or(f64::MIN)
                .total_cmp(&number(b).unwrap_or(f64::MIN))
        });
        found.drain(..found.len().saturating_sub(1));
    }
    match (nth, found.as_slice()) {
        (None, [value]) => Ok(value.clone()),
        (Some(nth), values) if (1..=values.len()).contains(&nth) => Ok(values[nth - 1].clone()),
        (_, values) => Err(format!("{} rows fit", values.len())),
    }
}

/// The number between two pieces of a line.
fn between(line: &str, before: &str, after: &str) -> Option<String> {
    let rest = &line[line.find(before)? + before.len()..];
    let digits = |letter: char| letter.is_ascii_digit() || ",.".contains(letter);
    let end = rest.find(|letter| !digits(letter)).unwrap_or(rest.len());
    (end > 0 && rest[end..].starts_with(after)).then(|| rest[..end].to_owned())
}

/// A number as a run wrote it, with or without commas.
pub fn number(text: &str) -> Result<f64, String> {
    text.replace(',', "")
        .parse()
        .map_err(|_| format!("{text:?} is no number"))
}
