//! Checks the house rules: arrows between crates and modules go down, no stubs, `unsafe` only where listed, short
//! files, no absolute paths of a machine, no conditions that mix `&&` and `||` without parentheses, a README beside each crate, paths in
//! ARCHITECTURE.md exist, and what a baseline counts does not rise.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cycles;
mod language;
mod layers;
mod operators;
mod roots;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which of our crates each crate may name in its `Cargo.toml`. An arrow goes down only.
const ARROWS: &[(&str, &[&str])] = &[
    ("striped", &[]),
    ("kv", &[]),
    ("kv-testing", &["kv"]),
    ("encryption", &[]),
    ("tree", &["encryption", "kv", "striped"]),
    ("tikv", &["kv"]),
    ("bson", &[]),
    ("wire", &[]),
    ("error", &["bson"]),
    ("files", &[]),
    ("auth", &["bson", "error"]),
    ("tls", &[]),
    ("client", &["auth", "bson", "tls", "wire"]),
    ("http", &["bson"]),
    ("console", &["auth", "bson", "http"]),
    ("telemetry", &["bson"]),
    ("query", &["bson", "error"]),
    ("replica", &["kv"]),
    ("runtime", &["auth", "error", "striped"]),
    ("javascript", &["bson", "error", "query"]),
    ("oplog", &["bson", "error"]),
    ("replset", &["bson", "error"]),
    ("storage", &["bson", "error", "kv", "query", "tikv", "tree"]),
    (
        "store",
        &["bson", "encryption", "error", "oplog", "query", "storage"],
    ),
    (
        "server",
        &[
            "auth",
            "bson",
            "client",
            "console",
            "error",
            "files",
            "http",
            "javascript",
            "oplog",
            "query",
            "replica",
            "replset",
            "runtime",
            "store",
            "striped",
            "telemetry",
            "tls",
            "wire",
        ],
    ),
    ("backup", &["bson", "client", "files", "store"]),
    ("bench", &["auth", "bson", "client", "error", "tls", "wire"]),
    ("transfer", &["auth", "bson", "client", "files"]),
    (
        "fuzz",
        &[
            "auth", "bson", "client", "query", "replset", "server", "store", "tls", "transfer",
            "tree", "wire",
        ],
    ),
];

/// Crates that only tests may name, those of every crate.
const TEST_CRATES: &[&str] = &["kv-testing"];

/// Further crates that only the tests of one crate may name: those of `store` damage the engine's files.
const TEST_ARROWS: &[(&str, &str)] = &[("replica", "tree"), ("store", "kv"), ("store", "tree")];

/// Crates that the binary may name: it joins the server and the benchmarks.
const BINARY_ARROWS: &[&str] = &["server", "backup", "bench", "files", "transfer"];

/// Further crates that the binary's own tests may name.
const BINARY_TEST_ARROWS: &[&str] = &["server", "auth", "bench", "bson", "tls", "wire"];

/// The only files that may hold `unsafe` code.
const UNSAFE_FILES: &[&str] = &[
    // Bindings of the benchmark, which a build of Frond does not compile.
    "benchmarks/engine/src/engine/lmdb.rs",
    "benchmarks/engine/src/engine/rocksdb/library.rs",
    // The calls of PCRE2.
    "crates/query/src/pattern/engine.rs",
    "crates/tree/src/disk/mapping.rs",
    "crates/tree/src/memtable/arena.rs",
    "crates/tree/src/memtable/entry.rs",
    // Models of the two for the model checker.
    "crates/tree/tests/loom/arena.rs",
    "crates/tree/tests/loom/commits.rs",
];

/// Direct dependencies that the engine crate may have.
const ENGINE_DEPENDENCIES_MAX: usize = 12;

/// Crates that the engine must not depend on: it is synchronous and decodes bytes itself.
const ENGINE_FORBIDDEN: &[&str] = &["tokio", "async-std", "smol", "futures", "serde", "bincode"];

