//! Entry points for the fuzz targets of `crates/fuzz`, over the files that are imported. No other code uses it.

use std::io::Cursor;
use std::path::Path;

use clap::{Args, Command, FromArgMatches};
use frond_bson::doc;
use frond_client::Collection;

use crate::error::{Error, Result};
use crate::files::{Documents, ImportOptions, Metadata, Output, Reader, Rows, Writer};
use crate::inventory::in_database;

/// Reads the bytes of a file to its end, or to the first error.
pub type Decoder = fn(&[u8]);

/// The readers of files, by name. No bytes make one of them panic.
pub const DECODERS: &[(&str, Decoder)] = &[
    ("archive", |bytes| {
        let _ = archive(bytes);
    }),
    ("json", |bytes| {
        let _ = json(bytes, false);
    }),
    ("json_array", |bytes| {
        let _ = json(bytes, true);
    }),
    ("csv", |bytes| {
        let _ = table(bytes, false);
    }),
    ("tsv", |bytes| {
        let _ = table(bytes, true);
    }),
];

/// Writes an archive with two collections, as an input to change.
///
/// # Errors
/// If the file cannot be written.
pub fn write_archive(path: &Path) -> Result<()> {
    let collections = ["a", "b"].map(|name| in_database("test", name));
    let described: Vec<(Collection, Metadata)> = (collections.iter())
        .map(|collection| {
            let index = doc! {"key": doc! {"a": 1}, "name": "a_1"};
            let metadata = Metadata {
                indexes: vec![index],
                ..Metadata::default()
            };
            (collection.clone(), metadata)
        })
        .collect();
    let mut writer = Writer::begin(Output::create(path, false)?, "8.0.0", &described)?;
    for collection in &collections {
        for id in 0..3 {
            writer.put(collection, &doc! {"_id": id, "a": "text"})?;
        }
        writer.end(collection)?;
    }
    writer.finish()
}

fn archive(bytes: &[u8]) -> Result<()> {
    let (mut reader, _) = Reader::begin(Box::new(Cursor::new(bytes.to_vec())))?;
    while reader.next()?.is_some() {}
    Ok(())
}

fn json(bytes: &[u8], array: bool) -> Result<()> {
    let mut documents = Documents::new(bytes, "input", array, bytes.len().is_multiple_of(2));
    while documents.next()?.is_some() {}
    Ok(())
}

fn table(bytes: &[u8], tabs: bool) -> Result<()> {
    let command = ImportOptions::augment_args(Command::new("import"));
    let types: &[&str] = match bytes.len() % 2 {
        0 => &["import", "--headerline"],
        _ => &["import", "--headerline", "--columnsHaveTypes"],
    };
    let usage = |error: clap::Error| Error::Usage(error.to_string());
    let matches = command.try_get_matches_from(types).map_err(usage)?;
    let options = ImportOptions::from_arg_matches(&matches).map_err(usage)?;
    let mut rows = Rows::new(bytes, "input", tabs, &options)?;
    while rows.next()?.is_some() {}
    Ok(())
}
