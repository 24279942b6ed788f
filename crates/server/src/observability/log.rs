//! The log: mongod's structured lines, or plain text.
//!
//! Every line has a severity, a component, a number that names the kind of line, a context (which
//! connection or task), a message and attributes. Numbers are mongod's where the line is the same.
//! The last lines stay in memory for the command `getLog`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use frond_bson::{Doc, DocBuf, Value, extjson};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::observability::system_log::{Level, SystemLog};
use crate::settings::{LogFormat, LogRotate, Settings};

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// Something that may fail, or needs the operator.
    Warning,
    /// Events that matter to an operator.
    Info,
    /// Detail, written when the verbosity is at least this level (1 to 5).
    Debug(u8),
}

impl Severity {
    fn of_system(self) -> Level {
        match self {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
            Severity::Info => Level::Info,
            Severity::Debug(_) => Level::Debug,
        }
    }

    fn letter(self) -> &'static str {
        match self {
            Severity::Error => "E",
            Severity::Warning => "W",
            Severity::Info => "I",
            Severity::Debug(1) => "D1",
            Severity::Debug(2) => "D2",
            Severity::Debug(3) => "D3",
            Severity::Debug(4) => "D4",
            Severity::Debug(_) => "D5",
        }
    }
}

/// The part of the server that a line is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Control,
    Network,
    /// Logins, and what users may do.
    Access,
    Command,
    /// The engine and its files.
    Storage,
    Index,
    Query,
    /// Elections, members and copies of a replica set.
    Replication,
    /// Transactions of several statements.
    Transaction,
}

impl Component {
    /// Every component, with its name in settings and parameters.
    pub const NAMED: [(&'static str, Component); 9] = [
        ("accessControl", Component::Access),
        ("command", Component::Command),
        ("control", Component::Control),
        ("index", Component::Index),
        ("network", Component::Network),
        ("query", Component::Query),
        ("replication", Component::Replication),
        ("storage", Component::Storage),
        ("transaction", Component::Transaction),
    ];

    fn name(self) -> &'static str {
        match self {
            Component::Control => "CONTROL",
            Component::Network => "NETWORK",
            Component::Access => "ACCESS",
            Component::Command => "COMMAND",
            Component::Storage => "STORAGE",
            Component::Index => "INDEX",
            Component::Query => "QUERY",
            Component::Replication => "REPL",
            Component::Transaction => "TXN",
        }
    }
}

/// Lines kept in memory, as many as mongod keeps.
const RECENT_LINES: usize = 1024;

/// A longer line is truncated in memory, so that the kept lines are bounded.
const RECENT_LINE_BYTES: usize = 4096;

/// The verbosity of a component that has none of its own.
const INHERITED: u8 = u8::MAX;

/// The log of a server.
pub struct Log {
    format: LogFormat,
    rotate: LogRotate,
    verbosity: AtomicU8,
    components: [AtomicU8; Component::NAMED.len()],
    redacts: AtomicBool,
    path: Option<PathBuf>,
    /// The path named a regular file at the start, and must do so after each rotation: not a link, and not a pipe, whose other end
    /// could block every line.
    is_regular: bool,
    sink: Mutex<Sink>,
    recent: Mutex<Recent>,
}

enum Sink {
    Stdout,
    File(File),
    System(SystemLog),
}

#[derive(Default)]
struct Recent {
    lines: VecDeque<String>,
    total: u64,
    startup_warnings: Vec<String>,
}

impl Log {
    /// Opens the log that the settings ask for.
    pub fn open(settings: &Settings) -> Result<Log, String> {
        let mut is_regular = false;
        let sink = match &settings.log_path {
            None if settings.syslog => Sink::System(SystemLog::open(&settings.syslog_facility)?),
            None => Sink::Stdout,
            Some(path) => {
                let failed =
                    |error| format!("cannot open the log file {}: {error}", path.display());
                if !settings.log_append && path.exists() {
                    std::fs::rename(path, stamped(path)).map_err(failed)?;
                }
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.map_err(failed)?;
                let found = std::fs::symlink_metadata(path).map_err(failed)?;
                is_regular = found.is_file();
                Sink::File(file)
            }
        };
        Ok(Log {
            format: settings.log_format,
            rotate: settings.log_rotate,
            verbosity: AtomicU8::new(settings.log_verbosity),
            components: settings
                .log_components
                .map(|own| AtomicU8::new(own.unwrap_or(INHERITED))),
            redacts: AtomicBool::new(settings.security.redacts_log),
            path: settings.log_path.clone(),
            is_regular,
            sink: Mutex::new(sink),
            recent: Mutex::new(Recent::default()),
        })
    }

