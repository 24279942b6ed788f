//! The expected documents after the updates, and the comparison with them.

use std::collections::HashMap;

use frond_bson::{Doc, DocBuf, Value};

use crate::documents::manykeys::{Documents, Purpose, random_text};
use crate::documents::updates::Update;
use frond_client::{Error, Result};

/// A plain model of one collection.
pub struct Model {
    /// By document: the keys incremented, as often as they were.
    increments: Vec<Vec<u32>>,
    /// By document: the last updates that were sent to it.
    last: Vec<Last>,
    round: u64,
}

/// The last updates of a document. Of several connections any may have been the last one.
#[derive(Clone, Default)]
struct Last {
    /// The round that they were in.
    round: u64,
    /// Connection and number of the update.
    updates: Vec<(usize, u64)>,
}

impl Model {
    /// Documents as they were loaded.
    pub fn new(documents: u64) -> Self {
        Model {
            increments: vec![Vec::new(); documents as usize],
            last: vec![Last::default(); documents as usize],
            round: 0,
        }
    }

    /// Applies an update that a connection sent. Those of one connection come in their order.
    pub fn apply(&mut self, connection: usize, update: &Update) {
        let document = update.document as usize;
        if let Some(increments) = self.increments.get_mut(document) {
            increments.extend_from_slice(&update.keys);
        }
        let Some(last) = self.last.get_mut(document) else {
            return;
        };
        if last.round != self.round {
            *last = Last {
                round: self.round,
                updates: Vec::new(),
            };
        }
        match last.updates.iter_mut().find(|(by, _)| *by == connection) {
            Some((_, number)) => *number = update.number,
            None => last.updates.push((connection, update.number)),
        }
    }

    /// Marks the end of a round: all its updates are applied before those of the next.
    pub fn next_round(&mut self) {
        self.round += 1;
    }

    /// Compares a document with the model, key by key. `exact` also compares the order of fields and
    /// the types of numbers, which not every system keeps.
    pub fn check(
        &self,
        documents: &Documents,
        number: u64,
        found: &Doc,
        exact: bool,
    ) -> Result<()> {
        let wrong = |text: String| Error::Wrong(format!("document {number}: {text}"));
        let mut expected: Vec<i64> = (0..documents.names.len() as u32)
            .map(|key| documents.initial_value(number, key))
            .collect();
        let increments = self.increments.get(number as usize);
        for key in increments.into_iter().flatten() {
            if let Some(value) = expected.get_mut(*key as usize) {
                *value += 1;
            }
        }
        let stats = found
            .get_doc("stats")
            .ok_or_else(|| wrong("it has no stats".to_owned()))?;
        let eventnames = stats
            .get_doc("eventnames")
            .ok_or_else(|| wrong("it has no stats.eventnames".to_owned()))?;
        let sum = if exact {
            check_keys(documents, eventnames, &expected)
        } else {
            check_keys(documents, &arranged(documents, eventnames), &expected)
        };
        let sum = sum.map_err(wrong)?;
        let should_be: i64 = expected.iter().sum();
        let events = stats
            .get("events")
            .map(|events| if exact { events } else { as_written(events) });
        match events {
            Some(Value::Int64(events)) if events == sum && sum == should_be => {}
            events => {
                return Err(wrong(format!(
                    "stats.events is {events:?}, the sum of its keys is {sum}, and {should_be} is \
                     right"
                )));
            }
        }
        self.check_text(documents, number, found).map_err(wrong)
    }

    fn check_text(
        &self,
        documents: &Documents,
        number: u64,
        found: &Doc,
    ) -> std::result::Result<(), String> {
        let last = self.last.get(number as usize);
        let mut texts: Vec<String> = last
            .iter()
            .flat_map(|last| &last.updates)
            .map(|(_, update)| random_text(documents.seed, Purpose::Text, *update))
            .collect();
        if texts.is_empty() {
            texts.push(random_text(documents.seed, Purpose::FirstText, number));
        }
        match found.get_str("random") {
            Some(text) if texts.iter().any(|right| right == text) => Ok(()),
            text => Err(format!(
                "random is {text:?} instead of {}",
                texts.join(" or ")
            )),
        }
    }
}

