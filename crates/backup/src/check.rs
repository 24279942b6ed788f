//! Checks a repository: every record, every chain, and the archived log.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::log_store::files_of;
use crate::progress::Meter;
use crate::record::{Kind, Next, Records};
use crate::repository::Repository;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Backups that were read.
    pub backups: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes of the archived log that were read.
    pub log_bytes: u64,
    /// The problems, a line each.
    pub problems: Vec<String>,
}

/// Reads everything in a repository and compares checksums.
pub fn check(repository: &Repository, stop: &AtomicBool, meter: &mut Meter) -> Result<Findings> {
    let mut findings = Findings::default();
    let all = repository.list()?;
    let bytes = all.iter().map(Description::stored_bytes);
    meter.begin(bytes.fold(0, u64::saturating_add));
    let mut found: Vec<(String, HashSet<Extent>)> = Vec::new();
    for backup in &all {
        let mut extents = HashSet::new();
        for part in &backup.parts {
            let path = repository.folder(&backup.id).join(&part.name);
            let len = path.symlink_metadata().map(|metadata| metadata.len());
            match len {
                Ok(len) if len != part.bytes => findings.problems.push(format!(
                    "{} has {len} bytes and should have {}",
                    path.display(),
                    part.bytes
                )),
                _ => {}
            }
            let read = read_file(
                &path,
                stop,
                &mut findings.problems,
                &mut |kind, numbers, len| {
                    if kind == Kind::Extent {
                        extents.insert(Extent {
                            offset: numbers[0],
                            len,
                            birth: numbers[1],
                        });
                    }
                    meter.advance(len);
                },
            );
            match read {
                Ok(bytes) => findings.bytes += bytes,
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => findings.problems.push(error.to_string()),
            }
        }
        findings.backups += 1;
        found.push((backup.id.clone(), extents));
    }
    for backup in &all {
        if let Err(error) = check_chain(repository, backup, &found) {
            findings.problems.push(error.to_string());
        }
    }
    for store in repository.archived_stores()? {
        for (_, path) in files_of(&repository.log_folder(&store))? {
            match read_file(&path, stop, &mut findings.problems, &mut |_, _, _| ()) {
                Ok(bytes) => findings.log_bytes += bytes,
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => findings.problems.push(error.to_string()),
            }
        }
    }
    meter.end();
    Ok(findings)
}

/// Whether a backup and its parents have all its extents.
fn check_chain(
    repository: &Repository,
    backup: &Description,
    found: &[(String, HashSet<Extent>)],
) -> Result<()> {
    let chain = repository.chain(backup)?;
    let in_chain = |id: &str| chain.iter().any(|one| one.id == id);
    let sets: Vec<_> = found.iter().filter(|(id, _)| in_chain(id)).collect();
    let extents = repository.extents(backup)?;
    let lacks = |extent: &&Extent| !sets.iter().any(|(_, set)| set.contains(extent));
    match extents.iter().filter(lacks).count() {
        0 => Ok(()),
        lacking => Err(Error::Refused(format!(
            "the backup {} lacks {lacking} of its {} extents",
            backup.id,
            extents.len()
        ))),
    }
}

/// Reads the records of a file and shows each one. Damaged ones are noted, and reading goes on behind them if their header is whole.
fn read_file(
    path: &Path,
    stop: &AtomicBool,
    problems: &mut Vec<String>,
    each: &mut dyn FnMut(Kind, [u64; 3], u64),
) -> Result<u64> {
    let mut records = Records::open(path)?;
    let (mut body, mut bytes) = (Vec::new(), 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        match records.next()? {
            Next::Record(_, header) => match records.body(&header, &mut body) {
                Ok(()) => {
                    bytes += body.len() as u64;
                    each(header.kind, header.numbers, header.len);
                }
                Err(error @ Error::Damaged(..)) => {
                    problems.push(error.to_string());
                    each(header.kind, header.numbers, header.len);
                }
                Err(other) => return Err(other),
            },
            Next::End => return Ok(bytes),
            Next::Torn(at) => {
                problems.push(records.torn(at).to_string());
                return Ok(bytes);
            }
        }
    }
}
