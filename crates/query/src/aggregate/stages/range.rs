//! `$limit` and `$skip`.

use super::Stage;
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, Fault, Source};
use crate::display;
use crate::meta::Metadata;
use frond_bson::{DocBuf, Value};
use frond_error::{Error, Result};

pub(super) fn parse_limit(
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let count = whole("$limit", 5107201, argument)?;
    if count == 0 {
        return Err(Error::location(15958, "the limit must be positive"));
    }
    out.push(Stage::Limit(count));
    Ok(())
}

pub(super) fn parse_skip(
    argument: Value<'_>,
    _context: &ParseContext<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    out.push(Stage::Skip(whole("$skip", 5107200, argument)?));
    Ok(())
}

fn whole(stage: &str, code: i32, argument: Value<'_>) -> Result<u64> {
    let invalid = |why: &str| {
        Error::location(
            code,
            format!(
                "invalid argument to {stage} stage: {why}: {}",
                display::element(stage, &argument)
            ),
        )
    };
    if !argument.is_number() {
        return Err(invalid("Expected a number in"));
    }
    let number = argument
        .as_i64_lossless()
        .ok_or_else(|| invalid("Expected an integer"))?;
    u64::try_from(number).map_err(|_| invalid("Expected a non-negative number in"))
}

pub(super) fn limit<E: Fault>(count: u64, input: Source<E>) -> Source<E> {
    Box::new(Limit { left: count, input })
}

struct Limit<E> {
    left: u64,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Limit<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.input.next()
    }

    fn meta(&self) -> Option<&Metadata> {
        self.input.meta()
    }
}

pub(super) fn skip<E: Fault>(count: u64, input: Source<E>) -> Source<E> {
    Box::new(Skip { left: count, input })
}

struct Skip<E> {
    left: u64,
    input: Source<E>,
}

impl<E: Fault> DocSource<E> for Skip<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        while self.left > 0 {
            if self.input.next()?.is_none() {
                self.left = 0;
                return Ok(None);
            }
            self.left -= 1;
        }
        self.input.next()
    }

    fn meta(&self) -> Option<&Metadata> {
        self.input.meta()
    }
}
