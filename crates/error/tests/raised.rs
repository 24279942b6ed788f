//! The table of codes lists what the crates above raise, and nothing else.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use frond_error::ErrorCode;

/// The code of all Rust files below a folder, without their test modules.
fn read(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, code);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !path.ends_with("tests.rs")
        {
            let text = fs::read_to_string(&path).unwrap();
            let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            code.push_str(&text[..tests]);
        }
    }
}

#[test]
fn every_listed_code_is_raised() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut code = fs::read_to_string("src/error.rs").unwrap();
    for name in [
        "javascript",
        "oplog",
        "query",
        "replset",
        "storage",
        "store",
        "server",
    ] {
        read(&crates.join(name).join("src"), &mut code);
    }
    let is_raised = |listed: &ErrorCode| {
        let name = format!("ErrorCode::{listed}");
        code.match_indices(&name).any(|(at, _)| {
            let next = code[at + name.len()..].chars().next();
            !next.is_some_and(|c| c.is_alphanumeric())
        })
    };
    let unused: Vec<_> = ErrorCode::NAMED
        .iter()
        .filter(|listed| !is_raised(listed))
        .collect();
    assert!(
        unused.is_empty(),
        "nothing raises {unused:?}: move them to the names that are data only"
    );
}
