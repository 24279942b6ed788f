//! `frond import` of dumps and archives.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use frond_bson::Doc;
use frond_client::{Client, Collection};

use super::archive::{self, Next};
use super::buckets::{SeriesFields, Unpacker};
use super::choice::{Choice, Chooser, LeftOut, NO_DOCUMENTS, OF_UNKNOWN_SERIES, is_oplog};
use super::dump::{self, Metadata, Part};
use super::files_of;
use super::job::Job;
use super::options::Mode;
use super::replay::{self, Replay};
use super::sink::{Sink, Written};
use crate::error::{Error, Result};
use crate::names;
use crate::progress::Progress;
use crate::schema::{self, Refusal};
use crate::users::{self, Accounts};

/// Bytes of users and roles, which are held in memory until the end.
const ACCOUNT_BYTES_MAX: usize = 256 << 20;

/// Why the oplog of a dump is left out.
const NOT_REPLAYED: &str = "changes from while the dump was made; --oplogReplay applies them";

/// Result of restoring a dump.
#[derive(Debug, Default)]
pub struct Done {
    pub written: Written,
    /// Buckets of MongoDB whose measurements are among the documents.
    pub unpacked: u64,
    /// Entries of the oplog that were applied.
    pub replayed: u64,
    /// All that the server has not taken, or that could not be imported.
    pub refused: Vec<Refusal>,
}

/// An import of a dump or an archive.
pub struct Restore<'a> {
    job: &'a Job<'a>,
    database: Option<&'a str>,
    chooser: Chooser,
    /// Collections and views that are imported.
    parts: Vec<(Collection, Metadata)>,
    /// Time series whose documents are buckets. Entries of the oplog about buckets cannot be applied.
    with_buckets: HashSet<Collection>,
    unpacker: Unpacker,
    accounts: Accounts,
    account_bytes: usize,
    left_out: LeftOut,
    done: Done,
}

