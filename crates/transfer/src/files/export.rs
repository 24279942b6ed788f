//! `frond export`.

use std::path::Path;

use frond_bson::{Doc, DocBuf, doc, extjson};
use frond_client::{Client, Collection, CursorRequest};

use super::archive;
use super::buckets;
use super::dump::{self, Metadata};
use super::files_of::{self, Output};
use super::options::{ExportOptions, Format};
use super::table::Table;
use crate::error::{Error, Result};
use crate::inventory::{self, in_database};
use crate::names::{BUCKETS, Filter};
use crate::node::{Node, ServerInfo};
use crate::progress::Progress;
use crate::stop::Signals;
use crate::users;

/// Documents in a batch.
const BATCH: u32 = 2_000;

/// Which documents are read.
struct ExportQuery {
    filter: DocBuf,
    sort: Option<DocBuf>,
    projection: Option<DocBuf>,
    limit: u32,
}

/// Runs `frond export`.
pub fn run(options: &ExportOptions) -> Result<()> {
    let signals = Signals::listen()?;
    let node = Node::new(&options.common.uri, false, &signals.stop)?;
    let mut client = node.connect()?;
    let question = question(options)?;
    let format = options.common.format(&options.out);
    let database = options.common.db.as_deref().or(node.database());
    let export = Export {
        options,
        signals: &signals,
        question,
    };
    match format {
        Format::Dump | Format::Archive => export.all(&mut client, format, database),
        Format::Json | Format::Csv | Format::Tsv | Format::Bson => {
            let collection = collection(database, options.common.collection.as_deref())?;
            export.one(&mut client, format, &collection)
        }
    }
}

/// The one collection that is meant.
pub fn collection(database: Option<&str>, name: Option<&str>) -> Result<Collection> {
    match (database, name) {
        (Some(database), Some(name)) => Ok(Collection::new(database, name)?),
        _ => Err(Error::Usage(
            "--db and --collection must be given".to_owned(),
        )),
    }
}

fn parsed(name: &str, text: Option<&str>) -> Result<Option<DocBuf>> {
    text.map(|text| extjson::parse(text).map_err(|error| Error::Usage(format!("{name}: {error}"))))
        .transpose()
}

fn question(options: &ExportOptions) -> Result<ExportQuery> {
    let format = options.common.format(&options.out);
    let mut projection = None;
    if !options.common.fields.is_empty() {
        let mut fields = DocBuf::new();
        for field in &options.common.fields {
            fields.push(field, 1);
        }
        let names_id = options
            .common
            .fields
            .iter()
            .any(|field| field == "_id" || field.starts_with("_id."));
        if matches!(format, Format::Csv | Format::Tsv) && !names_id {
            fields.push("_id", 0);
        }
        projection = Some(fields);
    }
    if format == Format::Bson && (options.canonical || options.common.json_array) {
        return Err(Error::Usage(
            "--canonical and --jsonArray are for JSON".to_owned(),
        ));
    }
    if options.buckets && !matches!(format, Format::Dump | Format::Archive) {
        return Err(Error::Usage(
            "--buckets is for dumps and archives".to_owned(),
        ));
    }
    if matches!(format, Format::Dump | Format::Archive) {
        let unused = [
            (projection.is_some(), "--fields"),
            (options.sort.is_some(), "--sort"),
            (options.limit > 0, "--limit"),
            (options.canonical, "--canonical"),
            (options.common.json_array, "--jsonArray"),
        ];
        if let Some((_, name)) = unused.into_iter().find(|(given, _)| *given) {
            return Err(Error::Usage(format!(
                "{name} is not for dumps and archives"
            )));
        }
        if options.query.is_some() && options.common.collection.is_none() {
            return Err(Error::Usage("--query needs --collection".to_owned()));
        }
    }
    Ok(ExportQuery {
        filter: parsed("--query", options.query.as_deref())?.unwrap_or_default(),
        sort: parsed("--sort", options.sort.as_deref())?,
        projection,
        limit: options.limit,
    })
}

/// The collection that a dump names for the documents of a collection: a time series that is packed has its buckets.
fn documents_of(collection: &Collection, metadata: &Metadata) -> Collection {
    if !metadata.is_packed {
        return collection.clone();
    }
    in_database(
        &collection.database,
        &format!("{BUCKETS}{}", collection.name),
    )
}

