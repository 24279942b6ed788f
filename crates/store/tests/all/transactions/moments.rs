//! Reads at a fixed moment, and moments beside changes of the catalog.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::common::{Fixture, ns};
use super::*;
use frond_bson::doc;
use frond_store::{CountRequest, at_points};

#[test]
fn a_moment_stays_whatever_happens_later() {
    let f = Fixture::new();
    let (c, d) = (ns("db.c"), ns("db.d"));
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    let docs: Vec<DocBuf> = (0..50).map(|id| doc! {"_id": id, "a": id % 5}).collect();
    f.insert(&c, &docs);
    f.insert(&d, &docs);
    let moment = f.store.snapshot_reads();
    let past = f.store.at(&moment);
    let answers = |store: &DocumentStore| {
        let join = doc! {"from": "d", "localField": "a", "foreignField": "_id", "as": "d"};
        let context = OpContext::new();
        (
            find(store, &c, &doc! {"a": 3}).unwrap(),
            aggregate(store, &c, &[doc! {"$lookup": join}]).unwrap(),
            aggregate(store, &d, &[doc! {"$count": "n"}]).unwrap(),
            store.count(&d, &CountRequest::default(), &context).unwrap(),
            store.list_collections("db").unwrap().len(),
        )
    };
    let before = answers(&past);
    assert_eq!(before, answers(&f.store));
    delete(&f.store, &c, &doc! {"a": {"$gt": 2}}).unwrap();
    f.insert(&c, &[doc! {"_id": 100, "a": 3}]);
    f.insert(&ns("db.e"), &[doc! {}]);
    f.store.drop_collection(&d).unwrap();
    f.store
        .drop_indexes(&c, &frond_store::IndexSelector::All)
        .unwrap();
    f.store.checkpoint().unwrap();
    assert_eq!(answers(&past), before);
    f.store.rename_collection(&c, &ns("db.f"), false).unwrap();
    assert_eq!(answers(&past), before);
    assert_eq!(find(&past, &ns("db.e"), &doc! {}).unwrap().len(), 0);
    // A transaction of that moment sees the same, and cannot write where something changed.
    let transaction = f.store.begin_at(&moment);
    let inside = f.store.in_transaction(&transaction);
    assert_eq!(answers(&inside), before);
    assert_eq!(
        code(delete(&inside, &d, &doc! {})),
        ErrorCode::WriteConflict
    );
}

/// A commit that creates collections becomes visible as a whole, though the catalog publishes them after the engine.
#[test]
fn a_moment_has_all_of_a_transaction_that_creates_collections_or_nothing() {
    let f = Fixture::new();
    let (a, b) = (ns("db.a"), ns("db.b"));
    f.insert(&a, &[doc! {"_id": 0}]);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    insert(&inside, &a, &[doc! {"_id": 1}]).unwrap();
    let options = doc! {"collation": {"locale": "en", "strength": 2}};
    inside.create_collection(&b, &options).unwrap();
    inside
        .create_indexes(&b, &[&doc! {"key": {"t": 1}}])
        .unwrap();
    insert(&inside, &b, &[doc! {"_id": 1, "t": "x"}]).unwrap();
    let running = f.store.clone();
    let (names, seen) = ([a.clone(), b.clone()], Rc::new(RefCell::new(Vec::new())));
    let noted = seen.clone();
    let acts = at_points(move |point| {
        let past = running.at(&running.snapshot_reads());
        let other = running.begin();
        let in_other = running.in_transaction(&other);
        let [a, b] = &names;
        for store in [&past, &in_other, &running] {
            let of_b = find(store, b, &doc! {"t": "X"}).unwrap().len();
            let of_a = find(store, a, &doc! {"_id": 1}).unwrap().len();
            assert_eq!(of_a, of_b, "{point}");
            noted.borrow_mut().push((point, of_a, of_b));
        }
        if point.starts_with("a transaction is visible") {
            // It takes writes, outside and in transactions.
            insert(&running, b, &[doc! {"_id": 2}]).unwrap();
            insert(&in_other, b, &[doc! {"_id": 3}]).unwrap();
            other.commit(LOGGED).unwrap();
        }
    });
    transaction.commit(LOGGED).unwrap();
    drop(acts);
    let (before, after) = (
        "a transaction is about to be committed",
        "a transaction is visible, and its collections are not published",
    );
    let expected = [[(before, 0, 0); 3], [(after, 1, 1); 3]].concat();
    assert_eq!(*seen.borrow(), expected);
    assert_eq!(find(&f.store, &b, &doc! {}).unwrap().len(), 3);
    assert_sound(&f.store, &[&a, &b]);
}

/// A reader that had loaded the view missed a collection that was published before it looked for announced ones.
#[test]
fn a_collection_that_is_published_meanwhile_is_found() {
    let f = Fixture::new();
    let c = ns("db.c");
    let (running, name) = (f.store.clone(), c.clone());
    let acts = at_points(move |point| {
        let missed = "a collection is neither in the view nor announced";
        if point == missed && !running.collection_exists(&name) {
            let transaction = running.begin();
            insert(
                &running.in_transaction(&transaction),
                &name,
                &[doc! {"_id": 1}],
            )
            .unwrap();
            transaction.commit(LOGGED).unwrap();
        }
    });
    assert_eq!(find(&f.store, &c, &doc! {}).unwrap().len(), 1);
    drop(acts);
}

/// While a change of a definition is being committed, a moment has either definition, with the data that belongs to it.
#[test]
fn a_moment_during_a_change_of_the_catalog_is_whole() {
    let f = Fixture::new();
    let c = ns("db.c");
    let docs: Vec<DocBuf> = (0..20).map(|id| doc! {"_id": id, "a": id}).collect();
    f.insert(&c, &docs);
    let running = f.store.clone();
    let name = c.clone();
    let seen = Rc::new(Cell::new(0));
    let counter = seen.clone();
    let _acts = at_points(move |point| {
        if point != "a change of a collection is about to be committed" {
            return;
        }
        counter.set(counter.get() + 1);
        let transaction = running.begin();
        let inside = running.in_transaction(&transaction);
        assert_eq!(
            find(&inside, &name, &doc! {"a": {"$gte": 0}})
                .unwrap()
                .len(),
            20
        );
        let past = running.at(&running.snapshot_reads());
        assert_eq!(find(&past, &name, &doc! {}).unwrap().len(), 20);
    });
    f.store
        .create_indexes(&c, &[&doc! {"key": {"a": 1}}])
        .unwrap();
    f.store
        .drop_indexes(&c, &frond_store::IndexSelector::All)
        .unwrap();
    f.store.drop_collection(&c).unwrap();
    assert_eq!(seen.get(), 3);
}
