//! Positions in the history of a set.

use frond_bson::{DocBuf, ObjectId, Timestamp, Value, doc};

/// The time of an operation, with the term in which a primary wrote it. A later term is later, whatever the time says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpTime {
    /// The term of the primary that wrote it.
    pub term: i64,
    /// The time in the oplog.
    pub ts: Timestamp,
}

impl PartialOrd for OpTime {
    fn partial_cmp(&self, other: &OpTime) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpTime {
    fn cmp(&self, other: &OpTime) -> std::cmp::Ordering {
        (self.term, self.ts).cmp(&(other.term, other.ts))
    }
}

impl OpTime {
    /// As `{ts, t}`.
    pub fn to_doc(self) -> DocBuf {
        doc! {"ts": self.ts, "t": self.term}
    }
}

/// A position, with the wall clock of the primary when it wrote the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The operation at this position.
    pub op: OpTime,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
}

impl Position {
    pub(crate) fn date(self) -> Value<'static> {
        Value::DateTime(self.wall_ms)
    }
}

/// Identifies the election of a term. Drivers compare these, so that a later term has a larger one.
pub fn election_id(term: i64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_term_decides_before_the_time() {
        let at = |term, time| OpTime {
            term,
            ts: Timestamp { time, increment: 0 },
        };
        assert!(at(1, 9) < at(2, 1));
        assert!(at(2, 1) < at(2, 2));
    }

    #[test]
    fn a_later_election_has_a_larger_id() {
        assert!(election_id(1).0 < election_id(2).0 && election_id(255).0 < election_id(256).0);
    }
}