const FILE_LINES_MAX: usize = 800;

/// Counts of findings that may only fall.
const BASELINE_FILE: &str = "tests/all/tidy/baseline.txt";

/// Quotes the findings that it looks for.
const LANGUAGE_FILE: &str = "tests/all/tidy/language.rs";

/// Lines of the README of a crate.
const README_LINES_MAX: usize = 250;

/// Lines of the README of the repository, which has to fit on a screen or two.
const FRONT_PAGE_LINES_MAX: usize = 80;

/// Folders that hold no source of ours.
const SKIPPED_FOLDERS: &[&str] = &[
    ".cache",
    ".git",
    ".venv",
    "__pycache__",
    "data",
    "node_modules",
    "target",
];

/// File names that tools write.
const GENERATED_FILES: &[&str] = &["Cargo.lock", "package-lock.json", "LICENSE"];

/// Endings of the files we write by hand.
const SOURCE_ENDINGS: &[&str] = &[
    "rs", "toml", "md", "py", "js", "mjs", "java", "go", "php", "xml", "sh", "yml", "yaml", "txt",
    "conf",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every hand-written file as (path from the root with `/`, text).
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let kind = entry.file_type().expect("a file type");
            if kind.is_dir() {
                // Raw benchmark runs are kept as they were written.
                let runs = path.ends_with("benchmarks/runs");
                if !SKIPPED_FOLDERS.contains(&name.as_str()) && !runs {
                    walk(&path, root, found);
                }
            } else if kind.is_file() && is_source(&name) {
                let text = fs::read_to_string(&path).expect("a UTF-8 source file");
                let relative = path.strip_prefix(root).expect("a path under the root");
                found.insert(relative.to_string_lossy().replace('\\', "/"), text);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), &root(), &mut found);
    assert!(
        found.contains_key("tests/all/tidy.rs"),
        "the walk must find itself"
    );
    found
}

fn is_source(name: &str) -> bool {
    if GENERATED_FILES.contains(&name) {
        return false;
    }
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    name == "Makefile"
        || name == "run"
        || ending.is_some_and(|ending| SOURCE_ENDINGS.contains(&ending))
}

/// Dependency names of a `Cargo.toml`, as (section, name).
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned();
            // `[dependencies.name]` names a dependency by its header.
            if let Some((kind, name)) = section.rsplit_once('.')
                && kind.ends_with("dependencies")
                && !section.starts_with("workspace")
            {
                found.push((kind.to_owned(), name.trim_matches('"').to_owned()));
            }
        } else if section.ends_with("dependencies")
            && !section.starts_with("workspace")
            && let Some((name, _)) = line.split_once('=')
        {
            let name = name.trim().trim_end_matches(".workspace");
            found.push((section.clone(), name.trim_matches('"').to_owned()));
        }
    }
    found
}

/// Dependencies on our own crates that `allowed` does not list.
fn forbidden_arrows(manifest: &str, allowed: &[&str], allowed_in_tests: &[&str]) -> Vec<String> {
    dependencies(manifest)
        .into_iter()
        .filter_map(|(section, name)| {
            let ours = name.strip_prefix("frond-")?;
            let allowed = if section.contains("dev-") {
                allowed_in_tests
            } else {
                allowed
            };
            (!allowed.contains(&ours)).then(|| format!("[{section}] {name}"))
        })
        .collect()
}

/// The code of a Rust line, without its line comment.
fn code_of(line: &str) -> &str {
    line.find("//").map_or(line, |at| &line[..at])
}

/// Whether a line of Rust opens `unsafe` code.
fn opens_unsafe(line: &str) -> bool {
    let code = code_of(line);
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].trim_start();
        let whole_word = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '"')
            && !code[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let opens = ["{", "fn", "impl", "trait", "extern", "("]
            .iter()
            .any(|next| after.starts_with(next));
        whole_word && (opens || after.is_empty())
    })
}

