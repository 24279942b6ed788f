//! Collections and indexes that are created in a transaction.

use super::common::{Fixture, ns};
use super::*;
use frond_bson::doc;

/// A store without its documents: trees, collections, indexes.
fn outline(store: &DocumentStore) -> Vec<String> {
    let mut out = vec![format!("{} trees", store.engine().trees().unwrap().len())];
    for collection in store.list_collections("db").unwrap() {
        let name = ns(&format!("db.{}", collection.name));
        let indexes = store.list_indexes(&name).map_err(|error| error.code());
        out.push(format!("{name} {:?} {indexes:?}", collection.options));
    }
    out
}

fn create_and_fill(store: &DocumentStore) {
    let (implicit, explicit) = (ns("db.implicit"), ns("db.explicit"));
    insert(store, &implicit, &[doc! {"_id": 1, "a": 1}]).unwrap();
    let options =
        doc! {"collation": {"locale": "en", "strength": 2}, "validator": {"a": {"$exists": true}}};
    store.create_collection(&explicit, &options).unwrap();
    let indexes = [
        doc! {"key": {"a": 1}, "name": "a"},
        doc! {"key": {"b": 1}, "name": "b", "unique": true},
        doc! {"key": {"$**": "text"}, "name": "t"},
    ];
    let info = store.create_indexes(&explicit, &[&indexes[0]]).unwrap();
    assert_eq!(
        (info.before, info.after, info.created_collection),
        (1, 2, false)
    );
    let info = store
        .create_indexes(&explicit, &[&indexes[0], &indexes[1]])
        .unwrap();
    assert_eq!((info.before, info.after), (2, 3));
    let created = ns("db.created");
    let info = store.create_indexes(&created, &[&indexes[2]]).unwrap();
    assert_eq!(
        (info.before, info.after, info.created_collection),
        (1, 2, true)
    );
    let docs: Vec<DocBuf> = (0..20)
        .map(|i| doc! {"_id": i, "a": format!("A{}", i % 3), "b": i, "text": "maple"})
        .collect();
    for ns in [&explicit, &created] {
        assert_eq!(insert(store, ns, &docs).unwrap().inserted, 20);
    }
    assert_eq!(
        insert_codes(store, &explicit, &[doc! {"a": 1, "b": 3}]),
        [11000]
    );
    assert_eq!(insert_codes(store, &explicit, &[doc! {"b": 30}]), [121]);
}

fn check_contents(store: &DocumentStore) {
    let (explicit, created) = (ns("db.explicit"), ns("db.created"));
    assert_eq!(find(store, &explicit, &doc! {"a": "a1"}).unwrap().len(), 7);
    assert_eq!(
        find(store, &explicit, &doc! {"b": {"$gt": 15}})
            .unwrap()
            .len(),
        4
    );
    let text = doc! {"$text": {"$search": "maple"}};
    assert_eq!(find(store, &created, &text).unwrap().len(), 20);
    assert_eq!(find(store, &ns("db.implicit"), &doc! {}).unwrap().len(), 1);
    assert_eq!(store.list_indexes(&explicit).unwrap().len(), 3);
    for ns in [&explicit, &created] {
        assert_eq!(store.verify(ns).unwrap().errors, Vec::<String>::new());
    }
}

