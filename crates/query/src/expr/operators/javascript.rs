//! `$function`, and the condition that a `$where` is: functions of JavaScript.

use super::{Entry, Eval, Operator, custom};
use crate::expr::node::{Context, CustomOperator, FieldPath, Node};
use crate::expr::parse::Parser;
use crate::expr::value::Val;
use crate::script::{Script, ScriptSource, code_of};
use frond_bson::{Doc, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

pub(super) const OPERATORS: &[Entry] = &[custom("$function", parse_function, Eval::Never)];

/// `{$function: {body: <code>, args: [<expression>, ..], lang: "js"}}`.
#[derive(Debug)]
struct Function {
    script: Arc<dyn Script>,
    arguments: Node,
}

/// The code of a function, which may be written as a constant expression.
fn constant_code(parser: &mut Parser<'_>, value: Value<'_>) -> Result<Option<String>> {
    match parser.parse(value)? {
        Node::Constant(value) => code_of(&value.as_value()).map(Some).ok_or_else(|| {
            Error::location(
                31262,
                "The body function must evaluate to type string or code",
            )
        }),
        _ => Ok(None),
    }
}

fn parse_function(
    parser: &mut Parser<'_>,
    _operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(spec) = argument else {
        return Err(Error::location(
            31260,
            format!(
                "$function requires an object as an argument, found: {}",
                argument.type_name()
            ),
        ));
    };
    let field = |name: &str, code: i32, message: &'static str| {
        spec.get(name).ok_or_else(|| Error::location(code, message))
    };
    let body = field("body", 31261, "The body function must be specified.")?;
    let code = constant_code(parser, body)?
        .ok_or_else(|| Error::location(31432, "The body function must be a constant expression"))?;
    let arguments = field("args", 31263, "The args field must be specified.")?;
    let arguments = parser.parse(arguments)?;
    if field("lang", 31418, "The lang field must be specified.")?.as_str() != Some("js") {
        return Err(Error::location(
            31419,
            "Currently the only supported language specifier is 'js'.",
        ));
    }
    let script = parser.script(code, spec)?;
    Ok(Node::Custom(Box::new(Function { script, arguments })))
}

impl CustomOperator for Function {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        let arguments = self.arguments.eval(context)?;
        let Some(Value::Array(arguments)) = arguments.get() else {
            return Err(Error::location(
                31266,
                "The args field must be of type array",
            ));
        };
        Ok(Val::Owned(self.script.call(arguments)?))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.arguments);
    }
}

impl Parser<'_> {
    /// The script of a function. What the server writes for itself may name variables that it sees, in the field `scope`
    /// of its specification, and sees the functions that are stored in the database.
    pub(crate) fn script(&self, code: String, spec: &Doc) -> Result<Arc<dyn Script>> {
        let environment = self.environment();
        let scope = spec.get_doc("scope").filter(|_| environment.internal);
        environment.scripts.script(ScriptSource {
            code,
            scope: scope.map(Doc::to_owned),
            stored_functions: environment.internal,
        })
    }
}

/// A condition on the whole document.
#[derive(Debug)]
struct Condition {
    script: Arc<dyn Script>,
    whole: Node,
}

/// The node of a condition.
pub(crate) fn condition(script: Arc<dyn Script>) -> Node {
    Node::Custom(Box::new(Condition {
        script,
        whole: Node::Root(FieldPath::default()),
    }))
}

impl CustomOperator for Condition {
    fn eval<'a>(&'a self, context: &Context<'a>) -> Result<Val<'a>> {
        Ok(self.script.test(context.root)?.into())
    }

    fn visit(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.whole);
    }
}
