//! The updates of documents with very many keys: their order, filters and changes.

use frond_bson::DocBuf;

use super::manykeys::{DEPLOY_TYPE, Documents, Purpose, TIMESLICE, random_text, stream};

pub const KEYS: usize = 5;

/// The change that one update makes to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its number among all updates of a run.
    pub number: u64,
    pub document: u64,
    pub keys: [u32; KEYS],
}

/// The updates of a round: `count` of them, spread evenly over `documents` documents in a shuffled
/// order.
pub fn round(seed: u64, round: u64, count: u64, documents: u64, keys: u32) -> Vec<Update> {
    let mut order: Vec<u64> = (0..count).map(|n| n % documents).collect();
    stream(seed, Purpose::Order, round).shuffle(&mut order);
    let first = round * count;
    (first..)
        .zip(order)
        .map(|(number, document)| Update {
            number,
            document,
            keys: keys_of(seed, number, keys),
        })
        .collect()
}

fn keys_of(seed: u64, number: u64, keys: u32) -> [u32; KEYS] {
    let mut random = stream(seed, Purpose::Keys, number);
    let mut chosen = [0; KEYS];
    let mut filled = 0;
    // The command line asks for at least KEYS keys, so that this ends.
    while filled < KEYS {
        let key = random.below(u64::from(keys)) as u32;
        if !chosen[..filled].contains(&key) {
            chosen[filled] = key;
            filled += 1;
        }
    }
    chosen
}

impl Update {
    /// The string that it sets `random` to.
    pub fn text(&self, seed: u64) -> String {
        random_text(seed, Purpose::Text, self.number)
    }

    /// The filter that finds its document.
    pub fn filter(&self, documents: &Documents) -> DocBuf {
        let identity = documents.identity(self.document);
        let mut filter = DocBuf::new();
        filter.push("appver", identity.appver);
        filter.push("deploytype", DEPLOY_TYPE);
        filter.push("g", identity.g);
        filter.push("guid", identity.guid.as_str());
        filter.push_doc("timeslice", |timeslice| {
            for (name, value) in TIMESLICE.into_iter().zip(identity.timeslice) {
                timeslice.push(name, value);
            }
        });
        filter
    }

    pub fn change(&self, documents: &Documents) -> DocBuf {
        let mut change = DocBuf::new();
        change.push_doc("$set", |set| {
            set.push("random", self.text(documents.seed).as_str());
        });
        change.push_doc("$inc", |inc| {
            for key in self.keys {
                if let Some(path) = documents.paths.get(key as usize) {
                    inc.push(path, 1_i64);
                }
            }
            inc.push("stats.events", KEYS as i64);
        });
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::manykeys::Schema;
    use crate::documents::tests::document;
    use frond_bson::{Value, doc};
    use std::collections::{HashMap, HashSet};

    #[test]
    fn each_document_gets_its_share_in_a_shuffled_order() {
        for (count, documents, shares) in [(1000, 200, [5, 5]), (1001, 200, [5, 6]), (3, 7, [0, 1])]
        {
            let updates = round(1, 0, count, documents, 50);
            assert_eq!(updates.len() as u64, count);
            let mut counts: HashMap<u64, u64> = HashMap::new();
            for update in &updates {
                *counts.entry(update.document).or_default() += 1;
            }
            for document in 0..documents {
                let share = counts.get(&document).copied().unwrap_or(0);
                assert!(shares.contains(&share), "{document}: {share}");
            }
        }
        let updates = round(1, 0, 1000, 200, 50);
        assert!(!updates.is_sorted_by_key(|update| update.document % 200));
        assert_eq!(updates, round(1, 0, 1000, 200, 50));
        assert_ne!(updates, round(2, 0, 1000, 200, 50));
        let documents = |updates: &[Update]| -> Vec<u64> {
            updates.iter().map(|update| update.document).collect()
        };
        assert_ne!(documents(&updates), documents(&round(1, 1, 1000, 200, 50)));
    }

    #[test]
    fn the_keys_of_an_update_differ_and_rounds_go_on_counting() {
        let mut seen = HashSet::new();
        for n in 0..2 {
            for update in round(9, n, 500, 10, 5) {
                let distinct: HashSet<u32> = update.keys.into_iter().collect();
                assert_eq!(distinct.len(), KEYS);
                assert!(distinct.iter().all(|key| *key < 5));
                assert!(seen.insert(update.number));
            }
        }
        assert_eq!(seen, (0..1000).collect());
    }

    #[test]
    fn an_update_finds_its_document_and_increments_by_path() {
        let documents = Documents::new(Schema::Bucketed, 3, 40, false);
        let update = Update {
            number: 12,
            document: 6,
            keys: [0, 1, 2, 3, 39],
        };
        let whole = document(&documents, 6);
        let filter = update.filter(&documents);
        assert_eq!(filter.count(), 5);
        for (name, value) in filter.iter() {
            assert_eq!(whole.get(name), Some(value), "{name}");
        }
        let change = update.change(&documents);
        let set = doc! { "random": update.text(3).as_str() };
        assert_eq!(change.get_doc("$set"), Some(set.as_doc()));
        let inc = change.get_doc("$inc").unwrap();
        assert_eq!(inc.count(), KEYS + 1);
        assert_eq!(inc.get("stats.events"), Some(Value::Int64(5)));
        for (path, by) in inc.iter().take(KEYS) {
            assert_eq!(by, Value::Int64(1));
            assert_eq!(whole.path(path), Some(Value::Int64(0)), "{path}");
        }
    }
}