#[test]
fn collections_are_visible_inside_until_the_commit_and_then_everywhere() {
    let f = Fixture::new();
    f.insert(&ns("db.before"), &[doc! {"_id": 1}]);
    let before = outline(&f.store);
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    create_and_fill(&inside);
    check_contents(&inside);
    assert_eq!(inside.list_collections("db").unwrap().len(), 4);
    assert_eq!(outline(&f.store), before);
    assert!(
        find(&f.store, &ns("db.explicit"), &doc! {})
            .unwrap()
            .is_empty()
    );
    transaction.commit(LOGGED).unwrap();
    check_contents(&f.store);
    let names = ["db.before", "db.created", "db.explicit", "db.implicit"].map(ns);
    assert_sound(&f.store, &names.iter().collect::<Vec<_>>());
    // The new collections take writes and changes like others.
    let explicit = ns("db.explicit");
    f.insert(&explicit, &[doc! {"_id": 50, "a": "a1", "b": 50}]);
    f.store
        .create_indexes(&explicit, &[&doc! {"key": {"c": 1}}])
        .unwrap();
    f.store
        .drop_indexes(
            &explicit,
            &frond_store::IndexSelector::Name("c_1".to_owned()),
        )
        .unwrap();
    delete(&f.store, &explicit, &doc! {"_id": 50}).unwrap();
    let after = outline(&f.store);
    let f = f.reopen();
    check_contents(&f.store);
    assert_eq!(outline(&f.store), after);
    assert_sound(&f.store, &names.iter().collect::<Vec<_>>());
}

#[test]
fn nothing_is_left_of_collections_whose_transaction_is_aborted() {
    let f = Fixture::new();
    f.insert(&ns("db.before"), &[doc! {"_id": 1}]);
    let before = outline(&f.store);
    let transaction = f.store.begin();
    create_and_fill(&f.store.in_transaction(&transaction));
    transaction.abort();
    assert_eq!(outline(&f.store), before);
    let open = f.store.begin();
    create_and_fill(&f.store.in_transaction(&open));
    // The names are free.
    create_and_fill(&f.store);
    check_contents(&f.store);
    let after = outline(&f.store);
    drop(open);
    let f = f.reopen();
    assert_eq!(outline(&f.store), after);
}

#[test]
fn a_crash_with_an_open_transaction_leaves_nothing() {
    let f = Fixture::new();
    f.insert(&ns("db.before"), &[doc! {"_id": 1}]);
    let before = outline(&f.store);
    let transaction = f.store.begin();
    create_and_fill(&f.store.in_transaction(&transaction));
    let f = f.reopen();
    assert_eq!(outline(&f.store), before);
    // In a cluster the first server has not ended.
    if f.store.engine().cluster().is_none() {
        assert_eq!(
            code(transaction.commit(LOGGED)),
            ErrorCode::InterruptedAtShutdown
        );
    }
}

#[test]
fn a_collection_that_exists_is_not_created_again() {
    let f = Fixture::new();
    f.store
        .create_collection(&ns("db.before"), Doc::empty())
        .unwrap();
    // Outside it is no error.
    f.store
        .create_collection(&ns("db.before"), Doc::empty())
        .unwrap();
    let transaction = f.store.begin();
    let store = f.store.in_transaction(&transaction);
    store
        .create_collection(&ns("db.inside"), Doc::empty())
        .unwrap();
    for name in ["db.before", "db.inside"] {
        assert_eq!(
            code(store.create_collection(&ns(name), Doc::empty())),
            ErrorCode::NamespaceExists
        );
    }
}

/// A transaction looked only at the databases of its begin.
#[test]
fn a_database_whose_name_differs_in_case_is_refused() {
    let refused = ErrorCode::Location(13297);
    for created_before in [true, false] {
        let f = Fixture::new();
        let transaction = f.store.begin();
        let inside = f.store.in_transaction(&transaction);
        let create = || insert(&inside, &ns("Shop.a"), &[doc! {"_id": 1}]);
        if created_before {
            create().unwrap();
            assert_eq!(
                code(inside.create_collection(&ns("sHop.c"), Doc::empty())),
                refused
            );
        }
        f.insert(&ns("shop.b"), &[doc! {"_id": 1}]);
        if created_before {
            assert_eq!(code(transaction.commit(LOGGED)), refused)
        } else {
            assert_eq!(code(create()), refused)
        }
        transaction.abort();
        assert!(!f.store.collection_exists(&ns("Shop.a")));
        f.insert(&ns("shop.c"), &[doc! {"_id": 1}]);
    }
}

