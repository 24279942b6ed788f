//! Keys in memory. They are overwritten when they are dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{Error, Result};

/// Size of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// A key of 256 bits.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Key {
        Key(bytes)
    }

    /// A random key.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn random() -> Result<Key> {
        let mut key = Key([0; KEY_BYTES]);
        random(&mut key.0)?;
        Ok(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(..)")
    }
}

/// Fills `bytes` with random numbers of the system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<()> {
    (SystemRandom::new().fill(bytes)).map_err(|_| Error::NoRandomness)
}

/// The keys of a store by their numbers. New content is encrypted with the current one.
#[derive(Debug)]
pub struct StoreKeys(ArcSwap<KeySet>);

/// C1: the current key is one of the keys.
#[derive(Debug, Clone)]
pub(crate) struct KeySet {
    pub(crate) keys: BTreeMap<u32, Key>,
    pub(crate) current: u32,
}

impl StoreKeys {
    pub(crate) fn new(set: KeySet) -> Arc<StoreKeys> {
        Arc::new(StoreKeys(ArcSwap::from_pointee(set)))
    }

    /// Keys with one key: of what lives no longer than the process, and of tests.
    pub fn single(key: Key) -> Arc<StoreKeys> {
        StoreKeys::new(KeySet {
            keys: BTreeMap::from([(1, key)]),
            current: 1,
        })
    }

    pub(crate) fn set(&self) -> Arc<KeySet> {
        self.0.load_full()
    }

    pub(crate) fn replace(&self, set: KeySet) {
        assert!(
            set.keys.contains_key(&set.current),
            "C1: the current store key is none of the keys"
        );
        self.0.store(Arc::new(set));
    }

    /// Adds a key, which becomes the current one, for simulations. [`crate::KeyStore::rotate`] makes it durable before.
    #[doc(hidden)]
    pub fn add(&self, key: Key) {
        let mut set = KeySet::clone(&self.set());
        set.current = set.keys.last_key_value().map_or(0, |(last, _)| *last) + 1;
        set.keys.insert(set.current, key);
        self.replace(set);
    }

    /// The number of the current key.
    pub fn current(&self) -> u32 {
        self.0.load().current
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.0.load().keys.len()
    }

    pub(crate) fn key(&self, number: u32) -> Result<Key> {
        let set = self.0.load();
        let key = set.keys.get(&number);
        key.cloned().ok_or(Error::UnknownKey(number))
    }
}
