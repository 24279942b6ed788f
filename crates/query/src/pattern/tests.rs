//! Meanings of patterns, and the limits of a match.

#![allow(clippy::unwrap_used)]

use super::Pattern;

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
        // é is not a word character
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
        // braces that newer versions of PCRE2 read as a repetition
        ("^a{,2}$", "", "aa", false),
        ("^a{1, 2}$", "", "a{1, 2}", true),
        ("^a{ 1}$", "", "a", false),
        ("^[{,2}]+$", "", "2{,}", true),
        ("^\\Qa{,2}\\E$", "", "a{,2}", true),
        ("^\\{,2}$", "", "{,2}", true),
        ("^a{,2} \\x{41}\\p{L}$", "", "a{,2} Aé", true),
        // code points
        ("^\\N{U+41}$", "", "A", true),
        ("^\\o{101}$", "", "A", true),
        ("^\\x{1F600}$", "", "😀", true),
        ("^.$", "", "😀", true),
        ("^\\C{4}$", "", "😀", true),
        // space and lines
        ("^\\v$", "", "\n", true),
        ("^\\v$", "", "\u{2028}", true),
        ("^\\v$", "", "v", false),
        ("^\\V$", "", "v", true),
        ("^\\h$", "", "\u{A0}", true),
        ("^\\H$", "", "h", true),
        ("^\\R$", "", "\u{85}", true),
        ("^a\\Rb$", "", "a\nb", true),
        ("^\\R{2}$", "", "\r\n", false),
        ("^\\X$", "", "e\u{301}", true),
        ("^\\X$", "", "👨‍👩‍👧", true),
        ("^\\X$", "", "ab", false),
        ("(*ANYCRLF)a$", "m", "a\rb", true),
        ("a$", "m", "a\rb", false),
        ("(*CRLF)^b", "m", "a\r\nb", true),
        ("(*CR)^b", "m", "a\nb", false),
        ("(*BSR_ANYCRLF)^\\R$", "", "\u{85}", false),
        // properties
        ("^\\p{Greek}+$", "", "αω", true),
        ("^\\p{Greek}$", "", "a", false),
        ("^\\p{Han}\\p{Cyrillic}$", "", "中я", true),
        ("^\\p{Latin}$", "", "é", true),
        ("^[\\p{Lu}\\p{Nd}]{2}$", "", "É1", true),
        ("^\\p{L&}$", "", "a", true),
        ("^\\p{Xwd}$", "", "é", true),
        ("^\\p{Emoji}$", "", "😀", true),
        ("^[[:^alpha:]]$", "", "1", true),
        ("^[[:word:]]$", "", "_", true),
        // settings at the start
        ("(*UTF8)^é$", "", "é", true),
        ("(*UTF)(*UCP)^\\w$", "", "é", true),
        ("(*UTF8)(*UCP)^\\d$", "", "٣", true),
        ("(*NO_JIT)(*NO_START_OPT)a", "", "ba", true),
        ("(*UCP)\\bé", "", "a é", true),
        // recursion
        ("^(?:a(?R)?b)$", "", "ab", true),
        ("a(?R)?b", "", "aabb", true),
        ("^(\\((?:[^()]|(?1))*\\))$", "", "(a(b)c)", true),
        ("^(\\((?:[^()]|(?1))*\\))$", "", "(a(b c)", false),
        ("^((.)(?1)\\2|.?)$", "", "racecar", true),
        ("^(a)(?-1)$", "", "aa", true),
        ("^(?+1)(b)$", "", "bb", true),
        ("^(?<n>a|b)(?&n)$", "", "ab", true),
        ("^(?<n>a|b)(?P>n)$", "", "ab", true),
        ("^(?<n>a|b)\\g<n>\\g'n'$", "", "abb", true),
        ("^(a|b)\\g<1>$", "", "ab", true),
        ("^(?(DEFINE)(?<d>[0-9]+))(?&d)\\.(?&d)$", "", "1.22", true),
        // names and references
        ("^(?P<y>\\d{2})-(?P=y)$", "", "24-24", true),
        ("^(?'n'a)\\g{n}$", "", "aa", true),
        ("^(?<n>a)\\k{n}\\k<n>\\k'n'$", "", "aaaa", true),
        ("^(a)\\g{1}\\g1$", "", "aaa", true),
        ("^(a)(b)\\g{-1}\\g{-2}$", "", "abba", true),
        ("^(?J)(?:(?<n>a)|(?<n>b))\\k<n>$", "", "bb", true),
        ("^(?|(a)|(b))\\1$", "", "bb", true),
        ("^(?|(a)|(b))(c)\\2$", "", "bcc", true),
        // conditions
        ("^(a)?(?(1)b|c)$", "", "c", true),
        ("^(a)?(?(1)b|c)$", "", "b", false),
        ("^(?<n>a)?(?(<n>)b|c)$", "", "ab", true),
        ("^(?<n>a)?(?('n')b|c)$", "", "c", true),
        ("^(?(?=a)ab|cd)$", "", "ab", true),
        ("^(?(?=a)ab|cd)$", "", "cd", true),
        ("^(?(?!a)cd|ab)$", "", "ab", true),
        ("^(?(?<=x)a|b)$", "", "b", true),
        ("^(?(VERSION>=10.4)a|b)$", "", "a", true),
        // quantifiers
        ("^a?+a$", "", "a", false),
        ("^[ab]*+$", "", "abab", true),
        ("^a{1,2}+a$", "", "aa", false),
        ("^a+?b", "", "aab", true),
        ("^(?>a|ab)c", "", "abc", false),
        ("^(*atomic:a|ab)c", "", "abc", false),
        ("(?U)^a+$", "", "aa", true),
        // options inside
        ("^(?^)ab$", "i", "AB", false),
        ("^(?^i:ab)$", "", "AB", true),
        ("a(?i)b(?-i)c", "", "aBc", true),
        ("a(?i)b(?-i)c", "", "aBC", false),
        ("^(?x) a b # comment\n c$", "", "abc", true),
        ("^(?xx)[a b]$", "", " ", false),
        ("(?im)^ab$", "", "x\nAB", true),
        ("^(?n)(a)(?<n>b)\\1$", "", "abb", true),
        // look-around
        ("(?<=USD )\\d+", "", "USD 5", true),
        ("(?<=a|bc)d", "", "bcd", true),
        ("(?<!a|bc)d", "", "bcd", false),
        ("(?<=\\bab)c", "", "abc", true),
        ("^(?=.*[A-Z])(?=.*[0-9]).+$", "", "aB1", true),
        ("^(?!.*secret)", "", "a secret", false),
        ("^(*pla:a)a$", "", "a", true),
        ("^(*positive_lookahead:a)a$", "", "a", true),
        // verbs and callouts
        ("a(*SKIP)(*F)|b", "", "a", false),
        ("a(*SKIP)(*F)|b", "", "ab", true),
        ("a(*COMMIT)b", "", "acab", false),
        ("a(*PRUNE)b", "", "acab", true),
        ("^a(*ACCEPT)b$", "", "ax", true),
        ("a(*THEN)b|ac", "", "ac", true),
        ("^a(?C1)b(?C)c$", "", "abc", true),
        ("^a(?C'text')b$", "", "ab", true),
        // the rest
        ("a\\Kb", "", "ab", true),
        ("^\\Q(a|b)*\\E$", "", "(a|b)*", true),
        ("^[\\Qa-z\\E]+$", "", "-az", true),
        ("a\\Q\\E+$", "", "aa", true),
        ("\\Ga", "", "ba", false),
        ("\\Ga", "", "ab", true),
        ("K", "i", "\u{212A}", true),
        ("ß", "i", "ẞ", true),
        ("É", "i", "é", true),
        ("^é{2}$", "i", "Éé", true),
        ("", "", "", true),
        ("$", "", "", true),
    ] {
        for form in ["", "(*NO_JIT)"] {
            let got = matches(&format!("{form}{pattern}"), options, text);
            assert_eq!(got, expected, "/{form}{pattern}/{options} on {text:?}");
        }
    }
}

