//! Which backup, and which part of the log, restore a moment.

use std::path::PathBuf;

use frond_store::backup::RestorePoint;

use crate::description::Description;
use crate::error::{Error, Result};
use crate::log_store::files_of;
use crate::mark::Mark;
use crate::moment::{Moment, stamp_text, time_text};
use crate::record::{Kind, Next, Records};
use crate::repository::Repository;

/// Between two marks with changes there is at most this time, unless the archive did not run.
const MARKS_APART_MS: i64 = 5_000;

/// A piece of the archived log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    pub path: PathBuf,
    /// The offset of its record.
    pub at: u64,
}

/// The files and the log that restore a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The backup and its parents, the backup first.
    pub chain: Vec<Description>,
    /// The archived log behind the log of the backup, in order.
    pub pieces: Vec<ArchivedLog>,
    /// The position at which the log is cut.
    pub point: RestorePoint,
    /// The last mark before the moment.
    pub mark: Mark,
}

/// The log that the archive has behind a backup, without a gap.
struct Archive {
    pieces: Vec<(u64, ArchivedLog)>,
    end: u64,
    marks: Vec<Mark>,
}

impl Plan {
    /// Plans the restore of a moment, from the newest backup before it, or from the named one.
    pub fn make(repository: &Repository, moment: Moment, id: Option<&str>) -> Result<Plan> {
        let all = repository.list()?;
        if all.is_empty() {
            return Err(Error::Refused(
                "the repository has no complete backup".to_owned(),
            ));
        }
        let is_before = |one: &&Description| match (moment, one.mark.stamp) {
            (Moment::End | Moment::Backup, _) => true,
            (Moment::Time(time), _) => one.mark.until <= time,
            (Moment::Stamp(stamp), Some(of_backup)) => of_backup <= stamp,
            (Moment::Stamp(_), None) => false,
        };
        let backup = match id {
            Some(id) => all.iter().find(|one| one.id == id).ok_or_else(|| {
                Error::Refused(format!(
                    "there is no backup {id}; `frond backup list` shows all"
                ))
            })?,
            None => all
                .iter()
                .rfind(is_before)
                .ok_or_else(|| none_before(&all, moment))?,
        };
        if !is_before(&backup) {
            return Err(Error::Refused(format!(
                "the backup {} was made after this moment, at {}",
                backup.id,
                time_text(backup.mark.time)
            )));
        }
        let chain = repository.chain(backup)?;
        let archive = Archive::read(repository, backup, moment)?;
        let (point, mark) = archive.point(backup, moment)?;
        let last = match point {
            RestorePoint::Position(position) => position,
            _ => u64::MAX,
        };
        let pieces = archive.pieces.into_iter();
        let needed = pieces.take_while(|(from, _)| *from < last);
        Ok(Plan {
            chain,
            pieces: needed.map(|(_, piece)| piece).collect(),
            point,
            mark,
        })
    }
}

fn none_before(all: &[Description], moment: Moment) -> Error {
    let first = all.first();
    let text = match (moment, first) {
        (Moment::Stamp(_), Some(first)) if first.mark.stamp.is_none() => {
            "the backups have no timestamps of an oplog: the server has none (--replSet); name a time".to_owned()
        }
        (Moment::Stamp(_), Some(first)) => format!(
            "no backup was made before this timestamp; the first one is of {}",
            stamp_text(first.mark.stamp.unwrap_or(0))
        ),
        (_, Some(first)) => format!(
            "no backup was made before this time; the first one is of {}",
            time_text(first.mark.until)
        ),
        (_, None) => "the repository has no complete backup".to_owned(),
    };
    Error::Refused(text)
}

impl Archive {
    /// Reads the heads of the archived records from the end of a backup on, up to the first mark behind the moment.
    fn read(repository: &Repository, backup: &Description, moment: Moment) -> Result<Archive> {
        let mut archive = Archive {
            pieces: Vec::new(),
            end: backup.log_end,
            marks: vec![backup.mark],
        };
        let files = files_of(&repository.log_folder(&backup.store_id))?;
        let first = files.iter().rposition(|(from, _)| *from <= backup.log_end);
        let mut body = Vec::new();
        for (_, path) in files.iter().skip(first.unwrap_or(0)) {
            let mut records = Records::open(path)?;
            loop {
                match records.skip_to_next()? {
                    Next::Record(at, header) if header.kind == Kind::Log => {
                        let [from, to, _] = header.numbers;
                        if to <= archive.end {
                            continue;
                        }
                        if from > archive.end {
                            return Ok(archive);
                        }
                        let path = path.clone();
                        archive.pieces.push((from, ArchivedLog { path, at }));
                        archive.end = to;
                    }
                    Next::Record(_, header) if header.kind == Kind::Mark => {
                        records.body(&header, &mut body)?;
                        let mark = Mark::read(&header, &body);
                        if archive.add_mark(mark, moment) {
                            return Ok(archive);
                        }
                    }
                    Next::Record(..) => {}
                    // The archive may be writing there.
                    Next::End | Next::Torn(_) => break,
                }
            }
        }
        Ok(archive)
    }

    /// Keeps the last mark before the moment, and the first one behind it. Returns whether there is one.
    fn add_mark(&mut self, mark: Mark, moment: Moment) -> bool {
        if mark.position > self.end || self.marks.iter().any(|one| one.position > mark.position) {
            return false;
        }
        let is_before = |mark: &Mark| match moment {
            Moment::End => true,
            Moment::Backup => false,
            Moment::Time(time) => mark.until <= time,
            Moment::Stamp(stamp) => mark.stamp.is_none_or(|of_mark| of_mark < stamp),
        };
        if is_before(&mark) {
            self.marks.clear();
        }
        self.marks.push(mark);
        !is_before(&mark)
    }

    /// The position at which the log is cut.
    fn point(&self, backup: &Description, moment: Moment) -> Result<(RestorePoint, Mark)> {
        let first = self.marks.first().copied().unwrap_or(backup.mark);
        let next = self.marks.get(1);
        match moment {
            Moment::End => Ok((RestorePoint::End, first)),
            Moment::Backup => {
                let mark = backup.mark;
                Ok((RestorePoint::Position(mark.position), mark))
            }
            Moment::Stamp(stamp) => match (next, first.stamp == Some(stamp)) {
                (Some(_), _) | (None, true) => Ok((RestorePoint::Stamp(stamp), first)),
                (None, false) => Err(Error::Refused(format!(
                    "the log ends at {}; leave --to out to restore all of it",
                    stamp_text(first.stamp.unwrap_or(0))
                ))),
            },
            Moment::Time(time) => {
                let until_here = format!(
                    "the last moment before it that can be restored is {}",
                    time_text(first.until)
                );
                match next {
                    Some(next)
                        if next.position == first.position
                            || next.time.saturating_sub(first.until) <= MARKS_APART_MS => {}
                    Some(next) => {
                        return Err(Error::Refused(format!(
                            "nothing was archived between {} and {}; {until_here}",
                            time_text(first.until),
                            time_text(next.time)
                        )));
                    }
                    None if first.until == time => {}
                    None => {
                        return Err(Error::Refused(format!(
                            "the repository has no log up to this time; {until_here}"
                        )));
                    }
                }
                Ok((RestorePoint::Position(first.position), first))
            }
        }
    }
}
