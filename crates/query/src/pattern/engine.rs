//! Patterns that PCRE2 compiles.
//!
//! They are compiled to machine code where the system permits it, and interpreted elsewhere. Both obey the same limits. A match
//! that can take long runs a second form of the pattern, which reports each item it reaches, so that the operation can be
//! interrupted. That form is slower, and short texts do not need it.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, LazyLock, OnceLock};

use pcre2_sys::{
    PCRE2_AUTO_CALLOUT, PCRE2_CASELESS, PCRE2_DOTALL, PCRE2_ERROR_CALLOUT,
    PCRE2_ERROR_JIT_STACKLIMIT, PCRE2_ERROR_MATCHLIMIT, PCRE2_ERROR_NOMATCH, PCRE2_ERROR_NOMEMORY,
    PCRE2_EXTENDED, PCRE2_INFO_CAPTURECOUNT, PCRE2_INFO_FRAMESIZE, PCRE2_INFO_JITSIZE,
    PCRE2_INFO_SIZE, PCRE2_JIT_COMPLETE, PCRE2_MULTILINE, PCRE2_NO_JIT, PCRE2_NO_UTF_CHECK,
    PCRE2_UNSET, PCRE2_UTF, pcre2_code_8, pcre2_code_free_8, pcre2_compile_8,
    pcre2_get_error_message_8, pcre2_get_match_data_heapframes_size_8, pcre2_get_ovector_pointer_8,
    pcre2_jit_compile_8, pcre2_match_8, pcre2_match_context_8, pcre2_match_context_create_8,
    pcre2_match_data_8, pcre2_match_data_create_8, pcre2_match_data_free_8, pcre2_pattern_info_8,
    pcre2_set_depth_limit_8, pcre2_set_heap_limit_8, pcre2_set_match_limit_8,
};

use super::{Failure, Found};
use crate::bounds;
use frond_error::{Error, Result};

/// The limits of MongoDB's build of PCRE2: steps of backtracking from one place of the text, and how many of them are open.
const STEPS_MAX: u32 = 200_000;
const DEPTH_MAX: u32 = 4_000;

/// The memory of a match, in KiB. MongoDB's limit is 20 GB, which only patterns with hundreds of groups would reach.
const HEAP_KIB_MAX: u32 = 16 << 10;

/// Open steps above this size are counted as memory of the operation.
const SMALL_FRAME_BYTES: usize = 1 << 10;

/// Larger patterns are not compiled to machine code, which takes up to thirty times their size.
const MACHINE_CODE_MAX: usize = 4 << 10;

/// A match in a text of this many bytes cannot take longer than about a second, whatever the pattern.
const SHORT_TEXT: usize = 128;

/// The effort that takes a few tenths of a second: in machine code, and interpreted.
const QUICK_EFFORT: [f64; 2] = [1e9, 1e8];

/// The memory that a thread keeps for its next match.
const KEPT_HEAP_BYTES: usize = 64 << 10;
const KEPT_PLACES: usize = 64;

unsafe extern "C" {
    // The bindings lack it.
    fn pcre2_set_callout_8(
        context: *mut pcre2_match_context_8,
        callout: Option<extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        data: *mut c_void,
    ) -> c_int;
}

#[derive(Clone)]
pub(super) struct Engine(Arc<Program>);

struct Program {
    source: Box<str>,
    options: u32,
    effort: Effort,
    code: Code,
    /// The form that can be interrupted.
    guarded: OnceLock<Result<Code, String>>,
}

impl Engine {
    /// Compiles a pattern. Fails with the reason in the words of PCRE2.
    pub(super) fn new(source: &str, options: &str) -> Result<Engine, String> {
        let bits = [
            ('i', PCRE2_CASELESS),
            ('m', PCRE2_MULTILINE),
            ('s', PCRE2_DOTALL),
            ('x', PCRE2_EXTENDED),
        ];
        let options = bits
            .iter()
            .filter(|(letter, _)| options.contains(*letter))
            .fold(PCRE2_UTF, |all, (_, bit)| all | bit);
        let source: Box<str> = with_plain_braces(&with_known_settings(source)).into();
        Ok(Engine(Arc::new(Program {
            code: Code::compile(&source, options)?,
            guarded: OnceLock::new(),
            effort: Effort::estimate(&source, options & PCRE2_MULTILINE != 0),
            source,
            options,
        })))
    }