impl<'a> Restore<'a> {
    /// An import of all that the options choose.
    pub fn new(job: &'a Job<'a>, database: Option<&'a str>) -> Result<Restore<'a>> {
        let options = job.options;
        if options.oplog_replay && options.mode != Mode::Insert {
            return Err(Error::Usage("--oplogReplay needs --mode insert".to_owned()));
        }
        Ok(Restore {
            job,
            database,
            chooser: Chooser::new(options, database),
            parts: Vec::new(),
            with_buckets: HashSet::new(),
            unpacker: Unpacker::new(options.stop_on_error),
            accounts: Accounts::default(),
            account_bytes: 0,
            left_out: LeftOut::default(),
            done: Done::default(),
        })
    }

    /// Creates a collection, unless it is there.
    fn create(&mut self, client: &mut Client, at: usize) -> Result<()> {
        let Some((collection, metadata)) = self.parts.get(at) else {
            return Ok(());
        };
        if self.job.options.drop {
            schema::drop(client, collection)?;
        } else if schema::find(client, collection)?.is_some() {
            return Ok(());
        }
        match schema::create(client, &metadata.listed(collection)) {
            Err(error) if error.is_refusal() => {
                self.done.refused.push(Refusal {
                    what: collection.to_string(),
                    why: error.to_string(),
                });
                Ok(())
            }
            other => other,
        }
    }

    pub fn dump(mut self, progress: &Progress) -> Result<Done> {
        let folder = dump::read(&self.job.options.file, self.database)?;
        if self.chooser.takes_whole_databases() {
            let unknown = folder.unknown.iter().map(|path| Refusal {
                what: path.display().to_string(),
                why: "the file is no part of a dump".to_owned(),
            });
            self.done.refused.extend(unknown);
        }
        let mut files: Vec<(Collection, PathBuf)> = Vec::new();
        for part in folder.parts {
            files.extend(self.take_part(part)?);
        }
        self.check_parts(folder.oplog.is_some())?;
        self.create_collections()?;
        let job = self.job;
        let written = job.run("document", progress, |sink| {
            for (collection, path) in &files {
                let series = self.series(collection);
                let mut number = 0;
                files_of::each_document(path, &mut |document| {
                    number += 1;
                    job.signals.check()?;
                    self.put(collection, series.as_ref(), document, number, sink)
                })?;
            }
            Ok(())
        })?;
        self.done.written = written;
        if let Some(path) = folder.oplog {
            self.oplog_of_folder(&path)?;
        }
        self.finish()
    }

    /// Chooses what is done with a part of a folder. Returns the file of the documents that are imported.
    fn take_part(&mut self, part: Part) -> Result<Option<(Collection, PathBuf)>> {
        let choice = self.chooser.choose(&part.collection);
        let path = part.documents.as_deref();
        match choice {
            Choice::Nothing | Choice::Oplog => {}
            Choice::LeftOut(why) => self.leave_out(&part.collection, path, why)?,
            Choice::Users | Choice::Roles => {
                if let Some(path) = path {
                    files_of::each_document(path, &mut |document| self.account(choice, document))?;
                }
            }
            Choice::Import => {
                let metadata = part.metadata.unwrap_or_default();
                if part.of_buckets && !metadata.is_series() {
                    self.leave_out(&part.collection, path, OF_UNKNOWN_SERIES)?;
                    self.with_buckets.insert(part.collection);
                    return Ok(None);
                }
                if path.is_none() && !metadata.is_view {
                    self.done.refused.push(Refusal {
                        what: format!("documents of {}", part.collection),
                        why: NO_DOCUMENTS.to_owned(),
                    });
                }
                self.parts.push((part.collection.clone(), metadata));
                return Ok(part.documents.map(|path| (part.collection, path)));
            }
        }
        Ok(None)
    }

    /// The fields of a collection that is a time series.
    fn series(&self, collection: &Collection) -> Option<SeriesFields> {
        let mut parts = self.parts.iter();
        let (_, metadata) = parts.find(|(part, _)| part == collection)?;
        SeriesFields::from_metadata(metadata)
    }

    /// Sends a document to the server: a bucket of a time series as its measurements.
    fn put(
        &mut self,
        collection: &Collection,
        series: Option<&SeriesFields>,
        document: &Doc,
        number: u64,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let Some(fields) = series else {
            return sink.put(collection, document, number);
        };
        let is_bucket = (self.unpacker).put(collection, fields, document, number, sink)?;
        if is_bucket && !self.with_buckets.contains(collection) {
            self.with_buckets.insert(collection.clone());
        }
        Ok(())
    }

    /// Counts the documents of a file that is left out.
    fn leave_out(&mut self, collection: &Collection, path: Option<&Path>, why: &str) -> Result<()> {
        let mut documents = 0;
        if let Some(path) = path {
            files_of::each_document(path, &mut |_| {
                documents += 1;
                self.job.signals.check()
            })?;
        }
        self.left_out.add(&collection.to_string(), why, documents);
        Ok(())
    }

    fn account(&mut self, choice: Choice, document: &Doc) -> Result<()> {
        self.account_bytes += document.len_bytes();
        if self.account_bytes > ACCOUNT_BYTES_MAX {
            return Err(Error::Data(format!(
                "the users and roles have more than {ACCOUNT_BYTES_MAX} bytes; --no-users leaves them out"
            )));
        }
        match choice {
            Choice::Users => self.accounts.users.push(document.to_owned()),
            _ => self.accounts.roles.push(document.to_owned()),
        }
        Ok(())
    }

    /// Checks that there is something to import.
    fn check_parts(&self, has_oplog: bool) -> Result<()> {
        let replays = self.job.options.oplog_replay;
        if replays && !has_oplog {
            return Err(Error::Usage(
                "the dump has no oplog, which mongodump --oplog adds: go on without --oplogReplay"
                    .to_owned(),
            ));
        }
        if !replays && self.has_nothing() {
            return Err(nothing_chosen());
        }
        Ok(())
    }

    /// Whether the options choose nothing of the dump.
    fn has_nothing(&self) -> bool {
        !self.chooser.is_open()
            && self.parts.is_empty()
            && self.accounts.is_empty()
            && self.left_out.refusals().next().is_none()
    }

    fn create_collections(&mut self) -> Result<()> {
        let mut client = self.job.node.connect()?;
        for at in 0..self.parts.len() {
            if (self.parts.get(at)).is_some_and(|(_, metadata)| !metadata.is_view) {
                self.create(&mut client, at)?;
            }
        }
        Ok(())
    }

    fn oplog_of_folder(&mut self, path: &Path) -> Result<()> {
        if !self.job.options.oplog_replay {
            let mut entries = 0;
            files_of::each_document(path, &mut |entry| {
                entries += u64::from(replay::is_meant(entry, &self.chooser));
                Ok(())
            })?;
            self.left_out.add("the oplog", NOT_REPLAYED, entries);
            return Ok(());
        }
        let signals = self.job.signals;
        let mut replay = self.replay()?;
        files_of::each_document(path, &mut |entry| {
            signals.check()?;
            replay.entry(entry)
        })?;
        self.done.replayed = replay.finish()?;
        Ok(())
    }

    fn replay(&mut self) -> Result<Replay<'_>> {
        Ok(Replay::new(
            self.job.node.connect()?,
            &self.chooser,
            &mut self.parts,
            &mut self.with_buckets,
            &mut self.left_out,
        ))
    }