/// A number of the type that it was written with, if it still is a whole one.
fn as_written(value: Value<'_>) -> Value<'_> {
    value.as_i64_lossless().map_or(value, Value::Int64)
}

/// The keys in the order in which they were written.
fn arranged(documents: &Documents, eventnames: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    let mut outer: HashMap<&str, Value<'_>> = eventnames.iter().collect();
    for group in &documents.groups {
        let names = group.keys.iter();
        let names = names.filter_map(|key| documents.names.get(*key as usize));
        match &group.bucket {
            None => arrange(names, &mut outer, &mut out),
            Some(bucket) => match outer.remove(bucket.as_str()) {
                Some(Value::Document(inner)) => {
                    let mut inner = inner.iter().collect();
                    out.push_doc(bucket, |out| {
                        arrange(names, &mut inner, out);
                        arrange_rest(&inner, out);
                    });
                }
                Some(other) => out.push_value(bucket, &other),
                None => {}
            },
        }
    }
    arrange_rest(&outer, &mut out);
    out
}

/// Takes the fields of these names.
fn arrange<'n>(
    names: impl Iterator<Item = &'n String>,
    fields: &mut HashMap<&str, Value<'_>>,
    out: &mut DocBuf,
) {
    for name in names {
        if let Some(value) = fields.remove(name.as_str()) {
            out.push_value(name, &as_written(value));
        }
    }
}

/// Fields that the workload has not written.
fn arrange_rest(fields: &HashMap<&str, Value<'_>>, out: &mut DocBuf) {
    for (name, value) in fields {
        out.push_value(name, value);
    }
}

