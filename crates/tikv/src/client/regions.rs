//! The map of regions to nodes. With it a page of a scan sends its request to one region instead of all regions of its range, and a read
//! of the newest value of a key goes to the node that has the key (`direct.rs`).
//!
//! The map may be old: a region was divided, joined with another one, or moved. Then a page reads from two regions, or two pages read
//! from one, and a node refuses a request. Nothing else depends on it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_kv::{Direction, Result};
use parking_lot::Mutex;
use tonic::transport::Channel;

use crate::client::connection::{Connection, Kind};
use crate::client::pd::{Peer, RegionEpoch, decode_key, encode_key};

/// A region is requested from PD again after this time.
const AGE_MAX: Duration = Duration::from_secs(300);
/// The most regions that are remembered.
const REGIONS_MAX: usize = 16 << 10;
/// PD gets no request for this time after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// A node that did not answer gets no direct request for this time.
const SILENCE: Duration = Duration::from_secs(10);

/// Connections to the nodes, by their addresses.
#[derive(Default)]
pub(crate) struct Nodes {
    pub(crate) channels: Mutex<HashMap<String, Channel>>,
    /// When nodes did not answer.
    silent: Mutex<HashMap<String, Instant>>,
}

impl Nodes {
    /// Whether a node has not answered a short time ago.
    pub(crate) fn is_silent(&self, address: &str) -> bool {
        let silent = self.silent.lock();
        silent.get(address).is_some_and(|at| at.elapsed() < SILENCE)
    }

    /// After a request without an answer.
    pub(crate) fn note_silent(&self, address: &str) {
        self.channels.lock().remove(address);
        let mut silent = self.silent.lock();
        silent.retain(|_, at| at.elapsed() < SILENCE);
        silent.insert(address.to_owned(), Instant::now());
    }
}

/// The known bounds and leader of a region.
#[derive(Clone)]
struct Known {
    /// The first key beyond it; `None` for the last region.
    end: Option<Vec<u8>>,
    told_at: Instant,
    place: Option<Place>,
}

/// Where a region is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) id: u64,
    pub(crate) epoch: RegionEpoch,
    pub(crate) leader: Peer,
    pub(crate) address: String,
}

/// The first key of a region, and the first one beyond it; `None` for the last region.
type Borders = (Vec<u8>, Option<Vec<u8>>);

/// The regions that were met, by their first keys.
#[derive(Default)]
pub(crate) struct Regions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Vec<u8>, Known>,
    failed_at: Option<Instant>,
}

impl State {
    /// The borders of the region that the scan of a range begins with.
    fn first_of(
        &self,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Option<(&Vec<u8>, &Known)> {
        let before = match direction {
            Direction::Forward => Bound::Included(lower),
            Direction::Backward => Bound::Excluded(upper),
        };
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, before);
        let (start, known) = self.known.range::<[u8], _>(range).next_back()?;
        let reaches = known.end.as_deref().is_none_or(|end| match direction {
            Direction::Forward => lower < end,
            Direction::Backward => upper <= end,
        });
        (reaches && known.told_at.elapsed() < AGE_MAX).then_some((start, known))
    }
}

impl Regions {
    /// The part of a range that lies in the region where its scan begins. All of the range if that is not known.
    pub(crate) fn clip(
        &self,
        connection: &Connection,
        (lower, upper): (Vec<u8>, Vec<u8>),
        direction: Direction,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let known = {
            let state = self.state.lock();
            let is_failing = state
                .failed_at
                .is_some_and(|at| at.elapsed() < FAILURE_PAUSE);
            match state.first_of(&lower, &upper, direction) {
                None if is_failing => return Ok((lower, upper)),
                known => known.map(|(start, known)| (start.clone(), known.end.clone())),
            }
        };
        let region = match known {
            Some(region) => region,
            None => match self.ask(connection, &lower, &upper, direction)? {
                Some(region) => region,
                None => return Ok((lower, upper)),
            },
        };
        Ok(match (direction, region) {
            (Direction::Forward, (_, Some(end))) if lower < end && end < upper => (lower, end),
            (Direction::Backward, (start, _)) if lower < start && start < upper => (start, upper),
            _ => (lower, upper),
        })
    }

