//! A migration from its beginning to its end.

use frond_bson::DocBuf;
use frond_client::Client;

use super::compare::{self, Comparison, OnDifference};
use super::copy::{Copier, PAUSE, TRIES, Task};
use super::dry_run::{self, Plan, hidden_users};
use super::feed::Position;
use super::follow::{self, Follower};
use super::options::{FollowMode, Options};
use super::state::{Phase, State};
use crate::error::{Error, Result};
use crate::inventory::{self, Listed, Size};
use crate::names::Filter;
use crate::node::Node;
use crate::progress::Progress;
use crate::schema::{self, Refusal};
use crate::stop::Signals;
use crate::users;

/// Runs `frond migrate`.
pub fn run(options: &Options) -> Result<()> {
    let signals = Signals::listen()?;
    let source = Node::new(&options.from, options.oldest_protocol, &signals.stop)?;
    let target = Node::new(&options.to, false, &signals.stop)?;
    let filter = Filter::new(&options.include, &options.exclude);
    let migration = Migration {
        options,
        source,
        target,
        filter,
        signals,
    };
    if options.verify {
        return migration.verify();
    }
    if options.dry_run {
        return migration.dry_run();
    }
    migration.migrate()
}

struct Migration<'a> {
    options: &'a Options,
    source: Node,
    target: Node,
    filter: Filter,
    signals: Signals,
}

type Described = Vec<(Listed, Vec<DocBuf>, Size)>;

