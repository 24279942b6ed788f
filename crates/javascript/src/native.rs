//! Functions of this program that the prelude calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frond_bson::{Decimal128, DocBuf, ObjectId, OwnedValue, hex, unhex};
use frond_error::{Error as Fault, ErrorCode};
use frond_query::Md5;
use rquickjs::function::{Opt, Rest};
use rquickjs::{Ctx, Exception, Function, Object, Result, Value};

use crate::values::write::{Error, Writer};

/// The limit of what one call of a map function emits, in bytes.
const EMIT_BYTES_MAX: usize = 100 << 20;

/// The most bytes of a line that a function prints.
const PRINT_BYTES_MAX: usize = 64 << 10;

/// A function that sleeps looks this often whether it has to end.
const SLEEP_STEP: Duration = Duration::from_millis(10);

/// Takes the keys and values that a map function emits.
pub type Sink = Rc<dyn Fn(OwnedValue, OwnedValue)>;

/// The place of what a map function emits.
pub struct Emitting {
    sink: Sink,
    bytes: usize,
}

impl Emitting {
    pub fn new(sink: Sink) -> Emitting {
        Emitting { sink, bytes: 0 }
    }
}

thread_local! {
    /// For the map function of this thread; `None` while none runs.
    static EMITTING: RefCell<Option<Emitting>> = const { RefCell::new(None) };
    /// Why a native function threw.
    static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Begins a call of a map function, or ends it.
pub fn set_emitting(emitting: Option<Emitting>) {
    EMITTING.set(emitting);
}

/// Takes the reason of an exception that is ours.
pub fn take_fault() -> Option<Fault> {
    FAULT.take()
}

/// Throws our own error.
fn throw(ctx: &Ctx<'_>, error: Error) -> rquickjs::Error {
    match error {
        Error::Thrown(error) => error,
        Error::Refused(fault) => {
            let thrown = Exception::throw_message(ctx, fault.message());
            FAULT.replace(Some(fault));
            thrown
        }
    }
}

fn emit<'js>(
    ctx: Ctx<'js>,
    key: Opt<Value<'js>>,
    value: Opt<Value<'js>>,
    more: Rest<Value<'js>>,
) -> Result<()> {
    let write = || -> std::result::Result<(), Error> {
        let (Some(key), Some(value), true) = (key.0, value.0, more.0.is_empty()) else {
            return Err(Fault::location(31220, "emit takes 2 args").into());
        };
        let writer = Writer::new(&ctx)?;
        let key = if key.is_undefined() {
            // MongoDB counts a missing key as null.
            OwnedValue::Null
        } else {
            writer.value(key)?
        };
        let value = writer.value(value)?;
        EMITTING.with_borrow_mut(|emitting| {
            let Some(emitting) = emitting else {
                return Err(Fault::new(
                    ErrorCode::JSInterpreterFailure,
                    "emit can only be called by the map function of mapReduce",
                )
                .into());
            };
            emitting.bytes += key.as_value().len_bytes() + value.as_value().len_bytes();
            if emitting.bytes > EMIT_BYTES_MAX {
                return Err(Fault::location(
                    31292,
                    format!(
                        "Size of emitted values exceeds the set size limit of {EMIT_BYTES_MAX} bytes"
                    ),
                )
                .into());
            }
            (emitting.sink)(key, value);
            Ok(())
        })
    };
    write().map_err(|error| throw(&ctx, error))
}

fn bson_size<'js>(ctx: Ctx<'js>, value: Value<'js>) -> Result<f64> {
    let mut out = DocBuf::new();
    let written = Writer::new(&ctx).and_then(|writer| writer.append(&mut out, "", value, None, 0));
    written.map_err(|error| throw(&ctx, error))?;
    Ok(out.get_doc("").map_or(0, |doc| doc.len_bytes()) as f64)
}

fn decimal(ctx: Ctx<'_>, text: String) -> Result<String> {
    match text.trim().parse::<Decimal128>() {
        Ok(number) => Ok(number.to_string()),
        Err(_) => Err(Exception::throw_message(
            &ctx,
            "input is not a valid decimal number",
        )),
    }
}

fn hex_of_base64(ctx: Ctx<'_>, text: String) -> Result<String> {
    match STANDARD.decode(text.trim()) {
        Ok(bytes) => Ok(hex(&bytes)),
        Err(_) => Err(Exception::throw_message(&ctx, "invalid base64")),
    }
}

/// Waits, and fails once `check` does.
fn sleep(
    ctx: &Ctx<'_>,
    milliseconds: f64,
    check: impl Fn() -> std::result::Result<(), Fault>,
) -> Result<()> {
    // Of no number and of a negative one this is 0.
    let whole = Duration::from_millis(milliseconds as u64);
    let began = Instant::now();
    while let Some(left) = whole.checked_sub(began.elapsed()) {
        check().map_err(|fault| throw(ctx, fault.into()))?;
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(SLEEP_STEP));
    }
    Ok(())
}

/// The functions for the prelude. `print` writes a line to the log, `check` fails if the request has to end.
pub fn functions<'js>(
    ctx: &Ctx<'js>,
    print: impl Fn(&str) + 'static,
    check: impl Fn() -> std::result::Result<(), Fault> + 'static,
) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    native.set(
        "sleep",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, milliseconds: f64| {
            sleep(&ctx, milliseconds, &check)
        })?,
    )?;
    native.set("emit", Function::new(ctx.clone(), emit)?.with_name("emit")?)?;
    native.set("bsonSize", Function::new(ctx.clone(), bson_size)?)?;
    native.set("decimal", Function::new(ctx.clone(), decimal)?)?;
    native.set("hexOfBase64", Function::new(ctx.clone(), hex_of_base64)?)?;
    native.set(
        "base64OfHex",
        Function::new(ctx.clone(), |text: String| {
            STANDARD.encode(unhex(&text).unwrap_or_default())
        })?,
    )?;
    native.set(
        "newObjectId",
        Function::new(ctx.clone(), || ObjectId::new().to_string())?,
    )?;
    native.set(
        "md5",
        Function::new(ctx.clone(), |text: String| {
            let mut md5 = Md5::default();
            md5.add(text.as_bytes());
            md5.hex()
        })?,
    )?;
    native.set(
        "print",
        Function::new(ctx.clone(), move |text: String| {
            print(
                text.get(..text.floor_char_boundary(PRINT_BYTES_MAX))
                    .unwrap_or_default(),
            );
        })?,
    )?;
    Ok(native)
}
