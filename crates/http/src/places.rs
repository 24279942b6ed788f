//! Places for connections. One that sends no request must not keep others out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A connection keeps its place for this time, even if its request does not come and others wait.
const GRACE: Duration = Duration::from_secs(1);

/// The places of a server.
pub struct Places {
    total: usize,
    per_address: usize,
    all: Mutex<All>,
    /// A place became free, or a connection idle.
    changed: Notify,
}

#[derive(Default)]
struct All {
    next: u64,
    open: HashMap<u64, Connection>,
}

struct Connection {
    address: IpAddr,
    /// When it began to wait for the rest of a request's head; none while a request is answered.
    idle_since: Option<Instant>,
    closed: Arc<Notify>,
}

impl All {
    /// The connection that has waited for its request for the longest time, and since when.
    fn most_idle(&self, address: Option<IpAddr>) -> Option<(u64, Instant)> {
        let of_address = |one: &Connection| address.is_none_or(|address| one.address == address);
        let open = self.open.iter().filter(|(_, one)| of_address(one));
        open.filter_map(|(number, one)| Some((*number, one.idle_since?)))
            .min_by_key(|(_, since)| *since)
    }

    fn close(&mut self, number: u64) {
        if let Some(closed) = self.open.remove(&number) {
            closed.closed.notify_one();
        }
    }
}

impl Places {
    /// `total` places, of which one address has at most `per_address`.
    pub fn new(total: usize, per_address: usize) -> Arc<Places> {
        Arc::new(Places {
            total,
            per_address,
            all: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Takes a place. If there is none, the connection that has waited for its request for the longest time loses its own. None if all
    /// places of the address answer requests, or have waited for no time worth mentioning.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Place>> {
        let address = network(address);
        loop {
            let changed = self.changed.notified();
            let wait = {
                let mut all = self.all.lock();
                let of_address = all.open.values().filter(|one| one.address == address);
                let is_full_for_address = of_address.count() >= self.per_address;
                if !is_full_for_address && all.open.len() < self.total {
                    return Some(self.admit(&mut all, address));
                }
                let among = is_full_for_address.then_some(address);
                match all.most_idle(among) {
                    Some((number, since)) if since.elapsed() >= GRACE => {
                        all.close(number);
                        continue;
                    }
                    // A wait would keep others out, who come from elsewhere.
                    _ if is_full_for_address => return None,
                    Some((_, since)) => Some(GRACE.saturating_sub(since.elapsed())),
                    None => None,
                }
            };
            match wait {
                None => changed.await,
                Some(time) => tokio::select! {
                    () = changed => {}
                    () = sleep(time) => {}
                },
            }
        }
    }

    fn admit(self: &Arc<Self>, all: &mut All, address: IpAddr) -> Arc<Place> {
        let number = all.next;
        all.next += 1;
        let closed = Arc::new(Notify::new());
        let connection = Connection {
            address,
            idle_since: Some(Instant::now()),
            closed: closed.clone(),
        };
        all.open.insert(number, connection);
        Arc::new(Place {
            places: self.clone(),
            number,
            closed,
        })
    }

    fn set(&self, number: u64, idle_since: Option<Instant>) {
        if let Some(connection) = self.all.lock().open.get_mut(&number) {
            connection.idle_since = idle_since;
        }
        if idle_since.is_some() {
            self.changed.notify_one();
        }
    }
}

/// The place of a connection, until it is dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    closed: Arc<Notify>,
}

impl Place {
    /// Ends when another connection gets the place.
    pub async fn lost(&self) {
        self.closed.notified().await;
    }

    /// The head of a request has come. The place is kept until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.goes_on();
        Busy(self.clone())
    }

    /// The rest of a request has come.
    pub fn goes_on(&self) {
        self.places.set(self.number, None);
    }

    /// The connection waits for its client: it may lose its place.
    pub fn waits(&self) {
        self.places.set(self.number, Some(Instant::now()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.all.lock().open.remove(&self.number);
        self.places.changed.notify_one();
    }
}

/// A request that is being answered.
pub struct Busy(Arc<Place>);

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Busy").field(&self.0.number).finish()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.waits();
    }
}

/// The part of an address that counts: one machine may have a whole /64 of IPv6.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod unit {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// Whether a connection has lost its place.
    async fn is_lost(place: &Place) -> bool {
        tokio::time::timeout(Duration::ZERO, place.lost())
            .await
            .is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_for_a_request_loses_its_place() {
        let places = Places::new(3, 3);
        let first = places.enter(ONE).await.unwrap();
        let busy = first.begin();
        let mut idle = Vec::new();
        for _ in 0..2 {
            tokio::time::advance(Duration::from_millis(10)).await;
            idle.push(places.enter(ONE).await.unwrap());
        }
        let began = Instant::now();
        let new = places.enter(OTHER).await.unwrap();
        let _answered = new.begin();
        assert!(began.elapsed() <= GRACE, "{:?}", began.elapsed());
        assert!(is_lost(&idle[0]).await && !is_lost(&idle[1]).await && !is_lost(&first).await);
        // A connection whose request was answered waits again.
        drop(idle);
        let third = places.enter(OTHER).await.unwrap();
        let _answered_too = third.begin();
        drop(busy);
        tokio::time::advance(GRACE).await;
        let _fourth = places.enter(OTHER).await.unwrap();
        assert!(is_lost(&first).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_no_more_than_its_share() {
        let places = Places::new(4, 2);
        let all = [
            places.enter(ONE).await.unwrap(),
            places.enter(ONE).await.unwrap(),
        ];
        let busy = [all[0].begin(), all[1].begin()];
        assert!(places.enter(ONE).await.is_none());
        assert!(places.enter(OTHER).await.is_some());
        drop(busy);
        assert!(places.enter(ONE).await.is_none());
        tokio::time::advance(GRACE).await;
        assert!(places.enter(ONE).await.is_some());
        assert!(is_lost(&all[0]).await || is_lost(&all[1]).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_becomes_free_is_taken() {
        let places = Places::new(1, 1);
        let place = places.enter(ONE).await.unwrap();
        let busy = place.begin();
        let waits = tokio::spawn({
            let places = places.clone();
            async move { places.enter(OTHER).await.is_some() }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waits.is_finished());
        drop((busy, place));
        assert!(waits.await.unwrap());
        // A place that was lost is free only once.
        let place = places.enter(ONE).await.unwrap();
        tokio::time::advance(GRACE).await;
        let _other = places.enter(OTHER).await.unwrap();
        drop(place);
        assert_eq!(places.all.lock().open.len(), 1);
    }
}
