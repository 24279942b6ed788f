//! `$collStats` and `$indexStats`: stages that the server answers about the collection.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{ExecContext, Fault, Source};
use crate::options::{Options, Type};
use frond_bson::{DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// A stage whose documents come from the host.
#[derive(Debug)]
pub(crate) struct Describe {
    stage: &'static str,
    spec: DocBuf,
}

pub(super) fn parse(
    stage: &'static str,
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let Value::Document(spec) = argument else {
        if stage == "$collStats" {
            return Err(Error::location(
                40166,
                format!(
                    "$collStats must take a nested object but found: {}",
                    crate::display::element(stage, &argument)
                ),
            ));
        }
        return Err(Error::failed_to_parse(format!(
            "{stage} must take a nested object but found: {}",
            crate::display::element(stage, &argument)
        )));
    };
    if stage == "$indexStats" && !spec.is_empty() {
        return Err(Error::location(
            28803,
            "The $indexStats stage specification must be an empty object",
        ));
    }
    if stage == "$collStats" {
        const PARTS: [&str; 4] = ["latencyStats", "storageStats", "count", "queryExecStats"];
        let options = Options::new(stage, spec);
        options.only(&PARTS)?;
        for part in PARTS {
            options.optional(part, Type::Object)?;
        }
    }
    if stage == "$planCacheStats" {
        Options::new(stage, spec).only(&["allHosts"])?;
    }
    let mut given = DocBuf::new();
    for (name, value) in spec.iter().filter(|(_, value)| !value.is_nullish()) {
        given.push_value(name, &value);
    }
    out.push(Stage::Describe(Arc::new(Describe { stage, spec: given })));
    Ok(())
}

impl Describe {
    pub(super) fn open<E: Fault>(&self, context: &ExecContext<E>) -> Result<Source<E>, E> {
        context.host.describe(self.stage, &self.spec)
    }
}
