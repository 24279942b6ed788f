//! Continuous archiving of the log.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::description::{Description, StoreId};
use crate::error::{Error, Result};
use crate::log_store::LogWriter;
use crate::moment::time_text;
use crate::progress::{Meter, bytes};
use crate::repository::{Repository, Writer};
use crate::stream::{BackupStream, Event, Request};
use crate::take::{Source, newest_whole, to_repository};

/// The log is gone from the position on that was asked for: `ChangeStreamHistoryLost`.
const HISTORY_LOST: i32 = 286;
/// The position is behind the end of the log: `BadValue`.
const BAD_VALUE: i32 = 2;
/// The pause before another attempt after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// The pause before another attempt to make a backup.
const BACKUP_RETRY: Duration = Duration::from_secs(30);

/// Archives until the user asks to stop. Failures of the server are reported, and the request is repeated.
pub fn run(source: &Source, repository: &Repository) -> Result<()> {
    let _lock = repository.lock(Writer::Archive)?;
    let mut last = String::new();
    let mut backup = Backup::default();
    loop {
        let ended = follow(source, repository, &mut backup, &mut last);
        if source.stop.load(Ordering::Relaxed) {
            backup.wait();
            return Ok(());
        }
        match ended {
            Ok(()) | Err(Error::Stopped) => {}
            Err(error @ Error::Server(_)) => {
                let text = error.to_string();
                if text != last {
                    eprintln!("frond archive: {text}; trying again");
                }
                last = text;
            }
            Err(error) => {
                backup.wait();
                return Err(error);
            }
        }
        std::thread::sleep(RETRY);
    }
}

/// A backup that is made beside the archive.
#[derive(Default)]
struct Backup {
    running: Option<JoinHandle<Result<Description>>>,
    is_due: bool,
    not_before: Option<Instant>,
}

impl Backup {
    /// Starts one if it is due, and reports the one that has ended.
    fn tick(&mut self, source: &Source, repository: &Repository) {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait();
        }
        let may_start = self.not_before.is_none_or(|time| Instant::now() >= time);
        if self.is_due && may_start && self.running.is_none() {
            let (source, repository) = (source.clone(), repository.clone());
            let run = move || to_repository(&source, &repository, true, &mut Meter::new(true));
            self.running = Some(std::thread::spawn(run));
        }
    }

    fn wait(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        match running.join() {
            Ok(Ok(backup)) => {
                self.is_due = false;
                eprintln!(
                    "frond archive: made the backup {} of {}, {}",
                    backup.id,
                    time_text(backup.mark.time),
                    bytes(backup.stored_bytes())
                );
            }
            Ok(Err(Error::Stopped)) => {}
            Ok(Err(error)) => {
                eprintln!("frond archive: a backup failed: {error}; trying again");
                self.not_before = Instant::now().checked_add(BACKUP_RETRY);
            }
            Err(_) => eprintln!("frond archive: a backup failed"),
        }
    }
}

/// Follows the log of one store until the connection ends.
fn follow(
    source: &Source,
    repository: &Repository,
    backup: &mut Backup,
    last: &mut String,
) -> Result<()> {
    let store = source.store_id()?;
    let mut writer = LogWriter::open(&repository.log_folder(&store))?;
    let newest = newest_whole(repository, store)?;
    let from = position(&writer, newest.as_ref());
    backup.is_due |= newest.is_none();
    let open = |from| {
        let request = Request {
            follow_log: Some(from),
            ..Request::default()
        };
        BackupStream::open(&source.uri, &source.stop, &request)
    };
    let mut stream = match open(from) {
        Err(error) if is_gone(&error) => {
            eprintln!("frond archive: {error}; a backup closes the gap");
            backup.is_due = true;
            open(None)?
        }
        other => other?,
    };
    last.clear();
    loop {
        backup.tick(source, repository);
        let more = stream.next_batch(&mut |event| take(event, store, &mut writer));
        let ticked = writer.tick();
        match more.and_then(|more| ticked.map(|()| more)) {
            Ok(true) => {}
            Ok(false) => return writer.sync(),
            Err(error) => {
                writer.sync()?;
                if !matches!(error, Error::Server(_)) {
                    stream.close();
                }
                return Err(error);
            }
        }
    }
}

/// The position at which the archive continues: its own end, or the end of the newest backup if that is later or there is no archive.
fn position(writer: &LogWriter, newest: Option<&Description>) -> Option<u64> {
    writer.end().max(newest.map(|backup| backup.log_end))
}

fn is_gone(error: &Error) -> bool {
    matches!(error.code(), Some(HISTORY_LOST | BAD_VALUE))
}

fn take(event: Event<'_>, store: StoreId, writer: &mut LogWriter) -> Result<()> {
    match event {
        Event::Begin(begin) if begin.store_id != store => Err(Error::Stopped),
        Event::Log { from, to, bytes } => writer.piece(from, to, bytes),
        Event::Mark(mark) => writer.mark(&mark),
        _ => Ok(()),
    }
}
