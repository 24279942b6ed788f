//! From JavaScript to BSON.

use std::cell::Cell;
use std::rc::Rc;

use frond_bson::{
    Decimal128, DocBuf, MAX_DOCUMENT_BYTES, ObjectId, OwnedValue, RawElement, Timestamp,
    Value as Bson, tag, unhex,
};
use frond_error::{Error as Fault, ErrorCode};
use rquickjs::class::Class;
use rquickjs::object::Filter;
use rquickjs::{Atom, Ctx, Object, Value};

use super::document::{Document, Field};
use super::types::Types;

/// Objects may not nest deeper.
const DEPTH_MAX: usize = 150;

/// The most bytes of a result: the largest document, and some more around it.
const BYTES_MAX: usize = MAX_DOCUMENT_BYTES + 16 * 1024;

/// Why a value cannot be written.
#[derive(Debug)]
pub enum Error {
    /// The engine has thrown.
    Thrown(rquickjs::Error),
    /// The value has no place in BSON.
    Refused(Fault),
}

impl From<rquickjs::Error> for Error {
    fn from(error: rquickjs::Error) -> Error {
        Error::Thrown(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Refused(fault)
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Writes values of one engine.
pub struct Writer<'js> {
    types: Rc<Types<'js>>,
    /// Bytes that lie in other buffers: those of the values around the scope that is being written.
    around: Cell<usize>,
}

impl<'js> Writer<'js> {
    /// A writer for the engine that runs.
    pub fn new(ctx: &Ctx<'js>) -> Result<Writer<'js>> {
        Ok(Writer {
            types: Types::get(ctx)?,
            around: Cell::new(0),
        })
    }

    pub fn value(&self, value: Value<'js>) -> Result<OwnedValue> {
        if let Some(number) = value.as_number() {
            return Ok(OwnedValue::Double(number));
        }
        if let Some(object) = value.as_object()
            && let Some(doc) = super::document::unchanged(object)
        {
            check_bytes(doc.len_bytes())?;
            return Ok(OwnedValue::Document(doc));
        }
        let mut out = DocBuf::new();
        self.append(&mut out, "", value, None, 0)?;
        let written = out.first().map(|(_, value)| value.to_owned());
        Ok(written.unwrap_or(OwnedValue::Undefined))
    }

    /// Appends a field. `before` is what it was in the document that it was read from.
    pub fn append(
        &self,
        out: &mut DocBuf,
        name: &str,
        value: Value<'js>,
        before: Option<Bson<'_>>,
        depth: usize,
    ) -> Result<()> {
        if depth >= DEPTH_MAX {
            return Err(Fault::location(
                17279,
                format!(
                    "Exceeded depth limit of {DEPTH_MAX} when converting js object to BSON. Do you have a cycle?"
                ),
            )
            .into());
        }
        if name.contains('\0') {
            return Err(
                Fault::location(16985, "JavaScript property (name) contains a null char").into(),
            );
        }
        if let Some(number) = value.as_number() {
            // A number that was read as an integer and still is one keeps its type.
            let whole = number as i32;
            let is_int = matches!(before, Some(Bson::Int32(_))) && f64::from(whole) == number;
            if is_int {
                out.push(name, whole)
            } else {
                out.push(name, number)
            }
        } else if let Some(is) = value.as_bool() {
            out.push(name, is);
        } else if value.is_null() {
            out.push(name, Bson::Null);
        } else if value.is_undefined() {
            out.push(name, Bson::Undefined);
        } else if let Some(text) = value.as_string() {
            out.push(name, self.text(text, BYTES_MAX)?.as_str());
        } else if let Some(number) = value.as_big_int() {
            let number = number.clone().to_i64().map_err(|_| {
                Fault::new(
                    ErrorCode::JSInterpreterFailure,
                    "a BigInt of more than 64 bits has no type in BSON",
                )
            })?;
            out.push(name, number);
        } else if let Some(object) = value.as_object() {
            self.object(out, name, object, before, depth)?;
        } else {
            return Err(Fault::location(
                16662,
                format!(
                    "unable to convert JavaScript property to mongo element {name}: {}",
                    value.type_name()
                ),
            )
            .into());
        }
        // At each value, so that a graph whose parts are shared is not walked further than a result may be long.
        check_bytes(self.around.get() + out.written_bytes())
    }

    /// The text of a string of at most `most` bytes.
    fn text(&self, text: &rquickjs::String<'js>, most: usize) -> Result<String> {
        let text = self.types.text(text, most)?;
        text.ok_or_else(|| too_large("more than the limit"))
    }

    /// The text of a property that must be a string.
    fn property(&self, object: &Object<'js>, name: &str) -> Result<String> {
        let value: Value = object.get(name)?;
        self.text(value.as_string().ok_or_else(damaged)?, BYTES_MAX)
    }

    fn object(
        &self,
        out: &mut DocBuf,
        name: &str,
        object: &Object<'js>,
        before: Option<Bson<'_>>,
        depth: usize,
    ) -> Result<()> {
        if let Some(document) = Class::<Document>::from_object(object) {
            let mark = out.open(name, tag::DOCUMENT);
            document.borrow().each(|field| {
                match field {
                    Field::All(doc) => out.push_all(doc),
                    Field::Read(element) => self.read(out, &element),
                    Field::Now(name, value, before) => {
                        self.append(out, name, value, before, depth + 1)?;
                    }
                }
                Ok::<(), Error>(())
            })?;
            out.close(mark);
            return Ok(());
        }
        if let Some(array) = object.as_array() {
            let mark = out.open(name, tag::ARRAY);
            let items = before.as_ref().and_then(Bson::as_array);
            for at in 0..length(array)? {
                let key = at.to_string();
                let before = items.and_then(|items| items.get(&key));
                self.append(out, &key, array.get(at)?, before, depth + 1)?;
            }
            out.close(mark);
            return Ok(());
        }
        if object.is_function() {
            let text: rquickjs::Coerced<rquickjs::String> = object.as_value().get()?;
            out.push(name, Bson::JavaScript(&self.text(&text.0, BYTES_MAX)?));
            return Ok(());
        }
        if let Some(ms) = self.types.milliseconds(object)? {
            out.push(name, Bson::DateTime(ms as i64));
            return Ok(());
        }
        if self.types.is_reg_exp(object) {
            let pattern = self.property(object, "source")?;
            let flags = self.property(object, "flags")?;
            let options: String = flags.chars().filter(|c| "ims".contains(*c)).collect();
            let pattern = if pattern == "(?:)" { "" } else { &pattern };
            out.push(
                name,
                Bson::Regex {
                    pattern,
                    options: &options,
                },
            );
            return Ok(());
        }
        let kind: Value = object.get(self.types.kind.as_atom())?;
        if let Some(kind) = kind.as_int() {
            return self.typed(out, name, object, kind, depth);
        }
        let mark = out.open(name, tag::DOCUMENT);
        let properties = object.own_props::<Atom, Value>(Filter::new().string().enum_only());
        for property in properties {
            let (key, value) = property?;
            let key = self.text(&key.to_js_string()?, BYTES_MAX)?;
            self.append(out, &key, value, None, depth + 1)?;
        }
        out.close(mark);
        Ok(())
    }

    fn read(&self, out: &mut DocBuf, element: &RawElement<'_>) {
        out.push_raw(element);
    }

    /// An object of one of the types of BSON.
    fn typed(
        &self,
        out: &mut DocBuf,
        name: &str,
        object: &Object<'js>,
        kind: i32,
        depth: usize,
    ) -> Result<()> {
        let value: Value = object.get(self.types.value.as_atom())?;
        let string = |value: &Value<'js>, most| -> Result<String> {
            self.text(value.as_string().ok_or_else(damaged)?, most)
        };
        let text = || string(&value, BYTES_MAX);
        let parts = || value.as_array().ok_or_else(damaged);
        let kind = u8::try_from(kind).map_err(|_| damaged())?;
        match kind {
            tag::OBJECT_ID => {
                let id: ObjectId = text()?.parse().map_err(|_| damaged())?;
                out.push(name, id);
            }
            tag::INT64 => {
                let number = value.as_big_int().ok_or_else(damaged)?;
                out.push(name, number.clone().to_i64()?);
            }
            tag::INT32 => out.push(name, value.as_number().ok_or_else(damaged)? as i32),
            tag::DECIMAL128 => {
                let number: Decimal128 = text()?.parse().map_err(|_| damaged())?;
                out.push(name, number);
            }
            tag::BINARY => {
                let parts = parts()?;
                let subtype: i32 = parts.get(0)?;
                let digits = string(&parts.get(1)?, 2 * BYTES_MAX)?;
                let bytes = unhex(&digits).ok_or_else(damaged)?;
                let subtype = u8::try_from(subtype).map_err(|_| damaged())?;
                out.push(
                    name,
                    Bson::Binary {
                        subtype,
                        bytes: &bytes,
                    },
                );
            }
            tag::TIMESTAMP => {
                let parts = parts()?;
                let (time, increment): (f64, f64) = (parts.get(0)?, parts.get(1)?);
                let stamp = Timestamp {
                    time: time as u32,
                    increment: increment as u32,
                };
                out.push(name, Bson::Timestamp(stamp));
            }
            tag::DB_POINTER => {
                let parts = parts()?;
                let ns = string(&parts.get(0)?, BYTES_MAX)?;
                let id: Object = parts.get(1)?;
                let id = string(&id.get(self.types.value.as_atom())?, BYTES_MAX)?;
                let id: ObjectId = id.parse().map_err(|_| damaged())?;
                out.push(name, Bson::DbPointer { ns: &ns, id });
            }
            tag::JAVASCRIPT => {
                let parts = parts()?;
                let code = string(&parts.get(0)?, BYTES_MAX)?;
                let scope: Value = parts.get(1)?;
                if scope.is_undefined() {
                    out.push(name, Bson::JavaScript(&code));
                } else {
                    let mut inner = DocBuf::new();
                    let around = self.around.get();
                    self.around.set(around + out.written_bytes() + code.len());
                    self.append(&mut inner, "", scope, None, depth + 1)?;
                    self.around.set(around);
                    let scope = inner.get_doc("").ok_or_else(damaged)?;
                    out.push(name, Bson::JavaScriptWithScope { code: &code, scope });
                }
            }
            tag::MIN_KEY => out.push(name, Bson::MinKey),
            tag::MAX_KEY => out.push(name, Bson::MaxKey),
            _ => return Err(damaged().into()),
        }
        Ok(())
    }
}

/// The error for an object of the prelude's types that has not what they have.
fn damaged() -> Fault {
    Fault::new(
        ErrorCode::JSInterpreterFailure,
        "a value of a BSON type was damaged",
    )
}

/// The length of an array. One above 2³¹ is a double, and that of a proxy is whatever its handler returns.
fn length(array: &Object<'_>) -> Result<usize> {
    let length: Value = array.get("length")?;
    match length.as_number() {
        Some(length) if length >= 0.0 => Ok(length as usize),
        _ => Err(Fault::new(
            ErrorCode::JSInterpreterFailure,
            "the length of an array must be a number that is not negative",
        )
        .into()),
    }
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= BYTES_MAX {
        Ok(())
    } else {
        Err(too_large(bytes))
    }
}

fn too_large(bytes: impl std::fmt::Display) -> Error {
    Fault::location(
        17260,
        format!(
            "Converting from JavaScript to BSON failed: Object size {bytes} exceeds limit of {BYTES_MAX} bytes."
        ),
    )
    .into()
}
