//! Letting idle cursors go without memory while it is scarce.
//!
//! A cursor keeps the memtables of its moment and the rows that it has sorted. While that is too much, idle cursors move what
//! they keep to disk, the longest idle first; their results stay the same. Those for which that is not possible are
//! closed, and their clients get that error.
//!
//! A transaction keeps the memtables of its begin and its own writes. While that is too much, idle transactions release the
//! memtables, the oldest first. Those that cannot are aborted, as are the oldest ones while far too much is kept, and the oldest one when
//! memory is used up, so that their clients run them again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_store::DocumentStore;

use super::unless_stopped;
use crate::cursors::Released;
use crate::observability::log::Component;
use crate::sessions::{AbortReason, Open};
use crate::state::Server;
use crate::transactions::abort_idle;

/// The interval of the checks.
const PERIOD: Duration = Duration::from_millis(100);
/// While less than this share of the memory for clients is free, idle cursors give back the rows that they hold.
const FREE_SHARE: u64 = 4;
/// A cursor that holds no more than this is not closed for it.
const LITTLE_BYTES: u64 = 256 << 10;
/// While less than this share is free although they did, those that hold rows which cannot go to disk are closed ...
const CLOSE_SHARE: u64 = 16;
/// ... until idle cursors hold no more than this share: the rest is what running commands hold.
const IDLE_SHARE: u64 = 8;

/// The most transactions that are detached from memtables in one pass: each writes the memtables to disk for itself.
const DETACHED_MAX: usize = 16;

/// Watches the memory until the server stops.
pub async fn release_memory(server: Arc<Server>) {
    let mut stop = server.stop_signal();
    while unless_stopped(&mut stop, tokio::time::sleep(PERIOD)).await {
        if Need::of_store(&server.store) != Need::Nothing {
            let server = server.clone();
            // Writes to disk.
            let pass = tokio::task::spawn_blocking(move || {
                release(&server);
                release_transactions(&server);
            });
            if pass.await.is_err() {
                // A panic of one pass, which is logged.
                continue;
            }
        }
    }
}

/// The memory that cursors have to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// Memtables that only they keep.
    Memtables,
    /// Also the rows that they hold.
    Rows,
    /// Everything: those that hold much have to be closed.
    Everything,
}

impl Need {
    fn of_store(store: &DocumentStore) -> Need {
        let memory = store.memory();
        let free_below = |share: u64| memory.free() < memory.client_limit() / share;
        if free_below(CLOSE_SHARE) {
            Need::Everything
        } else if free_below(FREE_SHARE) {
            Need::Rows
        } else if store.retains_too_much() {
            Need::Memtables
        } else {
            Need::Nothing
        }
    }
}

/// One pass over the idle cursors, the longest idle first.
fn release(server: &Server) {
    if let Some(set) = &server.set.replication {
        set.read_timestamps.expire(Instant::now(), true);
    }
    let (mut moved, mut closed) = (0u64, 0u64);
    // State that cannot go to disk, such as groups.
    let mut left = Vec::new();
    for id in server.clients.cursors.longest_idle() {
        let need = Need::of_store(&server.store);
        if need == Need::Nothing || server.is_stopping() {
            break;
        }
        let released = server.clients.cursors.release_idle(id, |cursor| {
            let before = cursor.kept_bytes();
            if before.memtables == 0 && (before.rows == 0 || need == Need::Memtables) {
                return Released::Nothing;
            }
            if cursor.release_memory().is_err() {
                return Released::Close;
            }
            let after = cursor.kept_bytes();
            if after.rows > LITTLE_BYTES {
                left.push((id, after.rows));
            }
            if after.memtables < before.memtables || after.rows < before.rows {
                Released::Moved
            } else {
                Released::Nothing
            }
        });
        match released {
            Released::Nothing => {}
            Released::Moved => moved += 1,
            Released::Close => closed += 1,
        }
    }
    let mut held: u64 = left.iter().map(|(_, rows)| rows).sum();
    for (id, rows) in left {
        let memory = server.store.memory();
        let is_much = held > memory.client_limit() / IDLE_SHARE;
        if !is_much || Need::of_store(&server.store) != Need::Everything {
            break;
        }
        if server.clients.cursors.release_idle(id, |_| Released::Close) == Released::Close {
            closed += 1;
            held -= rows;
        }
    }
    server.metrics.cursors_moved_to_disk.add(moved);
    server.metrics.cursors_closed_for_memory.add(closed);
    if closed > 0 {
        server.log.warning(
            Component::Query,
            9_100_010,
            "MemoryMonitor",
            "Closed idle cursors, the longest idle first: memory is scarce, and what they keep cannot go to disk",
            &doc! {"closed": i64::try_from(closed).unwrap_or(i64::MAX)},
        );
    }
}

