//! The conformance suite of the seam on a cluster, and what only a cluster does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Bound::{Included, Unbounded};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frond_kv::{Direction, Error, Operations, TreeId, TreeOptions};
use frond_kv_testing::{Adds, Keyspace, number, to_bytes};
use frond_tikv::{Cluster, ClusterOptions, Report, Snapshot, WriteSet};

/// The tree of the counters.
const CATALOG_TREE: TreeId = TreeId(0);

/// Counters are the keys of that tree that begin with this.
const COUNTER: u8 = b'#';

/// Options of servers over an empty keyspace. They keep no old versions but those of their snapshots, so that the tests, which share PD,
/// can move its safepoint. `None` without a cluster.
fn options() -> Option<ClusterOptions> {
    let pd = std::env::var("FROND_TEST_PD").ok()?;
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    Some(ClusterOptions {
        key_prefix: format!("test/{}/{run}/", now.as_nanos()).into_bytes(),
        merge: Arc::new(Adds),
        counters: Some((CATALOG_TREE, vec![COUNTER])),
        retention: Duration::ZERO,
        ..ClusterOptions::new(vec![pd])
    })
}

/// Opens servers over an empty keyspace. `None` without a cluster.
fn servers() -> Option<impl Fn() -> Cluster> {
    let options = options()?;
    let open = move || Cluster::open(options.clone()).unwrap();
    create(&open(), CATALOG_TREE);
    Some(open)
}

/// Every handle of the suite is a server of its own, and so is the one after a restart. unistore, which stands in for TiKV in
/// tests, forgets keys that were only locked, and scans backward as if every snapshot were new.
fn fresh() -> Option<Keyspace<Cluster>> {
    let open = Arc::new(servers()?);
    let again = open.clone();
    Some(Keyspace {
        open: Box::new(move || open()),
        reopen: Some(Box::new(move || again())),
        numbers: None,
        remembers_guards: false,
        scans_the_past_backward: false,
    })
}

frond_kv_testing::conformance!(fresh);

fn create(engine: &Cluster, tree: TreeId) {
    let mut set = WriteSet::new();
    set.create_tree(tree, &TreeOptions::default());
    engine.commit(set).unwrap();
}

fn new_tree(engine: &Cluster) -> TreeId {
    let tree = engine.allocate_tree().unwrap();
    create(engine, tree);
    tree
}

fn put(engine: &Cluster, tree: TreeId, pairs: &[(&str, &str)]) {
    let mut set = WriteSet::new();
    for (key, value) in pairs {
        set.put(tree, key.as_bytes(), value.as_bytes());
    }
    engine.commit(set).unwrap();
}