    pub fn archive(mut self, progress: &Progress) -> Result<Done> {
        let job = self.job;
        let (mut reader, listed) = archive::Reader::begin(files_of::open(&job.options.file)?)?;
        let mut sorter = Sorter {
            client: job.node.connect()?,
            targets: HashMap::new(),
        };
        let has_oplog = listed.iter().any(|(collection, _)| is_oplog(collection));
        for (collection, metadata) in listed {
            if self.chooser.choose(&collection) == Choice::Import {
                self.parts.push((collection, metadata));
            }
        }
        if job.options.oplog_replay {
            self.check_parts(has_oplog)?;
        }
        self.create_collections()?;
        let mut first_entry = None;
        let written = job.run("document", progress, |sink| {
            while let Some(next) = reader.next()? {
                let Next::Document(from, document) = next else {
                    continue;
                };
                job.signals.check()?;
                if job.options.oplog_replay && is_oplog(from) {
                    first_entry = Some(document.to_owned());
                    return Ok(());
                }
                self.sort(&mut sorter, from, document, sink)?;
            }
            Ok(())
        })?;
        self.done.written = written;
        if first_entry.is_none() && self.has_nothing() {
            return Err(nothing_chosen());
        }
        if let Some(first) = first_entry {
            self.oplog_of_archive(&first, &mut reader)?;
        }
        for collection in reader.unfinished() {
            if self.chooser.choose(collection) != Choice::Nothing {
                self.done.refused.push(Refusal {
                    what: format!("documents of {collection}"),
                    why: "the archive ends before they do".to_owned(),
                });
            }
        }
        self.finish()
    }

    /// Sends a document of an archive to where it belongs.
    fn sort(
        &mut self,
        sorter: &mut Sorter,
        from: &Collection,
        document: &Doc,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        if !sorter.targets.contains_key(from) {
            let target = self.target_of(from, &mut sorter.client)?;
            sorter.targets.insert(from.clone(), (target, 0));
        }
        let Some((target, number)) = sorter.targets.get_mut(from) else {
            return Ok(());
        };
        *number += 1;
        match target {
            Target::Nothing => {}
            Target::Oplog => {
                let entries = u64::from(replay::is_meant(document, &self.chooser));
                self.left_out.add("the oplog", NOT_REPLAYED, entries);
            }
            Target::Account(choice) => self.account(*choice, document)?,
            Target::LeftOut(what, why) => self.left_out.add(what, why, 1),
            Target::Collection(to, series) => {
                self.put(to, series.as_ref(), document, *number, sink)?;
            }
        }
        Ok(())
    }

    /// The target of the documents of a collection of an archive.
    fn target_of(&mut self, from: &Collection, client: &mut Client) -> Result<Target> {
        let series = names::series_of(from);
        let to = series.as_ref().unwrap_or(from);
        let choice = self.chooser.choose(to);
        if choice != Choice::Import {
            return Ok(match choice {
                Choice::Users | Choice::Roles => Target::Account(choice),
                Choice::LeftOut(why) => Target::LeftOut(from.to_string(), why),
                Choice::Oplog => Target::Oplog,
                Choice::Nothing | Choice::Import => Target::Nothing,
            });
        }
        let known = self.parts.iter().find(|(part, _)| part == to);
        let is_series = known.is_some_and(|(_, metadata)| metadata.is_series());
        if series.is_some() && !is_series {
            return Ok(Target::LeftOut(to.to_string(), OF_UNKNOWN_SERIES));
        }
        if known.is_none() {
            self.parts.push((to.clone(), Metadata::default()));
            self.create(client, self.parts.len() - 1)?;
        }
        Ok(Target::Collection(to.clone(), self.series(to)))
    }

    fn oplog_of_archive(&mut self, first: &Doc, reader: &mut archive::Reader) -> Result<()> {
        let signals = self.job.signals;
        let mut replay = self.replay()?;
        replay.entry(first)?;
        while let Some(next) = reader.next()? {
            let Next::Document(from, entry) = next else {
                continue;
            };
            if !is_oplog(from) {
                return Err(Error::Data(format!(
                    "{from}: documents behind the oplog, which must be the last part of an archive"
                )));
            }
            signals.check()?;
            replay.entry(entry)?;
        }
        self.done.replayed = replay.finish()?;
        Ok(())
    }

    /// Builds indexes, and creates views, when all documents are there. Users and roles come last.
    fn finish(mut self) -> Result<Done> {
        let mut client = self.job.node.connect()?;
        for at in 0..self.parts.len() {
            let Some((collection, metadata)) = self.parts.get(at) else {
                continue;
            };
            if metadata.is_view {
                self.create(&mut client, at)?;
            } else if !self.job.options.no_indexes {
                let refused = schema::create_indexes(&mut client, collection, &metadata.indexes)?;
                self.done.refused.extend(refused);
            }
        }
        users::merge(&mut client, &self.accounts, false)?;
        self.done.refused.extend(self.left_out.refusals());
        self.done.unpacked = self.unpacker.unpacked;
        self.done.refused.extend(self.unpacker.refusals());
        Ok(self.done)
    }
}

fn nothing_chosen() -> Error {
    Error::Usage("the dump has no such collection".to_owned())
}

/// The treatment of the documents of an archive that are of one collection.
enum Target {
    Nothing,
    Oplog,
    Account(Choice),
    LeftOut(String, &'static str),
    /// A collection, and its fields if it is a time series.
    Collection(Collection, Option<SeriesFields>),
}

/// The documents of an archive come in any order of their collections.
struct Sorter {
    client: Client,
    /// Each target, and the number of documents.
    targets: HashMap<Collection, (Target, u64)>,
}
