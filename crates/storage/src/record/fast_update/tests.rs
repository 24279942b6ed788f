#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Timestamp, extjson};

use super::*;

/// Reads text in which names need no quotes.
fn json(text: &str) -> DocBuf {
    let text = text.replace('\'', "\"");
    let mut quoted = String::new();
    let mut starts = false;
    let mut rest = text.as_str();
    while let Some(next) = rest.chars().next() {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
        match end {
            Some(end) if starts && end > 0 && rest[end..].starts_with(':') => {
                quoted.push_str(&format!("\"{}\"", &rest[..end]));
                rest = &rest[end..];
                starts = false;
            }
            _ => {
                starts = matches!(next, '{' | ',') || (starts && next == ' ');
                quoted.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    extjson::parse(&quoted).unwrap()
}

fn encode(update: &str, upsert: Option<i32>) -> Vec<u8> {
    let update = json(update);
    assert!(is_expressible(&update), "{update:?}");
    let id = upsert.map(Value::Int32);
    let timestamp = Timestamp {
        time: 7,
        increment: 1,
    };
    Encoder::default()
        .encode(&update, id.as_ref(), 5, timestamp)
        .to_vec()
}

fn applied(base: Option<&DocBuf>, messages: &[Vec<u8>]) -> Option<Vec<u8>> {
    let base = base.map(|base| base.as_bytes());
    apply(base, messages.iter().map(Vec::as_slice), None).unwrap()
}

/// The number of steps of a message.
fn steps(message: &[u8]) -> usize {
    let mut parts = Vec::new();
    read(message, &mut parts).unwrap();
    let steps = parts.iter().map(|part| match part {
        Part::Group(group) => group.steps.len(),
        Part::ToParts(_) => 1,
    });
    steps.sum()
}

#[test]
fn updates_are_folded_without_another_effect() {
    // Updates, and the number of steps that are left of them.
    let cases: &[(&[&str], usize)] = &[
        (&["{$inc: {n: 1}}", "{$inc: {n: 1}}", "{$inc: {n: 1}}"], 1),
        (&["{$inc: {n: 1}}", "{$inc: {n: 2}}", "{$inc: {n: 2}}"], 2),
        (&["{$set: {s: 'abc'}}", "{$set: {s: 'ab'}}"], 1),
        (&["{$set: {s: 'ab'}}", "{$set: {s: 'abc'}}"], 2),
        (
            &[
                "{$set: {s: 'ab'}}",
                "{$set: {s: 'abc'}}",
                "{$set: {s: 'x'}}",
            ],
            1,
        ),
        (&["{$max: {n: 3}}", "{$max: {n: 7}}", "{$max: {n: 5}}"], 1),
        (&["{$min: {n: 3}}", "{$min: {n: 7}}", "{$min: {n: 1}}"], 1),
        (&["{$max: {n: 3}}", "{$max: {n: 'a'}}"], 2),
        (&["{$unset: {n: 1}}", "{$unset: {n: ''}}"], 1),
        (&["{$mul: {n: 2}}", "{$mul: {n: 3}}", "{$mul: {n: 3}}"], 2),
        (&["{$bit: {n: {xor: 5}}}", "{$bit: {n: {xor: 5}}}"], 1),
        (
            &[
                "{$set: {s: 1}, $setOnInsert: {t: 1}}",
                "{$set: {s: 2}, $setOnInsert: {t: 1}}",
                "{$set: {s: 3}, $setOnInsert: {t: 2}}",
            ],
            2,
        ),
        (&["{$set: {s: 1}}", "{$inc: {s: 1}}", "{$set: {s: 1}}"], 3),
        (&["{$currentDate: {d: true}}", "{$set: {d: 3}}"], 1),
        (
            &[
                "{$currentDate: {d: {$type: 'timestamp'}}}",
                "{$currentDate: {d: true}}",
            ],
            1,
        ),
        (&["{$set: {}}", "{$inc: {}}"], 1),
        (
            &[
                "{$inc: {'a.b': 1, n: 2}, $set: {'x.y': 1}}",
                "{$inc: {'a.b': 1, n: 3}, $set: {'x.y': 2}}",
            ],
            2,
        ),
    ];
    let bases = [
        None,
        Some("{_id: 1}"),
        Some("{_id: 1, n: 5, s: 'abcdef', a: {b: 1}}"),
        Some("{_id: 1, n: 'text', a: 7}"),
        Some("{_id: 1, n: {$numberLong: '9223372036854775806'}, s: 1}"),
    ];
    for (updates, left) in cases {
        for upsert in [None, Some(1)] {
            let messages: Vec<_> = updates.iter().map(|one| encode(one, upsert)).collect();
            let all = combine(messages.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(steps(&all), *left, "{updates:?}");
            let halves = messages.split_at(1);
            let late = combine(halves.1.iter().map(Vec::as_slice)).unwrap();
            let again = combine([messages[0].as_slice(), &late].into_iter()).unwrap();
            assert_eq!(again, all, "{updates:?}");
            for base in bases {
                let base = base.map(json);
                let mut in_turn = base.clone();
                for message in &messages {
                    let next = applied(in_turn.as_ref(), std::slice::from_ref(message));
                    in_turn = next.map(DocBuf::from_vec_trusted);
                }
                let in_turn = in_turn.map(DocBuf::into_vec);
                assert_eq!(applied(base.as_ref(), &messages), in_turn);
                let combined = applied(base.as_ref(), std::slice::from_ref(&all));
                assert_eq!(combined, in_turn, "{updates:?} {base:?}");
            }
        }
    }
}

#[test]
fn messages_change_documents_as_updates_do() {
    for (base, update, upsert, expected) in [
        (None, "{$inc: {n: 1}}", None, None),
        (None, "{$inc: {n: 1}}", Some(4), Some("{_id: 4, n: 1}")),
        (
            None,
            "{$inc: {n: 1}, $set: {a: 2}, $setOnInsert: {'b.c': 3}}",
            Some(4),
            Some("{_id: 4, a: 2, b: {c: 3}, n: 1}"),
        ),
        (None, "{$set: {}}", Some(4), Some("{_id: 4}")),
        (
            Some("{_id: 4, n: 1}"),
            "{$inc: {n: 1}, $setOnInsert: {b: 3}}",
            Some(4),
            Some("{_id: 4, n: 2}"),
        ),
        (
            Some("{_id: 4, n: 'x', m: 1}"),
            "{$inc: {n: 1}, $set: {m: 2}}",
            Some(4),
            Some("{_id: 4, n: 'x', m: 1}"),
        ),
        (
            Some("{_id: 4}"),
            "{$currentDate: {d: true}}",
            None,
            Some("{_id: 4, d: {$date: {$numberLong: '5'}}}"),
        ),
        (
            Some("{_id: 4}"),
            "{$currentDate: {d: {$type: 'timestamp'}}}",
            None,
            Some("{_id: 4, d: {$timestamp: {t: 7, i: 1}}}"),
        ),
        (
            Some("{_id: 4, b: 12}"),
            "{$bit: {b: {and: 10, or: 1}}, $mul: {m: 4}, $min: {l: 3}, $unset: {u: 1}}",
            None,
            Some("{_id: 4, b: 9, l: 3, m: 0}"),
        ),
    ] {
        let base = base.map(json);
        let stats = FastUpdateStats::default();
        let message = encode(update, upsert);
        let bytes = base.as_ref().map(|base| base.as_bytes());
        let changed = apply(bytes, [&*message].into_iter(), Some(&stats)).unwrap();
        assert_eq!(
            changed.map(DocBuf::from_vec_trusted),
            expected.map(json),
            "{update}"
        );
        let fails = base.is_some_and(|base| base.get_str("n").is_some());
        assert_eq!(stats.errors(), u64::from(fails));
        assert_eq!(stats.unreported().is_some(), fails);
        assert!(stats.unreported().is_none());
    }
}

#[test]
fn only_some_updates_can_be_messages() {
    for (update, expected) in [
        ("{$set: {a: 1}, $unset: {b: 1}, $inc: {c: 1}}", true),
        ("{$mul: {a: 1}, $min: {b: 1}, $max: {c: 1}}", true),
        ("{$bit: {a: {or: 1}}, $setOnInsert: {b: 1}}", true),
        ("{$currentDate: {a: true}}", true),
        ("{$set: {'a.b.0': {$x: 1}}}", true),
        ("{$set: {_idx: 1}}", true),
        ("{$push: {a: 1}}", false),
        ("{$set: {a: 1}, $pull: {b: 1}}", false),
        ("{$rename: {a: 'b'}}", false),
        ("{$set: {_id: 1}}", false),
        ("{$set: {'_id.x': 1}}", false),
        ("{$set: {$ref: 1}}", false),
        ("{a: 1}", false),
        ("{}", false),
        ("{$set: {'a.$': 1}}", false),
        ("{$set: {'a.$[].b': 1}}", false),
        ("{$set: {'a.$[x]': 1}}", false),
    ] {
        assert_eq!(is_expressible(&json(update)), expected, "{update}");
    }
}

#[test]
fn damaged_messages_are_refused() {
    let whole = encode("{$inc: {n: 1}, $set: {'a.b': 'text'}}", Some(3));
    let base = json("{_id: 3, n: 1}");
    check(&whole).unwrap();
    for end in 0..whole.len() {
        let cut = &whole[..end];
        assert!(check(cut).is_err(), "{end}");
        assert!(apply(None, [cut].into_iter(), None).is_err());
        assert!(combine([&whole, cut].into_iter()).is_err());
    }
    let mut version = whole.clone();
    version[1] = 2;
    assert!(check(&version).is_err());
    for end in 1..base.len_bytes() {
        let cut = &base.as_bytes()[..end];
        assert!(apply(Some(cut), [&*whole].into_iter(), None).is_err());
    }
    // A huge number of operations or steps takes no memory.
    for message in [
        &[KIND, VERSION, 0, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
        &[KIND, VERSION, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[
            KIND, VERSION, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
        ],
    ] {
        assert!(check(message).is_err());
    }
}

#[test]
fn encoding_again_takes_another_id_and_time() {
    let mut encoder = Encoder::default();
    let timestamp = Timestamp {
        time: 7,
        increment: 1,
    };
    let update = json("{$inc: {n: 1}}");
    let first = encoder.encode(&update, Some(&Value::Int32(1)), 5, timestamp);
    assert_eq!(first, encode("{$inc: {n: 1}}", Some(1)));
    assert!(encoder.knows(&update));
    let second = encoder.encode(&update, Some(&Value::Int32(2)), 5, timestamp);
    assert_eq!(second, encode("{$inc: {n: 1}}", Some(2)));
    let dated = json("{$currentDate: {n: true}}");
    let one = encoder.encode(&dated, None, 5, timestamp).to_vec();
    assert_ne!(one, encoder.encode(&dated, None, 6, timestamp));
}
