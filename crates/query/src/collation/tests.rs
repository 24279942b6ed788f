//! Collations as tables: specification, resolved form or error; orders of strings.

#![allow(clippy::unwrap_used)]

mod queries;

use super::*;
use crate::testing::json;
use frond_bson::OwnedValue;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::cmp::Ordering;

fn collator(spec: &str) -> Collator {
    parse(&json(spec)).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

#[test]
fn specifications_are_resolved() {
    for (spec, resolved) in [
        (
            "{locale: 'en'}",
            "{locale: 'en', caseLevel: false, caseFirst: 'off', strength: 3, numericOrdering: \
             false, alternate: 'non-ignorable', maxVariable: 'punct', normalization: false, \
             backwards: false, version: '57.1'}",
        ),
        (
            "{locale: 'fr_CA', version: '57.1'}",
            "{locale: 'fr_CA', caseLevel: false, caseFirst: 'off', strength: 3, numericOrdering: \
             false, alternate: 'non-ignorable', maxVariable: 'punct', normalization: false, \
             backwards: true, version: '57.1'}",
        ),
        (
            "{locale: 'da'}",
            "{locale: 'da', caseLevel: false, caseFirst: 'upper', strength: 3, numericOrdering: \
             false, alternate: 'non-ignorable', maxVariable: 'punct', normalization: false, \
             backwards: false, version: '57.1'}",
        ),
        (
            "{locale: 'th', strength: NumberLong(2), version: null}",
            "{locale: 'th', caseLevel: false, caseFirst: 'off', strength: 2, numericOrdering: \
             false, alternate: 'shifted', maxVariable: 'punct', normalization: true, backwards: \
             false, version: '57.1'}",
        ),
        (
            "{strength: 1.9, locale: 'de@collation=phonebook', caseLevel: true, caseFirst: \
             'lower', numericOrdering: true, alternate: 'shifted', maxVariable: 'space', \
             normalization: true}",
            "{locale: 'de@collation=phonebook', caseLevel: true, caseFirst: 'lower', strength: 1, \
             numericOrdering: true, alternate: 'shifted', maxVariable: 'space', normalization: \
             true, backwards: false, version: '57.1'}",
        ),
    ] {
        assert_eq!(collator(spec).spec(), Some(&*json(resolved)), "{spec}");
    }
    assert!(collator("{locale: 'simple'}").is_binary());
    assert!(collator("{locale: 'simple', strength: 2}").is_binary());
}

#[test]
fn wrong_specifications_are_refused() {
    for (spec, code, message) in [
        (
            "{}",
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        ),
        (
            "{blah: 1}",
            40415,
            "BSON field 'collation.blah' is an unknown field.",
        ),
        (
            "{locale: 'en', locale: 'en'}",
            40413,
            "BSON field 'collation.locale' is a duplicate field",
        ),
        (
            "{locale: 5}",
            14,
            "BSON field 'collation.locale' is the wrong type 'int', expected type 'string'",
        ),
        (
            "{locale: ''}",
            2,
            "Field 'locale' cannot be the empty string in: { locale: \"\" }",
        ),
        (
            "{locale: 'xx'}",
            2,
            "Field 'locale' is invalid in: { locale: \"xx\" }",
        ),
        (
            "{locale: 'en-us'}",
            2,
            "Field 'locale' is invalid in: { locale: \"en-us\" }. Did you mean 'en_US'?",
        ),
        (
            "{locale: 'de_CH'}",
            2,
            "Field 'locale' is invalid in: { locale: \"de_CH\" }. Did you mean 'de'?",
        ),
        (
            "{locale: 'zh_hant_TW'}",
            2,
            "Field 'locale' is invalid in: { locale: \"zh_hant_TW\" }. Did you mean 'zh_Hant'?",
        ),
        (
            "{locale: 'en_US@colNumeric=yes'}",
            2,
            "Field 'locale' is invalid in: { locale: \"en_US@colNumeric=yes\" }. Did you mean \
             'en_US'?",
        ),
        (
            "{locale: 'en@collation=phonebook'}",
            2,
            "Field 'locale' is invalid in: { locale: \"en@collation=phonebook\" }. Did you mean \
             'en'?",
        ),
        (
            "{locale: 'de@collation=search'}",
            238,
            "The locale 'de@collation=search' is not supported by this server",
        ),
        (
            "{locale: 'en', caseLevel: 1}",
            14,
            "BSON field 'collation.caseLevel' is the wrong type 'int', expected type 'bool'",
        ),
        (
            "{locale: 'en', caseFirst: 'Upper'}",
            2,
            "Enumeration value 'Upper' for field 'collation.caseFirst' is not a valid value.",
        ),
        (
            "{locale: 'en', alternate: 'none'}",
            2,
            "Enumeration value 'none' for field 'collation.alternate' is not a valid value.",
        ),
        (
            "{locale: 'en', maxVariable: 3}",
            14,
            "BSON field 'collation.maxVariable' is the wrong type 'int', expected type 'string'",
        ),
        (
            "{locale: 'en', backwards: 1}",
            14,
            "Field 'backwards' should be a boolean value, but found: int",
        ),
        (
            "{locale: 'en', strength: 0}",
            2,
            "Enumeration value '0' for field 'collation.strength' is not a valid value.",
        ),
        (
            "{locale: 'en', strength: 6}",
            51024,
            "BSON field 'strength' value must be <= 5, actual value '6'",
        ),
        (
            "{locale: 'en', strength: -1}",
            51024,
            "BSON field 'strength' value must be >= 0, actual value '-1'",
        ),
        (
            "{locale: 'en', strength: 'x'}",
            14,
            "BSON field 'collation.strength' is the wrong type 'string', expected types '[long, \
             int, decimal, double]'",
        ),
        (
            "{locale: 'en', strength: 1, backwards: true}",
            2,
            "'backwards' is invalid with 'strength' of 1 in: { locale: \"en\", strength: 1, \
             backwards: true }",
        ),
        (
            "{locale: 'da', strength: 2}",
            2,
            "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: \
             { locale: \"da\", strength: 2 }",
        ),
        (
            "{locale: 'en', version: '58.0'}",
            161,
            "Requested collation version 58.0 but the only available collator version was 57.1. \
             Requested collation spec: { locale: \"en\", version: \"58.0\" }",
        ),
    ] {
        let error = parse(&json(spec)).unwrap_err();
        assert_eq!(
            (error.code().code(), error.message()),
            (code, message),
            "{spec}"
        );
    }
    let error = parse_in("create.collation", &json("{}")).unwrap_err();
    assert!(error.message().contains("'create.collation.locale'"));
}

#[test]
fn every_locale_and_variant_loads() {
    for locale in locales::LOCALES {
        let variants =
            (locale.variants.iter()).map(|(name, _)| format!("{}@collation={name}", locale.id));
        for id in variants.chain([locale.id.to_owned()]) {
            let collator = parse(&frond_bson::doc! {"locale": id.as_str()}).unwrap();
            let spec = collator.spec().unwrap();
            assert_eq!(spec.get_str("locale"), Some(id.as_str()));
        }
    }
    let mut ids: Vec<&str> = locales::LOCALES.iter().map(|locale| locale.id).collect();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

/// `<` and `=` between the strings.
fn check_order(spec: &str, expected: &[&str]) {
    let collator = collator(spec);
    let mut last: Option<&str> = None;
    for group in expected {
        for (at, text) in group.split('=').enumerate() {
            if let Some(last) = last {
                let order = collator.compare(&Value::String(last), &Value::String(text));
                let wanted = if at == 0 {
                    Ordering::Less
                } else {
                    Ordering::Equal
                };
                assert_eq!(order, wanted, "{spec}: {last} {text}");
            }
            last = Some(text);
        }
    }
}

#[test]
fn options_change_the_order() {
    for (spec, expected) in [
        ("{locale: 'en'}", &["a", "A", "á", "b", "B", "c"][..]),
        ("{locale: 'en', strength: 1}", &["a=A=á", "b=B"]),
        ("{locale: 'en', strength: 2}", &["a=A", "á=Á", "b"]),
        (
            "{locale: 'en', strength: 1, caseLevel: true}",
            &["a=á", "A", "b"],
        ),
        ("{locale: 'en', caseFirst: 'upper'}", &["A", "a", "B", "b"]),
        (
            "{locale: 'en', strength: 1, caseLevel: true, caseFirst: 'upper'}",
            &["A=Á", "a", "B"],
        ),
        ("{locale: 'en'}", &["1", "10", "2"]),
        (
            "{locale: 'en', numericOrdering: true}",
            &["1", "2", "10", "100"],
        ),
        ("{locale: 'en'}", &["a b", "a-b", "ab"]),
        (
            "{locale: 'en', alternate: 'shifted'}",
            &["a b=a-b=ab", "ac"],
        ),
        (
            "{locale: 'en', alternate: 'shifted', strength: 4}",
            &["a b", "a-b", "ab", "ac"],
        ),
        (
            "{locale: 'en', alternate: 'shifted', maxVariable: 'space'}",
            &["a-b", "a b=ab", "ac"],
        ),
        ("{locale: 'en', strength: 3}", &["e\u{301}=é"]),
        ("{locale: 'en', strength: 3}", &["ab=a\u{1}b"]),
        ("{locale: 'en', strength: 5}", &["a\u{1}b", "ab"]),
        ("{locale: 'fr'}", &["cote", "coté", "côte", "côté"]),
        ("{locale: 'fr_CA'}", &["cote", "côte", "coté", "côté"]),
        (
            "{locale: 'fr', backwards: true}",
            &["cote", "côte", "coté", "côté"],
        ),
        (
            "{locale: 'cs', backwards: true}",
            &["cote", "côte", "coté", "côté"],
        ),
        (
            "{locale: 'fr_CA', backwards: false}",
            &["cote", "coté", "côte", "côté"],
        ),
        ("{locale: 'de'}", &["Ad", "Äd", "Af"]),
        ("{locale: 'de@collation=phonebook'}", &["Ad", "Äd", "Af"]),
        (
            "{locale: 'de@collation=phonebook', strength: 1}",
            &["Ad", "Ae=Ä", "Af"],
        ),
        ("{locale: 'sv'}", &["z", "å", "ä", "ö"]),
        ("{locale: 'da'}", &["A", "a", "z", "Æ", "ø", "å", "aa"]),
        ("{locale: 'es'}", &["ch", "cz", "d"]),
        ("{locale: 'es@collation=traditional'}", &["cz", "ch", "d"]),
        ("{locale: 'ja', strength: 3}", &["あ=ア", "い"]),
        ("{locale: 'zh'}", &["阿", "北", "中"]),
        ("{locale: 'tr'}", &["h", "ı", "i"]),
        ("{locale: 'root'}", &["a", "b"]),
    ] {
        check_order(spec, expected);
    }
}

/// Text of pieces that meet the rules of many languages.
fn random_text(rng: &mut SmallRng) -> String {
    const PIECES: &[&str] = &[
        "a",
        "A",
        "á",
        "à",
        "e\u{301}",
        "é",
        "ä",
        "ß",
        "ss",
        "æ",
        "ch",
        "ll",
        "aa",
        "å",
        "i",
        "ı",
        "İ",
        "\u{307}",
        "\u{323}",
        "z",
        "0",
        "1",
        "9",
        "10",
        "007",
        "٣",
        " ",
        "-",
        "_",
        "\t",
        "$",
        "€",
        "\0",
        "\u{1}",
        "\u{ad}",
        "中",
        "文",
        "あ",
        "ア",
        "ｱ",
        "ー",
        "한",
        "ᄒ",
        "ก",
        "เ",
        "ไก",
        "ș",
        "😀",
        "\u{10ffff}",
        "\u{fffe}",
        "\u{ffff}",
        "א",
        "ְ",
        "ب",
        "ّ",
        "क",
        "्",
        "ष",
    ];
    let mut text = String::new();
    for _ in 0..rng.random_range(0..7) {
        let at = rng.random_range(0..PIECES.len());
        text.push_str(PIECES.get(at).copied().unwrap_or_default());
    }
    text
}

fn random_spec(rng: &mut SmallRng) -> DocBuf {
    let mut pick = |from: &[&'static str]| {
        let at = rng.random_range(0..from.len());
        from.get(at).copied().unwrap_or_default()
    };
    let locale = pick(&[
        "en",
        "de",
        "fr_CA",
        "da",
        "ja",
        "zh",
        "ko",
        "th",
        "vi",
        "lt",
        "tr",
        "hi",
        "ar",
        "cs",
        "es@collation=traditional",
        "ee",
        "root",
        "he",
        "my",
    ]);
    let case_first = pick(&["off", "upper", "lower"]);
    let alternate = pick(&["shifted", "non-ignorable"]);
    let max_variable = pick(&["punct", "space"]);
    let strength = rng.random_range(1..=5);
    let case_level = rng.random();
    let effective = case_level || strength > 2;
    let backwards = strength > 1 && rng.random();
    frond_bson::doc! {
        "locale": locale,
        "strength": strength,
        "caseLevel": case_level,
        "caseFirst": if effective { case_first } else { "off" },
        "numericOrdering": rng.random::<bool>(),
        "alternate": alternate,
        "maxVariable": max_variable,
        "backwards": backwards,
    }
}

#[test]
fn keys_order_as_strings_compare() {
    let mut rng = SmallRng::seed_from_u64(7);
    for _ in 0..300 {
        let spec = random_spec(&mut rng);
        let collator = parse(&spec).unwrap();
        let texts: Vec<String> = (0..24).map(|_| random_text(&mut rng)).collect();
        let keys: Vec<Vec<u8>> = (texts.iter())
            .map(|text| {
                let mut key = Vec::new();
                collator.encode(&Value::String(text), &mut key);
                key
            })
            .collect();
        for (a, x) in texts.iter().zip(&keys) {
            for (b, y) in texts.iter().zip(&keys) {
                assert_eq!(
                    x.cmp(y),
                    collator.compare(&Value::String(a), &Value::String(b)),
                    "{spec:?}: {a:?} {b:?}"
                );
            }
        }
    }
}

/// Indexes hold these bytes. If this fails after an update of the library, indexes with a collation
/// have to be rebuilt: that is a change of format.
#[test]
fn keys_stay_as_they_are() {
    for (spec, text, key) in [
        ("{locale: 'en'}", "abc", "3c2b2d2f01020701020700"),
        ("{locale: 'en', strength: 1}", "Ábc 10", "3c2b2d2f04141200"),
        (
            "{locale: 'en', numericOrdering: true}",
            "a10",
            "3c2b100c01020601020600",
        ),
        (
            "{locale: 'fr_CA'}",
            "côté",
            "3c2f475133010288448e0601020a00",
        ),
        (
            "{locale: 'de@collation=phonebook', strength: 5}",
            "Äß",
            "3c2b334f4f0102454870050102dcc6e0d30102010272d4c12e8900",
        ),
        ("{locale: 'zh'}", "中文", "3c9c4c8a6701020601020600"),
        (
            "{locale: 'ja', strength: 4}",
            "カー",
            "3c5f1206010206010205020102fdfd00",
        ),
    ] {
        let mut bytes = Vec::new();
        collator(spec).encode(&Value::String(text), &mut bytes);
        let hex = frond_bson::hex(&bytes);
        assert_eq!(hex, key, "{spec} {text}");
    }
}

/// Issue 13: what is not UTF-8 is U+FFFD to the rules of a language, in comparisons and in keys.
#[test]
fn text_that_is_not_utf8_has_replacement_characters() {
    let collator = collator("{locale: 'fr', strength: 1}");
    let text = |bytes: &[u8]| OwnedValue::string(bytes.to_vec());
    let key = |value: &OwnedValue| {
        let mut key = Vec::new();
        collator.encode(&value.as_value(), &mut key);
        key
    };
    for (a, b, expected) in [
        (&b"Caf\xE9"[..], &b"caf\xE8"[..], Ordering::Equal),
        (b"Caf\xE9", "caf\u{fffd}".as_bytes(), Ordering::Equal),
        (b"Caf\xE9", b"Caf", Ordering::Greater),
        (b"Caf\xE9", b"D", Ordering::Less),
        (b"\xE9a", b"\xE9b", Ordering::Less),
    ] {
        let (a, b) = (text(a), text(b));
        assert_eq!(collator.compare(&a.as_value(), &b.as_value()), expected);
        assert_eq!(key(&a).cmp(&key(&b)), expected);
    }
}
