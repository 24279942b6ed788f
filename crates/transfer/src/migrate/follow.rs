//! Following the source until the user switches over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_client::{Client, Collection};

use super::apply;
use super::changes::Change;
use super::compare::{Comparison, OnDifference};
use super::copy;
use super::feed::{Feed, Position};
use super::state::{Phase, State};
use crate::error::Result;
use crate::inventory::{self, Listed};
use crate::names::Filter;
use crate::node::Node;
use crate::progress::Progress;
use crate::schema::{self, Refusal};
use crate::stop::Signals;

/// Changes that are applied at once, at most.
const CHANGES: usize = 20_000;

/// Interval at which the lag of the target is printed.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Pause after a failed connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause between two passes.
const PASS_EVERY: Duration = Duration::from_secs(2);

/// Time after which unique keys that are still taken are an error, once all else is applied.
const TAKEN_LIMIT: Duration = Duration::from_secs(10);

/// The context of following.
pub struct Follower<'a> {
    pub source: &'a Node,
    pub target: &'a Node,
    /// Progress, stored in the target.
    pub state: &'a State,
    /// The options of the user.
    pub signals: &'a Signals,
    pub filter: &'a Filter,
    /// End when the target has caught up.
    pub cutover: bool,
    /// Threads of a pass.
    pub jobs: usize,
    pub quiet: bool,
}

/// The effect of the changes of one batch on a document.
enum ChangeEffect {
    Put(DocBuf),
    Stale,
    Gone,
}

/// Changes that are applied together: the last one of each document.
#[derive(Default)]
struct Batch {
    fates: HashMap<Collection, HashMap<Vec<u8>, ChangeEffect>>,
    count: usize,
}

impl Batch {
    fn add(&mut self, collection: Collection, id: Option<DocBuf>, fate: ChangeEffect) {
        if let Some(id) = id {
            self.fates
                .entry(collection)
                .or_default()
                .insert(id.into_vec(), fate);
            self.count += 1;
        }
    }
}

/// The two connections, and what waits.
struct Applier<'a> {
    follower: &'a Follower<'a>,
    source: Client,
    target: Client,
    batch: Batch,
    /// Documents whose unique keys are taken for now.
    waiting: HashMap<Collection, Vec<DocBuf>>,
    refused: Vec<Refusal>,
}

