//! AES-256-GCM with keys that are used by one open store only.
//!
//! # Nonces
//!
//! GCM fails if a nonce is used twice with one key. A counter that is stored could be set back: by a crash, by a copy of the directory
//! that two processes continue, by a restore. So nothing is stored. Each [`Cipher`] takes 128 random bits when it is made, its *salt*,
//! and derives a key of its own from the store key and the salt (HKDF with SHA-256). With this key it counts from 0. Whoever opens
//! the same files another time, or a copy of them, has another salt and so another key. 2^48 salts of one store key
//! have a common one with a probability of 2^-33. A cipher takes a new salt after 2^32 uses, long before the bounds of GCM.
//!
//! Each ciphertext has a **seal** of 44 bytes, with all that is needed to open it but the store key.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | number of the store key |
//! | 16 | salt |
//! | 8 | counter: the last 8 bytes of the nonce, the first 4 being zero |
//! | 16 | authentication tag |

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::key::random;
use crate::{Error, Key, Result, StoreKeys};

/// Size of a seal in bytes.
pub const SEAL_BYTES: usize = 44;
const SALT_BYTES: usize = 16;
const TAG_AT: usize = 28;
/// Uses of one salt.
const USES_MAX: u64 = 1 << 32;
/// Derived keys that are kept to open what others have sealed.
const KNOWN_MAX: usize = 1024;

/// The use of a cipher. What was sealed for one cannot be opened for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Blocks of the data file.
    Data,
    /// Superblocks of the data file, which are authenticated only.
    Superblock,
    /// Groups of the log.
    Log,
    /// Frames in the buffer of the log.
    Buffer,
    /// Temporary files, whose key lives no longer than the process.
    Temporary,
    /// Other files of the server.
    Files,
}

impl Purpose {
    fn name(self) -> &'static [u8] {
        match self {
            Purpose::Data => b"frond data",
            Purpose::Superblock => b"frond superblock",
            Purpose::Log => b"frond log",
            Purpose::Buffer => b"frond log buffer",
            Purpose::Temporary => b"frond temporary file",
            Purpose::Files => b"frond file",
        }
    }
}

type SaltBytes = [u8; SALT_BYTES];

/// Seals and opens for one purpose.
pub struct Cipher {
    keys: Arc<StoreKeys>,
    purpose: Purpose,
    sealing: ArcSwap<Sealing>,
    known: ArcSwap<HashMap<(u32, SaltBytes), Arc<LessSafeKey>>>,
}

struct Sealing {
    number: u32,
    salt: SaltBytes,
    key: LessSafeKey,
    /// C2: no two seals of one salt have one counter.
    counter: AtomicU64,
}

impl Sealing {
    fn new(keys: &StoreKeys, purpose: Purpose) -> Result<Sealing> {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt)?;
        Sealing::with_salt(keys, purpose, salt)
    }

    fn with_salt(keys: &StoreKeys, purpose: Purpose, salt: SaltBytes) -> Result<Sealing> {
        let number = keys.current();
        Ok(Sealing {
            number,
            salt,
            key: derive(&keys.key(number)?, &salt, purpose)?,
            counter: AtomicU64::new(0),
        })
    }
}