impl Migration<'_> {
    fn say(&self, text: &str) {
        if !self.options.quiet {
            eprintln!("{text}");
        }
    }

    /// All that is to be moved.
    fn describe(&self, client: &mut Client) -> Result<Described> {
        let mut all = Vec::new();
        for listed in inventory::all(client, &self.filter)? {
            if listed.is_view {
                all.push((listed, Vec::new(), Size::default()));
                continue;
            }
            let indexes = inventory::indexes(client, &listed.collection)?;
            let size = inventory::size(client, &listed.collection)?;
            all.push((listed, indexes, size));
        }
        Ok(all)
    }

    fn dry_run(&self) -> Result<()> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let all = self.describe(&mut source)?;
        let position = Position::now(&self.source, self.options.follow)?;
        let plan = Plan {
            source: &self.source,
            all: &all,
            position: &position,
        };
        if dry_run::run(&plan, self.options, &mut source, &mut target)? {
            return Ok(());
        }
        Err(Error::Refused(
            "not all of it can be migrated; --allow-refused goes on without these parts".to_owned(),
        ))
    }

    fn verify(&self) -> Result<()> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let ours = self.describe(&mut source)?;
        let theirs = inventory::all(&mut target, &self.filter)?;
        let mut missing = Vec::new();
        for (listed, ..) in &ours {
            if !theirs
                .iter()
                .any(|there| there.collection == listed.collection)
            {
                missing.push(format!("{} is not at the target", listed.collection));
            }
        }
        for there in &theirs {
            if !ours
                .iter()
                .any(|(listed, ..)| there.collection == listed.collection)
            {
                missing.push(format!("{} is at the target only", there.collection));
            }
        }
        drop((source, target));
        let compared = self.compare(&ours);
        match (missing.is_empty(), compared) {
            (true, compared) => compared,
            (false, Ok(())) => Err(Error::Differs(missing.join("\n"))),
            (false, Err(Error::Differs(text))) => {
                Err(Error::Differs(format!("{}\n{text}", missing.join("\n"))))
            }
            (false, Err(error)) => Err(error),
        }
    }

    fn compare(&self, all: &Described) -> Result<()> {
        let total = all.iter().map(|(_, _, size)| size.documents).sum();
        let progress = Progress::new("comparing", total, self.options.quiet);
        let collections: Vec<(Listed, u64)> = all
            .iter()
            .map(|(listed, _, size)| (listed.clone(), size.documents))
            .collect();
        let comparison = Comparison {
            source: &self.source,
            target: &self.target,
            signals: None,
            progress: &progress,
            jobs: usize::from(self.options.jobs),
        };
        let found = comparison.run(&collections, OnDifference::LookAgain)?;
        progress.finish();
        compare::report(&found, self.options.quiet)
    }

    fn migrate(&self) -> Result<()> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let state = State::new(&self.source.host_and_port());
        if self.options.restart {
            state.forget(&mut target)?;
        }
        let mut refused = Vec::new();
        let (phase, position) = match state.read(&mut target)? {
            Some((phase, position)) => {
                self.say("going on with an interrupted migration");
                (phase, Position::from_doc(&position))
            }
            None => {
                refused.extend(self.begin(&mut source, &mut target)?);
                let position = Position::now(&self.source, self.options.follow)?;
                state.write(&mut target, Phase::Copy, &position.to_doc(), true)?;
                (Phase::Copy, position)
            }
        };
        drop((source, target));
        if phase == Phase::Copy {
            refused.extend(self.repeat(|source, target| {
                let refused = self.copy(&state, source, target)?;
                state.write(target, Phase::Follow, &position.to_doc(), true)?;
                Ok(refused)
            })?);
        }
        let follower = Follower {
            source: &self.source,
            target: &self.target,
            state: &state,
            signals: &self.signals,
            filter: &self.filter,
            cutover: self.options.cutover,
            jobs: usize::from(self.options.jobs),
            quiet: self.options.quiet,
        };
        refused.extend(follower.run(position)?);
        self.end(&state, refused)
    }

    /// Runs a step that may be repeated, and runs it again with new connections if one failed.
    fn repeat<T>(&self, step: impl Fn(&mut Client, &mut Client) -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            let done = self.source.connect().and_then(|mut source| {
                let mut target = self.target.connect()?;
                step(&mut source, &mut target)
            });
            match done {
                Err(error) if error.is_connection() && tries < TRIES => {
                    self.signals.check()?;
                    self.say(&format!("{error}; trying again"));
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Checks that the target can take it, and makes room.
    fn begin(&self, source: &mut Client, target: &mut Client) -> Result<Vec<Refusal>> {
        let all = self.describe(source)?;
        let described: Vec<(Listed, Vec<DocBuf>)> = all
            .iter()
            .map(|(listed, indexes, _)| (listed.clone(), indexes.clone()))
            .collect();
        let mut refused = schema::try_all(target, &described)?;
        if self.takes_users()
            && let Err(error) = users::read(source)
        {
            refused.push(hidden_users(error)?);
        }
        if !refused.is_empty() && !self.options.allow_refused {
            let lines: Vec<String> = refused
                .iter()
                .map(|refusal| format!("  {}: {}", refusal.what, refusal.why))
                .collect();
            return Err(Error::Refused(format!(
                "the following cannot be migrated; --allow-refused goes on without it:\n{}",
                lines.join("\n")
            )));
        }
        let there = inventory::all(target, &self.filter)?;
        for (listed, ..) in &all {
            let Some(there) = there
                .iter()
                .find(|there| there.collection == listed.collection)
            else {
                continue;
            };
            if self.options.drop {
                schema::drop(target, &there.collection)?;
            } else if there.is_view || target.count(&there.collection)? > 0 {
                return Err(Error::Usage(format!(
                    "{} is at the target already; --drop replaces it, --exclude leaves it out",
                    there.collection
                )));
            } else {
                schema::drop(target, &there.collection)?;
            }
        }
        Ok(Vec::new())
    }

    fn copy(
        &self,
        state: &State,
        source: &mut Client,
        target: &mut Client,
    ) -> Result<Vec<Refusal>> {
        let mut refused = Vec::new();
        refused.extend(self.users(source, target)?);
        let all = self.describe(source)?;
        let total = all.iter().map(|(_, _, size)| size.documents).sum();
        let mut tasks = Vec::new();
        let mut views = Vec::new();
        for (listed, indexes, size) in all {
            if listed.is_view {
                views.push(listed);
                continue;
            }
            if self.options.allow_refused
                && !listed.options.is_empty()
                && schema::find(target, &listed.collection)?.is_none()
                && let Err(error) = schema::create(target, &listed)
            {
                // Without the options that the target refuses.
                refused.push(Refusal {
                    what: listed.collection.to_string(),
                    why: error.to_string(),
                });
                let plain = Listed {
                    options: DocBuf::new(),
                    ..listed.clone()
                };
                schema::create(target, &plain)?;
            }
            if listed.is_series() && self.options.follow != FollowMode::None {
                self.say(&format!(
                    "changes of the time series {} are not followed: stop its writers until the end",
                    listed.collection
                ));
            }
            tasks.push(Task {
                listed,
                indexes,
                documents: size.documents,
            });
        }
        let progress = Progress::new("copying", total, self.options.quiet);
        let copier = Copier {
            source: &self.source,
            target: &self.target,
            state,
            signals: &self.signals,
            progress: &progress,
        };
        refused.extend(copier.run(&tasks, usize::from(self.options.jobs))?);
        progress.finish();
        for view in views {
            let there = schema::find(target, &view.collection)?;
            refused.extend(schema::synchronize_with(target, &view, there, &[])?);
        }
        Ok(refused)
    }

    /// Whether users and roles are copied, too.
    fn takes_users(&self) -> bool {
        !self.options.no_users && self.filter.is_open()
    }

    /// Copies users and roles. Returns what is left out.
    fn users(&self, source: &mut Client, target: &mut Client) -> Result<Option<Refusal>> {
        if !self.takes_users() {
            return Ok(None);
        }
        let accounts = match users::read(source) {
            Ok(accounts) => accounts,
            Err(error) => return hidden_users(error).map(Some),
        };
        match users::merge(target, &accounts, false) {
            Err(error) if error.is_refusal() => Err(Error::Refused(format!(
                "the target does not take users and roles ({error}); --no-users leaves them out"
            ))),
            other => other.map(|()| None),
        }
    }

    /// The remaining steps when the target has caught up.
    fn end(&self, state: &State, mut refused: Vec<Refusal>) -> Result<()> {
        let (all, changed) = self.repeat(|source, target| {
            let mut refused = Vec::new();
            if self.options.follow != FollowMode::None {
                refused = follow::synchronize_all(source, target, &self.filter)?.1;
            }
            refused.extend(self.users(source, target)?);
            Ok((self.describe(source)?, refused))
        })?;
        refused.extend(changed);
        let compared: Described = (all.into_iter())
            .filter(|(listed, ..)| !self.options.no_verify || listed.is_series())
            .collect();
        // No feed has the changes of a time series, so only a comparison finds what was written since its copy.
        if !self.options.no_verify || !compared.is_empty() {
            self.compare(&compared)?;
        }
        self.repeat(|_, target| state.forget(target))?;
        refused.sort_by(|a, b| a.what.cmp(&b.what));
        refused.dedup();
        if refused.is_empty() {
            self.say("done");
            return Ok(());
        }
        if self.options.allow_refused {
            println!("done, without what cannot be migrated:");
            dry_run::print_refusals(&refused);
            return Ok(());
        }
        let lines: Vec<String> = refused
            .iter()
            .map(|refusal| format!("  {}: {}", refusal.what, refusal.why))
            .collect();
        Err(Error::Refused(format!(
            "done, but these were not migrated:\n{}",
            lines.join("\n")
        )))
    }
}
