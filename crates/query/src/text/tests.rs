//! Tables of texts, searches and scores.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::tokenizer::{Fold, Tokenizer};
use super::{Language, TextQuery, TextSpec};
use crate::testing::{json, value};

fn words(text: &str, language: &str, options: Fold) -> Vec<String> {
    let mut words = Vec::new();
    Tokenizer::new(Language::find(language).unwrap()).for_each(text, options, true, |word| {
        words.push(word);
        true
    });
    words
}

fn spec(weights: &[(&str, f64)]) -> TextSpec {
    TextSpec::new(weights.iter().copied(), Language::english(), "language")
}

#[test]
fn words_are_stemmed_and_folded() {
    for (language, text, expected) in [
        (
            "english",
            "The running dogs don't jump",
            &["run", "dog", "jump"][..],
        ),
        ("en", "e-mail: a_b, c.d", &["e", "mail", "a_b", "c", "d"]),
        ("english", "Café CAFE café", &["cafe", "cafe", "cafe"]),
        ("none", "The running dogs", &["the", "running", "dogs"]),
        ("none", "l'été «déjà» vu…", &["l", "ete", "deja", "vu"]),
        ("german", "Die Häuser und der Garten", &["haus", "gart"]),
        ("fr", "Les chevaux mangent", &["cheval", "mangent"]),
        ("spanish", "El niño corre", &["nin", "corr"]),
        ("russian", "красивые дома", &["красив", "дом"]),
        ("turkish", "ISPARTA İzmir", &["ıspar", "izmir"]),
        ("none", "  --  ", &[]),
        ("none", "日本 語、テスト", &["日本", "語", "テスト"]),
    ] {
        assert_eq!(
            words(text, language, Fold::default()),
            expected,
            "{language}: {text}"
        );
    }
    let keep = Fold {
        keep_case: true,
        keep_diacritics: true,
        is_of_ascii: false,
    };
    let old = Fold {
        is_of_ascii: true,
        ..Fold::default()
    };
    // Versions 1 and 2: only letters of ASCII have cases, and only characters of ASCII divide words.
    for (language, text, expected) in [
        (
            "english",
            "Café CAFÉ cafe RUNNING",
            &["café", "cafÉ", "cafe", "run"][..],
        ),
        ("none", "«déjà» vu… it's", &["«déjà»", "vu…", "it", "s"]),
        ("none", "日本 語、テスト", &["日本", "語、テスト"]),
    ] {
        assert_eq!(words(text, language, old), expected, "{language}: {text}");
    }
    assert_eq!(words("Café", "none", keep), ["Café"]);
    let error = Language::find("klingon").unwrap_err();
    assert_eq!(error.code().code(), 2);
}

#[test]
fn fields_are_found_by_their_weights() {
    for (weights, doc, expected) in [
        (&[("a", 1.0)][..], "{a: 'x', b: 'y'}", "x"),
        (&[("a", 1.0)], "{a: ['x', 'y', ['z']]}", "x y"),
        (&[("a.b", 1.0)], "{a: {b: 'x'}}", "x"),
        (&[("a.b", 1.0)], "{a: [{b: 'x'}, {b: ['y']}, 'z']}", "x y"),
        (&[("a", 1.0)], "{a: {b: 'x'}}", ""),
        (
            &[("$**", 1.0)],
            "{a: {b: 'x'}, c: [['y']], language: 'en'}",
            "x y",
        ),
        (&[("a", 1.0)], "{a: 5}", ""),
    ] {
        let found: Vec<String> = spec(weights)
            .scores(&json(doc))
            .unwrap()
            .into_keys()
            .collect();
        assert_eq!(found.join(" "), expected, "{weights:?} {doc}");
    }
}

#[test]
fn documents_name_their_language() {
    let spec = spec(&[("a", 1.0), ("b.c", 1.0)]);
    for (doc, expected) in [
        ("{a: 'die dogs'}", &["dog", "die"][..]),
        ("{a: 'die dogs', language: 'german'}", &["dog"]),
        ("{a: 'the', b: {c: 'the', language: 'none'}}", &["the"]),
    ] {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let found: Vec<String> = spec.scores(&json(doc)).unwrap().into_keys().collect();
        assert_eq!(found, expected, "{doc}");
    }
    for (doc, code) in [
        ("{a: 'x', language: 5}", 17261),
        ("{a: 'x', language: 'klingon'}", 17262),
    ] {
        assert_eq!(spec.scores(&json(doc)).unwrap_err().code().code(), code);
    }
}

#[test]
fn terms_are_scored_as_mongodb_does() {
    for (weights, doc, term, expected) in [
        // The whole text: 1 × 1.0 × (0.5 + 0.5) × 1.1.
        (&[("a", 1.0)][..], "{a: 'coffee'}", "coffe", 1.0),
        (&[("a", 1.0)], "{a: 'tea'}", "tea", 1.1),
        (&[("a", 1.0)], "{a: 'tea cake'}", "tea", 0.75),
        (&[("a", 5.0)], "{a: 'tea cake'}", "tea", 3.75),
        // Twice: (1 + 0.5) × (0.5 × 2 / 3 + 0.5).
        (&[("a", 1.0)], "{a: 'tea tea cake'}", "tea", 1.25),
        (
            &[("a", 1.0), ("b", 2.0)],
            "{a: 'tea cake', b: 'tea pot'}",
            "tea",
            2.25,
        ),
        (
            &[("$**", 1.0), ("b", 2.0)],
            "{a: 'tea cake', b: 'tea pot'}",
            "tea",
            2.25,
        ),
    ] {
        let scores = spec(weights).scores(&json(doc)).unwrap();
        let found = scores[term];
        assert!((found - expected).abs() < 1e-9, "{doc}: {found}");
    }
}

