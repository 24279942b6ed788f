//! Marks: which part of the log belongs to which moment.

use crate::record::{Header, Kind};

/// Commits before `time` lie before `position` in the log; commits after `until` lie behind it. Times
/// are in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The beginning of the moment.
    pub time: i64,
    /// The end of the moment.
    pub until: i64,
    /// The position in the log.
    pub position: u64,
    /// The newest timestamp of the oplog, if there is an oplog.
    pub stamp: Option<u64>,
}

impl Mark {
    /// The mark in a record.
    pub fn read(header: &Header, body: &[u8]) -> Mark {
        let [time, position, until] = header.numbers;
        let stamp = body
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes));
        Mark {
            time: time.cast_signed(),
            until: until.cast_signed(),
            position,
            stamp,
        }
    }

    pub fn record(&self) -> (Header, Vec<u8>) {
        let body = self.stamp.map(|stamp| stamp.to_le_bytes().to_vec());
        let body = body.unwrap_or_default();
        let (time, until) = (self.time.cast_unsigned(), self.until.cast_unsigned());
        let header = Header::new(Kind::Mark, [time, self.position, until], &body);
        (header, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_written_and_read() {
        for stamp in [None, Some(7 << 32 | 3)] {
            let mark = Mark {
                time: -5,
                until: 1_790_000_000_000,
                position: 9,
                stamp,
            };
            let (header, body) = mark.record();
            assert!(header.fits(&body));
            assert_eq!(Mark::read(&header, &body), mark);
        }
    }
}