    /// True if a line of this component and severity would be written.
    pub fn wants(&self, component: Component, severity: Severity) -> bool {
        let level = match severity {
            Severity::Debug(level) => level,
            _ => return true,
        };
        let own = self.of_component(component);
        level <= own.unwrap_or_else(|| self.verbosity())
    }

    /// Level up to which debug lines of a component are written, if it has one of its own.
    pub fn of_component(&self, component: Component) -> Option<u8> {
        let own = self.components.get(component as usize);
        let own = own.map_or(INHERITED, |own| own.load(Ordering::Relaxed));
        (own != INHERITED).then_some(own)
    }

    /// Changes [`Log::of_component`].
    pub fn set_of_component(&self, component: Component, level: Option<u8>) {
        if let Some(own) = self.components.get(component as usize) {
            own.store(level.unwrap_or(INHERITED), Ordering::Relaxed);
        }
    }

    /// Whether lines show no data of clients.
    pub fn redacts(&self) -> bool {
        self.redacts.load(Ordering::Relaxed)
    }

    /// Changes [`Log::redacts`].
    pub fn set_redacts(&self, on: bool) {
        self.redacts.store(on, Ordering::Relaxed);
    }

    /// The attributes of a line without the data of clients. What fields are called, and figures, stay.
    fn redacted(attributes: &Doc) -> DocBuf {
        const OF_CLIENTS: [&str; 5] = [
            "command",
            "originatingCommand",
            "errMsg",
            "errmsg",
            "errInfo",
        ];
        let mut out = DocBuf::new();
        for (name, value) in attributes.iter() {
            match (OF_CLIENTS.contains(&name), value) {
                // The name of a command.
                (true, value @ Value::String(_)) if name == "command" => {
                    out.push_value(name, &value)
                }
                (true, value) => redact(&mut out, name, &value),
                (false, Value::Document(error)) if name == "error" => {
                    out.push(name, &Log::redacted(error));
                }
                (false, value) => out.push_value(name, &value),
            }
        }
        out
    }

    /// Level up to which debug lines are written.
    pub fn verbosity(&self) -> u8 {
        self.verbosity.load(Ordering::Relaxed)
    }

    /// Changes [`Log::verbosity`].
    pub fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Ordering::Relaxed);
    }

    pub fn line(
        &self,
        severity: Severity,
        component: Component,
        id: u32,
        context: &str,
        message: &str,
        attributes: &Doc,
    ) {
        if !self.wants(component, severity) {
            return;
        }
        let redacted;
        let attributes = if self.redacts() {
            redacted = Log::redacted(attributes);
            &redacted
        } else {
            attributes
        };
        let time = jiff::Timestamp::now();
        let mut line = match self.format {
            LogFormat::Json => json(time, severity, component, id, context, message, attributes),
            LogFormat::Text => text(time, severity, component, context, message, attributes),
        };
        line.push('\n');
        match &mut *self.sink.lock() {
            // A failure to write the log cannot be reported anywhere.
            Sink::Stdout => drop(std::io::stdout().lock().write_all(line.as_bytes())),
            Sink::File(file) => drop(file.write_all(line.as_bytes())),
            Sink::System(log) => log.send(severity.of_system(), line.trim_end()),
        }
        line.pop();
        if line.len() > RECENT_LINE_BYTES {
            line.truncate(line.floor_char_boundary(RECENT_LINE_BYTES));
        }
        line.shrink_to_fit();
        let mut recent = self.recent.lock();
        recent.total += 1;
        if recent.lines.len() == RECENT_LINES {
            recent.lines.pop_front();
        }
        recent.lines.push_back(line);
    }

    /// Writes an informational line.
    pub fn info(&self, component: Component, id: u32, context: &str, message: &str, attr: &Doc) {
        self.line(Severity::Info, component, id, context, message, attr);
    }

    pub fn warning(&self, component: Component, id: u32, context: &str, message: &str, attr: &Doc) {
        self.line(Severity::Warning, component, id, context, message, attr);
    }

    pub fn error(&self, component: Component, id: u32, context: &str, message: &str, attr: &Doc) {
        self.line(Severity::Error, component, id, context, message, attr);
    }

    /// Writes a warning that shells show when they connect.
    pub fn startup_warning(&self, id: u32, message: &str, attributes: &Doc) {
        self.warning(Component::Control, id, "initandlisten", message, attributes);
        // Shells read these as JSON, whatever the format of the log.
        let now = jiff::Timestamp::now();
        let line = json(
            now,
            Severity::Warning,
            Component::Control,
            id,
            "initandlisten",
            message,
            attributes,
        );
        self.recent.lock().startup_warnings.push(line);
    }

    /// The last lines, and how many were written in total.
    pub fn recent(&self) -> (Vec<String>, u64) {
        let recent = self.recent.lock();
        (recent.lines.iter().cloned().collect(), recent.total)
    }

    /// The warnings since the start.
    pub fn startup_warnings(&self) -> Vec<String> {
        self.recent.lock().startup_warnings.clone()
    }

    /// Begins a new log file or reopens the file, depending on the settings.
    pub fn rotate(&self) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut sink = self.sink.lock();
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        if self.rotate == LogRotate::Rename {
            std::fs::rename(path, stamped(path))?;
            options.create_new(true);
        }
        if self.is_regular {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.custom_flags(flags.bits().cast_signed());
        }
        let file = options.open(path)?;
        if self.is_regular && !file.metadata()?.is_file() {
            let what = format!("{} is no regular file any more", path.display());
            return Err(std::io::Error::other(what));
        }
        *sink = Sink::File(file);
        Ok(())
    }
}

