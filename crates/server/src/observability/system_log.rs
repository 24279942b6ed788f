//! The log of the system, over its socket.

use std::io;
#[cfg(test)]
use std::path::Path;
use std::str::FromStr;

use syslog::{Facility, Formatter3164, Logger, LoggerBackend};

use crate::limits::SYSTEM_LOG_BYTES_MAX;

/// The severity of a line in the system's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

/// A connection to the log of the system.
pub struct SystemLog {
    formatter: Formatter3164,
    logger: Logger<LoggerBackend, Formatter3164>,
}

fn formatter(facility: &str) -> Result<Formatter3164, String> {
    let facility = Facility::from_str(facility)
        .map_err(|()| format!("the system's log has no facility '{facility}'"))?;
    Ok(Formatter3164 {
        facility,
        hostname: None,
        process: "frond".into(),
        pid: std::process::id(),
    })
}

impl SystemLog {
    /// Connects to it.
    ///
    /// # Errors
    /// A message: there is none.
    pub fn open(facility: &str) -> Result<SystemLog, String> {
        let formatter = formatter(facility)?;
        let logger = syslog::unix(formatter.clone())
            .map_err(|error| format!("cannot connect to the system's log: {error}"))?;
        Ok(SystemLog { formatter, logger })
    }

    /// Connects to the one that listens at a path.
    #[cfg(test)]
    pub fn open_at(facility: &str, path: &Path) -> Result<SystemLog, String> {
        let formatter = formatter(facility)?;
        let logger =
            syslog::unix_custom(formatter.clone(), path).map_err(|error| error.to_string())?;
        Ok(SystemLog { formatter, logger })
    }

    /// Sends a line. A long one is cut: the system takes no longer messages. One that cannot be sent is tried once more on
    /// a new connection, because the other end may have been started again.
    pub fn send(&mut self, level: Level, line: &str) {
        // A failure to write the log cannot be reported anywhere.
        drop(self.try_send(level, line));
    }

    /// As [`SystemLog::send`].
    ///
    /// # Errors
    /// If the line cannot be sent.
    pub fn try_send(&mut self, level: Level, line: &str) -> io::Result<()> {
        let line = line
            .get(..line.floor_char_boundary(SYSTEM_LOG_BYTES_MAX))
            .unwrap_or(line);
        if send(&mut self.logger, level, line).is_ok() {
            return Ok(());
        }
        let failed = |error: syslog::Error| io::Error::other(error.to_string());
        self.logger = syslog::unix(self.formatter.clone()).map_err(failed)?;
        send(&mut self.logger, level, line).map_err(failed)
    }
}

fn send(
    logger: &mut Logger<LoggerBackend, Formatter3164>,
    level: Level,
    line: &str,
) -> syslog::Result<()> {
    match level {
        Level::Error => logger.err(line),
        Level::Warning => logger.warning(line),
        Level::Info => logger.info(line),
        Level::Debug => logger.debug(line),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn lines_have_a_priority_and_are_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let other = UnixDatagram::bind(&path).unwrap();
        let mut log = SystemLog::open_at("local3", &path).unwrap();
        log.send(Level::Warning, "a line");
        log.send(Level::Info, &"x".repeat(100_000));
        let mut buffer = vec![0; 200_000];
        let len = other.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
        // 8 for each facility, of which local3 is 19, and 4 for a warning.
        assert!(
            text.starts_with("<156>") && text.ends_with(": a line"),
            "{text}"
        );
        let len = other.recv(&mut buffer).unwrap();
        assert!(
            (SYSTEM_LOG_BYTES_MAX..SYSTEM_LOG_BYTES_MAX + 200).contains(&len),
            "{len}"
        );
        assert!(SystemLog::open_at("nonsense", &path).is_err());
    }
}
