//! The finds of a connection: by turns one document by its `_id` and a few in the order of an index.

use std::time::{Duration, Instant};

use frond_bson::Doc;
use frond_client::{Collection, Error, Result};

use super::pace::Pace;
use crate::documents::Source;
use crate::documents::insertion::Generator;
use crate::meter::Meter;
use crate::random::SplitMix64;
use crate::system::{Find, From, Session};

/// Documents of a find in the order of an index.
const LIMIT: u32 = 10;

/// Measurements of finds of the two kinds.
pub struct Meters {
    pub points: Meter,
    pub ranges: Meter,
}

/// State that the reading connections share.
pub struct Reads<'a> {
    pub source: &'a Generator,
    pub collection: &'a Collection,
    /// Documents of the load, which are all there.
    pub loaded: u64,
    /// The indexed fields; with none, all finds go by `_id`.
    pub fields: &'a [&'static str],
    /// Whether the number of documents is that of a server that stores some.
    pub checked: bool,
    pub meters: &'a Meters,
}

impl Reads<'_> {
    /// Finds until the run ends. `clock` is the meter of the phase.
    pub fn run(
        &self,
        session: &mut dyn Session,
        random: &mut SplitMix64,
        mut pace: Option<Pace>,
        clock: &Meter,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        // Connections begin with different kinds and indexes.
        let mut turn = random.below(1 << 16) as usize;
        while !clock.stopping() {
            bytes.clear();
            self.source.append(random.below(self.loaded), &mut bytes);
            let point = turn.is_multiple_of(2) || self.fields.is_empty();
            let field = if point {
                "_id"
            } else {
                self.fields[turn / 2 % self.fields.len()]
            };
            turn += 1;
            let Some(value) = Doc::from_trusted(&bytes).get(field) else {
                continue;
            };
            let find = if point {
                Find {
                    field,
                    from: From::Equal(value),
                    limit: 1,
                }
            } else {
                Find {
                    field,
                    from: From::AtLeast(value),
                    limit: LIMIT,
                }
            };
            let due = match &mut pace {
                None => Instant::now(),
                Some(pace) => match pace.next(clock, Duration::MAX) {
                    Some(due) => due,
                    None => break,
                },
            };
            let found = session.find(self.collection, &find)?;
            let meter = if point {
                &self.meters.points
            } else {
                &self.meters.ranges
            };
            meter.batch(1, due.elapsed());
            clock.batch(1, due.elapsed());
            if self.checked && found == 0 {
                return Err(Error::Wrong(format!(
                    "no document of {} was found by a {field} that one has",
                    self.collection
                )));
            }
        }
        Ok(())
    }
}
