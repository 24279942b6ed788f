//! `frond import`.

use frond_bson::Doc;
use frond_client::Collection;

use super::export::collection;
use super::files_of;
use super::job::Job;
use super::json::Documents;
use super::options::{Format, ImportOptions};
use super::restore::{Done, Restore};
use super::sink::{How, Written};
use super::table::Rows;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::progress::Progress;
use crate::schema;
use crate::stop::Signals;

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
    let job = Job {
        options,
        signals: &signals,
        node: &node,
        how,
    };
    let format = options.common.format(&options.file);
    if options.oplog_replay && !matches!(format, Format::Dump | Format::Archive) {
        return Err(Error::Usage(
            "--oplogReplay is for dumps and archives".to_owned(),
        ));
    }
    let database = options.common.db.as_deref().or(node.database());
    let progress = Progress::new("importing", 0, options.common.quiet);
    let done = match format {
        Format::Dump => Restore::new(&job, database)?.dump(&progress)?,
        Format::Archive => Restore::new(&job, database)?.archive(&progress)?,
        Format::Json | Format::Csv | Format::Tsv | Format::Bson => {
            let collection = collection(database, options.common.collection.as_deref())?;
            Done {
                written: one(&job, format, &collection, &progress)?,
                ..Done::default()
            }
        }
    };
    progress.finish();
    if !options.common.quiet {
        report(&done);
    }
    match complaint(&done) {
        Some(text) => Err(Error::Refused(text)),
        None => Ok(()),
    }
}

fn report(done: &Done) {
    let Written {
        documents, refused, ..
    } = done.written;
    eprintln!("{documents} documents imported, {refused} refused");
    if done.unpacked > 0 {
        eprintln!("{} buckets of MongoDB unpacked", done.unpacked);
    }
    if done.replayed > 0 {
        eprintln!("{} entries of the oplog applied", done.replayed);
    }
}

/// All that was not imported, though it was meant.
fn complaint(done: &Done) -> Option<String> {
    let mut lines = Vec::new();
    if done.written.refused > 0 {
        lines.push(format!(
            "  {} documents that the server has refused",
            done.written.refused
        ));
    }
    for schema::Refusal { what, why } in &done.refused {
        lines.push(format!("  {what}: {why}"));
    }
    (!lines.is_empty()).then(|| format!("not imported:\n{}", lines.join("\n")))
}

fn one(
    job: &Job<'_>,
    format: Format,
    collection: &Collection,
    progress: &Progress,
) -> Result<Written> {
    let name = job.name();
    let mut file = files_of::open(&job.options.file)?;
    if job.options.drop {
        schema::drop(&mut job.node.connect()?, collection)?;
    }
    if format == Format::Bson {
        let place = format!("{name}, document");
        let named = |error: Error| Error::Data(format!("{name}: {error}"));
        return job.run(&place, progress, |sink| {
            let (mut document, mut number) = (Vec::new(), 0);
            while files_of::next_document(&mut *file, &mut document).map_err(named)? {
                number += 1;
                job.signals.check()?;
                sink.put(collection, Doc::from_trusted(&document), number)?;
            }
            Ok(())
        });
    }
    let place = format!("{name}, line");
    if format == Format::Json {
        let mut documents = Documents::new(
            file,
            &name,
            job.options.common.json_array,
            job.options.legacy,
        );
        return job.run(&place, progress, |sink| {
            while let Some((document, line)) = documents.next()? {
                job.signals.check()?;
                sink.put(collection, &document, line)?;
            }
            Ok(())
        });
    }
    let mut rows = Rows::new(file, &name, format == Format::Tsv, job.options)?;
    let written = job.run(&place, progress, |sink| {
        while let Some((document, line)) = rows.next()? {
            job.signals.check()?;
            sink.put(collection, &document, line)?;
        }
        Ok(())
    })?;
    if rows.left_out() > 0 {
        eprintln!("{} rows left out", rows.left_out());
    }
    Ok(written)
}
