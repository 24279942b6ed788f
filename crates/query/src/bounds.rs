//! Bounds of the evaluation on this thread: the memory of computed values, and the time between two checks for an interruption.
//!
//! One document can make an expression run for hours or compute gigabytes, so the checks of the operators around it are not
//! enough. Loops over elements, characters and matches count their work with [`work`], which checks for an interruption at
//! intervals. Code that builds a value reserves its bytes with [`reserve`] or [`make_room`] before it allocates them.
//!
//! Reservations belong to the thread and are a stack. An operator takes the [`mark`] before it evaluates its arguments, and
//! [`settle`] releases everything above the mark except the result. Nothing has to be released one by one, also after an error:
//! the end of the outermost evaluation settles to where it began.
//!
//! The values of one evaluation may take [`EVALUATION_BYTES_MAX`], one value at most [`VALUE_BYTES_MAX`]. Beyond the first
//! [`FREE_BYTES`] the bytes also come from the memory that all operations share.

use crate::memory::{MemoryShare, scarce};
use frond_bson::{ArrayBuf, Collator, Doc, DocBuf, RawElement, Value};
use frond_error::{Error, ErrorCode, Result};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;

/// The most bytes that the values of one evaluation may take at a time, as of one blocking stage.
pub const EVALUATION_BYTES_MAX: usize = 100 << 20;

/// The largest value that an expression may build, in bytes: what a stage may hold of one document.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Evaluations that take less do not touch the shared memory.
const FREE_BYTES: usize = 256 << 10;

/// Smaller allocations are not reserved.
const SMALL_BYTES: usize = 1 << 10;

/// Shared memory is taken in steps of this many bytes.
const STEP_BYTES: usize = 1 << 20;

/// Units of work between two checks. A unit is about a node of an expression, or 64 bytes that are read or written, so a check
/// comes after a millisecond at most.
const WORK_BETWEEN_CHECKS: usize = 1 << 14;

/// Bytes in a unit of work.
const WORK_BYTES: usize = 64;

/// The operation that an evaluation is a part of.
pub trait Supervisor: Sync {
    /// Fails if the operation on this thread has to end.
    ///
    /// # Errors
    /// Those of an interrupted operation.
    fn check(&self) -> Result<()>;

    /// A share of the memory of all operations, without any bytes yet; `None` if only the limit of each evaluation counts.
    fn memory(&self) -> Option<Box<dyn MemoryShare>>;
}

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// Bytes that may be reserved without asking the shared memory.
    static GRANTED: Cell<usize> = const { Cell::new(FREE_BYTES) };
    /// Work since the last check.
    static WORK: Cell<usize> = const { Cell::new(0) };
    static IS_PARSING: Cell<bool> = const { Cell::new(false) };
    static SUPERVISOR: Cell<Option<&'static dyn Supervisor>> = const { Cell::new(None) };
    static SHARE: RefCell<Option<Box<dyn MemoryShare>>> = const { RefCell::new(None) };
}

