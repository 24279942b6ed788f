//! Merge operators of tests, and the source of stamps. The conformance suite expects its engines to have [`Adds`] and [`Numbers`].

use std::sync::atomic::{AtomicU64, Ordering};

use frond_kv::{Malformed, MergeOperator, Stamps, TreeId};

/// Values are 64-bit numbers, and deltas are added to them. An empty delta is malformed.
pub struct Adds;

/// The number that a value or a delta of [`Adds`] is.
///
/// # Errors
/// If it does not have eight bytes.
pub fn number(bytes: &[u8]) -> Result<i64, Malformed> {
    let bytes = bytes.try_into().map_err(|_| Malformed("not a number"))?;
    Ok(i64::from_le_bytes(bytes))
}

/// A value or a delta of [`Adds`].
pub fn to_bytes(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

impl MergeOperator for Adds {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        let sum = base.map_or(Ok(0), number)?.wrapping_add(number(delta)?);
        Ok(Some(to_bytes(sum).to_vec()))
    }

    fn combine(
        &self,
        _: TreeId,
        _: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        Ok(to_bytes(number(older)?.wrapping_add(number(newer)?)).to_vec())
    }

    fn check(&self, _: TreeId, _: &[u8], delta: &[u8]) -> Result<(), Malformed> {
        number(delta).map(drop)
    }
}

/// Appends deltas to the value, so that one that is lost, applied twice or in another order shows.
pub struct Appends;

impl MergeOperator for Appends {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(Some([base.unwrap_or_default(), delta].concat()))
    }

    fn combine(
        &self,
        _: TreeId,
        _: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        Ok([older, newer].concat())
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

/// Appends as [`Appends`] does, and refuses malformed deltas and values.
pub struct Careful {
    /// Returns the reason to refuse a delta.
    pub refuses_delta: fn(&[u8]) -> Option<&'static str>,
    /// Returns the reason to refuse a value before a delta is applied to it.
    pub refuses_base: fn(&[u8]) -> Option<&'static str>,
}

impl MergeOperator for Careful {
    fn apply(
        &self,
        tree: TreeId,
        key: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        self.check(tree, key, delta)?;
        match base.and_then(self.refuses_base) {
            Some(reason) => Err(Malformed(reason)),
            None => Appends.apply(tree, key, base, delta),
        }
    }

    fn combine(
        &self,
        tree: TreeId,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        self.check(tree, key, older)?;
        self.check(tree, key, newer)?;
        Appends.combine(tree, key, older, newer)
    }

    fn check(&self, _: TreeId, _: &[u8], delta: &[u8]) -> Result<(), Malformed> {
        match (self.refuses_delta)(delta) {
            Some(reason) => Err(Malformed(reason)),
            None => Ok(()),
        }
    }
}

/// Stamps from 1 on, as far as they are reserved.
#[derive(Debug, Default)]
pub struct Numbers {
    last: AtomicU64,
    reserved: AtomicU64,
}

impl Numbers {
    /// Reserves some more stamps.
    pub fn reserve(&self, count: u64) {
        let last = self.last.load(Ordering::SeqCst);
        self.reserved.store(last + count, Ordering::SeqCst);
    }
}

impl Stamps for Numbers {
    fn take(&self, count: u32) -> Option<u64> {
        // Only one commit at a time takes stamps.
        let first = self.last.load(Ordering::SeqCst) + 1;
        let last = first + u64::from(count) - 1;
        if last > self.reserved.load(Ordering::SeqCst) {
            return None;
        }
        self.last.store(last, Ordering::SeqCst);
        Some(first)
    }
}
