//! Reserves memory for the parsed form of a large command. A message of many small values takes many times its size once it is parsed,
//! and plans and records of the operation copy it.

use std::time::{Duration, Instant};

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{MemoryUse, OpContext, Reservation};

use super::parse::Request;
use crate::state::Server;

/// Smaller commands are not counted: tickets bound how many run.
const SMALL_BYTES: usize = 64 << 10;

/// The memory for each value of a command. An `$in` of numbers took 440 bytes for each: values, bounds of an index, the shape of the query.
const VALUE_BYTES: usize = 512;

/// An `explain` describes the bounds of its plans besides.
const EXPLAINED_VALUE_BYTES: usize = 1024;

/// The memory for each byte of a command besides its message: plans and records copy it.
const COPIES: usize = 2;

/// The longest wait for memory that others have.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The interval at which it is tried again.
const CHECK: Duration = Duration::from_millis(5);

/// The size of what is parsed of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parsed {
    values: usize,
    bytes: usize,
}

impl Parsed {
    fn from_document(document: &Doc) -> Parsed {
        Parsed {
            values: values(document),
            bytes: document.len_bytes(),
        }
    }

    fn max(self, other: Parsed) -> Parsed {
        Parsed {
            values: self.values.max(other.values),
            bytes: self.bytes.max(other.bytes),
        }
    }
}

/// The values in a document, those inside of others and the words of a text search too.
fn values(document: &Doc) -> usize {
    let each = document.iter().map(|(name, value)| match value {
        Value::Document(inner) => 1 + values(inner),
        Value::Array(inner) => 1 + values(inner),
        Value::String(text) if name == "$search" => 1 + words(text),
        _ => 1,
    });
    each.sum()
}

