//! `--dry-run`: what the source holds, what the target does not take, and how long it may take.

use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_client::{Client, CursorRequest};

use super::feed::Position;
use super::options::Options;
use crate::error::{Error, Result};
use crate::inventory::{Listed, Size};
use crate::node::{Node, ServerInfo};
use crate::schema::{self, Refusal};
use crate::users;

/// Time for which documents are read to estimate the speed of the copy.
const SAMPLE_TIME: Duration = Duration::from_secs(2);

pub struct Plan<'a> {
    pub source: &'a Node,
    /// All that is moved, with its indexes and size.
    pub all: &'a [(Listed, Vec<DocBuf>, Size)],
    /// The position from which changes would be followed.
    pub position: &'a Position,
}

/// Prints the plan. Returns whether the target takes all of it.
pub fn run(
    plan: &Plan<'_>,
    options: &Options,
    source: &mut Client,
    target: &mut Client,
) -> Result<bool> {
    let from = ServerInfo::ask(source)?;
    let to = ServerInfo::ask(target)?;
    println!(
        "from: {} (version {})",
        plan.source.host_and_port(),
        from.version
    );
    println!("to:   version {}", to.version);
    if let Some(set) = &from.set_name {
        println!("the source is a member of the replica set {set}");
    }
    if from.is_router {
        println!("the source routes to the shards of a cluster; the target holds all of them");
    }
    let total = plan
        .all
        .iter()
        .fold(Size::default(), |sum, (_, _, size)| Size {
            documents: sum.documents + size.documents,
            bytes: sum.bytes + size.bytes,
        });
    println!();
    for (listed, indexes, size) in plan.all {
        if listed.is_view {
            println!("  {}: a view", listed.collection);
            continue;
        }
        let options = if listed.options.is_empty() {
            String::new()
        } else {
            format!(", {:?}", listed.options)
        };
        println!(
            "  {}: {} documents, {}, {} indexes besides _id{options}",
            listed.collection,
            size.documents,
            megabytes(size.bytes),
            indexes.len()
        );
    }
    println!();
    println!(
        "in all: {} documents, {}",
        total.documents,
        megabytes(total.bytes)
    );
    if let Some(rate) = read_rate(plan, source)? {
        let seconds = (total.documents as f64 / rate).max(1.0);
        println!(
            "the source delivers about {rate:.0} documents/s to one connection: at least {} with one job, less with {}",
            duration(seconds),
            options.jobs
        );
    }
    println!(
        "changes at the source would be learned by {}",
        plan.position.describe()
    );
    let mut hidden = None;
    let is_open = options.include.is_empty() && options.exclude.is_empty();
    if options.no_users || !is_open {
        println!("users and roles are left out (--no-users, --include or --exclude)");
    } else {
        match users::read(source) {
            Ok(accounts) => println!(
                "{} users, {} roles",
                accounts.users.len(),
                accounts.roles.len()
            ),
            Err(error) => hidden = Some(hidden_users(error)?),
        }
    }
    let described: Vec<(Listed, Vec<DocBuf>)> = plan
        .all
        .iter()
        .map(|(listed, indexes, _)| (listed.clone(), indexes.clone()))
        .collect();
    let mut refused = schema::try_all(target, &described)?;
    println!();
    if refused.is_empty() {
        println!("the target takes all collections, options, views and indexes");
    }
    refused.extend(hidden);
    if !refused.is_empty() {
        println!("what cannot be migrated:");
        print_refusals(&refused);
    }
    list(
        "commands that the source has run and the target does not know",
        &unknown_commands(source, target)?,
    );
    list(
        "stages that the source has run and the target does not count",
        &unknown_stages(source, target)?,
    );
    list(
        "server parameters that were set at the source and the target does not know",
        &unknown_parameters(source, target)?,
    );
    Ok(refused.is_empty())
}

/// Users and roles that the source does not show. Other errors than its refusal stay errors.
pub fn hidden_users(error: Error) -> Result<Refusal> {
    if !error.is_refusal() {
        return Err(error);
    }
    Ok(Refusal {
        what: "users and roles".to_owned(),
        why: format!("the source does not show them ({error}); --no-users leaves them out"),
    })
}