/// Marks of unfinished work. Written in two halves so that this file does not contain them.
fn stub_marks() -> Vec<String> {
    [
        ("todo", "!"),
        ("unimplemented", "!"),
        ("FIX", "ME"),
        ("#[ign", "ore"),
        ("XX", "X:"),
    ]
    .iter()
    .map(|(a, b)| format!("{a}{b}"))
    .collect()
}

/// Whether a line has an absolute path of a machine.
fn names_machine_path(line: &str) -> bool {
    [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/Us", "ers/"),
    ]
    .iter()
    .any(|(a, b)| {
        let needle = format!("{a}{b}");
        line.match_indices(&needle).any(|(at, _)| {
            // After a name it is a relative path or part of a URL; otherwise it is absolute.
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && !"_.-/}*$)".contains(c))
        })
    })
}

fn assert_none(problems: Vec<String>, rule: &str) {
    assert!(problems.is_empty(), "{rule}:\n  {}", problems.join("\n  "));
}

#[test]
fn arrows_between_crates_go_down_only() {
    let mut problems = Vec::new();
    let mut folders: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut listed: Vec<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    listed.sort();
    assert_eq!(
        folders, listed,
        "every crate has its line in ARROWS, and no other"
    );

    for (name, allowed) in ARROWS {
        let path = format!("crates/{name}/Cargo.toml");
        let manifest = fs::read_to_string(root().join(&path)).unwrap();
        let mut allowed_in_tests = [allowed, TEST_CRATES].concat();
        let own = TEST_ARROWS.iter().filter(|(of_crate, _)| of_crate == name);
        allowed_in_tests.extend(own.map(|(_, other)| *other));
        for arrow in forbidden_arrows(&manifest, allowed, &allowed_in_tests) {
            problems.push(format!("{path}: {arrow}"));
        }
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for arrow in forbidden_arrows(&manifest, BINARY_ARROWS, BINARY_TEST_ARROWS) {
        problems.push(format!("Cargo.toml: {arrow}"));
    }
    assert_none(
        problems,
        "a crate names a crate that it must not know (see ARCHITECTURE.md)",
    );
}

#[test]
fn arrows_between_modules_go_down_only() {
    let sources = sources();
    let problems = source_folders()
        .iter()
        .filter_map(|folder| {
            let of_crate = sources_below(&sources, folder);
            assert!(!of_crate.is_empty(), "{folder} has sources");
            Some(format!("{folder}: {}", layers::circle(&of_crate)?))
        })
        .collect();
    assert_none(
        problems,
        "modules import each other in a circle; give what they share a module below both",
    );
}

#[test]
fn files_do_not_import_each_other_in_cycles() {
    let sources = sources();
    let mut problems = Vec::new();
    for folder in source_folders() {
        for cycle in cycles::cycles(&sources_below(&sources, &folder)) {
            problems.push(format!("{folder}: {}", cycle.files.join(", ")));
            problems.extend(cycle.imports.iter().map(|import| format!("  {import}")));
        }
    }
    assert_none(
        problems,
        "files import each other in a cycle; move what they share into a file below both",
    );
}

/// The folders of the sources of all crates.
fn source_folders() -> Vec<String> {
    let crates = ARROWS.iter().map(|(name, _)| format!("crates/{name}/src/"));
    crates.chain(["src/".to_owned()]).collect()
}

/// The Rust sources below a folder, by their paths in it.
fn sources_below<'a>(sources: &'a BTreeMap<String, String>, folder: &str) -> layers::Sources<'a> {
    let below = sources.iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(folder)?;
        path.ends_with(".rs").then_some((path, text.as_str()))
    });
    below.collect()
}

#[test]
fn paths_on_the_page_of_the_architecture_exist() {
    let page = &sources()["ARCHITECTURE.md"];
    let problems = walks::paths(page)
        .into_iter()
        .filter(|path| !walks::exists(&root(), path))
        .map(|path| format!("{path} does not exist"))
        .collect();
    assert_none(problems, "ARCHITECTURE.md and the sources differ");
}

