//! From BSON to JavaScript.

use frond_bson::{Doc, Value as Bson, hex};
use rquickjs::{Array, Ctx, IntoJs, Null, Object, Result, Value};

use super::document::{Bytes, Document};
use super::types::Types;

/// A value, which lies in `bytes` if it is a document or an array.
pub fn value<'js>(
    ctx: &Ctx<'js>,
    value: Bson<'_>,
    bytes: &Bytes,
    types: Option<&Types<'js>>,
) -> Result<Value<'js>> {
    let new = |value: Value<'js>| Ok(value);
    match value {
        Bson::Double(number) => return new(Value::new_number(ctx.clone(), number)),
        Bson::Int32(number) => return new(Value::new_int(ctx.clone(), number)),
        Bson::Bool(is) => return new(Value::new_bool(ctx.clone(), is)),
        Bson::Null => return new(Value::new_null(ctx.clone())),
        Bson::Undefined => return new(Value::new_undefined(ctx.clone())),
        Bson::String(text) | Bson::Symbol(text) => return text.into_js(ctx),
        _ => {}
    }
    let of_engine;
    let types = match types {
        Some(types) => types,
        None => {
            of_engine = Types::get(ctx)?;
            &of_engine
        }
    };
    match value {
        Bson::Document(doc) => document(ctx, doc, bytes, types),
        Bson::Array(items) => {
            let array = Array::new(ctx.clone())?;
            for (at, item) in items.values().enumerate() {
                array.set(at, self::value(ctx, item, bytes, Some(types))?)?;
            }
            Ok(array.into_value())
        }
        Bson::Int64(number) => types.number_long(number),
        Bson::Decimal128(number) => types.object("NumberDecimal", number.to_string()),
        Bson::ObjectId(id) => types.object("ObjectId", id.to_string()),
        Bson::DateTime(ms) => types.new_date(ms),
        Bson::Binary { subtype, bytes } => {
            types.object("BinData", vec_of(ctx, subtype, hex(bytes))?)
        }
        Bson::Regex { pattern, options } => types.new_reg_exp(pattern, options),
        Bson::Timestamp(stamp) => {
            let parts = Array::new(ctx.clone())?;
            parts.set(0, f64::from(stamp.time))?;
            parts.set(1, f64::from(stamp.increment))?;
            types.object("Timestamp", parts)
        }
        Bson::DbPointer { ns, id } => {
            let parts = Array::new(ctx.clone())?;
            parts.set(0, ns)?;
            parts.set(1, types.object("ObjectId", id.to_string())?)?;
            types.object("DBPointer", parts)
        }
        Bson::JavaScript(code) => {
            let parts = Array::new(ctx.clone())?;
            parts.set(0, code)?;
            types.object("Code", parts)
        }
        Bson::JavaScriptWithScope { code, scope } => {
            let parts = Array::new(ctx.clone())?;
            parts.set(0, code)?;
            parts.set(1, document(ctx, scope, bytes, types)?)?;
            types.object("Code", parts)
        }
        Bson::MinKey => Ok(types.min_key.clone()),
        Bson::MaxKey => Ok(types.max_key.clone()),
        Bson::NotUtf8(_) => {
            let text = value.string_bytes().unwrap_or_default();
            String::from_utf8_lossy(text).as_ref().into_js(ctx)
        }
        _ => Null.into_js(ctx),
    }
}

fn vec_of<'js>(ctx: &Ctx<'js>, subtype: u8, text: String) -> Result<Array<'js>> {
    let parts = Array::new(ctx.clone())?;
    parts.set(0, i32::from(subtype))?;
    parts.set(1, text)?;
    Ok(parts)
}

/// A document that lies in `bytes`. A reference to a document is a `DBRef`.
fn document<'js>(
    ctx: &Ctx<'js>,
    doc: &Doc,
    bytes: &Bytes,
    types: &Types<'js>,
) -> Result<Value<'js>> {
    if doc.first().is_some_and(|(name, _)| name == "$ref") && doc.contains_key("$id") {
        let field = |name: &str| match doc.get(name) {
            Some(field) => value(ctx, field, bytes, Some(types)),
            None => Ok(Value::new_undefined(ctx.clone())),
        };
        let reference: Object = match (doc.get_str("$ref"), doc.count()) {
            (Some(_), 2 | 3) => {
                (types.reference).call((field("$ref")?, field("$id")?, field("$db")?))?
            }
            _ => Object::new(ctx.clone())?,
        };
        if doc.get_str("$ref").is_none() || doc.count() > 3 {
            for (name, field) in doc.iter() {
                reference.set(name, value(ctx, field, bytes, Some(types))?)?;
            }
        }
        return Ok(reference.into_value());
    }
    // The document lies in the bytes; its offset there is kept for later reads.
    let start = (doc.as_bytes().as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
    let inside = start
        .checked_add(doc.len_bytes())
        .is_some_and(|end| end <= bytes.len());
    let part = if inside {
        Document::part(bytes.clone(), start, doc.len_bytes())
    } else {
        Document::whole(doc.as_bytes().into())
    };
    Ok(part.object(types)?.into_value())
}