fn get(snapshot: &Snapshot, tree: TreeId, key: &str) -> Option<String> {
    let value = snapshot.get(tree, key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

fn keys(snapshot: &Snapshot, tree: TreeId) -> Vec<String> {
    let mut cursor = snapshot
        .cursor(tree, Unbounded, Unbounded, Direction::Forward)
        .unwrap();
    let mut keys = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        keys.push(String::from_utf8(key.to_vec()).unwrap());
    }
    keys
}

#[test]
fn counters_of_servers_add_up() {
    let Some(open) = servers() else {
        return;
    };
    let (engine, other) = (open(), open());
    let tree = new_tree(&engine);
    let counter = [COUNTER, 1];
    std::thread::scope(|scope| {
        for (place, engine) in [&engine, &other, &engine, &other].into_iter().enumerate() {
            scope.spawn(move || {
                for i in 0..25 {
                    let snapshot = engine.snapshot();
                    let mut set = WriteSet::with_snapshot(&snapshot);
                    set.put_guarded(tree, format!("{place}/{i}").as_bytes(), b"");
                    set.merge(CATALOG_TREE, &counter, &to_bytes(i));
                    engine.commit(set).unwrap();
                }
            });
        }
    });
    let third = open();
    let snapshot = third.snapshot();
    let count = snapshot.get(CATALOG_TREE, &counter).unwrap().unwrap();
    assert_eq!(number(&count).unwrap(), 4 * (0..25).sum::<i64>());
    let mut cursor = snapshot.cursor(CATALOG_TREE, Unbounded, Unbounded, Direction::Forward);
    let (key, value) = cursor.as_mut().unwrap().next().unwrap().unwrap();
    assert_eq!((key, value), (&counter[..], &count[..]));
    let mut set = WriteSet::new();
    set.delete(CATALOG_TREE, &counter);
    other.commit(set).unwrap();
    assert!(!third.snapshot().contains(CATALOG_TREE, &counter).unwrap());
}

#[test]
fn a_fenced_instance_commits_nothing_that_it_began_before() {
    let Some(open) = servers() else {
        return;
    };
    let (one, other) = (open(), open());
    let instance = one.instance();
    let tree = new_tree(&one);
    put(&one, tree, &[("a", "0")]);
    let begun = one.snapshot();
    let prepared: Vec<WriteSet> = (0..3)
        .map(|i| {
            let mut set = WriteSet::with_snapshot(&one.snapshot());
            set.put_guarded(tree, format!("late {i}").as_bytes(), b"");
            set.merge(CATALOG_TREE, &[COUNTER, 3], &to_bytes(1));
            set
        })
        .collect();
    let transaction = one.begin(&begun);
    let mut set = WriteSet::with_snapshot(&begun);
    set.put_guarded(tree, b"of a transaction", b"");
    let (staged, _) = set.into_parts();
    transaction.stage_leaving_room(staged, 0).unwrap();
    other.fence(instance, 0).unwrap();
    for set in prepared {
        let late = one.commit(set);
        assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    }
    let late = transaction.commit(Operations::default());
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    assert_eq!(keys(&other.snapshot(), tree), ["a"]);
    // Later commits are forbidden by its lease, not by the fence.
    put(&one, tree, &[("b", "1")]);
    assert_eq!(get(&other.snapshot(), tree, "b").as_deref(), Some("1"));
    let before = one.snapshot();
    one.set_lease(before.timestamp().unwrap(), one.now_ms() - 1000);
    let mut set = WriteSet::new();
    set.put(tree, b"c", b"");
    let late = one.commit(set);
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    one.extend_lease(one.now_ms() + 60_000);
    put(&one, tree, &[("c", "2")]);
    // A new instance goes on, but not with snapshots of the old one.
    let old = one.snapshot();
    one.begin_instance().unwrap();
    assert_ne!(one.instance(), instance);
    let mut set = WriteSet::new();
    set.put(tree, b"d", b"");
    assert!(one.commit(set).is_err());
    one.set_lease(one.snapshot().timestamp().unwrap(), one.now_ms() + 60_000);
    let mut set = WriteSet::with_snapshot(&old);
    set.put_guarded(tree, b"d", b"");
    let late = one.commit(set);
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    put(&one, tree, &[("d", "3")]);
    other.fence(one.instance(), 0).unwrap();
    other.fence(one.instance() + 100, 0).unwrap();
}

/// Returns when the clock of the cluster is past a time in milliseconds.
fn await_time(engine: &Cluster, ms: u64) {
    while engine.now_ms() <= ms {
        std::thread::yield_now();
    }
}

#[test]
fn commits_that_meet_a_fence_are_before_it_or_fail() {
    let Some(open) = servers() else {
        return;
    };
    let (one, other) = (open(), open());
    let instance = one.instance();
    let tree = new_tree(&one);
    one.set_lease(one.snapshot().timestamp().unwrap(), one.now_ms());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (one, stop) = (&one, &stop);
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let snapshot = one.snapshot();
                    let mut set = WriteSet::with_snapshot(&snapshot);
                    set.put_guarded(tree, format!("{writer} {i}").as_bytes(), b"");
                    match one.commit(set) {
                        Ok(_) | Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..10 {
            let until = one.now_ms() + 40;
            one.extend_lease(until);
            other.fence(instance, until).unwrap();
            let after = other.snapshot();
            // The lease is over by the clock that all servers share.
            await_time(&one, until);
            // Nothing has come since.
            let now = other.snapshot();
            let there = |snapshot| keys(snapshot, tree);
            assert_eq!(there(&now), there(&after));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_garbage_collector_removes_what_nobody_can_see() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let collect = |live: &[u32]| {
        await_time(&engine, engine.now_ms() + 1);
        drop(engine.snapshot());
        let needed = engine.oldest_snapshot();
        let retention = Duration::ZERO;
        engine.collect_garbage(needed, retention, live).unwrap()
    };
    let (kept, dropped) = (new_tree(&engine), new_tree(&engine));
    let names: Vec<String> = (0..3000).map(|i| format!("{i:04}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    put(&engine, kept, &pairs[..10]);
    put(&engine, dropped, &pairs);
    let large = "y".repeat(3 << 20);
    put(&engine, kept, &[("large", &large), ("replaced", &large)]);
    put(&engine, dropped, &[("large", &large)]);
    // An instance that is gone has added to a counter.
    let gone = open();
    for key in [1, 2] {
        let mut set = WriteSet::new();
        set.merge(CATALOG_TREE, &[COUNTER, key], &to_bytes(5));
        gone.commit(set).unwrap();
    }
    let instance = gone.instance();
    drop(gone);
    let old = engine.snapshot();
    put(&engine, kept, &[("replaced", "small"), ("0001", "z")]);
    let mut set = WriteSet::new();
    set.drop_tree(dropped);
    engine.commit(set).unwrap();
    engine.fence(instance, 0).unwrap();
    // The old snapshot holds all of it.
    let run = collect(&[]);
    assert_eq!((run.trees, run.values, run.counters), (0, 0, 0));
    assert_eq!(get(&old, dropped, "2999").as_deref(), Some("x"));
    assert_eq!(
        get(&old, kept, "replaced").map(|value| value.len()),
        Some(3 << 20)
    );
    drop(old);
    // Nor is anything collected of an instance that is live.
    let run = collect(&[instance]);
    assert_eq!((run.trees, run.values, run.counters), (1, 1, 0), "{run:?}");
    let run = collect(&[]);
    assert_eq!((run.trees, run.values, run.counters), (0, 0, 2), "{run:?}");
    let run = collect(&[]);
    assert_eq!((run.trees, run.values, run.counters), (0, 0, 0), "{run:?}");
    let snapshot = engine.snapshot();
    for key in [1, 2] {
        let sum = snapshot
            .get(CATALOG_TREE, &[COUNTER, key])
            .unwrap()
            .unwrap();
        assert_eq!(&*sum, to_bytes(5));
    }
    assert_eq!(get(&snapshot, kept, "replaced").as_deref(), Some("small"));
    assert_eq!(get(&snapshot, kept, "0001").as_deref(), Some("z"));
    assert_eq!(
        get(&snapshot, kept, "large").map(|value| value.len()),
        Some(3 << 20)
    );
    assert_eq!(keys(&snapshot, dropped).len(), 0);
}

/// Sends a request to PD's interface for administrators. Returns the body of the answer.
fn ask_pd(method: &str, path: &str) -> String {
    let pd = std::env::var("FROND_TEST_PD").unwrap();
    let mut connection = TcpStream::connect(&pd).unwrap();
    write!(
        connection,
        "{method} /pd/api/v1/{path} HTTP/1.0\r\nHost: {pd}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    body.to_owned()
}

/// The names of the entries of a deployment's servers in PD.
fn entries(options: &ClusterOptions) -> Vec<String> {
    let digits = options.key_prefix.iter().map(|byte| format!("{byte:02x}"));
    let begins = format!("frond-{}-", digits.collect::<String>());
    let services = ask_pd("GET", "gc/safepoint");
    let words = services.split('"');
    words
        .filter(|word| word.starts_with(&begins))
        .map(str::to_owned)
        .collect()
}

/// Collects all garbage of a deployment. Returns the safepoint of TiKV.
fn collect_all(engine: &Cluster) -> u64 {
    await_time(engine, engine.now_ms() + 1);
    drop(engine.snapshot());
    let needed = engine.oldest_snapshot();
    let run = engine.collect_garbage(needed, Duration::ZERO, &[]);
    run.unwrap().moved_to
}

#[test]
fn pd_keeps_what_a_server_needs_from_its_first_read_to_its_end() {
    let Some(options) = options() else {
        return;
    };
    let one = Cluster::open(options.clone()).unwrap();
    assert_eq!(entries(&options).len(), 1);
    let other = Cluster::open(options.clone()).unwrap();
    assert_eq!(entries(&options).len(), 2);
    let kept = one.stats().kept;
    assert!(kept.from > 0 && kept.refusals == 0 && kept.lost_before == 0);
    // The end of one of them does not concern the other.
    let snapshot = other.snapshot();
    other.close().unwrap();
    assert_eq!(entries(&options).len(), 1);
    let closed = snapshot.get(CATALOG_TREE, b"a");
    assert!(matches!(closed, Err(Error::Closed(_))), "{closed:?}");
    one.close().unwrap();
    one.close().unwrap();
    assert_eq!(entries(&options).len(), 0);
}

#[test]
fn a_deployment_does_not_delete_what_another_one_reads() {
    let (Some(options), Some(others)) = (options(), servers()) else {
        return;
    };
    let reader = Cluster::open(options).unwrap();
    create(&reader, CATALOG_TREE);
    let tree = new_tree(&reader);
    put(&reader, tree, &[("a", "old")]);
    let snapshot = reader.snapshot();
    put(&reader, tree, &[("a", "new")]);
    let moved_to = collect_all(&others());
    assert!(moved_to <= snapshot.timestamp().unwrap());
    assert_eq!(get(&snapshot, tree, "a").as_deref(), Some("old"));
    assert_eq!(reader.stats().kept.lost_before, 0);
}

#[test]
fn a_deployment_that_starts_when_the_safepoint_has_moved_knows_what_it_has_lost() {
    let (Some(options), Some(others)) = (options(), servers()) else {
        return;
    };
    let others = others();
    let moved_to = collect_all(&others);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let said = reports.clone();
    let report: Report = Arc::new(move |text: &str| said.lock().unwrap().push(text.to_owned()));
    let late = Cluster::open(ClusterOptions {
        retention: Duration::from_secs(24 * 3600),
        report: Some(report),
        ..options
    })
    .unwrap();
    let kept = late.stats().kept;
    assert!(kept.refusals == 1 && kept.lost_before >= moved_to && kept.from >= moved_to);
    assert!(
        reports.lock().unwrap()[0].contains("PD has refused"),
        "{reports:?}"
    );
    // The past is lost, the present is not.
    create(&late, CATALOG_TREE);
    let tree = new_tree(&late);
    put(&late, tree, &[("a", "b")]);
    let stamp = loop {
        if let Some(stamp) = late.snapshot().stamp().unwrap() {
            break stamp;
        }
    };
    let past = late.snapshot_at(stamp - (3600 << 32)).unwrap();
    let lost = past.get(tree, b"a");
    assert!(
        matches!(lost, Err(Error::SnapshotLost { behind_ms }) if behind_ms > 0),
        "{lost:?}"
    );
    let now = late.snapshot_at(stamp).unwrap();
    assert_eq!(get(&now, tree, "a").as_deref(), Some("b"));
    // From here on its entry holds the safepoint.
    put(&late, tree, &[("a", "c")]);
    assert!(collect_all(&others) <= now.timestamp().unwrap());
    assert_eq!(get(&now, tree, "a").as_deref(), Some("b"));
}

#[test]
fn a_snapshot_whose_entry_was_removed_fails_when_the_safepoint_has_passed_it() {
    let (Some(options), Some(others)) = (options(), servers()) else {
        return;
    };
    let reader = Cluster::open(options.clone()).unwrap();
    create(&reader, CATALOG_TREE);
    let tree = new_tree(&reader);
    put(&reader, tree, &[("a", "old")]);
    let snapshot = reader.snapshot();
    put(&reader, tree, &[("a", "new")]);
    let others = others();
    // An administrator removes the entry, and another deployment collects, until the server has registered again in vain.
    let at = snapshot.timestamp().unwrap();
    while reader.stats().kept.lost_before <= at {
        for entry in entries(&options) {
            ask_pd("DELETE", &format!("gc/safepoint/{entry}"));
        }
        collect_all(&others);
        std::thread::yield_now();
    }
    let lost = snapshot.get(tree, b"a");
    assert!(matches!(lost, Err(Error::SnapshotLost { .. })), "{lost:?}");
    let mut set = WriteSet::with_snapshot(&snapshot);
    set.put_guarded(tree, b"b", b"");
    let late = reader.commit(set);
    assert!(matches!(late, Err(Error::SnapshotLost { .. })), "{late:?}");
    // Later ones are not lost, and garbage is collected as before.
    assert_eq!(get(&reader.snapshot(), tree, "a").as_deref(), Some("new"));
    put(&reader, tree, &[("b", "")]);
    collect_all(&reader);
    assert_eq!(reader.stats().collected.failed_runs, 0);
}

#[test]
fn a_commit_fails_if_a_key_that_was_taken_for_absent_is_there() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let tree = new_tree(&engine);
    put(&engine, tree, &[("there", "1")]);
    let large = vec![7; 3 << 20];
    let cases: [(&[u8], &[u8], bool); 6] = [
        (b"there", b"2", false),
        (b"there", &large, false),
        (b"new", b"2", true),
        (b"new", b"3", false),
        (b"large", &large, true),
        (b"large", b"2", false),
    ];
    for (key, value, succeeds) in cases {
        let snapshot = engine.snapshot();
        snapshot.presume_absent(&[(tree, key)]);
        assert!(!snapshot.contains(tree, key).unwrap());
        let mut set = WriteSet::with_snapshot(&snapshot);
        set.put_guarded(tree, key, value);
        set.put(tree, b"beside", key);
        let before = engine.snapshot().get(tree, b"beside").unwrap();
        match engine.commit(set) {
            Ok(_) => assert!(succeeds, "{key:?}"),
            Err(Error::Conflict { key: met, .. }) => {
                assert!(!succeeds && met == key, "{met:?}");
                assert_eq!(engine.snapshot().get(tree, b"beside").unwrap(), before);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(get(&engine.snapshot(), tree, "there").as_deref(), Some("1"));
    assert_eq!(get(&engine.snapshot(), tree, "new").as_deref(), Some("2"));
    // Without guards, too: the commit is based on the snapshot. A guard alone is refused.
    for is_guard in [false, true] {
        let snapshot = engine.snapshot();
        snapshot.presume_absent(&[(tree, b"there")]);
        let mut set = WriteSet::with_snapshot(&snapshot);
        if is_guard {
            set.guard(tree, b"there");
            set.put(tree, b"beside", b"");
        } else {
            set.put(tree, b"there", b"3");
        }
        let met = engine.commit(set);
        assert!(matches!(met, Err(Error::Conflict { .. })), "{met:?}");
    }
}

#[test]
fn operations_take_few_round_trips() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let (tree, index) = (new_tree(&engine), new_tree(&engine));
    let names: Vec<String> = (0..1000).map(|i| format!("{i:05}")).collect();
    let wanted = |tree| -> Vec<(TreeId, &[u8])> {
        names.iter().map(|name| (tree, name.as_bytes())).collect()
    };
    let insert = |names: &[String], stamped: bool, presumes_new: bool| {
        let snapshot = engine.snapshot();
        let keys: Vec<(TreeId, &[u8])> = names.iter().map(|name| (tree, name.as_bytes())).collect();
        if presumes_new {
            snapshot.presume_absent(&keys);
        } else {
            snapshot.prefetch(&keys).unwrap();
        }
        let mut set = WriteSet::with_snapshot(&snapshot);
        for name in names {
            assert!(!snapshot.contains(tree, name.as_bytes()).unwrap());
            set.put_guarded(tree, name.as_bytes(), &[7; 100]);
            for part in 0..4 {
                set.put(index, format!("{part} {name}").as_bytes(), b"");
            }
            if stamped {
                set.put_stamped(index, 0, b"", b"entry");
            }
        }
        set.merge(CATALOG_TREE, &[COUNTER, 9], &to_bytes(1));
        engine.commit(set).unwrap();
    };
    let scan = |tree, rows: usize| {
        let snapshot = engine.snapshot();
        let mut cursor = snapshot
            .cursor(tree, Included(b"0 00100"), Unbounded, Direction::Forward)
            .unwrap();
        for _ in 0..rows {
            cursor.next().unwrap().unwrap();
        }
        snapshot.prefetch(&wanted(index)[..rows]).unwrap();
    };
    insert(&names[..1], false, false);
    scan(index, 0);
    // Where the region is, and whether there is a lock still.
    while engine
        .get_latest(tree, names[0].as_bytes())
        .unwrap()
        .is_none()
    {}
    let more: Vec<String> = (1000..2000).map(|i| format!("{i:05}")).collect();
    let operations: [(&str, u64, &dyn Fn()); 11] = [
        ("a snapshot", 1, &|| drop(engine.snapshot())),
        ("1,000 documents with 4 indexes", 5, &|| {
            insert(&names[1..], false, false)
        }),
        ("the same, which are taken for new", 4, &|| {
            insert(&more, false, true)
        }),
        ("a document that is taken for new", 4, &|| {
            insert(&["b".to_owned()], true, true);
        }),
        ("the newest value of a key", 1, &|| {
            let found = engine.get_latest(tree, names[0].as_bytes()).unwrap();
            assert_eq!(found.unwrap().unwrap().len(), 100);
        }),
        ("the newest value of no key", 1, &|| {
            assert!(engine.get_latest(tree, b"x").unwrap().unwrap().is_none());
        }),
        ("the newest values of a short range", 1, &|| {
            let found = engine.scan_latest(tree, b"0000", 64).unwrap();
            assert_eq!(found.unwrap().len(), 10);
        }),
        ("1,000 look-ups", 2, &|| {
            let snapshot = engine.snapshot();
            snapshot.prefetch(&wanted(tree)).unwrap();
            for name in &names {
                assert!(snapshot.contains(tree, name.as_bytes()).unwrap());
            }
        }),
        ("the region of a scan", 4, &|| scan(index, 100)),
        ("100 entries of an index with their documents", 3, &|| {
            scan(index, 100)
        }),
        ("a document with its entry in the oplog", 5, &|| {
            insert(&["a".to_owned()], true, false);
        }),
    ];
    for (what, most, operation) in operations {
        let began = engine.stats();
        operation();
        let now = engine.stats();
        let taken = now.round_trips - began.round_trips;
        println!(
            "| {what} | {taken} | {} | {} | {} | {} |",
            now.timestamps.count - began.timestamps.count,
            now.gets.count - began.gets.count,
            now.scans.count - began.scans.count,
            now.commits.count - began.commits.count,
        );
        assert!(taken <= most, "{what}: {taken} of {most}");
    }
    let stats = engine.stats();
    assert!(stats.timestamps.count > 0 && stats.timestamps.micros > 0);
    assert!(stats.gets.count > 0 && stats.scans.count > 0 && stats.commits.count > 0);
}
