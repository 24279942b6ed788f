//! A repository: a directory with backups, and with the archive of the log.
//!
//! ```text
//! DIR/frond-repository           its format, and the lock of who writes to it
//! DIR/backups/ID/                a complete backup: part-*.frbk and backup.json
//! DIR/backups/ID.STORE.partial/  one that is being made, or was interrupted
//! DIR/log/STORE/POSITION.frbk    the archive of the log, with marks
//! ```

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use frond_bson::extjson;
use rustix::fs::{FlockOperation, flock};

use crate::description::{Description, Part, StoreId};
use crate::error::{Error, Result};
use crate::extent::{Extent, unpack};
use crate::files;
use crate::parts::{DESCRIPTION, part_name};
use crate::record::{Kind, Next, Records};

const FORMAT_FILE: &str = "frond-repository";
const FORMAT_TEXT: &str = "Frond backup repository, format 1\n";
const PARTIAL: &str = ".partial";

/// A directory with backups.
#[derive(Clone, Debug)]
pub struct Repository {
    path: PathBuf,
}

/// Keeps others from writing backups to a repository, or from archiving into it.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] File);

/// The writers of a repository. Backups and one archive can run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A backup.
    Backup,
    /// The archive of the log.
    Archive,
}

/// An interrupted backup.
#[derive(Debug)]
pub struct Partial {
    /// Its folder.
    pub folder: PathBuf,
    /// Its name when it is complete.
    pub id: String,
    /// Its files.
    pub parts: Vec<Part>,
    /// The extents that are there.
    pub extents: HashSet<Extent>,
}

impl Repository {
    /// Opens a repository, or makes one in a directory that is empty or does not exist.
    pub fn create(path: &Path) -> Result<Repository> {
        files::create_folder(path)?;
        let format = path.join(FORMAT_FILE);
        if !format.exists() {
            let others = files::names(path)?;
            if let Some(other) = others.iter().find(|name| !name.starts_with(FORMAT_FILE)) {
                return Err(Error::Refused(format!(
                    "{} is not a repository of backups, and not empty: it has {other}; name an empty directory, or a file that \
                     ends in .tar.zst",
                    path.display()
                )));
            }
            files::write_whole(&format, FORMAT_TEXT.as_bytes())?;
        }
        Repository::open(path)
    }

