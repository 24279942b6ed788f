//! Compares the figures on our pages with the runs in `benchmarks/runs/`. With `FROND_WRITE_PAGES=1`, as `make
//! bench-pages` sets it, writes them instead.
//!
//! Figures are in parts of a page that are generated from templates in `benchmarks/pages/`, see `page.rs` and
//! `fill.rs`. Outside of these parts no text may look measured, see `unbacked.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;
mod fill;
mod page;
mod runs;
mod source;
mod unbacked;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use page::Piece;
use runs::Runs;

/// The pages beside the READMEs of all crates.
const PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/peers/README.md",
    "docs/large-documents.md",
    "docs/natural-order.md",
    "docs/operations.md",
    "docs/query-plans.md",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Each page and its text.
fn pages() -> Vec<(String, String)> {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let of_crates = crates.map(|entry| {
        let name = entry.expect("a crate").file_name();
        format!("crates/{}/README.md", name.to_string_lossy())
    });
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(of_crates.collect::<BTreeSet<_>>());
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The templates of the parts, by their names.
fn templates() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join("benchmarks/pages")).expect("the texts of parts");
    let paths = files.map(|entry| entry.expect("a file").path());
    let texts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    texts
        .map(|path| {
            let name = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, fs::read_to_string(path).expect("a text"))
        })
        .collect()
}

fn runs() -> Runs {
    let list = root().join("benchmarks/pages/runs.txt");
    Runs::read(root().join("benchmarks/runs"), &list).expect("the list of runs")
}

/// Conditions and settings that may stand on a page as numbers, by page.
fn conditions() -> BTreeMap<String, Vec<String>> {
    let path = root().join("benchmarks/pages/conditions.txt");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut page = String::new();
    for line in fs::read_to_string(path)
        .expect("the list of conditions")
        .lines()
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            page = name.to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            found.entry(page.clone()).or_default().push(line.to_owned());
        }
    }
    found
}

/// The relative path from a page's folder to `benchmarks`.
fn to_benchmarks(path: &str) -> String {
    match path.strip_prefix("benchmarks/") {
        Some(path) => "../".repeat(path.matches('/').count()),
        None => format!("{}benchmarks/", "../".repeat(path.matches('/').count())),
    }
}

/// A page with the figures of its runs.
fn rewritten(
    path: &str,
    page: &str,
    templates: &BTreeMap<String, String>,
    runs: &Runs,
) -> Result<String, String> {
    page::rewrite(page, |name| {
        let text = templates
            .get(name)
            .ok_or("benchmarks/pages has no such file")?;
        fill::fill(text, runs, &to_benchmarks(path))
    })
}

/// The difference between a page and its runs, if there is one.
fn problem(
    path: &str,
    page: &str,
    templates: &BTreeMap<String, String>,
    runs: &Runs,
) -> Option<String> {
    match rewritten(path, page, templates, runs) {
        Ok(right) => difference(path, page, &right),
        Err(error) => Some(format!("{path}: {error}")),
    }
}

/// The first line of a page that differs.
fn difference(path: &str, page: &str, right: &str) -> Option<String> {
    if page == right {
        return None;
    }
    let mut pairs = page.lines().zip(right.lines());
    let differ = pairs.find(|(here, there)| here != there);
    let (here, there) = differ.unwrap_or(("another number of lines", ""));
    Some(format!(
        "{path}: run `make bench-pages`.\n  page: {here}\n  runs: {there}"
    ))
}

