use std::time::Duration;

use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::fail_points::{Mode, SwitchName};
use crate::reply::push_count;
use frond_runtime::Work;

pub struct ConfigureFailPoint;

const CONFIGURE_FAIL_POINT: Spec = Spec {
    names: &["configureFailPoint"],
    audits: Audited::Itself,
    doc: "Makes commands fail or wait on demand (`failCommand`, `onPrimaryTransactionalWrite`, `failGetMoreAfterCursorCheckout`, \
          `maxTimeAlwaysTimeOut` and others), for tests; only with `enableTestCommands`.",
    fields: &["mode", "data"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ConfigureFailPoint {
    fn spec(&self) -> &'static Spec {
        &CONFIGURE_FAIL_POINT
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        // MongoDB requires a login only; a fail point changes the server as a parameter does.
        Ok(Needs::cluster(Action::SetParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check_test_commands(cx)?;
        let args = cx.args();
        let points = &cx.server.execution.fail_points;
        let name = match cx.body.first() {
            Some((_, Value::String(name))) => name,
            _ => return Err(Error::bad_value("the fail point's name must be a string")),
        };
        // The name is checked before the mode.
        points.times(name).ok_or_else(|| unknown(name))?;
        let mode = args.get("mode").ok_or_else(|| args.missing("mode"))?;
        let (mode, data) = (Mode::parse(&mode)?, args.doc_field("data")?);
        let acted = match name {
            "failCommand" => points.set(mode, data)?,
            "onPrimaryTransactionalWrite" => points.set_on_write(mode, data)?,
            "failGetMoreAfterCursorCheckout" => points.set_on_get_more(mode, data)?,
            name => {
                let switch = SwitchName::find(name).ok_or_else(|| unknown(name))?;
                points.set_switch(switch, mode, data)?
            }
        };
        let mut reply = DocBuf::new();
        push_count(&mut reply, "count", acted);
        Ok(reply)
    }
}

fn unknown(name: &str) -> Error {
    let mut known = vec![
        "failCommand",
        "onPrimaryTransactionalWrite",
        "failGetMoreAfterCursorCheckout",
    ];
    known.extend(SwitchName::ALL.iter().map(|(_, text)| *text));
    Error::new(
        ErrorCode::FailPointSetFailed,
        format!(
            "{name} not found; this server has the fail points {}",
            known.join(", ")
        ),
    )
}

/// Refuses a command that is there for tests only, unless these are enabled.
pub fn check_test_commands(cx: &Context<'_>) -> Result<()> {
    if cx.server.settings.test_commands {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::CommandNotFound,
        format!(
            "no such command: '{}' (start the server with --setParameter enableTestCommands=1)",
            cx.name
        ),
    ))
}

pub struct WaitForFailPoint;

const WAIT_FOR_FAIL_POINT: Spec = Spec {
    names: &["waitForFailPoint"],
    doc: "Waits until a fail point has acted so often; only with `enableTestCommands`.",
    fields: &["timesEntered"],
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for WaitForFailPoint {
    fn spec(&self) -> &'static Spec {
        &WAIT_FOR_FAIL_POINT
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::SetParameter))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check_test_commands(cx)?;
        let args = cx.args();
        let name = args.str(cx.name)?.ok_or_else(|| args.missing(cx.name))?;
        let wanted = args
            .u64("timesEntered")?
            .ok_or_else(|| args.missing("timesEntered"))?;
        loop {
            let acted = cx.server.execution.fail_points.times(name);
            if acted.ok_or_else(|| unknown(name))? >= wanted {
                return Ok(DocBuf::new());
            }
            cx.limits.check()?;
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::{TestServer, wait_until};

    #[tokio::test(flavor = "multi_thread")]
    async fn it_is_off_unless_asked_for() {
        let mut server = TestServer::new();
        let command = doc! {"configureFailPoint": "failCommand", "mode": "off"};
        assert_eq!(server.code("admin", command), 59);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_fail_as_they_are_told_to() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        let set = |mode: &frond_bson::DocBuf, data: &frond_bson::DocBuf| {
            let mut command = doc! {"configureFailPoint": "failCommand"};
            command.push_all(mode);
            command.push("data", data);
            command
        };
        let ping = || doc! {"ping": 1};
        server.run(
            "admin",
            set(
                &doc! {"mode": {"times": 1}},
                &doc! {"failCommands": ["ping"], "errorCode": 91, "errorLabels": ["Retry"]},
            ),
        );
        let answer = server.answer("test", &ping(), false).reply;
        assert_eq!(answer.get_i32("code"), Some(91));
        assert_eq!(answer.get_str("codeName"), Some("ShutdownInProgress"));
        assert!(answer.get_array("errorLabels").is_some());
        server.run("test", ping());

        let data = doc! {
            "failCommands": ["insert"], "writeConcernError": {"code": 64, "errmsg": "late"},
        };
        let reply = server.run("admin", set(&doc! {"mode": "alwaysOn"}, &data));
        assert_eq!(reply.get_i32("count"), Some(1));
        let reply = server.run("test", doc! {"insert": "c", "documents": [{}]});
        assert_eq!(reply.get_i32("n"), Some(1));
        assert!(reply.get_doc("writeConcernError").is_some());
        // Also when the reply waits for the journal.
        let journaled = doc! {"insert": "c", "documents": [{}], "writeConcern": {"j": true}};
        let reply = server.run("test", journaled.clone());
        assert!(reply.get_doc("writeConcernError").is_some());
        let data = doc! {"failCommands": ["insert"], "blockConnection": true, "blockTimeMS": 7};
        server.run("admin", set(&doc! {"mode": "alwaysOn"}, &data));
        let answer = server.answer("test", &journaled, false);
        assert_eq!(answer.wait.unwrap().as_millis(), 7);

        let data = doc! {"failCommands": ["ping"], "closeConnection": true};
        server.run("admin", set(&doc! {"mode": "alwaysOn"}, &data));
        assert!(server.answer("test", &ping(), false).close);
        let data = doc! {"failCommands": ["ping"], "blockConnection": true, "blockTimeMS": 7};
        server.run("admin", set(&doc! {"mode": "alwaysOn"}, &data));
        let answer = server.answer("test", &ping(), false);
        assert_eq!(answer.wait.unwrap().as_millis(), 7);
        let failed = server.answer("test", &doc! {"ping": 1, "nonsense": 1}, false);
        assert_eq!(failed.reply.get_f64("ok"), Some(0.0));
        assert_eq!(failed.wait.unwrap().as_millis(), 7);
        // Also a command that does not exist, and a handshake by the application name in it.
        let data = doc! {
            "failCommands": ["nonsense", "isMaster"], "errorCode": 91, "appName": "a",
        };
        server.run("admin", set(&doc! {"mode": "alwaysOn"}, &data));
        let client = doc! {"application": {"name": "a"}};
        for command in [
            doc! {"nonsense": 1, "client": &client},
            doc! {"isMaster": 1, "client": &client},
        ] {
            assert_eq!(server.code("test", command.clone()), 91, "{command:?}");
        }
        server.run(
            "admin",
            doc! {"configureFailPoint": "failCommand", "mode": "off"},
        );
        assert!(!server.answer("test", &ping(), false).close);

        for (command, code) in [
            (doc! {"configureFailPoint": "failCommand"}, 40414),
            (doc! {"configureFailPoint": 1, "mode": "off"}, 2),
            (doc! {"configureFailPoint": "other", "mode": "off"}, 193),
        ] {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
    }

    /// As the driver specifications of change streams use it.
    #[tokio::test(flavor = "multi_thread")]
    async fn reads_of_cursors_fail_when_they_have_their_cursor() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        server.fill("c", 30);
        let set = |data: &frond_bson::DocBuf| {
            let name = "failGetMoreAfterCursorCheckout";
            doc! {"configureFailPoint": name, "mode": {"times": 1}, "data": data}
        };
        let open = |server: &mut TestServer| {
            let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
            reply.get_doc("cursor").unwrap().get_i64("id").unwrap()
        };
        server.run(
            "admin",
            set(&doc! {"errorCode": 91, "closeConnection": false}),
        );
        assert_eq!(
            server.code("test", doc! {"getMore": 1i64, "collection": "c"}),
            43
        );
        let id = open(&mut server);
        let command = doc! {"getMore": id, "collection": "c"};
        let reply = server.reply("test", command);
        assert_eq!(reply.get_i32("code"), Some(91));
        assert_eq!(reply.get("errorLabels"), None, "it is no change stream");
        server.run("admin", set(&doc! {"closeConnection": true}));
        let id = open(&mut server);
        let command = doc! {"getMore": id, "collection": "c"};
        assert!(server.answer("test", &command, false).close);
        assert_eq!(server.code("admin", set(&doc! {"nonsense": 1})), 40415);
    }

    /// As the driver specifications of retryable writes use it.
    #[tokio::test(flavor = "multi_thread")]
    async fn retryable_writes_lose_their_connection_before_or_after_their_commit() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        let lsid = crate::sessions::SessionId::random().to_doc();
        let set = |mode: &frond_bson::DocBuf, data: &frond_bson::DocBuf| {
            let name = "onPrimaryTransactionalWrite";
            doc! {"configureFailPoint": name, "mode": mode, "data": data}
        };
        let commands = [
            doc! {"insert": "c", "documents": [{"_id": 1}]},
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]},
            doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}},
            doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        ];
        let documents = [
            Some(doc! {"_id": 1}),
            Some(doc! {"_id": 1, "n": 1}),
            Some(doc! {"_id": 1, "n": 2}),
            None,
        ];
        let mut before = None;
        for (number, (mut command, after)) in (1i64..).zip(commands.into_iter().zip(documents)) {
            // Other writes are not concerned.
            server.run(
                "admin",
                set(
                    &doc! {"times": 1},
                    &doc! {"failBeforeCommitExceptionCode": 1},
                ),
            );
            server.run("test", doc! {"insert": "other", "documents": [{}]});
            command.push_all(&doc! {"lsid": &lsid, "txnNumber": number});
            let stored = |server: &mut TestServer| {
                let reply = server.run("test", doc! {"find": "c"});
                server.batch(&reply, "firstBatch").pop()
            };
            assert!(server.answer("test", &command, false).close, "{command:?}");
            assert_eq!(stored(&mut server), before, "{command:?}");
            server.run("admin", set(&doc! {"times": 1}, &doc! {}));
            assert!(server.answer("test", &command, false).close, "{command:?}");
            assert_eq!(stored(&mut server), after, "{command:?}");
            let again = server.answer("test", &command, false);
            assert!(!again.close && again.reply.get_f64("ok") == Some(1.0));
            assert_eq!(stored(&mut server), after, "{command:?}");
            before = after;
        }
        let name = "onPrimaryTransactionalWrite";
        server.run("admin", doc! {"configureFailPoint": name, "mode": "off"});
        assert!(!server.server.execution.fail_points.is_on());
    }

    /// As PyMongo's tests use it.
    #[tokio::test(flavor = "multi_thread")]
    async fn limits_of_time_end_at_once_or_never() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        server.fill("c", 30);
        let set = |name: &str, mode: &str| doc! {"configureFailPoint": name, "mode": mode};
        let limited = doc! {"find": "c", "batchSize": 2, "maxTimeMS": 60_000};
        let reply = server.run("test", limited.clone());
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        server.run("admin", set("maxTimeAlwaysTimeOut", "alwaysOn"));
        assert_eq!(server.code("test", limited), 50);
        assert_eq!(
            server.code("test", doc! {"count": "c", "maxTimeMS": 60_000}),
            50
        );
        assert_eq!(
            server.code("test", doc! {"getMore": id, "collection": "c"}),
            50
        );
        server.run("test", doc! {"count": "c"});
        server.run("test", doc! {"count": "c", "maxTimeMS": 0});
        server.run("admin", set("maxTimeAlwaysTimeOut", "off"));
        server.run("admin", set("maxTimeNeverTimeOut", "alwaysOn"));
        let long = doc! {"aggregate": "c", "pipeline": [{"$match": {"$expr": {"$gt": ["$_id", 1]}}}], "cursor": {}, "maxTimeMS": 1};
        server.run("test", long);
        server.run("admin", set("maxTimeNeverTimeOut", "off"));
        assert!(!server.server.execution.fail_points.is_on());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reads_wait_as_long_as_the_fail_point_is_on() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        server.fill("c", 30);
        let data = doc! {"nss": "test.c", "shouldCheckForInterrupt": true};
        let name = "waitInFindBeforeMakingBatch";
        let set = doc! {"configureFailPoint": name, "mode": "alwaysOn", "data": &data};
        server.run("admin", set);
        // Other namespaces do not wait, and this one as long as its limit is.
        server.run("test", doc! {"find": "d"});
        // On a busy machine the time of one may be over before it gets there.
        let limited = doc! {"find": "c", "maxTimeMS": 20};
        wait_until("a find that enters", || {
            assert_eq!(server.code("test", limited.clone()), 50);
            server.server.execution.fail_points.times(name) >= Some(1)
        });
        let waited = doc! {"waitForFailPoint": name, "timesEntered": 1, "maxTimeMS": 60_000};
        server.run("admin", waited);
        let more = doc! {"waitForFailPoint": name, "timesEntered": 9, "maxTimeMS": 20};
        assert_eq!(server.code("admin", more), 50);
        let shared = server.server.clone();
        let other = std::thread::spawn(move || {
            let connection = shared.clients.connections.list().remove(0);
            wait_until("a find that waits", || {
                connection.running.lock().waits_for == Some(name)
            });
            let off = crate::fail_points::Mode::Off;
            let switch = crate::fail_points::SwitchName::find(name).unwrap();
            shared
                .execution
                .fail_points
                .set_switch(switch, off, None)
                .unwrap();
        });
        let reply = server.run("test", doc! {"find": "c", "batchSize": 2});
        other.join().unwrap();
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        for name in [
            "waitAfterPinningCursorBeforeGetMoreBatch",
            "waitBeforeUnpinningOrDeletingCursorAfterGetMoreBatch",
        ] {
            // One that acts once does not hold up who has passed it.
            let mode = doc! {"times": 1};
            let set = doc! {"configureFailPoint": name, "mode": &mode, "data": {"nss": "test.c"}};
            server.run("admin", set);
            server.run(
                "test",
                doc! {"getMore": id, "collection": "c", "batchSize": 2},
            );
        }
        for (wrong, code) in [
            (
                doc! {"configureFailPoint": name, "mode": "alwaysOn", "data": {"x": 1}},
                40415,
            ),
            (
                doc! {"waitForFailPoint": "nonsense", "timesEntered": 1},
                193,
            ),
            (doc! {"waitForFailPoint": name}, 40414),
        ] {
            assert_eq!(server.code("admin", wrong.clone()), code, "{wrong:?}");
        }
    }
}