/// Stands for a value of a client.
const REDACTED: &str = "###";

/// Adds a value with all that it consists of replaced; the names of fields stay.
fn redact(out: &mut DocBuf, name: &str, value: &Value<'_>) {
    match value {
        Value::Document(inner) => out.push_doc(name, |out| {
            for (name, value) in inner.iter() {
                redact(out, name, &value);
            }
        }),
        Value::Array(inner) => {
            let mut list = DocBuf::new();
            for (name, value) in inner.iter() {
                redact(&mut list, name, &value);
            }
            out.push_value(name, &Value::Array(&list));
        }
        _ => out.push(name, REDACTED),
    }
}

/// The name of a rotated log file.
pub fn stamped(path: &Path) -> PathBuf {
    let time = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H-%M-%S")
        .to_string();
    let mut candidate = path.as_os_str().to_owned();
    candidate.push(format!(".{time}"));
    let mut tries = 0;
    while Path::new(&candidate).exists() && tries < 1000 {
        tries += 1;
        candidate = path.as_os_str().to_owned();
        candidate.push(format!(".{time}-{tries}"));
    }
    PathBuf::from(candidate)
}

/// Milliseconds since 1970 as an ISO 8601 date, in UTC.
pub fn iso_ms(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(time) => format!("{}+00:00", iso(time)),
        Err(_) => ms.to_string(),
    }
}

/// The time as mongod writes it, in UTC.
fn iso(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f").to_string()
}

fn json(
    time: jiff::Timestamp,
    severity: Severity,
    component: Component,
    id: u32,
    context: &str,
    message: &str,
    attributes: &Doc,
) -> String {
    let mut tail = DocBuf::new();
    tail.push("ctx", context);
    tail.push("msg", message);
    if !attributes.is_empty() {
        tail.push("attr", attributes);
    }
    let tail = extjson::to_relaxed(&tail);
    let mut line = String::with_capacity(tail.len() + 96);
    // Columns are aligned as in mongod's log, so that it is readable without a tool.
    let severity = format!("\"{}\"", severity.letter());
    let component = format!("\"{}\"", component.name());
    let _ = write!(
        line,
        "{{\"t\":{{\"$date\":\"{}+00:00\"}},\"s\":{:<6}\"c\":{:<12}\"id\":{:<9}{}",
        iso(time),
        severity + ",",
        component + ",",
        format!("{id},"),
        tail.strip_prefix('{').unwrap_or(&tail)
    );
    line
}

