//! The trace of a run: one line for each interval, written as it goes.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::csv_file::CsvFile;
use crate::system::MemoryUsage;
use frond_client::Result;

/// One interval of a workload on one server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// End of the interval, in seconds of this server's own time since the start.
    pub elapsed_s: f64,
    /// Documents, updates or transactions done at the end of the interval.
    pub count: u64,
    pub per_s: f64,
    /// Median latency, in milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 were faster.
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Memory of the server at its end.
    pub memory: MemoryUsage,
}

/// Names of the columns.
const COLUMNS: &str = "workload,server,elapsed_s,count,per_s,p50_ms,p99_ms,max_ms,server_resident_mib,server_cache_mib";

pub struct TraceFile(Mutex<CsvFile>);

impl TraceFile {
    pub fn create(folder: &Path) -> Result<TraceFile> {
        let file = CsvFile::create(&folder.join("trace.csv"), COLUMNS.split(','))?;
        Ok(TraceFile(Mutex::new(file)))
    }

    /// Adds a row. It is in the file when this returns.
    pub fn add(&self, workload: &str, server: &str, row: &Row) -> Result<()> {
        let mib = |value: Option<f64>| value.map_or_else(String::new, |mib| format!("{mib:.1}"));
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.add([
            workload,
            server,
            &format!("{:.3}", row.elapsed_s),
            &row.count.to_string(),
            &format!("{:.1}", row.per_s),
            &format!("{:.3}", row.p50_ms),
            &format!("{:.3}", row.p99_ms),
            &format!("{:.3}", row.max_ms),
            &mib(row.memory.resident_mib),
            &mib(row.memory.cache_mib),
        ])
    }
}

/// The most memory that the server said it had resident, in MiB.
pub fn resident_max_mib(rows: &[Row]) -> Option<f64> {
    rows.iter()
        .filter_map(|row| row.memory.resident_mib)
        .max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_in_the_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let trace = TraceFile::create(folder.path()).unwrap();
        let rows = [None, Some(20.0), Some(10.0)].map(|resident| Row {
            elapsed_s: 1.0,
            count: 2000,
            per_s: 2000.0,
            p99_ms: 1.5,
            memory: MemoryUsage {
                resident_mib: resident,
                cache_mib: None,
            },
            ..Row::default()
        });
        for row in &rows {
            trace.add("insert", "A, B", row).unwrap();
        }
        let text = std::fs::read_to_string(folder.path().join("trace.csv")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], COLUMNS);
        assert_eq!(
            lines[1],
            "insert,\"A, B\",1.000,2000,2000.0,0.000,1.500,0.000,,"
        );
        assert!(lines[2].ends_with(",0.000,20.0,"));
        assert_eq!(resident_max_mib(&rows), Some(20.0));
        assert_eq!(resident_max_mib(&[]), None);
    }
}
