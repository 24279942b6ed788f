//! A repository: a directory with backups, and with the archive of the log.
//!
//! ```text
//! DIR/frond-repository           its format, and the lock of who writes to it
//! DIR/backups/ID/                a complete backup: part-*.frbk and backup.json
//! DIR/backups/ID.STORE.partial/  one that is being made, or was interrupted
//! DIR/log/STORE/POSITION.frbk    the archive of the log, with marks
//! ```

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use frond_bson::extjson;
use rustix::fs::{FlockOperation, flock};

use crate::description::{Description, Part, StoreId};
use crate::error::{Error, Result};
use crate::extent::{Extent, unpack};
use crate::files;
use crate::parts::{DESCRIPTION, DESCRIPTION_BYTES_MAX, part_name};
use crate::record::{Kind, Next, Records};

const FORMAT_FILE: &str = "frond-repository";
const FORMAT_TEXT: &str = "Frond backup repository, format 1\n";
const FORMAT_BYTES_MAX: u64 = 4096;
const BACKUPS: &str = "backups";
const LOG: &str = "log";
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
    Backup,
    /// The archive of the log.
    Archive,
}

#[derive(Debug)]
pub struct Partial {
    pub folder: PathBuf,
    /// Its name when it is complete.
    pub id: String,
    pub parts: Vec<Part>,
    /// The extents that are there.
    pub extents: HashSet<Extent>,
}

