//! Folders as mongodump writes them: a folder for each database, in it a file of BSON documents and one of metadata
//! for each collection.

use std::fs;
use std::path::{Path, PathBuf};

use frond_bson::{Doc, DocBuf, Value, doc, extjson};
use frond_client::Collection;

use crate::error::{Error, Result};
use crate::inventory::{Listed, in_database};

/// Options and indexes of a collection.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Options as `create` takes them.
    pub options: DocBuf,
    /// Indexes, that on `_id` too.
    pub indexes: Vec<DocBuf>,
    /// Whether it is a view.
    pub is_view: bool,
}

impl Metadata {
    /// The text of a metadata file.
    pub fn to_text(&self, collection: &Collection) -> String {
        let mut out = DocBuf::new();
        if !self.options.is_empty() {
            out.push("options", &self.options);
        }
        out.push_array("indexes", |indexes| {
            if !self.is_view {
                indexes.push(&doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
            }
            for index in &self.indexes {
                let mut whole = doc! { "v": 2 };
                whole.push_all(index);
                indexes.push(&whole);
            }
        });
        out.push("collectionName", collection.name.as_str());
        out.push("type", if self.is_view { "view" } else { "collection" });
        extjson::to_canonical(&out)
    }

    /// Reads it again.
    pub fn parse(text: &str, name: &str) -> Result<(Metadata, Option<String>)> {
        if text.trim().is_empty() {
            return Ok((Metadata::default(), None));
        }
        let parsed =
            extjson::parse(text).map_err(|error| Error::Data(format!("{name}: {error}")))?;
        let options = parsed.get_doc("options").unwrap_or(Doc::empty()).to_owned();
        let indexes = parsed.get_array("indexes").unwrap_or(Doc::empty());
        let metadata = Metadata {
            is_view: options.contains_key("viewOn") || parsed.get_str("type") == Some("view"),
            options,
            indexes: indexes
                .values()
                .filter_map(|index| crate::inventory::specification(index.as_doc()?))
                .collect(),
        };
        Ok((
            metadata,
            parsed.get_str("collectionName").map(str::to_owned),
        ))
    }

    /// The collection to create.
    pub fn listed(&self, collection: &Collection) -> Listed {
        crate::inventory::listed(
            &collection.database,
            &collection.name,
            if self.is_view { "view" } else { "collection" },
            &self.options,
        )
    }
}

/// The name of a collection as a file name, as the Database Tools escape it: as a part of a path of a URL.
pub fn escape(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+:=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The name again.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            out.push(*byte);
        }
    }
    String::from_utf8(out).ok()
}

/// A collection of a dump.
#[derive(Debug)]
pub struct Part {
    /// Its name.
    pub collection: Collection,
    /// The file of its documents; a view has none.
    pub documents: Option<PathBuf>,
    /// Options and indexes.
    pub metadata: Metadata,
}

/// The content of a folder: databases, or the collections of the one database that is given.
pub fn parts(folder: &Path, database: Option<&str>) -> Result<Vec<Part>> {
    let mut found = Vec::new();
    let entries = list(folder)?;
    let is_of_one = entries.iter().any(|path| {
        is_documents(path) && path.file_name().is_some_and(|name| name != "oplog.bson")
    });
    if is_of_one {
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = database
            .or(name)
            .ok_or_else(|| Error::Usage("--db must name the database of this folder".to_owned()))?;
        of_database(folder, name, &mut found)?;
        return Ok(found);
    }
    for entry in entries {
        if entry.is_dir()
            && let Some(name) = entry.file_name().and_then(|name| name.to_str())
            && database.is_none_or(|wanted| wanted == name)
        {
            of_database(&entry, name, &mut found)?;
        }
    }
    if found.is_empty() {
        return Err(Error::Data(format!(
            "{}: no dump is in this folder",
            folder.display()
        )));
    }
    Ok(found)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let reading = |error| Error::Io(format!("reading {}", folder.display()), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading)? {
        found.push(entry.map_err(reading)?.path());
    }
    found.sort();
    Ok(found)
}

fn is_documents(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".bson") || name.ends_with(".bson.gz")
}

fn of_database(folder: &Path, database: &str, found: &mut Vec<Part>) -> Result<()> {
    let mut parts: Vec<Part> = Vec::new();
    for path in list(folder)? {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let name = name.strip_suffix(".gz").unwrap_or(name);
        let (stem, is_metadata) = match (
            name.strip_suffix(".metadata.json"),
            name.strip_suffix(".bson"),
        ) {
            (Some(stem), _) => (stem, true),
            (None, Some(stem)) => (stem, false),
            _ => continue,
        };
        let Some(mut collection) = unescape(stem) else {
            return Err(Error::Data(format!(
                "{}: not the name of a collection",
                path.display()
            )));
        };
        let mut metadata = Metadata::default();
        if is_metadata {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut super::files_of::open(&path)?, &mut text)
                .map_err(|error| Error::Io(format!("reading {}", path.display()), error))?;
            let (read, full) = Metadata::parse(&text, &path.display().to_string())?;
            metadata = read;
            // The name of a file may be cut.
            if let Some(full) = full.filter(|_| stem.len() > 200) {
                collection = full;
            }
        }
        let at = match parts
            .iter()
            .position(|part| part.collection.name == collection)
        {
            Some(at) => at,
            None => {
                parts.push(Part {
                    collection: in_database(database, &collection),
                    documents: None,
                    metadata: Metadata::default(),
                });
                parts.len() - 1
            }
        };
        if let Some(part) = parts.get_mut(at) {
            if is_metadata {
                part.metadata = metadata;
            } else {
                part.documents = Some(path);
            }
        }
    }
    found.append(&mut parts);
    Ok(())
}

/// `{db, collection}` of a header.
pub fn namespace(header: &Doc) -> Option<Collection> {
    match (header.get("db"), header.get("collection")) {
        (Some(Value::String(database)), Some(Value::String(name))) => {
            Some(in_database(database, name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_files() {
        for (name, file) in [
            ("a.b", "a.b"),
            ("a/b c", "a%2Fb%20c"),
            ("50%", "50%25"),
            ("ä", "%C3%A4"),
            ("x:y@z$", "x:y@z$"),
        ] {
            assert_eq!(escape(name), file);
            assert_eq!(unescape(file).unwrap(), name);
        }
        assert!(unescape("%4").is_none());
    }

    #[test]
    fn metadata_of_the_database_tools() {
        let text = r#"{"options":{"capped":true,"size":{"$numberInt":"4096"}},"indexes":[{"v":{"$numberInt":"2"},"key":{"_id":{"$numberInt":"1"}},"name":"_id_"},
            {"v":{"$numberInt":"2"},"key":{"a":{"$numberInt":"-1"}},"name":"a_-1","ns":"d.c"}],"uuid":"0123","collectionName":"c","type":"collection"}"#;
        let (metadata, name) = Metadata::parse(text, "f").unwrap();
        assert_eq!(name.as_deref(), Some("c"));
        assert_eq!(metadata.options, doc! { "capped": true, "size": 4096 });
        assert_eq!(
            metadata.indexes,
            [doc! { "key": { "a": -1 }, "name": "a_-1" }]
        );
        let again = Metadata::parse(&metadata.to_text(&in_database("d", "c")), "f")
            .unwrap()
            .0;
        assert_eq!(again.indexes, metadata.indexes);
        assert_eq!(again.options, metadata.options);
    }
}