    /// About the bytes that the pattern takes when both forms are compiled.
    pub(super) fn bytes(&self) -> usize {
        let code = &self.0.code;
        let code_bytes = code.size(Size::Code) + code.size(Size::MachineCode);
        size_of::<Program>() + self.0.source.len() + 3 * code_bytes
    }

    #[inline]
    pub(super) fn is_match(&self, text: &str) -> Result<bool, Failure> {
        Ok(self.search(text, 0, 1, |_| ())?.is_some())
    }

    pub(super) fn find(&self, text: &str, from: usize) -> Result<Option<Found>, Failure> {
        let groups = self.0.code.groups();
        let found = self.search(text, from, 1 + groups, |places| {
            let mut ranges = places
                .chunks_exact(2)
                .map(|range| (range[0] != PCRE2_UNSET).then(|| range[0]..range[1]));
            Found {
                whole: ranges.next().flatten().unwrap_or(from..from),
                groups: ranges.collect(),
            }
        })?;
        // \C matches a part of a character.
        let is_text = |found: &Found| {
            let groups = found.groups.iter().flatten();
            let mut all = groups.chain([&found.whole]);
            all.all(|range| text.get(range.clone()).is_some())
        };
        match found {
            Some(found) if !is_text(&found) => {
                Err(Failure::Reason("bad offset into UTF string".to_owned()))
            }
            found => Ok(found),
        }
    }

    /// Searches `text` from byte `from`, and reads the `places` of the match: start and end of the match and of each group.
    fn search<T>(
        &self,
        text: &str,
        from: usize,
        places: usize,
        read: impl FnOnce(&[usize]) -> T,
    ) -> Result<Option<T>, Failure> {
        let program = &*self.0;
        let is_quick = text.len() <= SHORT_TEXT
            || program.effort.on(text.len()) <= QUICK_EFFORT[usize::from(!program.code.is_machine)];
        let code = if is_quick {
            &program.code
        } else {
            program.guarded()?
        };
        let mut run = Run::begin(text, from, places)?;
        let mut result = run.with(code, 0)?;
        // Machine code has a small stack, and counts other steps.
        if code.is_machine && matches!(result, PCRE2_ERROR_JIT_STACKLIMIT | PCRE2_ERROR_MATCHLIMIT)
        {
            result = run.with(program.guarded()?, PCRE2_NO_JIT)?;
        }
        match result {
            0.. => Ok(Some(read(run.places()))),
            PCRE2_ERROR_NOMATCH => Ok(None),
            error => Err(Failure::Reason(message(error))),
        }
    }
}

impl Program {
    /// Fails for a large pattern whose guarded form is too large, if it also ends in an unusual way.
    fn guarded(&self) -> Result<&Code, Failure> {
        let guarded = self.guarded.get_or_init(|| {
            let options = self.options;
            let each_item = Code::compile(&self.source, options | PCRE2_AUTO_CALLOUT);
            let (settings, rest) = self.source.split_at(settings_bytes(&self.source));
            // The pattern can end in quoted text, or in a comment.
            let each_start = [")", "\\E)", "\n)"].map(|end| {
                move || Code::compile(&format!("{settings}(?C)(?:{rest}{end}"), options)
            });
            each_start
                .into_iter()
                .fold(each_item, |code, other| code.or_else(|_| other()))
        });
        match guarded {
            Ok(code) => Ok(code),
            Err(reason) => Err(Failure::Reason(reason.clone())),
        }
    }
}

/// Upper bound on the time of a search as a function of the length of the text.
struct Effort {
    factor: f64,
    /// The loops that can be inside each other, as far as the text shows.
    loops: i32,
}

