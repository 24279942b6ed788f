//! Finds figures that no run backs: numbers that look measured in text that is written by hand, unless the list
//! of conditions has them.

use std::sync::LazyLock;

use regex::{Match, Regex};

/// Code has settings and commands, and the address of a link is not text.
static NO_TEXT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?s)```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->"));

/// A number, in digits or in words.
const NUMBER: &str = r"\b(?:\d[\d,.]*(?:\s(?:million|billion|thousand))?|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred)\b)";

/// Patterns of measured figures. `NUMBER` stands for the pattern above.
const LOOKS_MEASURED: &[&str] = &[
    // A cell of a table that is a number.
    r"\| \**\d[\d,.]*\** \|",
    // With a unit of time, of space, or of a ratio.
    r"NUMBER\s?(?:(?:ns|µs|us|ms|s|seconds?|minutes?|hours?)\b)",
    r"NUMBER\s?(?:(?:bits?|bytes?|[kKMGT]i?B)\b)",
    r"NUMBER\s?(?:%|×|(?:percent|times|x|fold)\b)",
    // A rate: "143,000 documents a second", "941 transactions/s".
    r"NUMBER(?:\s[\w:`]+){0,4}(?:/s|\s(?:a|per) second)\b",
    // With decimals, with commas, with many digits.
    r"\d[\d,]*\.\d+",
    r"\d+(?:,\d\d\d)+",
    r"\b\d{5,}\b",
    r"\w+\s(?:million|billion)\b",
    // A ratio in words.
    r"\b(?:twice|thrice|halve[ds]?)\b",
    r"\b(?:a|one|two)[ -](?:half|thirds?|quarters?|fifths?|tenths?|hundred|thousand)\b",
    r"\bhalf (?:of|the|a)\b",
    r"\btimes (?:as|less|more|faster|slower|larger|smaller)\b",
];

static MEASURED: LazyLock<Regex> = LazyLock::new(|| {
    let patterns = LOOKS_MEASURED.join("|").replace("NUMBER", NUMBER);
    regex(&format!("(?i){patterns}"))
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// Returns the parts of a text that look measured and are in no condition. Conditions are phrases of the text.
pub fn unbacked<'a>(text: &str, conditions: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut text = plain(text);
    for condition in conditions {
        text = text.replace(condition, "…");
    }
    let around = |found: Match<'_>| {
        let before = text[..found.start()]
            .char_indices()
            .rev()
            .nth(30)
            .map_or(0, |(at, _)| at);
        let after = text[found.end()..]
            .char_indices()
            .nth(30)
            .map_or(text.len(), |(at, _)| found.end() + at);
        format!("{:?} in \"{}\"", found.as_str(), &text[before..after])
    };
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(found) = MEASURED.find_at(&text, at) {
        // The end of a cell is the start of the next one.
        at = match found.as_str().strip_suffix(" |") {
            Some(cell) => found.start() + cell.len(),
            None => found.end(),
        };
        // After a figure that is put in, "times as many" is right.
        let is_ratio = found.as_str().to_lowercase().starts_with("times ");
        if !(is_ratio && text[..found.start()].ends_with("… ")) {
            all.push(around(found));
        }
    }
    all
}

/// The text without code and addresses, in one line.
pub fn plain(text: &str) -> String {
    let text = NO_TEXT.replace_all(text, "…");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
