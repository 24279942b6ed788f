//! The layers inside a crate: its top-level modules import each other without circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The sources of one crate, by their paths below its `src` folder.
pub type Sources<'a> = BTreeMap<&'a str, &'a str>;

/// An arrow between two modules, with the place of one path that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    pub place: String,
}

/// The meaning of `crate::NAME`.
struct Root {
    /// The module behind each name: the modules themselves, names that the root exports, exported macros.
    modules: BTreeMap<String, String>,
    /// Names that the root exports from crates below.
    from_below: BTreeSet<String>,
}

/// The shortest circle of top-level modules of a crate, or a path to an item that the root itself defines.
pub fn circle(sources: &Sources<'_>) -> Option<String> {
    match arrows(sources) {
        Err(problem) => Some(problem),
        Ok(arrows) => shortest_circle(&arrows).map(|circle| {
            let steps: Vec<String> = circle
                .iter()
                .map(|arrow| format!("{} -> {} ({})", arrow.from, arrow.to, arrow.place))
                .collect();
            steps.join(", ")
        }),
    }
}

/// Whether a top-level module uses another one, directly or through others.
pub fn reaches(arrows: &[Arrow], from: &str, to: &str) -> bool {
    let mut reached = vec![from];
    let mut at = 0;
    while let Some(&module) = reached.get(at) {
        let used = arrows.iter().filter(|arrow| arrow.from == module);
        for arrow in used {
            if !reached.contains(&arrow.to.as_str()) {
                reached.push(&arrow.to);
            }
        }
        at += 1;
    }
    reached.iter().skip(1).any(|module| *module == to)
}

/// The arrows between the top-level modules of a crate, one for each pair.
///
/// # Errors
/// A module names an item that the root defines itself.
pub fn arrows(sources: &Sources<'_>) -> Result<Vec<Arrow>, String> {
    let root = Root::read(sources);
    let mut found: BTreeMap<(String, String), Arrow> = BTreeMap::new();
    for (path, text) in sources {
        let Some(module) = top_module(path).filter(|_| !is_test(path)) else {
            continue;
        };
        let code = without_tests(&without_comments(text));
        for (line, name) in names_of_root(&code, depth(path)) {
            let place = format!("{path}:{line}");
            if root.from_below.contains(&name) {
                continue;
            }
            let Some(to) = root.modules.get(&name) else {
                return Err(format!(
                    "{place} names `crate::{name}`, which the root of the crate defines; give it a module"
                ));
            };
            if *to != module {
                let arrow = Arrow {
                    from: module.to_owned(),
                    to: to.clone(),
                    place,
                };
                found
                    .entry((module.to_owned(), to.clone()))
                    .or_insert(arrow);
            }
        }
    }
    Ok(found.into_values().collect())
}

/// The top-level module of a file; `None` for the root of the crate.
fn top_module(path: &str) -> Option<&str> {
    let first = path.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(path, "lib.rs" | "main.rs")).then_some(name)
}

/// The number of modules around the code of a file: 1 for a top-level module.
fn depth(path: &str) -> usize {
    let folders = path.matches('/').count();
    if path.ends_with("/mod.rs") {
        folders
    } else {
        folders + 1
    }
}

/// Whether a file holds tests only.
pub fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.any(|part| matches!(part, "tests" | "tests.rs" | "testing" | "testing.rs"))
}

/// The text without comments, line by line.
pub fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find("//") {
        // `https://` in a text is neither a comment nor a path.
        Some(at) => line.get(..at).unwrap_or_default(),
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The text without what is compiled for tests only: modules and items behind `#[cfg(test)]`, each up to the brace at
/// the beginning of a line, or the semicolon, that ends it.
pub fn without_tests(code: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut in_test = false;
    for line in code.lines() {
        in_test |= line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        let ends = line == "}" || (line.ends_with(';') && !line.starts_with(' '));
        // Lines keep their numbers.
        kept.push(if in_test { "" } else { line });
        in_test &= !ends;
    }
    kept.join("\n")
}

/// The first names behind the root in all paths of some code, with their lines: `crate::NAME`, each name of
/// `crate::{…}`, and `super::NAME` where `super` is the root.
fn names_of_root(code: &str, depth: usize) -> Vec<(usize, String)> {
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for prefix in ["crate::", to_root.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code.get(..at).unwrap_or_default();
            let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
                && !before.ends_with("::");
            if !is_whole || before.ends_with("pub(in ") {
                continue;
            }
            let line = before.matches('\n').count() + 1;
            let rest = code.get(at + prefix.len()..).unwrap_or_default();
            if rest.starts_with("super::") {
                continue;
            }
            let mut names = first_names(rest);
            // A glob import of an enclosing module, which may be an inner one.
            names.retain(|name| !name.is_empty() || prefix == "crate::");
            found.extend(names.into_iter().map(|name| (line, name)));
        }
    }
    found
}

