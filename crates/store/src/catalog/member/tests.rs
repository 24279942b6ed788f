//! Members of a replica set in one process: what the leader writes, the others have, in the trees and in memory.

mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use frond_bson::{Timestamp, Value, doc};
use frond_kv::{EntryId, LogEntry, MemberLog};

use crate::backup::{BackupRequest, RestoreTarget, Step};
use crate::{DocumentStore, EngineOptions, FindRequest, OpContext, StoreOptions};
use work::{
    SETTINGS, all, copy_files, entries, insert, ns, numbered, shown, update, write_everything,
};

/// Longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Signal(Sender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// Members whose entries are exchanged by a thread in the place of consensus.
struct Set {
    members: Vec<DocumentStore>,
    folders: Vec<tempfile::TempDir>,
    driver: Option<Driver>,
    term: u64,
}

struct Driver {
    stop: Arc<AtomicBool>,
    wake: Sender<()>,
    thread: thread::JoinHandle<()>,
}

fn open(folder: &tempfile::TempDir) -> DocumentStore {
    let mut engine = EngineOptions::new(folder.path());
    engine.memtable_bytes = Some(1 << 20);
    DocumentStore::open_engine(engine, StoreOptions::default().of_member()).unwrap()
}

/// Calls something for each member at the same time, and waits until all have it durably.
fn durably(calls: impl Iterator<Item = (Arc<dyn MemberLog>, Option<LogEntry>, EntryId)>) {
    let (done, wait) = channel();
    let mut count = 0;
    for (log, entry, id) in calls {
        let done = done.clone();
        let done = Box::new(move |result| {
            let _ = done.send(result);
        });
        match entry {
            Some(entry) => log.append(entry, done).unwrap(),
            None => log.seal(id, b"members", done).unwrap(),
        }
        count += 1;
    }
    for _ in 0..count {
        wait.recv_timeout(PATIENCE).unwrap().unwrap();
    }
}

/// Makes an entry of what the first log has, and gives it to the others.
fn replicate(logs: &[Arc<dyn MemberLog>], id: EntryId) {
    durably(std::iter::once((logs[0].clone(), None, id)));
    let entry = logs[0].read(id.index, id.index + 1, 0).unwrap().remove(0);
    durably((logs[1..].iter()).map(|log| (log.clone(), Some(entry.clone()), id)));
    for log in logs {
        log.apply(id).unwrap();
    }
}

impl Set {
    /// A set whose first member leads. `prepare` makes what is there before.
    fn new(count: usize, prepare: impl FnOnce(&DocumentStore)) -> Set {
        let folders: Vec<_> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let alone = EngineOptions::new(folders[0].path());
        let alone = DocumentStore::open_engine(alone, StoreOptions::default()).unwrap();
        alone.turn_on_oplog(SETTINGS).unwrap();
        prepare(&alone);
        alone.close().unwrap();
        drop(alone);
        for folder in &folders[1..] {
            copy_files(folders[0].path(), folder.path());
        }
        let mut set = Set {
            members: folders.iter().map(open).collect(),
            folders,
            driver: None,
            term: 0,
        };
        set.lead(0);
        set
    }