#[test]
fn a_name_that_was_taken_meanwhile_is_a_conflict() {
    type Take = fn(&DocumentStore);
    let ways: [(&str, Take); 3] = [
        ("insert", |store| {
            insert(store, &ns("db.c"), &[doc! {"_id": 7}]).unwrap();
        }),
        ("view", |store| {
            let options = doc! {"viewOn": "other", "pipeline": []};
            store.create_collection(&ns("db.c"), &options).unwrap();
        }),
        ("transaction", |store| {
            let other = store.begin();
            insert(
                &store.in_transaction(&other),
                &ns("db.c"),
                &[doc! {"_id": 7}],
            )
            .unwrap();
            other.commit(LOGGED).unwrap();
        }),
    ];
    for (way, take) in ways {
        for created_before in [true, false] {
            let f = Fixture::new();
            let transaction = f.store.begin();
            let inside = f.store.in_transaction(&transaction);
            let create = || insert(&inside, &ns("db.c"), &[doc! {"_id": 1}]);
            if created_before {
                create().unwrap();
                take(&f.store);
                insert(&inside, &ns("db.c"), &[doc! {"_id": 2}]).unwrap();
                assert_eq!(
                    code(transaction.commit(LOGGED)),
                    ErrorCode::WriteConflict,
                    "{way}"
                );
            } else {
                take(&f.store);
                assert_eq!(code(create()), ErrorCode::WriteConflict, "{way}");
                transaction.abort();
            }
            let outside = outline(&f.store);
            assert_eq!(outline(&f.reopen().store), outside, "{way}");
        }
    }
}

#[test]
fn indexes_are_created_on_new_empty_collections_only() {
    let f = Fixture::new();
    let (old, new) = (ns("db.old"), ns("db.new"));
    let index = doc! {"key": {"a": 1}};
    f.store.create_indexes(&old, &[&index]).unwrap();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    // One that exists is no error.
    let info = inside.create_indexes(&old, &[&index]).unwrap();
    assert_eq!((info.before, info.after), (2, 2));
    let other = doc! {"key": {"b": 1}};
    let refused = ErrorCode::OperationNotSupportedInTransaction;
    assert_eq!(code(inside.create_indexes(&old, &[&other])), refused);
    insert(&inside, &new, &[doc! {"_id": 1}]).unwrap();
    assert_eq!(code(inside.create_indexes(&new, &[&other])), refused);
    delete(&inside, &new, &doc! {}).unwrap();
    inside.create_indexes(&new, &[&other]).unwrap();
    transaction.commit(LOGGED).unwrap();
    assert_eq!(f.store.list_indexes(&new).unwrap().len(), 2);
    assert_eq!(f.store.list_indexes(&old).unwrap().len(), 2);
}

#[test]
fn natural_order_and_capped_collections_can_be_created() {
    let f = Fixture::new();
    let transaction = f.store.begin();
    let inside = f.store.in_transaction(&transaction);
    let (ordered, capped) = (ns("db.ordered"), ns("db.capped"));
    inside
        .create_collection(&ordered, &doc! {"naturalOrder": "insertion"})
        .unwrap();
    inside
        .create_collection(&capped, &doc! {"capped": true, "size": 4096})
        .unwrap();
    insert(&inside, &ordered, &[doc! {"_id": 2}, doc! {"_id": 1}]).unwrap();
    assert_eq!(insert_codes(&inside, &capped, &[doc! {}]), [263]);
    insert(&inside, &ordered, &[doc! {"_id": 0}]).unwrap();
    transaction.commit(LOGGED).unwrap();
    f.insert(&capped, &[doc! {"_id": 1}]);
    let f = f.reopen();
    let order = find(&f.store, &ordered, &doc! {}).unwrap();
    assert_eq!(
        order,
        vec![doc! {"_id": 2}, doc! {"_id": 1}, doc! {"_id": 0}]
    );
    assert_sound(&f.store, &[&ordered, &capped]);
}
