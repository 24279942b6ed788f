//! Finds while others insert: a few documents from a random one on, by each index in turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use frond_bson::{Doc, Value};
use frond_client::{Collection, Result};

use crate::documents::Source;
use crate::documents::insertion::Generator;
use crate::meter::Meter;
use crate::random::SplitMix64;
use crate::system::{Find, From, Session};

/// Documents that a find asks for.
const LIMIT: u32 = 10;

/// State that the reading connections share.
pub struct Reads<'a> {
    pub source: &'a Generator,
    pub collection: &'a Collection,
    /// The indexed fields; with none, finds go by `_id`.
    pub fields: &'a [&'static str],
    pub inserts: &'a Meter,
    pub finds: &'a Meter,
    /// Connections that still insert.
    pub inserting: &'a AtomicUsize,
}

impl Reads<'_> {
    /// Finds until all inserts are done.
    pub fn run(&self, session: &mut dyn Session, random: &mut SplitMix64) -> Result<()> {
        let mut bytes = Vec::new();
        let mut turn = 0;
        while self.inserting.load(Ordering::Acquire) > 0 && !self.inserts.stopping() {
            let documents = self.inserts.documents();
            if documents == 0 {
                std::thread::yield_now();
                continue;
            }
            bytes.clear();
            self.source.append(random.below(documents), &mut bytes);
            let field = match self.fields.len() {
                0 => "_id",
                count => self.fields.get(turn % count).copied().unwrap_or("_id"),
            };
            turn += 1;
            let Some(value) = Doc::from_trusted(&bytes).get(field) else {
                continue;
            };
            let find = Find {
                field,
                from: From::AtLeast(first_of(value)),
                limit: LIMIT,
            };
            let start = Instant::now();
            session.find(self.collection, &find)?;
            self.finds.batch(1, start.elapsed());
        }
        Ok(())
    }
}

/// An element of an array, or the value itself.
fn first_of(value: Value<'_>) -> Value<'_> {
    match value {
        Value::Array(array) => array.iter().next().map_or(value, |(_, first)| first),
        value => value,
    }
}
