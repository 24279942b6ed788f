//! Archives as `mongodump --archive` writes them.
//!
//! A number, a header, the metadata of each collection, and then blocks: a header that names a collection, documents, a
//! terminator. A last block of each collection has a checksum of all its documents and no documents.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use frond_bson::{Doc, DocBuf, doc};
use frond_client::Collection;

use super::crc64::Crc64;
use super::dump::{Metadata, namespace};
use super::files_of::{Output, document_of, read_or_end};
use crate::error::{Error, Result};
use crate::names;

/// The first four bytes.
const MAGIC: [u8; 4] = [0x6d, 0xe2, 0x99, 0x81];

/// The end of a block.
const TERMINATOR: [u8; 4] = [0xff; 4];

/// Bytes after which a block ends, so that readers of several collections need not hold much.
const BLOCK_BYTES: usize = 8 << 20;

/// Bytes of the metadata of all collections, which are held in memory.
const METADATA_BYTES_MAX: usize = 256 << 20;

pub struct Writer {
    out: Output,
    block_bytes: usize,
    crc: Crc64,
}

impl Writer {
    /// Writes the beginning, with the metadata of all collections.
    pub fn begin(
        mut out: Output,
        server_version: &str,
        all: &[(Collection, Metadata)],
    ) -> Result<Writer> {
        out.put(&MAGIC)?;
        let header = doc! {
            "concurrent_collections": 1,
            "version": "0.1",
            "server_version": server_version,
            "tool_version": env!("CARGO_PKG_VERSION"),
        };
        out.put(header.as_bytes())?;
        for (collection, metadata) in all {
            let part = doc! {
                "db": collection.database.as_str(),
                "collection": collection.name.as_str(),
                "metadata": metadata.to_text(collection),
                "size": 0_i64,
                "type": metadata.kind(),
            };
            out.put(part.as_bytes())?;
        }
        out.put(&TERMINATOR)?;
        Ok(Writer {
            out,
            block_bytes: 0,
            crc: Crc64::default(),
        })
    }

    fn header(&mut self, collection: &Collection, end: Option<Crc64>) -> Result<()> {
        let header = doc! {
            "db": collection.database.as_str(),
            "collection": collection.name.as_str(),
            "EOF": end.is_some(),
            "CRC": end.map_or(0, |crc| crc.sum().cast_signed()),
        };
        self.out.put(header.as_bytes())
    }

    /// Writes a document of a collection. Those of one collection come one after another.
    pub fn put(&mut self, collection: &Collection, document: &Doc) -> Result<()> {
        if self.block_bytes == 0 {
            self.header(collection, None)?;
        }
        self.out.put(document.as_bytes())?;
        self.crc.add(document.as_bytes());
        self.block_bytes += document.len_bytes();
        if self.block_bytes >= BLOCK_BYTES {
            self.out.put(&TERMINATOR)?;
            self.block_bytes = 0;
        }
        Ok(())
    }

    pub fn end(&mut self, collection: &Collection) -> Result<()> {
        if self.block_bytes > 0 {
            self.out.put(&TERMINATOR)?;
            self.block_bytes = 0;
        }
        let crc = std::mem::take(&mut self.crc);
        self.header(collection, Some(crc))?;
        self.out.put(&TERMINATOR)
    }

    pub fn finish(self) -> Result<()> {
        self.out.finish()
    }
}

pub struct Reader {
    file: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    sums: HashMap<Collection, Crc64>,
    current: Option<Collection>,
    /// The collections whose end was not seen.
    unfinished: HashSet<Collection>,
}

/// A step of reading.
pub enum Next<'a> {
    /// A document of a collection.
    Document(&'a Collection, &'a Doc),
    /// A collection has no more documents.
    End,
}

