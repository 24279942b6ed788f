//! Matching, keys of indexes and keys of sorts allocate nothing for a document without arrays.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use frond_bson::{DocBuf, doc};
use frond_query::matcher::Filter;
use frond_query::paths::{KeyPaths, ParallelArrays, Path};
use frond_query::sort::SortSpec;

fn document() -> DocBuf {
    doc! {
        "_id": 7,
        "name": "Ada",
        "age": 36,
        "address": {"city": "London", "zip": 1},
        "tags": ["a", "b", "c"],
    }
}

#[test]
fn matching_does_not_allocate() {
    let document = document();
    for (filter, expected) in [
        (doc! {"_id": 7}, true),
        (
            doc! {"age": {"$gte": 21, "$lt": 65}, "address.city": "London"},
            true,
        ),
        (doc! {"name": {"$in": ["Bob", "Eve", "Ada"]}}, true),
        (doc! {"tags": "c"}, true),
        (
            doc! {"$or": [{"tags": {"$size": 2}}, {"age": {"$type": "string"}}]},
            false,
        ),
        (
            doc! {"tags": {"$elemMatch": {"$gt": "b"}}, "missing": null},
            true,
        ),
        (
            doc! {"age": {"$mod": [2, 0]}, "name": {"$not": {"$eq": "Bob"}}},
            true,
        ),
    ] {
        let filter = Filter::parse(&filter).unwrap();
        let matched = measure(|| assert_eq!(filter.matches(&document), expected));
        assert_eq!(matched.count_total, 0, "{:?}", filter.predicates());
    }
}

#[test]
fn keys_do_not_allocate() {
    let document = document();
    let paths = KeyPaths::new(["name", "age", "address.city", "missing"].map(Path::new)).unwrap();
    let keys = measure(|| {
        let mut keys = 0;
        paths
            .for_each(&document, ParallelArrays::Product, |values| {
                assert_eq!(values.len(), 4);
                keys += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(keys, 1);
    });
    assert_eq!(keys.count_total, 0);

    let sort = SortSpec::parse(&doc! {"age": -1, "address.city": 1}).unwrap();
    let mut key = Vec::with_capacity(100);
    let sorted = measure(|| sort.key_into(&document, &mut key).unwrap());
    assert_eq!(sorted.count_total, 0);
}
