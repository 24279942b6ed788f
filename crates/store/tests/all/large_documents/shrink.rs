//! Reduces a failure to the operations, and to the fields in them, that it needs.
//!
//! `FROND_LARGE_SHRINK=1` enables it for comparisons with the model, after a failure that does not need a crash.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, Value};
use frond_store::{Durability, EngineOptions};

use crate::common::disk::MemDisk;
use crate::common::ns;
use crate::large_documents::model::{Model, same_outcome};
use crate::large_documents::operations::{Op, run};
use crate::large_documents::queries::{check_all, check_sound};
use crate::large_documents::setting::Setting;

thread_local! {
    /// The operations of the last world of this thread.
    pub static HISTORY: RefCell<Vec<Op>> = const { RefCell::new(Vec::new()) };
}

fn replay(setting: &Setting, indexes: &[DocBuf], ops: &[Op]) {
    let mut options = EngineOptions::with_disk(Arc::new(MemDisk::default()));
    options.memtable_bytes = Some(16 << 10);
    options.inline = true;
    let store = setting.open(options).unwrap();
    let c = ns("db.c");
    for index in indexes {
        store.create_indexes(&c, &[index]).unwrap();
    }
    let mut model = Model::default();
    for op in ops {
        let (wanted, _) = model.run(op);
        let outcome = run(&store, &c, op, Durability::Logged);
        assert!(
            same_outcome(&outcome, &wanted),
            "{outcome:?} in place of {wanted:?}"
        );
        check_all(&store, &c, &model.docs, "");
        check_sound(&store, &c, "");
    }
}

fn fails(setting: &Setting, indexes: &[DocBuf], ops: &[Op]) -> bool {
    catch_unwind(AssertUnwindSafe(|| replay(setting, indexes, ops))).is_err()
}

/// All values with one part less, the larger parts first.
fn smaller(value: &Value<'_>) -> Vec<OwnedValue> {
    let (Value::Document(doc) | Value::Array(doc)) = value else {
        return Vec::new();
    };
    let is_array = matches!(value, Value::Array(_));
    let build = |elements: &[(&str, OwnedValue)]| -> OwnedValue {
        if is_array {
            let mut out = ArrayBuf::new();
            elements.iter().for_each(|(_, value)| out.push(value));
            return out.into();
        }
        let mut out = DocBuf::new();
        elements
            .iter()
            .for_each(|(name, value)| out.push(name, value));
        out.into()
    };
    let elements: Vec<(&str, OwnedValue)> = doc
        .iter()
        .map(|(name, value)| (name, value.into()))
        .collect();
    let mut found = Vec::new();
    let mut chunk = elements.len();
    while chunk > 0 {
        for start in (0..elements.len()).step_by(chunk) {
            let mut rest = elements.clone();
            rest.drain(start..(start + chunk).min(elements.len()));
            found.push(build(&rest));
        }
        chunk /= 2;
    }
    for (place, (_, inner)) in elements.iter().enumerate() {
        for less in smaller(&inner.as_value()) {
            let mut rest = elements.clone();
            rest[place].1 = less;
            found.push(build(&rest));
        }
    }
    found
}

fn doc_of(value: OwnedValue) -> Option<DocBuf> {
    match value {
        OwnedValue::Document(doc) => Some(doc),
        _ => None,
    }
}

/// All smaller versions of an operation.
fn smaller_ops(op: &Op) -> Vec<Op> {
    let docs = |doc: &Doc| {
        smaller(&Value::Document(doc))
            .into_iter()
            .filter_map(doc_of)
    };
    let mut found = Vec::new();
    match op {
        Op::Insert(inserted) => {
            for place in 0..inserted.len() {
                let mut rest = inserted.clone();
                rest.remove(place);
                found.push(Op::Insert(rest));
                for less in docs(&inserted[place]).filter(|doc| doc.contains_key("_id")) {
                    let mut rest = inserted.clone();
                    rest[place] = less;
                    found.push(Op::Insert(rest));
                }
            }
        }
        Op::Update(update) => {
            for less in smaller(&update.update.as_value()) {
                let mut update = update.clone();
                update.update = less;
                found.push(Op::Update(update));
            }
            for less in docs(&update.filter) {
                let mut update = update.clone();
                update.filter = less;
                found.push(Op::Update(update));
            }
        }
        Op::Modify {
            update: Some(update),
            ..
        } => found.push(Op::Update(update.clone())),
        Op::Modify { .. } => {}
        Op::Delete { filter, one } => {
            found.extend(docs(filter).map(|filter| Op::Delete { filter, one: *one }))
        }
    }
    found
}

/// Prints the smallest failing case.
pub fn shrink(setting: &Setting, indexes: &[DocBuf]) {
    if std::env::var("FROND_LARGE_SHRINK").is_err() {
        return;
    }
    let mut ops = HISTORY.with_borrow(Vec::clone);
    std::panic::set_hook(Box::new(|_| {}));
    let mut indexes = indexes.to_vec();
    if !fails(setting, &indexes, &ops) {
        let _ = std::panic::take_hook();
        println!("the operations alone do not fail");
        return;
    }
    let mut chunk = ops.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < ops.len() {
            let mut rest = ops.clone();
            rest.drain(at..(at + chunk).min(ops.len()));
            if fails(setting, &indexes, &rest) {
                ops = rest;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 {
            break;
        }
        chunk = chunk.div_ceil(2);
    }
    for place in (0..indexes.len()).rev() {
        let mut rest = indexes.clone();
        rest.remove(place);
        if fails(setting, &rest, &ops) {
            indexes = rest;
        }
    }
    let mut place = 0;
    while place < ops.len() {
        let less = smaller_ops(&ops[place]).into_iter().find_map(|less| {
            let mut rest = ops.clone();
            rest[place] = less;
            fails(setting, &indexes, &rest).then_some(rest)
        });
        match less {
            Some(rest) => ops = rest,
            None => place += 1,
        }
    }
    let _ = std::panic::take_hook();
    println!("{setting:?} indexes {indexes:?}");
    for op in &ops {
        println!("{op:?}");
    }
    let failed = catch_unwind(AssertUnwindSafe(|| replay(setting, &indexes, &ops)));
    assert!(failed.is_err());
}