    fn logs(&self, leader: usize) -> Vec<Arc<dyn MemberLog>> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.swap(0, leader);
        (order.iter())
            .map(|member| self.members[*member].member_log().unwrap())
            .collect()
    }

    /// A member leads in a new term. The others follow it from here on.
    fn lead(&mut self, leader: usize) {
        self.end_driver();
        self.term += 1;
        let (term, logs) = (self.term, self.logs(leader));
        let next = move |log: &dyn MemberLog| EntryId {
            term,
            index: log.state().last.map_or(0, |last| last.index + 1),
        };
        replicate(&logs, next(&*logs[0]));
        let (stop, (wake, woken)) = (Arc::new(AtomicBool::new(false)), channel());
        let waker = Waker::from(Arc::new(Signal(wake.clone())));
        let stopped = stop.clone();
        let woken = Mutex::new(woken);
        let thread = thread::spawn(move || {
            let mut context = Context::from_waker(&waker);
            while !stopped.load(Ordering::Acquire) {
                match logs[0].poll_group(&mut context) {
                    Poll::Ready(_) => replicate(&logs, next(&*logs[0])),
                    Poll::Pending => {
                        let _ = woken
                            .lock()
                            .unwrap()
                            .recv_timeout(Duration::from_millis(100));
                    }
                }
            }
        });
        self.driver = Some(Driver { stop, wake, thread });
        let log = self.members[leader].member_log().unwrap();
        log.set_leading(true).unwrap();
        self.members[leader].clean_up_as_leader().unwrap();
    }

    fn end_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.stop.store(true, Ordering::Release);
            let _ = driver.wake.send(());
            driver.thread.join().unwrap();
        }
    }

    /// Waits until all members have what the leader has.
    fn settle(&self, leader: usize) {
        let log = self.members[leader].member_log().unwrap();
        let end = log.end_position();
        log.request(end);
        for member in &self.members {
            let log = member.member_log().unwrap();
            let until = std::time::Instant::now() + PATIENCE;
            let is_there = || {
                let state = log.state();
                log.committed_position() >= end && state.applied == state.committed
            };
            while !is_there() {
                assert!(
                    std::time::Instant::now() < until,
                    "a member does not follow"
                );
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// All members have the same, and their indexes belong to their documents.
    fn check(&self, leader: usize) {
        self.settle(leader);
        let expected = shown(&self.members[leader]);
        let start = Timestamp::default();
        let oplog = entries(&self.members[leader], start);
        for (number, member) in self.members.iter().enumerate() {
            let found = shown(member);
            assert_eq!(expected.len(), found.len(), "member {number}");
            for (expected, found) in expected.iter().zip(&found) {
                assert_eq!(expected, found, "member {number}");
            }
            assert!(
                oplog == entries(member, start),
                "the oplog of member {number}"
            );
            for info in member.list_databases().unwrap() {
                for collection in member.catalog().view().database(&info.name) {
                    let report = member.verify(&collection.ns).unwrap();
                    let (ns, errors) = (&collection.ns, report.errors);
                    assert!(errors.is_empty(), "member {number}, {ns}: {errors:?}");
                }
            }
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end_driver();
        }
    }
}

#[test]
fn followers_have_all_that_a_leader_writes() {
    let set = Set::new(3, |_| {});
    write_everything(&set.members[0]);
    set.check(0);
}

/// The documents before their changes are stored beside the entries.
#[test]
fn followers_have_the_pre_images_of_the_leader() {
    let set = Set::new(2, |_| {});
    write_everything(&set.members[0]);
    set.settle(0);
    let images = set.members[0].catalog();
    let images = images.collection(&ns("test.images")).unwrap().uuid;
    let mut found = 0;
    for entry in entries(&set.members[0], Timestamp::default()) {
        let Some(Value::Timestamp(ts)) = entry.get("ts") else {
            continue;
        };
        for position in 0..8 {
            let [leader, follower] = [0, 1].map(|member| {
                let oplog = set.members[member].oplog();
                oplog.pre_image(ts.to_u64(), position, &images).unwrap()
            });
            found += usize::from(leader.is_some());
            assert_eq!(leader, follower, "{entry:?} {position}");
        }
    }
    assert!(found >= 4, "{found}");
}

/// A transaction in several entries becomes visible at once.
#[test]
fn a_transaction_in_several_entries_is_one_commit_of_a_follower() {
    let set = Set::new(2, |store| insert(store, "test.c", &numbered(0..5)));
    let (leader, follower) = (&set.members[0], &set.members[1]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                let found = all(follower, "test.c", &FindRequest::default()).len();
                assert!([5, 45].contains(&found), "{found} documents");
            }
        });
        let before = leader.oplog().last();
        let transaction = leader.begin();
        let inside = leader.in_transaction(&transaction);
        let text = "x".repeat(1 << 20);
        for id in 100..140 {
            insert(
                &inside,
                "test.c",
                &[doc! {"_id": id, "text": text.as_str()}],
            );
        }
        transaction.commit(crate::Durability::Logged).unwrap();
        set.settle(0);
        done.store(true, Ordering::Release);
        let entries = entries(leader, before);
        assert!(entries.len() > 1, "{} entries", entries.len());
    });
    set.check(0);
}