/// A long text is searched with another form of the pattern.
#[test]
fn patterns_mean_the_same_in_long_texts() {
    let fill = "-".repeat(3_000);
    for (pattern, text, expected) in [
        ("(a+)+b$", "aab", true),
        ("(?:a(?R)?b)", "aabb", true),
        ("(?|(x)|(b))\\1", "bb", true),
        ("a(*SKIP)(*F)|b", "ab", true),
        ("a(*COMMIT)b|c", "ac", false),
        ("(?<=-a)b*+$", "ab", true),
        ("^(?:-*+)(\\w+)(?1)*$", "word", true),
        ("a # comment", "a # comment", true),
        ("\\Qa*", "a*", true),
        ("(a*)*(b*)*\\1c", "aabbaac", true),
        ("\\G-+?a", "a", true),
        ("(*ANYCRLF)(?m)a$", "a\rb", true),
    ] {
        let text = format!("{fill}{text}");
        for form in ["", "(*NO_JIT)"] {
            let got = matches(&format!("{form}{pattern}"), "", &text);
            assert_eq!(got, expected, "/{form}{pattern}/");
        }
    }
}

#[test]
fn plain_text_is_found_as_pcre_finds_it() {
    let long = "x".repeat(100) + "needle" + &"y".repeat(100);
    for (pattern, options, text, expected) in [
        ("needle", "", long.as_str(), Some(100)),
        ("needle", "m", &long, Some(100)),
        ("^needle", "", &long, None),
        ("^xx", "", &long, Some(0)),
        ("", "", "a", Some(0)),
        ("^", "", "", Some(0)),
        ("é", "", "aé", Some(1)),
        ("a b#c", "", "a b#c", Some(0)),
        ("a]}", "", "a]}", Some(0)),
    ] {
        let plain = Pattern::new(pattern, options).unwrap();
        // The group makes it a pattern for PCRE2.
        let engine = Pattern::new(&format!("(?:){pattern}"), options).unwrap();
        for pattern in [&plain, &engine] {
            let found = pattern.find(text, 0).unwrap();
            assert_eq!(
                found.map(|found| found.whole.start),
                expected,
                "{pattern:?}"
            );
            assert_eq!(
                pattern.is_match(text).unwrap(),
                expected.is_some(),
                "{pattern:?}"
            );
        }
    }
}

