//! The numbers of the statements of a retryable write.

use frond_error::{Error, ErrorCode, Result};

use crate::arguments::{Arguments, whole};

/// The number of each statement of a command: those of `stmtIds`, or consecutive numbers from
/// `stmtId` or from 0.
pub enum Statements {
    /// The number of the first.
    From(i32),
    /// The number of each.
    Listed(Vec<i32>),
}

impl Statements {
    /// Reads the fields of a command with this many statements.
    pub fn parse(args: &Arguments<'_>, count: usize) -> Result<Statements> {
        let number = |n: i64| {
            i32::try_from(n).map_err(|_| Error::bad_value("a statement id is out of range"))
        };
        match (args.array("stmtIds")?, args.i64("stmtId")?) {
            (Some(_), Some(_)) => Err(Error::new(
                ErrorCode::InvalidOptions,
                "stmtId and stmtIds cannot both be given",
            )),
            (Some(list), None) => {
                let ids: Vec<i32> = list
                    .values()
                    .map(|value| number(whole(&value)))
                    .collect::<Result<_>>()?;
                if ids.len() != count {
                    return Err(Error::new(
                        ErrorCode::InvalidLength,
                        format!("stmtIds has {} entries for {count} statements", ids.len()),
                    ));
                }
                Ok(Statements::Listed(ids))
            }
            (None, first) => Ok(Statements::From(number(first.unwrap_or(0))?)),
        }
    }

    /// The number of the statement with this index.
    pub fn id(&self, place: usize) -> i32 {
        match self {
            Statements::From(first) => {
                first.saturating_add(i32::try_from(place).unwrap_or(i32::MAX))
            }
            Statements::Listed(ids) => ids.get(place).copied().unwrap_or(-1),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    #[test]
    fn statements_are_numbered() {
        let ids = |doc: &frond_bson::DocBuf| {
            let statements = Statements::parse(&Arguments::new("insert", doc), 2)?;
            Ok::<_, Error>((statements.id(0), statements.id(1)))
        };
        assert_eq!(ids(&doc! {}).unwrap(), (0, 1));
        assert_eq!(ids(&doc! {"stmtId": 5}).unwrap(), (5, 6));
        assert_eq!(ids(&doc! {"stmtIds": [9, 3]}).unwrap(), (9, 3));
        assert_eq!(ids(&doc! {"stmtIds": [9]}).unwrap_err().code().code(), 16);
        assert_eq!(
            ids(&doc! {"stmtIds": [1, 2], "stmtId": 1})
                .unwrap_err()
                .code()
                .code(),
            72
        );
        assert_eq!(
            ids(&doc! {"stmtId": 1i64 << 40}).unwrap_err().code().code(),
            2
        );
    }
}
