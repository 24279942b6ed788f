//! What a run leaves in its folder: `trace.csv` while it goes on, and at its end `summary.json`,
//! `summary.md`, `chart.svg` and `chart.html`.

mod chart;
mod summary;
mod trace;

pub use summary::Summary;
pub use trace::{Row, Trace};

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes everything but the trace, which is there already.
pub fn write(folder: &Path, summary: &Summary, rows: &[Row]) -> Result<()> {
    let svg = chart::svg(summary, rows)?;
    for (name, text) in [
        ("summary.json", summary.to_json()),
        ("summary.md", summary.to_markdown()),
        ("chart.html", chart::html(summary, &svg)),
        ("chart.svg", svg),
    ] {
        let path = folder.join(name);
        fs::write(&path, text)
            .map_err(|error| Error::Io(format!("writing {}", path.display()), error))?;
    }
    Ok(())
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
