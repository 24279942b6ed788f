//! The scenarios: the operations of one child process on one store.

use clap::ValueEnum;

use crate::error::Result;
use crate::phase::Bench;
use crate::workload::{Content, Done, Order, SECONDARY_KEY_BYTES};

/// A sequence of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Load, reads and scans, deletion of a random half, scans.
    Main,
    /// Load only.
    Load,
    /// Load, deletion of a random half, reads and scans.
    Delete,
    /// The content after `delete`, loaded into a fresh store.
    DeleteFresh,
    /// Load, three rounds of replacing everything, reads and scans.
    Replace,
    /// The content after `replace`, loaded into a fresh store.
    ReplaceFresh,
    /// Load, deletion of 90% of a table in one operation, scans.
    Range,
    /// The content after `range`, loaded into a fresh store.
    RangeFresh,
}

/// Rounds of replacing everything.
const REPLACEMENTS: u64 = 3;
/// The secondary table of which 90% are deleted in one operation.
const CUT_TABLE: usize = 1;
/// The seed of the order of deletions; replacements take the next ones.
const SEED: u64 = 20;

fn delete_order(documents: u64) -> Order {
    Order::new(documents, SEED)
}

fn replace_order(documents: u64, round: u64) -> Order {
    Order::new(documents, SEED + 1 + round)
}

/// Nine tenths of all secondary keys are below this one.
fn cut_bound() -> [u8; SECONDARY_KEY_BYTES] {
    let mut bound = [0; SECONDARY_KEY_BYTES];
    bound[..2].copy_from_slice(&(u16::MAX / 10 * 9).to_be_bytes());
    bound
}

/// Runs a scenario. Loads use `threads`, reads each of `read_threads` in turn.
pub fn run(
    bench: &mut Bench,
    scenario: Scenario,
    threads: usize,
    read_threads: &[usize],
) -> Result<()> {
    bench.describe()?;
    let documents = bench.limits.documents;
    let mut fresh = Content {
        documents,
        ..Content::default()
    };
    match scenario {
        Scenario::Main => main(bench, threads, read_threads),
        Scenario::Load => {
            bench.load(threads)?;
            bench.wait_until_idle("settled")
        }
        Scenario::Delete => {
            if !load_all(bench, threads)? {
                return Ok(());
            }
            bench.delete(delete_order(documents), documents / 2)?;
            bench.wait_until_idle("settled")?;
            if bench.content.count() > documents - documents / 2 {
                return bench.remark("too slow: its store holds more than the fresh one does");
            }
            all_reads(bench)
        }
        Scenario::DeleteFresh => {
            fresh.deleted = Some(Done::new(delete_order(documents), documents / 2));
            if load_fresh(bench, fresh)? {
                return all_reads(bench);
            }
            Ok(())
        }
        Scenario::Replace => {
            if !load_all(bench, threads)? {
                return Ok(());
            }
            for round in 0..REPLACEMENTS {
                bench.replace(replace_order(documents, round))?;
            }
            bench.wait_until_idle("settled")?;
            all_reads(bench)
        }
        Scenario::ReplaceFresh => {
            fresh.replaced = (0..REPLACEMENTS)
                .map(|round| Done::new(replace_order(documents, round), documents))
                .collect();
            if load_fresh(bench, fresh)? {
                return all_reads(bench);
            }
            Ok(())
        }
        Scenario::Range => {
            if !load_all(bench, threads)? {
                return Ok(());
            }
            if !bench.cut(CUT_TABLE, cut_bound())? {
                return bench.remark("it has no deletion of a range");
            }
            bench.wait_until_idle("settled")?;
            cut_scans(bench)
        }
        Scenario::RangeFresh => {
            fresh.cut = Some((CUT_TABLE, cut_bound()));
            if load_fresh(bench, fresh)? {
                return cut_scans(bench);
            }
            Ok(())
        }
    }
}

fn main(bench: &mut Bench, threads: usize, read_threads: &[usize]) -> Result<()> {
    bench.load(threads)?;
    bench.wait_until_idle("settled")?;
    if bench.limits.warm_up {
        bench.warm_up()?;
    }
    for threads in read_threads {
        bench.point_reads(*threads)?;
        bench.absent_reads(*threads)?;
        bench.scans(*threads)?;
    }
    bench.full_scan(1)?;
    let documents = bench.content.documents;
    bench.delete(delete_order(documents), documents / 2)?;
    bench.wait_until_idle("settled-delete")?;
    bench.stage = "half-";
    bench.scans(1)?;
    bench.full_scan(1)
}

/// Loads a store that is to be aged. False if that took too long: then it cannot be compared.
fn load_all(bench: &mut Bench, threads: usize) -> Result<bool> {
    bench.load(threads)?;
    bench.wait_until_idle("settled-load")?;
    let all = bench.content.documents == bench.limits.documents;
    if !all {
        bench.remark("too slow: its store holds less than the fresh one does")?;
    }
    Ok(all)
}

/// Loads a fresh store. False if that took too long.
fn load_fresh(bench: &mut Bench, content: Content) -> Result<bool> {
    if !bench.load_content(content)? {
        bench.remark("too slow: it did not get all documents")?;
        return Ok(false);
    }
    bench.wait_until_idle("settled")?;
    Ok(true)
}

fn all_reads(bench: &Bench) -> Result<()> {
    bench.point_reads(1)?;
    bench.scans(1)?;
    bench.full_scan(1)
}

fn cut_scans(bench: &Bench) -> Result<()> {
    bench.scans_of("scan-what-is-left", CUT_TABLE, 1, &cut_bound())?;
    bench.scans_from_start(CUT_TABLE)?;
    bench.full_scan(CUT_TABLE)
}