/// At least the words of a text.
fn words(text: &str) -> usize {
    text.bytes()
        .filter(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
        .count()
}

/// The part of a command that is parsed at a time. The statements of a write are parsed one after the other, and the documents of an insert
/// are not.
fn parsed(request: &Request<'_>) -> Parsed {
    let mut rest = Parsed::default();
    let mut largest = Parsed::default();
    for (name, value) in request.body.iter() {
        match (name, value) {
            ("documents", Value::Array(_)) if request.writes() => {}
            ("updates" | "deletes" | "ops", Value::Array(statements)) => {
                for statement in statements.values() {
                    if let Value::Document(statement) = statement {
                        largest = largest.max(Parsed::from_document(statement));
                    }
                }
            }
            (_, Value::Document(inner)) => {
                let inner = Parsed::from_document(inner);
                rest.values += inner.values;
                rest.bytes += inner.bytes;
            }
            (_, Value::Array(inner)) => {
                let inner = Parsed::from_document(inner);
                rest.values += inner.values;
                rest.bytes += inner.bytes;
            }
            (_, value) => rest.bytes += value.len_bytes(),
        }
    }
    for (name, documents) in &request.sequences {
        if *name == "documents" {
            continue;
        }
        for document in *documents {
            if let Ok(statement) = Doc::validate(document) {
                largest = largest.max(Parsed::from_document(statement));
            }
        }
    }
    Parsed {
        values: rest.values + largest.values,
        bytes: rest.bytes + largest.bytes,
    }
}

/// The bytes to reserve for a command; none for a small one.
fn needed(request: &Request<'_>) -> usize {
    let in_sequences = |(name, documents): &(&str, frond_wire::DocIter<'_>)| {
        if *name == "documents" {
            0
        } else {
            documents.remaining_bytes().len()
        }
    };
    let sequences: usize = request.sequences.iter().map(in_sequences).sum();
    if request.body.len_bytes() + sequences < SMALL_BYTES {
        return 0;
    }
    let parsed = parsed(request);
    if parsed.bytes < SMALL_BYTES {
        return 0;
    }
    let each = if request.name == "explain" {
        EXPLAINED_VALUE_BYTES
    } else {
        VALUE_BYTES
    };
    parsed
        .values
        .saturating_mul(each)
        .saturating_add(parsed.bytes.saturating_mul(COPIES))
}

/// Reserves the memory of a large command, and waits for it if others have it.
///
/// # Errors
/// `ExceededMemoryLimit` (146) if there is never so much, or none for long; an interruption.
pub fn reserve(
    server: &Server,
    request: &Request<'_>,
    limits: &OpContext,
) -> Result<Option<Reservation>> {
    let bytes = needed(request);
    if bytes == 0 {
        return Ok(None);
    }
    let memory = server.store.memory();
    let until = Instant::now() + WAIT_MAX;
    loop {
        if let Some(reserved) = memory.try_reserve(MemoryUse::Queries, bytes) {
            return Ok(Some(reserved));
        }
        if bytes as u64 > memory.client_limit() || Instant::now() > until {
            return Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "there is no memory for a command of so many values: it may take {bytes} bytes. Divide it, try again later, or \
                     give the server more memory"
                ),
            ));
        }
        limits.check()?;
        std::thread::sleep(CHECK);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, DocBuf, doc};

    use super::*;
    use crate::testing::TestServer;

    fn numbers(count: i32) -> ArrayBuf {
        let mut list = ArrayBuf::new();
        (0..count).for_each(|number| list.push(number));
        list
    }

    fn list(documents: impl Iterator<Item = DocBuf>) -> ArrayBuf {
        let documents: Vec<DocBuf> = documents.collect();
        documents.iter().collect()
    }

    fn needed_of(body: &DocBuf) -> usize {
        needed(&Request::new("db", body))
    }

    #[test]
    fn a_command_needs_memory_for_each_of_its_values() {
        let find = |count| doc! {"find": "c", "filter": {"a": {"$in": &numbers(count)}}};
        assert_eq!(needed_of(&find(100)), 0);
        let many = needed_of(&find(100_000));
        assert!((48 << 20..60 << 20).contains(&many), "{many}");
        let explain = needed_of(&doc! {"explain": &find(100_000)});
        assert!(explain > many + (48 << 20), "{explain}");
        let text = needed_of(&doc! {"find": "c", "filter": {"a": "x".repeat(1 << 20)}});
        assert!((2 << 20..3 << 20).contains(&text), "{text}");
        let words =
            doc! {"find": "c", "filter": {"$text": {"$search": "some words ".repeat(10_000)}}};
        assert!(needed_of(&words) > 9 << 20);
    }

    #[test]
    fn statements_of_a_write_need_memory_one_after_the_other() {
        let documents = list((0..10_000).map(|id| doc! {"_id": id}));
        assert_eq!(needed_of(&doc! {"insert": "c", "documents": &documents}), 0);
        let small = |id: i32| doc! {"q": {"_id": id}, "u": {"$set": {"x": 1}}};
        let statements = list((0..10_000).map(small));
        assert_eq!(needed_of(&doc! {"update": "c", "updates": &statements}), 0);
        let large = doc! {"q": {"_id": 1}, "u": {"$set": {"x": &numbers(50_000)}}};
        let one: ArrayBuf = [large].iter().collect();
        assert!(needed_of(&doc! {"update": "c", "updates": &one}) > 25 << 20);
    }

    /// Eight clients with an `$in` of 1,350,000 numbers each took 660 MiB of a server in 256 MiB.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_command_whose_values_exceed_the_memory_is_refused() {
        let mut server = TestServer::with(|settings| settings.cache_bytes = Some(16 << 20));
        let find = |count| doc! {"find": "c", "filter": {"a": {"$in": &numbers(count)}}};
        server.run("db", find(20_000));
        assert_eq!(server.code("db", find(200_000)), 146);
        let memory = server.server.store.memory();
        assert_eq!(memory.used(MemoryUse::Queries), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_parsed_command_of_an_idle_cursor_stays_counted() {
        let mut server = TestServer::with(|settings| settings.cache_bytes = Some(16 << 20));
        let documents = list((0..10).map(|id| doc! {"_id": id, "a": id}));
        server.run("db", doc! {"insert": "c", "documents": &documents});
        let find = doc! {"find": "c", "filter": {"a": {"$in": &numbers(20_000)}}, "batchSize": 1};
        let reply = server.run("db", find);
        let held = server.server.store.memory().used(MemoryUse::Queries);
        assert!(held > 10 << 20, "{held}");
        let id = reply.get_doc("cursor").unwrap().get_i64("id").unwrap();
        let ids: ArrayBuf = [id].into_iter().collect();
        server.run("db", doc! {"killCursors": "c", "cursors": &ids});
        assert_eq!(server.server.store.memory().used(MemoryUse::Queries), 0);
    }
}
