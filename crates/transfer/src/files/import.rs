//! `frond import`.

use std::path::PathBuf;

use frond_bson::{Doc, DocBuf};
use frond_client::{Client, Collection};

use super::archive::{self, Next};
use super::dump::{self, Metadata};
use super::export::collection;
use super::files_of;
use super::json::Documents;
use super::options::{Format, ImportOptions, Mode};
use super::sink::{self, How, Sink, Written};
use super::table::Rows;
use crate::error::{Error, Result};
use crate::names::Filter;
use crate::node::Node;
use crate::progress::Progress;
use crate::schema;
use crate::stop::Signals;
use crate::users::{self, Accounts};

/// Runs `frond import`.
pub fn run(options: &ImportOptions) -> Result<()> {
    let signals = Signals::listen()?;
    let node = Node::new(&options.common.uri, false, &signals.stop)?;
    let how = How {
        mode: options.mode,
        key: options.upsert_fields.clone(),
        stop_on_error: options.stop_on_error,
        bypass_validation: options.bypass_validation,
    };
    let import = Import {
        options,
        signals: &signals,
        node: &node,
        how,
    };
    let format = options.common.format(&options.file);
    let database = options.common.db.as_deref().or(node.database());
    let progress = Progress::new("importing", 0, options.common.quiet);
    let (written, refused) = match format {
        Format::Dump => import.dump(database, &progress)?,
        Format::Archive => import.archive(database, &progress)?,
        Format::Json | Format::Csv | Format::Tsv => {
            let collection = collection(database, options.common.collection.as_deref())?;
            (import.one(format, &collection, &progress)?, Vec::new())
        }
    };
    progress.finish();
    if !options.common.quiet {
        eprintln!(
            "{} documents imported, {} refused",
            written.documents, written.refused
        );
    }
    if written.refused > 0 || !refused.is_empty() {
        let lines: Vec<String> = refused
            .iter()
            .map(|refusal: &schema::Refusal| format!("  {}: {}", refusal.what, refusal.why))
            .collect();
        return Err(Error::Refused(format!(
            "the server has refused {} documents and {} indexes or collections\n{}",
            written.refused,
            refused.len(),
            lines.join("\n")
        )));
    }
    Ok(())
}

struct Import<'a> {
    options: &'a ImportOptions,
    signals: &'a Signals,
    node: &'a Node,
    how: How,
}

type Done = (Written, Vec<schema::Refusal>);