/// Runs an operation on this thread. Its evaluations check with `supervisor` and take memory from it.
pub fn supervised<T>(supervisor: &'static dyn Supervisor, operation: impl FnOnce() -> T) -> T {
    struct Leave(Option<&'static dyn Supervisor>, Outer);
    impl Drop for Leave {
        fn drop(&mut self) {
            SUPERVISOR.set(self.0);
            let Outer {
                held,
                granted,
                share,
            } = std::mem::take(&mut self.1);
            HELD.set(held);
            GRANTED.set(granted);
            // The share of the operation that ends is dropped, and returns its bytes.
            SHARE.set(share);
        }
    }
    let outer = Outer {
        held: HELD.replace(0),
        granted: GRANTED.replace(FREE_BYTES),
        share: SHARE.take(),
    };
    let _leave = Leave(SUPERVISOR.replace(Some(supervisor)), outer);
    operation()
}

/// Runs a short evaluation whose result must not depend on an interruption.
pub(crate) fn uninterrupted<T>(evaluation: impl FnOnce() -> T) -> T {
    struct Leave(Option<&'static dyn Supervisor>);
    impl Drop for Leave {
        fn drop(&mut self) {
            SUPERVISOR.set(self.0);
        }
    }
    let _leave = Leave(SUPERVISOR.take());
    evaluation()
}

/// The reservations of an operation that is suspended while another runs on its thread.
struct Outer {
    held: usize,
    granted: usize,
    share: Option<Box<dyn MemoryShare>>,
}

impl Default for Outer {
    fn default() -> Self {
        Outer {
            held: 0,
            granted: FREE_BYTES,
            share: None,
        }
    }
}

/// Parses a part of a command. What the outermost part reserves for what it compiles is released when it is parsed, because from
/// then on its owner counts.
pub(crate) fn parsing<T>(parse: impl FnOnce() -> T) -> T {
    struct Leave(Option<usize>);
    impl Drop for Leave {
        fn drop(&mut self) {
            if let Some(mark) = self.0 {
                IS_PARSING.set(false);
                settle(mark, 0);
            }
        }
    }
    let is_outermost = !IS_PARSING.replace(true);
    let _leave = Leave(is_outermost.then(mark));
    parse()
}

/// Counts work of `units`.
///
/// # Errors
/// Those of an interrupted operation.
#[inline]
pub(crate) fn work(units: usize) -> Result<()> {
    let done = WORK.get().saturating_add(units);
    WORK.set(done);
    if done < WORK_BETWEEN_CHECKS {
        return Ok(());
    }
    check()
}

/// Counts the work of reading or writing `bytes`.
///
/// # Errors
/// Those of an interrupted operation.
#[inline]
pub(crate) fn work_on(bytes: usize) -> Result<()> {
    work(1 + bytes / WORK_BYTES)
}

/// Whether the type of a value bounds its size.
#[inline]
pub(crate) fn is_scalar(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Double(_)
            | Value::Undefined
            | Value::ObjectId(_)
            | Value::Bool(_)
            | Value::DateTime(_)
            | Value::Null
            | Value::Int32(_)
            | Value::Timestamp(_)
            | Value::Int64(_)
            | Value::Decimal128(_)
            | Value::MinKey
            | Value::MaxKey
    )
}

/// Compares two values, and counts the work. It may read all of the longer one: the strings inside of documents and arrays are
/// checked to be UTF-8 whenever they are read.
///
/// # Errors
/// Those of an interrupted operation.
#[inline]
pub(crate) fn compare(collator: &Collator, a: &Value<'_>, b: &Value<'_>) -> Result<Ordering> {
    if !is_scalar(a) && !is_scalar(b) {
        work_on(a.len_bytes().max(b.len_bytes()))?;
    }
    Ok(collator.compare(a, b))
}

/// Counts the work of reading `bytes`, if they are many.
///
/// # Errors
/// Those of an interrupted operation.
#[inline]
pub(crate) fn work_on_large(bytes: usize) -> Result<()> {
    if bytes < SMALL_BYTES {
        return Ok(());
    }
    work_on(bytes)
}

#[cold]
fn check() -> Result<()> {
    WORK.set(0);
    match SUPERVISOR.get() {
        Some(supervisor) => supervisor.check(),
        None => Ok(()),
    }
}

/// The bytes reserved up to here, for [`settle`].
#[inline]
pub(crate) fn mark() -> usize {
    HELD.get()
}

/// Evaluates something, and releases everything that it has reserved: from then on its owner counts.
#[inline]
pub(crate) fn releasing<T>(evaluation: impl FnOnce() -> T) -> T {
    let mark = mark();
    let result = evaluation();
    settle(mark, 0);
    result
}

/// Releases the bytes of a value that is gone.
#[inline]
pub(crate) fn release(bytes: usize) {
    if bytes > 0 {
        settle(mark().saturating_sub(bytes), 0);
    }
}

/// Releases the bytes of a value that is gone, if they are many. Small ones were not reserved.
#[inline]
pub(crate) fn release_large(bytes: usize) {
    if bytes >= SMALL_BYTES {
        release(bytes);
    }
}

/// Releases what was reserved since the mark, except `kept` bytes, if they are many.
#[inline]
pub(crate) fn settle_large(mark: usize, kept: usize) {
    if kept >= SMALL_BYTES {
        settle(mark, kept);
    }
}

/// Releases what was reserved since the mark, except `kept` bytes.
#[inline]
pub(crate) fn settle(mark: usize, kept: usize) {
    let held = mark + kept;
    if HELD.get() != held {
        HELD.set(held);
        if GRANTED.get().saturating_sub(held) > FREE_BYTES + 4 * STEP_BYTES {
            give_back();
        }
    }
}

#[cold]
fn give_back() {
    SHARE.with_borrow_mut(|share| {
        let spare = GRANTED.get().saturating_sub(HELD.get().max(FREE_BYTES));
        if let Some(share) = share {
            share.shrink(spare);
        }
        GRANTED.set(GRANTED.get() - spare);
    });
}

/// Reserves bytes that are allocated next, and counts the work of filling them.
///
/// # Errors
/// `ExceededMemoryLimit` (146); those of an interrupted operation.
#[inline]
pub(crate) fn reserve(bytes: usize) -> Result<()> {
    work_on(bytes)?;
    let held = HELD.get().saturating_add(bytes);
    if held > GRANTED.get() {
        take(held)?;
    }
    HELD.set(held);
    Ok(())
}

#[cold]
fn take(held: usize) -> Result<()> {
    if held > EVALUATION_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "the values that this expression computes for one document take {held} bytes at a time; the limit is \
                 {EVALUATION_BYTES_MAX} bytes"
            ),
        ));
    }
    let more = (held - GRANTED.get()).next_multiple_of(STEP_BYTES);
    SHARE.with_borrow_mut(|share| {
        if share.is_none() {
            *share = SUPERVISOR.get().and_then(|supervisor| supervisor.memory());
        }
        if let Some(share) = share
            && !share.try_grow(more)
        {
            return Err(scarce("this expression"));
        }
        GRANTED.set(GRANTED.get() + more);
        Ok(())
    })
}

