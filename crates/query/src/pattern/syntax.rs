//! Translation of regular expressions from PCRE's syntax, which MongoDB uses, to that of `fancy_regex`.
//!
//! The two agree on most of the language. These differences are rewritten here:
//! - `\d \w \s \b` and their negations are ASCII, unless the pattern starts with `(*UCP)`;
//! - `$` without the option `m` also matches before a newline at the end of the text;
//! - inside brackets `[`, `&`, `~` and spaces are literal, and `-` often is;
//! - `{` that starts no repetition, `}` and `]` outside brackets are literal;
//! - `\Q…\E` quotes; `\Z`, `\h`, `\R`, `\N`, `\e`, `\a`, `\cX` and octal escapes exist.

use super::Prefix;

/// Members of the ASCII classes, in bracket notation.
const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t-\r\x20";
const HORIZONTAL_SPACE: &str = r"\t\x20\u{A0}";

/// A rewritten pattern.
pub(crate) struct Translated {
    /// The pattern. Its word boundaries are Unicode's, which are the same in ASCII text.
    pub(crate) pattern: String,
    /// The pattern with boundaries of ASCII words, if it has any; it is slower.
    pub(crate) with_ascii_boundaries: Option<String>,
}

/// Rewrites `source`; `extended` and `multi_line` tell whether the options `x` and `m` are set.
pub(crate) fn translate(source: &str, extended: bool, multi_line: bool) -> Translated {
    let run = |ascii_boundaries| {
        let mut translator = Translator::new(source, extended, multi_line, ascii_boundaries);
        translator.run();
        translator
    };
    let translated = run(false);
    let with_ascii_boundaries = translated.has_ascii_boundaries.then(|| run(true).out);
    Translated {
        pattern: translated.out,
        with_ascii_boundaries,
    }
}

/// Whether the pattern switches to multi-line mode by itself: `(?m)`, `(?im:…)`.
fn sets_multi_line(source: &str) -> bool {
    source.match_indices("(?").any(|(at, _)| {
        let flags = source.get(at + 2..).unwrap_or_default();
        flags
            .chars()
            .take_while(char::is_ascii_lowercase)
            .any(|flag| flag == 'm')
    })
}

struct Translator {
    chars: Vec<char>,
    at: usize,
    out: String,
    extended: bool,
    line_anchors: bool,
    unicode_classes: bool,
    /// Whether to write ASCII word boundaries in full, and whether there was one.
    ascii_boundaries: bool,
    has_ascii_boundaries: bool,
}

