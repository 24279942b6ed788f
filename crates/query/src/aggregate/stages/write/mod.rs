//! `$out` and `$merge`: the host writes the results of the pipeline.

mod run;
mod spec;

use super::Stage;
use crate::aggregate::ParseContext;
use crate::expr::{Context, MISSING, Node, Parser, check_variable_name};
use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};
pub(super) use run::open;
pub use spec::{Merge, Out, WhenMatched, WhenNotMatched};
use std::sync::Arc;

/// A stage that writes to a collection.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) stage: &'static str,
    target: WriteTarget,
    /// The variables of `$merge`.
    bindings: Vec<(String, Node)>,
    /// Values of the command's `let`.
    outer: Option<DocBuf>,
    collator: Collator,
}

/// The target of a stage that writes, and its options.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteTarget {
    /// `$out`.
    Out(Out),
    /// `$merge`.
    Merge(Merge),
}

/// The argument of [`super::Host::write`].
#[derive(Clone, Copy, Debug)]
pub struct Writing<'w> {
    write: &'w Write,
    now_ms: i64,
}

impl<'w> Writing<'w> {
    /// `$out` or `$merge`.
    pub fn stage(&self) -> &'static str {
        self.write.stage
    }

    /// The argument of the stage.
    pub fn target(&self) -> &'w WriteTarget {
        &self.write.target
    }

    /// The collation of the pipeline.
    pub fn collator(&self) -> &'w Collator {
        &self.write.collator
    }

    /// The variables of the pipeline that merges a document: `new` is the document itself.
    ///
    /// # Errors
    /// Those of their expressions.
    pub fn variables(&self, doc: &Doc) -> Result<DocBuf> {
        let context = Context::new(doc, self.now_ms);
        let mut variables = doc! {"new": doc};
        for (name, node) in &self.write.bindings {
            let value = node.evaluate(&context)?;
            variables.push_value(name, &value.get().unwrap_or(MISSING));
        }
        // Inner names hide outer ones, which come later.
        if let Some(outer) = &self.write.outer {
            variables.push_all(outer);
        }
        Ok(variables)
    }
}

