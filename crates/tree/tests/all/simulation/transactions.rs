//! Open transactions of a world, beside its commits: a bank whose accounts lie in two trees, and random work.
//!
//! A transaction that is committed is a commit of the world like any other one: it must be there after a crash if it was
//! acknowledged, and as a whole. One that is aborted, or open when the disk crashes, must leave nothing.

use std::collections::BTreeSet;

use frond_tree::{Durability, Error, LogTail, Snapshot, Store, Transaction, WriteSet};
use rand::RngExt;

use crate::simulation::model::{
    ACCOUNTS, BANK, Commit, Model, Op, SUM, account, add_to, balance_in, bank_of,
    panic_in_merge_after, write_set,
};
use crate::simulation::trouble::is_rot;
use crate::simulation::world::World;

/// Transactions that are open at a time.
const OPEN_MAX: usize = 3;

/// An open transaction.
pub struct Open {
    transaction: Transaction,
    /// The content that it sees.
    view: Model,
    /// The operations that it has staged.
    staged: Commit,
    /// The accounts that it holds.
    accounts: BTreeSet<u8>,
    /// The number of commits that it sees.
    base: u64,
}

/// Snapshots and transactions that a life holds for some steps.
#[derive(Default)]
pub struct Held {
    pub snapshot: Option<(Snapshot, Model)>,
    pub open: Vec<Open>,
    /// The archive's reader of the log.
    pub log: Option<LogTail>,
}

/// The sum of the accounts; `None` before there is a bank.
pub fn sum_in(snapshot: &Snapshot) -> Result<Option<i64>, Error> {
    if !snapshot.has_tree(BANK[0]) {
        return Ok(None);
    }
    let mut sum = 0;
    for number in 0..ACCOUNTS {
        let value = snapshot.get(bank_of(number), &account(number))?;
        sum += balance_in(&value.expect("an account is gone"));
    }
    Ok(Some(sum))
}

impl World {
    /// One step of some transaction, or of a writer outside of them.
    pub fn transact(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        if self.doubt || self.now.commits == 0 {
            return Ok(());
        }
        let which = match held.open.len() {
            0 => None,
            len => Some(self.random.random_range(0..len)),
        };
        match (self.random.random_range(0..100), which) {
            (0..25, _) => self.transfer_plainly(store, held),
            (25..40, _) | (_, None) => {
                if held.open.len() < OPEN_MAX {
                    held.open.push(Open {
                        transaction: store.begin(&store.snapshot()),
                        view: self.now.clone(),
                        staged: Commit::new(),
                        accounts: BTreeSet::new(),
                        base: self.now.commits,
                    });
                }
                Ok(())
            }
            (40..60, Some(which)) => self.stage_transfer(held, which),
            (60..68, Some(which)) => {
                // The last operation counts the commit.
                let mut ops = held.open[which].view.random_commit(&mut self.random, store);
                ops.pop();
                self.stage(held, which, ops)
            }
            (68..80, Some(which)) => {
                let open = &held.open[which];
                self.check_one(&open.transaction.snapshot(), &open.view)
            }
            (80..84, Some(which)) => match held.open[which].transaction.detach() {
                Err(error) if self.disk.has_crashed() => Err(error),
                // It goes on with the memtables.
                _ => Ok(()),
            },
            (84..95, Some(which)) => self.commit_transaction(store, held.open.swap_remove(which)),
            (_, Some(which)) => {
                held.open.swap_remove(which);
                self.outcome.counts.aborts += 1;
                Ok(())
            }
        }
    }

    /// A transfer between two accounts, as a snapshot shows them. None if damage hides them.
    fn random_transfer(&mut self, snapshot: &Snapshot) -> Result<Option<(Commit, [u8; 2])>, Error> {
        let from = self.random.random_range(0..ACCOUNTS);
        let to = (from + self.random.random_range(1..ACCOUNTS)) % ACCOUNTS;
        let amount = self.random.random_range(1..50);
        let mut ops = Commit::new();
        for (number, change) in [(from, -amount), (to, amount)] {
            let balance = match snapshot.get(bank_of(number), &account(number)) {
                Ok(value) => balance_in(&value.expect("an account is gone")),
                Err(error) if is_rot(&self.disk, &error) => return Ok(None),
                Err(error) => return Err(error),
            };
            let value = (balance + change).to_le_bytes().to_vec();
            ops.push(Op::Put(bank_of(number), account(number), value));
        }
        Ok(Some((ops, [from, to])))
    }

    /// Whether an open transaction, but for one, holds some of the accounts.
    fn are_held(held: &Held, accounts: &[u8], own: Option<usize>) -> bool {
        let others = held.open.iter().enumerate();
        let mut others = others.filter(|(index, _)| Some(*index) != own);
        others.any(|(_, open)| accounts.iter().any(|one| open.accounts.contains(one)))
    }

