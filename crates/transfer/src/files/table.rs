//! CSV and TSV files.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use frond_bson::{Doc, DocBuf};

use super::columns::{Column, Columns, text_of};
use super::options::ImportOptions;
use super::sink::NAMED;
use crate::error::{Error, Result};

/// Bytes of a row. One row of a file that has no line ends, or never closes a quote, would take all memory.
const ROW_BYTES_MAX: u64 = 256 << 20;

/// A file with a limit on the bytes that are read for one row.
struct Bounded<R> {
    file: R,
    /// Bytes that may still be read.
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("the row is too large")),
        }
        Ok(read)
    }
}

/// Reads rows as documents.
pub struct Rows<R: BufRead> {
    reader: csv::Reader<Bounded<R>>,
    left: Rc<Cell<u64>>,
    name: String,
    columns: Columns,
    record: csv::StringRecord,
    left_out: u64,
}

impl<R: BufRead> Rows<R> {
    /// A file, named for errors. TSV has no quotes.
    pub fn new(file: R, name: &str, tabs: bool, options: &ImportOptions) -> Result<Rows<R>> {
        let mut builder = csv::ReaderBuilder::new();
        builder.has_headers(false).flexible(true);
        if tabs {
            builder.delimiter(b'\t').quoting(false);
        }
        let left = Rc::new(Cell::new(ROW_BYTES_MAX));
        let mut reader = builder.from_reader(Bounded {
            file,
            left: left.clone(),
        });
        let mut heads = options.common.fields.clone();
        if options.headerline {
            if !heads.is_empty() {
                return Err(Error::Usage(
                    "either --headerline or --fields names the columns".to_owned(),
                ));
            }
            let mut record = csv::StringRecord::new();
            reader
                .read_record(&mut record)
                .map_err(|error| broken(name, &error))?;
            heads = record
                .iter()
                .map(|head| head.trim_start_matches('\u{feff}').to_owned())
                .collect();
        }
        if heads.is_empty() {
            return Err(Error::Usage(
                "the columns have no names: give --headerline or --fields".to_owned(),
            ));
        }
        let columns = heads
            .iter()
            .map(|head| Column::parse(head, options.columns_have_types))
            .collect::<Result<_>>()?;
        Ok(Rows {
            reader,
            left,
            name: name.to_owned(),
            columns: Columns::new(columns, options.parse_grace, options.ignore_blanks)?,
            record: csv::StringRecord::new(),
            left_out: 0,
        })
    }

    /// The number of rows that were left out, as --parseGrace demands it.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The next document and its line.
    pub fn next(&mut self) -> Result<Option<(DocBuf, u64)>> {
        loop {
            self.left.set(ROW_BYTES_MAX);
            if !self
                .reader
                .read_record(&mut self.record)
                .map_err(|error| broken(&self.name, &error))?
            {
                return Ok(None);
            }
            let line = self.record.position().map_or(0, csv::Position::line);
            match self.columns.document(self.record.iter()) {
                Ok(None) => {
                    if self.left_out < NAMED {
                        eprintln!("{}, line {line}: the row is left out", self.name);
                    }
                    self.left_out += 1;
                }
                Ok(Some(document)) => return Ok(Some((document, line))),
                Err(text) => {
                    return Err(Error::Data(format!("{}, line {line}: {text}", self.name)));
                }
            }
        }
    }
}

fn broken(name: &str, error: &csv::Error) -> Error {
    let line = error.position().map_or(String::new(), |position| {
        format!(", line {}", position.line())
    });
    Error::Data(format!("{name}{line}: {error}"))
}

/// Writes documents as rows.
pub struct Table<W: Write> {
    writer: csv::Writer<W>,
    fields: Vec<String>,
}

impl<W: Write> Table<W> {
    /// A file with these columns.
    pub fn new(file: W, tabs: bool, fields: &[String], header: bool) -> Result<Table<W>> {
        if fields.is_empty() {
            return Err(Error::Usage("--fields must name the columns".to_owned()));
        }
        let delimiter = if tabs { b'\t' } else { b',' };
        let mut writer = csv::WriterBuilder::new()
            .delimiter(delimiter)
            .from_writer(file);
        if header {
            writer
                .write_record(fields)
                .map_err(|error| written(&error))?;
        }
        Ok(Table {
            writer,
            fields: fields.to_vec(),
        })
    }

    pub fn put(&mut self, document: &Doc) -> Result<()> {
        for field in &self.fields {
            let text = document
                .path(field)
                .map_or(String::new(), |value| text_of(&value));
            self.writer
                .write_field(text)
                .map_err(|error| written(&error))?;
        }
        self.writer
            .write_record(None::<&[u8]>)
            .map_err(|error| written(&error))
    }

    /// Gives the file back.
    pub fn into_inner(self) -> Result<W> {
        self.writer
            .into_inner()
            .map_err(|error| Error::Data(format!("writing the file: {}", error.error())))
    }
}

fn written(error: &csv::Error) -> Error {
    Error::Data(format!("writing the file: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_without_an_end_is_refused() {
        let left = Rc::new(Cell::new(100));
        let file = Bounded {
            file: std::io::repeat(b'x'),
            left: left.clone(),
        };
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .buffer_capacity(16)
            .from_reader(file);
        let error = reader.read_record(&mut csv::StringRecord::new());
        assert!(error.unwrap_err().to_string().contains("too large"));
        assert!(left.get() < 16);
    }
}
