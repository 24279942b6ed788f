//! Blocking stages give the same with little memory and files as with much memory.

use super::*;
use crate::aggregate::exec::STAGE_MEMORY_BYTES_MAX;
use crate::memory::testing::Pool;
use crate::spill::testing::Files;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A context in which every stage may hold `bytes` bytes.
fn limited(bytes: usize) -> ExecContext<Error> {
    ExecContext {
        limits: StageLimits {
            sort: bytes,
            group: bytes,
            bucket_auto: bytes,
            set_window_fields: bytes,
            graph_lookup: bytes,
            facet: bytes,
            densify_documents: 1000,
        },
        ..ExecContext::new(NOW)
    }
}

fn run_in(input: &[DocBuf], stages: &str, context: &ExecContext<Error>) -> Result<Vec<DocBuf>> {
    let input = Box::new(Docs::new(input.to_vec()));
    collect(parse(stages)?.limited_sorts().execute(input, context)?)
}

#[test]
fn without_files_the_limit_is_an_error() {
    let input: Vec<DocBuf> = (0..100)
        .map(|n| frond_bson::doc! {"_id": n, "s": "x".repeat(100)})
        .collect();
    for stages in [
        "[{$sort: {_id: -1}}]",
        "[{$group: {_id: '$_id', n: {$sum: 1}}}]",
        "[{$group: {_id: null, all: {$push: '$$ROOT'}}}]",
        "[{$group: {_id: null, all: {$addToSet: '$_id'}, s: {$push: '$s'}}}]",
        "[{$sample: {size: 90}}]",
        "[{$facet: {a: [{$limit: 1}]}}]",
    ] {
        let error = run_in(&input, stages, &limited(4000)).unwrap_err();
        assert_eq!(error.code().code(), 292, "{stages}: {error}");
        assert!(
            !run_in(&input, stages, &limited(1 << 20))
                .unwrap()
                .is_empty()
        );
    }
    // The best few take the memory of a few.
    let top = run_in(&input, "[{$sort: {_id: -1}}, {$limit: 5}]", &limited(4000));
    assert_eq!(top.unwrap().len(), 5);
}

#[test]
fn files_change_no_result() {
    let mut random = SmallRng::seed_from_u64(11);
    for round in 0..8 {
        let input: Vec<DocBuf> = (0..random.random_range(0..400))
            .map(|n: i32| {
                frond_bson::doc! {
                    "_id": n,
                    "g": random.random_range(0..40i32),
                    "v": random.random_range(-50..50i32),
                    "s": "x".repeat(random.random_range(0..60)),
                }
            })
            .collect();
        for (stages, ordered) in [
            ("[{$sort: {v: 1}}]", true),
            ("[{$sort: {v: -1, g: 1}}, {$skip: 3}, {$limit: 50}]", true),
            ("[{$sample: {size: 60}}]", true),
            (
                "[{$group: {_id: '$g', n: {$sum: 1}, all: {$push: '$_id'}, f: {$first: '$_id'}, l: {$last: '$v'}, set: {$addToSet: '$v'}, a: {$avg: '$v'}, t: {$topN: {n: 2, sortBy: {v: 1, _id: 1}, output: '$_id'}}}}]",
                false,
            ),
            ("[{$group: {_id: {g: '$g', v: '$v'}, n: {$sum: 1}}}]", false),
            (
                "[{$bucketAuto: {groupBy: '$v', buckets: 5, output: {n: {$sum: 1}, l: {$last: '$_id'}}}}]",
                true,
            ),
            (
                "[{$setWindowFields: {partitionBy: '$g', sortBy: {v: 1, _id: 1}, output: {a: {$sum: '$v', window: {documents: [-1, 2]}}, s: {$shift: {output: '$_id', by: 3}}, r: {$documentNumber: {}}}}}]",
                true,
            ),
            (
                "[{$facet: {a: [{$sort: {v: 1}}, {$limit: 3}], b: [{$group: {_id: null, n: {$sum: '$v'}}}], c: [{$match: {g: 1}}]}}]",
                true,
            ),
        ] {
            let sorted = |mut docs: Vec<DocBuf>| {
                if !ordered {
                    docs.sort_by_key(|doc| {
                        let mut key = Vec::new();
                        frond_bson::key::encode(&doc.get("_id").unwrap(), &mut key);
                        key
                    });
                }
                docs
            };
            let expected = sorted(run_in(&input, stages, &limited(1 << 24)).unwrap());
            let files = Arc::new(Files::default());
            let bytes = random.random_range(500..6000);
            let context = ExecContext {
                space: Some(files.clone()),
                ..limited(bytes)
            };
            let found = run_in(&input, stages, &context);
            let found = sorted(found.unwrap_or_else(|error| panic!("{stages} {bytes}: {error}")));
            assert_eq!(found, expected, "round {round}, {bytes} bytes: {stages}");
            assert_eq!(files.open.load(Ordering::Relaxed), 0, "{stages}");
            let used = files.made.load(Ordering::Relaxed) > 0;
            assert_eq!(context.spilled.times() > 0, used, "{stages}");
        }
    }
}

#[test]
fn one_group_that_is_too_large_is_an_error() {
    let input: Vec<DocBuf> = (0..500).map(|n| frond_bson::doc! {"_id": n}).collect();
    let context = ExecContext {
        space: Some(Arc::new(Files::default())),
        ..limited(2000)
    };
    let stages = "[{$group: {_id: null, all: {$push: '$$ROOT'}}}]";
    let error = run_in(&input, stages, &context).unwrap_err();
    assert_eq!(error.code().code(), 146, "{error}");
}

#[test]
fn documents_that_a_stage_keeps_come_from_the_shared_memory() {
    let large = |n: i32| frond_bson::doc! {"_id": n, "l": [1, 2], "s": "x".repeat(600_000)};
    let input: Vec<DocBuf> = (0..4).map(large).collect();
    for stages in [
        "[{$unwind: '$l'}, {$unwind: '$l'}, {$set: {l: ['$l', 1]}}, {$unwind: '$l'}, {$set: {l: ['$l', 1]}}, {$unwind: '$l'}]",
        "[{$facet: {a: [{$match: {}}]}}]",
        "[{$densify: {field: '_id', partitionByFields: ['s'], range: {step: 1, bounds: 'full'}}}, {$group: {_id: null, n: {$sum: 1}}}]",
        "[{$limit: 1}, {$set: {l: {$map: {input: {$range: [0, 10]}, in: '$s'}}}}, {$unwind: '$l'}]",
    ] {
        let with = |bytes: usize| ExecContext {
            memory: Some(Arc::new(Pool::with_bytes(bytes))),
            ..limited(STAGE_MEMORY_BYTES_MAX)
        };
        let error = run_in(&input, stages, &with(100 << 10)).unwrap_err();
        assert_eq!(error.code().code(), 146, "{stages}: {error}");
        let pool = Pool::with_bytes(50 << 20);
        let context = ExecContext {
            memory: Some(Arc::new(pool.clone())),
            ..limited(STAGE_MEMORY_BYTES_MAX)
        };
        assert!(!run_in(&input, stages, &context).unwrap().is_empty());
        drop(context);
        assert_eq!(pool.left.load(Ordering::Relaxed), 50 << 20, "{stages}");
    }
}
