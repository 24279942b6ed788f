//! Random values of all types, with a liking for neighbours and edges.
#![allow(dead_code)]

use frond_bson::{ArrayBuf, Decimal128, Doc, DocBuf, ObjectId, OwnedValue, Text, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

pub fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn one<T: Clone>(rng: &mut StdRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())].clone()
}

fn bits_of_any_size(rng: &mut StdRng) -> u64 {
    rng.next_u64() >> rng.random_range(0..64)
}

fn decimal(text: &str) -> OwnedValue {
    OwnedValue::Decimal128(text.parse().unwrap_or(Decimal128::ZERO))
}

/// A number that may be anywhere.
pub fn number(rng: &mut StdRng) -> OwnedValue {
    match rng.random_range(0..14) {
        0 => OwnedValue::Int32(rng.next_u32() as i32 >> rng.random_range(0..32)),
        1 => OwnedValue::Int64(bits_of_any_size(rng) as i64),
        2 => OwnedValue::Int64((bits_of_any_size(rng) as i64).wrapping_neg()),
        3 => OwnedValue::Double(f64::from_bits(rng.next_u64())),
        4 => OwnedValue::Double(rng.random_range(-1000..1000) as f64 / 4.0),
        5 => OwnedValue::Double(rng.random_range(-1000..1000) as f64 / 10.0),
        6 => {
            let powers = [
                0, 1, 7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 54, 62, 63, 64, 100, 1023, -1, -5,
                -1022,
            ];
            let near = 2f64.powi(one(rng, &powers));
            let near = one(rng, &[near, near.next_up(), near.next_down()]);
            OwnedValue::Double(if rng.random() { near } else { -near })
        }
        7 => one(
            rng,
            &[
                OwnedValue::Double(0.0),
                OwnedValue::Double(-0.0),
                OwnedValue::Double(f64::NAN),
                OwnedValue::Double(f64::from_bits(0xFFF8_0000_0000_0001)),
                OwnedValue::Double(f64::INFINITY),
                OwnedValue::Double(f64::NEG_INFINITY),
                OwnedValue::Double(f64::MAX),
                OwnedValue::Double(f64::MIN),
                OwnedValue::Double(5e-324),
                OwnedValue::Int32(0),
                OwnedValue::Int32(i32::MAX),
                OwnedValue::Int32(i32::MIN),
                OwnedValue::Int64(0),
                OwnedValue::Int64(i64::MAX),
                OwnedValue::Int64(i64::MIN),
                OwnedValue::Int64(i64::MIN + 1),
            ],
        ),
        8 => one(
            rng,
            &[
                "0",
                "-0",
                "0.00",
                "0E+6111",
                "-0E-6176",
                "NaN",
                "Infinity",
                "-Infinity",
                "1E-6176",
                "1E+6111",
                "9.999999999999999999999999999999999E+6144",
                "-1E-6176",
                "1E308",
                "2E308",
                "1E-324",
                "2E-324",
                "3E-324",
                "9007199254740993",
                "9223372036854775807",
                "9223372036854775808",
                "9223372036854775807.5",
                "0.1",
                "0.10",
                "1.0",
                "1.5",
                "0.9999999999999999999999999999999999",
                "1E22",
                "1E23",
                "0.5",
                "1E6",
            ],
        )
        .parse()
        .map_or(OwnedValue::Null, OwnedValue::Decimal128),
        9 => {
            // Any bits: NaNs with payload, coefficients that are too large, …
            let mut bytes = [0; 16];
            rng.fill_bytes(&mut bytes);
            bytes[15] = one(rng, &[bytes[15], 0x78, 0x7C, 0xFC, 0x6C, 0x30, 0xB0, 0x2F]);
            OwnedValue::Decimal128(Decimal128::from_bytes(bytes))
        }
        10 => {
            let scale = rng.random_range(-10..6);
            decimal(&format!("{}E{scale}", rng.random_range(-100_000..100_000)))
        }
        11 => {
            let high = bits_of_any_size(rng);
            let scale = rng.random_range(-36..10);
            decimal(&format!(
                "{high}{}E{scale}",
                bits_of_any_size(rng) % 10_000_000_000
            ))
        }
        12 => decimal(&format!(
            "-{}E{}",
            bits_of_any_size(rng),
            rng.random_range(-400..400)
        )),
        _ => OwnedValue::Int32(rng.random_range(-3..300)),
    }
}