pub(super) fn parse(
    stage: &'static str,
    argument: Value<'_>,
    context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let target = match stage {
        "$out" => WriteTarget::Out(Out::parse(argument)?),
        _ => WriteTarget::Merge(Merge::parse(argument)?),
    };
    let mut parser = Parser::new(&context.environment);
    let mut bindings = Vec::new();
    let variables = argument.as_doc().and_then(|spec| spec.get_doc("let"));
    for (name, value) in variables.unwrap_or(Doc::empty()).iter() {
        if name == "new" {
            if value.as_str() == Some("$$ROOT") {
                continue;
            }
            return Err(Error::location(
                51273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
            ));
        }
        check_variable_name(name)?;
        bindings.push((name.to_owned(), parser.parse(value)?));
    }
    out.push(Stage::Write(Arc::new(Write {
        stage,
        target,
        bindings,
        outer: context.environment.variables.map(Doc::to_owned),
        collator: context.environment.collator.clone(),
    })));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::aggregate::Pipeline;
    use crate::environment::Environment;
    use frond_bson::array;

    fn parsed(stage: &str, argument: &Value<'_>) -> std::result::Result<(), (i32, String)> {
        let mut spec = DocBuf::new();
        spec.push_value(stage, argument);
        let pipeline = array![&spec];
        match Pipeline::parse(&pipeline, &Environment::default()) {
            Ok(_) => Ok(()),
            Err(error) => Err((error.code().code(), error.message().to_owned())),
        }
    }

    #[test]
    fn arguments_of_merge_are_checked() {
        for spec in [
            doc! {"into": "c"},
            doc! {"into": {"db": "d", "coll": "c"}, "on": "a", "whenMatched": "replace"},
            doc! {"into": {"db": null, "coll": "c"}, "on": ["a.b", "_id"]},
            doc! {"into": "c", "let": null, "whenNotMatched": null},
            doc! {"into": "c", "let": {"x": 1, "new": "$$ROOT"}, "whenMatched": [{"$set": {"a": 1}}]},
            doc! {"into": "c", "whenMatched": "keepExisting", "whenNotMatched": "insert"},
        ] {
            assert_eq!(
                parsed("$merge", &Value::Document(&spec)),
                Ok(()),
                "{spec:?}"
            );
        }
        for (spec, code, part) in [
            (doc! {}, 40414, "'$merge.into' is missing"),
            (doc! {"into": 1}, 51178, "but found int"),
            (doc! {"into": null}, 51178, "but found null"),
            (doc! {"into": ""}, 5786800, "cannot be an empty string"),
            (doc! {"into": {"db": "d"}}, 5786801, "must specify a 'coll'"),
            (
                doc! {"into": {"coll": ""}},
                5786801,
                "must specify a 'coll'",
            ),
            (
                doc! {"into": {"coll": "c", "x": 1}},
                40415,
                "'into.x' is an unknown field",
            ),
            (
                doc! {"into": {"coll": 1}},
                14,
                "'into.coll' is the wrong type 'int'",
            ),
            (
                doc! {"into": "c", "x": 1},
                40415,
                "'$merge.x' is an unknown field",
            ),
            (
                doc! {"into": "c", "let": 1},
                14,
                "'$merge.let' is the wrong type 'int'",
            ),
            (
                doc! {"into": "c", "let": {"x": 1}},
                51199,
                "'whenMatched: merge' mode",
            ),
            (
                doc! {"into": "c", "let": {"new": 1}, "whenMatched": []},
                51273,
                "reserved 'new'",
            ),
            (
                doc! {"into": "c", "let": {"X": 1}, "whenMatched": []},
                9,
                "'X' starts with an invalid character",
            ),
            (doc! {"into": "c", "on": []}, 51187, "at least one field"),
            (doc! {"into": "c", "on": 1}, 51186, "but found int"),
            (doc! {"into": "c", "on": null}, 51186, "but found null"),
            (doc! {"into": "c", "on": ["a", 1]}, 51134, "but found int"),
            (
                doc! {"into": "c", "on": ["a", "b", "a"]},
                31465,
                "duplicate field 'a'",
            ),
            (doc! {"into": "c", "on": ""}, 40352, "empty string"),
            (doc! {"into": "c", "on": "a."}, 40353, "end with a '.'"),
            (doc! {"into": "c", "whenMatched": 1}, 51191, "but found int"),
            (
                doc! {"into": "c", "whenMatched": "x"},
                2,
                "'x' for field 'whenMatched'",
            ),
            (
                doc! {"into": "c", "whenMatched": "pipeline"},
                2,
                "'pipeline' for field 'whenMatched'",
            ),
            (
                doc! {"into": "c", "whenMatched": [1]},
                14,
                "must be an object",
            ),
            (
                doc! {"into": "c", "whenNotMatched": 1},
                14,
                "expected type 'string'",
            ),
            (
                doc! {"into": "c", "whenNotMatched": "x"},
                2,
                "'x' for field '$merge.whenNotMatched'",
            ),
            (
                doc! {"into": "c", "whenMatched": "keepExisting", "whenNotMatched": "fail"},
                51181,
                "'whenMatched: keepExisting' and 'whenNotMatched: fail'",
            ),
        ] {
            let (found, message) = parsed("$merge", &Value::Document(&spec)).unwrap_err();
            assert_eq!(found, code, "{spec:?}: {message}");
            assert!(message.contains(part), "{spec:?}: {message}");
        }
        let mut twice = doc! {"into": "c"};
        twice.push("into", "d");
        assert_eq!(
            parsed("$merge", &Value::Document(&twice)).unwrap_err().0,
            40413
        );
        assert_eq!(parsed("$merge", &Value::Int32(1)).unwrap_err().0, 14);
    }

    #[test]
    fn arguments_of_out_are_checked() {
        for spec in [
            doc! {"db": "d", "coll": "c"},
            doc! {"db": "d", "coll": "c", "timeseries": null},
            doc! {"db": "d", "coll": "c", "timeseries": {"timeField": "t"}},
        ] {
            assert_eq!(parsed("$out", &Value::Document(&spec)), Ok(()), "{spec:?}");
        }
        for (spec, code) in [
            (doc! {"coll": "c"}, 40414),
            (doc! {"db": "d"}, 40414),
            (doc! {"db": "d", "coll": null}, 40414),
            (doc! {"db": "d", "coll": 1}, 14),
            (doc! {"db": "d", "coll": "c", "x": 1}, 40415),
            (doc! {"db": "d", "coll": "c", "timeseries": 1}, 14),
        ] {
            let (found, message) = parsed("$out", &Value::Document(&spec)).unwrap_err();
            assert_eq!(found, code, "{spec:?}: {message}");
        }
        assert_eq!(parsed("$out", &Value::String("c")), Ok(()));
        assert_eq!(parsed("$out", &Value::Bool(true)).unwrap_err().0, 16990);
    }
}
