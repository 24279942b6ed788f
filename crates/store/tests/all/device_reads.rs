//! Documents that are on the device are read several at a time. Their order, limits and batches are those of documents in memory.
#![allow(clippy::unwrap_used)]

use crate::common;

use common::{Fixture, ns};
use frond_bson::{ArrayBuf, DocBuf, Value, doc};
use frond_store::{FindRequest, OpContext};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const DOCUMENTS: i32 = 6000;

/// Documents that do not compress, in an order unlike that of their keys.
fn documents() -> Vec<DocBuf> {
    let mut random = StdRng::seed_from_u64(7);
    let document = |id: i32| {
        let text: String = (0..1200)
            .map(|_| char::from(random.random_range(b' '..b'~')))
            .collect();
        doc! {"_id": id, "a": (i64::from(id) * 7919 % 6000) as i32, "b": id % 3, "text": text.as_str()}
    };
    (0..DOCUMENTS).map(document).collect()
}

#[test]
fn documents_on_the_device_come_in_order_and_once() {
    let ns = ns("db.c");
    let documents = documents();
    let mut fixture = Fixture::new();
    for part in documents.chunks(500) {
        let outcome = fixture.insert(&ns, part);
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    }
    let index = doc! {"key": {"a": 1}};
    fixture.store.create_indexes(&ns, &[&index]).unwrap();

    let mut ids = ArrayBuf::new();
    (0..300).for_each(|number| ids.push(number * 37 % (DOCUMENTS + 500)));
    let filters = [
        doc! {"a": {"$gte": 100, "$lt": 700}},
        doc! {"a": {"$gte": 3000}, "b": 1},
        doc! {"_id": {"$in": ids}},
        doc! {"$or": [{"a": {"$lt": 50}}, {"_id": {"$gte": 5900}}]},
    ];
    for filter in &filters {
        for (sort, limit) in [
            (doc! {"a": 1}, None),
            (doc! {"a": -1}, Some(45)),
            (doc! {"_id": 1}, Some(7)),
            (doc! {"_id": -1}, None),
        ] {
            // Nothing is in memory then.
            fixture = fixture.reopen();
            let request = FindRequest {
                filter: Some(filter),
                sort: Some(&sort),
                limit,
                ..FindRequest::default()
            };
            let mut cursor = (fixture.store)
                .find(&ns, &request, &OpContext::new())
                .unwrap();
            let mut found = Vec::new();
            while let Some(doc) = cursor.next().unwrap() {
                found.push(doc);
                if found.len() % 70 == 0 {
                    cursor.release_memory().unwrap();
                }
            }
            let hint = doc! {"$natural": 1};
            let expected = fixture.find(
                &ns,
                &FindRequest {
                    hint: Some(Value::Document(&hint)),
                    ..request
                },
            );
            assert!(!expected.is_empty());
            assert!(found == expected, "{filter:?} {sort:?} {limit:?}");
        }
    }
}
