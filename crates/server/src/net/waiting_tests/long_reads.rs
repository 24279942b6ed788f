//! More long reads than there are tickets, beside other operations; changes of the schema that wait.

use super::*;

/// Documents of `scanned`.
const DOCUMENTS: i32 = 20_000;

fn batch_len(reply: &DocBuf) -> usize {
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    batch.unwrap().count()
}

/// As many long reads as there were tickets for them kept all later reads waiting until they ended.
#[tokio::test(flavor = "multi_thread")]
async fn more_long_reads_than_tickets_keep_no_other_waiting() {
    let served = Served::new();
    let mut client = served.connect();
    let mut insert = doc! {"insert": "scanned"};
    insert.push_array("documents", |documents| {
        (0..DOCUMENTS).for_each(|id| documents.push(&*doc! {"_id": id, "a": id % 7}));
    });
    client.run(&insert);
    let class = AdmissionClass::Read;
    let all = class.tickets() + class.long_tickets() + 40;
    let mut readers: Vec<_> = (0..all)
        .map(|_| {
            let mut reader = served.connect();
            reader.send(&endless_scan("scanned"));
            reader
        })
        .collect();
    // Some of them have to wait for a ticket.
    let waiting = served.until_waiting("scanned", 1);
    assert_eq!(waiting[0].get_str("waitingFor"), Some("a read ticket"));
    for _ in 0..3 {
        for command in [
            doc! {"find": "scanned", "filter": {"_id": 1}},
            doc! {"find": "scanned", "limit": 1},
            doc! {"aggregate": "scanned", "pipeline": [{"$limit": 1}], "cursor": {}},
        ] {
            assert_eq!(batch_len(&client.run(&command)), 1, "{command:?}");
        }
    }
    assert!(readers.iter().all(|reader| !reader.is_answered()));
    // Also those that have scanned already let others go first. One that waits to go on ends when it is killed.
    let has_begun = |operation: &DocBuf| operation.contains_key("planSummary");
    let waits = wait_for("a read that waits to go on", || {
        served.waiting("scanned").into_iter().find(has_begun)
    });
    assert_eq!(waits.get_str("waitingFor"), Some("a read ticket"));
    let id = waits.get_i64("opid").unwrap();
    client.run(&doc! {"killOp": 1, "op": id});
    let reader = readers.iter_mut().find(|reader| {
        let address = reader.0.local_addr().unwrap().to_string();
        waits.get_str("client") == Some(address.as_str())
    });
    reader.unwrap().receive_end_of_scan();
    // The others end some time after their clients.
    drop(readers);
    let executor = &served.test.server.execution.executor;
    wait_until("the end of the reads", || {
        executor.available(class) == class.tickets()
    });
}

/// It waited for room in memory, for other changes, and for the writers of its collection until they had it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_schema_that_waits_can_be_interrupted() {
    let served = Served::new();
    let mut client = served.connect();
    client.run(&doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]});
    let stuck = served.stick("data");
    let mut filling = served.writers(200);
    served.until_waiting("c", 1);
    for (name, mut command) in [
        (
            "collMod",
            doc! {"collMod": "c", "index": {"name": "a", "hidden": true}},
        ),
        ("drop", doc! {"drop": "c"}),
        ("dropIndexes", doc! {"dropIndexes": "c", "index": "a"}),
        (
            "createIndexes",
            doc! {"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b"}]},
        ),
    ] {
        let mut killed = served.connect();
        killed.send(&command);
        let is = |operation: &DocBuf| {
            let command = operation.get_doc("command");
            command.is_some_and(|command| command.contains_key(name))
        };
        let operation = wait_for(name, || {
            assert!(
                !killed.is_answered(),
                "it does not wait: {:?}",
                killed.receive()
            );
            served.waiting("c").into_iter().find(is)
        });
        let id = operation.get_i64("opid").unwrap();
        client.run(&doc! {"killOp": 1, "op": id});
        assert_eq!(killed.receive().get_i32("code"), Some(11601), "{name}");
        command.push("maxTimeMS", 30);
        client.send(&command);
        assert_eq!(client.receive().get_i32("code"), Some(50), "{name}");
    }
    drop(stuck);
    for writer in &mut filling {
        assert_eq!(writer.receive().get_i32("n"), Some(1));
    }
    let indexes = client.run(&doc! {"listIndexes": "c"});
    assert_eq!(batch_len(&indexes), 2);
}
