//! Counts the connections of each address.

use std::collections::HashMap;
use std::net::IpAddr;

use frond_http::network;
use parking_lot::Mutex;

/// Open connections by the address of their client.
#[derive(Default)]
pub struct Addresses(Mutex<HashMap<IpAddr, usize>>);

impl Addresses {
    /// Counts a connection, unless its address has as many as it may.
    pub fn enter(&self, address: IpAddr, max: usize) -> Option<Entered<'_>> {
        if max == 0 {
            return None;
        }
        let address = network(address);
        let mut all = self.0.lock();
        let open = all.entry(address).or_insert(0);
        if *open >= max {
            return None;
        }
        *open += 1;
        Some(Entered { all: self, address })
    }

    /// Addresses that have connections.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A counted connection; it is counted until this is dropped.
pub struct Entered<'a> {
    all: &'a Addresses,
    address: IpAddr,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(open) = all.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                all.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_address_is_limited_by_itself() {
        let all = Addresses::default();
        let ip = |text: &str| text.parse().unwrap();
        let first = all.enter(ip("10.0.0.1"), 2);
        let mapped = all.enter(ip("::ffff:10.0.0.1"), 2);
        assert!(first.is_some() && mapped.is_some());
        assert!(all.enter(ip("10.0.0.1"), 2).is_none());
        let other = all.enter(ip("10.0.0.2"), 2).unwrap();
        let sixth = all.enter(ip("2001:db8::1"), 1);
        assert!(sixth.is_some());
        assert!(
            all.enter(ip("2001:db8::ffff:1"), 1).is_none(),
            "the same /64"
        );
        assert!(all.enter(ip("2001:db8:0:1::1"), 1).is_some());
        drop(first);
        assert!(all.enter(ip("10.0.0.1"), 2).is_some());
        drop((mapped, other, sixth));
        assert_eq!(
            all.len(),
            0,
            "nothing is kept of addresses without connections"
        );
    }
}
