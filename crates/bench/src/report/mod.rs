//! What a run leaves in its folder: `trace.csv` while it goes on, and at its end `summary.json`,
//! `summary.md`, `chart.svg` and `chart.html`.

mod chart;
mod facts;
mod page;
pub mod plot;
mod summary;
mod trace;

pub use facts::Facts;
pub use page::{Page, Section};
pub use summary::Summary;
pub use trace::{Row, Trace};

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes the report of an insertion: everything but the trace, which is there already.
pub fn write(folder: &Path, summary: &Summary, rows: &[Row]) -> Result<()> {
    let svg = chart::svg(summary, rows)?;
    write_files(folder, &summary.page(), &summary.to_json(), &svg)
}

/// Writes a report: for people, for programs, and the chart.
pub fn write_files(folder: &Path, page: &Page, json: &str, svg: &str) -> Result<()> {
    for (name, text) in [
        ("summary.json", json),
        ("summary.md", &page.to_markdown()),
        ("chart.html", &page.to_html(svg)),
        ("chart.svg", svg),
    ] {
        let path = folder.join(name);
        fs::write(&path, text)
            .map_err(|error| Error::Io(format!("writing {}", path.display()), error))?;
    }
    Ok(())
}

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
