//! The map of `mapReduce`: a function that makes keys and values of each document.

use super::{Operator, Stage};
use crate::aggregate::ParseContext;
use crate::aggregate::exec::{DocSource, Fault, Source};
use crate::aggregate::groups::Groups;
use crate::expr::Parser;
use crate::script::{Script, code_of};
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// The most documents, and bytes of documents, that are passed to the function together.
const BATCH_DOCS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The stage, which only the server itself writes.
pub(super) const OPERATOR: Operator = super::stage("$_internalJsMap", parse);

/// `{$_internalJsMap: {eval: <code>, scope: <variables>}}`. Gives documents `{k: <key>, v: <value>}`.
#[derive(Debug)]
pub(crate) struct Map {
    script: Arc<dyn Script>,
}

fn parse(argument: Value<'_>, context: &ParseContext<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let spec = (argument.as_doc()).filter(|_| context.environment.internal);
    let (Some(spec), Some(code)) = (spec, spec.and_then(|spec| code_of(&spec.get("eval")?))) else {
        return Err(super::unrecognized(OPERATOR.name));
    };
    let script = Parser::new(&context.environment).script(code, spec)?;
    out.push(Stage::Map(Arc::new(Map { script })));
    Ok(())
}

pub(super) fn open<E: Fault>(stage: &Arc<Map>, input: Source<E>) -> Source<E> {
    Box::new(Mapping {
        stage: stage.clone(),
        input,
        emitted: VecDeque::new(),
    })
}

struct Mapping<E> {
    stage: Arc<Map>,
    input: Source<E>,
    /// The results of the function for the last document.
    emitted: VecDeque<DocBuf>,
}

/// Writes a key and its value as a document.
fn write(pair: &mut DocBuf, key: &Value<'_>, value: &Value<'_>) {
    pair.clear();
    pair.push_value("k", key);
    pair.push_value("v", value);
}

impl<E: Fault> Mapping<E> {
    /// The next documents, which are passed to the function together. None at the end.
    fn batch(&mut self) -> Result<Vec<DocBuf>, E> {
        let (mut docs, mut bytes) = (Vec::new(), 0);
        while docs.len() < BATCH_DOCS_MAX && bytes < BATCH_BYTES_MAX {
            let Some(doc) = self.input.next()? else {
                break;
            };
            bytes += doc.len_bytes();
            docs.push(doc);
        }
        Ok(docs)
    }
}

impl<E: Fault> DocSource<E> for Mapping<E> {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        loop {
            if let Some(pair) = self.emitted.pop_front() {
                return Ok(Some(pair));
            }
            let Some(doc) = self.input.next()? else {
                return Ok(None);
            };
            let emitted = &mut self.emitted;
            self.stage.script.map(&doc, &mut |key, value| {
                let mut pair = DocBuf::new();
                write(&mut pair, &key, &value);
                emitted.push_back(pair);
                Ok(())
            })?;
        }
    }

    fn group(&mut self, groups: &mut Groups) -> Result<(), E>
    where
        E: From<Error>,
    {
        let mut pair = DocBuf::new();
        loop {
            let docs = self.batch()?;
            if docs.is_empty() {
                return Ok(());
            }
            let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
            self.stage.script.map_all(&docs, &mut |key, value| {
                write(&mut pair, &key, &value);
                groups.add(&pair, None)
            })?;
        }
    }
}