#[test]
fn wrong_patterns_are_refused_in_the_words_of_pcre() {
    for (pattern, reason) in [
        ("(", "missing closing parenthesis"),
        ("a)", "unmatched closing parenthesis"),
        ("[", "missing terminating ] for character class"),
        ("*a", "quantifier does not follow a repeatable item"),
        ("a{2,1}", "numbers out of order in {} quantifier"),
        ("[z-a]", "range out of order in character class"),
        ("\\", "\\ at end of pattern"),
        ("\\p{Nothing}", "unknown property after \\P or \\p"),
        (
            "\\x{110000}",
            "character code point value in \\x{} or \\o{} is too large",
        ),
        ("(?<n>a)\\g{m}", "reference to non-existent subpattern"),
    ] {
        let error = Pattern::new(pattern, "").unwrap_err();
        assert_eq!(error.code().code(), 51091, "{pattern}");
        assert_eq!(
            error.message(),
            format!("Regular expression is invalid: {reason}"),
            "{pattern}"
        );
    }
    for hostile in [
        "(".repeat(300) + &")".repeat(300),
        "((a{1000}){1000}){1000}".to_owned(),
    ] {
        let error = Pattern::new(&hostile, "").unwrap_err();
        assert_eq!(error.code().code(), 51091);
    }
    let error = Pattern::new(&"a".repeat(32_765), "").unwrap_err();
    assert_eq!(error.code().code(), 51091);
    for (pattern, options, code) in [("a\0b", "", 2), ("a", "g", 51108)] {
        assert_eq!(
            Pattern::new(pattern, options).unwrap_err().code().code(),
            code
        );
    }
}

#[test]
fn groups_have_their_places() {
    for (pattern, text, from, expected) in [
        (
            "(b)(x)?(c)",
            "abc",
            0,
            Some((1..3, vec![Some(1..2), None, Some(2..3)])),
        ),
        ("foo\\K(bar)", "foobar", 0, Some((3..6, vec![Some(3..6)]))),
        ("(?<year>\\d+)", "é24", 0, Some((2..4, vec![Some(2..4)]))),
        ("a*", "baa", 0, Some((0..0, vec![]))),
        ("a*", "baa", 1, Some((1..3, vec![]))),
        ("^b", "abab", 1, None),
        ("(?<=a)b", "ab", 1, Some((1..2, vec![]))),
    ] {
        let found = Pattern::new(pattern, "").unwrap().find(text, from).unwrap();
        assert_eq!(
            found.map(|found| (found.whole, found.groups)),
            expected,
            "{pattern}"
        );
    }
}