    fn transfer_plainly(&mut self, store: &Store, held: &Held) -> Result<(), Error> {
        let snapshot = store.snapshot();
        let Some((mut ops, accounts)) = self.random_transfer(&snapshot)? else {
            return Ok(());
        };
        let is_held = World::are_held(held, &accounts, None);
        ops.push(self.now.marker());
        self.add_stamped(&mut ops);
        let mut set = WriteSet::with_snapshot(&snapshot);
        add_to(&mut set, &ops);
        drop(snapshot);
        match self.commit_as(store, ops, |how| store.commit(set, how)) {
            Err(Error::Conflict { held, .. }) => {
                assert!(held && is_held, "a conflict without a transaction");
                self.outcome.counts.conflicts += 1;
                Ok(())
            }
            Ok(()) => {
                assert!(!is_held, "a transaction holds an account");
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn stage_transfer(&mut self, held: &mut Held, which: usize) -> Result<(), Error> {
        let open = &held.open[which];
        let snapshot = open.transaction.snapshot();
        let Some((ops, accounts)) = self.random_transfer(&snapshot)? else {
            return Ok(());
        };
        for number in accounts {
            let seen = snapshot.get(bank_of(number), &account(number))?;
            let expected = &open.view.trees[&bank_of(number)][&account(number)];
            assert_eq!(seen.as_deref(), Some(expected.as_slice()));
        }
        let is_held = World::are_held(held, &accounts, Some(which));
        let is_old = |one: &u8| self.transfers.get(one).copied().unwrap_or(0) > open.base;
        let conflicts = is_held || accounts.iter().any(is_old);
        let before = held.open.len();
        self.stage(held, which, ops)?;
        if held.open.len() < before {
            assert!(conflicts || self.has_ended, "a conflict without a reason")
        } else {
            assert!(!conflicts, "a conflict was not told");
            held.open[which].accounts.extend(accounts);
        }
        Ok(())
    }

    /// Stages some operations. A transaction in which that fails is aborted.
    fn stage(&mut self, held: &mut Held, which: usize, ops: Commit) -> Result<(), Error> {
        let open = &mut held.open[which];
        let mut set = open.transaction.write_set();
        add_to(&mut set, &ops);
        self.has_ended = false;
        // A panic of the operator would leave it open whether the operations are staged.
        panic_in_merge_after(None);
        match open.transaction.stage(set) {
            Ok(()) => {
                open.view.apply(&ops);
                open.view.commits -= 1;
                open.staged.extend(ops);
                return Ok(());
            }
            Err(error) if self.disk.has_crashed() => return Err(error),
            Err(Error::Conflict { .. }) => self.outcome.counts.conflicts += 1,
            // The store has failed, or its memory is used up.
            Err(Error::Closed(_) | Error::OutOfMemory { .. }) => self.has_ended = true,
            Err(error) if is_rot(&self.disk, &error) => self.has_ended = true,
            Err(error) => panic!("not staged: {error}"),
        }
        held.open.swap_remove(which);
        self.outcome.counts.aborts += 1;
        Ok(())
    }

    fn commit_transaction(&mut self, store: &Store, open: Open) -> Result<(), Error> {
        let mut created = BTreeSet::new();
        let mut is_there = |op: &Op| match op {
            Op::Create(tree, _) | Op::CreateToLoad(tree, _) => created.insert(*tree),
            Op::Drop(_) => true,
            Op::Put(tree, ..)
            | Op::PutStamped(tree, ..)
            | Op::Delete(tree, _)
            | Op::Merge(tree, ..)
            | Op::DeleteRange(tree, ..) => {
                created.contains(tree) || self.now.trees.contains_key(tree)
            }
        };
        if !open.staged.iter().all(&mut is_there) {
            // A tree was dropped meanwhile, which callers exclude.
            self.outcome.counts.aborts += 1;
            return Ok(());
        }
        let mut extra = vec![self.now.marker()];
        self.add_stamped(&mut extra);
        let commit = [open.staged, extra.clone()].concat();
        let extra = write_set(&extra);
        let commits = |how: Durability| open.transaction.commit(extra, how);
        let before = self.now.commits;
        let outcome = self.commit_as(store, commit, commits);
        let is_conflict = matches!(outcome, Err(Error::Conflict { .. }));
        assert!(!is_conflict, "its accounts were held");
        self.outcome.counts.transactions += self.now.commits - before;
        outcome
    }

    /// Notes which accounts a commit has changed.
    pub fn note_transfers(&mut self, commit: &Commit) {
        for op in commit {
            if let Op::Put(tree, key, _) = op
                && BANK.contains(tree)
            {
                self.transfers.insert(key[0], self.now.commits);
            }
        }
    }

    /// The money of all accounts is what it was.
    pub fn check_sum(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        match sum_in(snapshot) {
            Ok(sum) => assert_eq!(sum.unwrap_or(SUM), SUM, "money came or went"),
            Err(error) if is_rot(&self.disk, &error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
