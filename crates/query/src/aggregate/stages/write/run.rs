//! The end of a pipeline that writes: the host gets the documents.

use std::sync::Arc;

use super::{Write, Writing};
use crate::aggregate::exec::{Deferred, Docs, ExecContext, Fault, Source};

pub(in super::super) fn open<E: Fault>(
    stage: &Arc<Write>,
    input: Source<E>,
    context: &ExecContext<E>,
) -> Source<E> {
    let stage = stage.clone();
    let host = context.host.clone();
    let now_ms = context.now_ms;
    Box::new(Deferred::new(input, move |input: Source<E>| {
        let writing = Writing {
            write: &stage,
            now_ms,
        };
        host.write(writing, input)?;
        Ok(Box::new(Docs::new(Vec::new())) as Source<E>)
    }))
}
