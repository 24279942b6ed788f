//! The paths that pages name, and the walks in READMEs of crates: tables of the files that a request passes, going down only.

use std::path::Path;

use super::layers::{self, Arrow, reaches};

/// The header of a walk.
const HEADER: &str = "| file | what it does there |";

/// The paths that a text has in code: what stands between backquotes and has a slash, but no pattern.
pub fn paths(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|path| path.contains('/') && !path.contains(['*', ' ', ':', '…', '\n']))
        .collect()
}

/// The walks of a page: of each the paths in its first column.
pub fn walks(page: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut in_walk = false;
    for line in page.lines() {
        if line == HEADER {
            found.push(Vec::new());
            in_walk = true;
        } else if !line.starts_with('|') {
            in_walk = false;
        } else if in_walk && let Some(walk) = found.last_mut() {
            let first = line.trim_start_matches('|').split('|').next();
            walk.extend(paths(first.unwrap_or_default()));
        }
    }
    found
}

/// Whether a path exists below the root of the repository, or below its crates.
pub fn exists(root: &Path, path: &str) -> bool {
    root.join(path).exists() || root.join("crates").join(path).exists()
}

/// The steps of a walk that go up: to a crate above, or to a module that uses one that the walk passed before. `crates`
/// has the crates from the top to the bottom, with the arrows between their modules.
pub fn steps_up(walk: &[&str], crates: &[(&str, Vec<Arrow>)]) -> Vec<String> {
    let place = |path: &str| -> Option<(usize, String)> {
        let (of_crate, file) = path.split_once("/src/")?;
        let position = crates.iter().position(|(name, _)| *name == of_crate)?;
        let module = file.split('/').next()?;
        Some((position, module.trim_end_matches(".rs").to_owned()))
    };
    let mut problems = Vec::new();
    for (at, path) in walk.iter().enumerate() {
        let Some((of_crate, module)) = place(path) else {
            problems.push(format!("{path} lies in no crate of the walk"));
            continue;
        };
        for before in walk.iter().take(at) {
            let Some((crate_before, module_before)) = place(before) else {
                continue;
            };
            let goes_up = of_crate < crate_before
                || (of_crate == crate_before
                    && module != module_before
                    && reaches(&crates[of_crate].1, &module, &module_before));
            if goes_up {
                problems.push(format!("{before} comes before {path}, which uses it"));
            }
        }
    }
    problems
}

#[test]
fn walks_and_their_steps_up_are_seen() {
    let page = "Text with `a/b.rs` and `x`.\n\n| file | what it does there |\n| --- | --- |\n\
                | `up/src/a.rs`, `up/src/b/` | `not/a/step` |\n\nMore.\n| `no/walk` | |\n";
    assert_eq!(
        paths(page),
        [
            "a/b.rs",
            "up/src/a.rs",
            "up/src/b/",
            "not/a/step",
            "no/walk"
        ]
    );
    assert_eq!(walks(page), [["up/src/a.rs", "up/src/b/"]]);
    let up = layers::arrows(&layers::Sources::from([
        ("a.rs", "use crate::b::X;"),
        ("b/mod.rs", "use crate::c::X;"),
        ("c.rs", ""),
    ]));
    let crates = [("up", up.unwrap()), ("down", Vec::new())];
    for (walk, expected) in [
        (&["up/src/a.rs", "up/src/b/mod.rs", "down/src/d.rs"][..], 0),
        (&["up/src/a.rs", "up/src/c.rs", "up/src/c.rs"], 0),
        (&["up/src/b/", "up/src/a.rs"], 1),
        // Through another module.
        (&["up/src/c.rs", "up/src/a.rs"], 1),
        (&["down/src/d.rs", "up/src/a.rs"], 1),
        (&["elsewhere/src/a.rs"], 1),
    ] {
        let problems = steps_up(walk, &crates);
        assert_eq!(problems.len(), expected, "{walk:?}: {problems:?}");
    }
}
