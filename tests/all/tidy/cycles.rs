//! Cycles of imports between the files of a crate.
//!
//! A path that begins with `crate`, `self`, `super` or a submodule is followed to the file that defines what it names, through
//! re-exports. A module and its own submodules may know each other: a table of operators names them, and they implement
//! its trait. Every other cycle means that two files cannot be understood one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::layers::{Sources, is_test, without_comments, without_tests};

/// Names of modules from the root of the crate down.
type Module = Vec<String>;

/// Re-exports of re-exports are followed no further than this.
const DEPTH_MAX: usize = 8;

static USE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^\s*(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]+);")
        .expect("a pattern")
});

static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[a-z_]\w*(?:::\w+)+").expect("a pattern"));

static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:fn|struct|enum|trait|const|static|type|union|macro_rules!)\s+(\w+)")
        .expect("a pattern")
});

/// One name that a `use` brings into a module.
struct Import {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

struct Source {
    path: String,
    /// The code without comments, tests and imports.
    body: String,
    imports: Vec<Import>,
    defined: BTreeSet<String>,
}

/// The files of a crate by their modules.
struct Crate(BTreeMap<Module, Source>);

/// The imports of a `use` tree, such as `super::{a, b::{self, C as D}}`.
fn expand(prefix: &[String], tree: &str, found: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    let segments = |path: &str| -> Vec<String> {
        let parts = path.split("::").map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    if let Some((before, group)) = tree.split_once('{') {
        let prefix = [prefix, &segments(before)].concat();
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        let (mut depth, mut start) = (0_usize, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    expand(&prefix, &group[start..at], found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        expand(&prefix, &group[start..], found);
    } else if !tree.is_empty() {
        let (path, alias) = match tree.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias.trim())),
            None => (tree, None),
        };
        let mut path = [prefix, &segments(path)].concat();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
        found.push((path, name));
    }
}

impl Source {
    fn read(path: &str, text: &str) -> Source {
        let code = without_tests(&without_comments(text));
        let mut imports = Vec::new();
        for captures in USE.captures_iter(&code) {
            let mut found = Vec::new();
            expand(&[], &captures["tree"], &mut found);
            let is_public = captures.name("public").is_some();
            imports.extend(found.into_iter().map(|(path, name)| Import {
                is_public,
                path,
                name,
            }));
        }
        let defined = DEFINITION.captures_iter(&code);
        Source {
            path: path.to_owned(),
            defined: defined.map(|captures| captures[1].to_owned()).collect(),
            body: USE.replace_all(&code, "").into_owned(),
            imports,
        }
    }

    /// The whole path behind one that begins with an imported module, such as `x::f` after `use super::x`.
    fn through_import(&self, path: Vec<String>) -> Vec<String> {
        let import = self.imports.iter().find(|import| {
            path.first() == Some(&import.name) && import.path.first() != Some(&import.name)
        });
        match import {
            Some(import) => [import.path.as_slice(), &path[1..]].concat(),
            None => path,
        }
    }
}

impl Crate {
    fn read(sources: &Sources<'_>) -> Crate {
        let files = sources.iter().filter(|(path, _)| !is_test(path));
        let modules = files.map(|(path, text)| {
            let names = path.trim_end_matches(".rs").split('/');
            let mut module: Module = names.map(str::to_owned).collect();
            if matches!(*path, "lib.rs" | "main.rs") || path.ends_with("/mod.rs") {
                module.pop();
            }
            (module, Source::read(path, text))
        });
        Crate(modules.collect())
    }

    fn child(&self, module: &[String], name: &str) -> Option<Module> {
        let child = [module, &[name.to_owned()]].concat();
        self.0.contains_key(&child).then_some(child)
    }

    /// The module whose file defines what a path in `module` names; none for paths into other crates.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        let mut start = module.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                start.clear();
                rest = &rest[1..];
            }
            "self" | "super" => {
                while let Some(first) = rest
                    .first()
                    .filter(|name| matches!(name.as_str(), "self" | "super"))
                {
                    if first == "super" {
                        start.pop()?;
                    }
                    rest = &rest[1..];
                }
            }
            first => {
                self.child(module, first)?;
            }
        }
        self.follow(start, rest, depth)
    }

    /// Follows names down from a module, through submodules and re-exports.
    fn follow(&self, mut at: Module, names: &[String], depth: usize) -> Option<Module> {
        for (index, name) in names.iter().enumerate() {
            if let Some(child) = self.child(&at, name) {
                at = child;
                continue;
            }
            let source = self.0.get(&at)?;
            if depth < DEPTH_MAX && !source.defined.contains(name) {
                let named = source.imports.iter().find(|import| import.name == *name);
                let named = named.and_then(|import| self.resolve(&at, &import.path, depth + 1));
                if let Some(target) = named.filter(|target| *target != at) {
                    return self.follow(target, &names[index + 1..], depth + 1);
                }
                let mut globs = source.imports.iter().filter_map(|import| {
                    let (last, path) = import.path.split_last()?;
                    (last == "*").then(|| self.resolve(&at, path, depth + 1))?
                });
                let glob = globs.find(|target| {
                    let target = self.0.get(target);
                    target.is_some_and(|source| source.defined.contains(name))
                });
                return Some(glob.unwrap_or(at));
            }
            return Some(at);
        }
        self.0.contains_key(&at).then_some(at)
    }

    /// The modules that a module imports from, each with a path that names it. Re-exports only pass names on.
    fn targets(&self, module: &Module, source: &Source) -> BTreeMap<Module, String> {
        let used = source.imports.iter().filter(|import| !import.is_public);
        let used = used.map(|import| import.path.clone());
        let inline = PATH.find_iter(&source.body).map(|found| {
            let names = found.as_str().split("::").map(str::to_owned);
            source.through_import(names.collect())
        });
        let paths: BTreeSet<Vec<String>> = used.chain(inline).collect();
        let targets = paths.iter().filter_map(|path| {
            let target = self.resolve(module, path, 0)?;
            Some((target, path.join("::")))
        });
        targets
            .filter(|(target, _)| !target.starts_with(module) && !module.starts_with(target))
            .collect()
    }
}