impl Import<'_> {
    fn name(&self) -> String {
        match self.options.file.as_os_str() == "-" {
            true => "standard input".to_owned(),
            false => self.options.file.display().to_string(),
        }
    }

    fn run(
        &self,
        place: &str,
        progress: &Progress,
        reader: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    ) -> Result<Written> {
        sink::run(
            self.node,
            usize::from(self.options.jobs),
            &self.how,
            place,
            progress,
            reader,
        )
    }

    fn one(&self, format: Format, collection: &Collection, progress: &Progress) -> Result<Written> {
        let name = self.name();
        let file = files_of::open(&self.options.file)?;
        if self.options.drop {
            schema::drop(&mut self.node.connect()?, collection)?;
        }
        let place = format!("{name}, line");
        if format == Format::Json {
            let mut documents = Documents::new(
                file,
                &name,
                self.options.common.json_array,
                self.options.legacy,
            );
            return self.run(&place, progress, |sink| {
                while let Some((document, line)) = documents.next()? {
                    self.signals.check()?;
                    sink.put(collection, &document, line)?;
                }
                Ok(())
            });
        }
        let mut rows = Rows::new(file, &name, format == Format::Tsv, self.options)?;
        self.run(&place, progress, |sink| {
            while let Some((document, line)) = rows.next()? {
                self.signals.check()?;
                sink.put(collection, &document, line)?;
            }
            Ok(())
        })
    }

    /// The target of a collection of a dump, if it is selected.
    fn place(&self, from: &Collection, database: Option<&str>) -> Option<Collection> {
        let common = &self.options.common;
        let filter = Filter::new(&common.include, &common.exclude);
        let is_meant = filter.takes(from)
            && database.is_none_or(|database| database == from.database)
            && common
                .collection
                .as_ref()
                .is_none_or(|name| *name == from.name);
        is_meant.then(|| from.clone())
    }

    fn with_users(&self, database: Option<&str>) -> bool {
        let common = &self.options.common;
        let filter = Filter::new(&common.include, &common.exclude);
        !common.no_users && filter.is_open() && database.is_none() && self.how.mode == Mode::Insert
    }

    /// Creates a collection, unless it is there.
    fn create(
        &self,
        client: &mut Client,
        collection: &Collection,
        metadata: &Metadata,
    ) -> Result<Option<schema::Refusal>> {
        if self.options.drop {
            schema::drop(client, collection)?;
        } else if schema::find(client, collection)?.is_some() {
            return Ok(None);
        }
        let listed = metadata.listed(collection);
        match schema::create(client, &listed) {
            Err(error) if error.is_refusal() => Ok(Some(schema::Refusal {
                what: collection.to_string(),
                why: error.to_string(),
            })),
            other => other.map(|()| None),
        }
    }

    /// Builds indexes, and creates views, when all documents are there.
    fn finish(&self, parts: &[(Collection, Metadata)]) -> Result<Vec<schema::Refusal>> {
        let mut client = self.node.connect()?;
        let mut refused = Vec::new();
        for (collection, metadata) in parts {
            if metadata.is_view {
                refused.extend(self.create(&mut client, collection, metadata)?);
            } else if !self.options.no_indexes {
                refused.extend(schema::create_indexes(
                    &mut client,
                    collection,
                    &metadata.indexes,
                )?);
            }
        }
        Ok(refused)
    }

    fn merge(&self, accounts: &Accounts) -> Result<()> {
        users::merge(&mut self.node.connect()?, accounts, false)
    }

    fn dump(&self, database: Option<&str>, progress: &Progress) -> Result<Done> {
        let mut parts: Vec<(Collection, Metadata, Option<PathBuf>)> = Vec::new();
        let mut accounts = Accounts::default();
        let with_users = self.with_users(database);
        for part in dump::parts(&self.options.file, database)? {
            if let Some(list) = accounts_of(&part.collection, &mut accounts) {
                if with_users && let Some(path) = &part.documents {
                    each_document(path, &mut |document| {
                        list.push(document.to_owned());
                        Ok(())
                    })?;
                }
                continue;
            }
            if let Some(collection) = self.place(&part.collection, database) {
                parts.push((collection, part.metadata, part.documents));
            }
        }
        if parts.is_empty() && accounts.is_empty() {
            return Err(Error::Usage("the dump has no such collection".to_owned()));
        }
        let mut client = self.node.connect()?;
        let mut refused = Vec::new();
        for (collection, metadata, _) in parts.iter().filter(|(_, metadata, _)| !metadata.is_view) {
            refused.extend(self.create(&mut client, collection, metadata)?);
        }
        drop(client);
        let written = self.run("document", progress, |sink| {
            for (collection, _, path) in &parts {
                let Some(path) = path else {
                    continue;
                };
                let mut number = 0;
                each_document(path, &mut |document| {
                    number += 1;
                    self.signals.check()?;
                    sink.put(collection, document, number)
                })?;
            }
            Ok(())
        })?;
        let described: Vec<(Collection, Metadata)> = parts
            .into_iter()
            .map(|(collection, metadata, _)| (collection, metadata))
            .collect();
        refused.extend(self.finish(&described)?);
        self.merge(&accounts)?;
        Ok((written, refused))
    }

    fn archive(&self, database: Option<&str>, progress: &Progress) -> Result<Done> {
        let file = files_of::open(&self.options.file)?;
        let (mut reader, listed) = archive::Reader::begin(file)?;
        let mut accounts = Accounts::default();
        let with_users = self.with_users(database);
        let parts: Vec<(Collection, Metadata)> = listed
            .into_iter()
            .filter_map(|(collection, metadata)| {
                Some((self.place(&collection, database)?, metadata))
            })
            .collect();
        let mut client = self.node.connect()?;
        let mut refused = Vec::new();
        for (collection, metadata) in parts.iter().filter(|(_, metadata)| !metadata.is_view) {
            refused.extend(self.create(&mut client, collection, metadata)?);
        }
        drop(client);
        let written = self.run("document", progress, |sink| {
            let mut number = 0;
            while let Some(next) = reader.next()? {
                let Next::Document(collection, document) = next else {
                    number = 0;
                    continue;
                };
                self.signals.check()?;
                number += 1;
                if let Some(list) = accounts_of(collection, &mut accounts) {
                    if with_users {
                        list.push(document.to_owned());
                    }
                } else if parts.iter().any(|(part, _)| part == collection) {
                    sink.put(collection, document, number)?;
                }
            }
            Ok(())
        })?;
        refused.extend(self.finish(&parts)?);
        self.merge(&accounts)?;
        Ok((written, refused))
    }
}

/// The list for the documents of a collection of users or roles. Those of their version go nowhere.
fn accounts_of<'a>(
    collection: &Collection,
    accounts: &'a mut Accounts,
) -> Option<&'a mut Vec<DocBuf>> {
    match (collection.database.as_str(), collection.name.as_str()) {
        ("admin", "system.users") => Some(&mut accounts.users),
        ("admin", "system.roles") => Some(&mut accounts.roles),
        _ => None,
    }
}

fn each_document(path: &std::path::Path, each: &mut dyn FnMut(&Doc) -> Result<()>) -> Result<()> {
    let mut file = files_of::open(path)?;
    let mut buffer = Vec::new();
    let named = |error: Error| Error::Data(format!("{}: {error}", path.display()));
    while files_of::next_document(&mut *file, &mut buffer).map_err(named)? {
        each(Doc::from_trusted(&buffer))?;
    }
    Ok(())
}
