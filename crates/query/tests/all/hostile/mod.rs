//! Expressions that try to take all memory or never to end.
//!
//! [`generate`] makes random expressions over documents with long strings and large arrays. None of them may allocate more than
//! an evaluation may hold, and each ends soon after it is interrupted. `make test` tries a few; `make hostile` goes on for
//! `FROND_HOSTILE_SECONDS`, and also measures how long an interrupted expression goes on.

mod generate;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_query::Environment;
use frond_query::bounds::{EVALUATION_BYTES_MAX, Supervisor, supervised};
use frond_query::expr::Expr;
use frond_query::matcher::Filter;
use frond_query::memory::MemoryShare;

use generate::Generator;

/// The most bytes that an evaluation may allocate: its limit, a tenth for estimates, and small allocations that are not counted.
const BYTES_MAX: u64 = (EVALUATION_BYTES_MAX + EVALUATION_BYTES_MAX / 10 + (1 << 20)) as u64;

/// Longest time that an interrupted expression may continue, in the long run.
const LATENCY_MAX: Duration = Duration::from_millis(200);

thread_local! {
    static IS_KILLED: AtomicBool = const { AtomicBool::new(false) };
    /// Checks until the expression is interrupted.
    static CHECKS_LEFT: AtomicU64 = const { AtomicU64::new(u64::MAX) };
    /// When it is interrupted.
    static KILL_AT: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

struct Killer;

impl Supervisor for Killer {
    fn check(&self) -> Result<()> {
        let left = CHECKS_LEFT.with(|left| left.fetch_sub(1, Ordering::Relaxed));
        let is_late = KILL_AT.get().is_some_and(|at| Instant::now() >= at);
        if left == 0 || is_late {
            CHECKS_LEFT.with(|left| left.store(0, Ordering::Relaxed));
            IS_KILLED.with(|killed| killed.store(true, Ordering::Relaxed));
            return Err(Error::new(ErrorCode::Interrupted, "killed"));
        }
        Ok(())
    }

    fn memory(&self) -> Option<Box<dyn MemoryShare>> {
        None
    }
}

/// The result of one evaluation.
struct Ended {
    bytes: u64,
    outcome: Result<()>,
}

fn evaluate(expression: &DocBuf, doc: &DocBuf) -> Ended {
    let value = expression.get("e").expect("an expression");
    let mut outcome = Ok(());
    let parsed = match Expr::parse(&value, &Environment::default()) {
        Ok(parsed) => parsed,
        Err(error) => panic!("{error}: {value:?}"),
    };
    let used = measure(|| {
        outcome = supervised(&Killer, || parsed.eval_owned(doc, 0).map(drop));
    });
    Ended {
        bytes: used.bytes_max,
        outcome,
    }
}

fn shown(expression: &DocBuf) -> String {
    let text = format!("{expression:?}");
    text.chars().take(2000).collect()
}

fn is_named(expression: &Value<'_>, name: &str) -> bool {
    format!("{expression:?}").contains(name)
}

#[test]
fn random_expressions_stay_within_their_memory_and_can_be_interrupted() {
    let first = std::env::var("FROND_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    let seconds: u64 =
        std::env::var("FROND_HOSTILE_SECONDS").map_or(0, |s| s.parse().expect("seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut killed, mut refused, mut slowest) = (0, 0, Duration::ZERO);
    let mut seed = first;
    while seed < first + 150 || Instant::now() < until {
        let mut generator = Generator::new(seed);
        let doc = generator.document(if seconds > 0 { 1_000_000 } else { 100_000 });
        let expression = generator.expression();
        let now = Instant::now();
        match seconds {
            0 => CHECKS_LEFT.with(|left| left.store(12, Ordering::Relaxed)),
            // Most memory is taken late.
            _ if seed % 10 == 9 => KILL_AT.set(Some(now + Duration::from_secs(2))),
            _ => KILL_AT.set(Some(now + Duration::from_millis(seed % 5 * 40))),
        }
        let ended = evaluate(&expression, &doc);
        if let Some(at) = KILL_AT.get() {
            slowest = slowest.max(Instant::now().saturating_duration_since(at));
            let late = Instant::now().saturating_duration_since(at);
            assert!(
                late < LATENCY_MAX,
                "seed {seed} went on for {late:?}: {}",
                shown(&expression)
            );
        }
        let bytes = ended.bytes;
        assert!(
            bytes <= BYTES_MAX,
            "seed {seed} took {bytes} bytes: {}",
            shown(&expression)
        );
        killed += u64::from(IS_KILLED.with(|killed| killed.swap(false, Ordering::Relaxed)));
        refused += u64::from(ended.outcome.is_err_and(|error| {
            matches!(
                error.code(),
                ErrorCode::ExceededMemoryLimit | ErrorCode::BSONObjectTooLarge
            )
        }));
        CHECKS_LEFT.with(|left| left.store(u64::MAX, Ordering::Relaxed));
        KILL_AT.set(None);
        seed += 1;
    }
    println!(
        "{} expressions, {killed} interrupted, {refused} too large, slowest {slowest:?}",
        seed - first
    );
    assert!(killed > 0 && refused > 0, "the expressions are harmless");
}

/// The merges of the sort copied the keys of the elements, each in an allocation of its own.
#[test]
fn the_keys_of_a_sorted_array_are_counted() {
    let sort = doc! {"e": {"$sortArray": {
        "input": {"$regexFindAll": {"input": "$t", "regex": "a"}}, "sortBy": {"v": -1, "k": 1},
    }}};
    for count in [100_000, 260_000, 335_000] {
        let ended = evaluate(&sort, &doc! {"t": &*"ab".repeat(count)});
        assert!(ended.bytes <= BYTES_MAX, "{count}: {} bytes", ended.bytes);
    }
}

#[test]
fn what_operators_make_of_much_is_refused_before_it_is_allocated() {
    let text = |letter: &str, count: usize| letter.repeat(count);
    let numbers: frond_bson::ArrayBuf = (0..200_000).collect();
    let doc = doc! {
        "s": &*text("a", 4_000_000), "w": &*text("b", 4_000_000), "n": &numbers, "x": &*text("ä", 1_000_000),
        "f": &*text("%B", 8_000_000),
    };
    let big = doc! {"$concat": ["$s", "$w", "$s", "$w", "$s", "$w", "$s", "$w"]};
    let range = doc! {"$range": [0, 2_000_000]};
    let many = |value: &DocBuf, count: usize| -> frond_bson::ArrayBuf {
        (0..count).map(|_| Value::Document(value)).collect()
    };
    for expression in [
        doc! {"$strLenBytes": {"$replaceAll": {"input": "$s", "find": "a", "replacement": "$w"}}},
        doc! {"$size": [many(&big, 20).as_value()]},
        doc! {"$size": {"$concatArrays": &many(&range, 20)}},
        doc! {"$size": {"$zip": {"inputs": &many(&range, 20)}}},
        doc! {"$size": {"$split": [{"$concat": ["$s", "$s"]}, "a"]}},
        doc! {"$size": {"$regexFindAll": {"input": "$s", "regex": "(((((a)))))"}}},
        doc! {"$size": {"$map": {"input": "$n", "in": "$s"}}},
        doc! {"$strLenBytes": {"$reduce": {"input": "$n", "initialValue": "$s", "in": {"$concat": ["$$value", "$$value"]}}}},
        doc! {"$size": {"$setUnion": &many(&range, 20)}},
        doc! {"$size": {"$objectToArray": {"$arrayToObject": {"$map": {
            "input": &range, "in": {"k": {"$toString": "$$this"}, "v": "$$this"},
        }}}}},
        doc! {"$let": {"vars": {"a": &big, "b": &big, "c": &big, "d": &big}, "in": 1}},
        doc! {"$strLenBytes": {"$dateToString": {"date": frond_bson::Value::DateTime(0), "format": "$f"}}},
        doc! {"$size": {"$sortArray": {"input": {"$range": [0, 4_000_000]}, "sortBy": 1}}},
        doc! {"$type": {"$mergeObjects": &many(&doc! {"a": &big, "b": &big}, 3)}},
    ] {
        let ended = evaluate(&doc! {"e": &expression}, &doc);
        assert!(
            ended.bytes <= BYTES_MAX,
            "{} bytes: {}",
            ended.bytes,
            shown(&expression)
        );
        let error = ended.outcome.expect_err("it is too much");
        let codes = [
            ErrorCode::ExceededMemoryLimit,
            ErrorCode::BSONObjectTooLarge,
        ];
        assert!(
            codes.contains(&error.code()),
            "{error}: {}",
            shown(&expression)
        );
    }
}

#[test]
fn loops_inside_one_document_are_interrupted() {
    let text = |letter: &str, count: usize| letter.repeat(count);
    let numbers: frond_bson::ArrayBuf = (0..200_000).collect();
    let needle = text("a", 500_000) + "b";
    let doc = doc! {"s": &*text("a", 1_000_000), "needle": &*needle, "n": &numbers};
    let nested = doc! {"$map": {"input": "$n", "in": {"$sum": "$n"}}};
    for expression in [
        doc! {"$size": &nested},
        doc! {"$size": {"$filter": {"input": "$n", "cond": {"$in": [-1, "$n"]}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$indexOfBytes": ["$s", "$needle"]}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$strLenCP": "$s"}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$size": {"$setDifference": ["$n", "$n"]}}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$regexMatch": {"input": "$s", "regex": "b"}}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$trim": {"input": "$s", "chars": "$s"}}}}},
        doc! {"$size": {"$map": {"input": "$n", "in": {"$size": {"$sortArray": {"input": "$n", "sortBy": -1}}}}}},
    ] {
        assert!(is_named(&Value::Document(&expression), "$n"));
        CHECKS_LEFT.with(|left| left.store(3, Ordering::Relaxed));
        let ended = evaluate(&doc! {"e": &expression}, &doc);
        CHECKS_LEFT.with(|left| left.store(u64::MAX, Ordering::Relaxed));
        let error = ended.outcome.expect_err("it was interrupted");
        assert_eq!(
            error.code(),
            ErrorCode::Interrupted,
            "{}",
            shown(&expression)
        );
    }
}

/// A comparison reads all of a long string inside of an array, however short the other array is.
#[test]
fn comparisons_with_a_long_value_are_interrupted() {
    let many: frond_bson::ArrayBuf = (0..2000)
        .map(|n| doc! {"n": n})
        .collect::<Vec<_>>()
        .iter()
        .collect();
    let doc = doc! {"many": &many, "long": {"n": 1000, "text": &*"ä".repeat(100_000)}};
    let all = doc! {"$concatArrays": ["$many", ["$long"]]};
    for expression in [
        doc! {"$setUnion": [&all]},
        doc! {"$in": ["$long", "$many"]},
        doc! {"$indexOfArray": ["$many", "$long"]},
        doc! {"$max": {"$concatArrays": [["$long"], "$many"]}},
        doc! {"$sortArray": {"input": &all, "sortBy": 1}},
    ] {
        CHECKS_LEFT.with(|left| left.store(100, Ordering::Relaxed));
        let ended = evaluate(&doc! {"e": &expression}, &doc);
        CHECKS_LEFT.with(|left| left.store(u64::MAX, Ordering::Relaxed));
        let error = ended.outcome.expect_err("it was interrupted");
        assert_eq!(
            error.code(),
            ErrorCode::Interrupted,
            "{}",
            shown(&expression)
        );
    }
}

/// Within one match, in every form of loop: over the places where it can begin, over characters, and by backtracking.
#[test]
fn a_match_of_a_regular_expression_is_interrupted() {
    let mut text = "a".repeat(100_000);
    text.push_str("cb");
    for pattern in [
        "a.*a.*d|c$",
        "(?:a*+x|a*+y|a*+z)+",
        "a[^b]*d|(?:a|a)x",
        "(?:(?=a*[xy])|.)d|z",
        "(a*)\\1\\1d|x",
    ] {
        let document = doc! {"s": &*text};
        let filter = Filter::parse(&doc! {"s": {"$regex": pattern}}).expect("a filter");
        let search = doc! {"e": {"$regexFindAll": {"input": "$s", "regex": pattern}}};
        // Without an end it would take longer, or exceed a limit of the match.
        for checks in [0, 3] {
            let arm = || CHECKS_LEFT.with(|left| left.store(checks, Ordering::Relaxed));
            arm();
            let error = supervised(&Killer, || filter.try_matches(&document)).expect_err(pattern);
            assert_eq!(error.code(), ErrorCode::Interrupted, "{pattern}");
            arm();
            let ended = evaluate(&search, &document);
            let error = ended.outcome.expect_err(pattern);
            assert_eq!(error.code(), ErrorCode::Interrupted, "{pattern}");
        }
    }
    CHECKS_LEFT.with(|left| left.store(u64::MAX, Ordering::Relaxed));
}

#[test]
fn many_regular_expressions_are_refused_before_they_are_compiled() {
    let long = "[ab]x".repeat(200);
    let patterns: frond_bson::ArrayBuf = (0..10_000)
        .map(|n| frond_bson::OwnedValue::Regex {
            pattern: format!("a{n}{long}"),
            options: String::new(),
        })
        .collect::<Vec<_>>()
        .iter()
        .collect();
    let few = doc! {"a": {"$in": [Value::Regex {pattern: "a.*b", options: ""}]}};
    supervised(&Killer, || {
        for _ in 0..2 {
            let many = Filter::parse(&doc! {"a": {"$in": &patterns}});
            let error = many.expect_err("they would take too much");
            assert_eq!(error.code(), ErrorCode::ExceededMemoryLimit);
            assert!(Filter::parse(&few).is_ok(), "nothing stays reserved");
        }
    });
}