/// The imports of a crate: for each module the modules that it names, each with a path that names it.
type Graph<'f> = BTreeMap<&'f Module, BTreeMap<Module, String>>;

/// The modules that can be reached from one.
fn reached<'g>(graph: &'g Graph<'_>, start: &Module) -> BTreeSet<&'g Module> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&'g Module> = Vec::new();
    open.extend(graph[start].keys());
    while let Some(module) = open.pop() {
        if seen.insert(module) {
            open.extend(graph[module].keys());
        }
    }
    seen
}

/// Files that all reach each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    pub files: Vec<String>,
    /// The imports among them, as `from -> to (path)`.
    pub imports: Vec<String>,
}

/// The cycles of a crate.
pub fn cycles(sources: &Sources<'_>) -> Vec<Cycle> {
    let files = Crate::read(sources);
    let targets = files.0.iter();
    let graph: Graph<'_> = targets
        .map(|(module, source)| (module, files.targets(module, source)))
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = graph
        .keys()
        .map(|module| (*module, reached(&graph, module)))
        .collect();
    let mut grouped: BTreeSet<&Module> = BTreeSet::new();
    let mut found = Vec::new();
    for (module, from_here) in &reach {
        if grouped.contains(module) || !from_here.contains(module) {
            continue;
        }
        let members = from_here
            .iter()
            .filter(|other| reach[*other].contains(module));
        let members: BTreeSet<&Module> = members.copied().collect();
        grouped.extend(&members);
        let path = |module: &Module| files.0[module].path.clone();
        let imports = members.iter().flat_map(|from| {
            let inside = graph[*from].iter().filter(|(to, _)| members.contains(to));
            inside.map(|(to, name)| format!("{} -> {} ({name})", path(from), path(to)))
        });
        found.push(Cycle {
            imports: imports.collect(),
            files: members.iter().map(|member| path(member)).collect(),
        });
    }
    found
}

#[test]
fn cycles_of_files_are_seen() {
    let check = |sources: &[(&'static str, &'static str)]| -> Vec<Vec<String>> {
        let found = cycles(&sources.iter().copied().collect());
        found.into_iter().map(|cycle| cycle.files).collect()
    };
    let base = [
        ("lib.rs", "mod a;\nmod b;"),
        (
            "a/mod.rs",
            "mod x;\nmod y;\npub use x::{X, Z as W};\npub struct A;",
        ),
    ];
    let with = |x: &'static str, y: &'static str, b: &'static str| {
        check(&[base[0], base[1], ("a/x.rs", x), ("a/y.rs", y), ("b.rs", b)])
    };
    let none: Vec<Vec<String>> = Vec::new();
    let (x, y) = ("pub struct X;\nuse super::y::Y;", "pub struct Y;");
    assert_eq!(with(x, y, ""), none);
    // Directly, and through a re-export of the module above.
    for back in [
        "use super::x::X;",
        "use super::X;",
        "use crate::a::{W, X};",
        "fn f() { super::x::f() }",
        // Through an imported module.
        "use crate::a;\nfn f() { a::x::f() }",
    ] {
        assert_eq!(with(x, back, ""), [["a/x.rs", "a/y.rs"]], "{back}");
    }
    // The module above is no cycle, and neither are tests and comments.
    for fine in [
        "use super::A;",
        "#[cfg(test)]\nmod tests {\n    use super::super::x::X;\n}",
        "// super::x::X",
    ] {
        assert_eq!(with(x, fine, ""), none, "{fine}");
    }
    // The imports of a cycle are shown.
    let two = [("a.rs", "use super::b::B;"), ("b.rs", "use crate::a::A;")];
    assert_eq!(
        cycles(&two.into_iter().collect()),
        [Cycle {
            files: vec!["a.rs".to_owned(), "b.rs".to_owned()],
            imports: vec![
                "a.rs -> b.rs (super::b::B)".to_owned(),
                "b.rs -> a.rs (crate::a::A)".to_owned()
            ],
        }]
    );
    // Over another folder.
    assert_eq!(
        with("use crate::b::B;", "", "use crate::a::x::X;\npub struct B;"),
        [["a/x.rs", "b.rs"]]
    );
}
