//! A worker as the server sees it: a process and a socket to it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use frond_bson::Doc;
use frond_error::{Error as Fault, Result};

use crate::protocol::{Inbox, Kind, MESSAGE_BYTES_MAX, Malformed, head};

/// The interval at which a thread that waits for a worker checks whether its request has to end.
pub const LOOK: Duration = Duration::from_millis(10);

/// Variables that a worker has from the server's environment: its dates are those of this time zone.
const VARIABLES: [&str; 2] = ["TZ", "TZDIR"];

/// The program of a worker, which calls [`run_worker`](crate::run_worker).
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
    /// Variables of its environment, which has no others but the time zone.
    pub variables: Vec<(OsString, OsString)>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum WorkerFailure {
    /// The request has to end.
    Ends(Fault),
    /// The process has ended, or does not speak the protocol.
    Lost,
}

impl From<Malformed> for WorkerFailure {
    fn from(_: Malformed) -> WorkerFailure {
        WorkerFailure::Lost
    }
}

/// A worker. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stream: UnixStream,
    inbox: Inbox,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Starts a worker. It ends with the thread that calls this.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(program: &WorkerProgram) -> io::Result<Process> {
        let (stream, other) = UnixStream::pair()?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        let variables = VARIABLES.iter().filter_map(|name| {
            let value = std::env::var_os(name)?;
            Some((name, value))
        });
        let child = Command::new(&program.path)
            .arg0("frond")
            .args(&program.arguments)
            .env_clear()
            .envs(variables)
            .envs(program.variables.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            // A signal from the server's terminal is for the server.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Process {
            child,
            stream,
            inbox: Inbox::default(),
        })
    }

    /// Ends the process, whatever it does, and returns how it ended.
    pub fn kill(&mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait().ok()
    }

    /// Sends a message whose body is made of `parts`. Calls `check` again and again while it waits.
    ///
    /// # Errors
    /// The error of `check`; `Lost` if the process has ended.
    pub fn send(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        check: &dyn Fn() -> Result<()>,
    ) -> std::result::Result<(), WorkerFailure> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let head = head(kind, len);
        let mut slices = Vec::with_capacity(parts.len() + 1);
        slices.push(IoSlice::new(&head));
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        let mut rest = slices.as_mut_slice();
        let mut left = head.len() + len;
        while left > 0 {
            match self.stream.write_vectored(rest) {
                Ok(0) => return Err(WorkerFailure::Lost),
                Ok(written) => {
                    left = left.saturating_sub(written);
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(error) => pause(&error, check)?,
            }
        }
        Ok(())
    }

    /// Passes each message to `take`, until it returns something. Calls `check` again and again while it waits.
    ///
    /// # Errors
    /// The error of `check`; `Lost` if the process has ended, or if `take` returns it.
    pub fn receive<T>(
        &mut self,
        check: &dyn Fn() -> Result<()>,
        mut take: impl FnMut(Kind, &[u8]) -> std::result::Result<Option<T>, WorkerFailure>,
    ) -> std::result::Result<T, WorkerFailure> {
        // A function may print without an end. The clock is read only from the second message on.
        let mut looked: Option<Instant> = None;
        loop {
            while let Some((kind, body)) = self.inbox.take()? {
                if let Some(taken) = take(kind, self.inbox.body(body))? {
                    return Ok(taken);
                }
                if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                    check().map_err(WorkerFailure::Ends)?;
                    looked = Some(Instant::now());
                }
            }
            match self.stream.read(self.inbox.room()?) {
                Ok(0) => return Err(WorkerFailure::Lost),
                Ok(bytes) => self.inbox.add(bytes),
                Err(error) => pause(&error, check)?,
            }
        }
    }
    /// Waits until the worker has ended its engine. Returns the bytes of memory that it still has; `None` if it takes too long.
    pub fn end(&mut self, until: Instant) -> Option<i64> {
        loop {
            if let Some((kind, body)) = self.inbox.take().ok()? {
                let body = Doc::validate(self.inbox.body(body)).ok()?;
                return body.get_i64("resident").filter(|_| kind == Kind::Ended);
            }
            match self.stream.read(self.inbox.room().ok()?) {
                Ok(0) => return None,
                Ok(bytes) => self.inbox.add(bytes),
                Err(error) => pause(&error, &|| Ok(())).ok()?,
            }
            if Instant::now() >= until {
                return None;
            }
        }
    }
}

/// Goes on after a pause in which nothing could be read or written.
fn pause(
    error: &io::Error,
    check: &dyn Fn() -> Result<()>,
) -> std::result::Result<(), WorkerFailure> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {
            check().map_err(WorkerFailure::Ends)
        }
        _ => Err(WorkerFailure::Lost),
    }
}

/// Whether a message with a body of this size can be sent.
pub fn fits(bytes: usize) -> bool {
    bytes < MESSAGE_BYTES_MAX
}