impl Reader {
    /// Reads the beginning, and returns the metadata of all collections.
    pub fn begin(
        mut file: Box<dyn BufRead + Send>,
    ) -> Result<(Reader, Vec<(Collection, Metadata)>)> {
        let mut magic = [0; 4];
        if !read_or_end(&mut *file, &mut magic)? || magic != MAGIC {
            return Err(Error::Data(
                "the file is no archive of mongodump".to_owned(),
            ));
        }
        let mut reader = Reader {
            file,
            buffer: Vec::new(),
            sums: HashMap::new(),
            current: None,
            unfinished: HashSet::new(),
        };
        if !reader.step()? {
            return Err(Error::Data("the archive has no header".to_owned()));
        }
        let version = Doc::from_trusted(&reader.buffer)
            .get_str("version")
            .unwrap_or("")
            .to_owned();
        if !version.starts_with("0.") {
            return Err(Error::Data(format!(
                "archives of the version {version:?} are not known, only 0.1"
            )));
        }
        let mut found = Vec::new();
        let mut bytes = 0;
        while reader.step()? {
            bytes += reader.buffer.len();
            if bytes > METADATA_BYTES_MAX {
                return Err(Error::Data(format!(
                    "the archive has more than {METADATA_BYTES_MAX} bytes of metadata: it is damaged"
                )));
            }
            let part = Doc::from_trusted(&reader.buffer);
            let Some(collection) = namespace(part) else {
                return Err(Error::Data(format!(
                    "metadata without db and collection: {part:?}"
                )));
            };
            let text = part.get_str("metadata").unwrap_or("");
            let (metadata, _) = Metadata::parse(text, &format!("metadata of {collection}"))?;
            if !metadata.is_view {
                reader.unfinished.insert(collection.clone());
            }
            found.push((collection, metadata));
        }
        Ok((reader, found))
    }

    /// The collections whose documents did not end: at the end of the archive they are not whole.
    pub fn unfinished(&self) -> impl Iterator<Item = &Collection> {
        self.unfinished.iter()
    }

    /// Reads a document into the buffer; false at a terminator.
    fn step(&mut self) -> Result<bool> {
        let mut len = [0; 4];
        if !read_or_end(&mut *self.file, &mut len)? {
            return Err(Error::Data("the archive ends in the middle".to_owned()));
        }
        if len == TERMINATOR {
            return Ok(false);
        }
        document_of(&mut *self.file, len, &mut self.buffer)?;
        Ok(true)
    }

    /// The next document, or the end of a collection; none at the end of the archive.
    pub fn next(&mut self) -> Result<Option<Next<'_>>> {
        loop {
            if let Some(collection) = &self.current {
                let collection = collection.clone();
                if self.step()? {
                    self.sums.entry(collection).or_default().add(&self.buffer);
                    let document = Doc::from_trusted(&self.buffer);
                    return Ok(self
                        .current
                        .as_ref()
                        .map(|collection| Next::Document(collection, document)));
                }
                self.current = None;
            }
            let mut len = [0; 4];
            if !read_or_end(&mut *self.file, &mut len)? {
                return Ok(None);
            }
            document_of(&mut *self.file, len, &mut self.buffer)?;
            let header: DocBuf = Doc::from_trusted(&self.buffer).to_owned();
            let Some(collection) = namespace(&header) else {
                return Err(Error::Data(format!(
                    "a block without db and collection: {header:?}"
                )));
            };
            if header.get_bool("EOF") != Some(true) {
                self.current = Some(collection);
                continue;
            }
            if self.step()? {
                return Err(Error::Data(format!(
                    "{collection}: documents after its end"
                )));
            }
            self.unfinished.remove(&collection);
            if let Some(series) = names::series_of(&collection) {
                self.unfinished.remove(&series);
            }
            let sum = self
                .sums
                .remove(&collection)
                .unwrap_or_default()
                .sum()
                .cast_signed();
            if header.get_i64("CRC").is_some_and(|wanted| wanted != sum) {
                return Err(Error::Data(format!(
                    "{collection}: the archive is damaged, the checksum differs"
                )));
            }
            return Ok(Some(Next::End));
        }
    }
}