/// A line for each refusal.
pub fn print_refusals(refused: &[Refusal]) {
    for Refusal { what, why } in refused {
        println!("  {what}: {why}");
    }
}

fn list(title: &str, names: &[String]) {
    if !names.is_empty() {
        println!("{title}: {}", names.join(", "));
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}

/// Documents that one connection reads in a second, of the largest collection.
fn read_rate(plan: &Plan<'_>, client: &mut Client) -> Result<Option<f64>> {
    let largest = plan.all.iter().max_by_key(|(_, _, size)| size.documents);
    let Some((listed, ..)) =
        largest.filter(|(listed, _, size)| size.documents > 0 && !listed.is_view)
    else {
        return Ok(None);
    };
    let mut read = 0_u64;
    let mut each = |_: &Doc| {
        read += 1;
        Ok(())
    };
    let began = Instant::now();
    let request = CursorRequest {
        collection: &listed.collection,
        filter: Doc::empty(),
        projection: None,
        sort: None,
        limit: 0,
        batch: 10_000,
        tailable: false,
    };
    let mut cursor = client.open_find(&request, &mut each)?;
    while cursor.is_open() && began.elapsed() < SAMPLE_TIME {
        client.more(&mut cursor, None, &mut each)?;
    }
    client.close(cursor)?;
    Ok((read > 0).then(|| read as f64 / began.elapsed().as_secs_f64().max(1e-6)))
}

/// The reply of a command, or nothing if the server refuses it.
fn asked(client: &mut Client, command: &Doc) -> Result<DocBuf> {
    match client.command("admin", command).map_err(Error::from) {
        Err(error) if error.is_refusal() => Ok(DocBuf::new()),
        other => other,
    }
}

fn names_of<'a>(reply: &'a Doc, field: &str) -> Vec<&'a str> {
    reply
        .get_doc(field)
        .unwrap_or(Doc::empty())
        .iter()
        .map(|(name, _)| name)
        .collect()
}

fn unknown_commands(source: &mut Client, target: &mut Client) -> Result<Vec<String>> {
    let status = asked(source, &doc! { "serverStatus": 1 })?;
    let known = asked(target, &doc! { "listCommands": 1 })?;
    let known = names_of(&known, "commands");
    let metrics = status
        .get_doc("metrics")
        .and_then(|metrics| metrics.get_doc("commands"));
    if known.is_empty() {
        return Ok(Vec::new());
    }
    Ok(metrics
        .unwrap_or(Doc::empty())
        .iter()
        .filter(|(name, counts)| {
            let total = counts.as_doc().and_then(|counts| counts.get_f64("total"));
            total.unwrap_or(0.0) > 0.0
                && !name.starts_with('_')
                && *name != "<UNKNOWN>"
                && !known.iter().any(|known| known.eq_ignore_ascii_case(name))
        })
        .map(|(name, _)| name.to_owned())
        .collect())
}

fn unknown_stages(source: &mut Client, target: &mut Client) -> Result<Vec<String>> {
    let counters = |status: &Doc| {
        let metrics = status.get_doc("metrics").unwrap_or(Doc::empty());
        metrics
            .get_doc("aggStageCounters")
            .unwrap_or(Doc::empty())
            .to_owned()
    };
    let ran = counters(&asked(source, &doc! { "serverStatus": 1 })?);
    let known = counters(&asked(target, &doc! { "serverStatus": 1 })?);
    if known.is_empty() {
        return Ok(Vec::new());
    }
    Ok(ran
        .iter()
        .filter(|(name, count)| {
            count.as_f64().unwrap_or(0.0) > 0.0
                && !known.contains_key(name)
                && !name.starts_with("$_")
        })
        .map(|(name, _)| name.to_owned())
        .collect())
}

fn unknown_parameters(source: &mut Client, target: &mut Client) -> Result<Vec<String>> {
    let set = asked(source, &doc! { "getCmdLineOpts": 1 })?;
    let known = asked(target, &doc! { "getParameter": "*" })?;
    let set = set
        .get_doc("parsed")
        .and_then(|parsed| parsed.get_doc("setParameter"));
    Ok(set
        .unwrap_or(Doc::empty())
        .iter()
        .filter(|(name, _)| !known.is_empty() && !known.contains_key(name))
        .map(|(name, _)| name.to_owned())
        .collect())
}
