//! The sections of a PEM file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pkcs8::der::pem;
use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// The largest file that is read. Revocation lists of public authorities have tens of megabytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// One section of a file, decoded.
pub(crate) struct Section {
    /// The type: `CERTIFICATE`, `PRIVATE KEY` …
    pub label: String,
    pub der: Zeroizing<Vec<u8>>,
}

/// Reads a file that holds no secret.
pub(crate) fn read(path: &Path) -> Result<Vec<Section>> {
    sections(path, &content(path, open(path)?)?)
}

/// Reads a file that holds a private key: only its owner may be able to read it.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<Section>> {
    let file = open(path)?;
    let failed = |error| Error::Read(path.to_owned(), error);
    let metadata = file.metadata().map_err(failed)?;
    // The file that was opened is looked at, so it cannot be exchanged between the check and the use.
    check(path, metadata.uid(), metadata.mode(), process_user()?)?;
    sections(path, &content(path, file)?)
}

/// Checks the owner and the mode of a file with a key.
fn check(path: &Path, owner: u32, mode: u32, process: u32) -> Result<()> {
    if owner != 0 && owner != process {
        return Err(Error::Owner(path.to_owned()));
    }
    if mode & 0o077 != 0 {
        return Err(Error::Permissions(path.to_owned(), mode & 0o7777));
    }
    Ok(())
}

/// The user that this process runs as.
fn process_user() -> Result<u32> {
    // The directory of the process belongs to its effective user.
    let path = Path::new("/proc/self");
    std::fs::metadata(path)
        .map(|process| process.uid())
        .map_err(|error| Error::Read(path.to_owned(), error))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::Read(path.to_owned(), error))
}

fn content(path: &Path, file: File) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |error| Error::Read(path.to_owned(), error);
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Error::file(path, "the file is too large"));
    }
    // With room for all of it, so that no piece of a key stays behind in a buffer that was too small.
    let mut content = Zeroizing::new(Vec::with_capacity(bytes as usize + 1));
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut content)
        .map_err(failed)?;
    Ok(content)
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";

/// Decodes every section. What is between sections is a comment.
fn sections(path: &Path, content: &[u8]) -> Result<Vec<Section>> {
    let mut found = Vec::new();
    let mut begin = None;
    let mut at = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        if line.starts_with(BEGIN) {
            if begin.is_some() {
                return Err(Error::file(path, "a PEM section begins inside of another"));
            }
            begin = Some(at);
        } else if line.starts_with(END) {
            let Some(begin) = begin.take() else {
                return Err(Error::file(path, "a PEM section ends that has not begun"));
            };
            let section = content.get(begin..end).unwrap_or_default();
            found.push(decode(path, section)?);
        }
        at = end;
    }
    match begin {
        Some(_) => Err(Error::file(path, "a PEM section has no END line")),
        None => Ok(found),
    }
}

fn decode(path: &Path, section: &[u8]) -> Result<Section> {
    let has_header = |line: &[u8]| line.starts_with(b"Proc-Type:");
    let mut lines = section.split(|byte| *byte == b'\n');
    if lines.any(has_header) {
        return Err(Error::file(
            path,
            "the private key is encrypted in OpenSSL's old format (Proc-Type: 4,ENCRYPTED), which is not supported; convert \
             it to PKCS#8 with: openssl pkcs8 -topk8 -in OLD.pem -out NEW.pem",
        ));
    }
    let failed = |error| Error::file(path, format!("a PEM section cannot be decoded: {error}"));
    let mut decoder = pem::Decoder::new_detect_wrap(section).map_err(failed)?;
    let label = decoder.type_label().to_owned();
    let mut der = Zeroizing::new(Vec::with_capacity(decoder.remaining_len()));
    decoder.decode_to_end(&mut der).map_err(failed)?;
    Ok(Section { label, der })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections_of(text: &str) -> Result<Vec<Section>> {
        sections(Path::new("file.pem"), text.as_bytes())
    }

    #[test]
    fn sections_are_found_between_comments() {
        let text = "Bag Attributes\n    localKeyID: 01\n-----BEGIN A-----\nAQID\n-----END A-----\nsubject=x\r\n\
                    -----BEGIN B C-----\r\nBAU=\r\n-----END B C-----\r\n";
        let found = sections_of(text).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|s| (s.label.as_str(), s.der.as_slice()))
            .collect();
        assert_eq!(found, [("A", &[1u8, 2, 3][..]), ("B C", &[4, 5])]);
        assert!(sections_of("nothing\n").unwrap().is_empty());
    }

    #[test]
    fn broken_sections_are_refused() {
        for (text, part) in [
            ("-----BEGIN A-----\nAQID\n", "no END"),
            ("-----END A-----\n", "not begun"),
            ("-----BEGIN A-----\n-----BEGIN A-----\n", "inside"),
            ("-----BEGIN A-----\nAQID\n-----END B-----\n", "decoded"),
            ("-----BEGIN A-----\nAQ?D\n-----END A-----\n", "decoded"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAQID\n\
                 -----END RSA PRIVATE KEY-----\n",
                "openssl pkcs8 -topk8",
            ),
        ] {
            let error = sections_of(text)
                .err()
                .map(|error| error.to_string())
                .unwrap();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn keys_are_read_from_private_files_only() {
        let path = Path::new("k.pem");
        for (owner, mode, process, is_fine) in [
            (5, 0o100_600, 5, true),
            (5, 0o100_400, 5, true),
            (0, 0o100_400, 5, true),
            (6, 0o100_400, 5, false),
            (5, 0o100_640, 5, false),
            (5, 0o100_604, 5, false),
            (5, 0o100_610, 5, false),
            (6, 0o100_400, 0, false),
        ] {
            assert_eq!(
                check(path, owner, mode, process).is_ok(),
                is_fine,
                "{owner} {mode:o}"
            );
        }
        let error = check(path, 5, 0o100_644, 5).unwrap_err().to_string();
        assert!(error.contains("k.pem are too open (0644)"), "{error}");
    }
}
