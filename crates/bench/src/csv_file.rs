//! CSV files that grow while a run goes on.

use std::fs::File;
use std::path::{Path, PathBuf};

use frond_client::{Error, Result};

pub struct CsvFile {
    writer: csv::Writer<File>,
    path: PathBuf,
}

impl CsvFile {
    /// Creates the file with its header.
    pub fn create<T: AsRef<[u8]>>(
        path: &Path,
        columns: impl IntoIterator<Item = T>,
    ) -> Result<CsvFile> {
        let writer =
            csv::Writer::from_path(path).map_err(|error| failed("creating", path, error))?;
        let path = path.to_owned();
        let mut file = CsvFile { writer, path };
        file.add(columns)?;
        Ok(file)
    }

    /// Adds a record. It is in the file when this returns, so that a run that is cut off loses only
    /// its last interval.
    pub fn add<T: AsRef<[u8]>>(&mut self, record: impl IntoIterator<Item = T>) -> Result<()> {
        let written = self.writer.write_record(record);
        written
            .and_then(|()| self.writer.flush().map_err(csv::Error::from))
            .map_err(|error| failed("writing", &self.path, error))
    }
}

fn failed(doing: &str, path: &Path, error: csv::Error) -> Error {
    let doing = format!("{doing} {}", path.display());
    Error::Io(doing, std::io::Error::other(error))
}