impl Effort {
    fn estimate(source: &str, multi_line: bool) -> Effort {
        const MANY: i32 = 100;
        let repeats = |after: &[u8]| {
            let next = after.iter().find(|byte| !byte.is_ascii_whitespace());
            next.is_some_and(|byte| b"*+{#".contains(byte))
        };
        // The number in a repetition like {4}.
        let times = |after: &[u8]| -> Option<usize> {
            let digits = after.iter().take(6).position(|byte| *byte == b'}')?;
            std::str::from_utf8(&after[..digits]).ok()?.parse().ok()
        };
        let bytes = source.as_bytes();
        let (mut loops, mut branches, mut length) = (0, 0, source.len());
        for (at, byte) in bytes.iter().enumerate() {
            let after = |n: usize| bytes.get(at + n).copied().unwrap_or_default();
            match (byte, after(1), after(2), after(3)) {
                (b'{', ..) if let Some(times) = times(&bytes[at + 1..]) => length += times,
                (b'*' | b'+' | b'{', ..) => loops += 1,
                (b'|' | b'?', ..) => branches += 1,
                // Groups and clusters are compared with texts of any length.
                (b'\\', b'1'..=b'9' | b'k' | b'X', ..) | (b'(', b'?', b'P', b'=') => loops += 1,
                // Patterns that call themselves, and repeated groups, which can take exponential time. An end of quoted text or a
                // comment can hide what repeats a group.
                (b'\\', b'g' | b'E', ..)
                | (b'(', b'?', b'#', _)
                | (b'(', b'?', b'R' | b'&' | b'+' | b'0'..=b'9', _)
                | (b'(', b'?', b'P', b'>')
                | (b'(', b'?', b'-', b'0'..=b'9') => loops += MANY,
                (b')', ..) if repeats(&bytes[at + 1..]) => loops += MANY,
                _ => {}
            }
        }
        // A search without an anchor is one more loop.
        let is_anchored = source.starts_with('^') && !multi_line && !source.contains('|');
        Effort {
            factor: length as f64 * f64::powi(2.0, branches),
            loops: loops + i32::from(!is_anchored),
        }
    }

    fn on(&self, text_bytes: usize) -> f64 {
        self.factor * (text_bytes as f64).powi(self.loops)
    }
}

/// The length of the settings at the start of a pattern. Other verbs with a star belong to the pattern itself.
fn settings_bytes(source: &str) -> usize {
    const SETTINGS: [&str; 10] = [
        "UTF",
        "UCP",
        "NO",
        "LIMIT_",
        "CR",
        "LF",
        "ANY",
        "NUL",
        "BSR_",
        "CASELESS_",
    ];
    let mut rest = source;
    while let Some((name, after)) = rest
        .strip_prefix("(*")
        .and_then(|rest| rest.split_once(')'))
        && SETTINGS.iter().any(|setting| name.starts_with(setting))
    {
        rest = after;
    }
    source.len() - rest.len()
}

/// Writes the name of a setting at the start that only old versions of PCRE know as they know it today.
fn with_known_settings(source: &str) -> Cow<'_, str> {
    match source.split_at(settings_bytes(source)) {
        ("", _) => source.into(),
        (settings, rest) => (settings.replace("(*UTF8)", "(*UTF)") + rest).into(),
    }
}

/// Escapes braces that PCRE2 takes for a repetition since version 10.43, `{,3}` and `{1, 3}`. In MongoDB, which has an older
/// version, they are plain text.
fn with_plain_braces(source: &str) -> Cow<'_, str> {
    let has_space = source.contains([' ', '\t']);
    if !(source.contains("{,") || (has_space && source.contains('{'))) {
        return source.into();
    }
    let is_new_repetition = |after: &str| {
        let inside = after.split_once('}').map_or("", |(inside, _)| inside);
        inside.contains(|c: char| c.is_ascii_digit())
            && (inside.starts_with(',') || inside.contains([' ', '\t']))
            && inside
                .chars()
                .all(|c| c.is_ascii_digit() || ", \t".contains(c))
    };
    let mut out = String::with_capacity(source.len() + 8);
    let mut rest = source;
    while let Some(at) = rest.find(['\\', '{']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if let Some(quoted) = rest.strip_prefix("\\Q") {
            quoted.find("\\E").map_or(rest.len(), |end| 2 + end + 2)
        } else if let Some(escape) = rest.strip_prefix('\\') {
            let mut chars = escape.chars();
            let letter = chars.next();
            // The braces of \x{e9}, \p{L} and \g{1}.
            let has_braces =
                letter.is_some_and(|c| "xopPgk".contains(c)) && chars.next() == Some('{');
            1 + letter.map_or(0, char::len_utf8) + usize::from(has_braces)
        } else {
            if is_new_repetition(&rest[1..]) {
                out.push('\\');
            }
            1
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out.into()
}

/// Code of PCRE2. It is not changed after it is compiled.
struct Code {
    code: NonNull<pcre2_code_8>,
    is_machine: bool,
    /// The memory of an open step.
    frame_bytes: usize,
}

// SAFETY: matches only read compiled code.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: this is its only owner.
        unsafe { pcre2_code_free_8(self.code.as_ptr()) }
    }
}

