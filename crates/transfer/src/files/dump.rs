//! Folders as mongodump writes them: a folder for each database, in it a file of BSON documents and one of metadata
//! for each collection.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use frond_bson::{Doc, DocBuf, Value, doc, extjson};
use frond_client::Collection;
use frond_client::percent::{self, AsciiSet, RESERVED, percent_encode};
use sha1::{Digest, Sha1};

use super::files_of;
use crate::error::{Error, Result};
use crate::inventory::{self, Listed, in_database};
use crate::names::{self, BUCKETS};

/// Options and indexes of a collection.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Options as `create` takes them.
    pub options: DocBuf,
    /// Indexes, that on `_id` too.
    pub indexes: Vec<DocBuf>,
    /// Whether it is a view.
    pub is_view: bool,
    /// Whether it is a time series whose measurements are in buckets, as MongoDB dumps it.
    pub is_packed: bool,
}

impl Metadata {
    /// The text of a metadata file.
    pub fn to_text(&self, collection: &Collection) -> String {
        let mut out = DocBuf::new();
        if !self.options.is_empty() {
            out.push("options", &self.options);
        }
        out.push_array("indexes", |indexes| {
            if !self.is_view && !self.is_packed {
                indexes.push(&doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
            }
            for index in &self.indexes {
                let mut whole = doc! { "v": 2 };
                whole.push_all(index);
                indexes.push(&whole);
            }
        });
        out.push("collectionName", collection.name.as_str());
        out.push("type", self.kind());
        extjson::to_canonical(&out)
    }

    /// The type that `listCollections` shows.
    pub fn kind(&self) -> &'static str {
        match self {
            Metadata { is_view: true, .. } => "view",
            Metadata {
                is_packed: true, ..
            } => "timeseries",
            _ => "collection",
        }
    }

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
            is_packed: false,
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

