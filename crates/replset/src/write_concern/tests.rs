#![allow(clippy::unwrap_used)]

use frond_bson::doc;

use super::*;

/// Voters 0, 1 and 2 in two data centres, learners 3 and 4.
pub(crate) fn five() -> SetConfig {
    SetConfig::parse(&doc! {
        "_id": "rs0",
        "members": [
            {"_id": 0, "host": "a", "tags": {"dc": "east", "disk": "ssd"}},
            {"_id": 1, "host": "b", "tags": {"dc": "east"}},
            {"_id": 2, "host": "c", "tags": {"dc": "west"}},
            {"_id": 3, "host": "d", "tags": {"dc": "south"}, "priority": 0, "votes": 0, "hidden": true},
            {"_id": 4, "host": "e", "priority": 0, "votes": 0},
        ],
        "settings": {"getLastErrorModes": {
            "two": {"dc": 2}, "ssd": {"disk": 1}, "both": {"dc": 2, "disk": 1}, "four": {"dc": 4}, "any": {},
        }},
    })
    .unwrap()
}

fn mode(name: &str) -> Wanted {
    Wanted::Mode(name.to_owned())
}

fn tags(tags: &[(&str, i64)]) -> Wanted {
    Wanted::Tags(
        tags.iter()
            .map(|(tag, n)| ((*tag).to_owned(), *n))
            .collect(),
    )
}

/// See the manual on write concerns and on `getLastErrorModes`.
#[test]
fn acknowledgments_count() {
    let config = five();
    for (wanted, acknowledged, holds) in [
        (Wanted::Members(0), &[0][..], true),
        (Wanted::Members(1), &[0], true),
        (Wanted::Members(1), &[], false),
        (Wanted::Members(2), &[0], false),
        (Wanted::Members(2), &[0, 3], true),
        (Wanted::Members(5), &[0, 1, 2, 3], false),
        (Wanted::Members(5), &[0, 1, 2, 3, 4], true),
        (Wanted::Majority, &[0], false),
        (Wanted::Majority, &[0, 3, 4], false),
        (Wanted::Majority, &[0, 2], true),
        (mode("two"), &[0, 1], false),
        (mode("two"), &[0, 2], true),
        (mode("two"), &[0, 3], true),
        (mode("two"), &[0, 4], false),
        (mode("ssd"), &[1, 2], false),
        (mode("ssd"), &[0], true),
        (mode("both"), &[0, 2], true),
        (mode("both"), &[1, 2], false),
        (mode("any"), &[0], true),
        (tags(&[("dc", 3)]), &[0, 1, 2], false),
        (tags(&[("dc", 3)]), &[0, 2, 3], true),
        (tags(&[("dc", 0)]), &[0], true),
    ] {
        let outcome = wanted.outcome(&config, |member| Acknowledged(acknowledged).has(member));
        let expected = if holds {
            Outcome::Holds
        } else {
            Outcome::Waits
        };
        assert_eq!(outcome, expected, "{wanted:?} {acknowledged:?}");
    }
}

#[test]
fn concerns_that_never_hold() {
    let few = "Not enough data-bearing nodes";
    for (wanted, code, message) in [
        (Wanted::Members(6), 100, few),
        (mode("four"), 100, few),
        (tags(&[("dc", 4)]), 100, few),
        (tags(&[("rack", 1)]), 100, few),
        (
            mode("x"),
            79,
            "No write concern mode named 'x' found in replica set configuration",
        ),
    ] {
        let error = wanted.check(&five()).unwrap_err();
        assert_eq!((error.code().code(), error.message()), (code, message));
        let outcome = wanted.outcome(&five(), |_| true);
        assert_eq!(outcome, Outcome::Never(error), "{wanted:?}");
    }
}

#[test]
fn the_position_that_enough_members_have() {
    let config = five();
    // Of members 0 to 4; none is known of the last.
    let positions = [Some(9), Some(5), Some(7), Some(8), None];
    for (wanted, expected) in [
        (Wanted::Members(0), Some(9)),
        (Wanted::Members(1), Some(9)),
        (Wanted::Members(2), Some(8)),
        (Wanted::Members(4), Some(5)),
        (Wanted::Members(5), None),
        (Wanted::Majority, Some(7)),
        (mode("two"), Some(8)),
        (tags(&[("dc", 3)]), Some(7)),
        (mode("any"), Some(9)),
    ] {
        let reached = wanted.reached(&config, |member| positions[member.id as usize]);
        assert_eq!(reached, Ok(expected), "{wanted:?}");
    }
}

#[test]
fn majorities() {
    for (voters, learners, expected) in [
        (1, 0, 1),
        (2, 0, 2),
        (3, 0, 2),
        (3, 4, 2),
        (4, 0, 3),
        (7, 3, 4),
    ] {
        let mut config = five();
        let member = config.members[0].clone();
        config.members = (0..voters + learners)
            .map(|id| Member {
                id,
                is_voter: id < voters,
                ..member.clone()
            })
            .collect();
        assert_eq!(
            (config.voters(), config.majority()),
            (voters as usize, expected)
        );
    }
}

#[test]
fn a_w_is_read() {
    let tagged = doc! {"dc": 2};
    for (w, expected) in [
        (Value::Int32(0), Wanted::Members(0)),
        (Value::Double(2.9), Wanted::Members(2)),
        (Value::Int64(50), Wanted::Members(50)),
        (Value::String("majority"), Wanted::Majority),
        (Value::String("two"), mode("two")),
        (Value::Document(&tagged), tags(&[("dc", 2)])),
    ] {
        assert_eq!(Wanted::parse(&w).unwrap(), expected);
    }
    let (empty, wrong) = (doc! {}, doc! {"dc": "x"});
    for (w, message) in [
        (
            Value::Int32(51),
            "w has to be a non-negative number and not greater than 50; found: 51",
        ),
        (
            Value::Int32(-1),
            "w has to be a non-negative number and not greater than 50; found: -1",
        ),
        (Value::Double(f64::NAN), "w cannot be NaN"),
        (
            Value::Bool(true),
            "w has to be a number, string, or object; found: bool",
        ),
        (
            Value::Document(&empty),
            "tagged write concern requires tags",
        ),
        (
            Value::Document(&wrong),
            "tags must be a single level document with only number values; found: dc of type string",
        ),
    ] {
        let error = Wanted::parse(&w).unwrap_err();
        assert_eq!((error.code().code(), error.message()), (9, message));
    }
}
