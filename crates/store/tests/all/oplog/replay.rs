//! The collections as the entries of the oplog describe them, and as the store has them.

use std::collections::BTreeMap;

use frond_bson::{Doc, DocBuf, Value};
use frond_oplog::diff;
use frond_store::DocumentStore;

use super::documents;
use crate::large_documents::values::key_of;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    pub ns: String,
    pub options: DocBuf,
    /// The names of the indexes, sorted.
    pub indexes: Vec<String>,
    /// By the keys of `_id`.
    pub documents: BTreeMap<Vec<u8>, DocBuf>,
}

/// Collections by their UUIDs.
pub type Collections = BTreeMap<Vec<u8>, Replayed>;

/// The key of a document. An update may change the type of a number in `_id`.
fn id_of(doc: &Doc) -> Vec<u8> {
    key_of(&doc.get("_id").unwrap())
}

/// The collections that all entries lead to.
pub fn replayed(store: &DocumentStore) -> Collections {
    let mut collections = Collections::new();
    let mut pending: Vec<DocBuf> = Vec::new();
    let mut last = None;
    for entry in documents(store) {
        let ts = entry.get("ts");
        let Some(Value::Timestamp(at)) = ts else {
            panic!("{entry:?}")
        };
        assert!(
            last.is_none_or(|last| last < at),
            "the order of the entries"
        );
        last = Some(at);
        let o = entry.get_doc("o").unwrap();
        let Some(operations) = o.get_array("applyOps") else {
            assert!(pending.is_empty(), "an entry inside of a chain");
            apply(&mut collections, &entry);
            continue;
        };
        pending.extend(
            operations
                .values()
                .map(|one| one.as_doc().unwrap().to_owned()),
        );
        if o.get_bool("partialTxn") == Some(true) {
            continue;
        }
        if let Some(count) = o.get_i64("count") {
            assert_eq!(count, pending.len() as i64);
        }
        for operation in pending.drain(..) {
            apply(&mut collections, &operation);
        }
    }
    assert!(pending.is_empty(), "a chain without an end");
    collections
}

fn apply(collections: &mut Collections, entry: &Doc) {
    let ns = entry.get_str("ns").unwrap();
    let o = entry.get_doc("o").unwrap();
    let op = entry.get_str("op").unwrap();
    if op == "n" {
        return;
    }
    if op == "c" && o.contains_key("dropDatabase") {
        let db = ns.split('.').next().unwrap();
        assert!(
            !collections
                .values()
                .any(|one| one.ns.starts_with(&format!("{db}.")))
        );
        return;
    }
    let uuid = entry.get_binary("ui").expect("a UUID").to_vec();
    if op == "c" {
        return command(collections, ns, uuid, entry, o);
    }
    let collection = collections.get_mut(&uuid).expect("a known collection");
    assert_eq!(collection.ns, ns);
    let documents = &mut collection.documents;
    match op {
        "i" => {
            assert_eq!(entry.get_doc("o2").map(id_of), Some(id_of(o)));
            let before = documents.insert(id_of(o), o.to_owned());
            assert_eq!(before, None, "an insert of {o:?}");
        }
        "u" => {
            let id = id_of(entry.get_doc("o2").unwrap());
            let before = documents.get(&id).expect("the document to update");
            let after = match o.get_doc("diff") {
                Some(difference) => diff::apply(difference, before).unwrap(),
                None => o.to_owned(),
            };
            assert_eq!(id_of(&after), id);
            // A replacement without `_id` counts as a change, also if the document stays as it was.
            let may_be_same = o.get_doc("diff").is_none_or(Doc::is_empty);
            assert!(
                may_be_same || after != *before,
                "an update that changes nothing: {o:?}"
            );
            documents.insert(id, after);
        }
        "d" => {
            let before = documents.remove(&id_of(o));
            assert!(before.is_some(), "a delete of {o:?}");
        }
        other => panic!("{other}"),
    }
}