/// Error 10334 for a computed value that is too large.
pub(crate) fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "An expression built a value of {bytes} bytes; the limit is {VALUE_BYTES_MAX} bytes"
        ),
    ))
}

/// Reserves the bytes of a value that is built next.
///
/// # Errors
/// As [`check_bytes`] and [`reserve`].
pub(crate) fn reserve_value(bytes: usize) -> Result<()> {
    check_bytes(bytes)?;
    reserve(bytes)
}

/// Reserves bytes that are allocated next, if they are many.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub(crate) fn reserve_large(bytes: usize) -> Result<()> {
    if bytes < SMALL_BYTES {
        Ok(())
    } else {
        reserve(bytes)
    }
}

/// Reserves a list of `count` elements of `T`.
///
/// # Errors
/// As [`reserve`].
pub(crate) fn reserve_list<T>(count: usize) -> Result<()> {
    reserve(count.saturating_mul(size_of::<T>()))
}

/// A value under construction.
pub(crate) trait Buffer {
    fn capacity(&self) -> usize;
    /// The part of the capacity that is free.
    fn spare(&self) -> usize;
    fn reserve_exact(&mut self, bytes: usize);
}

/// Makes room for `more` bytes in a value under construction.
///
/// # Errors
/// As [`reserve_value`].
#[inline]
pub(crate) fn make_room(buffer: &mut impl Buffer, more: usize) -> Result<()> {
    if more <= buffer.spare() {
        return Ok(());
    }
    grow(buffer, more)
}

