use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use frond_bson::{ArrayBuf, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::TailSignal;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use crate::cursors::Cursor;
use crate::fail_points::SwitchName;
use crate::observability::metrics::Op;
use crate::outcome::{AWAIT_DEFAULT, Outcome, Pause, Tail, Wait};
use crate::reply::CursorBatch;
use crate::reply_quota::ReplyQuota;
use crate::sharding;

pub struct GetMore;

const SPEC: Spec = Spec {
    names: &["getMore"],
    doc: "Fetches the next batch of a cursor.",
    fields: &["collection", "batchSize"],
    unsupported_fields: &["term", "lastKnownCommittedOpTime"],
    op: Op::GetMore,
    kind: "getmore",
    on_collection: false,
    in_transactions: InTransactions::Always,
    max_time_is_wait: true,
    ..Spec::READ
};

impl Command for GetMore {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        // The command fails without a number.
        let id = match request.body.first() {
            Some((_, Value::Int64(id))) => id,
            _ => return Ok(Needs::LoggedIn),
        };
        match request.server.clients.cursors.owner(id) {
            None => Ok(Needs::LoggedIn),
            Some((_, Some(owner))) if Some(&owner.user) == request.user => {
                Ok(Needs::LoggedIn.and(Needs::Same(owner.needs.clone())))
            }
            Some(_) => Err(Error::new(
                ErrorCode::Unauthorized,
                format!("cursor id {id} was not created by the authenticated user"),
            )),
        }
    }

    fn start(&self, cx: &mut Context<'_>) -> Result<Outcome> {
        let request = Fields::parse(cx)?;
        let id = request.id;
        let described = cx.server.clients.cursors.describe(id);
        let described = described.ok_or_else(|| missing(cx, id))?;
        cx.operation.reads_change_stream = described.is_change_stream;
        if cx.max_time.is_some() && !described.awaits {
            return Err(Error::bad_value(
                "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
            ));
        }
        let namespace = described.namespace;
        let requested = format!("{}.{}", cx.db, request.collection);
        if namespace != requested {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!(
                    "Requested getMore on namespace '{requested}', but cursor belongs to a different \
                     namespace {namespace}"
                ),
            ));
        }
        if let Some(ended) = cx.server.clients.cursors.take_ended(id) {
            return Err(ended);
        }
        let until = Instant::now() + cx.max_time.unwrap_or(AWAIT_DEFAULT);
        let follows = described.awaits && !described.is_backup;
        if follows && cx.server.clients.cursors.followers().are_a_crowd() {
            return wait_for_documents(cx, id, None, until);
        }
        let next = next_batch(cx, id, request.size)?;
        reply_or_wait(cx, id, next, described.awaits.then_some(until))
    }

    fn resume(&self, cx: &mut Context<'_>, wait: Wait) -> Result<Outcome> {
        let Fields { id, size, .. } = Fields::parse(cx)?;
        let (until, has_turn) = match wait {
            Wait::Tail(tail) => (tail.until, tail.has_turn),
            Wait::Pause(pause) => (pause.until, true),
            Wait::Durability(_) | Wait::Topology(_) => {
                return Err(Error::internal("a getMore waits for documents only"));
            }
        };
        if !cx.server.clients.cursors.unpark(id) {
            return Err(killed());
        }
        if let Some(ended) = cx.server.clients.cursors.take_ended(id) {
            return Err(ended);
        }
        let next = if has_turn {
            next_batch(cx, id, size)?
        } else {
            no_batch(cx, id)?
        };
        reply_or_wait(cx, id, next, Some(until))
    }
}

/// The fields of the command.
struct Fields<'a> {
    id: i64,
    collection: &'a str,
    size: Option<u64>,
}

