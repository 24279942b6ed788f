//! Patterns that are plain text, and the plain text that patterns begin with.

use std::ops::Range;

use memchr::memmem::Finder;

use super::Prefix;

/// A pattern that stands for one text.
#[derive(Clone)]
pub(super) struct Literal {
    finder: Finder<'static>,
    /// Whether it has to be at the start.
    is_anchored: bool,
}

impl Literal {
    /// The text that a pattern stands for, if it has no operator besides `^` at its start.
    pub(super) fn extract(source: &str, options: &str) -> Option<Literal> {
        // In multi-line mode ^ also matches after a newline.
        let (text, is_anchored) = match source.strip_prefix('^') {
            Some(_) if options.contains('m') => return None,
            Some(text) => (text, true),
            None => (source, false),
        };
        let is_plain = !options.contains(['i', 'x'])
            && !text.contains(['\\', '^', '$', '.', '[', '|', '(', ')', '*', '+', '?', '{']);
        is_plain.then(|| Literal {
            finder: Finder::new(text).into_owned(),
            is_anchored,
        })
    }

    /// The position of the text, at byte `from` or later.
    #[inline]
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let needle = self.finder.needle();
        let start = if self.is_anchored {
            (from == 0 && text.as_bytes().starts_with(needle)).then_some(0)
        } else {
            (self.finder.find(text.as_bytes().get(from..)?)).map(|at| from + at)
        }?;
        Some(start..start + needle.len())
    }
}

/// The literal text that every match starts with, for a pattern anchored at the start.
pub(super) fn prefix(source: &str, options: &str) -> Option<Prefix> {
    if options.contains(['i', 'x']) {
        return None;
    }
    let body = match source.strip_prefix('^') {
        // In multi-line mode ^ also matches after a newline.
        Some(_) if options.contains('m') => return None,
        Some(body) => body,
        None => source.strip_prefix(r"\A")?,
    };
    // After \E a quantifier stands for the character before it.
    if ["|", "(?", r"\Q", r"\E"]
        .iter()
        .any(|part| body.contains(part))
    {
        return None;
    }
    let mut text = String::new();
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => match chars.peek() {
                Some(next) if !next.is_ascii_alphanumeric() => chars.next(),
                _ => None,
            },
            '^' | '$' | '.' | '[' | '(' | ')' | '*' | '+' | '?' | '{' => None,
            c => Some(c),
        };
        let Some(literal) = literal else {
            let matches_all = c == '.' && chars.next() == Some('*') && chars.next().is_none();
            // Without the option `s` a dot does not match a newline.
            let exact = matches_all && options.contains('s');
            return (!text.is_empty()).then_some(Prefix { text, exact });
        };
        match chars.peek() {
            // The character may be absent.
            Some('*' | '?' | '{') => {
                return (!text.is_empty()).then_some(Prefix { text, exact: false });
            }
            Some('+') => {
                text.push(literal);
                return Some(Prefix { text, exact: false });
            }
            _ => text.push(literal),
        }
    }
    (!text.is_empty()).then_some(Prefix { text, exact: true })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn anchored_patterns_have_a_prefix() {
        for (pattern, options, expected) in [
            ("^abc", "", Some(("abc", true))),
            ("\\Aabc", "m", Some(("abc", true))),
            ("^abc", "m", None),
            ("^abc", "i", None),
            ("^abc", "x", None),
            ("abc", "", None),
            ("^", "", None),
            ("^.*", "", None),
            ("^a\\.b", "", Some(("a.b", true))),
            ("^a\\d", "", Some(("a", false))),
            ("^abc*", "", Some(("ab", false))),
            ("^ab+c", "", Some(("ab", false))),
            ("^ab?", "", Some(("a", false))),
            ("^ab{0,2}", "", Some(("a", false))),
            ("^ab.*", "", Some(("ab", false))),
            ("^ab.*", "s", Some(("ab", true))),
            ("^ab$", "", Some(("ab", false))),
            ("^ab|cd", "", None),
            ("^ab(c)", "", Some(("ab", false))),
            ("^a*", "", None),
            ("^ab\\E*", "", None),
            ("^\\Qab\\E", "", None),
            ("^(?i)ab", "", None),
            ("(*UCP)^ab", "", None),
            ("(?i)^ab", "", None),
            ("^ab{,2}", "", Some(("a", false))),
            ("^ab(*SKIP)c", "", Some(("ab", false))),
            ("^ab++", "", Some(("ab", false))),
            ("^a]b}#", "", Some(("a]b}#", true))),
            ("^ab\\Kc", "", Some(("ab", false))),
            ("^é+", "", Some(("é", false))),
        ] {
            let expected = expected.map(|(text, exact)| Prefix {
                text: text.to_string(),
                exact,
            });
            assert_eq!(prefix(pattern, options), expected, "/{pattern}/{options}");
        }
    }

    /// Whatever follows a prefix, the pattern decides as its prefix says.
    #[test]
    fn texts_that_match_begin_with_the_prefix() {
        let parts = [
            "a", "b", "é", "\\.", "\\-", "\\Q", "\\E", "*", "+", "?", "{,2}", "{2}", "{0}", "|",
            "(b)", "(?:a)", "(?i)", "(?#c)", "[ab]", ".", ".*", "$", "^", "\\b", "\\K", "(*F)",
            "(?=a)", "]", "}", " ", "#", "\\x61",
        ];
        let texts: Vec<String> = [
            "", "a", "b", "A", "é", ".", "-", " ", "#", "]", "}", "{", "\n", "*",
        ]
        .iter()
        .flat_map(|a| ["", "a", "b", "A", "é", ".", "{,2}"].map(|b| format!("{a}{b}")))
        .flat_map(|start| ["", "a", "b", "ab", "\nb", "E"].map(|end| format!("{start}{end}")))
        .collect();
        let mut checked = 0;
        for a in parts {
            for b in parts {
                for c in parts {
                    for (start, options) in [("^", ""), ("\\A", "m"), ("^", "s")] {
                        let source = format!("{start}{a}{b}{c}");
                        let Ok(pattern) = Pattern::new(&source, options) else {
                            continue;
                        };
                        let Some(prefix) = pattern.prefix() else {
                            continue;
                        };
                        checked += 1;
                        for text in &texts {
                            let matches = pattern.is_match(text).unwrap();
                            let begins = text.starts_with(&prefix.text);
                            assert!(begins || !matches, "/{source}/{options} on {text:?}");
                            assert!(
                                !prefix.exact || begins == matches,
                                "/{source}/{options} on {text:?}"
                            );
                        }
                    }
                }
            }
        }
        assert!(checked > 5_000, "{checked} patterns have a prefix");
    }
}
