//! `$accumulator`, and the reduction of `mapReduce`: states that functions of JavaScript make.

use super::{Accumulator, Operator, Plan, Start};
use crate::expr::{Context, Node, Parser, Val};
use crate::script::{Script, code_of};
use frond_bson::{ArrayBuf, Doc, MAX_DOCUMENT_BYTES, OwnedValue, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$accumulator",
        parse: |p, _, v| parse_accumulator(p, v),
    },
    Operator {
        name: "$_internalJsReduce",
        parse: |p, name, v| parse_reduce(p, name, v),
    },
];

/// Most values, and most bytes of values, that are passed to a function together.
const BATCH_VALUES_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Operators whose group state is kept by JavaScript functions.
#[derive(Debug)]
pub(crate) enum Scripted {
    /// `$accumulator`.
    Accumulator(Arc<Functions>),
    /// `mapReduce`.
    Reduce(Arc<dyn Script>),
}

/// The functions of an `$accumulator`.
#[derive(Debug)]
pub(crate) struct Functions {
    init: Arc<dyn Script>,
    initial: Node,
    accumulate: Arc<dyn Script>,
    finalize: Option<Arc<dyn Script>>,
}

impl Scripted {
    pub(super) fn begin(&self, group: &Doc, now_ms: i64) -> Result<Box<dyn Accumulator>> {
        Ok(match self {
            Scripted::Accumulator(functions) => {
                let initial = functions.initial.evaluate(&Context::new(group, now_ms))?;
                let Some(Value::Array(arguments)) = initial.get() else {
                    return Err(Error::location(
                        4544711,
                        format!(
                            "$accumulator initArgs must evaluate to an array: {}",
                            crate::display::computed(&initial.or_null())
                        ),
                    ));
                };
                Box::new(State {
                    value: functions.init.call(arguments)?,
                    functions: functions.clone(),
                    batch: Batch::default(),
                })
            }
            Scripted::Reduce(reduce) => Box::new(Reduction {
                reduce: reduce.clone(),
                key: OwnedValue::Null,
                batch: Batch::default(),
                is_reduced: false,
            }),
        })
    }
}

fn parse_accumulator(parser: &mut Parser<'_>, argument: Value<'_>) -> Result<Plan> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            4544703,
            format!(
                "$accumulator expects an object as an argument; found: {}",
                argument.type_name()
            ),
        ));
    };
    let (mut init, mut accumulate, mut merge, mut finalize) = (None, None, None, None);
    let (mut initial, mut arguments) = (None, None);
    for (name, value) in spec.iter() {
        match name {
            "init" => init = Some(function(parser, name, value)?),
            "accumulate" => accumulate = Some(function(parser, name, value)?),
            "merge" => merge = Some(function(parser, name, value)?),
            "finalize" => finalize = Some(function(parser, name, value)?),
            "initArgs" => initial = Some(parser.parse(value)?),
            "accumulateArgs" => arguments = Some(parser.parse(value)?),
            "lang" => match value {
                Value::String("js") => {}
                Value::String(_) => {
                    return Err(Error::location(
                        4544705,
                        "$accumulator only supports lang: 'js'",
                    ));
                }
                other => {
                    return Err(Error::location(
                        4544704,
                        format!(
                            "$accumulator lang must be a string; found: {}",
                            other.type_name()
                        ),
                    ));
                }
            },
            other => {
                return Err(Error::location(
                    4544706,
                    format!("$accumulator got an unexpected field: {other}"),
                ));
            }
        }
    }
    let missing = |name: &str, code: i32| {
        Error::location(
            code,
            format!("$accumulator missing required argument '{name}'"),
        )
    };
    let init = init.ok_or_else(|| missing("init", 4544707))?;
    let accumulate = accumulate.ok_or_else(|| missing("accumulate", 4544708))?;
    let merge = merge.ok_or_else(|| missing("merge", 4544709))?;
    let input = arguments.ok_or_else(|| missing("accumulateArgs", 4544710))?;
    // All documents of a group are accumulated in one place, so states are never merged. The function is compiled as the
    // others are, so that one that cannot be is refused.
    parser.script(merge, Doc::empty())?;
    let finalize = finalize.map(|code| parser.script(code, Doc::empty()));
    Ok(Plan {
        input,
        start: Start::Scripted(Scripted::Accumulator(Arc::new(Functions {
            init: parser.script(init, Doc::empty())?,
            initial: initial.unwrap_or_else(|| {
                Node::Constant(OwnedValue::Array(ArrayBuf::new().into_docbuf()))
            }),
            accumulate: parser.script(accumulate, Doc::empty())?,
            finalize: finalize.transpose()?,
        }))),
    })
}

/// The code of one of the functions.
fn function(parser: &mut Parser<'_>, name: &str, value: Value<'_>) -> Result<String> {
    let Node::Constant(value) = parser.parse(value)? else {
        return Err(Error::location(
            4544701,
            format!("$accumulator '{name}' must be a constant expression"),
        ));
    };
    code_of(&value.as_value()).ok_or_else(|| {
        Error::location(
            4544702,
            format!("$accumulator '{name}' must be a String or Code"),
        )
    })
}

