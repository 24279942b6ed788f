//! Many transactions at once: sums that stay, counters that lose nothing, on a disk that crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::common::disk::MemDisk;
use super::common::waiting::wait_until;
use super::common::{Fixture, ns, open_with};
use super::*;
use frond_bson::doc;
use frond_store::EngineOptions;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const ACCOUNTS: i32 = 20;
const START: i64 = 100;

fn banks() -> [Namespace; 3] {
    ["one.bank", "two.bank", "two.other"].map(ns)
}

/// The balance of all accounts in all banks, as one handle sees them.
fn sum(store: &DocumentStore, through_index: bool) -> i64 {
    let filter = if through_index {
        // Accounts with a balance, through the unique index.
        doc! {"key": {"$gt": ""}}
    } else {
        doc! {}
    };
    let mut sum = 0;
    for bank in banks() {
        for account in find(store, &bank, &filter).unwrap() {
            sum += account.get_i64("n").unwrap();
        }
    }
    sum
}

fn open_accounts(store: &DocumentStore) {
    for bank in banks() {
        for index in [
            doc! {"key": {"key": 1}, "unique": true},
            doc! {"key": {"log": 1}},
        ] {
            store.create_indexes(&bank, &[&index]).unwrap();
        }
        let docs: Vec<DocBuf> = (0..ACCOUNTS)
            .map(|id| doc! {"_id": id, "n": START, "key": format!("k{id}.{START}"), "log": [0]})
            .collect();
        insert(store, &bank, &docs).unwrap();
    }
}

/// Moves money between two accounts of two banks. Some transactions abort, or close an account and open it again.
fn transfer(store: &DocumentStore, random: &mut StdRng) -> Result<()> {
    let transaction = store.begin();
    let inside = store.in_transaction(&transaction);
    let amount = random.random_range(1..10);
    let banks = banks();
    for sign in [-1i64, 1] {
        let bank = &banks[random.random_range(0..3)];
        let id = random.random_range(0..ACCOUNTS);
        let found = find(&inside, bank, &doc! {"_id": id})?;
        let n = found[0].get_i64("n").unwrap() + sign * amount;
        let key = format!("k{id}.{n}");
        if random.random_bool(0.2) {
            delete(&inside, bank, &doc! {"_id": id})?;
            insert(
                &inside,
                bank,
                &[doc! {"_id": id, "n": n, "key": key, "log": [n]}],
            )?;
        } else {
            let change =
                doc! {"$set": {"n": n, "key": key}, "$push": {"log": {"$each": [n], "$slice": -3}}};
            update(&inside, bank, &doc! {"_id": id}, &change)?;
        }
    }
    if random.random_bool(0.1) {
        transaction.abort();
        return Ok(());
    }
    transaction.commit(if random.random_bool(0.1) {
        Durability::Synced
    } else {
        LOGGED
    })
}

/// Runs transfers in some threads until `work` returns.
fn while_transferring(store: &DocumentStore, work: impl FnOnce(&AtomicU64)) -> u64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..4 {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                while !stop.load(Ordering::Relaxed) {
                    match transfer(store, &mut random) {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.code(), ErrorCode::WriteConflict, "{error}");
                            0
                        }
                    };
                }
            });
        }
        work(&done);
        stop.store(true, Ordering::Relaxed);
    });
    done.into_inner()
}

#[test]
fn sums_stay_in_snapshots_and_in_transactions() {
    let f = Fixture::new();
    open_accounts(&f.store);
    let all = START * i64::from(ACCOUNTS) * 3;
    let transfers = while_transferring(&f.store, |done| {
        for round in 0..150 {
            let moment = f.store.snapshot_reads();
            let past = f.store.at(&moment);
            assert_eq!(sum(&past, false), all, "{round}");
            let transaction = f.store.begin();
            let inside = f.store.in_transaction(&transaction);
            assert_eq!(sum(&inside, true), all, "{round}");
            assert_eq!(sum(&past, true), all, "{round}");
            if round % 50 == 10 {
                f.store.checkpoint().unwrap();
            }
            if round % 10 == 0 {
                for bank in banks() {
                    let report = past.verify(&bank).unwrap();
                    assert_eq!(report.errors, Vec::<String>::new());
                }
            }
        }
        wait_until("some transfers", || done.load(Ordering::Relaxed) > 20);
    });
    assert!(transfers > 20, "{transfers}");
    assert_eq!(sum(&f.store, false), all);
    let banks = banks();
    assert_sound(&f.store, &banks.iter().collect::<Vec<_>>());
    assert_eq!(sum(&f.reopen().store, true), all);
}

