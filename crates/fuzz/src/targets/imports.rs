//! Files that are imported, and connection strings.

use frond_client::Uri;
use frond_transfer::fuzzing::{DECODERS, write_archive};

/// The number of a reader, then a file for it.
pub fn seeds() -> Vec<Vec<u8>> {
    let archive = tempfile::NamedTempFile::new().expect("a temporary file");
    write_archive(archive.path()).expect("the archive can be written");
    let archive = std::fs::read(archive.path()).expect("the archive can be read");
    let lines = b"{\"_id\": 1, \"a\": {\"$date\": \"2020-01-01T00:00:00Z\"}}\n{\"_id\": {\"$oid\": \"0123456789abcdef01234567\"}}\n";
    let array = b"[{\"a\": [1, 2.5, null]}, {\"b\": {\"$regex\": \"x\", \"$options\": \"i\"}}]";
    let rows =
        b"n.int32(),at.date(2006-01-02),s.string(),d.double()\n1,2020-02-29,\"a \"\"b\"\"\",2.5\n";
    let tabs = b"n.auto()\tb.binary(base64)\tl.boolean()\n7\tAAEC\ttrue\n";
    let files: [&[u8]; 5] = [&archive, lines, array, rows, tabs];
    let numbered = (0_u8..).zip(files);
    numbered
        .map(|(number, file)| [&[number], file].concat())
        .collect()
}

/// The first byte chooses the reader.
pub fn run(input: &[u8]) {
    if let [number, bytes @ ..] = input {
        let (_, read) = DECODERS[usize::from(*number) % DECODERS.len()];
        read(bytes);
    }
}

/// Connection strings with most options.
pub fn uri_seeds() -> Vec<Vec<u8>> {
    [
        "mongodb://user:p%40ss@a.example:27017,[::1]:1/db?replicaSet=rs&tls=true&authSource=admin",
        "mongodb://%2Ftmp%2Ffrond.sock/?authMechanism=SCRAM-SHA-256&compressors=zstd,zlib",
        "mongodb+srv://a.example/?retryWrites=true&readPreference=secondary&w=majority",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Reads a connection string.
pub fn run_uri(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = text.parse::<Uri>();
    }
}
