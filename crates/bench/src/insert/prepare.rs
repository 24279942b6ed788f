//! Before and after the clock runs: the collection, its indexes, and whether all documents are in.

use frond_bson::{Doc, DocBuf, doc};

use super::{Options, Plan};
use crate::client::{Client, Dialect, WriteConcern};
use crate::document::Generator;
use crate::error::{Error, Result};

/// MongoDB's code for a collection that does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// Checks the settings against the server's limits and makes the collection ready. Returns how
/// many documents it holds.
pub fn prepare(client: &mut Client, options: &Options, plan: &Plan) -> Result<u64> {
    check_limits(client, options, plan)?;
    if options.drop {
        drop_collection(client, plan)?;
    }
    let already = count(client, plan)?;
    if already > 0 && !options.keep {
        return Err(Error::Settings(format!(
            "{}.{} holds {already} documents: --drop drops them, --keep keeps them",
            plan.database, plan.collection
        )));
    }
    create_indexes(client, options, plan)?;
    Ok(already)
}

fn check_limits(client: &Client, options: &Options, plan: &Plan) -> Result<()> {
    let limits = client.limits();
    let batch = options.batch as usize;
    if batch > limits.batch_documents {
        return Err(Error::Settings(format!(
            "--batch {batch} is more than the {} documents that this server takes at once",
            limits.batch_documents
        )));
    }
    // An element of an array costs up to ten bytes more than the document.
    let bytes = batch * (Generator::new(0, options.elements as usize).document_bytes() + 10) + 1024;
    let most = match Dialect::choose(limits.wire_version, plan.acknowledged) {
        Dialect::QueryCommand => limits.document_bytes,
        Dialect::Message | Dialect::Opcode => limits.message_bytes,
    };
    if bytes > most {
        return Err(Error::Settings(format!(
            "--batch {batch} makes messages of {bytes} bytes; this server takes {most}"
        )));
    }
    Ok(())
}

fn drop_collection(client: &mut Client, plan: &Plan) -> Result<()> {
    let mut command = DocBuf::new();
    command.push("drop", plan.collection.as_str());
    match client.command(&plan.database, &command) {
        Err(Error::Server { code, message, .. })
            if code == NAMESPACE_NOT_FOUND || message == "ns not found" =>
        {
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

/// Documents in the collection. Old servers report an error for one that does not exist.
fn count(client: &mut Client, plan: &Plan) -> Result<u64> {
    let mut command = DocBuf::new();
    command.push("count", plan.collection.as_str());
    match client.command(&plan.database, &command) {
        Ok(reply) => number_counted(&reply),
        Err(Error::Server { code, message, .. })
            if code == NAMESPACE_NOT_FOUND || message == "ns missing" =>
        {
            Ok(0)
        }
        Err(error) => Err(error),
    }
}

fn number_counted(reply: &Doc) -> Result<u64> {
    reply
        .get_i64("n")
        .and_then(|n| u64::try_from(n).ok())
        .ok_or_else(|| Error::Protocol("count without n".to_owned()))
}

fn create_indexes(client: &mut Client, options: &Options, plan: &Plan) -> Result<()> {
    let fields = options.indexed_fields();
    if fields.is_empty() {
        return Ok(());
    }
    let concern = WriteConcern {
        acknowledged: true,
        journal: false,
    };
    if Dialect::choose(client.limits().wire_version, true) == Dialect::Opcode {
        // Before the command existed an index was made by inserting its description.
        let namespace = format!("{}.{}", plan.database, plan.collection);
        let target = client.insert_target(&plan.database, "system.indexes", concern);
        for field in fields {
            let mut index = index_on(field);
            index.push("ns", namespace.as_str());
            let mut message = Vec::new();
            let bytes = index.as_bytes();
            let id = client.build_insert(&target, bytes, bytes.len(), &mut message)?;
            client.send(&message)?;
            client.insert_reply(&target, id, 1)?;
        }
        return Ok(());
    }
    let mut command = DocBuf::new();
    command.push("createIndexes", plan.collection.as_str());
    command.push_array("indexes", |indexes| {
        for field in fields {
            indexes.push(&index_on(field));
        }
    });
    client.command(&plan.database, &command)?;
    Ok(())
}

fn index_on(field: &str) -> DocBuf {
    let mut index = DocBuf::new();
    index.push_doc("key", |key| key.push(field, 1));
    index.push("name", format!("{field}_1").as_str());
    index
}

/// Asks the server whether all documents are in. This is what a run without acknowledgement has
/// to show for itself.
pub fn check_count(client: &mut Client, plan: &Plan, expected: u64) -> Result<()> {
    let counted = count(client, plan)?;
    if counted == expected {
        return Ok(());
    }
    let last_error = client
        .command(&plan.database, &doc! { "ping": 1 })
        .err()
        .map_or_else(String::new, |error| format!("; {error}"));
    Err(Error::Protocol(format!(
        "the collection holds {counted} documents instead of {expected}{last_error}"
    )))
}
