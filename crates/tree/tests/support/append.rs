//! A merge operator that appends deltas to the value, so that one that is lost, applied twice or in another order shows.

use frond_tree::{Malformed, MergeOperator, TreeId};

pub struct Append;

impl MergeOperator for Append {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(Some([base.unwrap_or_default(), delta].concat()))
    }

    fn combine(
        &self,
        _: TreeId,
        _: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        Ok([older, newer].concat())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}