#[test]
fn what_was_there_before_the_set_is_followed_too() {
    let set = Set::new(2, write_everything);
    insert(&set.members[0], "test.c", &numbered(10_000..10_500));
    let filter = doc! {"_id": {"$gte": 10_000}};
    update(
        &set.members[0],
        "test.c",
        &filter,
        &doc! {"$set": {"a": -3}},
    );
    set.members[0].drop_collection(&ns("test.images")).unwrap();
    set.check(0);
}

/// A reader of a follower never finds an index that lacks entries, or an entry without its document.
#[test]
fn readers_of_a_follower_see_whole_commits_while_definitions_change() {
    let set = Set::new(2, |store| insert(store, "test.c", &numbered(0..1000)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (set, done) = (&set, &done);
        for _ in 0..2 {
            scope.spawn(move || {
                let filter = doc! {"tags": {"$gte": 0}};
                while !done.load(Ordering::Acquire) {
                    let request = FindRequest {
                        filter: Some(&filter),
                        ..FindRequest::default()
                    };
                    let found = all(&set.members[1], "test.c", &request).len();
                    assert!(found.is_multiple_of(1000), "{found} documents");
                }
            });
        }
        let leader = &set.members[0];
        for round in 1..6 {
            let (unique, multikey) = (
                doc! {"key": {"u": 1}, "name": "u", "unique": true},
                doc! {"key": {"tags": 1}, "name": "tags"},
            );
            leader
                .create_indexes(&ns("test.c"), &[&unique, &multikey])
                .unwrap();
            insert(
                leader,
                "test.c",
                &numbered(round * 1000..(round + 1) * 1000),
            );
            leader
                .drop_indexes(
                    &ns("test.c"),
                    &crate::catalog::IndexSelector::Name("tags".into()),
                )
                .unwrap();
            leader
                .rename_collection(&ns("test.c"), &ns("test.d"), false)
                .unwrap();
            leader
                .rename_collection(&ns("test.d"), &ns("test.c"), false)
                .unwrap();
        }
        set.settle(0);
        done.store(true, Ordering::Release);
    });
    set.check(0);
}

#[test]
fn a_follower_that_takes_over_goes_on_where_the_leader_was() {
    let mut set = Set::new(3, |_| {});
    write_everything(&set.members[0]);
    let last = set.members[0].oplog().last();
    set.settle(0);
    set.members[0]
        .member_log()
        .unwrap()
        .set_leading(false)
        .unwrap();
    let documents = numbered(20_000..20_010);
    let documents: Vec<_> = documents.iter().map(|doc| &**doc).collect();
    let options = crate::InsertOptions {
        ordered: true,
        durability: crate::Durability::Logged,
        bypass_validation: false,
        keep_empty_timestamps: false,
    };
    let refused = set.members[0].insert(&ns("test.c"), &documents, options);
    let refused = refused.map(|outcome| format!("{:?}", outcome.errors));
    let refused = refused.unwrap_or_else(|error| format!("{:?}", error.code()));
    assert!(refused.contains("NotWritablePrimary"), "{refused}");
    set.lead(2);
    let leader = &set.members[2];
    insert(leader, "test.c", &numbered(20_000..20_010));
    insert(leader, "test.capped", &numbered(500..505));
    insert(
        leader,
        "test.ordered",
        &[doc! {"_id": 77}, doc! {"_id": 70}],
    );
    let index = doc! {"key": {"in.x": 1}, "name": "x"};
    leader.create_indexes(&ns("test.c"), &[&index]).unwrap();
    assert!(leader.oplog().last() > last, "times go on");
    set.check(2);
    // A member that is opened again has what it had.
    set.end_driver();
    let before = shown(&set.members[1]);
    set.members[1].close().unwrap();
    set.members[1] = open(&set.folders[1]);
    let log = set.members[1].member_log().unwrap();
    let last = log.state().last.unwrap();
    log.apply(last).unwrap();
    assert_eq!(shown(&set.members[1]), before);
}