/// A number near `base`, often equal, maybe of another type.
pub fn near(rng: &mut StdRng, base: &OwnedValue) -> OwnedValue {
    let value = base.as_value();
    let double = value.as_f64().unwrap_or(0.0);
    match rng.random_range(0..11) {
        0 => OwnedValue::Double(double),
        1 => OwnedValue::Double(double.next_up()),
        2 => OwnedValue::Double(double.next_down()),
        3 => OwnedValue::Int64(double as i64),
        4 => OwnedValue::Int64((double as i64).saturating_add(1)),
        // The double's digits: shortest, cut to as many as a decimal holds, and too few.
        5 => decimal(&format!("{double:e}")),
        6 => decimal(&format!("{double:.33e}")),
        7 => decimal(&format!("{double:.16e}")),
        8 => match base {
            OwnedValue::Decimal128(d) => decimal(&format!("{d}").replacen('1', "2", 1)),
            _ => decimal(&frond_bson::extjson::value_to_relaxed(&value)),
        },
        9 => match base {
            // The next coefficient, up or down.
            OwnedValue::Decimal128(d) => {
                let bits = u128::from_le_bytes(d.to_bytes());
                let moved = if rng.random() {
                    bits.wrapping_add(1)
                } else {
                    bits.wrapping_sub(1)
                };
                OwnedValue::Decimal128(Decimal128::from_bytes(moved.to_le_bytes()))
            }
            OwnedValue::Int64(i) => OwnedValue::Decimal128(Decimal128::from(*i)),
            OwnedValue::Int32(i) => OwnedValue::Decimal128(Decimal128::from(*i)),
            _ => decimal(&format!("{:.20e}", double.next_up())),
        },
        _ => base.clone(),
    }
}

fn text(rng: &mut StdRng) -> String {
    let letters = [
        '\0',
        '\u{1}',
        '\u{2}',
        'a',
        'b',
        'z',
        '\u{7f}',
        'é',
        '\u{ffff}',
        '\u{10ffff}',
    ];
    (0..rng.random_range(0..5))
        .map(|_| one(rng, &letters))
        .collect()
}

fn name(rng: &mut StdRng) -> String {
    text(rng).replace('\0', "c")
}

/// The value with text that is not UTF-8 where it has an `é`; another value as it is.
pub fn soiled(value: &OwnedValue) -> OwnedValue {
    let value = value.as_value();
    let Some(text) = value.text() else {
        return value.to_owned();
    };
    let text_bytes = match text {
        Text::Plain(text) => 4..4 + text.len(),
        Text::Regex { pattern, options } => 0..pattern.len() + options.len() + 1,
        Text::Pointer { ns, .. } => 4..4 + ns.len(),
        Text::Scoped { code, .. } => 8..8 + code.len(),
    };
    let mut bytes = Vec::new();
    value.write_to(&mut bytes);
    for byte in bytes.get_mut(text_bytes).into_iter().flatten() {
        if *byte == 0xC3 {
            *byte = 0xFF;
        }
    }
    let mut doc = (bytes.len() as u32 + 7).to_le_bytes().to_vec();
    doc.extend_from_slice(&[value.type_code(), 0]);
    doc.extend_from_slice(&bytes);
    doc.push(0);
    let doc = Doc::validate(&doc).expect("only text differs");
    doc.get("").expect("the value is there").to_owned()
}

/// Nested documents, arrays and scopes up to `depth` levels; some text is not UTF-8.
pub fn value(rng: &mut StdRng, depth: usize) -> OwnedValue {
    let value = clean_value(rng, depth);
    match rng.random_range(0..4) {
        0 => soiled(&value),
        _ => value,
    }
}

