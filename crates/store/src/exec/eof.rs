//! A plan that finds nothing, because nothing can match.

use frond_bson::DocBuf;

use super::describe::Describer;
use super::operator::{ExecContext, OpStats, Operator, Pulled, Sink};
use crate::error::Result;

/// No rows.
pub struct Eof;

impl Operator for Eof {
    fn pull(&mut self, _: &ExecContext, _: Sink<'_>) -> Result<Pulled> {
        Ok(Pulled::End)
    }

    fn stats(&self) -> OpStats {
        OpStats {
            ended: true,
            ..OpStats::default()
        }
    }

    fn inputs(&self) -> Vec<&dyn Operator> {
        Vec::new()
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("EOF")
    }

    fn describe(&self, _: &mut DocBuf, _: &Describer<'_>) {}

    fn works(&self) -> u64 {
        0
    }
}