    /// Whether it is a time series.
    pub fn is_series(&self) -> bool {
        self.options.contains_key("timeseries")
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

/// The characters that the Database Tools escape in the name of a collection: those that a part of a URL's path does not have.
const ESCAPED: &AsciiSet = &RESERVED
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b':')
    .remove(b'=')
    .remove(b'@');

fn escape(name: &str) -> String {
    percent_encode(name.as_bytes(), ESCAPED).to_string()
}

/// The longest name of a file, without its ending, that is not cut. The endings have up to 17 bytes, and file systems take 255.
const NAME_MAX: usize = 238;

/// The part of a longer name that stays. A sign and a hash of 27 letters follow.
const NAME_KEPT: usize = 208;

/// The sign before the hash of a name that was cut.
const CUT_MARK: &str = "%24";

/// The name of a collection as the name of a file. A long one is cut, and gets a hash of the whole, as the Database Tools do it.
pub fn file_name(name: &str) -> String {
    let mut out = escape(name);
    if out.len() > NAME_MAX {
        let hash = extjson::base64_encode(&Sha1::digest(name.as_bytes()));
        out.truncate(NAME_KEPT);
        out.push_str(CUT_MARK);
        out.extend(
            hash.trim_end_matches('=')
                .chars()
                .map(|letter| match letter {
                    '+' => '-',
                    '/' => '_',
                    other => other,
                }),
        );
    }
    out
}

/// Checks that the names of a collection can be those of a folder and a file: they may come from a server that lies.
pub fn check_names(collection: &Collection) -> Result<()> {
    folder_name(&collection.database)?;
    if collection.name.is_empty() {
        return Err(Error::Data(format!(
            "the server has a collection without a name in the database {:?}; --exclude leaves it out",
            collection.database
        )));
    }
    let longest = format!("{}.metadata.json.gz", file_name(&collection.name));
    frond_files::component(&longest)
        .map(|_| ())
        .map_err(unsafe_name)
}

/// The name of a database as the name of a folder. No database has a period, and `oplog.bson` means something else here.
fn folder_name(database: &str) -> Result<&str> {
    let name = frond_files::component(database).map_err(unsafe_name)?;
    if name.contains('.') {
        Err(Error::Data(format!(
            "{name:?} is no name of a database: it has a period; --exclude leaves it out"
        )))
    } else {
        Ok(name)
    }
}

fn unsafe_name(error: frond_files::NameError) -> Error {
    Error::Data(format!(
        "a name that the server gave: {error}; --exclude leaves it out"
    ))
}

/// The path of a file of a collection below the folder of a dump. The folder of the database is created.
pub fn create_path(folder: &Path, collection: &Collection, ending: &str) -> Result<PathBuf> {
    let database = folder.join(folder_name(&collection.database)?);
    files_of::create_folder_inside(&database)?;
    let name = format!("{}.{ending}", file_name(&collection.name));
    Ok(database.join(frond_files::component(&name).map_err(unsafe_name)?))
}

fn is_cut(stem: &str) -> bool {
    stem.len() == NAME_MAX && stem.contains(CUT_MARK)
}

/// A collection of a dump.
#[derive(Debug)]
pub struct Part {
    /// Its name. A time series has its own, and not that of its buckets.
    pub collection: Collection,
    /// The file of its documents; a view has none.
    pub documents: Option<PathBuf>,
    /// The documents are what `system.buckets.` and the name held.
    pub of_buckets: bool,
    /// Options and indexes, if there is a file of them.
    pub metadata: Option<Metadata>,
}

/// A folder of a dump, or of one of its databases.
#[derive(Debug, Default)]
pub struct Folder {
    pub parts: Vec<Part>,
    /// The oplog of the time in which the dump was made.
    pub oplog: Option<PathBuf>,
    /// Files that are no part of a dump.
    pub unknown: Vec<PathBuf>,
}

/// The content of a folder: databases, or the collections of the one database that is given.
pub fn read(folder: &Path, database: Option<&str>) -> Result<Folder> {
    let mut found = Folder::default();
    let entries = list(folder)?;
    let is_of_one = entries
        .iter()
        .any(|path| matches!(kind_of(path), Some((_, Kind::Documents))) && !is_oplog(path));
    if is_of_one {
        let name = folder.file_name().and_then(|name| name.to_str());
        let name = database
            .or(name)
            .ok_or_else(|| Error::Usage("--db must name the database of this folder".to_owned()))?;
        of_database(entries, name, &mut found)?;
        return Ok(found);
    }
    for entry in entries {
        let name = entry.file_name().and_then(|name| name.to_str());
        if is_oplog(&entry) {
            found.oplog = Some(entry);
        } else if let Some(name) = name.filter(|_| entry.is_dir()) {
            if database.is_none_or(|wanted| wanted == name) {
                of_database(list(&entry)?, name, &mut found)?;
            }
        } else {
            found
                .unknown
                .extend(Some(entry).filter(|path| !is_beside(path)));
        }
    }
    if found.parts.is_empty() && found.oplog.is_none() {
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
        let entry = entry.map_err(reading)?;
        let path = entry.path();
        if entry.file_type().map_err(reading)?.is_symlink() {
            if is_beside(&path) {
                continue;
            }
            return Err(Error::Data(format!(
                "{} is a symbolic link, which a dump must not have: put the file or folder itself there",
                path.display()
            )));
        }
        found.push(path);
    }
    found.sort();
    Ok(found)
}

/// Metadata, with the name of the collection, by the names of their files.
type Described = HashMap<String, (Metadata, Option<String>)>;

/// The name of a file without the ending of a compressed one.
fn plain_name(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or_default();
    name.strip_suffix(".gz").unwrap_or(name)
}

fn is_oplog(path: &Path) -> bool {
    plain_name(path) == "oplog.bson"
}

/// Whether a file may lie beside a dump without being a part of it: what a tool notes of itself, or a hidden one.
fn is_beside(path: &Path) -> bool {
    let name = plain_name(path);
    name == "prelude.json" || name.starts_with('.')
}

/// A longer file of metadata is none: options and indexes of a collection fit into a document of BSON.
const METADATA_BYTES_MAX: u64 = 128 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Documents,
    Metadata,
}

/// The kind of a file, and its name without the ending.
fn kind_of(path: &Path) -> Option<(&str, Kind)> {
    let name = plain_name(path);
    let of = |ending: &str, kind: Kind| Some((name.strip_suffix(ending)?, kind));
    of(".metadata.json", Kind::Metadata)
        .or_else(|| of(".bson", Kind::Documents))
        .or_else(|| of(".bin", Kind::Documents))
}