/// The first names of a path, or of each path in a group.
fn first_names(path: &str) -> Vec<String> {
    let name_of = |text: &str| -> String {
        let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
        text.trim_start().chars().take_while(is_name).collect()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![name_of(path)];
    };
    let (mut names, mut open, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => open += 1,
            '}' if open == 0 => {
                names.push(name_of(group.get(start..at).unwrap_or_default()));
                break;
            }
            '}' => open -= 1,
            ',' if open == 0 => {
                names.push(name_of(group.get(start..at).unwrap_or_default()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

impl Root {
    fn read(sources: &Sources<'_>) -> Root {
        let mut modules = BTreeMap::new();
        let mut from_below = BTreeSet::new();
        for path in sources.keys() {
            let Some(module) = top_module(path) else {
                continue;
            };
            modules.insert(module.to_owned(), module.to_owned());
        }
        for (path, text) in sources {
            let Some(module) = top_module(path) else {
                continue;
            };
            for (at, marker) in text.match_indices("macro_rules! ") {
                let rest = text.get(at + marker.len()..).unwrap_or_default();
                for name in first_names(rest) {
                    modules.entry(name).or_insert_with(|| module.to_owned());
                }
            }
        }
        for file in ["lib.rs", "main.rs"] {
            let code = without_comments(sources.get(file).copied().unwrap_or_default());
            for statement in code.split(';') {
                let Some((before, path)) = statement.split_once("use ") else {
                    continue;
                };
                let path = path.trim();
                let path = path.strip_prefix("crate::").unwrap_or(path);
                let path = path.strip_prefix("self::").unwrap_or(path);
                let module = first_names(path).pop().unwrap_or_default();
                if modules.get(&module) == Some(&module) {
                    for name in last_names(path) {
                        modules.entry(name).or_insert_with(|| module.clone());
                    }
                } else if before.trim_end().ends_with("pub")
                    || before.trim_end().ends_with("pub(crate)")
                {
                    from_below.extend(last_names(path));
                }
            }
        }
        Root {
            modules,
            from_below,
        }
    }
}

/// The names that a `use` of this path brings in.
fn last_names(path: &str) -> Vec<String> {
    let parts = path.split(['{', '}', ',']);
    let names = parts.filter_map(|part| {
        let part = part.trim();
        let name = part.rsplit(" as ").next()?.rsplit("::").next()?.trim();
        (!name.is_empty()).then(|| name.to_owned())
    });
    names.collect()
}

/// The shortest way from a module back to itself.
fn shortest_circle(arrows: &[Arrow]) -> Option<Vec<Arrow>> {
    let mut from: BTreeMap<&str, Vec<&Arrow>> = BTreeMap::new();
    for arrow in arrows {
        from.entry(&arrow.from).or_default().push(arrow);
    }
    let circles = from.keys().filter_map(|start| {
        // The arrow by which each module was reached first.
        let mut reached: BTreeMap<&str, &Arrow> = BTreeMap::new();
        let mut queue = VecDeque::from([*start]);
        while let Some(module) = queue.pop_front() {
            for arrow in from.get(module).into_iter().flatten() {
                if reached.contains_key(arrow.to.as_str()) {
                    continue;
                }
                reached.insert(&arrow.to, arrow);
                if arrow.to == *start {
                    let mut circle = vec![(*arrow).clone()];
                    while circle[0].from != *start {
                        let before = reached[circle[0].from.as_str()];
                        circle.insert(0, before.clone());
                    }
                    return Some(circle);
                }
                queue.push_back(&arrow.to);
            }
        }
        None
    });
    circles.min_by_key(Vec::len)
}

#[test]
fn circles_and_paths_to_the_root_are_seen() {
    let check = |sources: &[(&'static str, &'static str)]| {
        circle(&sources.iter().copied().collect()).unwrap_or_default()
    };
    let lib = (
        "lib.rs",
        "mod a;\nmod b;\nmod c;\npub use b::{inner::Thing, Other as Renamed};\npub use below::{Kind, Size};\n",
    );
    // Down only.
    let fine = check(&[
        lib,
        ("a.rs", "use crate::b::X;"),
        ("b.rs", "use crate::c::Y;"),
        ("c.rs", ""),
    ]);
    assert_eq!(fine, "");
    for (a, b, expected) in [
        (
            "use crate::b::X;",
            "use crate::a::Y;",
            "a -> b (a.rs:1), b -> a (b.rs:1)",
        ),
        (
            "use crate::{c::Z, b::{X, Y}};",
            "use super::a;",
            "a -> b (a.rs:1), b -> a (b.rs:1)",
        ),
        // A name that the root exports is one of its module.
        (
            "\nuse crate::Thing;",
            "use crate::a;",
            "a -> b (a.rs:2), b -> a (b.rs:1)",
        ),
        (
            "fn f() -> crate::Renamed {}",
            "use crate::a;",
            "a -> b (a.rs:1), b -> a (b.rs:1)",
        ),
        // One that it exports from another crate is below all of them.
        ("use crate::{b, Size};", "use crate::Kind;", ""),
        ("use crate::b;", "// use crate::a;\n", ""),
        (
            "use crate::b;",
            "#[cfg(test)]\nmod tests {\n use crate::a;\n}",
            "",
        ),
        (
            "use crate::VERSION;",
            "",
            "a.rs:1 names `crate::VERSION`, which the root of the crate defines; give it a module",
        ),
    ] {
        assert_eq!(
            check(&[lib, ("a.rs", a), ("b.rs", b), ("c.rs", "")]),
            expected,
            "{a} {b}"
        );
    }
    // Of two circles the shorter one, also through files inside of modules.
    let two = check(&[
        lib,
        ("a/mod.rs", "use super::b::X;"),
        ("a/deep.rs", "use super::super::c::X;\nuse super::other;"),
        ("b.rs", "use crate::c;"),
        ("c/deep/er.rs", "use crate::a;"),
    ]);
    assert_eq!(two, "a -> c (a/deep.rs:1), c -> a (c/deep/er.rs:1)");
}