/// The text of a page outside of its parts, which is written by hand.
fn by_hand(page: &str) -> String {
    let pieces = page::pieces(page).expect("parts with an end");
    let texts = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Hand(text) => Some(text),
        Piece::Part(..) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A template without its references.
fn template_by_hand(template: &str) -> String {
    let parts = fill::split(template).expect("braces in pairs");
    parts.into_iter().step_by(2).collect::<Vec<_>>().join("…")
}

/// All texts that are written by hand, with their names in the list of conditions.
fn hands() -> Vec<(String, String)> {
    let pages = pages()
        .into_iter()
        .map(|(path, text)| (path, by_hand(&text)));
    let templates = templates().into_iter().map(|(name, text)| {
        (
            format!("benchmarks/pages/{name}.md"),
            template_by_hand(&text),
        )
    });
    pages.chain(templates).collect()
}

#[test]
fn every_figure_on_the_pages_is_that_of_its_run() {
    let (templates, runs) = (templates(), runs());
    let write = std::env::var_os("FROND_WRITE_PAGES").is_some();
    let mut problems = Vec::new();
    for (path, page) in pages() {
        if write && let Ok(right) = rewritten(&path, &page, &templates, &runs) {
            if right != page {
                fs::write(root().join(&path), &right).expect("the page can be written");
            }
            continue;
        }
        problems.extend(problem(&path, &page, &templates, &runs));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn no_figure_is_on_a_page_that_no_run_backs() {
    let conditions = conditions();
    let of = |name: &str| {
        conditions
            .get(name)
            .into_iter()
            .flatten()
            .map(String::as_str)
    };
    let problems: Vec<String> = hands()
        .iter()
        .flat_map(|(name, text)| {
            let found = unbacked::unbacked(text, of(name));
            found
                .into_iter()
                .map(move |figure| format!("{name}: {figure}"))
        })
        .collect();
    assert!(
        problems.is_empty(),
        "put these into a part that is written out of a run, or, if they are settings or conditions, into \
         benchmarks/pages/conditions.txt:\n{}",
        problems.join("\n")
    );
}

#[test]
fn no_part_no_run_and_no_condition_is_left_over() {
    let pages = pages();
    let mut used = BTreeSet::new();
    for (_, page) in &pages {
        for piece in page::pieces(page).unwrap() {
            if let Piece::Part(_, name, _) = piece {
                used.insert(name.to_owned());
            }
        }
    }
    let templates = templates();
    let mut left: Vec<String> = templates
        .keys()
        .filter(|name| !used.contains(*name))
        .cloned()
        .collect();
    let inside: Vec<&str> = templates
        .values()
        .flat_map(|text| fill::split(text).unwrap().into_iter().skip(1).step_by(2))
        .collect();
    let words: BTreeSet<&str> = inside
        .iter()
        .flat_map(|text| text.split([' ', ';']))
        .collect();
    left.extend(
        runs()
            .names
            .into_keys()
            .filter(|name| !words.contains(name.as_str())),
    );
    let hands: BTreeMap<String, String> = hands()
        .into_iter()
        .map(|(name, text)| (name, unbacked::plain(&text)))
        .collect();
    for (name, phrases) in conditions() {
        let text = hands.get(&name).map_or("", String::as_str);
        left.extend(
            phrases
                .into_iter()
                .filter(|phrase| !text.contains(phrase.as_str())),
        );
    }
    assert!(
        left.is_empty(),
        "nothing uses these parts, runs and conditions of benchmarks/pages: {left:?}"
    );
}

#[test]
fn links_to_runs_lead_somewhere() {
    let mut dead = Vec::new();
    let mut links = 0;
    for (path, page) in pages() {
        let folder = root().join(Path::new(&path).parent().unwrap());
        for target in page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap();
            if file.contains("runs/") {
                links += 1;
                if !folder.join(file).exists() {
                    dead.push(format!("{path}: {target}"));
                }
            }
        }
    }
    assert!(dead.is_empty() && links > 0, "{dead:?} of {links}");
}

#[test]
fn a_figure_that_was_changed_by_hand_is_found() {
    let (templates, runs) = (templates(), runs());
    let mut changed = 0;
    for (path, page) in pages() {
        let right = rewritten(&path, &page, &templates, &runs).unwrap();
        for (index, (start, figure)) in figures(&page).into_iter().enumerate() {
            let other = if figure.starts_with('9') { "8" } else { "9" };
            let mut altered = page.clone();
            altered.replace_range(start..=start, other);
            // The first one of each page is checked with the files of the runs.
            let found = match index {
                0 => problem(&path, &altered, &templates, &runs),
                _ => difference(&path, &altered, &right),
            };
            let found = found.unwrap_or_else(|| panic!("{path}: nobody sees another {figure}"));
            assert!(found.contains("make bench-pages"), "{found}");
            changed += 1;
        }
    }
    assert!(changed > 400, "only {changed} figures on all pages");
}

/// The parts of a page that are generated from runs: where each begins, and its text.
fn figures(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for piece in page::pieces(page).unwrap() {
        let Piece::Part(_, _, inside) = piece else {
            continue;
        };
        let start = inside.as_ptr() as usize - page.as_ptr() as usize;
        for word in inside.split(|letter: char| !letter.is_ascii_digit() && !",.".contains(letter))
        {
            if word.starts_with(|letter: char| letter.is_ascii_digit()) {
                found.push((
                    start + word.as_ptr() as usize - inside.as_ptr() as usize,
                    word,
                ));
            }
        }
    }
    found
}
