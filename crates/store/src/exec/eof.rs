//! A plan that finds nothing, because nothing can match.

use super::describe::Describer;
use super::operator::{ExecContext, Inputs, Operator, Pulled, Sink};
use super::stats::OperatorStats;
use frond_storage::error::Result;

pub struct Eof;

impl Operator for Eof {
    fn pull(
        &mut self,
        _: &ExecContext,
        _: &mut Inputs,
        _: &mut OperatorStats,
        _: Sink<'_>,
    ) -> Result<Pulled> {
        Ok(Pulled::End)
    }

    fn name(&self, _: &Describer<'_>) -> Option<&'static str> {
        Some("EOF")
    }
}