impl Repository {
    /// Opens a repository, or makes one in a directory that is empty or does not exist.
    pub fn create(path: &Path) -> Result<Repository> {
        files::create_root(path)?;
        let format = path.join(FORMAT_FILE);
        if fs::symlink_metadata(&format).is_err() {
            let others = files::names_of_root(path)?;
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
        match files::read_text(&format, FORMAT_BYTES_MAX) {
            Ok(text) if text == FORMAT_TEXT => {
                for folder in [BACKUPS, LOG].map(|name| path.join(name)) {
                    frond_files::check_folder(&folder).map_err(Error::io("opening", &folder))?;
                }
                Ok(Repository {
                    path: path.to_owned(),
                })
            }
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
        let file = frond_files::append(&path).map_err(Error::io("creating", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(Error::Refused(format!("{what} {}", self.path.display())))
            }
            Err(error) => Err(Error::io("locking", &path)(error.into())),
        }
    }

    fn backups_path(&self) -> PathBuf {
        self.path.join(BACKUPS)
    }

    /// The folder of a complete backup.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.backups_path().join(id)
    }

    /// The folder of the archived log of a store.
    pub fn log_folder(&self, store_id: &StoreId) -> PathBuf {
        self.path.join(LOG).join(store_id.to_string())
    }

    /// All complete backups, the oldest first.
    pub fn list(&self) -> Result<Vec<Description>> {
        let mut found = Vec::new();
        for name in files::names(&self.backups_path())? {
            if name.ends_with(PARTIAL) {
                continue;
            }
            found.push(read_description(&self.folder(&name), &name)?);
        }
        found.sort_by(|a, b| (a.mark.time, &a.id).cmp(&(b.mark.time, &b.id)));
        Ok(found)
    }

    /// The stores whose log is archived.
    pub fn archived_stores(&self) -> Result<Vec<StoreId>> {
        let names = files::names(&self.path.join(LOG))?;
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
                        all.extend(unpack(&body)?);
                    }
                    Next::Record(..) => {}
                    Next::End => break,
                    Next::Torn(at) => return Err(records.torn(at)),
                }
            }
        }
        if all.len() as u64 == backup.extents {
            Ok(all)
        } else {
            Err(Error::Refused(format!(
                "the backup {} lists {} extents and should list {}: a part of it is missing",
                backup.id,
                all.len(),
                backup.extents
            )))
        }
    }

    /// A new folder for a backup.
    pub fn begin(&self, id: &str, store: &StoreId) -> Result<PathBuf> {
        files::create_folder(&self.backups_path())?;
        let folder = self.partial_folder(id, store);
        if !frond_files::create_folder(&folder).map_err(Error::io("creating", &folder))? {
            let what = format!("{} exists already", folder.display());
            return Err(Error::Refused(what));
        }
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
    let created = frond_files::replace(&temporary).map_err(Error::io("creating", &temporary))?;
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

/// Reads the description of a complete backup, whose name is that of its folder.
fn read_description(folder: &Path, name: &str) -> Result<Description> {
    frond_files::check_folder(folder).map_err(Error::io("reading", folder))?;
    let path = folder.join(DESCRIPTION);
    let text = files::read_text(&path, DESCRIPTION_BYTES_MAX);
    let parsed = Description::parse(&text.map_err(Error::io("reading", &path))?);
    let of_folder = parsed.and_then(|found| {
        if found.id == name {
            Ok(found)
        } else {
            Err(format!("it describes the backup {:?}", found.id))
        }
    });
    of_folder.map_err(|what| Error::Damaged(path, 0, what))
}

/// The name of a backup of this moment.
pub fn new_id(time: i64) -> String {
    let text = extjson::format_millis(time);
    text.replace(['-', ':', '.'], "")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::log_store::LogWriter;
    use crate::mark::Mark;
    use crate::parts::{FolderSink, Sink};

    const STORE: StoreId = StoreId([7; 16]);

    /// A repository with one backup.
    fn with_backup(path: &Path) -> Repository {
        let repository = Repository::create(path).unwrap();
        let folder = repository.begin("one", &STORE).unwrap();
        let mut sink = Box::new(FolderSink::new(&folder, &repository.folder("one"), vec![]));
        sink.put(Kind::Extents, [0; 3], &[]).unwrap();
        sink.finish(Description {
            id: "one".to_owned(),
            parent: None,
            store_id: STORE,
            generation: 1,
            finished: 1,
            mark: Mark {
                time: 1,
                until: 1,
                position: 1,
                stamp: None,
            },
            log_from: 0,
            log_end: 1,
            extents: 0,
            extent_bytes: 0,
            copied_bytes: 0,
            parts: vec![],
        })
        .unwrap();
        repository
    }

    /// Moves a file or folder elsewhere, and leaves a link to it.
    fn replace_by_link(path: &Path, elsewhere: &Path) {
        let to = elsewhere.join("moved");
        fs::rename(path, &to).unwrap();
        symlink(&to, path).unwrap();
    }

    fn refused<T>(result: Result<T>, what: &str) {
        match result {
            Ok(_) => panic!("{what}: it was followed"),
            Err(error) => assert!(
                error.to_string().contains("symbolic link"),
                "{what}: {error}"
            ),
        }
    }

    #[test]
    fn links_in_a_repository_are_refused() {
        for name in [
            "frond-repository",
            "backups",
            "backups/one",
            "backups/one/backup.json",
            "backups/one/part-000001.frbk",
            "log",
        ] {
            let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let repository = with_backup(root.path());
            LogWriter::open(&repository.log_folder(&STORE)).unwrap();
            replace_by_link(&root.path().join(name), elsewhere.path());
            let read = Repository::open(root.path()).and_then(|repository| {
                let all = repository.list()?;
                repository.extents(&all[0])
            });
            refused(read, name);
        }
    }

    #[test]
    fn nothing_is_written_through_links_of_a_repository() {
        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("target");
        let root = tempfile::tempdir().unwrap();
        let repository = with_backup(root.path());
        symlink(&target, root.path().join("frond-repository-backup.lock")).unwrap();
        refused(repository.lock(Writer::Backup), "the lock");
        symlink(&target, repository.partial_folder("two", &STORE)).unwrap();
        refused(repository.begin("two", &STORE), "the folder of a backup");
        refused(repository.read_partial("two", &STORE), "an interrupted one");
        fs::create_dir(root.path().join("log")).unwrap();
        symlink(&target, repository.log_folder(&STORE)).unwrap();
        refused(LogWriter::open(&repository.log_folder(&STORE)), "the log");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_repository_may_be_named_by_a_link() {
        let (root, links) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        with_backup(root.path());
        let link = links.path().join("link");
        symlink(root.path(), &link).unwrap();
        let repository = Repository::create(&link).unwrap();
        assert_eq!(repository.list().unwrap().len(), 1);
    }

    #[test]
    fn a_backup_has_the_name_of_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let repository = with_backup(root.path());
        fs::rename(repository.folder("one"), repository.folder("two")).unwrap();
        let error = repository.list().unwrap_err().to_string();
        assert!(error.contains("it describes the backup \"one\""), "{error}");
    }

    #[test]
    fn files_of_a_repository_are_for_the_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/repository");
        let repository = with_backup(&path);
        let _lock = repository.lock(Writer::Archive).unwrap();
        let mut log = LogWriter::open(&repository.log_folder(&STORE)).unwrap();
        log.piece(1, 2, &[1]).unwrap();
        let mut folders = vec![root.path().join("a")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            assert_eq!(mode(&folder), 0o700, "{}", folder.display());
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path)
                } else {
                    assert_eq!(mode(&path), 0o600, "{}", path.display());
                    files += 1;
                }
            }
        }
        assert_eq!(files, 5);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }
}