#[test]
fn walks_in_readmes_name_files_that_exist_and_go_down_only() {
    let sources = sources();
    let crates = ["server", "store", "oplog", "storage", "tree"].map(|name| {
        let of_crate = sources_below(&sources, &format!("crates/{name}/src/"));
        (name, layers::arrows(&of_crate).unwrap())
    });
    let readmes = ARROWS
        .iter()
        .map(|(name, _)| &sources[&format!("crates/{name}/README.md")]);
    let walks: Vec<Vec<&str>> = readmes.flat_map(|page| walks::walks(page)).collect();
    assert!(walks.len() > 1 && walks.iter().all(|walk| walk.len() > 3));
    let mut problems = Vec::new();
    for walk in &walks {
        let missing = walk.iter().filter(|path| !walks::exists(&root(), path));
        problems.extend(missing.map(|path| format!("{path} does not exist")));
        problems.extend(walks::steps_up(walk, &crates));
    }
    assert_none(problems, "the walks and the sources differ");
}

#[test]
fn readmes_are_short() {
    let mut problems = Vec::new();
    for (path, text) in &sources() {
        let most = match path.as_str() {
            "README.md" => FRONT_PAGE_LINES_MAX,
            path if path.starts_with("crates/") && path.ends_with("/README.md") => README_LINES_MAX,
            _ => continue,
        };
        let lines = text.lines().count();
        if lines > most {
            problems.push(format!("{path}: {lines} lines, at most {most}"));
        }
    }
    assert_none(
        problems,
        "move rules to the documentation of the modules that they govern",
    );
}

#[test]
fn server_reaches_the_engine_only_through_the_store() {
    let sources = sources();
    let of_server = |path: &str| path.starts_with("crates/server/src/");
    let mut problems = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| of_server(path)) {
        for (number, line) in text.lines().enumerate() {
            let code = code_of(line);
            if [
                "frond_kv",
                "frond_tree",
                "keyspace::",
                ".engine()",
                "EngineOptions",
            ]
            .iter()
            .any(|name| code.contains(name))
            {
                problems.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        sources.keys().any(|path| of_server(path)),
        "the server must have been read"
    );
    assert_none(
        problems,
        "the server uses the engine; give the store a method for it",
    );
}

#[test]
fn engine_has_few_dependencies_and_none_that_are_async() {
    let manifest = fs::read_to_string(root().join("crates/tree/Cargo.toml")).unwrap();
    let direct: Vec<String> = dependencies(&manifest)
        .into_iter()
        .filter(|(section, _)| !section.contains("dev-"))
        .map(|(_, name)| name)
        .collect();
    assert!(!direct.is_empty(), "the manifest must have been read");
    assert!(
        direct.len() <= ENGINE_DEPENDENCIES_MAX,
        "{} direct dependencies: {direct:?}",
        direct.len()
    );
    let forbidden = direct
        .into_iter()
        .filter(|name| ENGINE_FORBIDDEN.contains(&name.as_str()))
        .collect();
    assert_none(forbidden, "the engine must not depend on these");
}

/// These are outside of the workspace: no build here would notice that their lock is out of date.
#[test]
fn the_locks_of_the_benchmarks_know_the_dependencies_of_our_crates() {
    for (benchmark, ours) in [
        ("engine", &["kv", "tree"][..]),
        ("peers", &["bench", "bson", "wire"]),
    ] {
        let lock =
            fs::read_to_string(root().join(format!("benchmarks/{benchmark}/Cargo.lock"))).unwrap();
        for name in ours {
            let manifest =
                fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
            let (_, package) = lock
                .split_once(&format!("name = \"frond-{name}\"\n"))
                .expect("our crate in the lock");
            let (package, _) = package.split_once("[[package]]").unwrap();
            // A crate of which there are two versions is followed by its version.
            let locked: Vec<&str> = package
                .lines()
                .filter_map(|line| line.trim().strip_prefix('"')?.split([' ', '"']).next())
                .collect();
            let mut direct: Vec<String> = dependencies(&manifest)
                .into_iter()
                .filter(|(section, _)| !section.contains("dev-"))
                .map(|(_, name)| name)
                .collect();
            direct.sort();
            assert_eq!(
                locked, direct,
                "frond-{name}: run `cargo update --workspace` in benchmarks/{benchmark}"
            );
        }
    }
}

#[test]
fn every_crate_has_a_readme_and_the_shared_lints() {
    let mut problems = Vec::new();
    for (name, _) in ARROWS {
        let folder = root().join("crates").join(name);
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        if !readme.starts_with("# ") {
            problems.push(format!("crates/{name} has no README.md with a title"));
        }
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.contains("[lints]\nworkspace = true") {
            problems.push(format!("crates/{name} does not take the workspace's lints"));
        }
    }
    assert_none(
        problems,
        "every crate has a README and the lints of the workspace",
    );
}

#[test]
fn no_stubs_and_no_ignored_tests() {
    let marks = stub_marks();
    let problems = sources()
        .iter()
        .filter(|(path, _)| !path.ends_with(".md") && *path != "tests/all/tidy.rs")
        .flat_map(|(path, text)| {
            let marks = &marks;
            text.lines().enumerate().filter_map(move |(index, line)| {
                let mark = marks.iter().find(|mark| line.contains(mark.as_str()))?;
                Some(format!("{path}:{}: {mark}", index + 1))
            })
        })
        .collect();
    assert_none(problems, "unfinished work is not merged");
}

#[test]
fn unsafe_code_only_where_listed() {
    let problems = sources()
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && *path != "tests/all/tidy.rs")
        .filter(|(path, _)| !UNSAFE_FILES.contains(&path.as_str()))
        .flat_map(|(path, text)| {
            text.lines()
                .enumerate()
                .filter(|(_, line)| opens_unsafe(line))
                .map(move |(index, _)| format!("{path}:{}", index + 1))
        })
        .collect();
    assert_none(problems, "unsafe code outside UNSAFE_FILES");
}

