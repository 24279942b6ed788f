//! The master key: from a file, or from a command that prints it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::key::KEY_BYTES;
use crate::{Error, Key, Result};

/// The most bytes that a file or a command may have.
const TEXT_BYTES_MAX: usize = 1024;
/// The time that a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// The pause between two looks whether a command has ended.
const PAUSE: Duration = Duration::from_millis(10);
/// Permissions of others and of the group.
const OTHERS: u32 = 0o077;

/// Where the master key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file with 32 bytes in base64. Only its owner may read it.
    File(PathBuf),
    /// A command that prints the same. It is run without a shell: words are separated by spaces, and nothing is quoted.
    Command(String),
}

/// Reads the master key.
///
/// # Errors
/// [`Error::MasterKey`] with the reason.
pub fn read_master_key(source: &KeySource) -> Result<Key> {
    match source {
        KeySource::File(path) => of_file(path),
        KeySource::Command(command) => of_command(command, COMMAND_TIME),
    }
}

fn of_file(path: &Path) -> Result<Key> {
    let shown = path.display();
    let bad = |what: String| Error::MasterKey(format!("the encryption key file {shown} {what}"));
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options
        .open(path)
        .map_err(|error| bad(format!("cannot be opened: {error}")))?;
    check_mode(&file).map_err(bad)?;
    let text = read_text(file).map_err(|error| bad(format!("cannot be read: {error}")))?;
    decode(&text).map_err(bad)
}

fn check_mode(file: &File) -> Result<(), String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mode = found.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(format!(
            "has the mode {mode:04o}, so others than its owner may use it; run chmod 600 on it"
        ));
    }
    Ok(())
}

/// Reads more than is possible for a key, to notice it.
fn read_text(from: impl Read) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(TEXT_BYTES_MAX + 1));
    from.take(TEXT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(text)
}

fn decode(text: &[u8]) -> Result<Key, String> {
    let wanted = "must have 32 bytes in base64, as `openssl rand -base64 32` prints them";
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("is too long; it {wanted}"));
    }
    let decoded = STANDARD.decode(text.trim_ascii()).map(Zeroizing::new);
    let decoded = decoded.map_err(|_| format!("is not base64; it {wanted}"))?;
    let bytes: &[u8; KEY_BYTES] = decoded
        .as_slice()
        .try_into()
        .map_err(|_| format!("has {} bytes; it {wanted}", decoded.len()))?;
    Ok(Key::new(*bytes))
}

fn of_command(command: &str, time: Duration) -> Result<Key> {
    let mut words = command.split_whitespace();
    let program = words
        .next()
        .ok_or_else(|| Error::MasterKey("the encryption key command is empty".to_owned()))?;
    let bad =
        |what: String| Error::MasterKey(format!("the encryption key command {program} {what}"));
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| bad(format!("cannot be run: {error}")))?;
    let output = child.stdout.take();
    // The thread ends with the output of the command, or with the command.
    let reader = std::thread::spawn(move || output.map(read_text).transpose());
    let status = wait(&mut child, time).map_err(|error| bad(error.to_string()))?;
    let Some(status) = status else {
        return Err(bad(format!(
            "has not ended after {} seconds",
            time.as_secs()
        )));
    };
    if !status.success() {
        return Err(bad(format!("has failed: {status}")));
    }
    let until = Instant::now() + time;
    while !reader.is_finished() {
        // Something that the command has started keeps its output open.
        if Instant::now() >= until {
            return Err(bad("has left its output open".to_owned()));
        }
        sleep(PAUSE);
    }
    let text = reader.join().ok().and_then(|read| read.ok().flatten());
    let text = text.ok_or_else(|| bad("has no output that can be read".to_owned()))?;
    decode(&text).map_err(|what| bad(format!("prints what {what}")))
}

/// Waits for the end of a command; one that takes too long is killed.
fn wait(child: &mut Child, time: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + time;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn key() -> Key {
        Key::new(std::array::from_fn(|at| at as u8))
    }

    fn message(result: Result<Key>) -> String {
        result.expect_err("no key").to_string()
    }

    #[test]
    fn a_file_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let source = KeySource::File(path.clone());
        let found = message(read_master_key(&source));
        assert!(found.contains("cannot be opened"), "{found}");
        std::fs::write(&path, format!("{TEXT}\n")).unwrap();
        for (mode, is_fine) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o660, false),
            (0o601, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read_master_key(&source);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
            match read {
                Ok(read) => assert_eq!(read, key()),
                Err(error) => assert!(error.to_string().contains("chmod 600"), "{error}"),
            }
        }
        let directory = KeySource::File(directory.path().to_owned());
        let found = message(read_master_key(&directory));
        assert!(found.contains("is no regular file"), "{found}");
    }

    #[test]
    fn a_key_has_32_bytes() {
        for (text, part) in [
            ("", "has 0 bytes"),
            ("AAEC", "has 3 bytes"),
            (&TEXT.repeat(2)[..], "is not base64"),
            ("no key!", "is not base64"),
            (&"A".repeat(5000)[..], "is too long"),
        ] {
            let found = decode(text.as_bytes()).expect_err("no key");
            assert!(
                found.contains(part) && found.contains("openssl rand"),
                "{found}"
            );
        }
        assert_eq!(decode(format!(" {TEXT}\r\n").as_bytes()), Ok(key()));
    }

    #[test]
    fn a_command_prints_the_key() {
        let run = |command: &str| read_master_key(&KeySource::Command(command.to_owned()));
        assert_eq!(run(&format!("echo  {TEXT}")).unwrap(), key());
        for (command, part) in [
            ("", "is empty"),
            ("/no/such/program", "cannot be run"),
            ("false", "has failed"),
            ("true", "prints what has 0 bytes"),
            // There is no shell.
            ("echo $HOME", "prints what is not base64"),
            ("cat /dev/zero", "has failed"),
        ] {
            let found = message(run(command));
            assert!(found.contains(part), "{command}: {found}");
        }
        let found = message(of_command("sleep 1000", Duration::from_millis(50)));
        assert!(found.contains("has not ended"), "{found}");
    }
}