impl<'a> Fields<'a> {
    fn parse(cx: &Context<'a>) -> Result<Fields<'a>> {
        let args = cx.args();
        let id = match args.get("getMore") {
            Some(Value::Int64(id)) => id,
            other => {
                return Err(args.wrong_type(
                    "getMore",
                    &other.unwrap_or(Value::Null),
                    "type 'long'",
                ));
            }
        };
        let collection = args
            .str("collection")?
            .ok_or_else(|| args.missing("collection"))?;
        Ok(Fields {
            id,
            collection,
            size: args.u64("batchSize")?.filter(|size| *size > 0),
        })
    }
}

/// The reply with a batch. Until the time in `awaits`, the command waits instead of replying with an empty batch.
fn reply_or_wait(
    cx: &mut Context<'_>,
    id: i64,
    next: Next,
    awaits: Option<Instant>,
) -> Result<Outcome> {
    if next.documents.is_empty()
        && next.left != 0
        && let Some(until) = awaits.filter(|until| Instant::now() < *until)
    {
        if let Some(signal) = next.tail {
            return wait_for_documents(cx, id, Some(signal), until);
        }
        if let Some(at) = next.paused_until {
            if !cx.server.clients.cursors.park(id, &cx.connection.wake) {
                return Err(killed());
            }
            return Ok(Outcome::Wait(Wait::Pause(Pause {
                cursor: id,
                at,
                until,
            })));
        }
    }
    cx.exhaust.more_to_come = cx.exhaust.allowed && next.left != 0;
    let batch = CursorBatch {
        name: "nextBatch",
        documents: next.documents,
        time: None,
        resume_token: next.resume_token,
        id: next.left,
        namespace: &next.namespace,
    };
    Ok(Outcome::Reply(batch.into_reply()))
}

/// A batch that was read.
struct Next {
    namespace: String,
    documents: ArrayBuf,
    /// The token of a change stream.
    resume_token: Option<DocBuf>,
    /// The cursor's id, or 0 if it ended.
    left: i64,
    /// The signal of a tailable cursor, and how many notifications it has seen.
    tail: Option<(Arc<TailSignal>, u64)>,
    /// When there may be more, of a stream that has none for some time.
    paused_until: Option<Instant>,
}

/// Lets the command wait for documents, or only for a turn if there is no signal of new ones.
fn wait_for_documents(
    cx: &Context<'_>,
    cursor: i64,
    signal: Option<(Arc<TailSignal>, u64)>,
    until: Instant,
) -> Result<Outcome> {
    if !cx.server.clients.cursors.park(cursor, &cx.connection.wake) {
        return Err(killed());
    }
    Ok(Outcome::Wait(Wait::Tail(Tail {
        cursor,
        signal,
        has_turn: false,
        until,
    })))
}

/// An empty batch with the current resume token, for a getMore that timed out before its turn.
fn no_batch(cx: &mut Context<'_>, id: i64) -> Result<Next> {
    let mut out = cx.server.clients.cursors.check_out(id, &cx.limits.killed)?;
    let owned = check_session(cx, id, out.cursor()?);
    let resume_token = out.cursor()?.resume_token();
    let namespace = out.cursor()?.namespace.clone();
    out.put_back();
    owned.map(|()| Next {
        namespace,
        documents: ArrayBuf::new(),
        resume_token,
        left: id,
        tail: None,
        paused_until: None,
    })
}

/// The next batch of a cursor.
fn next_batch(cx: &mut Context<'_>, id: i64, size: Option<u64>) -> Result<Next> {
    let mut out = cx.server.clients.cursors.check_out(id, &cx.limits.killed)?;
    if let Err(failure) = check_session(cx, id, out.cursor()?) {
        out.put_back();
        return Err(failure);
    }
    if let Some(effect) = cx.server.execution.fail_points.of_get_more() {
        cx.connection.closes.fetch_or(effect.close, Relaxed);
        if let Some(code) = effect.error {
            return Err(Error::new(
                ErrorCode::from_code(code),
                "Hit the 'failGetMoreAfterCursorCheckout' failpoint",
            ));
        }
    }
    if cx.server.execution.fail_points.is_on() {
        let cursor = out.cursor()?;
        let (has_limit, ns) = (cursor.time_left.is_some(), cursor.namespace.clone());
        let points = &cx.server.execution.fail_points;
        if has_limit && points.acts(SwitchName::MaxTimeAlwaysTimeOut, "").is_some() {
            return Err(Error::new(
                ErrorCode::MaxTimeMSExpired,
                "operation exceeded time limit",
            ));
        }
        if has_limit && points.acts(SwitchName::MaxTimeNeverTimeOut, "").is_some() {
            cursor.time_left = None;
        }
        cx.wait_at(SwitchName::WaitAfterPinningCursorBeforeGetMoreBatch, &ns)?;
    }
    let batch = {
        let cursor = out.cursor()?;
        let mut limits = cx.limits.clone();
        if cursor.is_backup() {
            let progress = limits.progress.insert(Arc::default()).clone();
            cx.connection.running.lock().progress = Some(progress);
        }
        let began = Instant::now();
        limits.deadline = cursor.time_left.and_then(|time| began.checked_add(time));
        cursor.set_context(&limits);
        let mut room = ReplyQuota::new(cx.server, &limits, &mut cx.operation.permits);
        let batch = cursor.batch(size, &mut room);
        cursor.time_left = cursor
            .time_left
            .map(|time| time.saturating_sub(began.elapsed()));
        batch
    };
    let batch = match batch {
        Ok(batch) => batch,
        Err(failure) if failure.code() == ErrorCode::Interrupted && out.was_killed() => {
            return Err(killed());
        }
        Err(failure) if failure.code() == ErrorCode::Interrupted => {
            let interrupted = || failure.context("Executor error during getMore");
            return Err(out.ended_by().unwrap_or_else(interrupted));
        }
        Err(failure) => {
            if cx.operation.reads_change_stream {
                cx.server.maintenance.oplog.note_failure(&failure);
            }
            return Err(failure.context("Executor error during getMore"));
        }
    };
    cx.count_returned(batch.len());
    if cx.server.execution.fail_points.is_on() {
        let ns = out.cursor()?.namespace.clone();
        let name = SwitchName::WaitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch;
        cx.wait_at(name, &ns)?;
    }
    let cursor = out.cursor()?;
    cx.operation.originating = Some(cursor.originating.clone());
    cx.operation.query_shape = cursor.query_shape;
    if cursor.splits_events {
        cx.server
            .maintenance
            .oplog
            .count_split_events(batch.as_doc());
    }
    let mut next = Next {
        namespace: cursor.namespace.clone(),
        documents: batch,
        resume_token: cursor.resume_token(),
        left: 0,
        tail: None,
        paused_until: cursor.paused_until(),
    };
    if !cursor.ended() {
        next.tail = cursor.tail_signal();
        next.left = id;
        out.put_back();
    }
    Ok(next)
}

fn killed() -> Error {
    Error::new(
        ErrorCode::CursorKilled,
        "operation was killed because its cursor was killed",
    )
}

/// A cursor belongs to the session and to the transaction that opened it.
fn check_session(cx: &Context<'_>, id: i64, cursor: &Cursor) -> Result<()> {
    let number = cx.statement.as_ref().and(cx.txn_number);
    let (code, text) = match (cursor.session, cx.session) {
        (Some(owner), Some(user)) if owner != user => {
            (50738, "which was created in another session".to_owned())
        }
        (None, Some(_)) => (
            50736,
            "which was not created in a session, in a session".to_owned(),
        ),
        (Some(_), None) => (
            50737,
            "which was created in a session, without a session".to_owned(),
        ),
        _ => match (cursor.transaction, number) {
            (None, Some(number)) => (
                50739,
                format!("which was not created in a transaction, in transaction {number}"),
            ),
            (Some(owner), None) => (
                50740,
                format!("which was created in transaction {owner}, without a txnNumber"),
            ),
            (Some(owner), Some(number)) if owner != number => (
                50741,
                format!("which was created in transaction {owner}, in transaction {number}"),
            ),
            _ => return Ok(()),
        },
    };
    Err(Error::location(
        code,
        format!("Cannot run getMore on cursor {id}, {text}"),
    ))
}

/// The error for a cursor that is not here. If another server of the cluster has it, the error says which.
fn missing(cx: &Context<'_>, id: i64) -> Error {
    let server = cx.server;
    let mark = server.clients.cursors.mark_of_another(id);
    let other = mark.and_then(|mark| {
        sharding::server_with_mark(&server.store, mark)
            .ok()
            .flatten()
    });
    match other {
        Some(other) => Error::new(
            ErrorCode::CursorNotFound,
            format!(
                "cursor id {id} not found: it is a cursor of the server {other}, and this is {}. Read a cursor from the server that \
                 opened it",
                server.host_and_port()
            ),
        ),
        None => server.clients.cursors.missing(id),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    fn id_of(reply: &DocBuf) -> i64 {
        reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_i64("id"))
            .unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cursor_is_paged_to_its_end() {
        let mut server = TestServer::new();
        server.fill("c", 25);
        let mut reply = server.run(
            "test",
            doc! {"find": "c", "sort": {"_id": 1}, "batchSize": 10},
        );
        let id = id_of(&reply);
        let mut seen = server.batch(&reply, "firstBatch");
        while id_of(&reply) != 0 {
            reply = server.run(
                "test",
                doc! {"getMore": id, "collection": "c", "batchSize": 10},
            );
            seen.extend(server.batch(&reply, "nextBatch"));
        }
        let ids: Vec<i64> = seen
            .iter()
            .map(|document| document.get_i64("_id").unwrap())
            .collect();
        assert_eq!(ids, (0..25).collect::<Vec<i64>>());
        assert_eq!(
            server.code("test", doc! {"getMore": id, "collection": "c"}),
            43
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cursor_sees_its_snapshot() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let id = id_of(&server.run("test", doc! {"find": "c", "batchSize": 2}));
        server.run(
            "test",
            doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        );
        let reply = server.run("test", doc! {"getMore": id, "collection": "c"});
        assert_eq!(server.batch(&reply, "nextBatch").len(), 8);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cursor_whose_collection_is_gone_fails_once_and_says_why() {
        let cases = [
            ("test", doc! {"drop": "c"}, "collection dropped. UUID "),
            (
                "test",
                doc! {"dropDatabase": 1},
                "collection dropped. UUID ",
            ),
            (
                "admin",
                doc! {"renameCollection": "test.c", "to": "test.d"},
                "collection renamed from 'test.c' to 'test.d'. UUID ",
            ),
            (
                "admin",
                doc! {"renameCollection": "test.x", "to": "test.c", "dropTarget": true},
                "collection dropped. UUID ",
            ),
            (
                "test",
                doc! {"convertToCapped": "c", "size": 10_000},
                "collection dropped. UUID ",
            ),
        ];
        for (db, command, expected) in cases {
            let mut server = TestServer::new();
            server.fill("c", 10);
            server.fill("x", 10);
            let pipeline = doc! {"aggregate": "c", "pipeline": [], "cursor": {"batchSize": 2}};
            let ids = [
                id_of(&server.run("test", doc! {"find": "c", "batchSize": 2})),
                id_of(&server.run("test", pipeline)),
            ];
            server.run(db, command.clone());
            for id in ids {
                let more = doc! {"getMore": id, "collection": "c"};
                let reply = server.reply("test", more.clone());
                assert_eq!(reply.get_i32("code"), Some(175), "{command:?}");
                let message = reply.get_str("errmsg").unwrap();
                let uuid = message.strip_prefix(expected).unwrap();
                assert_eq!(
                    uuid.split('-').map(str::len).collect::<Vec<_>>(),
                    [8, 4, 4, 4, 12]
                );
                assert_eq!(server.code("test", more), 43, "{command:?}");
            }
        }
    }

    /// As in MongoDB, which keeps a tailable cursor open in each case.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_tailable_cursor_with_a_limit_stays_open() {
        let mut server = TestServer::new();
        server.run("test", doc! {"create": "c", "capped": true, "size": 10_000});
        server.fill("c", 5);
        let reply = server.run("test", doc! {"find": "c", "tailable": true, "limit": 3});
        assert_eq!(server.batch(&reply, "firstBatch").len(), 3);
        let id = id_of(&reply);
        for _ in 0..2 {
            let reply = server.run("test", doc! {"getMore": id, "collection": "c"});
            assert!(server.batch(&reply, "nextBatch").is_empty());
            assert_eq!(id_of(&reply), id);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn cursors_belong_to_a_namespace_and_a_session() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let mine = SessionId::random().to_doc();
        let other = SessionId::random().to_doc();
        let find = doc! {"find": "c", "batchSize": 2, "lsid": &mine};
        let id = id_of(&server.run("test", find));
        let cases = [
            (doc! {"getMore": id, "collection": "d", "lsid": &mine}, 13),
            (
                doc! {"getMore": id, "collection": "c", "lsid": &other},
                50738,
            ),
            (doc! {"getMore": id, "collection": "c"}, 50737),
            (
                doc! {"getMore": id, "collection": "c", "lsid": &mine, "maxTimeMS": 5},
                2,
            ),
            (doc! {"getMore": 1, "collection": "c"}, 14),
            (doc! {"getMore": 1i64, "collection": "c"}, 43),
            (
                doc! {"getMore": 1i64, "collection": "c", "maxTimeMS": 5},
                43,
            ),
            (doc! {"getMore": id}, 40414),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        server.run(
            "test",
            doc! {"getMore": id, "collection": "c", "lsid": &mine},
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn exhaust_replies_follow_until_the_end() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let id = id_of(&server.run("test", doc! {"find": "c", "batchSize": 2}));
        let command = doc! {"getMore": id, "collection": "c", "batchSize": 4};
        assert!(server.answer("test", &command, true).more_to_come);
        let last = server.answer("test", &doc! {"getMore": id, "collection": "c"}, true);
        assert!(!last.more_to_come);
    }
}