fn derive(key: &Key, salt: &SaltBytes, purpose: Purpose) -> Result<LessSafeKey> {
    let extracted = Salt::new(HKDF_SHA256, salt).extract(key.bytes());
    let info = [purpose.name()];
    let expanded = extracted.expand(&info, &AES_256_GCM);
    // It fails only for longer output than this.
    let expanded = expanded.map_err(|_| Error::NotAuthentic)?;
    Ok(LessSafeKey::new(UnboundKey::from(expanded)))
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher {
    /// A cipher with a salt of its own.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn new(keys: &Arc<StoreKeys>, purpose: Purpose) -> Result<Cipher> {
        Ok(Cipher::with_sealing(
            keys,
            purpose,
            Sealing::new(keys, purpose)?,
        ))
    }

    fn with_sealing(keys: &Arc<StoreKeys>, purpose: Purpose, sealing: Sealing) -> Cipher {
        Cipher {
            keys: keys.clone(),
            purpose,
            sealing: ArcSwap::from_pointee(sealing),
            known: ArcSwap::default(),
        }
    }

    /// Encrypts `data` in place. `context` is authenticated with it: it must be the same when the data is opened.
    pub fn seal(&self, context: &[u8], data: &mut [u8]) -> [u8; SEAL_BYTES] {
        let mut sealing = self.sealing.load();
        let mut counter = sealing.counter.fetch_add(1, Ordering::Relaxed);
        if counter >= USES_MAX || sealing.number != self.keys.current() {
            // Without random numbers the old salt goes on: its counter has no end in practice.
            if let Ok(next) = Sealing::new(&self.keys, self.purpose) {
                self.sealing.store(Arc::new(next));
                sealing = self.sealing.load();
                counter = sealing.counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        assert!(counter < u64::MAX / 2, "C2: a counter of nonces has ended");
        let tag = (sealing.key)
            .seal_in_place_separate_tag(nonce(counter), Aad::from(context), data)
            .expect("GCM takes 64 GiB, and nothing here is that long");
        let mut seal = [0; SEAL_BYTES];
        seal[..4].copy_from_slice(&sealing.number.to_le_bytes());
        seal[4..20].copy_from_slice(&sealing.salt);
        seal[20..TAG_AT].copy_from_slice(&counter.to_le_bytes());
        seal[TAG_AT..].copy_from_slice(tag.as_ref());
        seal
    }

    /// Whether a seal was made with the current store key.
    pub fn has_current_key(&self, seal: &[u8; SEAL_BYTES]) -> bool {
        let (number, _) = seal.split_first_chunk().expect("the length is known");
        u32::from_le_bytes(*number) == self.keys.current()
    }

    /// Decrypts `data` in place. After an error its content has no meaning.
    ///
    /// # Errors
    /// [`Error::UnknownKey`]; [`Error::NotAuthentic`] if the seal, the context or the data is another one than when it was sealed.
    pub fn open(&self, seal: &[u8; SEAL_BYTES], context: &[u8], data: &mut [u8]) -> Result<()> {
        let (number, rest) = seal.split_first_chunk().expect("the length is known");
        let (salt, rest) = rest.split_first_chunk().expect("the length is known");
        let (counter, tag) = rest.split_first_chunk().expect("the length is known");
        let (number, counter) = (u32::from_le_bytes(*number), u64::from_le_bytes(*counter));
        let tag = Tag::try_from(tag).map_err(|_| Error::NotAuthentic)?;
        let sealing = self.sealing.load();
        let open = |key: &LessSafeKey, data: &mut [u8]| {
            let opened =
                key.open_in_place_separate_tag(nonce(counter), Aad::from(context), tag, data, 0..);
            opened.map(drop).map_err(|_| Error::NotAuthentic)
        };
        if (sealing.number, sealing.salt) == (number, *salt) {
            return open(&sealing.key, data);
        }
        if let Some(key) = self.known.load().get(&(number, *salt)) {
            return open(key, data);
        }
        let key = derive(&self.keys.key(number)?, salt, self.purpose)?;
        open(&key, data)?;
        // Only after it has opened something, so that damaged blocks fill no memory.
        let mut known = HashMap::clone(&self.known.load());
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((number, *salt), Arc::new(key));
        self.known.store(Arc::new(known));
        Ok(())
    }
}

/// A cipher for each kind of file of a store.
pub struct Ciphers {
    /// Blocks of the data file.
    pub data: Cipher,
    pub superblock: Cipher,
    pub log: Cipher,
    /// Frames in the buffer of the log.
    pub buffer: Cipher,
}

impl Ciphers {
    /// Whether readers accept unencrypted content, because the store is being encrypted.
    pub fn accepts_plain(&self) -> bool {
        self.data.keys.accepts_plain()
    }

    /// Ciphers for a store that is about to be opened.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn new(keys: &Arc<StoreKeys>) -> Result<Ciphers> {
        Ciphers::made(|purpose| Cipher::new(keys, purpose))
    }

    /// Ciphers with a salt that is not random, for simulations that are repeated exactly. No other ciphers may have it.
    ///
    /// # Errors
    /// None, with keys that have their current one.
    #[doc(hidden)]
    pub fn simulated(keys: &Arc<StoreKeys>, salt: SaltBytes) -> Result<Ciphers> {
        Ciphers::made(|purpose| {
            let sealing = Sealing::with_salt(keys, purpose, salt)?;
            Ok(Cipher::with_sealing(keys, purpose, sealing))
        })
    }

    fn made(cipher: impl Fn(Purpose) -> Result<Cipher>) -> Result<Ciphers> {
        Ok(Ciphers {
            data: cipher(Purpose::Data)?,
            superblock: cipher(Purpose::Superblock)?,
            log: cipher(Purpose::Log)?,
            buffer: cipher(Purpose::Buffer)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(keys: &Arc<StoreKeys>, purpose: Purpose) -> Cipher {
        Cipher::new(keys, purpose).unwrap()
    }

    #[test]
    fn every_change_is_noticed() {
        let keys = StoreKeys::single(Key::new([7; 32]));
        let writer = cipher(&keys, Purpose::Data);
        let text = b"all that is stored is authenticated".to_vec();
        let mut data = text.clone();
        let seal = writer.seal(b"here", &mut data);
        assert_ne!(data, text);
        // Another process has another salt.
        for reader in [&writer, &cipher(&keys, Purpose::Data)] {
            let open = |seal: &[u8; SEAL_BYTES], context: &[u8], data: &[u8]| {
                let mut data = data.to_vec();
                reader.open(seal, context, &mut data).map(|()| data)
            };
            for _ in 0..2 {
                assert_eq!(open(&seal, b"here", &data).unwrap(), text);
            }
            assert!(matches!(
                open(&seal, b"elsewhere", &data),
                Err(Error::NotAuthentic)
            ));
            for bit in 0..SEAL_BYTES * 8 {
                let mut changed = seal;
                changed[bit / 8] ^= 1 << (bit % 8);
                let error = open(&changed, b"here", &data).unwrap_err();
                let is_key = bit < 32;
                assert_eq!(matches!(error, Error::UnknownKey(_)), is_key, "bit {bit}");
            }
            for bit in 0..data.len() * 8 {
                let mut changed = data.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&seal, b"here", &changed).is_err(), "bit {bit}");
            }
            assert!(open(&seal, b"here", &data[1..]).is_err());
        }
        for other in [
            cipher(&keys, Purpose::Log),
            cipher(&StoreKeys::single(Key::new([8; 32])), Purpose::Data),
        ] {
            let opened = other.open(&seal, b"here", &mut data.clone());
            assert!(matches!(opened, Err(Error::NotAuthentic)));
        }
    }

    #[test]
    fn no_two_seals_have_one_key_and_nonce() {
        let keys = StoreKeys::single(Key::new([7; 32]));
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let cipher = cipher(&keys, Purpose::Data);
            for _ in 0..20 {
                let seal = cipher.seal(b"", &mut [0; 8]);
                assert!(seen.insert(seal[..TAG_AT].to_vec()));
            }
            // The last uses of a salt.
            (cipher.sealing.load().counter).store(USES_MAX - 1, Ordering::Relaxed);
            let before = cipher.seal(b"", &mut []);
            let after = cipher.seal(b"", &mut []);
            assert_ne!(before[4..20], after[4..20], "a new salt");
            assert!(cipher.open(&before, b"", &mut []).is_ok());
        }
    }

    #[test]
    fn a_new_store_key_is_used_at_once() {
        let keys = StoreKeys::single(Key::new([7; 32]));
        let cipher = cipher(&keys, Purpose::Log);
        let mut old = *b"old";
        let seal = cipher.seal(b"", &mut old);
        keys.add(Key::new([9; 32]));
        let mut new = *b"new";
        let next = cipher.seal(b"", &mut new);
        assert_eq!((seal[0], next[0]), (1, 2));
        cipher.open(&seal, b"", &mut old).unwrap();
        cipher.open(&next, b"", &mut new).unwrap();
        assert_eq!((&old, &new), (b"old", b"new"));
    }
}