    /// Where the region of a key is; `None` if that is not known.
    pub(crate) fn place(&self, connection: &Connection, key: &[u8]) -> Result<Option<Place>> {
        for may_ask in [true, false] {
            {
                let state = self.state.lock();
                if let Some((_, known)) = state.first_of(key, key, Direction::Forward) {
                    return Ok(known.place.clone());
                }
                if state
                    .failed_at
                    .is_some_and(|at| at.elapsed() < FAILURE_PAUSE)
                {
                    return Ok(None);
                }
            }
            if may_ask {
                self.ask(connection, key, key, Direction::Forward)?;
            }
        }
        Ok(None)
    }

    /// Forgets the region of a key, because it is elsewhere now.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut state = self.state.lock();
        let start = state
            .first_of(key, key, Direction::Forward)
            .map(|(start, _)| start.clone());
        if let Some(start) = start {
            state.known.remove(&start);
        }
    }

    /// Asks PD for the region where the scan of a range begins.
    fn ask(
        &self,
        connection: &Connection,
        lower: &[u8],
        upper: &[u8],
        direction: Direction,
    ) -> Result<Option<Borders>> {
        let pd: Arc<_> = connection.pd().clone();
        let key = encode_key(match direction {
            Direction::Forward => lower,
            Direction::Backward => upper,
        });
        let is_backward = direction == Direction::Backward;
        let found = connection.wait(Kind::Region, async move {
            let found = pd.region(key.clone(), false).await?;
            // The region that begins at the upper end has nothing of the range.
            if is_backward && found.borders.0 == key {
                pd.region(key, true).await
            } else {
                Ok(found)
            }
        })?;
        let mut state = self.state.lock();
        let Ok(found) = found else {
            state.failed_at = Some(Instant::now());
            return Ok(None);
        };
        let (start, end) = found.borders;
        // The first region begins with the empty key, the last one ends with it.
        let start = if start.is_empty() {
            Some(Vec::new())
        } else {
            decode_key(&start)
        };
        let end = if end.is_empty() {
            Some(None)
        } else {
            decode_key(&end).map(Some)
        };
        let (Some(start), Some(end)) = (start, end) else {
            state.failed_at = Some(Instant::now());
            return Ok(None);
        };
        if state.known.len() >= REGIONS_MAX {
            state.known.clear();
        }
        let known = Known {
            end: end.clone(),
            told_at: Instant::now(),
            place: found.leader.map(|(leader, address)| Place {
                id: found.id,
                epoch: found.epoch,
                leader,
                address,
            }),
        };
        state.known.insert(start.clone(), known);
        Ok(Some((start, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_of_a_scan_is_found_from_both_ends() {
        let mut state = State::default();
        let regions: [(&[u8], Option<&[u8]>); 3] =
            [(b"", Some(b"d")), (b"d", Some(b"m")), (b"t", None)];
        for (start, end) in regions {
            let end = end.map(<[u8]>::to_vec);
            let known = Known {
                end,
                told_at: Instant::now(),
                place: None,
            };
            state.known.insert(start.to_vec(), known);
        }
        type Case = (
            &'static [u8],
            &'static [u8],
            Direction,
            Option<&'static [u8]>,
        );
        let cases: [Case; 9] = [
            (b"a", b"z", Direction::Forward, Some(b"")),
            (b"d", b"z", Direction::Forward, Some(b"d")),
            (b"m", b"z", Direction::Forward, None),
            (b"t", b"z", Direction::Forward, Some(b"t")),
            (b"a", b"d", Direction::Backward, Some(b"")),
            (b"a", b"e", Direction::Backward, Some(b"d")),
            (b"a", b"m", Direction::Backward, Some(b"d")),
            (b"a", b"n", Direction::Backward, None),
            (b"a", b"t", Direction::Backward, None),
        ];
        for (lower, upper, direction, expected) in cases {
            let found = state.first_of(lower, upper, direction);
            assert_eq!(
                found.map(|(start, _)| start.as_slice()),
                expected,
                "{lower:?} {upper:?} {direction:?}"
            );
        }
    }
}
