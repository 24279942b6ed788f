//! Passes the commit to the build, for `buildInfo.gitVersion`.
//!
//! `FROND_GIT_VERSION` sets it where the sources come without their history. The watched files change only with
//! commits and branches, so that nothing is rebuilt without a reason.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FROND_GIT_VERSION");
    let given = std::env::var("FROND_GIT_VERSION").ok();
    let commit = given
        .filter(|given| !given.is_empty())
        .or_else(commit)
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FROND_GIT_VERSION={commit}");
}

/// The commit that is checked out; none without a repository.
fn commit() -> Option<String> {
    let repository = Path::new(&std::env::var("CARGO_MANIFEST_DIR").ok()?).join("../../.git");
    let own = own_folder(&repository)?;
    // A worktree shares the references of its repository.
    let shared = match std::fs::read_to_string(own.join("commondir")) {
        Ok(path) => own.join(path.trim()),
        Err(_) => own.clone(),
    };
    watch(&own.join("logs/HEAD"));
    let head = watched(&own.join("HEAD"))?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else {
        return hash(&head);
    };
    watched(&own.join(reference))
        .or_else(|| watched(&shared.join(reference)))
        .and_then(|text| hash(&text))
        .or_else(|| packed(&watched(&shared.join("packed-refs"))?, reference))
}

/// The folder of a repository, or of the worktree whose `.git` is a file.
fn own_folder(git: &Path) -> Option<PathBuf> {
    if git.is_dir() {
        return Some(git.to_path_buf());
    }
    let text = std::fs::read_to_string(git).ok()?;
    let folder = text.strip_prefix("gitdir: ")?.trim();
    Some(git.parent()?.join(folder))
}

fn watch(path: &Path) {
    // A missing file would count as changed on each build.
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn watched(path: &Path) -> Option<String> {
    watch(path);
    std::fs::read_to_string(path).ok()
}

/// The line of a reference in `packed-refs`.
fn packed(lines: &str, reference: &str) -> Option<String> {
    lines.lines().find_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        (name == reference).then(|| hash(commit))?
    })
}

fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