#[derive(Clone, Copy)]
enum Size {
    Code = PCRE2_INFO_SIZE as isize,
    MachineCode = PCRE2_INFO_JITSIZE as isize,
    Frame = PCRE2_INFO_FRAMESIZE as isize,
}

/// Whether the system permits machine code that the process has made. A hardened service may not have it.
static HAS_MACHINE_CODE: LazyLock<bool> = LazyLock::new(|| {
    Code::interpreted("a", PCRE2_UTF).is_ok_and(|mut code| code.make_machine_code())
});

impl Code {
    fn compile(source: &str, options: u32) -> Result<Code, String> {
        let mut code = Code::interpreted(source, options)?;
        if code.size(Size::Code) <= MACHINE_CODE_MAX && *HAS_MACHINE_CODE {
            code.is_machine = code.make_machine_code();
        }
        Ok(code)
    }

    fn interpreted(source: &str, options: u32) -> Result<Code, String> {
        let (mut error, mut place) = (0, 0);
        // SAFETY: the pattern is valid UTF-8 of this length, and both results are written to places of this function.
        let code = unsafe {
            pcre2_compile_8(
                source.as_ptr(),
                source.len(),
                options | PCRE2_NO_UTF_CHECK,
                &mut error,
                &mut place,
                ptr::null_mut(),
            )
        };
        let code = NonNull::new(code).ok_or_else(|| message(error))?;
        let mut code = Code {
            code,
            is_machine: false,
            frame_bytes: 0,
        };
        code.frame_bytes = code.size(Size::Frame);
        Ok(code)
    }

    /// Returns whether there is machine code: the system may not permit it, and a pattern can refuse it.
    fn make_machine_code(&mut self) -> bool {
        // SAFETY: no other thread has the code yet.
        let result = unsafe { pcre2_jit_compile_8(self.code.as_ptr(), PCRE2_JIT_COMPLETE) };
        result == 0 && self.size(Size::MachineCode) > 0
    }

    /// A size that describes the code.
    fn size(&self, what: Size) -> usize {
        let mut value = 0_usize;
        // SAFETY: these are written as a `size_t`.
        unsafe {
            pcre2_pattern_info_8(self.code.as_ptr(), what as u32, (&raw mut value).cast());
        }
        value
    }

    /// The number of groups.
    fn groups(&self) -> usize {
        let mut value = 0_u32;
        // SAFETY: this is written as a number of 32 bits.
        unsafe {
            pcre2_pattern_info_8(
                self.code.as_ptr(),
                PCRE2_INFO_CAPTURECOUNT,
                (&raw mut value).cast(),
            );
        }
        value as usize
    }
}

/// The limits of a match, and the function that a guarded pattern calls.
struct Limits(NonNull<pcre2_match_context_8>);

// SAFETY: matches only read it, and it is never changed or freed.
unsafe impl Send for Limits {}
// SAFETY: as above.
unsafe impl Sync for Limits {}

static LIMITS: LazyLock<Option<Limits>> = LazyLock::new(|| {
    // SAFETY: the memory comes from malloc.
    let limits = NonNull::new(unsafe { pcre2_match_context_create_8(ptr::null_mut()) })?;
    // SAFETY: the context was just made; the functions fail for no value.
    unsafe {
        pcre2_set_match_limit_8(limits.as_ptr(), STEPS_MAX);
        pcre2_set_depth_limit_8(limits.as_ptr(), DEPTH_MAX);
        pcre2_set_heap_limit_8(limits.as_ptr(), HEAP_KIB_MAX);
        pcre2_set_callout_8(limits.as_ptr(), Some(on_item), ptr::null_mut());
    }
    Some(Limits(limits))
});

thread_local! {
    /// The work that an item of the running match may take, see [`bounds::work`].
    static ITEM_UNITS: Cell<usize> = const { Cell::new(1) };
    static INTERRUPTION: Cell<Option<Error>> = const { Cell::new(None) };
    static MATCH_DATA: Cell<Option<MatchData>> = const { Cell::new(None) };
}