fn of_database(entries: Vec<PathBuf>, database: &str, found: &mut Folder) -> Result<()> {
    let mut described = Described::new();
    for path in &entries {
        if let Some((stem, Kind::Metadata)) = kind_of(path) {
            let text = files_of::text(path, METADATA_BYTES_MAX)?;
            let read = Metadata::parse(&text, &path.display().to_string())?;
            described.insert(stem.to_owned(), read);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    for path in entries {
        let Some((stem, kind)) = kind_of(&path) else {
            found
                .unknown
                .extend(Some(path).filter(|path| !is_beside(path)));
            continue;
        };
        let stem = stem.to_owned();
        let of_file = in_database(database, &name_of(&path, &stem, &described)?);
        let series = names::series_of(&of_file);
        let of_buckets = series.is_some();
        let collection = series.unwrap_or(of_file);
        let at = parts.iter().position(|part| part.collection == collection);
        let at = at.unwrap_or_else(|| {
            parts.push(Part {
                collection: collection.clone(),
                documents: None,
                of_buckets: false,
                metadata: None,
            });
            parts.len() - 1
        });
        let Some(part) = parts.get_mut(at) else {
            continue;
        };
        if kind == Kind::Metadata {
            let metadata = described.get(&stem).map(|(metadata, _)| metadata.clone());
            part.metadata = part.metadata.take().or(metadata);
        } else if let Some(other) = &part.documents {
            return Err(Error::Data(format!(
                "{} and {} both have the documents of {collection}: move one of them away",
                other.display(),
                path.display()
            )));
        } else {
            part.documents = Some(path);
            part.of_buckets = of_buckets;
        }
    }
    take_old_indexes(&mut parts)?;
    found.parts.append(&mut parts);
    Ok(())
}

/// The name of the collection of a file.
fn name_of(path: &Path, stem: &str, described: &Described) -> Result<String> {
    if !is_cut(stem) {
        return percent::decode(stem)
            .map_err(|_| Error::Data(format!("{}: not the name of a collection", path.display())));
    }
    // The metadata of this file has the whole name; buckets have no metadata of their own.
    if let Some((_, Some(name))) = described.get(stem) {
        return Ok(name.clone());
    }
    let described = described.values().filter_map(|(_, name)| name.as_ref());
    described
        .map(|name| format!("{BUCKETS}{name}"))
        .find(|name| file_name(name) == stem)
        .ok_or_else(|| {
            Error::Data(format!(
                "{}: the name of the collection is cut, and there is no metadata with the whole one",
                path.display()
            ))
        })
}

/// Takes the indexes of a dump without metadata from `system.indexes`, the collection in which old servers kept them.
fn take_old_indexes(parts: &mut Vec<Part>) -> Result<()> {
    let Some(at) = parts
        .iter()
        .position(|part| part.collection.name == "system.indexes")
    else {
        return Ok(());
    };
    let indexes = parts.remove(at);
    let Some(path) = &indexes.documents else {
        return Ok(());
    };
    let mut without: Vec<(String, Vec<DocBuf>)> = (parts.iter())
        .filter(|part| part.metadata.is_none())
        .map(|part| (part.collection.to_string(), Vec::new()))
        .collect();
    files_of::each_document(path, &mut |index| {
        let ns = index.get_str("ns").unwrap_or_default();
        if let Some((_, list)) = without.iter_mut().find(|(name, _)| name == ns) {
            list.extend(inventory::specification(index));
        }
        Ok(())
    })?;
    for part in parts {
        let name = part.collection.to_string();
        if let Some(at) = without.iter().position(|(of, _)| *of == name) {
            part.metadata = Some(Metadata {
                indexes: without.swap_remove(at).1,
                ..Metadata::default()
            });
        }
    }
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
            assert_eq!(percent::decode(file).unwrap(), name);
        }
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
    #[test]
    fn long_names_are_cut_as_mongodump_cuts_them() {
        let name = format!(
            "a{}LongCollectionNameConsistingOfExactly{}",
            "Very".repeat(42),
            "x".repeat(40)
        );
        let file = file_name(&name);
        assert_eq!(file.len(), NAME_MAX);
        assert_eq!(file.get(..NAME_KEPT), name.get(..NAME_KEPT));
        assert_eq!(file.get(NAME_KEPT..NAME_KEPT + 3), Some(CUT_MARK));
        let longest = "x".repeat(NAME_MAX);
        assert_eq!(file_name(&longest), longest);
        // printf %s x*239 | openssl sha1 -binary | base64, with the letters of URLs.
        assert_eq!(
            file_name(&"x".repeat(NAME_MAX + 1)),
            format!("{}%24Nq75d-cu3iRxNs-ce3Tvf9gagoU", "x".repeat(NAME_KEPT))
        );
    }

    fn written(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn a_cut_name_is_that_of_its_metadata() {
        let name = "é".repeat(60);
        let file = file_name(&name);
        let buckets = file_name(&format!("{BUCKETS}{name}"));
        let metadata = format!(r#"{{"indexes":[],"collectionName":"{name}"}}"#);
        for documents in [&file, &buckets] {
            let folder = written(&[
                (&format!("d/{documents}.bson"), b""),
                (&format!("d/{file}.metadata.json"), metadata.as_bytes()),
            ]);
            let read = read(folder.path(), None).unwrap();
            let [part] = read.parts.as_slice() else {
                panic!("{read:?}");
            };
            assert_eq!(part.collection, in_database("d", &name));
            assert_eq!(part.of_buckets, *documents == buckets);
            assert!(part.documents.is_some() && part.metadata.is_some());
        }
        let folder = written(&[(&format!("d/{file}.bson"), b"")]);
        let error = read(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains("is cut"), "{error}");
    }

    #[test]
    fn names_of_a_hostile_server_make_no_paths() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dump");
        fs::create_dir(&folder).unwrap();
        for database in [
            "../../x",
            "..",
            ".",
            "",
            "/x",
            "a/b",
            "a\\b",
            "a\0",
            "oplog.bson",
        ] {
            let collection = in_database(database, "c");
            assert!(check_names(&collection).is_err(), "{database:?}");
            assert!(create_path(&folder, &collection, "bson").is_err());
        }
        assert!(check_names(&in_database("d", "")).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        for (name, file) in [
            ("../../x", "..%2F..%2Fx.bson"),
            ("..", "...bson"),
            ("a\0b", "a%00b.bson"),
        ] {
            let collection = in_database("d", name);
            check_names(&collection).unwrap();
            let path = create_path(&folder, &collection, "bson").unwrap();
            assert_eq!(path, folder.join("d").join(file));
        }
    }

    #[test]
    fn a_dump_has_no_links() {
        use std::os::unix::fs::symlink;

        let elsewhere = written(&[("a.bson", b""), ("x/a.bson", b"")]);
        for name in ["d/b.bson", "d/b.metadata.json", "e", "oplog.bson"] {
            let folder = written(&[("d/a.bson", b"")]);
            let to = match name {
                "e" => "x",
                _ => "a.bson",
            };
            symlink(elsewhere.path().join(to), folder.path().join(name)).unwrap();
            let error = read(folder.path(), None).unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{name}: {error}");
        }
        // A hidden link is not part of the dump, and the folder that is named may be a link.
        let folder = written(&[("d/a.bson", b"")]);
        symlink(elsewhere.path().join("x"), folder.path().join(".x")).unwrap();
        let link = elsewhere.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert_eq!(read(&link, None).unwrap().parts.len(), 1);
    }

    #[test]
    fn files_of_a_dump_are_not_written_through_links() {
        use std::os::unix::fs::symlink;

        let elsewhere = written(&[("a.bson", b"untouched")]);
        let folder = written(&[("d/x", b"")]);
        symlink(elsewhere.path(), folder.path().join("e")).unwrap();
        symlink(
            elsewhere.path().join("a.bson"),
            folder.path().join("d/a.bson"),
        )
        .unwrap();
        let linked = in_database("e", "a");
        assert!(create_path(folder.path(), &linked, "bson").is_err());
        let path = create_path(folder.path(), &in_database("d", "a"), "bson").unwrap();
        assert!(files_of::Output::create_inside(&path, false).is_err());
        assert_eq!(
            fs::read(elsewhere.path().join("a.bson")).unwrap(),
            b"untouched"
        );
    }

    #[test]
    fn a_folder_says_what_is_no_part_of_a_dump() {
        let folder = written(&[
            ("oplog.bson", b""),
            ("prelude.json", b"{}"),
            ("notes.txt", b""),
            ("d/a.bson", b""),
            ("d/a.bson.zst", b""),
            ("d/.hidden", b""),
        ]);
        let found = read(folder.path(), None).unwrap();
        let names: Vec<_> = (found.unknown.iter())
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["a.bson.zst", "notes.txt"]);
        assert!(found.oplog.is_some());
        assert_eq!(found.parts.len(), 1);
        let folder = written(&[("d/a.bson", b""), ("d/a.bson.gz", b"")]);
        assert!(read(folder.path(), None).is_err());
    }

    #[test]
    fn indexes_of_dumps_without_metadata() {
        let mut indexes =
            doc! { "v": 1, "key": { "_id": 1 }, "name": "_id_", "ns": "d.a" }.into_vec();
        indexes.extend(doc! { "v": 1, "key": { "n": 1 }, "name": "n_1", "ns": "d.a" }.into_vec());
        let folder = written(&[("d/a.bson", b""), ("d/system.indexes.bson", &indexes)]);
        let found = read(folder.path(), None).unwrap();
        let [part] = found.parts.as_slice() else {
            panic!("{found:?}");
        };
        let expected = [doc! { "key": { "n": 1 }, "name": "n_1" }];
        assert_eq!(part.metadata.as_ref().unwrap().indexes, expected);
    }
}
