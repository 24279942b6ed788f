//! A function as queries hold it. Each thread that calls it compiles it in its own engine.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_bson::{Doc, OwnedValue, Value as Bson};
use frond_error::Result;
use frond_query::script::{Script, ScriptSource, StoredFunctions};
use rquickjs::function::{Args, This};
use rquickjs::{Coerced, Value};

use crate::code::Code;
use crate::engine;
use crate::native::{self, Emitting, Sink};
use crate::shared::Shared;
use crate::values::write::{Error, Writer};
use crate::values::{Bytes, read};
use crate::values::{Document, Types};

pub struct Program {
    code: Code,
    /// Whether the code may use the variable `obj`.
    uses_obj: bool,
    shared: Arc<Shared>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("code", &self.code.source.code)
            .finish_non_exhaustive()
    }
}

impl Program {
    /// A function, compiled by the engine of this thread.
    ///
    /// # Errors
    /// `JSInterpreterFailure` for code that cannot be compiled.
    pub fn new(
        shared: &Arc<Shared>,
        source: ScriptSource,
        stored: Option<Arc<StoredFunctions>>,
    ) -> Result<Program> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let has_stored = stored.as_ref().is_some_and(|all| !all.is_empty());
        let mut program = Program {
            uses_obj: has_stored || source.code.contains("obj"),
            code: Code {
                id: 0,
                source: Arc::new(source),
                stored,
            },
            shared: shared.clone(),
        };
        engine::with(shared, |engine| {
            let known = engine.known(&program.code.key());
            program.code.id = known.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
            engine.compile(&program.code).map(drop)
        })?;
        Ok(program)
    }

    /// As [`Script::map`], but each key and value goes on while the function runs.
    ///
    /// # Errors
    /// Those of [`Script::map`].
    pub fn map_into(&self, doc: &Doc, sink: Sink) -> Result<()> {
        native::set_emitting(Some(Emitting::new(sink)));
        let called = engine::with(&self.shared, |engine| {
            engine.call(&self.code, |ctx, function| {
                let types = Types::get(ctx)?;
                let doc = Document::whole(doc.as_bytes().into()).object(&types)?;
                function.call::<_, Value>((This(doc),))?;
                Ok::<(), Error>(())
            })
        });
        native::set_emitting(None);
        called
    }
}

/// Appends the elements of an array to arguments.
fn push_all<'js>(args: &mut Args<'js>, array: &Doc, types: &Types<'js>) -> rquickjs::Result<()> {
    let bytes: Bytes = array.as_bytes().into();
    let ctx = args.ctx().clone();
    for value in Doc::from_trusted(&bytes).values() {
        args.push_arg(read::value(&ctx, value, &bytes, Some(types))?)?;
    }
    Ok(())
}

impl Script for Program {
    fn test(&self, doc: &Doc) -> Result<bool> {
        engine::with(&self.shared, |engine| {
            engine.call(&self.code, |ctx, function| {
                let types = Types::get(ctx)?;
                let doc = Document::whole(doc.as_bytes().into()).object(&types)?;
                if self.uses_obj {
                    ctx.globals().set("obj", doc.clone())?;
                }
                let result: Value = function.call((This(doc),))?;
                match result.as_bool() {
                    Some(is) => Ok(is),
                    None => Ok(result.get::<Coerced<bool>>()?.0),
                }
            })
        })
    }

    fn call(&self, arguments: &Doc) -> Result<OwnedValue> {
        engine::with(&self.shared, |engine| {
            engine.call(&self.code, |ctx, function| {
                let types = Types::get(ctx)?;
                let mut args = Args::new_unsized(ctx.clone());
                push_all(&mut args, arguments, &types)?;
                let result: Value = function.call_arg(args)?;
                Writer::new(ctx)?.value(result)
            })
        })
    }

    fn fold(&self, state: Bson<'_>, batch: &Doc) -> Result<OwnedValue> {
        engine::with(&self.shared, |engine| {
            engine.call(&self.code, |ctx, function| {
                let types = Types::get(ctx)?;
                let mut first = frond_bson::DocBuf::new();
                first.push_value("", &state);
                let bytes: Bytes = first.as_bytes().into();
                let state = Doc::from_trusted(&bytes).get("").unwrap_or(Bson::Undefined);
                let state = read::value(ctx, state, &bytes, Some(&types))?;
                let bytes: Bytes = batch.as_bytes().into();
                let batch = Bson::Array(Doc::from_trusted(&bytes));
                let batch = read::value(ctx, batch, &bytes, Some(&types))?;
                let result: Value = types.fold.call((function, state, batch))?;
                Writer::new(ctx)?.value(result)
            })
        })
    }

    fn map(&self, doc: &Doc, emit: &mut dyn FnMut(Bson<'_>, Bson<'_>) -> Result<()>) -> Result<()> {
        let pairs: Rc<RefCell<Vec<(OwnedValue, OwnedValue)>>> = Rc::default();
        let kept = pairs.clone();
        self.map_into(
            doc,
            Rc::new(move |key, value| kept.borrow_mut().push((key, value))),
        )?;
        for (key, value) in pairs.take() {
            emit(key.as_value(), value.as_value())?;
        }
        Ok(())
    }
}