fn text(
    time: jiff::Timestamp,
    severity: Severity,
    component: Component,
    context: &str,
    message: &str,
    attributes: &Doc,
) -> String {
    let mut line = format!(
        "{}Z {:<2} {:<8} [{context}] {}",
        iso(time),
        severity.letter(),
        component.name(),
        one_line(message)
    );
    for (name, value) in attributes.iter() {
        let _ = write!(line, " {name}={}", extjson::value_to_relaxed(&value));
    }
    line
}

/// Escapes line breaks, so that text from a client cannot begin a line of its own.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    fn log(format: LogFormat, path: &Path) -> Log {
        Log::open(&Settings {
            log_path: Some(path.into()),
            log_format: format,
            ..Settings::default()
        })
        .unwrap()
    }

    #[test]
    fn lines_have_the_shape_of_mongods() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = log(LogFormat::Json, &path);
        log.info(
            Component::Network,
            22943,
            "conn1",
            "Connection \"accepted\"\n",
            &doc! {"n": 1},
        );
        log.line(
            Severity::Debug(2),
            Component::Command,
            1,
            "conn1",
            "not written",
            &doc! {},
        );
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = r#""},"s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"conn1","msg":"Connection \"accepted\"\n","attr":{"n":1}}"#;
        assert_eq!(text.lines().count(), 1);
        assert!(text.starts_with("{\"t\":{\"$date\":\"20"), "{text}");
        assert!(text.trim_end().ends_with(expected), "{text}");
        let (lines, total) = log.recent();
        assert_eq!((lines.len(), total), (1, 1));
        assert_eq!(lines[0], text.trim_end());
        assert!(extjson::parse(text.trim_end()).is_ok());
    }

    #[test]
    fn text_is_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = log(LogFormat::Text, &path);
        log.warning(
            Component::Control,
            1,
            "main",
            "a\nb",
            &doc! {"n": 1, "s": "x\ny"},
        );
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.ends_with("Z W  CONTROL  [main] a b n=1 s=\"x\\ny\"\n"),
            "{text}"
        );
    }

    #[test]
    fn memory_is_bounded_and_rotation_keeps_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = log(LogFormat::Text, &path);
        let long = "é".repeat(RECENT_LINE_BYTES);
        for _ in 0..RECENT_LINES + 5 {
            log.info(Component::Control, 1, "x", &long, &doc! {});
        }
        let (lines, total) = log.recent();
        assert_eq!(
            (lines.len(), total as usize),
            (RECENT_LINES, RECENT_LINES + 5)
        );
        assert!(lines.iter().all(|line| line.len() <= RECENT_LINE_BYTES));
        log.rotate().unwrap();
        log.rotate().unwrap();
        log.info(Component::Control, 1, "x", "after", &doc! {});
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("after\n"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
        assert!(log.startup_warnings().is_empty());
        log.startup_warning(22120, "Access control is not enabled", &doc! {});
        assert!(log.startup_warnings()[0].starts_with('{'));
    }

    #[test]
    fn a_rotation_writes_through_no_link_or_pipe() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let target = directory.path().join("target");
        std::fs::write(&target, "untouched").unwrap();
        let log = Log::open(&Settings {
            log_path: Some(path.clone()),
            log_rotate: LogRotate::Reopen,
            log_append: true,
            ..Settings::default()
        })
        .unwrap();
        let moved = directory.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        symlink(&target, &path).unwrap();
        assert!(log.rotate().is_err());
        std::fs::remove_file(&path).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(log.rotate().is_err());
        std::fs::remove_file(&path).unwrap();
        log.info(Component::Control, 1, "x", "still logged", &doc! {});
        assert!(
            std::fs::read_to_string(&moved)
                .unwrap()
                .contains("still logged")
        );
        log.rotate().unwrap();
        log.info(Component::Control, 1, "x", "a new file", &doc! {});
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("a new file")
        );
        assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
    }

    #[test]
    fn a_log_that_is_named_by_a_link_is_reopened_through_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (
            directory.path().join("log"),
            directory.path().join("target"),
        );
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let log = Log::open(&Settings {
            log_path: Some(path),
            log_rotate: LogRotate::Reopen,
            log_append: true,
            ..Settings::default()
        })
        .unwrap();
        log.rotate().unwrap();
        log.info(Component::Control, 1, "x", "through", &doc! {});
        assert!(
            std::fs::read_to_string(&target)
                .unwrap()
                .contains("through")
        );
    }
}
