//! The inputs that are kept: files below `corpus`, one folder for each target.

use std::path::PathBuf;

use crate::target::Target;

/// The folder of a target's inputs.
pub fn folder(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name)
}

/// The inputs of a target: those that its code makes, and those that are kept, by name.
pub fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.seeds)();
    let files = std::fs::read_dir(folder(target)).into_iter().flatten();
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    inputs.extend(paths.iter().filter_map(|path| std::fs::read(path).ok()));
    inputs
}