/// `{$_internalJsReduce: {data: <expression>, eval: <code>, scope: <variables>}}` over documents `{k: <key>, v: <value>}`.
fn parse_reduce(parser: &mut Parser<'_>, name: &str, argument: Value<'_>) -> Result<Plan> {
    let spec = (argument.as_doc()).filter(|_| parser.environment().internal);
    let (Some(spec), Some(data), Some(code)) = (
        spec,
        spec.and_then(|spec| spec.get("data")),
        spec.and_then(|spec| code_of(&spec.get("eval")?)),
    ) else {
        return Err(Error::location(
            15952,
            format!("unknown group operator '{name}'"),
        ));
    };
    Ok(Plan {
        input: parser.parse(data)?,
        start: Start::Scripted(Scripted::Reduce(parser.script(code, spec)?)),
    })
}

/// Values that wait for their function.
#[derive(Default)]
struct Batch {
    values: ArrayBuf,
    /// The most bytes that the state had so far.
    bytes_max: usize,
}

impl Batch {
    fn push(&mut self, value: &Value<'_>) {
        self.values.push_value(value);
    }

    fn bytes(&self) -> usize {
        self.values.as_doc().len_bytes()
    }

    fn is_full(&self) -> bool {
        self.values.len() >= BATCH_VALUES_MAX || self.bytes() >= BATCH_BYTES_MAX
    }

    fn take(&mut self) -> ArrayBuf {
        std::mem::take(&mut self.values)
    }

    /// By how much the state grew, which has `bytes` beside the batch.
    fn growth(&mut self, bytes: usize) -> usize {
        let now = bytes + self.bytes();
        let grown = now.saturating_sub(self.bytes_max);
        self.bytes_max += grown;
        grown
    }
}

/// The state of an `$accumulator`.
struct State {
    functions: Arc<Functions>,
    value: OwnedValue,
    /// Arguments, array by array.
    batch: Batch,
}

impl Accumulator for State {
    fn add(&mut self, value: &Val<'_>, _context: &Context<'_>) -> Result<usize> {
        let Some(arguments @ Value::Array(_)) = value.get() else {
            return Err(Error::location(
                4544712,
                format!(
                    "$accumulator accumulateArgs must evaluate to an array: {}",
                    crate::display::computed(&value.or_null())
                ),
            ));
        };
        self.batch.push(&arguments);
        if self.batch.is_full() {
            let batch = self.batch.take();
            let state = self.value.as_value();
            self.value = self.functions.accumulate.fold(state, batch.as_doc())?;
        }
        Ok(self.batch.growth(self.value.as_value().len_bytes()))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        let state = if self.batch.values.is_empty() {
            self.value.clone()
        } else {
            let batch = self.batch.values.as_doc();
            (self.functions.accumulate).fold(self.value.as_value(), batch)?
        };
        let Some(finalize) = &self.functions.finalize else {
            return Ok(Some(state));
        };
        let mut arguments = ArrayBuf::new();
        arguments.push_value(&state.as_value());
        finalize.call(arguments.as_doc()).map(Some)
    }
}

/// The values of a key, of which a function makes one.
struct Reduction {
    reduce: Arc<dyn Script>,
    key: OwnedValue,
    batch: Batch,
    /// Whether all values so far are reduced to the one of the batch.
    is_reduced: bool,
}

impl Reduction {
    /// Calls the function with several values of the key.
    fn call(&self, values: &Doc) -> Result<OwnedValue> {
        let mut arguments = ArrayBuf::new();
        arguments.push_value(&self.key.as_value());
        arguments.push_value(&Value::Array(values));
        self.reduce.call(arguments.as_doc())
    }
}

impl Accumulator for Reduction {
    fn add(&mut self, value: &Val<'_>, context: &Context<'_>) -> Result<usize> {
        if self.batch.values.is_empty() {
            self.key = context.root.get("k").unwrap_or(Value::Null).to_owned();
        }
        let value = value.or_null();
        let bytes = value.len_bytes() + self.key.as_value().len_bytes();
        if self.batch.bytes() + bytes > MAX_DOCUMENT_BYTES {
            if self.batch.values.len() < 2 {
                return Err(Error::location(31392, "Value too large to reduce"));
            }
            self.shrink()?;
        }
        self.batch.push(&value);
        self.is_reduced = false;
        if self.batch.is_full() {
            self.shrink()?;
        }
        Ok(self.batch.growth(0))
    }

    fn result(&self) -> Result<Option<OwnedValue>> {
        let values = self.batch.values.as_doc();
        match values.values().next() {
            Some(only) if self.is_reduced => Ok(Some(only.to_owned())),
            _ => self.call(values).map(Some),
        }
    }
}

impl Reduction {
    /// Reduces the values to one.
    fn shrink(&mut self) -> Result<()> {
        let values = self.batch.take();
        let reduced = self.call(values.as_doc())?;
        self.batch.push(&reduced.as_value());
        self.is_reduced = true;
        Ok(())
    }
}
