//! The operations, and the answers that are right.

use std::collections::HashSet;

use crate::documents::everyday::{CITIES, Documents, GROUPS, KEYS, Numbers};
use crate::system::Condition;

/// An operation of a round, in the order in which they run. What a round deletes it inserts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    CountAll,
    CountIndexed,
    CountScanned,
    MatchIndexed,
    MatchScanned,
    TopIndexed,
    TopScanned,
    Lookup,
    GroupFew,
    GroupMany,
    DistinctIndexed,
    DistinctScanned,
    Point,
    Range,
    In,
    Skip,
    UpdateOne,
    FindAndUpdate,
    UpdateMany,
    DeleteOne,
    InsertOne,
    DeleteMany,
    InsertMany,
}

impl Step {
    pub const ALL: [Step; 23] = [
        Step::CountAll,
        Step::CountIndexed,
        Step::CountScanned,
        Step::MatchIndexed,
        Step::MatchScanned,
        Step::TopIndexed,
        Step::TopScanned,
        Step::Lookup,
        Step::GroupFew,
        Step::GroupMany,
        Step::DistinctIndexed,
        Step::DistinctScanned,
        Step::Point,
        Step::Range,
        Step::In,
        Step::Skip,
        Step::UpdateOne,
        Step::FindAndUpdate,
        Step::UpdateMany,
        Step::DeleteOne,
        Step::InsertOne,
        Step::DeleteMany,
        Step::InsertMany,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Step::CountAll => "count of all",
            Step::CountIndexed => "count of 10% by an index",
            Step::CountScanned => "count of a quarter without an index",
            Step::MatchIndexed => "$match of three conditions, one indexed",
            Step::MatchScanned => "$match of two conditions without an index",
            Step::TopIndexed => "$sort and $limit 100 by an index",
            Step::TopScanned => "$sort and $limit 100 without an index",
            Step::Lookup => "$lookup of 1,000 documents, one each",
            Step::GroupFew => "$group with 26 groups",
            Step::GroupMany => "$group with up to 100,000 groups",
            Step::DistinctIndexed => "distinct by an index, 1,000 values",
            Step::DistinctScanned => "distinct without an index, 26 values",
            Step::Point => "find by _id",
            Step::Range => "find of 1,000 _ids in a row",
            Step::In => "find of 100 _ids by $in",
            Step::Skip => "skip of 100,000, limit 10",
            Step::UpdateOne => "update of one by _id",
            Step::FindAndUpdate => "findAndModify of one by _id",
            Step::UpdateMany => "update of 1% by an index",
            Step::DeleteOne => "delete of one by _id",
            Step::InsertOne => "insert of one",
            Step::DeleteMany => "delete of 1% by an index",
            Step::InsertMany => "insert of 1,000 in a request",
        }
    }

    /// Whether it is repeated in a round, since it takes less than a millisecond.
    pub fn is_short(self) -> bool {
        matches!(
            self,
            Step::Point
                | Step::In
                | Step::UpdateOne
                | Step::FindAndUpdate
                | Step::DeleteOne
                | Step::InsertOne
        )
    }
}

const fn within(field: &'static str, from: u64, below: u64) -> Condition {
    Condition {
        field,
        from: from as i32,
        below: below as i32,
    }
}

/// A tenth of the documents.
pub const COUNTED_INDEXED: [Condition; 1] = [within("k", KEYS / 10, KEYS / 5)];
/// A quarter of them.
pub const COUNTED_SCANNED: [Condition; 1] = [within("u", 0, VALUES_QUARTER)];
pub const MATCHED_INDEXED: [Condition; 3] = [
    within("k", 77, 78),
    within("u", 0, 2 * VALUES_QUARTER),
    within("m", 0, GROUPS / 2),
];
pub const MATCHED_SCANNED: [Condition; 2] = [
    within("u", 0, VALUES_QUARTER / 2),
    within("m", 0, GROUPS / 50),
];
/// Each a hundredth of the documents.
pub const UPDATED: Condition = within("k", 500, 510);
pub const DELETED: Condition = within("k", 600, 610);

const VALUES_QUARTER: u64 = crate::documents::everyday::VALUES / 4;

/// Documents of a sort with a limit.
pub const TOP: usize = 100;

/// The right answers to all operations.
#[derive(Debug, Default)]
pub struct Model {
    pub documents: u64,
    pub counted_indexed: u64,
    pub counted_scanned: u64,
    pub matched_indexed: u64,
    pub matched_scanned: u64,
    /// The sums of the greatest `v` and `u`.
    pub top_v: u64,
    pub top_u: u64,
    pub keys: u64,
    pub cities: u64,
    pub groups: u64,
    /// The sum of all `u`.
    pub total: i64,
    pub updated: u64,
    /// The numbers of the documents that [`DELETED`] names.
    pub deleted: Vec<u64>,
}

impl Model {
    /// The answers for the first `count` documents of a source.
    pub fn new(source: &Documents, count: u64) -> Model {
        let mut model = Model {
            documents: count,
            cities: CITIES.min(count),
            ..Model::default()
        };
        let (mut keys, mut groups) = (HashSet::new(), HashSet::new());
        let (mut top_v, mut top_u) = (Vec::new(), Vec::new());
        for number in 0..count {
            let numbers = source.numbers(number);
            let holds = |conditions: &[Condition]| {
                u64::from(conditions.iter().all(|one| is_within(one, numbers)))
            };
            model.counted_indexed += holds(&COUNTED_INDEXED);
            model.counted_scanned += holds(&COUNTED_SCANNED);
            model.matched_indexed += holds(&MATCHED_INDEXED);
            model.matched_scanned += holds(&MATCHED_SCANNED);
            model.updated += holds(&[UPDATED]);
            if is_within(&DELETED, numbers) {
                model.deleted.push(number);
            }
            model.total += i64::from(numbers.u);
            keys.insert(numbers.k);
            groups.insert(numbers.m);
            top_v.push(numbers.v);
            top_u.push(numbers.u);
        }
        (model.keys, model.groups) = (keys.len() as u64, groups.len() as u64);
        (model.top_v, model.top_u) = (sum_of_top(top_v), sum_of_top(top_u));
        model
    }
}

/// The sum of the greatest values.
fn sum_of_top(mut values: Vec<i32>) -> u64 {
    values.sort_unstable_by(|a, b| b.cmp(a));
    let top = values.into_iter().take(TOP);
    top.map(|value| u64::try_from(value).unwrap_or(0)).sum()
}

fn is_within(condition: &Condition, numbers: Numbers) -> bool {
    let value = match condition.field {
        "k" => numbers.k,
        "v" => numbers.v,
        "m" => numbers.m,
        _ => numbers.u,
    };
    (condition.from..condition.below).contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_shares_of_the_documents() {
        let model = Model::new(&Documents::new(1), 100_000);
        let is_near = |found: u64, expected: u64| found.abs_diff(expected) < expected / 5;
        assert!(is_near(model.counted_indexed, 10_000), "{model:?}");
        assert!(is_near(model.counted_scanned, 25_000), "{model:?}");
        assert!(is_near(model.matched_scanned, 250), "{model:?}");
        assert!(model.matched_indexed > 5, "{model:?}");
        assert!(is_near(model.updated, 1000) && is_near(model.deleted.len() as u64, 1000));
        assert_eq!((model.keys, model.cities), (1000, 26));
        assert!(model.groups > 50_000 && model.groups < 70_000);
        assert!(model.top_v > 99_000_000 && model.top_u < 100_000_000);
    }
}
