//! What a run leaves in its folder: `trace.csv` while it goes on, and `report.html`, `summary.md`,
//! `summary.json`, `results.csv` and the charts after each workload.

mod book;
mod chapter;
pub mod chart;
mod page;
pub mod plot;
mod trace;

pub use book::Book;
pub use chapter::{Chapter, Chart, Figure, show};
pub use page::Section;
pub use plot::Axis;
pub use trace::{Row, TraceFile, resident_max_mib};

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Makes the folder of a report: the one that was asked for, or one named after workload and time.
pub fn make_folder(
    out: Option<&Path>,
    workload: &str,
    started: jiff::Timestamp,
) -> Result<PathBuf> {
    let folder = out.map_or_else(
        || {
            let time = started.strftime("%Y%m%d-%H%M%S");
            PathBuf::from(format!("frond-bench-{workload}-{time}"))
        },
        Path::to_path_buf,
    );
    fs::create_dir_all(&folder)
        .map_err(|error| Error::Io(format!("making {}", folder.display()), error))?;
    Ok(folder)
}

/// A number without decimals, its thousands separated by commas.
#[must_use]
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number <= -0.5 {
        format!("-{out}")
    } else {
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (-0.2, "0"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }
}
