//! The trace of a run: one line for each interval, written as it goes.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::monitor::Figures;

/// One interval of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// End of the interval, in seconds since the start.
    pub elapsed_s: f64,
    /// Documents in at its end.
    pub documents: u64,
    /// Speed within it.
    pub documents_per_s: f64,
    /// Median latency of its batches, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 of its batches were faster.
    pub p99_ms: f64,
    /// Its slowest batch.
    pub max_ms: f64,
    /// What the server said at its end.
    pub figures: Figures,
}

/// Names of the columns.
const COLUMNS: [&str; 8] = [
    "elapsed_s",
    "documents",
    "documents_per_s",
    "p50_ms",
    "p99_ms",
    "max_ms",
    "server_resident_mib",
    "server_cache_mib",
];

/// The file `trace.csv`, and its rows for the chart.
pub struct Trace {
    writer: csv::Writer<File>,
    rows: Vec<Row>,
}

impl Trace {
    /// Creates the file in the folder.
    pub fn create(folder: &Path) -> Result<Trace> {
        let path = folder.join("trace.csv");
        let mut writer = csv::Writer::from_path(&path)
            .map_err(|error| csv_error(&format!("creating {}", path.display()), error))?;
        writer
            .write_record(COLUMNS)
            .and_then(|()| writer.flush().map_err(csv::Error::from))
            .map_err(|error| csv_error("writing trace.csv", error))?;
        Ok(Trace {
            writer,
            rows: Vec::new(),
        })
    }

    /// Adds a row. It is in the file when this returns, so that a run that is cut off leaves all
    /// but its last interval.
    pub fn add(&mut self, row: Row) -> Result<()> {
        let mib = |value: Option<f64>| value.map_or_else(String::new, |mib| format!("{mib:.1}"));
        self.writer
            .write_record([
                format!("{:.3}", row.elapsed_s),
                row.documents.to_string(),
                format!("{:.1}", row.documents_per_s),
                format!("{:.3}", row.p50_ms),
                format!("{:.3}", row.p99_ms),
                format!("{:.3}", row.max_ms),
                mib(row.figures.resident_mib),
                mib(row.figures.cache_mib),
            ])
            .and_then(|()| self.writer.flush().map_err(csv::Error::from))
            .map_err(|error| csv_error("writing trace.csv", error))?;
        self.rows.push(row);
        Ok(())
    }

    /// All rows so far.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The most memory that the server said it had resident, in MiB.
    #[must_use]
    pub fn resident_max_mib(&self) -> Option<f64> {
        self.rows
            .iter()
            .filter_map(|row| row.figures.resident_mib)
            .max_by(f64::total_cmp)
    }
}

fn csv_error(doing: &str, error: csv::Error) -> Error {
    Error::Io(doing.to_owned(), std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_is_in_the_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = Trace::create(folder.path()).unwrap();
        for resident in [None, Some(20.0), Some(10.0)] {
            let row = Row {
                elapsed_s: 1.0,
                documents: 2000,
                documents_per_s: 2000.0,
                p99_ms: 1.5,
                figures: Figures {
                    resident_mib: resident,
                    cache_mib: None,
                },
                ..Row::default()
            };
            trace.add(row).unwrap();
        }
        let text = std::fs::read_to_string(folder.path().join("trace.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], COLUMNS.join(","));
        assert_eq!(lines[1], "1.000,2000,2000.0,0.000,1.500,0.000,,");
        assert_eq!(lines[2], "1.000,2000,2000.0,0.000,1.500,0.000,20.0,");
        assert_eq!(trace.resident_max_mib(), Some(20.0));
    }
}
