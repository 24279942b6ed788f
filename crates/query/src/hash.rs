//! MongoDB's hash of a value: what hashed indexes hold and `$toHashedIndexKey` returns.
//!
//! It is made of the first eight bytes of an MD5 sum. Values that differ only in their numeric type have the same
//! hash, and so have numbers that differ only in their fraction: they are cut to 64-bit integers first.

use frond_bson::{Doc, Text, Value, canonical_class};
use md5::Context;

/// The seed of every hash.
const SEED: i32 = 0;

/// An MD5 sum in the making.
pub struct Md5(Context);

impl Default for Md5 {
    fn default() -> Md5 {
        Md5(Context::new())
    }
}

impl Md5 {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.consume(bytes);
    }

    /// The sum, in hexadecimal digits.
    pub fn hex(self) -> String {
        format!("{:x}", self.0.finalize())
    }
}

/// The hash of a value.
pub fn hash64(value: Value<'_>) -> i64 {
    let mut context = Context::new();
    context.consume(SEED.to_le_bytes());
    add(&mut context, value, None);
    let sum = context.finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&sum.0[..8]);
    i64::from_le_bytes(first)
}

/// The number that all types of one class share.
fn class(value: Value<'_>) -> i32 {
    match value {
        Value::MinKey => -1,
        Value::Undefined => 0,
        Value::Null => 5,
        Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal128(_) => 10,
        Value::String(_) | Value::Symbol(_) => 15,
        Value::Document(_) => 20,
        Value::Array(_) => 25,
        Value::Binary { .. } => 30,
        Value::ObjectId(_) => 35,
        Value::Bool(_) => 40,
        Value::DateTime(_) => 45,
        Value::Timestamp(_) => 47,
        Value::Regex { .. } => 50,
        Value::DbPointer { .. } => 55,
        Value::JavaScript(_) => 60,
        Value::JavaScriptWithScope { .. } => 65,
        Value::MaxKey => 127,
        Value::NotUtf8(value) => i32::from(canonical_class(value.type_code())),
    }
}

/// Adds a value, with its name if it lies inside of a document. Contents are those of BSON.
fn add(context: &mut Context, value: Value<'_>, name: Option<&str>) {
    context.consume(class(value).to_le_bytes());
    if let Some(name) = name {
        terminated(context, name.as_bytes());
    }
    if let Some(text) = value.text() {
        return add_text(context, text);
    }
    match value {
        Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal128(_) => {
            context.consume(whole(value).to_le_bytes());
        }
        Value::Document(doc) | Value::Array(doc) => add_all(context, doc),
        Value::Binary { subtype, bytes } => {
            context.consume(length(bytes.len()));
            context.consume([subtype]);
            context.consume(bytes);
        }
        Value::ObjectId(id) => context.consume(id.0),
        Value::Bool(bool) => context.consume([u8::from(bool)]),
        Value::DateTime(ms) => context.consume(ms.to_le_bytes()),
        Value::Timestamp(time) => context.consume(time.to_u64().to_le_bytes()),
        // Without contents, or with text.
        _ => {}
    }
}

fn add_text(context: &mut Context, text: Text<'_>) {
    match text {
        Text::Plain(text) => counted(context, text),
        Text::Scoped { code, scope } => {
            terminated(context, code);
            add_all(context, scope);
        }
        Text::Regex { pattern, options } => {
            terminated(context, pattern);
            terminated(context, options);
        }
        Text::Pointer { ns, id } => {
            counted(context, ns);
            context.consume(id.0);
        }
    }
}

/// Adds what is inside of a document, and its end.
fn add_all(context: &mut Context, doc: &Doc) {
    for (name, value) in doc.iter() {
        add(context, value, Some(name));
    }
    context.consume(0_i32.to_le_bytes());
}

/// A text with the byte that ends it.
fn terminated(context: &mut Context, text: &[u8]) {
    context.consume(text);
    context.consume([0]);
}

/// A text with its length, as BSON stores it.
fn counted(context: &mut Context, text: &[u8]) {
    context.consume(length(text.len() + 1));
    terminated(context, text);
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}

/// A number without its fraction, within the range of 64 bits; 0 for NaN.
fn whole(number: Value<'_>) -> i64 {
    /// 2 to the power of 63: as a double the first number beyond the range.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match number {
        Value::Int32(number) => i64::from(number),
        Value::Int64(number) => number,
        // MongoDB keeps what an old version made of this one number.
        Value::Double(BEYOND) => i64::MIN,
        // The conversion cuts the fraction, stays within the range and turns NaN into 0.
        Value::Double(number) => number as i64,
        Value::Decimal128(number) if number.is_nan() => 0,
        Value::Decimal128(number) => match number.to_i64_truncated() {
            Some(number) => number,
            None if number.is_negative() => i64::MIN,
            None => i64::MAX,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{ArrayBuf, doc};

    #[test]
    fn hashes_are_those_of_mongodb() {
        let array: ArrayBuf = ["bar", "baz", "qux"].into_iter().collect();
        let nested = doc! {"a": 1, "b": {"c": 2.5}};
        for (value, hash) in [
            (Value::Int32(42), -944_302_157_085_130_861),
            (Value::Int64(42), -944_302_157_085_130_861),
            (Value::Double(42.123), -944_302_157_085_130_861),
        ] {
            assert_eq!(hash64(value), hash, "{value:?}");
        }
        let same = |a: Value<'_>, b: Value<'_>| assert_eq!(hash64(a), hash64(b), "{a:?} {b:?}");
        same(Value::String("x"), Value::Symbol("x"));
        same(
            Value::Document(&nested),
            Value::Document(&doc! {"a": 1i64, "b": {"c": 2}}),
        );
        same(Value::Double(f64::NAN), Value::Int32(0));
        same(Value::Double(f64::INFINITY), Value::Int64(i64::MAX));
        same(
            Value::Double(9_223_372_036_854_775_808.0),
            Value::Int64(i64::MIN),
        );
        assert_ne!(hash64(Value::Null), hash64(Value::Undefined));
        assert_ne!(
            hash64(Value::Array(&array)),
            hash64(Value::Document(&array))
        );
    }
}