/// Called at each item of a guarded pattern, and at callouts that are written in a pattern.
extern "C" fn on_item(_: *mut c_void, _: *mut c_void) -> c_int {
    match bounds::work(ITEM_UNITS.get()) {
        Ok(()) => 0,
        Err(error) => {
            INTERRUPTION.set(Some(error));
            PCRE2_ERROR_CALLOUT
        }
    }
}

/// The memory of a match, with the places that it has found.
struct MatchData {
    data: NonNull<pcre2_match_data_8>,
    places: usize,
}

impl Drop for MatchData {
    fn drop(&mut self) {
        // SAFETY: this is its only owner.
        unsafe { pcre2_match_data_free_8(self.data.as_ptr()) }
    }
}

impl MatchData {
    fn new(places: usize) -> Option<MatchData> {
        let count = u32::try_from(places).ok()?;
        // SAFETY: the memory comes from malloc.
        let data = unsafe { pcre2_match_data_create_8(count, ptr::null_mut()) };
        NonNull::new(data).map(|data| MatchData { data, places })
    }

    fn heap_bytes(&self) -> usize {
        // SAFETY: the data is valid as long as its owner.
        unsafe { pcre2_get_match_data_heapframes_size_8(self.data.as_ptr()) }
    }
}

/// A search of a text. It borrows the memory that this thread keeps.
struct Run<'t> {
    text: &'t str,
    from: usize,
    places: usize,
    data: Option<MatchData>,
}

impl<'t> Run<'t> {
    fn begin(text: &'t str, from: usize, places: usize) -> Result<Run<'t>, Failure> {
        if !text.is_char_boundary(from) {
            return Err(Failure::Reason("bad offset into UTF string".to_owned()));
        }
        let kept = MATCH_DATA.take().filter(|kept| kept.places >= places);
        let data = kept.or_else(|| MatchData::new(places.max(KEPT_PLACES / 8)));
        Ok(Run {
            text,
            from,
            places,
            data,
        })
    }

    /// Returns the result of PCRE2. Fails if the operation is interrupted or has too little memory.
    fn with(&mut self, code: &Code, options: u32) -> Result<c_int, Failure> {
        let (Some(limits), Some(data)) = (&*LIMITS, &self.data) else {
            return Ok(PCRE2_ERROR_NOMEMORY);
        };
        let mark = bounds::mark();
        if code.frame_bytes > SMALL_FRAME_BYTES {
            let most = (HEAP_KIB_MAX as usize) << 10;
            bounds::reserve(most.min(code.frame_bytes * DEPTH_MAX as usize))
                .map_err(Failure::Interrupted)?;
        }
        ITEM_UNITS.set(1 + self.text.len() / 4096);
        // An empty text has no address that can be read.
        let start = match self.text {
            "" => c"".as_ptr().cast(),
            text => text.as_ptr(),
        };
        // SAFETY: the text is valid UTF-8 of this length, the search begins at a character, and no one else uses the data.
        let result = unsafe {
            pcre2_match_8(
                code.code.as_ptr(),
                start,
                self.text.len(),
                self.from,
                options | PCRE2_NO_UTF_CHECK,
                data.data.as_ptr(),
                limits.0.as_ptr(),
            )
        };
        bounds::settle(mark, 0);
        match result {
            PCRE2_ERROR_CALLOUT => match INTERRUPTION.take() {
                Some(error) => Err(Failure::Interrupted(error)),
                None => Ok(result),
            },
            result => Ok(result),
        }
    }

    /// The places of a match that has succeeded.
    fn places(&self) -> &[usize] {
        match &self.data {
            // SAFETY: the data has room for `self.places` pairs, and the match has written all of them.
            Some(data) => unsafe {
                std::slice::from_raw_parts(
                    pcre2_get_ovector_pointer_8(data.data.as_ptr()),
                    2 * self.places,
                )
            },
            None => &[],
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let kept = self
            .data
            .take()
            .filter(|data| data.places <= KEPT_PLACES && data.heap_bytes() <= KEPT_HEAP_BYTES);
        MATCH_DATA.set(kept);
    }
}

fn message(error: c_int) -> String {
    let mut buffer = [0_u8; 256];
    // SAFETY: the buffer has this length.
    let length = unsafe { pcre2_get_error_message_8(error, buffer.as_mut_ptr(), buffer.len()) };
    match usize::try_from(length)
        .ok()
        .and_then(|length| buffer.get(..length))
    {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None => format!("error {error}"),
    }
}