    /// Opens a repository that exists.
    pub fn open(path: &Path) -> Result<Repository> {
        let format = path.join(FORMAT_FILE);
        match fs::read_to_string(&format) {
            Ok(text) if text == FORMAT_TEXT => Ok(Repository {
                path: path.to_owned(),
            }),
            Ok(text) => Err(Error::Refused(format!(
                "{} has an unknown format ({}); use the version of frond that wrote it",
                path.display(),
                text.trim_end()
            ))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::Refused(format!(
                    "{} is not a repository of backups: it has no file {FORMAT_FILE}",
                    path.display()
                )))
            }
            Err(error) => Err(Error::io("reading", &format)(error)),
        }
    }

    /// Locks it for a writer. The lock ends with the process.
    pub fn lock(&self, writer: Writer) -> Result<Lock> {
        let (name, what) = match writer {
            Writer::Backup => ("backup.lock", "another backup is being made in"),
            Writer::Archive => ("archive.lock", "another archive runs in"),
        };
        let path = self.path.join(format!("{FORMAT_FILE}-{name}"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::io("creating", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(Error::Refused(format!("{what} {}", self.path.display())))
            }
            Err(error) => Err(Error::io("locking", &path)(error.into())),
        }
    }

    fn backups_path(&self) -> PathBuf {
        self.path.join("backups")
    }

    /// The folder of a complete backup.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.backups_path().join(id)
    }

    /// The folder of the archived log of a store.
    pub fn log_folder(&self, store_id: &StoreId) -> PathBuf {
        self.path.join("log").join(store_id.to_string())
    }

    /// All complete backups, the oldest first.
    pub fn list(&self) -> Result<Vec<Description>> {
        let mut found = Vec::new();
        for name in files::names(&self.backups_path())? {
            if name.ends_with(PARTIAL) {
                continue;
            }
            found.push(read_description(&self.folder(&name).join(DESCRIPTION))?);
        }
        found.sort_by(|a, b| (a.mark.time, &a.id).cmp(&(b.mark.time, &b.id)));
        Ok(found)
    }

    /// The stores whose log is archived.
    pub fn archived_stores(&self) -> Result<Vec<StoreId>> {
        let names = files::names(&self.path.join("log"))?;
        Ok(names
            .iter()
            .filter_map(|name| StoreId::parse(name))
            .collect())
    }

    /// Interrupted backups, and the one that is being made: their names and their stores.
    pub fn partials(&self) -> Result<Vec<(String, StoreId)>> {
        let names = files::names(&self.backups_path())?;
        let parse = |name: &String| {
            let (id, store) = name.strip_suffix(PARTIAL)?.rsplit_once('.')?;
            Some((id.to_owned(), StoreId::parse(store)?))
        };
        Ok(names.iter().filter_map(parse).collect())
    }

    fn partial_folder(&self, id: &str, store: &StoreId) -> PathBuf {
        self.backups_path().join(format!("{id}.{store}{PARTIAL}"))
    }

    /// A backup and its parents, the backup first.
    pub fn chain(&self, backup: &Description) -> Result<Vec<Description>> {
        let all = self.list()?;
        let mut chain = vec![backup.clone()];
        while let Some(parent) = chain.last().and_then(|one| one.parent.clone()) {
            let child = chain.last().map_or("", |one| &one.id).to_owned();
            let found = all.iter().find(|one| one.id == parent);
            let found = found.ok_or_else(|| {
                Error::Refused(format!(
                    "the backup {child} needs its parent {parent}, which is not in {}",
                    self.path.display()
                ))
            })?;
            if chain.iter().any(|one| one.id == found.id) {
                return Err(Error::Refused(format!(
                    "the backup {parent} is its own parent"
                )));
            }
            chain.push(found.clone());
        }
        Ok(chain)
    }

    /// All extents that a backup restores: the content of its list.
    pub fn extents(&self, backup: &Description) -> Result<Vec<Extent>> {
        let mut all = Vec::new();
        let mut body = Vec::new();
        for part in &backup.parts {
            let mut records = Records::open(&self.folder(&backup.id).join(&part.name))?;
            loop {
                match records.skip_to_next()? {
                    Next::Record(_, header) if header.kind == Kind::Extents => {
                        records.body(&header, &mut body)?;
                        all.extend(unpack(&body));
                    }
                    Next::Record(..) => {}
                    Next::End => break,
                    Next::Torn(at) => return Err(records.torn(at)),
                }
            }
        }
        match all.len() as u64 == backup.extents {
            true => Ok(all),
            false => Err(Error::Refused(format!(
                "the backup {} lists {} extents and should list {}: a part of it is missing",
                backup.id,
                all.len(),
                backup.extents
            ))),
        }
    }

    /// A new folder for a backup.
    pub fn begin(&self, id: &str, store: &StoreId) -> Result<PathBuf> {
        files::create_folder(&self.backups_path())?;
        let folder = self.partial_folder(id, store);
        fs::create_dir(&folder).map_err(Error::io("creating", &folder))?;
        files::sync_folder(&self.backups_path())?;
        Ok(folder)
    }

    /// Removes what an interrupted backup left.
    pub fn remove_partial(&self, id: &str, store: &StoreId) -> Result<()> {
        let folder = self.partial_folder(id, store);
        fs::remove_dir_all(&folder).map_err(Error::io("removing", &folder))
    }

    /// Reads what an interrupted backup has. Torn ends are cut off, and every extent is checked, since a crash of the machine may
    /// have lost some that were written last. Lists, heads and logs are dropped: the next attempt has its own.
    pub fn read_partial(&self, id: &str, store: &StoreId) -> Result<Partial> {
        let folder = self.partial_folder(id, store);
        let mut partial = Partial {
            folder: folder.clone(),
            id: id.to_owned(),
            parts: Vec::new(),
            extents: HashSet::new(),
        };
        for name in files::names(&folder)? {
            let path = folder.join(&name);
            if name != part_name(partial.parts.len() + 1) {
                // A copy that was not finished, or a part behind one that is missing.
                fs::remove_file(&path).map_err(Error::io("removing", &path))?;
                continue;
            }
            let kept = keep_extents(&path, &mut partial.extents)?;
            partial.parts.push(Part { name, bytes: kept });
        }
        Ok(partial)
    }
}

/// Rewrites a part so that it has only whole extents. Returns its new length.
fn keep_extents(path: &Path, extents: &mut HashSet<Extent>) -> Result<u64> {
    let mut records = Records::open(path)?;
    let temporary = path.with_extension("tmp");
    let created = File::create(&temporary).map_err(Error::io("creating", &temporary))?;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, created);
    let (mut body, mut kept, mut dropped) = (Vec::new(), 0, false);
    while let Next::Record(_, header) = records.next()? {
        match records.body(&header, &mut body) {
            Ok(()) => {}
            Err(Error::Damaged(..)) => {
                dropped = true;
                break;
            }
            Err(other) => return Err(other),
        }
        if header.kind != Kind::Extent {
            dropped = true;
            continue;
        }
        let written = out.write_all(&header.encode());
        let written = written.and_then(|()| out.write_all(&body));
        written.map_err(Error::io("writing", &temporary))?;
        kept += (crate::record::HEADER_BYTES + body.len()) as u64;
        extents.insert(Extent {
            offset: header.numbers[0],
            len: header.len,
            birth: header.numbers[1],
        });
    }
    let file = out.into_inner().map_err(|error| error.into_error());
    let file = file.map_err(Error::io("writing", &temporary))?;
    let len = path.metadata().map_err(Error::io("reading", path))?.len();
    if !dropped && len == kept {
        fs::remove_file(&temporary).map_err(Error::io("removing", &temporary))?;
        return Ok(kept);
    }
    file.sync_all().map_err(Error::io("writing", &temporary))?;
    files::rename(&temporary, path)?;
    Ok(kept)
}

/// Reads a description.
pub fn read_description(path: &Path) -> Result<Description> {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(Error::io("reading", path))?;
    let parsed = Description::parse(&text);
    parsed.map_err(|what| Error::Damaged(path.to_owned(), 0, what))
}

/// The name of a backup of this moment.
pub fn new_id(time: i64) -> String {
    let text = extjson::format_millis(time);
    text.replace(['-', ':', '.'], "")
}
