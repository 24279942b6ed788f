//! Measures the time of an operator, without that of the operators above it.

use std::time::{Duration, Instant};

use frond_bson::DocBuf;

use super::describe::Describer;
use super::operator::{ExecContext, OpStats, Operator, Pulled, Sink};
use crate::error::Result;

/// An operator whose time is measured, with that of its inputs. Only `explain` uses it.
pub struct Timed {
    inner: Box<dyn Operator>,
    time: Duration,
}

impl Timed {
    /// Measures the time of an operator.
    pub fn new(inner: Box<dyn Operator>) -> Timed {
        Timed {
            inner,
            time: Duration::ZERO,
        }
    }
}

impl Operator for Timed {
    fn pull(&mut self, cx: &ExecContext, sink: Sink<'_>) -> Result<Pulled> {
        let start = Instant::now();
        let mut of_consumer = Duration::ZERO;
        let pulled = self.inner.pull(cx, &mut |row| {
            let start = Instant::now();
            let flow = sink(row);
            of_consumer += start.elapsed();
            flow
        });
        self.time += start.elapsed().saturating_sub(of_consumer);
        pulled
    }

    fn stats(&self) -> OpStats {
        OpStats {
            time: self.time,
            ..self.inner.stats()
        }
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        self.inner.inputs()
    }

    fn name(&self, describer: &Describer<'_>) -> Option<&'static str> {
        self.inner.name(describer)
    }

    fn describe(&self, stage: &mut DocBuf, describer: &Describer<'_>) {
        self.inner.describe(stage, describer);
    }

    fn works(&self) -> u64 {
        self.inner.works()
    }
}