/// One pass over the idle transactions, the oldest first.
fn release_transactions(server: &Server) {
    let open = server.clients.sessions.open_transactions();
    let idle = || open.iter().filter(|open| !open.activity().is_active());
    let mut detached = 0;
    for open in idle() {
        if Need::of_store(&server.store) == Need::Nothing || server.is_stopping() {
            return;
        }
        if open.transaction.retained_bytes() == 0 {
            continue;
        }
        if server.store.retains_far_too_much() {
            abort_for_memory(server, open);
        } else if detached < DETACHED_MAX {
            detached += 1;
            let Err(error) = open.transaction.detach() else {
                continue;
            };
            // It keeps what it has.
            let attributes = doc! {"error": error.to_string()};
            let (log, component) = (&server.log, Component::Transaction);
            let text = "A transaction cannot let go of memory";
            log.warning(component, 9_100_021, "MemoryMonitor", text, &attributes);
            if server.store.retains_too_much() {
                abort_for_memory(server, open);
            }
        }
    }
    if Need::of_store(&server.store) != Need::Everything {
        return;
    }
    let holds_something = |open: &&Arc<Open>| {
        open.transaction.bytes() as u64 + open.transaction.retained_bytes() > LITTLE_BYTES
    };
    if let Some(oldest) = idle().find(holds_something) {
        abort_for_memory(server, oldest);
    }
}