fn command(collections: &mut Collections, ns: &str, uuid: Vec<u8>, entry: &Doc, o: &Doc) {
    let db = ns.strip_suffix(".$cmd").unwrap();
    let (name, of) = o.first().unwrap();
    let Value::String(of) = of else {
        panic!("{o:?}")
    };
    let full = format!("{db}.{of}");
    if name == "create" {
        let mut options = DocBuf::new();
        for (option, value) in o.iter().skip(1) {
            if option != "idIndex" {
                options.push(option, value);
            }
        }
        let has_name = collections.values().any(|one| one.ns == full);
        assert!(!has_name, "{full} twice");
        let new = Replayed {
            ns: full,
            options,
            ..Replayed::default()
        };
        assert_eq!(collections.insert(uuid, new), None);
        return;
    }
    if name == "renameCollection" {
        if let Some(target) = o.get_binary("dropTarget") {
            let dropped = collections.remove(target).expect("the target of a rename");
            assert_eq!(Some(dropped.ns.as_str()), o.get_str("to"));
            let count = entry.get_doc("o2").unwrap().get_i64("numRecords");
            assert_eq!(count, Some(dropped.documents.len() as i64));
        }
        let renamed = collections.get_mut(&uuid).unwrap();
        assert_eq!(renamed.ns, of);
        renamed.ns = o.get_str("to").unwrap().to_owned();
        return;
    }
    let collection = collections.get_mut(&uuid).expect("a known collection");
    assert_eq!(collection.ns, full);
    let mut add = |spec: &Doc| {
        let name = spec.get_str("name").unwrap().to_owned();
        assert!(!collection.indexes.contains(&name));
        collection.indexes.push(name);
        collection.indexes.sort();
    };
    match name {
        "drop" => {
            let count = entry.get_doc("o2").unwrap().get_i64("numRecords");
            assert_eq!(count, Some(collection.documents.len() as i64));
            collections.remove(&uuid);
        }
        "createIndexes" => {
            assert!(collection.documents.is_empty());
            add(o);
        }
        "commitIndexBuild" => {
            let specs = o.get_array("indexes").unwrap();
            specs.values().for_each(|spec| add(spec.as_doc().unwrap()));
        }
        "dropIndexes" => {
            let gone = o.get_str("index").unwrap();
            let at = collection.indexes.iter().position(|name| name == gone);
            collection.indexes.remove(at.expect("the index to drop"));
        }
        "collMod" => {
            for (option, value) in o.iter().skip(1).filter(|(name, _)| *name != "index") {
                let mut options = DocBuf::new();
                let kept = collection.options.iter();
                for (name, value) in kept.filter(|(name, _)| *name != option) {
                    options.push(name, value);
                }
                options.push(option, value);
                collection.options = options;
            }
        }
        other => panic!("{other}"),
    }
}

/// The collections of the store, without options.
pub fn stored(store: &DocumentStore) -> Collections {
    let mut collections = Collections::new();
    let view = store.catalog().view();
    for collection in view.iter().filter(|one| one.ns.db() != "local") {
        let mut found = Replayed {
            ns: collection.ns.as_str().to_owned(),
            ..Replayed::default()
        };
        found.indexes = (collection.ready_indexes())
            .map(|index| index.spec.name.clone())
            .filter(|name| name != "_id_")
            .collect();
        found.indexes.sort();
        let request = frond_store::FindRequest::default();
        let context = frond_store::OpContext::new();
        let mut cursor = store.find(&collection.ns, &request, &context).unwrap();
        while let Some(doc) = cursor.next().unwrap() {
            found.documents.insert(id_of(&doc), doc);
        }
        collections.insert(collection.uuid.to_vec(), found);
    }
    collections
}

/// Checks that the entries lead to what is stored.
pub fn check(store: &DocumentStore) {
    let mut replayed = replayed(store);
    for one in replayed.values_mut() {
        one.options = DocBuf::new();
    }
    let stored = stored(store);
    let names = |of: &Collections| -> Vec<String> {
        let mut names: Vec<String> = of.values().map(|one| one.ns.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&replayed), names(&stored));
    for (uuid, stored) in &stored {
        let replayed = replayed.get(uuid).expect("a collection of this UUID");
        assert_eq!(replayed.ns, stored.ns);
        assert_eq!(replayed.indexes, stored.indexes, "{}", stored.ns);
        assert_eq!(
            replayed.documents.len(),
            stored.documents.len(),
            "{}",
            stored.ns
        );
        for (id, document) in &stored.documents {
            let expected = replayed.documents.get(id);
            assert_eq!(expected, Some(document), "in {}", stored.ns);
        }
    }
}