impl Translator {
    fn new(source: &str, extended: bool, multi_line: bool, ascii_boundaries: bool) -> Translator {
        let mut rest = source;
        let mut unicode_classes = false;
        loop {
            // Settings that PCRE allows at the start of a pattern.
            if let Some(after) = rest.strip_prefix("(*UCP)") {
                (unicode_classes, rest) = (true, after);
            } else if let Some(after) = rest
                .strip_prefix("(*UTF8)")
                .or_else(|| rest.strip_prefix("(*UTF)"))
            {
                rest = after;
            } else {
                break;
            }
        }
        Translator {
            chars: rest.chars().collect(),
            at: 0,
            out: String::with_capacity(rest.len() + 16),
            extended,
            line_anchors: multi_line || sets_multi_line(rest),
            unicode_classes,
            ascii_boundaries,
            has_ascii_boundaries: false,
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        Some(next)
    }

    fn run(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape(),
                '[' => self.class(),
                '$' if !self.line_anchors => {
                    // At the very end a match may swallow the newline; elsewhere it must not.
                    let at_end = self.at == self.chars.len();
                    self.out
                        .push_str(if at_end { r"\n?\z" } else { r"(?=\n?\z)" });
                }
                '{' if !self.is_repetition() => self.out.push_str(r"\{"),
                '{' => {
                    // Copied whole, so that its closing brace is not taken for a literal.
                    self.out.push('{');
                    while let Some(c) = self.next() {
                        self.out.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
                '}' => self.out.push_str(r"\}"),
                ']' => self.out.push_str(r"\]"),
                '#' if self.extended => while self.next().is_some_and(|c| c != '\n') {},
                c => self.out.push(c),
            }
        }
    }

    /// Whether the brace just read starts `{n}`, `{n,}` or `{n,m}`.
    fn is_repetition(&self) -> bool {
        let digits = |from: usize| {
            (from..)
                .take_while(|at| self.peek(*at).is_some_and(|c| c.is_ascii_digit()))
                .count()
        };
        let least = digits(0);
        match self.peek(least) {
            _ if least == 0 => false,
            Some('}') => true,
            Some(',') => self.peek(least + 1 + digits(least + 1)) == Some('}'),
            _ => false,
        }
    }

    fn escape(&mut self) {
        let Some(c) = self.next() else {
            self.out.push('\\'); // The compiler reports a trailing backslash.
            return;
        };
        let class =
            |members: &str, negated: bool| format!("[{}{members}]", if negated { "^" } else { "" });
        match c {
            'd' | 'w' | 's' | 'D' | 'W' | 'S' | 'h' | 'H' => match self.ascii_members(c) {
                Some((members, negated)) => self.out.push_str(&class(members, negated)),
                None => self.pass(c),
            },
            'b' | 'B' if !self.unicode_classes && !self.ascii_boundaries => {
                self.has_ascii_boundaries = true;
                self.pass(c);
            }
            'b' | 'B' if !self.unicode_classes => {
                let (before, after) = (class(WORD, false), class(WORD, false));
                self.out.push_str(&if c == 'b' {
                    format!("(?:(?<={before})(?!{after})|(?<!{before})(?={after}))")
                } else {
                    format!("(?:(?<={before})(?={after})|(?<!{before})(?!{after}))")
                });
            }
            'Z' => self.out.push_str(r"(?=\n?\z)"),
            'N' => self.out.push_str(r"[^\n]"),
            'R' => self.out.push_str(r"(?:\r\n|[\n-\r\u{85}\u{2028}\u{2029}])"),
            'Q' => {
                for c in self.quoted() {
                    self.literal(c);
                }
            }
            'E' => {}
            c => self.common_escape(c),
        }
    }

    /// Escapes that mean the same inside and outside brackets.
    fn common_escape(&mut self, c: char) {
        match c {
            'e' => self.literal('\x1B'),
            'a' => self.literal('\x07'),
            'c' => {
                if let Some(control) = self.next().and_then(|c| u8::try_from(c).ok()) {
                    self.literal(char::from(control.to_ascii_uppercase() ^ 0x40));
                }
            }
            '0' => {
                let mut code = 0;
                for _ in 0..2 {
                    let Some(digit) = self.peek(0).and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    self.at += 1;
                }
                self.literal(char::from_u32(code).unwrap_or('\0'));
            }
            'p' | 'P' => self.property(c),
            'x' if self.peek(0) == Some('{') => {
                let code = self.braced();
                match u32::from_str_radix(code.trim(), 16).map(char::from_u32) {
                    Ok(Some(c)) => self.literal(c),
                    // The compiler reports it.
                    _ => self.out.push_str(&format!("\\x{{{code}}}")),
                }
            }
            'x' => {
                let mut code = 0;
                for _ in 0..2 {
                    let Some(digit) = self.peek(0).and_then(|c| c.to_digit(16)) else {
                        break;
                    };
                    code = code * 16 + digit;
                    self.at += 1;
                }
                self.literal(char::from_u32(code).unwrap_or('\0'));
            }
            c if c.is_ascii_alphanumeric() => self.pass(c),
            c => self.literal(c),
        }
    }

    /// A property of Unicode, `\p{L}`, `\PL` or `\p{^L}`, whose letter `p` or `P` has been read.
    fn property(&mut self, c: char) {
        if self.peek(0) != Some('{') {
            return self.pass(c);
        }
        let name = self.braced();
        match (name.strip_prefix('^'), c) {
            (Some(name), 'p') => self.out.push_str(&format!("\\P{{{name}}}")),
            (Some(name), _) => self.out.push_str(&format!("\\p{{{name}}}")),
            (None, c) => self.out.push_str(&format!("\\{c}{{{name}}}")),
        }
    }

    /// The text between the brace that follows and its closing one, which are skipped.
    fn braced(&mut self) -> String {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.next().filter(|c| *c != '}') {
            text.push(c);
        }
        text
    }

    fn pass(&mut self, c: char) {
        self.out.push('\\');
        self.out.push(c);
    }

    /// A character that stands for itself, in a form that no option changes.
    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{:02X}", u32::from(c)));
        }
    }

    /// The text up to `\E` or the end, which is skipped.
    fn quoted(&mut self) -> Vec<char> {
        let mut text = Vec::new();
        while let Some(c) = self.next() {
            if c == '\\' && self.peek(0) == Some('E') {
                self.at += 1;
                break;
            }
            text.push(c);
        }
        text
    }

    /// The members of a class escape and whether it is negated; none if it keeps its meaning.
    fn ascii_members(&self, c: char) -> Option<(&'static str, bool)> {
        let members = match c.to_ascii_lowercase() {
            'h' => HORIZONTAL_SPACE,
            _ if self.unicode_classes => return None,
            'd' => DIGITS,
            'w' => WORD,
            's' => SPACE,
            _ => return None,
        };
        Some((members, c.is_ascii_uppercase()))
    }

    /// A bracket expression, whose opening bracket has been read.
    fn class(&mut self) {
        self.out.push('[');
        if self.peek(0) == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut first = true;
        // Whether the last member can start a range, and whether a range waits for its end.
        let (mut can_start_range, mut in_range) = (false, false);
        while let Some(c) = self.next() {
            match c {
                ']' if !first => {
                    self.out.push(']');
                    return;
                }
                '-' if can_start_range && !matches!(self.peek(0), Some(']') | None) => {
                    self.out.push('-');
                    (can_start_range, in_range) = (false, true);
                    first = false;
                    continue;
                }
                '[' if self.peek(0) == Some(':') && self.posix_class() => {
                    (can_start_range, in_range, first) = (false, false, false);
                    continue;
                }
                '\\' => match self.next() {
                    Some(c @ ('d' | 'w' | 's' | 'D' | 'W' | 'S' | 'h' | 'H')) => {
                        if in_range {
                            // "a-\d": the dash was a literal after all.
                            self.out.pop();
                            self.out.push_str(r"\-");
                        }
                        match self.ascii_members(c) {
                            Some((members, false)) => self.out.push_str(members),
                            Some((members, true)) => self.out.push_str(&format!("[^{members}]")),
                            None => self.pass(c),
                        }
                        (can_start_range, in_range, first) = (false, false, false);
                        continue;
                    }
                    Some('b') => self.literal('\x08'),
                    Some('Q') => {
                        for c in self.quoted() {
                            self.literal(c);
                        }
                    }
                    Some('E') => continue,
                    Some(c @ '1'..='7') => {
                        let mut code = c.to_digit(8).unwrap_or(0);
                        for _ in 0..2 {
                            let Some(digit) = self.peek(0).and_then(|c| c.to_digit(8)) else {
                                break;
                            };
                            code = code * 8 + digit;
                            self.at += 1;
                        }
                        self.literal(char::from_u32(code).unwrap_or('\0'));
                    }
                    Some(c @ ('p' | 'P')) => {
                        self.property(c);
                        (can_start_range, in_range, first) = (false, false, false);
                        continue;
                    }
                    Some(c) => self.common_escape(c),
                    None => self.out.push('\\'),
                },
                c => self.literal(c),
            }
            can_start_range = !in_range;
            in_range = false;
            first = false;
        }
    }

    /// Copies `[:name:]`, whose opening bracket has been read; false if it is none.
    fn posix_class(&mut self) -> bool {
        let length = (1..).take_while(|at| {
            self.peek(*at)
                .is_some_and(|c| c.is_ascii_lowercase() || c == '^')
        });
        let end = 1 + length.count();
        if end == 1 || self.peek(end) != Some(':') || self.peek(end + 1) != Some(']') {
            return false;
        }
        self.out.push('[');
        for _ in 0..end + 2 {
            if let Some(c) = self.next() {
                self.out.push(c);
            }
        }
        true
    }
}