/// A copy of a member, from the documents of a stream.
fn copy_of(store: &DocumentStore) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut target = RestoreTarget::create(folder.path()).unwrap();
    let mut stream = store.backup_stream(BackupRequest::default()).unwrap();
    let (context, mut head) = (OpContext::new(), Vec::new());
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let part = match stream.next(&context).unwrap() {
            Step::Document(part) => part,
            Step::End => break,
            Step::Pause(pause) => {
                assert!(std::time::Instant::now() < until, "the copy does not end");
                thread::sleep(pause);
                continue;
            }
        };
        let bytes = match part.get("bytes") {
            Some(Value::Binary { bytes, .. }) => bytes,
            _ => &[],
        };
        let number = |name: &str| u64::try_from(part.get_i64(name).unwrap()).unwrap();
        match part.get_str("t").unwrap() {
            "head" => head = bytes.to_vec(),
            "data" => target.extent(number("offset"), bytes).unwrap(),
            "log" => (target.log(number("from"), number("to"), bytes)).unwrap(),
            _ => {}
        }
    }
    let restored = target.finish_as_member(&head).unwrap();
    assert!(restored.loading.is_empty());
    folder
}

/// A copy of a leader has nothing that is not committed, and follows on. So does a copy of a follower, and one of a member that has
/// not changed since its last checkpoint.
#[test]
fn a_copy_of_a_member_is_a_member() {
    let mut set = Set::new(2, write_everything);
    insert(&set.members[0], "test.c", &numbered(10_000..10_500));
    set.settle(0);
    let committed = set.members[1].member_log().unwrap().state();
    set.end_driver();
    let expected = shown(&set.members[1]);
    insert(&set.members[0], "test.c", &numbered(20_000..20_500));
    assert_ne!(shown(&set.members[0]), expected);
    let log = set.members[0].member_log().unwrap();
    assert!(log.end_position() > log.committed_position());
    for source in [0, 1, 0] {
        let folder = copy_of(&set.members[source]);
        let copy = open(&folder);
        let log = copy.member_log().unwrap();
        assert_eq!(log.state().last, committed.last, "member {source}");
        assert_eq!(log.vote().unwrap(), None);
        log.apply(committed.last.unwrap()).unwrap();
        assert_eq!(shown(&copy), expected, "member {source}");
        set.members.push(copy);
        set.folders.push(folder);
    }
    set.lead(0);
    insert(&set.members[0], "test.c", &numbered(30_000..30_100));
    set.check(0);
    // A copy of a copy, which leads.
    let folder = copy_of(&set.members[3]);
    let log = set.members[3].member_log().unwrap();
    let last = log.state().last.unwrap();
    set.end_driver();
    set.members.push(open(&folder));
    set.folders.push(folder);
    let copied = set.members[5].member_log().unwrap();
    assert_eq!(copied.state().last, Some(last));
    copied.apply(last).unwrap();
    let log = set.members[0].member_log().unwrap();
    log.set_leading(false).unwrap();
    set.lead(5);
    insert(&set.members[5], "test.c", &numbered(40_000..40_100));
    set.check(5);
}