#[test]
fn files_are_short() {
    let problems = sources()
        .iter()
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{path}: {lines} lines"))
        })
        .collect();
    assert_none(
        problems,
        "split these files by idea: none has more than 800 lines",
    );
}

#[test]
fn conditions_that_mix_and_with_or_have_parentheses() {
    let mut problems = Vec::new();
    for (name, text) in sources().iter().filter(|(name, _)| name.ends_with(".rs")) {
        let lines = operators::mixed(text);
        problems.extend(lines.iter().map(|line| format!("{name}:{line}")));
    }
    assert_none(problems, "put parentheses around `&&` inside of `||`");
}

/// The counts that a baseline bounds, with the places of each finding.
fn counted(sources: &BTreeMap<String, String>) -> BTreeMap<(String, String), Vec<String>> {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let is_ours = |path: &str| {
        ["crates/", "src/", "tests/"]
            .iter()
            .any(|top| path.starts_with(top))
            && path.ends_with(".rs")
            && path != LANGUAGE_FILE
    };
    for (path, text) in sources.iter().filter(|(path, _)| is_ours(path)) {
        for (kind, line) in language::findings(text) {
            let key = (kind.to_owned(), language::part(path).to_owned());
            found.entry(key).or_default().push(format!("{path}:{line}"));
        }
    }
    found
}