#[test]
fn searches_match() {
    for (search, passing, failing) in [
        (
            "{$search: 'dog cat'}",
            &["{a: 'Dogs'}", "{a: 'a cat'}"][..],
            &["{a: 'bird'}", "{}"][..],
        ),
        (
            "{$search: 'dog -cat'}",
            &["{a: 'dog'}"],
            &["{a: 'dog cat'}", "{a: 'bird'}"],
        ),
        ("{$search: '-cat'}", &[], &["{a: 'dog'}"]),
        ("{$search: 'dog - cat'}", &["{a: 'cat'}"], &["{a: 'bird'}"]),
        (
            "{$search: 'pre-war'}",
            &["{a: 'war'}", "{a: 'pre'}"],
            &["{a: 'x'}"],
        ),
        (
            "{$search: '\"hot dog\"'}",
            &["{a: 'a Hot Dog here'}", "{a: 'hot dogs'}"],
            &["{a: 'dog hot'}", "{a: 'hot'}"],
        ),
        (
            "{$search: 'dog -\"hot dog\"'}",
            &["{a: 'a dog'}"],
            &["{a: 'hot dog'}"],
        ),
        ("{$search: 'café'}", &["{a: 'cafe'}", "{a: 'CAFÉ'}"], &[]),
        ("{$search: 'the'}", &[], &["{a: 'the'}"]),
        (
            "{$search: 'the', $language: 'none'}",
            &["{a: 'the'}"],
            &["{a: 'a'}"],
        ),
        ("{$search: ''}", &[], &["{a: 'x'}"]),
        (
            "{$search: 'Dog', $caseSensitive: true}",
            &["{a: 'Dog'}"],
            &["{a: 'dog'}"],
        ),
        (
            "{$search: 'café', $diacriticSensitive: true}",
            &["{a: 'café'}"],
            &["{a: 'cafe'}"],
        ),
    ] {
        let argument = value(search);
        let query = TextQuery::parse(argument.as_value()).unwrap();
        let query = query.bind(Arc::new(spec(&[("a", 1.0)])));
        for (docs, expected) in [(passing, true), (failing, false)] {
            for doc in docs {
                let found = query.matches(&json(doc)).unwrap();
                assert_eq!(found, expected, "{search} on {doc}");
            }
        }
    }
    let query = value("{$search: 'tea \"hot cake\" -cold -\"ice cream\"'}");
    let query = TextQuery::parse(query.as_value()).unwrap();
    let query = query.bind(Arc::new(spec(&[("a", 1.0)])));
    assert_eq!(
        query.describe(),
        json(
            "{terms: ['cake', 'hot', 'tea'], negatedTerms: ['cold'], phrases: ['hot cake'], \
             negatedPhrases: ['ice cream']}"
        )
    );
    let score = query.score(&json("{a: 'tea hot cake'}")).unwrap();
    assert!((score - 2.0).abs() < 1e-9, "{score}");
}

#[test]
fn wrong_searches_are_refused() {
    for (argument, code, message) in [
        ("1", 2, "$text expects an object"),
        ("{}", 4, "Missing expected field \"$search\""),
        (
            "{$search: 1}",
            14,
            "\"$search\" had the wrong type. Expected string, found int",
        ),
        (
            "{$search: 'x', $language: 'klingon'}",
            2,
            "unsupported language: \"klingon\" for text index version 3",
        ),
        (
            "{$search: 'x', $caseSensitive: 'yes'}",
            14,
            "\"$caseSensitive\" had the wrong type. Expected bool, found string",
        ),
        ("{$search: 'x', $foo: 1}", 2, "extra fields in $text"),
    ] {
        let error = TextQuery::parse(value(argument).as_value()).unwrap_err();
        assert_eq!((error.code().code(), error.message()), (code, message));
    }
}

#[test]
fn old_versions_differ_in_diacritics_and_in_the_languages_of_inner_documents() {
    let of = |version| {
        let spec = spec(&[("a", 1.0), ("b.c", 1.0)]).with_version(version);
        Arc::new(spec)
    };
    let matches = |version, query: &str, doc: &str| {
        let query = TextQuery::parse(frond_bson::Value::Document(&json(query))).unwrap();
        query.bind(of(version)).matches(&json(doc)).unwrap()
    };
    use super::TextVersion::{One, Three, Two};
    for (query, doc, expected) in [
        (r#"{"$search": "CAFE"}"#, r#"{"a": "cafe"}"#, [true; 3]),
        (
            r#"{"$search": "cafe"}"#,
            r#"{"a": "café"}"#,
            [false, false, true],
        ),
        (r#"{"$search": "É"}"#, r#"{"a": "é"}"#, [false, false, true]),
        (
            r#"{"$search": "\"la caf\""}"#,
            r#"{"a": "La café"}"#,
            [true; 3],
        ),
        (
            r#"{"$search": "gehen", "$language": "german"}"#,
            r#"{"b": {"language": "german", "c": "gehe"}}"#,
            [false, true, true],
        ),
    ] {
        for (version, expected) in [One, Two, Three].into_iter().zip(expected) {
            assert_eq!(
                matches(version, query, doc),
                expected,
                "{version:?} {query} {doc}"
            );
        }
    }
    let unknown = json(r#"{"language": "klingon", "a": "running"}"#);
    assert!(of(Two).scores(&unknown).is_err());
    assert_eq!(of(One).scores(&unknown).unwrap().len(), 1);
}
