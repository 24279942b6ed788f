//! The language of comments, and two habits of code, counted with a baseline that may only fall.

use std::collections::BTreeMap;

/// Kinds of findings, as the baseline names them, with the advice that a failure prints.
pub const KINDS: &[(&str, &str)] = &[
    (
        "opening",
        "a comment begins with What, Who, How or So many; write a sentence with a subject",
    ),
    (
        "idiom",
        "\"tell\", \"somebody\", \"nobody\", \"anew\"; say which code does it",
    ),
    (
        "short-doc",
        "a doc comment of three words, none of them code or a number, repeats the name; delete it or say why",
    ),
    (
        "match-bool",
        "`match` on a bool; use `if` or a method of bool",
    ),
    ("fn-of", "`fn of` says nothing; name the conversion"),
];

/// First words that make a noun clause of a comment.
const OPENINGS: &[&str] = &["What", "Who", "Whose", "Whom", "How", "So many", "So much"];

const IDIOMS: &[&str] = &[
    "tell", "tells", "told", "telling", "somebody", "nobody", "anew",
];

/// A doc comment of as many words says no more than the name, unless it has code or a number.
const SHORT_WORDS: usize = 3;

/// A finding: its kind, and its line.
pub type Finding = (&'static str, usize);

/// The counts by kind and part of the repository.
pub type Counts = BTreeMap<(String, String), usize>;

/// The marker and the text of a line that is nothing but a comment.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    ["///", "//!", "//"].into_iter().find_map(|marker| {
        let text = line.strip_prefix(marker)?;
        (!text.starts_with('/')).then_some((marker, text.trim()))
    })
}

/// The comment behind the code of a line. A line with an odd number of quotes before it is part of a string.
fn trailing_comment(line: &str) -> Option<&str> {
    let (code, text) = line.split_once(" // ")?;
    let is_code = !code.trim().is_empty() && code.matches('"').count().is_multiple_of(2);
    is_code.then_some(text.trim())
}

/// Whether `word` stands in the text as a whole.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn opens_badly(text: &str) -> bool {
    OPENINGS.iter().any(|word| {
        let rest = text.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

fn has_idiom(text: &str) -> bool {
    let text = text.to_lowercase();
    IDIOMS.iter().any(|idiom| has_word(&text, idiom))
}

/// Whether the line opens a `match` whose first arm, in the lines after it, is a bool.
fn matches_bool(line: &str, after: &[&str]) -> bool {
    let opens = line.ends_with('{') && (has_word(line, "match") || line.trim() == "} {");
    let mut arms = after.iter().map(|line| line.trim());
    let first = arms.find(|line| !line.is_empty() && !line.starts_with("//"));
    let first = first.unwrap_or_default();
    opens
        && ["true", "false"].iter().any(|value| {
            let rest = first.strip_prefix(value);
            rest.is_some_and(|rest| {
                rest.starts_with(" =>") || (rest.starts_with(" if ") && rest.contains("=>"))
            })
        })
}

/// All findings of a Rust source.
pub fn findings(source: &str) -> Vec<Finding> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    // The comment that the lines belong to: its marker, the line before, and the words of a doc comment so far.
    let mut block: Option<(&str, &str)> = None;
    let mut words = 0;
    let mut has_fact = false;
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let Some((marker, text)) = comment(line) else {
            block = None;
            if let Some(text) = trailing_comment(line) {
                found.extend(opens_badly(text).then_some(("opening", number)));
                found.extend(has_idiom(text).then_some(("idiom", number)));
            }
            if matches_bool(line, &lines[number..]) {
                found.push(("match-bool", number));
            }
            if has_word(super::code_of(line), "fn of") {
                found.push(("fn-of", number));
            }
            continue;
        };
        let before = block.filter(|(kind, _)| *kind == marker);
        if before.is_none() {
            words = 0;
            has_fact = false;
        }
        let item = text.strip_prefix("- ");
        let is_start = item.is_some() || before.is_none_or(|(_, before)| before.is_empty());
        if is_start && opens_badly(item.unwrap_or(text)) {
            found.push(("opening", number));
        }
        if has_idiom(text) {
            found.push(("idiom", number));
        }
        words += text.split_whitespace().count();
        has_fact |= text.contains(|c: char| c == '`' || c.is_ascii_digit());
        let goes_on = lines
            .get(number)
            .and_then(|line| comment(line))
            .is_some_and(|(next, _)| next == marker);
        if marker == "///" && !goes_on && !has_fact && words <= SHORT_WORDS {
            found.push(("short-doc", number));
        }
        block = Some((marker, text));
    }
    found
}

/// The part of the repository that a file belongs to: the crate, `src` or `tests`.
pub fn part(path: &str) -> &str {
    let mut folders = path.split('/');
    match folders.next() {
        Some("crates") => folders.next().unwrap_or_default(),
        first => first.unwrap_or_default(),
    }
}

/// Reads a baseline: on each line a kind, a part and a count.
pub fn read_baseline(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut cells = line.split_whitespace();
            let (kind, part) = (cells.next()?, cells.next()?);
            Some((
                (kind.to_owned(), part.to_owned()),
                cells.next()?.parse().ok()?,
            ))
        })
        .collect()
}

/// A baseline as text, which [`read_baseline`] reads.
pub fn write_baseline(counts: &Counts) -> String {
    let mut text = String::from(
        "# Findings of tests/all/tidy/language.rs that are left, by kind and part. A count may only fall;\n\
         # FROND_WRITE_BASELINES=1 cargo test --test all tidy:: writes lower ones.\n",
    );
    for ((kind, part), count) in counts {
        text.push_str(&format!("{kind} {part} {count}\n"));
    }
    text
}

#[test]
fn findings_are_seen() {
    for (source, expected) in [
        ("/// What it is for.", &[("opening", 1)][..]),
        (
            "//! Text.\n//!\n//! - How much it takes.",
            &[("opening", 3)],
        ),
        ("// Whether it is.\n// However.\n// Whatever.", &[]),
        ("// The bytes are\n// What was left.", &[]),
        ("let a = 1; // So many of them", &[("opening", 1)]),
        ("let a = \"b // What \n c\";", &[]),
        ("// It tells of it, and nobody waits.", &[("idiom", 1)]),
        ("// Renewed.", &[]),
        ("/// Its own name.", &[("short-doc", 1)]),
        ("/// A name that\n/// goes on.", &[]),
        ("/// `{$set: …}`", &[]),
        ("/// 1 to 12.", &[]),
        ("// Plain remark.", &[]),
        ("//! Of a module.", &[]),
        ("match a {\n    true => 1,", &[("match-bool", 1)]),
        (
            "let a = match b(c) {\n    // d\n    false if e => 1,",
            &[("match-bool", 1)],
        ),
        ("match a {\n    truest => 1,", &[]),
        ("match a {\n    (true, _) => 1,", &[]),
        ("pub fn of(a: u8) {}\nfn of_all() {}", &[("fn-of", 1)]),
    ] {
        assert_eq!(findings(source), expected, "{source}");
    }
}

#[test]
fn a_baseline_is_read_as_it_was_written() {
    let counts = Counts::from([
        (("fn-of".to_owned(), "tree".to_owned()), 3),
        (("opening".to_owned(), "src".to_owned()), 12),
    ]);
    assert_eq!(read_baseline(&write_baseline(&counts)), counts);
    assert_eq!(part("crates/tree/src/lib.rs"), "tree");
    assert_eq!(part("tests/all/tidy.rs"), "tests");
}