/// A count that falls has to be lowered in the baseline, so that it cannot rise again.
#[test]
fn findings_stay_at_the_baseline() {
    let places = counted(&sources());
    let counts: language::Counts = places
        .iter()
        .map(|(key, places)| (key.clone(), places.len()))
        .collect();
    let path = root().join(BASELINE_FILE);
    let mut baseline = language::read_baseline(&fs::read_to_string(&path).unwrap_or_default());
    if std::env::var_os("FROND_WRITE_BASELINES").is_some() {
        // Without a baseline all counts are taken as they are.
        let lowest = counts.iter().map(|(key, count)| {
            let before = baseline.get(key).copied().unwrap_or_default();
            let new = if baseline.is_empty() {
                *count
            } else {
                before.min(*count)
            };
            (key.clone(), new)
        });
        baseline = lowest.filter(|(_, count)| *count > 0).collect();
        fs::write(&path, language::write_baseline(&baseline)).unwrap();
    }
    let keys: BTreeSet<_> = counts.keys().chain(baseline.keys()).collect();
    let mut problems = Vec::new();
    for key in keys {
        let (kind, part) = key;
        let count = counts.get(key).copied().unwrap_or_default();
        let allowed = baseline.get(key).copied().unwrap_or_default();
        if count < allowed {
            problems.push(format!(
                "{kind} {part}: {count} are left of {allowed}; lower {BASELINE_FILE} (FROND_WRITE_BASELINES=1 does)"
            ));
        } else if count > allowed {
            let advice = language::KINDS.iter().find(|(name, _)| name == kind);
            let advice = advice.map_or("", |(_, advice)| advice);
            problems.push(format!(
                "{kind} {part}: {count}, at most {allowed}: {advice}"
            ));
            problems.extend(places[key].iter().map(|place| format!("  {place}")));
        }
    }
    assert_none(problems, "findings differ from the baseline");
}

#[test]
fn items_of_crate_roots_are_documented() {
    let sources = sources();
    let mut problems = Vec::new();
    for (name, _) in ARROWS {
        let folder = format!("crates/{name}/src/");
        for item in roots::undocumented(&sources_below(&sources, &folder)) {
            problems.push(format!("{folder}{item}"));
        }
    }
    assert_none(
        problems,
        "what a crate exports at its root needs a doc comment",
    );
}

#[test]
fn no_paths_of_a_machine() {
    let problems = sources()
        .iter()
        .flat_map(|(path, text)| {
            text.lines()
                .enumerate()
                .filter(|(_, line)| names_machine_path(line))
                .map(move |(index, _)| format!("{path}:{}", index + 1))
        })
        .collect();
    assert_none(
        problems,
        "a path that exists on one machine only; build it from a variable",
    );
}

/// Checks that the checks above can fail.
#[test]
fn the_checks_see_what_they_look_for() {
    for (line, expected) in [
        ("    unsafe {", true),
        ("unsafe impl Send for Node {}", true),
        ("pub unsafe fn read() {}", true),
        ("#[unsafe(no_mangle)]", true),
        ("let x = unsafe", true),
        ("// unsafe { }", false),
        ("#![forbid(unsafe_code)]", false),
        ("unsafe_op_in_unsafe_fn = \"deny\"", false),
        ("println!(\"unsafe\");", false),
    ] {
        assert_eq!(opens_unsafe(line), expected, "{line}");
    }
    for (start, expected) in [
        ("\"", true),
        ("cd ", true),
        ("https://example.com", false),
        ("..", false),
    ] {
        let line = format!("{start}{}{}user/x", "/ho", "me/");
        assert_eq!(names_machine_path(&line), expected, "{line}");
    }
    let manifest = "[dependencies]\nfrond-store.workspace = true # up\nclap = \"4\"\n\
                    [dependencies.frond-wire]\npath = \"x\"\n\
                    [target.'cfg(unix)'.dependencies]\nfrond-tree = { path = \"y\" }\n\
                    [dev-dependencies]\nfrond-bson.workspace = true\n";
    let arrows = forbidden_arrows(manifest, &["wire"], &["bson"]);
    assert_eq!(
        arrows,
        [
            "[dependencies] frond-store",
            "[target.'cfg(unix)'.dependencies] frond-tree"
        ]
    );
    assert!(
        stub_marks()
            .iter()
            .any(|mark| "    todo!()".contains(mark.as_str()))
    );
}