struct Export<'a> {
    options: &'a ExportOptions,
    signals: &'a Signals,
    question: ExportQuery,
}

impl Export<'_> {
    /// Shows all documents that are asked for to `each`.
    fn read(
        &self,
        client: &mut Client,
        collection: &Collection,
        progress: &Progress,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<()> {
        let mut problem = None;
        let mut count = 0;
        let mut each = |document: &Doc| {
            count += 1;
            if let Err(error) = each(document) {
                problem = Some(error);
                return Err(frond_client::Error::Stopped);
            }
            Ok(())
        };
        let request = CursorRequest {
            collection,
            filter: &self.question.filter,
            projection: self.question.projection.as_deref(),
            sort: self.question.sort.as_deref(),
            limit: self.question.limit,
            batch: BATCH,
            tailable: false,
        };
        let read = (|| -> Result<()> {
            let mut cursor = client.open_find(&request, &mut each)?;
            while cursor.is_open() {
                self.signals.check()?;
                client.more(&mut cursor, None, &mut each)?;
            }
            Ok(())
        })();
        progress.add(count);
        problem.map_or(read, Err)
    }

    /// Shows all documents of a part of a dump to `each`, those of a time series that is packed as buckets.
    fn read_part(
        &self,
        client: &mut Client,
        (collection, metadata): (&Collection, &Metadata),
        progress: &Progress,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<()> {
        if !metadata.is_packed {
            return self.read(client, collection, progress, each);
        }
        let read = |take: &mut dyn FnMut(&Doc) -> Result<()>| {
            self.read(client, collection, progress, take)
        };
        buckets::pack(collection, metadata, read, each)
    }

    fn one(&self, client: &mut Client, format: Format, collection: &Collection) -> Result<()> {
        let common = &self.options.common;
        let total = if self.options.query.is_none() && self.options.limit == 0 {
            client.count(collection)?
        } else {
            0
        };
        let progress = Progress::new("exporting", total, common.quiet);
        let mut out = Output::create(&self.options.out, common.gzip)?;
        if format == Format::Bson {
            self.read(client, collection, &progress, &mut |document| {
                out.put(document.as_bytes())
            })?;
        } else if format == Format::Json {
            let mut text = String::new();
            let mut is_first = true;
            if common.json_array {
                out.put(b"[")?;
            }
            self.read(client, collection, &progress, &mut |document| {
                text.clear();
                if common.json_array && !is_first {
                    text.push(',');
                    text.push('\n');
                }
                is_first = false;
                text.push_str(&if self.options.canonical {
                    extjson::to_canonical(document)
                } else {
                    extjson::to_relaxed(document)
                });
                if !common.json_array {
                    text.push('\n');
                }
                out.put(text.as_bytes())
            })?;
            if common.json_array {
                out.put(b"]\n")?;
            }
        } else {
            let mut table = Table::new(
                out,
                format == Format::Tsv,
                &common.fields,
                !self.options.no_header_line,
            )?;
            self.read(client, collection, &progress, &mut |document| {
                table.put(document)
            })?;
            out = table.into_inner()?;
        }
        out.finish()?;
        progress.finish();
        Ok(())
    }

    fn all(&self, client: &mut Client, format: Format, database: Option<&str>) -> Result<()> {
        let common = &self.options.common;
        let filter = Filter::new(&common.include, &common.exclude);
        let mut all = Vec::new();
        let mut total = 0;
        for listed in inventory::all(client, &filter)? {
            let is_meant = database.is_none_or(|database| database == listed.collection.database)
                && common
                    .collection
                    .as_ref()
                    .is_none_or(|name| *name == listed.collection.name);
            if !is_meant {
                continue;
            }
            dump::check_names(&listed.collection)?;
            let mut metadata = Metadata {
                options: listed.options.clone(),
                indexes: Vec::new(),
                is_view: listed.is_view,
                is_packed: false,
            };
            metadata.is_packed = self.options.buckets && metadata.is_series();
            if !listed.is_view {
                metadata.indexes = inventory::indexes(client, &listed.collection)?;
                total += inventory::size(client, &listed.collection)?.documents;
            }
            all.push((listed.collection, metadata));
        }
        if all.is_empty() {
            return Err(Error::Usage("there is no such collection".to_owned()));
        }
        let mut accounts = None;
        let mut left_out = None;
        if !common.no_users && filter.is_open() && database.is_none() {
            accounts = match users::read(client) {
                Ok(accounts) => Some(accounts).filter(|accounts| !accounts.is_empty()),
                Err(error) if error.is_refusal() => {
                    left_out = Some(error);
                    None
                }
                Err(error) => return Err(error),
            };
        }
        // The Database Tools look at the version of users and roles before they restore them.
        let versions = doc! { "_id": "authSchema", "currentVersion": 5 };
        let mut accounts_of = Vec::new();
        if let Some(accounts) = accounts {
            accounts_of.push(("system.users", accounts.users));
            accounts_of.push(("system.roles", accounts.roles));
            accounts_of.push(("system.version", vec![versions]));
        }
        let progress = Progress::new("exporting", total, common.quiet);
        match format {
            Format::Archive => self.archive(client, &all, &accounts_of, &progress)?,
            _ => self.dump(client, &all, &accounts_of, &progress)?,
        }
        progress.finish();
        match left_out {
            Some(error) => Err(Error::Refused(format!(
                "all but users and roles is exported, which the server does not show ({error}); --no-users leaves them out"
            ))),
            None => Ok(()),
        }
    }

    fn archive(
        &self,
        client: &mut Client,
        all: &[(Collection, Metadata)],
        accounts: &[(&str, Vec<DocBuf>)],
        progress: &Progress,
    ) -> Result<()> {
        let version = ServerInfo::ask(client)?.version;
        let version = version.split(' ').next().unwrap_or_default();
        let out = Output::create(&self.options.out, self.options.common.gzip)?;
        let mut with_accounts = all.to_vec();
        for (name, _) in accounts {
            with_accounts.push((in_database("admin", name), Metadata::default()));
        }
        let mut writer = archive::Writer::begin(out, version, &with_accounts)?;
        for (collection, metadata) in all {
            if metadata.is_view {
                continue;
            }
            let of_documents = documents_of(collection, metadata);
            self.read_part(client, (collection, metadata), progress, &mut |document| {
                writer.put(&of_documents, document)
            })?;
            writer.end(&of_documents)?;
        }
        for (name, documents) in accounts {
            let collection = in_database("admin", name);
            for document in documents {
                writer.put(&collection, document)?;
            }
            writer.end(&collection)?;
        }
        writer.finish()
    }

    fn dump(
        &self,
        client: &mut Client,
        all: &[(Collection, Metadata)],
        accounts: &[(&str, Vec<DocBuf>)],
        progress: &Progress,
    ) -> Result<()> {
        let folder = &self.options.out;
        if folder.as_os_str() == "-" {
            return Err(Error::Usage(
                "--out must name the folder of the dump".to_owned(),
            ));
        }
        files_of::create_root(folder)?;
        for (collection, metadata) in all {
            self.write_metadata(folder, collection, metadata)?;
            if metadata.is_view {
                continue;
            }
            let of_documents = documents_of(collection, metadata);
            let mut out = self.create(folder, &of_documents, "bson")?;
            self.read_part(client, (collection, metadata), progress, &mut |document| {
                out.put(document.as_bytes())
            })?;
            out.finish()?;
        }
        for (name, documents) in accounts {
            let collection = in_database("admin", name);
            self.write_metadata(folder, &collection, &Metadata::default())?;
            let mut out = self.create(folder, &collection, "bson")?;
            for document in documents {
                out.put(document.as_bytes())?;
            }
            out.finish()?;
        }
        Ok(())
    }

    /// Creates a file of a collection in the folder of a dump.
    fn create(&self, folder: &Path, collection: &Collection, ending: &str) -> Result<Output> {
        let gzip = self.options.common.gzip;
        let gz = if gzip { ".gz" } else { "" };
        let ending = format!("{ending}{gz}");
        Output::create_inside(&dump::create_path(folder, collection, &ending)?, gzip)
    }

    fn write_metadata(
        &self,
        folder: &Path,
        collection: &Collection,
        metadata: &Metadata,
    ) -> Result<()> {
        let mut out = self.create(folder, collection, "metadata.json")?;
        out.put(metadata.to_text(collection).as_bytes())?;
        out.finish()
    }
}
