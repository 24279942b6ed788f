//! The nine kinds of operation of a Sysbench transaction.

use crate::system::Operation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One document by `_id`.
    Point,
    Range,
    /// The sum of `k` of 100 documents.
    Sum,
    /// `c` of 100 documents, in its order.
    Ordered,
    /// Different values of `c` of 100 documents.
    Distinct,
    /// 1 more in `k`, which is indexed.
    UpdateK,
    /// Another `c`, which is not.
    UpdateC,
    Delete,
    /// A document with the same `_id`.
    Insert,
}

/// All of them, in the order of a transaction.
pub const KINDS: [Kind; 9] = [
    Kind::Point,
    Kind::Range,
    Kind::Sum,
    Kind::Ordered,
    Kind::Distinct,
    Kind::UpdateK,
    Kind::UpdateC,
    Kind::Delete,
    Kind::Insert,
];

/// Point lookups of a transaction.
pub const POINTS: usize = 10;

/// Operations of a transaction: ten point lookups, and one of every other kind.
pub const OPERATIONS: usize = POINTS + KINDS.len() - 1;

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Point => "point lookup",
            Kind::Range => "range",
            Kind::Sum => "sum of range",
            Kind::Ordered => "ordered range",
            Kind::Distinct => "distinct range",
            Kind::UpdateK => "update of k",
            Kind::UpdateC => "update of c",
            Kind::Delete => "delete",
            Kind::Insert => "insert",
        }
    }

    /// Its place in [`KINDS`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether it works on a range of documents.
    pub fn is_range(self) -> bool {
        matches!(
            self,
            Kind::Range | Kind::Sum | Kind::Ordered | Kind::Distinct
        )
    }
}

impl From<&Operation<'_>> for Kind {
    fn from(operation: &Operation<'_>) -> Kind {
        match operation {
            Operation::Point(_) => Kind::Point,
            Operation::Range(_) => Kind::Range,
            Operation::Sum(_) => Kind::Sum,
            Operation::Ordered(_) => Kind::Ordered,
            Operation::Distinct(_) => Kind::Distinct,
            Operation::UpdateK(_) => Kind::UpdateK,
            Operation::UpdateC(..) => Kind::UpdateC,
            Operation::Delete(_) => Kind::Delete,
            Operation::Insert(_) => Kind::Insert,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_where_their_index_says() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind.index(), index, "{}", kind.name());
        }
        assert_eq!(OPERATIONS, 18);
    }
}