/// The documents that a deposed leader loses: those of all that it wrote after the commit point, also by transactions.
#[test]
fn what_a_deposed_leader_discards_is_found() {
    let mut set = Set::new(2, |store| {
        insert(store, "test.before", &numbered(0..10));
        // Its creation would wait for a majority.
        insert(store, "test.new", &numbered(10..11));
    });
    // The first write of a leader waits until the bound of its clock is committed.
    insert(&set.members[0], "test.before", &numbered(50..51));
    set.settle(0);
    set.end_driver();
    let leader = &set.members[0];
    let after = Timestamp::from_u64(leader.oplog().durable());
    assert_eq!(after, leader.oplog().last(), "all is committed");
    insert(leader, "test.before", &numbered(100..103));
    update(
        leader,
        "test.before",
        &doc! {"_id": 1},
        &doc! {"$set": {"a": -1}},
    );
    insert(leader, "test.new", &numbered(0..5));
    let durable = leader.oplog().durable();
    assert_eq!(durable, after.to_u64(), "nothing more is committed");
    let mut found = Vec::new();
    let context = OpContext::new();
    let summary = leader.visit_discarded(after, &context, &mut |discarded| {
        found.push((
            discarded.ns.as_str().to_owned(),
            discarded.document.get_i64("_id"),
        ));
        Ok(())
    });
    let summary = summary.unwrap();
    found.sort();
    let before = [1, 100, 101, 102].map(|id| ("test.before".to_owned(), Some(id)));
    let new = [0, 1, 2, 3, 4].map(|id| ("test.new".to_owned(), Some(id)));
    assert_eq!(found, [&before[..], &new[..]].concat());
    assert_eq!(
        (summary.documents, summary.absent, summary.commands),
        (9, 0, 0)
    );
}

/// Transactions have one entry with many operations.
#[test]
fn documents_of_all_kinds_of_entries_are_found() {
    let set = Set::new(1, |_| {});
    let after = set.members[0].oplog().last();
    write_everything(&set.members[0]);
    let context = OpContext::new();
    let mut documents = 0;
    let summary = set.members[0].visit_discarded(after, &context, &mut |discarded| {
        assert!(set.members[0].uuid_of(discarded.ns).is_some());
        documents += 1;
        Ok(())
    });
    let summary = summary.unwrap();
    assert_eq!(summary.documents, documents);
    assert!(summary.operations >= summary.documents + summary.absent && documents > 0);
    assert!(
        summary.operations > summary.entries - summary.commands,
        "transactions"
    );
}

/// A member that applies entries late finds those that are old enough, and a restart does not apply the others.
#[test]
fn entries_wait_in_the_log_until_they_are_old_enough() {
    let mut set = Set::new(2, |_| {});
    // Times are reserved with it, which waits for an entry.
    insert(&set.members[0], "test.c", &numbered(100..101));
    set.settle(0);
    set.end_driver();
    let logs = set.logs(0);
    logs[1].set_late(true);
    let mut made = Vec::new();
    for number in 0..3 {
        insert(&set.members[0], "test.c", &numbered(number..number + 1));
        let last = logs[0].state().last.unwrap();
        let id = EntryId {
            index: last.index + 1,
            ..last
        };
        durably(std::iter::once((logs[0].clone(), None, id)));
        let entry = logs[0].read(id.index, id.index + 1, 0).unwrap().remove(0);
        durably(std::iter::once((logs[1].clone(), Some(entry), id)));
        logs[0].apply(id).unwrap();
        made.push((id, set.members[0].oplog().last().to_u64()));
    }
    let aged = |stamp: u64| logs[1].aged(made[2].0, stamp).unwrap();
    assert_eq!(aged(0), None);
    for (id, stamp) in &made {
        assert_eq!(aged(*stamp), Some(*id));
        assert!(aged(*stamp - 1) < Some(*id));
    }
    assert_eq!(aged(u64::MAX), Some(made[2].0));
    assert_eq!(logs[1].aged(made[0].0, u64::MAX).unwrap(), Some(made[0].0));

    logs[1].apply(made[0].0).unwrap();
    drop(logs);
    let found = |store: &DocumentStore| all(store, "test.c", &FindRequest::default()).len();
    assert_eq!(found(&set.members[1]), 2);
    set.members[1].close().unwrap();
    set.members[1] = open(&set.folders[1]);
    assert_eq!(found(&set.members[1]), 2);
    let log = set.members[1].member_log().unwrap();
    assert_eq!(log.state().applied, Some(made[0].0));
    assert_eq!(log.state().last, Some(made[2].0));
    assert_eq!(log.aged(made[2].0, made[1].1).unwrap(), Some(made[1].0));
    log.apply(made[2].0).unwrap();
    assert_eq!(found(&set.members[1]), 4);
}
