//! Looks for items that a crate exports at its root without a doc comment. Items further down are documented where a name does
//! not say enough, so `missing_docs` of the compiler is off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::layers::{Sources, without_comments};

static EXPORT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^pub use\s+([^;]+);").expect("a pattern"));

static ITEM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^pub (?:const |unsafe |async )*(?:fn|struct|enum|trait|const|static|type|union|mod) (\w+)")
        .expect("a pattern")
});

/// The names that the root exports: those of `pub use`, and of items in `lib.rs` itself.
fn exported(root: &str) -> BTreeSet<String> {
    let code = without_comments(root);
    let mut names = BTreeSet::new();
    for captures in EXPORT.captures_iter(&code) {
        for part in captures[1].split(['{', '}', ',']) {
            // An alias is a name of this place only: the item has its own.
            let path = part.split(" as ").next().unwrap_or_default().trim();
            if let Some(name) = path.rsplit("::").next().filter(|name| !name.is_empty()) {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Whether the item on this line has a doc comment above its attributes, or is a file that begins with one.
fn is_documented(lines: &[&str], at: usize, sources: &Sources<'_>, name: &str) -> bool {
    let is_attribute = |line: &str| {
        // Attributes over several lines are indented between their brackets.
        line.starts_with([' ', ')'])
            || line.starts_with("#[")
            || (line.starts_with("//") && !line.starts_with("///"))
    };
    let mut above = lines[..at].iter().rev();
    let first = above.find(|line| !is_attribute(line)).unwrap_or(&"");
    first.starts_with("///")
        || (lines[at].starts_with("pub mod") && {
            let files = [format!("{name}.rs"), format!("{name}/mod.rs")];
            sources.iter().any(|(path, text)| {
                let is_file = |file: &String| {
                    path.strip_suffix(file.as_str())
                        .is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
                };
                files.iter().any(is_file) && text.starts_with("//!")
            })
        })
}

/// The exported items without a doc comment, as `file:line: name`. Of items with one name, such as those of alternative
/// features, one has to have it.
pub fn undocumented(sources: &Sources<'_>) -> Vec<String> {
    let Some(root) = sources.get("lib.rs") else {
        return Vec::new();
    };
    let names = exported(root);
    let mut found: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (path, text) in sources {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = ITEM.captures(line).map(|captures| captures[1].to_owned()) else {
                continue;
            };
            if *path != "lib.rs" && !names.contains(&name) {
                continue;
            }
            let place = format!("{path}:{}: {name}", at + 1);
            let problem = (!is_documented(&lines, at, sources, &name)).then_some(place);
            let entry = found.entry(name).or_insert_with(|| problem.clone());
            *entry = entry.take().and(problem);
        }
    }
    let crate_itself = (!root.starts_with("//!")).then(|| "lib.rs:1: the crate".to_owned());
    crate_itself
        .into_iter()
        .chain(found.into_values().flatten())
        .collect()
}

#[test]
fn undocumented_exports_are_seen() {
    let check = |root: &'static str, a: &'static str| {
        undocumented(&Sources::from([("lib.rs", root), ("a.rs", a)]))
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(
        check(
            "//! A.\npub mod a;\n/// Runs.\npub fn f() {}",
            "//! B.\npub fn g() {}"
        ),
        none
    );
    assert_eq!(
        check("//! A.\npub mod a;", "pub fn g() {}"),
        ["lib.rs:2: a"]
    );
    assert_eq!(
        check("pub fn f() {}", ""),
        ["lib.rs:1: the crate", "lib.rs:1: f"]
    );
    let root = "//! A.\nmod a;\npub use a::{B, C as D};";
    let a =
        "pub struct B;\n/// E.\n#[derive(Clone)]\npub struct C;\nimpl B {\n    pub fn f() {}\n}";
    assert_eq!(check(root, a), ["a.rs:1: B"]);
}
