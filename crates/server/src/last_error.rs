//! The result of a connection's last write, for `getLastError`.
//!
//! Legacy write opcodes have no reply; clients ask with `getLastError` on the same connection. Errors of
//! such writes are kept here.

use frond_bson::{DocBuf, OwnedValue};
use frond_error::Error;

use crate::errors::truncated;

/// The effect of the last write.
#[derive(Clone, Debug, Default)]
pub struct LastError {
    /// Documents that it inserted, updated or deleted.
    pub n: i64,
    /// Whether an update matched an existing document. None after other writes.
    pub updated_existing: Option<bool>,
    /// The `_id` that an update inserted.
    pub upserted: Option<OwnedValue>,
    /// The error, if it failed.
    pub failure: Option<Error>,
    /// Number of operations since then, for `getPrevError`.
    pub age: i64,
}

impl LastError {
    /// Begins a new operation; an error of an earlier one ages.
    pub fn begin(&mut self) {
        if self.failure.is_some() {
            self.age += 1;
            self.n = 0;
            self.updated_existing = None;
            self.upserted = None;
        } else {
            *self = LastError::default();
        }
    }

    pub fn reset(&mut self) {
        *self = LastError::default();
    }

    pub fn inserted(&mut self, n: u64) {
        *self = LastError {
            n: as_i64(n),
            ..LastError::default()
        };
    }

    pub fn updated(&mut self, matched: u64, upserted: Option<OwnedValue>) {
        *self = LastError {
            n: if upserted.is_some() {
                1
            } else {
                as_i64(matched)
            },
            updated_existing: Some(upserted.is_none() && matched > 0),
            upserted,
            ..LastError::default()
        };
    }

    pub fn deleted(&mut self, n: u64) {
        *self = LastError {
            n: as_i64(n),
            ..LastError::default()
        };
    }

    /// Records an error; counts from before it are kept.
    pub fn failed(&mut self, failure: Error) {
        self.failure = Some(truncated(failure));
        self.age = 0;
    }

    /// Adds the fields of the reply to `getLastError`. Only the error of the last operation counts.
    pub fn write_reply(&self, reply: &mut DocBuf) {
        if let Some(existing) = self.updated_existing {
            reply.push("updatedExisting", existing);
        }
        if let Some(id) = &self.upserted {
            reply.push("upserted", id);
        }
        reply.push("n", i32::try_from(self.n).unwrap_or(i32::MAX));
        match &self.failure {
            Some(failure) if self.age == 0 => {
                reply.push("err", failure.message());
                reply.push("code", failure.code().code());
                reply.push("codeName", &*failure.code().name());
            }
            _ => reply.push("err", None::<i32>),
        }
    }
}

fn as_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use frond_bson::{Value, doc};

    use super::*;

    fn reply(last: &LastError) -> DocBuf {
        let mut reply = DocBuf::new();
        last.write_reply(&mut reply);
        reply
    }

    #[test]
    fn replies_of_get_last_error() {
        let mut last = LastError::default();
        assert_eq!(reply(&last), doc! {"n": 0, "err": null});
        last.inserted(3);
        assert_eq!(reply(&last), doc! {"n": 3, "err": null});
        last.updated(2, None);
        assert_eq!(
            reply(&last),
            doc! {"updatedExisting": true, "n": 2, "err": null}
        );
        last.updated(0, Some(OwnedValue::from(Value::Int32(7))));
        assert_eq!(
            reply(&last),
            doc! {"updatedExisting": false, "upserted": 7, "n": 1, "err": null}
        );
        last.begin();
        last.failed(Error::bad_value("no"));
        assert_eq!(
            reply(&last),
            doc! {"n": 0, "err": "no", "code": 2, "codeName": "BadValue"}
        );
        last.begin();
        assert_eq!(reply(&last), doc! {"n": 0, "err": null});
        assert_eq!((last.age, last.failure.is_some()), (1, true));
        last.reset();
        assert!(last.failure.is_none());
    }
}