fn clean_value(rng: &mut StdRng, depth: usize) -> OwnedValue {
    let kinds = if depth == 0 { 17 } else { 20 };
    match rng.random_range(0..kinds) {
        0 => OwnedValue::MinKey,
        1 => OwnedValue::MaxKey,
        2 => OwnedValue::Undefined,
        3 => OwnedValue::Null,
        4..=6 => number(rng),
        7 => OwnedValue::String(text(rng)),
        8 => OwnedValue::Symbol(text(rng)),
        9 => {
            let len = one(rng, &[0, 1, 2, 3, 254, 255, 256]);
            let bytes = (0..len).map(|_| one(rng, &[0, 1, 0xFF])).collect();
            OwnedValue::Binary {
                subtype: one(rng, &[0, 2, 4, 0x80, 0xFF]),
                bytes,
            }
        }
        10 => OwnedValue::ObjectId(ObjectId(std::array::from_fn(|_| one(rng, &[0, 1, 0xFF])))),
        11 => OwnedValue::Bool(rng.random()),
        12 => {
            let ms = bits_of_any_size(rng) as i64;
            OwnedValue::DateTime(one(rng, &[ms, ms.wrapping_neg(), 0, i64::MIN, i64::MAX]))
        }
        13 => OwnedValue::Timestamp(Timestamp::from_u64(bits_of_any_size(rng))),
        14 => OwnedValue::Regex {
            pattern: name(rng),
            options: name(rng),
        },
        15 => {
            let mut ns = text(rng);
            if rng.random_range(0..10) == 0 {
                ns = "n".repeat(rng.random_range(250..260));
            }
            OwnedValue::DbPointer {
                ns,
                id: ObjectId(std::array::from_fn(|_| one(rng, &[0, 1]))),
            }
        }
        16 => OwnedValue::JavaScript(text(rng)),
        17 => OwnedValue::JavaScriptWithScope {
            code: text(rng),
            scope: document(rng, depth),
        },
        18 => OwnedValue::Document(document(rng, depth)),
        _ => array(rng, depth),
    }
}

fn document(rng: &mut StdRng, depth: usize) -> DocBuf {
    let mut doc = DocBuf::new();
    for _ in 0..rng.random_range(0..4) {
        doc.push(&name(rng), &value(rng, depth - 1));
    }
    doc
}

fn array(rng: &mut StdRng, depth: usize) -> OwnedValue {
    let values: Vec<_> = (0..rng.random_range(0..4))
        .map(|_| value(rng, depth - 1))
        .collect();
    if rng.random_range(0..8) == 0 {
        // An array with names that do not count up, as a careless driver may send.
        let mut doc = DocBuf::new();
        for v in &values {
            doc.push(&name(rng), v);
        }
        return OwnedValue::Array(doc);
    }
    values.iter().collect::<ArrayBuf>().into()
}

/// A value that differs from `base` in one place, if at all.
pub fn changed(rng: &mut StdRng, base: &OwnedValue, depth: usize) -> OwnedValue {
    match base {
        _ if base.as_value().is_number() => near(rng, base),
        OwnedValue::Document(d) | OwnedValue::Array(d) if depth > 0 => {
            let at = rng.random_range(0..d.count().max(1));
            let mut doc = DocBuf::new();
            for (i, (key, v)) in d.iter().enumerate() {
                if i != at {
                    doc.push(key, v);
                    continue;
                }
                match rng.random_range(0..5) {
                    0 => {}
                    1 => doc.push(&name(rng), v),
                    2 => doc.push(key, &value(rng, depth - 1)),
                    _ => doc.push(key, &changed(rng, &OwnedValue::from(v), depth - 1)),
                }
            }
            match base {
                OwnedValue::Document(_) => OwnedValue::Document(doc),
                _ => OwnedValue::Array(doc),
            }
        }
        OwnedValue::String(s) => one(
            rng,
            &[
                OwnedValue::Symbol(s.clone()),
                OwnedValue::String(format!("{s}\0")),
                OwnedValue::String(format!("{s}\u{1}")),
                OwnedValue::JavaScript(s.clone()),
            ],
        ),
        _ if rng.random_range(0..3) == 0 => soiled(base),
        _ => base.clone(),
    }
}

/// A document with documents inside, `levels` deep, built in place.
pub fn nested(levels: usize) -> DocBuf {
    fn fill(doc: &mut DocBuf, levels: usize) {
        if levels > 0 {
            doc.push_doc("inner", |inner| fill(inner, levels - 1));
        }
    }
    let mut doc = DocBuf::new();
    fill(&mut doc, levels);
    doc
}