/// The literal text that every match starts with, for a pattern anchored at the start.
pub(crate) fn prefix(source: &str, options: &str) -> Option<Prefix> {
    if options.contains(['i', 'x']) {
        return None;
    }
    let body = match source.strip_prefix('^') {
        // In multi-line mode ^ also matches after a newline.
        Some(_) if options.contains('m') => return None,
        Some(body) => body,
        None => source.strip_prefix(r"\A")?,
    };
    if body.contains('|') || body.contains("(?") || body.contains(r"\Q") {
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
            // A dot does not match a newline unless told to.
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

    fn matches(pattern: &str, options: &str, text: &str) -> bool {
        Pattern::new(pattern, options)
            .unwrap()
            .is_match(text)
            .unwrap()
    }

    #[test]
    fn patterns_mean_what_pcre_says() {
        for (pattern, options, text, expected) in [
            ("^ab", "", "abc", true),
            ("^AB", "", "abc", false),
            ("^AB", "i", "abc", true),
            ("STRASSE|É", "i", "é", true),
            ("b.c", "", "b\nc", false),
            ("b.c", "s", "b\nc", true),
            ("^c", "", "b\nc", false),
            ("^c", "m", "b\nc", true),
            ("b$", "", "b", true),
            ("b$", "", "b\n", true),
            ("b$", "", "b\nc", false),
            ("b$", "m", "b\nc", true),
            ("(?m)b$", "", "b\nc", true),
            ("(a|b$)c?", "", "b\n", true),
            ("(b$)x", "", "b\nx", false),
            ("b\\Z", "", "b\n", true),
            ("b\\z", "", "b\n", false),
            ("a b # comment [", "x", "ab", true),
            ("a[ ]b", "x", "a b", true),
            // ASCII classes
            ("^\\w+$", "", "é", false),
            ("(*UCP)^\\w+$", "", "é", true),
            ("^\\d$", "", "5", true),
            ("^\\d$", "", "٣", false),
            ("^[\\d-]+$", "", "1-2", true),
            ("^[\\w.-]+$", "", "a.b-c", true),
            ("^[\\W]$", "", "é", true),
            ("^[^\\W]$", "", "a", true),
            ("\\bcat\\b", "", "a cat!", true),
            ("\\bcat\\b", "", "concat", false),
            ("\\Bcat", "", "concat", true),
            // é is no word character
            ("caf\\b", "", "café", true),
            ("(*UCP)caf\\b", "", "café", false),
            ("caf\\B", "", "café", false),
            ("^\\s$", "", "\u{A0}", false),
            ("^\\s$", "", "\t", true),
            // brackets
            ("^[[]$", "", "[", true),
            ("^[]a]+$", "", "]a", true),
            ("^[^]]$", "", "a", true),
            ("^[a&&b]+$", "", "a&b", true),
            ("^[a~~b]+$", "", "~", true),
            ("^[a-c-]+$", "", "b-", true),
            ("^[+--]$", "", ",", true),
            ("^[[:alpha:]]+$", "", "ab", true),
            ("^[[:alpha:]]+$", "", "a1", false),
            ("^[a\\-c]+$", "", "-", true),
            ("^[a\\-c]+$", "", "b", false),
            ("^[\\b]$", "", "\u{8}", true),
            ("^[\\x41-\\x43]$", "", "B", true),
            ("^[/\\\\]$", "", "\\", true),
            // braces
            ("^a{2}$", "", "aa", true),
            ("^a{2,}$", "", "aaa", true),
            ("^a{x}$", "", "a{x}", true),
            ("^{a}$", "", "{a}", true),
            ("^a{,2}$", "", "a{,2}", true),
            // escapes
            ("^\\Qa.b\\E.$", "", "a.bc", true),
            ("^\\Qa.b", "", "axb", false),
            ("^\\/\\<\\>\\ \\_$", "", "/<> _", true),
            ("^\\x41\\x{42}\\012$", "", "AB\n", true),
            ("^\\cA\\e$", "", "\u{1}\u{1B}", true),
            ("^\\R$", "", "\r\n", true),
            // properties and code points
            ("^\\p{L}+$", "", "éa", true),
            ("^\\pL$", "", "é", true),
            ("^\\P{Lu}$", "", "a", true),
            ("^\\P{Lu}$", "", "A", false),
            ("^\\p{^L}$", "", "1", true),
            ("^[\\p{Nd}_]+$", "", "٣_", true),
            ("^[^\\p{L}]$", "", "1", true),
            ("\\x{e9}", "", "é", true),
            ("^[\\x{3b1}-\\x{3c9}]+$", "", "αω", true),
            ("^\\x{41}{2}$", "", "AA", true),
            // look-around and back references
            ("a(?=b)", "", "ab", true),
            ("(?<!a)b", "", "ab", false),
            ("^(a|b)\\1$", "", "aa", true),
            ("^(a|b)\\1$", "", "ab", false),
            ("^(?>a+)b", "", "aab", true),
            ("(?i)AB", "", "ab", true),
            ("^(?<n>a)\\k<n>$", "", "aa", true),
            ("^(?P<n>a)(?P=n)$", "", "aa", true),
            ("^(?'n'a)\\k'n'$", "", "aa", true),
            ("^a++b$", "", "aab", true),
            ("^a++a", "", "aaa", false),
            ("^a*+a", "", "aaa", false),
            ("^(a?+)a$", "", "a", false),
            ("foo\\Kbar", "", "foobar", true),
            ("(?<=ab|c)d", "", "abd", true),
            ("(?<!ab|c)d$", "", "cd", false),
            ("^(a)?(?(1)b|c)$", "", "ab", true),
            ("^(a)?(?(1)b|c)$", "", "ac", false),
            ("^a(?#a comment)b$", "", "ab", true),
            ("^a\\hb$", "", "a\tb", true),
            ("^\\N+$", "", "ab", true),
            ("^(?i:a)b$", "", "Ab", true),
            ("^(?s)a.b$", "", "a\nb", true),
            ("^(?-i)ab$", "i", "AB", false),
        ] {
            let got = matches(pattern, options, text);
            assert_eq!(got, expected, "/{pattern}/{options} on {text:?}");
        }
    }

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
        ] {
            let expected = expected.map(|(text, exact)| Prefix {
                text: text.to_string(),
                exact,
            });
            assert_eq!(prefix(pattern, options), expected, "/{pattern}/{options}");
        }
    }
}