#[test]
fn sums_stay_over_power_failures() {
    let disk = MemDisk::default();
    let open = |disk: &MemDisk| open_with(EngineOptions::with_disk(Arc::new(disk.clone())));
    let store = open(&disk);
    open_accounts(&store);
    store.flush_log().unwrap();
    let all = START * i64::from(ACCOUNTS) * 3;
    while_transferring(&store, |_| {
        for round in 0..12 {
            thread::sleep(std::time::Duration::from_millis(20));
            if round % 4 == 3 {
                store.checkpoint().unwrap();
            }
            let image = disk.image(&mut StdRng::seed_from_u64(round));
            let recovered = open(&image);
            assert_eq!(sum(&recovered, round % 2 == 0), all, "{round}");
            let banks = banks();
            assert_sound(&recovered, &banks.iter().collect::<Vec<_>>());
            recovered.close().unwrap();
        }
    });
}

/// Each transaction appends its number to some lists. What is read is what some order of all transactions would give.
#[test]
fn lists_grow_in_one_order_and_lose_nothing() {
    const LISTS: i32 = 4;
    let f = Fixture::new();
    let c = ns("db.lists");
    let docs: Vec<DocBuf> = (0..LISTS).map(|id| doc! {"_id": id, "list": []}).collect();
    f.insert(&c, &docs);
    let next = AtomicU64::new(1);
    let committed = std::sync::Mutex::<Vec<(i64, Vec<i32>)>>::default();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (store, c, next, committed) = (&f.store, &c, &next, &committed);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..60 {
                    let number = next.fetch_add(1, Ordering::SeqCst) as i64;
                    let (one, two) = (random.random_range(0..LISTS), random.random_range(0..LISTS));
                    let append = doc! {"$push": {"list": number}};
                    if random.random_bool(0.3) {
                        // Outside of transactions: never a conflict that the client sees.
                        update(store, c, &doc! {"_id": one}, &append).unwrap();
                        committed.lock().unwrap().push((number, vec![one]));
                        continue;
                    }
                    let transaction = store.begin();
                    let inside = store.in_transaction(&transaction);
                    let done = update(&inside, c, &doc! {"_id": one}, &append)
                        .and_then(|_| update(&inside, c, &doc! {"_id": two}, &append))
                        .and_then(|_| transaction.commit(LOGGED));
                    match done {
                        Ok(()) => committed.lock().unwrap().push((number, vec![one, two])),
                        Err(error) => assert_eq!(error.code(), ErrorCode::WriteConflict),
                    }
                }
            });
        }
    });
    let lists: Vec<Vec<i64>> = find(&f.store, &c, &doc! {})
        .unwrap()
        .iter()
        .map(|doc| doc.get_array("list").unwrap().values())
        .map(|values| {
            values
                .map(|value| value.as_i64_lossless().unwrap())
                .collect()
        })
        .collect();
    let committed = committed.into_inner().unwrap();
    let appended: usize = committed.iter().map(|(_, lists)| lists.len()).sum();
    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), appended);
    for (number, ids) in &committed {
        for id in ids {
            assert!(lists[*id as usize].contains(number));
        }
    }
    // Two transactions that are in two lists are in the same order in both.
    let position = |list: &[i64], number| list.iter().position(|one| *one == number);
    for (a, b) in committed
        .iter()
        .flat_map(|a| committed.iter().map(move |b| (a.0, b.0)))
    {
        let orders: Vec<bool> = lists
            .iter()
            .filter_map(|list| Some(position(list, a)? < position(list, b)?))
            .collect();
        assert!(
            a == b || orders.windows(2).all(|pair| pair[0] == pair[1]),
            "{a} {b}"
        );
    }
}
