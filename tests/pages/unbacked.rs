//! Finds figures that no run backs: what looks measured in text that is written by hand, unless a list
//! of conditions names it.

use std::sync::LazyLock;

use fancy_regex::{Match, Regex};

/// Code says settings and commands, and the address of a link is no text.
static NO_TEXT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?s)```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->"));

/// What looks measured: a number with a unit of time, space, speed or share, a number with decimals or
/// with commas, the same in words, and a cell of a table that is a number.
static MEASURED: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"\b(?:\d[\d,.]*(?:\s(?:million|billion|thousand))?|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred)\b)";
    let unit = r"(?:bytes?|[kKMGT]i?B|bits?|ns|µs|us|ms|s|seconds?|minutes?|hours?|percent|times|×|x|/s|fold)\b|%|×";
    regex(&format!(
        r"(?i)\| \**\d[\d,.]*\**(?= \|)|{number}\s?(?:{unit})|{number}(?:\s[\w:`]+){{0,4}}(?:/s|\s(?:a|per) second)\b|\d[\d,]*\.\d+|\d+(?:,\d\d\d)+|\d+\smillion|\b(?:twice|thrice|halve[ds]?|(?:a|one|two)[ -](?:half|thirds?|quarters?|fifths?|tenths?|hundred|thousand)|half (?:of|the|a)|(?<!… )times (?:as|less|more|faster|slower|larger|smaller))\b"
    ))
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// What looks measured in a text but is in no condition. Conditions are phrases of the text.
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
    let found = MEASURED.find_iter(&text);
    found
        .map(|found| around(found.expect("a match within the limit")))
        .collect()
}

/// The text without code and addresses, in one line.
pub fn plain(text: &str) -> String {
    let text = NO_TEXT.replace_all(text, "…");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
