//! The engine of a thread: one while a request runs functions on it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use frond_bson::{DocBuf, Value as Bson};
use frond_error::{Error as Fault, ErrorCode};
use frond_query::script::StoredFunctions;
use rquickjs::context::EvalOptions;
use rquickjs::{Coerced, Context, Ctx, Error as JsError, Function, Persistent, Runtime, Value};

use crate::code::{Code, SourceKey};
use crate::limits::HeapReservation;
use crate::shared::Shared;
use crate::values::write::Error;
use crate::values::{Bytes, Types, read};
use crate::{native, source};

/// Types and helpers, in JavaScript.
const PRELUDE: &str = include_str!("prelude.js");

/// The share of the thread's stack for nested calls.
const STACK_BYTES: usize = 512 << 10;

/// Longest part of an exception in an error, in characters.
const MESSAGE_CHARS_MAX: usize = 4096;

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    /// Why the running function was interrupted.
    static INTERRUPTED: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// An engine, with the functions that it has compiled.
pub struct Engine {
    shared: Arc<Shared>,
    functions: HashMap<u64, Persistent<Function<'static>>>,
    /// The programs by their source.
    programs: HashMap<SourceKey, u64>,
    /// Whether the stored functions of the database are there.
    has_stored: bool,
    context: Context,
    runtime: Runtime,
    _reservation: HeapReservation,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.functions.clear();
        self.context.with(|ctx| {
            let _ = ctx.remove_userdata::<Rc<Types>>();
        });
        self.runtime.run_gc();
    }
}

/// Runs something with the engine of this thread, which is made if there is none.
///
/// # Errors
/// `JSInterpreterFailure` if an engine cannot be made.
pub fn with<T>(
    shared: &Arc<Shared>,
    run: impl FnOnce(&mut Engine) -> Result<T, Fault>,
) -> Result<T, Fault> {
    ENGINE.with(|slot| {
        let Ok(mut slot) = slot.try_borrow_mut() else {
            return Err(Fault::internal("a function of JavaScript called itself"));
        };
        if let Some(engine) = &mut *slot
            && Arc::ptr_eq(&engine.shared, shared)
        {
            return run(engine);
        }
        let engine = Engine::new(shared)
            .map_err(|fault| fault.context("the JavaScript engine cannot start"))?;
        run(slot.insert(engine))
    })
}

/// Ends the engine of this thread, if there is one.
pub fn end() {
    ENGINE.with(|slot| {
        if let Ok(mut slot) = slot.try_borrow_mut() {
            *slot = None;
        }
    });
}

fn options() -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.backtrace_barrier = true;
    options
}