#[test]
fn patterns_are_shared_by_threads() {
    let pattern = Pattern::new("^(\\w+)@(\\w+)\\.org$", "i").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let pattern = pattern.clone();
            scope.spawn(move || {
                for i in 0..1000 {
                    assert!(pattern.is_match(&format!("name{i}@Example.org")).unwrap());
                    assert!(!pattern.is_match(&format!("name{i}@example.com")).unwrap());
                }
            });
        }
    });
}

#[test]
fn a_match_that_takes_too_much_is_an_error() {
    let deep = "ab".repeat(4_000) + "xc";
    for (pattern, text) in [
        ("(a+)+$", "a".repeat(50) + "b"),
        ("(a+)+$", "a".repeat(5_000) + "b"),
        ("^(a|aa)+$", "a".repeat(60) + "b"),
        ("^(a|aa|aaa)*c", "a".repeat(100) + "bc"),
        ("(x+x+)+y", "x".repeat(10_000) + "zy"),
        ("^(?:a|b)*c", deep.clone()),
        // A pattern cannot raise the limits.
        ("(*LIMIT_MATCH=4000000000)^(a|aa)+$", "a".repeat(60) + "b"),
        ("(*LIMIT_DEPTH=4000000000)^(?:a|b)*c", deep.clone()),
        (
            "(*LIMIT_HEAP=4000000000)(*LIMIT_DEPTH=4000000000)^(?:a|b)*c",
            deep,
        ),
        // It can lower them.
        ("(*LIMIT_MATCH=5)^(?:a|b|c)*d", "abcabcabcxd".to_owned()),
        // The memory of open steps.
        (
            &("^".to_owned() + &"()".repeat(400) + "(?:.|\\n)*xy"),
            "ab\n".repeat(1_300) + "yx",
        ),
    ] {
        let error = Pattern::new(pattern, "").unwrap().is_match(&text);
        let error = match error {
            Err(error) => error,
            Ok(matches) => panic!("/{pattern}/ on {} bytes: {matches}", text.len()),
        };
        assert_eq!(error.code().code(), 5_073_414, "{pattern}: {error}");
        assert!(error.message().ends_with("limit exceeded"), "{error}");
    }
}

#[test]
fn other_matches_are_not_near_the_limits() {
    let mail = "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$";
    assert!(matches(mail, "", &("name".repeat(500) + "@example.org")));
    assert!(!matches(mail, "", &"name".repeat(500)));
    assert!(matches("(?:ab)+$", "", &"ab".repeat(500)));
    assert!(matches(".*x", "s", &("ab\n".repeat(1 << 20) + "x")));
    assert!(matches(
        "^(?:[^,]*,){3}x",
        "",
        &("a".repeat(100_000) + ",,,x")
    ));
    assert!(!matches("foo.*bar", "i", &"foo ".repeat(10_000)));
}

#[test]
fn a_match_inside_a_character_is_no_text() {
    let pattern = Pattern::new("\\C", "").unwrap();
    assert!(pattern.is_match("é").unwrap());
    assert!(pattern.find("é", 0).is_err());
    assert!(pattern.find("a", 0).unwrap().is_some());
    assert!(Pattern::new("(?:)b", "").unwrap().find("éb", 1).is_err());
}

/// Their form that reports each item would be too large.
#[test]
fn large_patterns_mean_the_same_in_long_texts() {
    let words: Vec<String> = (0..3_000).map(|n| format!("w{n}x")).collect();
    let words = words.join("|");
    let text = format!("{}w2999x", "-".repeat(5_000));
    for (pattern, options, expected) in [
        (words.clone(), "", true),
        (format!("(*UTF8)(*UCP)(?:{words})$"), "i", true),
        (format!("(*F)a|{words}"), "", true),
        (format!("{words} # a comment"), "x", true),
        (format!("(?:{words})\\Q-"), "", false),
        ("-".repeat(5_000) + &"x".repeat(5_000), "i", false),
    ] {
        let short: String = pattern.chars().take(20).collect();
        assert_eq!(
            matches(&pattern, options, &text),
            expected,
            "/{short}…/{options}"
        );
    }
}

/// Memory that a pattern takes is near what it reserves.
#[test]
fn compiled_patterns_are_small() {
    for (pattern, most) in [("a.*b", 8 << 10), ("^[\\w.+-]+@[\\w-]+$", 16 << 10)] {
        let engine = super::engine::Engine::new(pattern, "").unwrap();
        assert!(
            engine.bytes() <= most,
            "/{pattern}/ takes {}",
            engine.bytes()
        );
    }
}