#[cold]
fn grow(buffer: &mut impl Buffer, more: usize) -> Result<()> {
    let before = buffer.capacity();
    let bytes = before - buffer.spare();
    let needed = bytes.saturating_add(more);
    check_bytes(needed)?;
    // The old and the new allocation exist at the same time. Where memory is short, the buffer grows less at a time, but not by
    // too little: then copying it would take quadratic time.
    let growth = |more: usize| before.saturating_add(more).clamp(needed, VALUE_BYTES_MAX);
    let [large, small] = [growth(before), growth(before / 8)];
    let capacity = match reserve(large) {
        Ok(()) => large,
        Err(error) if error.code() == ErrorCode::ExceededMemoryLimit => {
            reserve(small)?;
            small
        }
        Err(error) => return Err(error),
    };
    buffer.reserve_exact(capacity - bytes);
    HELD.set(HELD.get().saturating_sub(before));
    Ok(())
}

/// The bytes that an element of an array may take besides its value.
const ELEMENT_HEAD_BYTES: usize = 12;

/// Appends a value to an array under construction.
///
/// # Errors
/// As [`make_room`].
#[inline]
pub(crate) fn push(array: &mut ArrayBuf, value: &Value<'_>) -> Result<()> {
    make_room(array, value.len_bytes() + ELEMENT_HEAD_BYTES)?;
    array.push_value(value);
    Ok(())
}

/// Appends an element to an array under construction.
///
/// # Errors
/// As [`make_room`].
#[inline]
pub(crate) fn push_raw(array: &mut ArrayBuf, element: &RawElement<'_>) -> Result<()> {
    make_room(array, element.as_bytes().len() + ELEMENT_HEAD_BYTES)?;
    array.push_raw(element);
    Ok(())
}

/// Appends an element to a document under construction.
///
/// # Errors
/// As [`make_room`].
#[inline]
pub(crate) fn push_element(doc: &mut DocBuf, element: &RawElement<'_>) -> Result<()> {
    if doc.capacity() >= SMALL_BYTES || element.as_bytes().len() >= SMALL_BYTES {
        make_room(doc, element.as_bytes().len())?;
    }
    doc.push_raw(element);
    Ok(())
}

/// Appends a field to a document under construction.
///
/// # Errors
/// As [`make_room`].
#[inline]
pub(crate) fn push_field(doc: &mut DocBuf, name: &str, value: &Value<'_>) -> Result<()> {
    // A buffer that grows by scalars is checked when something else is added.
    if is_scalar(value) && doc.capacity() < SMALL_BYTES {
        doc.push_value(name, value);
        return Ok(());
    }
    make_room(doc, value.len_bytes() + name.len() + 2)?;
    doc.push_value(name, value);
    Ok(())
}

/// The elements of an array, in a list whose memory is reserved.
///
/// # Errors
/// As [`reserve`].
pub(crate) fn elements_of(array: &Doc) -> Result<Vec<Value<'_>>> {
    // An element takes three bytes at least, so the list of a small array needs no memory to speak of.
    if array.len_bytes() < SMALL_BYTES {
        return Ok(array.values().collect());
    }
    let count = array.count();
    reserve_list::<Value<'_>>(count)?;
    let mut elements = Vec::with_capacity(count);
    elements.extend(array.values());
    Ok(elements)
}

/// The array of these values.
///
/// # Errors
/// As [`make_room`].
pub(crate) fn array_of<'v>(values: impl IntoIterator<Item = Value<'v>>) -> Result<ArrayBuf> {
    let mut array = ArrayBuf::new();
    for value in values {
        push(&mut array, &value)?;
    }
    Ok(array)
}

macro_rules! buffers {
    ($($buffer:ty: |$this:ident| $spare:expr),* $(,)?) => {$(
        impl Buffer for $buffer {
            #[inline]
            fn capacity(&self) -> usize {
                <$buffer>::capacity(self)
            }

            #[inline]
            fn spare(&self) -> usize {
                let $this = self;
                $spare
            }

            fn reserve_exact(&mut self, bytes: usize) {
                <$buffer>::reserve_exact(self, bytes);
            }
        }
    )*};
}

buffers! {
    ArrayBuf: |array| array.spare_capacity(),
    DocBuf: |doc| doc.spare_capacity(),
    Vec<u8>: |bytes| bytes.capacity() - bytes.len(),
    String: |text| text.capacity() - text.len(),
}
