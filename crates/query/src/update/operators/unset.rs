//! `$unset`.

use super::{Change, Modifier, Operator, Scope, Target};
use frond_error::Result;

/// `{$unset: {<path>: <anything>}}`.
pub(super) const UNSET: Operator = Operator {
    name: "$unset",
    parse: |argument| argument.here(Unset),
};

#[derive(Debug)]
struct Unset;

impl Modifier for Unset {
    fn modify<'a>(&'a self, _target: &Target<'a>) -> Result<Change<'a>> {
        Ok(Change::Remove)
    }

    fn creates(&self, _scope: &Scope<'_>) -> bool {
        false
    }
}
