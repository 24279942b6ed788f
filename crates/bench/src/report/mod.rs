//! The files of a run: `trace.csv` while it goes on, and `report.html`, `summary.md`, `summary.json`, `results.csv` and
//! the charts after each workload.

pub mod chart;
mod output;
mod page;
pub mod plot;
pub mod section;
mod trace;

pub use output::{Report, Server};
pub use page::Table;
pub use plot::{Axis, Panel};
pub use section::Better::{Higher, Lower, Neither};
pub use section::{Chart, Columns, ResultRows, Section};
pub use trace::{Row, TraceFile, resident_max_mib};

use std::fs;
use std::path::{Path, PathBuf};

use frond_client::{Error, Result};

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
