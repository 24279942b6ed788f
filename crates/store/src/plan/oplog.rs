//! Reading the oplog: its entries are in the order of their timestamps, so conditions on `ts` are bounds.

use frond_bson::{Timestamp, Value, key};
use frond_query::matcher::{Expr, Leaf, Op, Relation};

use super::query::{Query, find_hinted, hinted_scan};
use super::{Access, Plan};
use crate::catalog::Collection;
use crate::oplog::Oplog;
use frond_storage::error::Result;
use frond_storage::keyspace::{Direction, TreeId};

/// Entries of the oplog, by their timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OplogAccess {
    /// The tree of the entries.
    pub tree: TreeId,
    pub low: Option<u64>,
    pub high: Option<u64>,
    /// The greatest timestamp that is durable; later entries are not read.
    pub durable: u64,
    pub direction: Direction,
}

/// Bounds of a timestamp, inclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBounds {
    pub low: Option<u64>,
    pub high: Option<u64>,
    /// Whether no timestamp is inside.
    pub is_empty: bool,
}

impl TimeBounds {
    /// The bounds that a filter sets to `ts`, in its own conditions and in those of `$and`.
    pub fn from_filter(filter: &Expr) -> TimeBounds {
        let mut bounds = TimeBounds::default();
        bounds.restrict(filter);
        let (low, high) = (bounds.low.unwrap_or(0), bounds.high.unwrap_or(u64::MAX));
        bounds.is_empty |= low > high;
        bounds
    }

    pub fn access(self, tree: TreeId, durable: u64, direction: Direction) -> OplogAccess {
        let (low, high) = if self.is_empty {
            (Some(u64::MAX), Some(0))
        } else {
            (self.low, self.high)
        };
        OplogAccess {
            tree,
            low,
            high,
            durable,
            direction,
        }
    }

    fn restrict(&mut self, filter: &Expr) {
        let Expr::Leaf(Leaf { path, op }) = filter else {
            if let Expr::And(all) = filter {
                all.iter().for_each(|one| self.restrict(one));
            }
            return;
        };
        if path.as_str() != "ts" {
            return;
        }
        match op {
            Op::Compare(comparison) => {
                if let Value::Timestamp(time) = comparison.value() {
                    self.compare(comparison.relation(), time);
                }
            }
            Op::In(set) if set.patterns().is_empty() => {
                let times = set.values().iter().map(|value| match value.as_value() {
                    Value::Timestamp(time) => Some(time.to_u64()),
                    _ => None,
                });
                if let Some(times) = times.collect::<Option<Vec<u64>>>()
                    && let (Some(low), Some(high)) = (times.iter().min(), times.iter().max())
                {
                    self.at_least(*low);
                    self.at_most(*high);
                }
            }
            _ => {}
        }
    }

    fn compare(&mut self, relation: Relation, time: Timestamp) {
        let time = time.to_u64();
        match relation {
            Relation::Eq => {
                self.at_least(time);
                self.at_most(time);
            }
            Relation::Gte => self.at_least(time),
            Relation::Lte => self.at_most(time),
            Relation::Gt => match time.checked_add(1) {
                Some(time) => self.at_least(time),
                None => self.is_empty = true,
            },
            Relation::Lt => match time.checked_sub(1) {
                Some(time) => self.at_most(time),
                None => self.is_empty = true,
            },
        }
    }

    fn at_least(&mut self, time: u64) {
        self.low = Some(self.low.map_or(time, |low| low.max(time)));
    }

    fn at_most(&mut self, time: u64) {
        self.high = Some(self.high.map_or(time, |high| high.min(time)));
    }
}

/// Plans a query of the oplog. It has no index; its order is that of `ts`.
///
/// # Errors
/// `BadValue` (2) for a hint other than `$natural`.
pub(super) fn plan(collection: &Collection, oplog: &Oplog, query: &Query<'_>) -> Result<Plan> {
    let hinted = match hinted_scan(query)? {
        Some(Access::CollScan(direction)) => Some(direction),
        _ => None,
    };
    if let Some(hint) = query.hint
        && hinted.is_none()
    {
        find_hinted(collection, hint)?;
    }
    let mut fields = query.sort.fields();
    let by_time = match (fields.next(), fields.next()) {
        (Some((path, key::Direction::Ascending)), None) if path.as_str() == "ts" => {
            Some(Direction::Forward)
        }
        (Some((path, key::Direction::Descending)), None) if path.as_str() == "ts" => {
            Some(Direction::Backward)
        }
        _ => None,
    };
    let direction = hinted.or(by_time).unwrap_or(Direction::Forward);
    let bounds = TimeBounds::from_filter(query.filter.predicates());
    let sorted = query.sort.is_empty() || by_time == Some(direction);
    let access = if bounds.is_empty {
        Access::Eof
    } else {
        Access::Oplog(bounds.access(collection.primary, oplog.durable(), direction))
    };
    Ok(Plan {
        access,
        sorted: sorted || bounds.is_empty,
        rejected: Vec::new(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::{Doc, doc};
    use frond_query::matcher::Filter;

    use super::*;

    fn at(seconds: u64, counter: u64) -> Timestamp {
        Timestamp::from_u64(seconds << 32 | counter)
    }

    fn bounds(filter: &Doc) -> (Option<u64>, Option<u64>, bool) {
        let filter = Filter::parse(filter).unwrap();
        let bounds = TimeBounds::from_filter(filter.predicates());
        (bounds.low, bounds.high, bounds.is_empty)
    }

    #[test]
    fn conditions_on_the_time_are_bounds() {
        let time = |seconds: u64, counter: u64| Some(seconds << 32 | counter);
        for (filter, low, high, is_empty) in [
            (doc! {}, None, None, false),
            (doc! {"ts": at(5, 1)}, time(5, 1), time(5, 1), false),
            (doc! {"ts": {"$gt": at(5, 1)}}, time(5, 2), None, false),
            (
                doc! {"ts": {"$gt": at(5, 0xFFFF_FFFF)}},
                time(6, 0),
                None,
                false,
            ),
            (
                doc! {"ts": {"$gte": at(5, 1), "$lt": at(7, 0)}},
                time(5, 1),
                time(6, 0xFFFF_FFFF),
                false,
            ),
            (
                doc! {"$and": [{"ts": {"$gt": at(5, 1)}}, {"ts": {"$lte": at(9, 1)}}, {"ns": "a"}]},
                time(5, 2),
                time(9, 1),
                false,
            ),
            (
                doc! {"ts": {"$in": [at(9, 1), at(5, 1)]}},
                time(5, 1),
                time(9, 1),
                false,
            ),
            (doc! {"ts": {"$in": [at(9, 1), 5]}}, None, None, false),
            (
                doc! {"ts": {"$gt": at(5, 1), "$lt": at(5, 1)}},
                time(5, 2),
                time(5, 0),
                true,
            ),
            (doc! {"ts": {"$lt": at(0, 0)}}, None, None, true),
            (doc! {"ts": {"$gt": 5}}, None, None, false),
            (
                doc! {"$or": [{"ts": at(5, 1)}, {"ns": "a"}]},
                None,
                None,
                false,
            ),
            (doc! {"ts": {"$ne": at(5, 1)}}, None, None, false),
            (doc! {"o.ts": at(5, 1)}, None, None, false),
        ] {
            assert_eq!(bounds(&filter), (low, high, is_empty), "{filter:?}");
        }
    }
}
