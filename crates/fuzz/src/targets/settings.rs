//! The configuration file and the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Words of the command line are read into the settings, as `frond serve` reads them.
fn check(words: &[&OsStr]) {
    let words = std::iter::once(OsStr::new("serve")).chain(words.iter().copied());
    if let Ok(arguments) = frond_server::command_line().try_get_matches_from(words) {
        let _ = frond_server::check_settings(&arguments);
    }
}

/// A file with most settings, in the nested and in the dotted form.
pub fn file_seeds() -> Vec<Vec<u8>> {
    let nested = "storage:\n  dbPath: data\n  journal: {enabled: true, commitIntervalMs: 30}\n\
        net:\n  port: 27018\n  bindIp: 127.0.0.1,::1\n  unixDomainSocket:\n    enabled: false\n\
        systemLog: {destination: file, path: log, logAppend: true}\nsetParameter: {enableTestCommands: 1}\n";
    let dotted = "net.port: 0\nnet.maxIncomingConnections: 10\nstorage.wiredTiger.engineConfig.cacheSizeGB: 0.25\n\
        operationProfiling.slowOpThresholdMs: 5 # ms\n";
    let anchors = "a: &a [1, 2]\nb: *a\nc: !!str 1\nd: |\n  text\n---\ne: {f: [g]}\n";
    [nested, dotted, anchors]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

/// Reads a configuration file.
pub fn run_file(input: &[u8]) {
    thread_local! {
        static FILE: tempfile::NamedTempFile = tempfile::NamedTempFile::new().expect("a temporary file");
    }
    FILE.with(|file| {
        std::fs::write(file.path(), input).expect("the file can be written");
        check(&[OsStr::new("--config"), file.path().as_os_str()]);
    });
}

/// Command lines, a word in each line.
pub fn line_seeds() -> Vec<Vec<u8>> {
    [
        "--dbpath\ndata\n--port\n0\n--bind_ip\nlocalhost,::1,/run/f.sock\n--cacheSizeGB\n0.25",
        "--journalCommitInterval\n7\n--logFormat\ntext\n--logpath\nl\n--logappend\n--quiet",
        "--setParameter\nenableTestCommands=1\n--setParameter\ncursorTimeoutMillis=5\n-vvv",
        "--networkMessageCompressors\nzlib,snappy\n--filePermissions\n0777\n--slowms\n0\n--maxConns\n10",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Reads a command line.
pub fn run_line(input: &[u8]) {
    let words: Vec<&OsStr> = input
        .split(|byte| *byte == b'\n')
        .map(OsStr::from_bytes)
        .collect();
    // A file that it names may be anything, also a device that never ends.
    let names_file = |word: &&OsStr| {
        let word = word.as_bytes();
        word.starts_with(b"-f")
            || word.starts_with(b"--c")
            || (word.starts_with(b"-") && word.contains(&b'f'))
    };
    if !words.iter().any(names_file) {
        check(&words);
    }
}
