//! More long reads than there are tickets, beside other operations; changes of the schema that wait.

use super::*;

/// Documents of `long`.
const DOCUMENTS: i32 = 1000;

/// A read that takes minutes for each of a few documents.
fn long_read() -> DocBuf {
    let numbers = doc! {"$range": [0, 1_000_000]};
    let sum = doc! {"$reduce": {
        "input": &numbers, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]},
    }};
    doc! {"find": "long", "filter": {"$expr": {"$eq": [&sum, -1]}}}
}

fn batch_len(reply: &DocBuf) -> usize {
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    batch.unwrap().count()
}

/// As many long reads as there were tickets for them kept all later reads waiting until they ended.
#[tokio::test(flavor = "multi_thread")]
async fn more_long_reads_than_tickets_keep_no_other_waiting() {
    let served = Served::new();
    let mut client = served.connect();
    let mut insert = doc! {"insert": "long"};
    insert.push_array("documents", |documents| {
        (0..DOCUMENTS).for_each(|id| documents.push(&*doc! {"_id": id}));
    });
    client.run(&insert);
    let class = AdmissionClass::Read;
    let all = class.tickets() + class.long_tickets() + 40;
    let mut readers: Vec<_> = (0..all)
        .map(|_| {
            let mut reader = served.connect();
            reader.send(&long_read());
            reader
        })
        .collect();
    // Some of them have to wait for a ticket.
    let waiting = served.until_waiting("long", 1);
    assert_eq!(waiting[0].get_str("waitingFor"), Some("a read ticket"));
    for _ in 0..3 {
        for command in [
            doc! {"find": "long", "filter": {"_id": 1}},
            doc! {"find": "long", "limit": 1},
            doc! {"aggregate": "long", "pipeline": [{"$limit": 1}], "cursor": {}},
        ] {
            assert_eq!(batch_len(&client.run(&command)), 1, "{command:?}");
        }
    }
    assert!(readers.iter().all(|reader| !reader.is_answered()));
    // Those that wait are not only the ones that came last: the others let them go first.
    let first = readers[0].0.local_addr().unwrap().to_string();
    let is_first = |operation: &DocBuf| operation.get_str("client") == Some(first.as_str());
    let waits = wait_for("the first read that waits", || {
        served.waiting("long").into_iter().find(is_first)
    });
    assert_eq!(waits.get_str("waitingFor"), Some("a read ticket"));
    // A read that waits to go on ends when it is killed.
    let id = waits.get_i64("opid").unwrap();
    client.run(&doc! {"killOp": 1, "op": id});
    assert_eq!(readers[0].receive().get_i32("code"), Some(11601));
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
        ("collMod", doc! {"collMod": "c", "validator": {"x": 1}}),
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
        let operation = wait_for(name, || served.waiting("c").into_iter().find(is));
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