/// Compares all keys, in their order, and returns the sum of the values found.
fn check_keys(
    documents: &Documents,
    eventnames: &Doc,
    expected: &[i64],
) -> std::result::Result<i64, String> {
    let mut outer = eventnames.iter();
    let mut sum = 0;
    for group in &documents.groups {
        let mut inner = match &group.bucket {
            None => std::mem::replace(&mut outer, Doc::empty().iter()),
            Some(bucket) => match outer.next() {
                Some((name, Value::Document(inner))) if name == bucket => inner.iter(),
                other => return Err(format!("{other:.60?} instead of {bucket}")),
            },
        };
        for key in &group.keys {
            let key = *key as usize;
            let (name, value) = (documents.names.get(key), expected.get(key));
            let (Some(name), Some(value)) = (name, value) else {
                return Err(format!("there is no key {key}"));
            };
            match inner.next() {
                Some((found, Value::Int64(n))) if found == name => {
                    if n != *value {
                        return Err(format!("{name} is {n} instead of {value}"));
                    }
                    sum += n;
                }
                other => return Err(format!("{other:?} instead of {name}: {value}")),
            }
        }
        if let Some((name, _)) = inner.next() {
            return Err(format!("{name} is unexpected"));
        }
    }
    match outer.next() {
        Some((name, _)) => Err(format!("{name} is unexpected")),
        None => Ok(sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::manykeys::Schema;
    use crate::documents::tests::document;
    use crate::documents::updates::{KEYS, round};

    /// The document after the updates, computed by hand.
    fn updated(documents: &Documents, number: u64, updates: &[Update]) -> DocBuf {
        let mine: Vec<&Update> = updates.iter().filter(|u| u.document == number).collect();
        let whole = document(documents, number);
        let mut out = DocBuf::new();
        for (name, value) in whole.iter() {
            match name {
                "random" => out.push(name, mine.last().unwrap().text(documents.seed).as_str()),
                "stats" => out.push_doc(name, |stats| {
                    let count = |path: &str| {
                        let hits = |u: &&&Update| {
                            u.keys
                                .iter()
                                .any(|key| documents.paths[*key as usize] == path)
                        };
                        mine.iter().filter(hits).count() as i64
                    };
                    stats.push_doc("eventnames", |names| {
                        for (name, value) in value.as_doc().unwrap().get_doc("eventnames").unwrap()
                        {
                            let path = format!("stats.eventnames.{name}");
                            match value {
                                Value::Document(bucket) => names.push_doc(name, |inner| {
                                    for (key, value) in bucket {
                                        let by = count(&format!("{path}.{key}"));
                                        inner.push(key, value.as_i64_lossless().unwrap() + by);
                                    }
                                }),
                                value => names
                                    .push(name, value.as_i64_lossless().unwrap() + count(&path)),
                            }
                        }
                    });
                    let events = whole.path("stats.events").unwrap();
                    let by = (mine.len() * KEYS) as i64;
                    stats.push("events", events.as_i64_lossless().unwrap() + by);
                }),
                _ => out.push(name, value),
            }
        }
        out
    }

    /// The document with its fields in another order, as a system gives it back that sorts them and
    /// has numbers of one type.
    fn sorted(document: &Doc) -> DocBuf {
        let mut fields: Vec<(&str, Value<'_>)> = document.iter().collect();
        fields.sort_by_key(|(name, _)| (name.len(), *name));
        let mut out = DocBuf::new();
        for (name, value) in fields {
            match value {
                Value::Document(inner) => out.push(name, &sorted(inner)),
                Value::Int64(n) => match i32::try_from(n) {
                    Ok(n) => out.push(name, n),
                    Err(_) => out.push(name, n),
                },
                value => out.push_value(name, &value),
            }
        }
        out
    }

    /// The document without the field of a name, wherever it is.
    fn without(document: &Doc, name: &str) -> DocBuf {
        let mut out = DocBuf::new();
        for (field, value) in document.iter().filter(|(field, _)| *field != name) {
            match value {
                Value::Document(inner) => out.push(field, &without(inner, name)),
                value => out.push_value(field, &value),
            }
        }
        out
    }

    /// The document with one field more among its keys.
    fn with_another(document: &Doc, name: &str) -> DocBuf {
        let mut out = DocBuf::new();
        for (field, value) in document.iter() {
            match value {
                Value::Document(inner) if field == "stats" || field == "eventnames" => {
                    let mut inner = with_another(inner, name);
                    if field == "eventnames" {
                        inner.push(name, 1_i64);
                    }
                    out.push(field, &inner);
                }
                value => out.push_value(field, &value),
            }
        }
        out
    }

    #[test]
    fn the_right_document_passes_and_others_fail() {
        for schema in [Schema::Plain, Schema::Bucketed] {
            let documents = Documents::new(schema, 4, 60, true);
            let mut model = Model::new(3);
            let updates = round(4, 0, 30, 3, 60);
            for update in &updates {
                model.apply(0, update);
            }
            for number in 0..3 {
                let right = updated(&documents, number, &updates);
                for exact in [true, false] {
                    model.check(&documents, number, &right, exact).unwrap();
                }
                // Only who keeps order and types is held to them.
                let sorted = sorted(&right);
                assert!(model.check(&documents, number, &sorted, true).is_err());
                model.check(&documents, number, &sorted, false).unwrap();
            }
            for exact in [true, false] {
                let check = |doc: &Doc| model.check(&documents, 1, doc, exact);
                let text = |doc: &Doc| check(doc).unwrap_err().to_string();
                let right = updated(&documents, 1, &updates);
                let missing = without(&right, &documents.names[7]);
                assert!(text(&missing).contains("instead of"), "{}", text(&missing));
                let renamed = with_another(&right, "other");
                assert!(text(&renamed).contains("other"), "{}", text(&renamed));
            }
            let text = |doc: &Doc| {
                let checked = model.check(&documents, 1, doc, true);
                checked.unwrap_err().to_string()
            };
            let short: Vec<Update> = updates.iter().copied().filter(|u| u.number > 6).collect();
            assert!(text(&updated(&documents, 1, &short)).contains("instead of"));
            assert!(text(&updated(&documents, 2, &updates)).contains("document 1"));
            assert!(text(Doc::empty()).contains("no stats"));
        }
    }

    #[test]
    fn one_of_the_last_updates_of_several_connections_shows() {
        let documents = Documents::new(Schema::Plain, 4, 10, false);
        let updates = round(4, 0, 4, 1, 10);
        let mut model = Model::new(1);
        model.apply(0, &updates[0]);
        model.apply(1, &updates[1]);
        model.apply(0, &updates[2]);
        let texts = |model: &Model| -> Vec<usize> {
            (0..4)
                .filter(|n| {
                    let text = updates[*n].text(4);
                    let doc = frond_bson::doc! { "random": text.as_str() };
                    model.check_text(&documents, 0, &doc).is_ok()
                })
                .collect()
        };
        assert_eq!(texts(&model), [1, 2]);
        model.next_round();
        assert_eq!(texts(&model), [1, 2]);
        model.apply(1, &updates[3]);
        assert_eq!(texts(&model), [3]);
    }
}
