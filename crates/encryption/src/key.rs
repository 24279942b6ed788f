//! Keys in memory. They are overwritten when they are dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
pub struct StoreKeys {
    set: ArcSwap<KeySet>,
    accepts_plain: AtomicBool,
}

/// C1: the current key is one of the keys.
#[derive(Debug, Clone)]
pub(crate) struct KeySet {
    pub(crate) keys: BTreeMap<u32, Key>,
    pub(crate) current: u32,
}

impl StoreKeys {
    pub(crate) fn new(set: KeySet) -> Arc<StoreKeys> {
        Arc::new(StoreKeys {
            set: ArcSwap::from_pointee(set),
            accepts_plain: AtomicBool::new(false),
        })
    }

    /// Whether readers accept unencrypted content, because the store is being encrypted.
    pub fn accepts_plain(&self) -> bool {
        self.accepts_plain.load(Ordering::Relaxed)
    }

    /// Changes only these keys. [`crate::KeyStore`] makes the change durable.
    #[doc(hidden)]
    pub fn accept_plain(&self, accepts: bool) {
        self.accepts_plain.store(accepts, Ordering::Relaxed);
    }

    /// Keys with one key: of what lives no longer than the process, and of tests.
    pub fn single(key: Key) -> Arc<StoreKeys> {
        StoreKeys::new(KeySet {
            keys: BTreeMap::from([(1, key)]),
            current: 1,
        })
    }

    pub(crate) fn set(&self) -> Arc<KeySet> {
        self.set.load_full()
    }

    pub(crate) fn replace(&self, set: KeySet) {
        assert!(
            set.keys.contains_key(&set.current),
            "C1: the current store key is none of the keys"
        );
        self.set.store(Arc::new(set));
    }

    /// Copies these keys for a reader that accepts unencrypted content. Only simulations use it.
    #[doc(hidden)]
    pub fn accepting_plain(&self) -> Arc<StoreKeys> {
        let keys = StoreKeys::new(KeySet::clone(&self.set()));
        keys.accept_plain(true);
        keys
    }

    /// Adds a key and makes it the current one. Only simulations use it: [`crate::KeyStore::rotate`] also makes the key durable.
    #[doc(hidden)]
    pub fn add(&self, key: Key) {
        let mut set = KeySet::clone(&self.set());
        set.current = set.keys.last_key_value().map_or(0, |(last, _)| *last) + 1;
        set.keys.insert(set.current, key);
        self.replace(set);
    }

    /// The number of the current key.
    pub fn current(&self) -> u32 {
        self.set.load().current
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.set.load().keys.len()
    }

    pub(crate) fn key(&self, number: u32) -> Result<Key> {
        let set = self.set.load();
        let key = set.keys.get(&number);
        key.cloned().ok_or(Error::UnknownKey(number))
    }
}