impl Follower<'_> {
    fn say(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Follows from a position. Returns what the target refused.
    pub fn run(&self, position: Position) -> Result<Vec<Refusal>> {
        match position {
            Position::None => Ok(Vec::new()),
            Position::Passes => self.passes(),
            position => self.feed(position),
        }
    }

    fn feed(&self, mut position: Position) -> Result<Vec<Refusal>> {
        self.say(&format!(
            "following the source by {}; {}",
            position.describe(),
            if self.cutover {
                "ends when the target has caught up"
            } else {
                "stop the writers and press Ctrl-C to switch"
            }
        ));
        let mut refused = Vec::new();
        loop {
            match self.feed_once(&mut position, &mut refused) {
                Err(error) if error.is_connection() => {
                    self.say(&format!("{error}; trying again"));
                    if self.signals.is_asked() {
                        return Err(error);
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other.map(|()| refused),
            }
        }
    }

    fn feed_once(&self, position: &mut Position, refused: &mut Vec<Refusal>) -> Result<()> {
        let mut target = self.target.connect()?;
        // A target that has crashed may have lost what it had acknowledged, and then what it kept of the position, too.
        if let Some((_, kept)) = self.state.read(&mut target)? {
            *position = Position::from_doc(&kept);
        }
        let Some(mut feed) = Feed::open(self.source, position)? else {
            return Ok(());
        };
        let mut applier = Applier {
            follower: self,
            source: self.source.connect()?,
            target,
            batch: Batch::default(),
            waiting: HashMap::new(),
            refused: Vec::new(),
        };
        let mut applied = 0;
        let mut reported = Instant::now();
        let mut taken_since = None;
        let mut asked_at = None;
        loop {
            // Changes from before the request to stop are still applied.
            if self.signals.is_asked() && asked_at.is_none() {
                asked_at = Some(Instant::now());
                self.say("switching: applying what the source has done up to now");
            }
            let mut problem = None;
            let entries = feed.next(&mut |change| {
                if problem.is_none()
                    && let Err(error) = applier.take(change)
                {
                    problem = Some(error);
                }
            })?;
            if let Some(error) = problem {
                return Err(error);
            }
            applied += entries;
            applier.flush()?;
            // Only this program knows the changes that wait, or that it holds for their commit.
            let is_whole = applier.waiting.is_empty() && feed.is_whole();
            if is_whole && feed.position() != position {
                *position = feed.position().clone();
                self.state.write(
                    &mut applier.target,
                    Phase::Follow,
                    &position.to_doc(),
                    false,
                )?;
            }
            refused.append(&mut applier.refused);
            if entries > 0 {
                taken_since = None;
                if reported.elapsed() < REPORT_EVERY {
                    continue;
                }
            }
            let lag = feed.lag(&mut applier.source)?;
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                self.say(&format!("{applied} changes applied, {lag} s behind"));
            }
            if lag > 0 || entries > 0 {
                continue;
            }
            if !self.cutover && asked_at.is_none() {
                continue;
            }
            if applier.waiting.values().all(|ids| ids.is_empty()) {
                break;
            }
            let since = *taken_since.get_or_insert_with(Instant::now);
            if since.elapsed() > TAKEN_LIMIT {
                break;
            }
        }
        for (collection, ids) in &applier.waiting {
            if let Some(id) = ids.first() {
                refused.push(Refusal {
                    what: format!("{} documents of {collection}, such as {id:?}", ids.len()),
                    why: "a unique index of the target has their key already".to_owned(),
                });
            }
        }
        self.say(&format!(
            "{applied} changes applied, the target has caught up"
        ));
        Ok(())
    }

    /// Compares and repairs until nothing differs and the user wants to switch.
    fn passes(&self) -> Result<Vec<Refusal>> {
        self.say(
            "the source has neither an oplog nor change streams: both sides are compared in passes. Stop the writers, \
             then press Ctrl-C for the last pass",
        );
        let mut refused;
        let mut number = 0_u64;
        loop {
            let last = self.signals.is_asked();
            number += 1;
            let began = Instant::now();
            let repaired = match self.pass() {
                Err(error) if error.is_connection() && !last => {
                    self.say(&format!("{error}; trying again"));
                    std::thread::sleep(PAUSE);
                    continue;
                }
                other => {
                    let (repaired, found) = other?;
                    refused = found;
                    repaired
                }
            };
            self.say(&format!(
                "pass {number}: {repaired} documents repaired in {:.1} s",
                began.elapsed().as_secs_f64()
            ));
            if last || (self.cutover && repaired == 0) {
                return Ok(refused);
            }
            let until = Instant::now() + PASS_EVERY;
            while Instant::now() < until
                && !self.signals.is_asked()
                && !(self.cutover && repaired > 0)
            {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn pass(&self) -> Result<(u64, Vec<Refusal>)> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let (wanted, refused) = synchronize_all(&mut source, &mut target, self.filter)?;
        let mut collections = Vec::new();
        for listed in wanted {
            let documents = if listed.is_view {
                0
            } else {
                inventory::size(&mut source, &listed.collection)?.documents
            };
            collections.push((listed, documents));
        }
        let progress = Progress::new("compare", 0, true);
        let comparison = Comparison {
            source: self.source,
            target: self.target,
            signals: None,
            progress: &progress,
            jobs: self.jobs,
        };
        let found = comparison.run(&collections, OnDifference::Repair)?;
        Ok((
            found
                .iter()
                .map(|(_, found)| found.different.len() as u64)
                .sum(),
            refused,
        ))
    }
}

/// Makes collections, views, options and indexes of the target as those of the source, and drops what the source has
/// no more. Returns what the source has.
pub fn synchronize_all(
    source: &mut Client,
    target: &mut Client,
    filter: &Filter,
) -> Result<(Vec<Listed>, Vec<Refusal>)> {
    let wanted = inventory::all(source, filter)?;
    let there = inventory::all(target, filter)?;
    let mut refused = Vec::new();
    for gone in &there {
        if !wanted
            .iter()
            .any(|listed| listed.collection == gone.collection)
        {
            schema::drop(target, &gone.collection)?;
        }
    }
    for listed in &wanted {
        let at_target = there
            .iter()
            .find(|there| there.collection == listed.collection)
            .cloned();
        let indexes = if listed.is_view {
            Vec::new()
        } else {
            inventory::indexes(source, &listed.collection)?
        };
        refused.extend(schema::synchronize_with(
            target, listed, at_target, &indexes,
        )?);
    }
    Ok((wanted, refused))
}

impl Applier<'_> {
    /// Takes a change. Changes of documents are collected; before any other they are applied.
    fn take(&mut self, change: Change) -> Result<()> {
        let filter = self.follower.filter;
        match change {
            Change::Put(collection, document) if filter.takes(&collection) => {
                let id = crate::write::id_of(&document);
                self.batch.add(collection, id, ChangeEffect::Put(document));
            }
            Change::Stale(collection, id) if filter.takes(&collection) => {
                self.batch.add(collection, Some(id), ChangeEffect::Stale);
            }
            Change::Gone(collection, id) if filter.takes(&collection) => {
                self.batch.add(collection, Some(id), ChangeEffect::Gone);
            }
            Change::Schema(collection) if filter.takes(&collection) => {
                self.flush()?;
                let refused = schema::synchronize(&mut self.source, &mut self.target, &collection)?;
                self.refused.extend(refused);
            }
            Change::Drop(collection) if filter.takes(&collection) => {
                self.flush()?;
                self.waiting.remove(&collection);
                schema::drop(&mut self.target, &collection)?;
                // It may be there again, with options that only its creation can give it.
                let refused = schema::synchronize(&mut self.source, &mut self.target, &collection)?;
                self.refused.extend(refused);
            }
            Change::Partition(collection, command) if filter.takes(&collection) => {
                self.flush()?;
                schema::change_partition(&mut self.target, &collection, &command)?;
            }
            Change::DropDatabase(database) => {
                self.flush()?;
                for listed in inventory::collections(&mut self.target, &database)? {
                    if filter.takes(&listed.collection) {
                        schema::drop(&mut self.target, &listed.collection)?;
                    }
                }
            }
            Change::Rename { from, to } => {
                self.flush()?;
                self.rename(&from, &to)?;
            }
            // Users are copied again in the end.
            _ => {}
        }
        if self.batch.count >= CHANGES {
            self.flush()?;
        }
        Ok(())
    }

    /// Follows a rename by copying the collection of the new name: the old one may be changed, renamed or gone at the
    /// target already, when changes are applied again.
    fn rename(&mut self, from: &Collection, to: &Collection) -> Result<()> {
        let filter = self.follower.filter;
        if filter.takes(from) {
            self.refused.extend(schema::synchronize(
                &mut self.source,
                &mut self.target,
                from,
            )?);
        }
        if filter.takes(to) {
            match schema::find(&mut self.source, to)? {
                Some(listed) if !listed.is_view => {
                    let refused = copy::copy_again(&mut self.source, &mut self.target, &listed)?;
                    self.refused.extend(refused);
                }
                _ => schema::drop(&mut self.target, to)?,
            }
        }
        Ok(())
    }

    /// Applies what was collected, and tries again what waits.
    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let waiting = std::mem::take(&mut self.waiting);
        let mut collections: Vec<&Collection> = batch.fates.keys().chain(waiting.keys()).collect();
        collections.sort_by_key(|collection| collection.to_string());
        collections.dedup();
        let mut left = HashMap::new();
        for collection in collections {
            let (mut gone, mut put, mut stale) = (Vec::new(), Vec::new(), Vec::new());
            let none = HashMap::new();
            let fates = batch.fates.get(collection).unwrap_or(&none);
            for id in waiting.get(collection).into_iter().flatten() {
                if !fates.contains_key(id.as_bytes()) {
                    stale.push(id.clone());
                }
            }
            for (id, fate) in fates {
                let id = || DocBuf::from_vec_trusted(id.clone());
                match fate {
                    ChangeEffect::Put(document) => put.push(document.clone()),
                    ChangeEffect::Stale => stale.push(id()),
                    ChangeEffect::Gone => gone.push(id()),
                }
            }
            apply::delete(&mut self.target, collection, &gone)?;
            let mut taken = apply::put(&mut self.target, collection, &put)?;
            taken.extend(apply::refetch(
                &mut self.source,
                &mut self.target,
                collection,
                &stale,
            )?);
            if !taken.is_empty() {
                left.insert(collection.clone(), taken);
            }
        }
        self.waiting = left;
        Ok(())
    }
}
