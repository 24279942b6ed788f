//! Power failures: after them the entries lead to what is stored, and their times do not come again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frond_bson::doc;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::values::Random;
use crate::oplog::random::{open, shape, step};

const SIZES: (usize, usize) = (256, 24);

/// Ends the threads, also after a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn entries_and_documents_agree_after_a_crash() {
    let disk = MemDisk::default();
    let store = open(&disk, SIZES);
    store.turn_on_oplog(OPLOG).unwrap();
    let stop = AtomicBool::new(false);
    let steps = AtomicU64::new(0);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let stepping = scope.spawn(|| {
            let mut random = Random::new(5);
            while !stop.load(Ordering::Relaxed) {
                step(&store, &mut random, shape(SIZES));
                if steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
                    store.flush_log().unwrap();
                }
            }
        });
        // Inserts and transactions beside it, in a database of their own.
        scope.spawn(|| {
            let c = ns("third.c");
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let docs: Vec<DocBuf> = (0..5).map(|i| doc! {"_id": n * 5 + i}).collect();
                insert(&store, &c, &docs);
                let transaction = store.begin();
                let inside = store.in_transaction(&transaction);
                update(&inside, &c, &doc! {"_id": n * 5}, &doc! {"$set": {"a": n}});
                delete(&inside, &c, &doc! {"_id": n * 5 - 9});
                transaction.commit(LOGGED).unwrap();
            }
        });
        for round in 0..6 {
            let until = steps.load(Ordering::Relaxed) + 60;
            while steps.load(Ordering::Relaxed) < until {
                assert!(!stepping.is_finished());
                thread::sleep(std::time::Duration::from_millis(1));
            }
            if round == 3 {
                store.checkpoint().unwrap();
            }
            let durable = store.oplog().durable();
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let after = open(&image, SIZES);
            replay::check(&after);
            let last = after.oplog().last();
            assert!(last.to_u64() >= durable, "what was durable is there");
            insert(&after, &ns("third.d"), &[doc! {"_id": 1}]);
            assert!(after.oplog().last() > last);
            replay::check(&after);
            after.engine().close().unwrap();
        }
    });
    replay::check(&store);
}

#[test]
fn times_that_a_crash_has_lost_do_not_come_again() {
    let disk = MemDisk::default();
    let store = open(&disk, SIZES);
    store.turn_on_oplog(OPLOG).unwrap();
    store.flush_log().unwrap();
    let kept = store.oplog().last();
    let before = disk.image(&mut StdRng::seed_from_u64(1));
    insert(&store, &ns("db.c"), &[doc! {"_id": 1}]);
    let lost = store.oplog().last();
    assert!(lost > kept);
    let after = open(&before, SIZES);
    assert_eq!(after.oplog().last(), kept);
    insert(&after, &ns("db.c"), &[doc! {"_id": 2}]);
    let created = values(&after)[1].0;
    assert!(created > lost.to_u64());
}