impl Engine {
    fn new(shared: &Arc<Shared>) -> Result<Engine, Fault> {
        let unable =
            |error: JsError| Fault::new(ErrorCode::JSInterpreterFailure, error.to_string());
        let reservation = shared.heaps.reserve();
        let runtime = Runtime::new().map_err(unable)?;
        runtime.set_memory_limit(reservation.bytes());
        runtime.set_max_stack_size(STACK_BYTES);
        let checked = shared.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || match (checked.check)() {
            Ok(()) => false,
            Err(fault) => {
                INTERRUPTED.replace(Some(fault));
                true
            }
        })));
        let context = Context::full(&runtime).map_err(unable)?;
        let (printing, sleeping) = (shared.clone(), shared.clone());
        context.with(|ctx| {
            let prepare = || {
                let print = move |text: &str| (printing.print)(text);
                let native = native::functions(&ctx, print, move || (sleeping.check)())?;
                let prelude: Function = ctx.eval_with_options(PRELUDE, options())?;
                let exports = prelude.call((native,))?;
                let types = Rc::new(Types::new(&exports)?);
                let _ = ctx.store_userdata(types);
                Ok::<(), JsError>(())
            };
            prepare().map_err(|error| failure(&ctx, error.into()))
        })?;
        Ok(Engine {
            shared: shared.clone(),
            functions: HashMap::new(),
            programs: HashMap::new(),
            has_stored: false,
            context,
            runtime,
            _reservation: reservation,
        })
    }

    /// The number of the program with this source, if it is compiled here.
    pub fn known(&self, key: &SourceKey) -> Option<u64> {
        self.programs.get(key).copied()
    }

    /// Compiles a program, if that was not done.
    ///
    /// # Errors
    /// `JSInterpreterFailure` for code that cannot be compiled.
    pub fn compile(&mut self, code: &Code) -> Result<Persistent<Function<'static>>, Fault> {
        if let Some(function) = self.functions.get(&code.id) {
            return Ok(function.clone());
        }
        if let Some(stored) = &code.stored
            && !self.has_stored
        {
            self.has_stored = true;
            self.store(stored)?;
        }
        let scope = code.source.scope.as_ref();
        let text = &code.source.code;
        let function = self.run(|ctx| {
            if let Some(scope) = scope {
                set_variables(ctx, scope)?;
            }
            let function = function(ctx, text)?;
            Ok(Persistent::save(ctx, function))
        })?;
        self.functions.insert(code.id, function.clone());
        self.programs.insert(code.key(), code.id);
        Ok(function)
    }

    /// Makes the stored functions visible. One that cannot be compiled is left out and logged.
    fn store(&mut self, stored: &StoredFunctions) -> Result<(), Fault> {
        for (name, value) in stored.iter() {
            let mut variable = DocBuf::new();
            variable.push_value(name, &value.as_value());
            match self.run(|ctx| set_variables(ctx, &variable)) {
                Err(fault) if fault.code() == ErrorCode::JSInterpreterFailure => {
                    let message = fault.message();
                    (self.shared.print)(&format!(
                        "unable to load stored JavaScript function {name}: {message}"
                    ));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Calls a program.
    ///
    /// # Errors
    /// Those of compiling it, of the call, of limits.
    pub fn call<T>(
        &mut self,
        code: &Code,
        run: impl for<'js> FnOnce(&Ctx<'js>, Function<'js>) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let function = self.compile(code)?;
        self.run(|ctx| run(ctx, function.restore(ctx)?))
    }

    fn run<T>(
        &mut self,
        run: impl for<'js> FnOnce(&Ctx<'js>) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        self.context
            .with(|ctx| run(&ctx).map_err(|error| failure(&ctx, error)))
    }
}

/// Sets global variables. Code is a function.
fn set_variables<'js>(ctx: &Ctx<'js>, variables: &DocBuf) -> Result<(), Error> {
    let globals = ctx.globals();
    let bytes: Bytes = variables.as_bytes().into();
    let doc = frond_bson::Doc::from_trusted(&bytes);
    for (name, value) in doc.iter() {
        match value {
            Bson::JavaScript(code) | Bson::JavaScriptWithScope { code, .. } => {
                globals.set(name, function(ctx, code)?)?;
            }
            value => globals.set(name, read::value(ctx, value, &bytes, None)?)?,
        }
    }
    Ok(())
}

/// The function of a piece of code.
fn function<'js>(ctx: &Ctx<'js>, code: &str) -> Result<Function<'js>, Error> {
    let mut problem = None;
    for text in source::readings(code) {
        match ctx.eval_with_options::<Value, _>(text, options()) {
            Ok(value) => match value.into_function() {
                Some(function) => return Ok(function),
                None => continue,
            },
            Err(error) => {
                let fault = failure(ctx, error.into());
                // The first reading is the most likely one, and its error the most helpful.
                problem.get_or_insert(fault);
            }
        }
    }
    Err(Error::Refused(problem.unwrap_or_else(|| {
        Fault::new(
            ErrorCode::JSInterpreterFailure,
            "the code is not a function or an expression",
        )
    })))
}

/// The message of an error.
fn failure(ctx: &Ctx<'_>, error: Error) -> Fault {
    let thrown = match error {
        Error::Refused(fault) => return fault,
        Error::Thrown(thrown) => thrown,
    };
    let exception = ctx.catch();
    let ours = INTERRUPTED.take().or_else(native::take_fault);
    if let Some(fault) = ours {
        return fault;
    }
    let text = match thrown {
        JsError::Exception | JsError::Unknown => described(&exception),
        JsError::Allocation => "out of memory".to_owned(),
        other => other.to_string(),
    };
    Fault::new(ErrorCode::JSInterpreterFailure, text)
}

/// An exception as text.
fn described(exception: &Value<'_>) -> String {
    let mut text = match exception.as_exception() {
        Some(exception) => {
            let name: Option<String> = exception.as_object().get("name").ok();
            let message = exception.message().unwrap_or_default();
            let stack = exception.stack().unwrap_or_default();
            let head = format!("{}: {message}", name.as_deref().unwrap_or("Error"));
            match stack.trim_end() {
                "" => head,
                stack => format!("{head} :\n{stack}"),
            }
        }
        None if exception.is_null() => "out of memory".to_owned(),
        None => match exception.get::<Coerced<String>>() {
            Ok(text) => format!("uncaught exception: {}", text.0),
            Err(_) => {
                exception.ctx().catch();
                "uncaught exception".to_owned()
            }
        },
    };
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_CHARS_MAX) {
        text.truncate(end);
    }
    text
}