fn abort_for_memory(server: &Server, oldest: &Arc<Open>) {
    let bytes = oldest.transaction.bytes();
    if abort_idle(server, oldest, AbortReason::Memory) {
        server.log.warning(
            Component::Transaction,
            9_100_020,
            "MemoryMonitor",
            "Aborted the oldest idle transaction: memory is scarce",
            &doc! {
                "lsid": &oldest.session.to_doc(), "txnNumber": oldest.number,
                "bytes": i64::try_from(bytes).unwrap_or(i64::MAX),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, DocBuf};
    use frond_store::MemoryUse;

    use super::*;
    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    fn small() -> TestServer {
        TestServer::with(|settings| {
            settings.cache_bytes = Some(16 << 20);
            // On a busy machine a test may take longer than the default.
            settings.transaction_lifetime = Duration::from_secs(3600);
        })
    }

    fn fill(server: &mut TestServer, from: i32, count: i32) {
        let text = "x".repeat(1000);
        for start in (from..from + count).step_by(100) {
            let docs: Vec<DocBuf> = (start..start + 100)
                .map(|id| doc! {"_id": id, "a": id % 7, "text": text.as_str()})
                .collect();
            let docs: ArrayBuf = docs.iter().collect();
            server.run("db", doc! {"insert": "c", "documents": &docs});
        }
    }

    fn id(reply: &DocBuf) -> i64 {
        let cursor = reply.get_doc("cursor").unwrap();
        cursor.get_i64("id").unwrap()
    }

    fn count_rest(server: &mut TestServer, id: i64) -> usize {
        let get_more = doc! {"getMore": id, "collection": "c", "batchSize": 100_000};
        let reply = server.run("db", get_more);
        assert_eq!(self::id(&reply), 0);
        server.batch(&reply, "nextBatch").len()
    }

    /// 100 idle cursors held 440 MiB beside a cache of 64 MiB.
    #[tokio::test(flavor = "multi_thread")]
    async fn idle_cursors_give_back_memtables_when_they_keep_too_much() {
        let mut server = small();
        fill(&mut server, 0, 1000);
        let mut idle = Vec::new();
        for round in 0..12 {
            let find = doc! {"find": "c", "batchSize": 3};
            let there = 1000 + round * 500;
            idle.push((id(&server.run("db", find)), there as usize - 3));
            fill(&mut server, there, 500);
        }
        server.server.store.checkpoint().unwrap();
        assert_eq!(Need::of_store(&server.server.store), Need::Memtables);
        release(&server.server);
        assert_eq!(Need::of_store(&server.server.store), Need::Nothing);
        let metrics = &server.server.metrics;
        let moved = metrics.cursors_moved_to_disk.get();
        assert!((4..=12).contains(&moved), "{moved}");
        assert_eq!(metrics.cursors_closed_for_memory.get(), 0);
        for (cursor, rest) in idle {
            assert_eq!(count_rest(&mut server, cursor), rest);
        }
    }

    /// Sorted rows of idle cursors go to disk; a cursor over groups is closed, and its client gets the reason.
    #[tokio::test(flavor = "multi_thread")]
    async fn idle_cursors_give_back_rows_or_are_closed_when_memory_is_used_up() {
        let mut server = small();
        fill(&mut server, 0, 3000);
        let sorted = doc! {"find": "c", "sort": {"a": 1}, "batchSize": 3};
        let sorted = id(&server.run("db", sorted));
        let grouped = doc! {
            "aggregate": "c", "pipeline": [{"$group": {"_id": "$_id", "text": {"$push": "$text"}}}],
            "cursor": {"batchSize": 3},
        };
        let grouped = id(&server.run("db", grouped));
        let store = server.server.store.clone();
        let held = store.memory().used(MemoryUse::Queries);
        assert!(held > 5 << 20, "{held}");
        let free = |left: u64| {
            let others = store.memory().free().saturating_sub(left);
            store.memory().reserve(MemoryUse::Replies, others as usize)
        };
        let others = free(3 << 20);
        assert_eq!(Need::of_store(&store), Need::Rows);
        release(&server.server);
        let now = store.memory().used(MemoryUse::Queries);
        assert!(now + (5 << 19) < held, "{now} of {held}");
        assert_eq!(server.server.metrics.cursors_closed_for_memory.get(), 0);
        drop(others);
        let _others = free(100 << 10);
        assert_eq!(Need::of_store(&store), Need::Everything);
        release(&server.server);
        assert!(store.memory().used(MemoryUse::Queries) < 64 << 10);
        assert_eq!(server.server.metrics.cursors_closed_for_memory.get(), 1);
        let get_more = doc! {"getMore": grouped, "collection": "c"};
        assert_eq!(server.code("db", get_more), 239);
        assert_eq!(count_rest(&mut server, sorted), 2997);
    }

    /// 950 transactions kept 130 MiB of memtables of a server in 256 MiB, because each of them was detached before one was aborted.
    #[tokio::test(flavor = "multi_thread")]
    async fn idle_transactions_are_aborted_when_they_keep_far_too_much() {
        let mut server = small();
        fill(&mut server, 0, 1000);
        let count = |id: &DocBuf, starts: bool| {
            let mut command = doc! {
                "aggregate": "c", "pipeline": [{"$count": "n"}], "cursor": {},
                "lsid": id, "txnNumber": 1i64, "autocommit": false,
            };
            if starts {
                command.push("startTransaction", true);
            }
            command
        };
        let store = server.server.store.clone();
        let mut ids = Vec::new();
        while !store.retains_far_too_much() {
            assert!(ids.len() < 200);
            let id = SessionId::random().to_doc();
            server.run("db", count(&id, true));
            fill(&mut server, 1000 + ids.len() as i32 * 500, 500);
            ids.push(id);
            store.checkpoint().unwrap();
        }
        release_transactions(&server.server);
        assert!(!store.retains_far_too_much());
        let left = server.server.clients.sessions.open_transactions().len();
        assert!(left > 0 && left < ids.len(), "{left} of {}", ids.len());
        assert_eq!(server.code("db", count(&ids[0], false)), 251);
        let newest = &ids[ids.len() - 1];
        let reply = server.run("db", count(newest, false));
        let there = 1000 + 500 * (ids.len() as i32 - 1);
        assert_eq!(server.batch(&reply, "firstBatch"), [doc! {"n": there}]);
    }

    /// Idle transactions release memtables first, and keep what they read; then the oldest one is aborted.
    #[tokio::test(flavor = "multi_thread")]
    async fn idle_transactions_give_back_memory_or_are_aborted_the_oldest_first() {
        let mut server = small();
        fill(&mut server, 0, 1000);
        let statement = |lsid: &DocBuf, mut command: DocBuf, starts: bool| {
            command.push_all(&doc! {"lsid": lsid, "txnNumber": 1i64, "autocommit": false});
            if starts {
                command.push("startTransaction", true);
            }
            command
        };
        let count = doc! {"aggregate": "c", "pipeline": [{"$count": "n"}], "cursor": {}};
        let update = |id: i32| doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$set": {"b": 1}}}]};
        let mut ids = Vec::new();
        for round in 0..8 {
            let id = SessionId::random().to_doc();
            server.run("db", statement(&id, count.clone(), true));
            server.run("db", statement(&id, update(round), false));
            ids.push(id);
            fill(&mut server, 1000 + round * 500, 500);
        }
        server.server.store.checkpoint().unwrap();
        let retained = |server: &TestServer| -> u64 {
            let open = server.server.clients.sessions.open_transactions();
            open.iter()
                .map(|open| open.transaction.retained_bytes())
                .sum()
        };
        assert!(retained(&server) > 0);
        assert_eq!(Need::of_store(&server.server.store), Need::Memtables);
        release_transactions(&server.server);
        assert_eq!(Need::of_store(&server.server.store), Need::Nothing);
        assert_eq!(server.server.clients.sessions.open_transactions().len(), 8);
        for (round, id) in ids.iter().enumerate() {
            let reply = server.run("db", statement(id, count.clone(), false));
            let expected = doc! {"n": 1000 + 500 * round as i32};
            assert_eq!(server.batch(&reply, "firstBatch"), [expected]);
        }

        let large = doc! {"insert": "d", "documents": [{"x": "x".repeat(1 << 20)}]};
        for id in ids.iter().take(2) {
            server.run("db", statement(id, large.clone(), false));
        }
        let store = server.server.store.clone();
        let shared = server.server.clone();
        let aborted = || {
            let counts = &shared.clients.sessions.counts;
            counts
                .aborted_for_memory
                .load(std::sync::atomic::Ordering::Relaxed)
        };
        // Other operations reuse the memory that the transactions release and that flushes free.
        let mut others = Vec::new();
        while aborted() == 0 {
            assert!(others.len() < 1000);
            let free = store.memory().free() as usize;
            others.push(store.memory().reserve(MemoryUse::Replies, free));
            release_transactions(&server.server);
        }
        drop(others);
        let (oldest, newer) = (&ids[0], &ids[1]);
        let commit = doc! {"commitTransaction": 1};
        let reply = server.reply("admin", statement(oldest, commit.clone(), false));
        assert_eq!(reply.get_i32("code"), Some(251));
        let labels = reply.get_array("errorLabels").unwrap();
        assert_eq!(
            labels.get("0").and_then(|label| label.as_str()),
            Some("TransientTransactionError")
        );
        server.run("admin", statement(newer, commit, false));
        assert_eq!(aborted(), 1);
    }
}
