//! The file with the store keys, each encrypted with the master key.
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | `FRONDKEY` |
//! | 4 | version, 1; the highest bit is set while the store is being encrypted and readers accept unencrypted content |
//! | 4 | number of the current store key |
//! | 16 | name of the key store, random |
//! | 8 | number of this version of the file, from 1 on |
//! | 4 | number of records |
//! | 72 each | records |
//! | 28 | nonce and tag over all bytes before |
//! | 32 | SHA-256 of all bytes before |
//!
//! A record is the number of a store key (4), the time of its creation in seconds since 1970 (8), a nonce (12), the encrypted key (32)
//! and its tag (16). Numbers are little-endian and records ascend.
//!
//! Records and the file are encrypted and authenticated with AES-256-GCM. The key is derived from the master key with the name of the key
//! store as salt (HKDF with SHA-256). Nonces are random, which is safe for the few times that a key store is written. The associated
//! data of a record is the name and its first 12 bytes. The checksum at the end needs no key: an intact file that does not open was
//! written with another master key.
//!
//! A new version is written to a file beside it, synced, and renamed. So after a crash at any step the file is the old or the new one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::key::{KEY_BYTES, KeySet, random};
use crate::{Error, Key, Result, StoreKeys};

/// The name of the file in the data directory.
pub const KEY_STORE_FILE: &str = "encryption.keys";
const NEW_FILE: &str = "encryption.keys.new";
const MAGIC: &[u8; 8] = b"FRONDKEY";
const VERSION: u32 = 1;
/// Set in the version while the store is being encrypted.
const ACCEPTS_PLAIN: u32 = 1 << 31;
const HEADER_BYTES: usize = 44;
const RECORD_BYTES: usize = 72;
const TAG_BYTES: usize = 16;
const MAC_BYTES: usize = NONCE_LEN + TAG_BYTES;
const SUM_BYTES: usize = 32;
/// More than any store has.
const RECORDS_MAX: usize = 10_000;

/// A step of a write of the file, for tests that stop at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Created,
    WrittenInPart,
    Written,
    Synced,
    Renamed,
    Durable,
}

/// The store keys of a data directory, unlocked.
#[derive(Debug)]
pub struct KeyStore {
    directory: PathBuf,
    name: [u8; 16],
    version: u64,
    /// When each key was made, in seconds since 1970.
    created: BTreeMap<u32, u64>,
    keys: Arc<StoreKeys>,
}

impl KeyStore {
    /// Whether a directory has a key store.
    ///
    /// # Errors
    /// Those of the file system, but for a directory that does not exist.
    pub fn exists(directory: &Path) -> Result<bool> {
        let path = directory.join(KEY_STORE_FILE);
        path.try_exists()
            .map_err(Error::io(format!("looking for {}", path.display())))
    }

    /// Makes a key store with one key. There must be none.
    ///
    /// # Errors
    /// [`Error::KeyStore`] if there is one, those of the file system.
    pub fn create(directory: &Path, master: &Key) -> Result<KeyStore> {
        KeyStore::create_with(directory, master, false)
    }

    /// As [`KeyStore::create`], for a store that is not encrypted yet.
    ///
    /// # Errors
    /// As [`KeyStore::create`].
    pub fn create_for_plain(directory: &Path, master: &Key) -> Result<KeyStore> {
        KeyStore::create_with(directory, master, true)
    }

    fn create_with(directory: &Path, master: &Key, accepts_plain: bool) -> Result<KeyStore> {
        if KeyStore::exists(directory)? {
            let path = directory.join(KEY_STORE_FILE);
            return Err(Error::KeyStore(path, "exists already"));
        }
        let mut name = [0; 16];
        random(&mut name)?;
        let set = KeySet {
            keys: BTreeMap::from([(1, Key::random()?)]),
            current: 1,
        };
        let mut store = KeyStore {
            directory: directory.to_owned(),
            name,
            version: 0,
            created: BTreeMap::from([(1, now())]),
            keys: StoreKeys::new(set.clone()),
        };
        store.keys.accept_plain(accepts_plain);
        store.write(master, &set, &mut |_| Ok(()))?;
        Ok(store)
    }

    /// Reads the key store of a directory.
    ///
    /// # Errors
    /// [`Error::NoKeyStore`], [`Error::WrongMasterKey`], [`Error::KeyStore`] if it is damaged, those of the file system.
    pub fn open(directory: &Path, master: &Key) -> Result<KeyStore> {
        let opened = KeyStore::read(directory, master)?;
        // A write that was interrupted left it.
        let _ = std::fs::remove_file(directory.join(NEW_FILE));
        Ok(opened)
    }

    /// As [`KeyStore::open`], without a change to the directory.
    ///
    /// # Errors
    /// As [`KeyStore::open`].
    pub fn read(directory: &Path, master: &Key) -> Result<KeyStore> {
        let path = directory.join(KEY_STORE_FILE);
        let bytes = match read_file(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoKeyStore(path));
            }
            Err(error) => return Err(Error::Io(format!("reading {}", path.display()), error)),
        };
        KeyStore::parse(directory, &bytes, master).map_err(|why| match why {
            Malformed::Damaged(what) => Error::KeyStore(path, what),
            Malformed::WrongKey => Error::WrongMasterKey(path),
        })
    }

    fn parse(directory: &Path, bytes: &[u8], master: &Key) -> Result<KeyStore, Malformed> {
        let damaged = Malformed::Damaged("is damaged: restore it from a backup");
        let split = bytes.len().checked_sub(SUM_BYTES);
        let (all, sum) = bytes.split_at(split.ok_or(damaged)?);
        if digest(&SHA256, all).as_ref() != sum || !all.starts_with(MAGIC) {
            return Err(damaged);
        }
        let mut reader = Reader(&all[MAGIC.len()..]);
        let format = reader.u32().ok_or(damaged)?;
        if format & !ACCEPTS_PLAIN != VERSION {
            let what = "was written in a format that this version does not support";
            return Err(Malformed::Damaged(what));
        }
        let current = reader.u32().ok_or(damaged)?;
        let name = *reader.take().ok_or(damaged)?;
        let version = reader.u64().ok_or(damaged)?;
        let records = reader.u32().ok_or(damaged)? as usize;
        let len = HEADER_BYTES + records.min(RECORDS_MAX) * RECORD_BYTES;
        if records > RECORDS_MAX || all.len() != len + MAC_BYTES {
            return Err(damaged);
        }
        let wrap = wrapping_key(master, &name);
        let (before, mac) = all.split_at(len);
        open(&wrap, before, mac, &mut []).ok_or(Malformed::WrongKey)?;
        let (mut keys, mut created) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..records {
            let record: &[u8; RECORD_BYTES] = reader.take().ok_or(damaged)?;
            let mut fields = Reader(record);
            let number = fields.u32().ok_or(damaged)?;
            let at = fields.u64().ok_or(damaged)?;
            let (context, sealed) = record.split_at(12);
            let context = [&name[..], context].concat();
            let nonce: &[u8; NONCE_LEN] = sealed.first_chunk().ok_or(damaged)?;
            let mut key = Zeroizing::new([0; KEY_BYTES]);
            key.copy_from_slice(&sealed[NONCE_LEN..NONCE_LEN + KEY_BYTES]);
            let seal = [nonce, &sealed[NONCE_LEN + KEY_BYTES..]].concat();
            open(&wrap, &context, &seal, &mut key[..]).ok_or(Malformed::WrongKey)?;
            keys.insert(number, Key::new(*key));
            created.insert(number, at);
        }
        if !keys.contains_key(&current) {
            return Err(damaged);
        }
        let keys = StoreKeys::new(KeySet { keys, current });
        keys.accept_plain(format & ACCEPTS_PLAIN != 0);
        Ok(KeyStore {
            directory: directory.to_owned(),
            name,
            version,
            created,
            keys,
        })
    }

    /// The store keys. They stay the same ones when the key store changes.
    pub fn keys(&self) -> &Arc<StoreKeys> {
        &self.keys
    }

    /// The number of this version of the file.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The name of the key store, which a rotation keeps.
    pub fn name(&self) -> [u8; 16] {
        self.name
    }

    /// Encrypts the store keys with another master key, or with the same one. With `adds_key` there is a new store key, which is used from
    /// now on; the old ones stay, because blocks that were written with them are there still.
    ///
    /// # Errors
    /// Those of the file system. The file has the old or the new keys then; the store keys in memory stay the old ones.
    pub fn rotate(&mut self, master: &Key, adds_key: bool) -> Result<()> {
        self.rotate_with(master, adds_key, &mut |_| Ok(()))
    }

    /// Makes readers refuse unencrypted content, durably.
    ///
    /// # Errors
    /// [`Error::WrongMasterKey`] if the file is encrypted with another one; those of the file system.
    pub fn refuse_plain(&mut self, master: &Key) -> Result<()> {
        KeyStore::read(&self.directory, master)?;
        self.keys.accept_plain(false);
        let set = self.keys.set();
        let written = self.write(master, &set, &mut |_| Ok(()));
        if written.is_err() {
            self.keys.accept_plain(true);
        }
        written
    }

    fn rotate_with(
        &mut self,
        master: &Key,
        adds_key: bool,
        at: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<()> {
        if !adds_key {
            let set = self.keys.set();
            return self.write(master, &set, at);
        }
        let mut set = KeySet::clone(&self.keys.set());
        if set.keys.len() >= RECORDS_MAX {
            let path = self.directory.join(KEY_STORE_FILE);
            return Err(Error::KeyStore(path, "has too many store keys"));
        }
        let next = set.keys.last_key_value().map_or(0, |(last, _)| *last) + 1;
        set.keys.insert(next, Key::random()?);
        set.current = next;
        self.created.insert(next, now());
        let written = self.write(master, &set, at);
        if written.is_err() {
            self.created.remove(&next);
            return written;
        }
        // Only now: nothing may be encrypted with a key that is not durable.
        self.keys.replace(set);
        Ok(())
    }

    fn encode_version(&self, master: &Key, set: &KeySet, version: u64) -> Result<Vec<u8>> {
        let wrap = wrapping_key(master, &self.name);
        let mut out = MAGIC.to_vec();
        let flag = if self.keys.accepts_plain() {
            ACCEPTS_PLAIN
        } else {
            0
        };
        out.extend_from_slice(&(VERSION | flag).to_le_bytes());
        out.extend_from_slice(&set.current.to_le_bytes());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&(set.keys.len() as u32).to_le_bytes());
        for (number, key) in &set.keys {
            let created = self.created.get(number).copied().unwrap_or(0);
            let mut context = self.name.to_vec();
            context.extend_from_slice(&number.to_le_bytes());
            context.extend_from_slice(&created.to_le_bytes());
            let mut wrapped = *key.bytes();
            let seal = seal(&wrap, &context, &mut wrapped)?;
            out.extend_from_slice(&context[self.name.len()..]);
            out.extend_from_slice(&seal[..NONCE_LEN]);
            out.extend_from_slice(&wrapped);
            out.extend_from_slice(&seal[NONCE_LEN..]);
        }
        let mac = seal(&wrap, &out, &mut [])?;
        out.extend_from_slice(&mac);
        let sum = digest(&SHA256, &out);
        out.extend_from_slice(sum.as_ref());
        Ok(out)
    }

    fn write(
        &mut self,
        master: &Key,
        set: &KeySet,
        at: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<()> {
        let version = self.version + 1;
        let bytes = self.encode_version(master, set, version)?;
        let context = format!("writing {}", self.directory.join(KEY_STORE_FILE).display());
        replace(&self.directory, &bytes, at).map_err(Error::io(context))?;
        self.version = version;
        Ok(())
    }
}

/// Why bytes are no key store.
#[derive(Clone, Copy)]
enum Malformed {
    Damaged(&'static str),
    WrongKey,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().copied().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().copied().map(u64::from_le_bytes)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn wrapping_key(master: &Key, name: &[u8]) -> LessSafeKey {
    let extracted = Salt::new(HKDF_SHA256, name).extract(master.bytes());
    let expanded = extracted
        .expand(&[b"frond key store"], &AES_256_GCM)
        .expect("the output is shorter than the longest one");
    LessSafeKey::new(UnboundKey::from(expanded))
}

/// Encrypts in place. Returns nonce and tag.
fn seal(key: &LessSafeKey, context: &[u8], data: &mut [u8]) -> Result<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    random(&mut nonce)?;
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context),
            data,
        )
        .expect("a key is short");
    Ok([&nonce, tag.as_ref()].concat())
}

fn open(key: &LessSafeKey, context: &[u8], seal: &[u8], data: &mut [u8]) -> Option<()> {
    let (nonce, tag) = seal.split_first_chunk::<NONCE_LEN>()?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let tag = tag.try_into().ok()?;
    let opened = key.open_in_place_separate_tag(nonce, Aad::from(context), tag, data, 0..);
    opened.ok().map(drop)
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let most = HEADER_BYTES + RECORDS_MAX * RECORD_BYTES + MAC_BYTES + SUM_BYTES;
    let mut bytes = Vec::new();
    File::open(path)?
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces the file, durably.
fn replace(
    directory: &Path,
    bytes: &[u8],
    at: &mut dyn FnMut(Step) -> io::Result<()>,
) -> io::Result<()> {
    let (new, path) = (directory.join(NEW_FILE), directory.join(KEY_STORE_FILE));
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut file = options.open(&new)?;
    at(Step::Created)?;
    let (first, second) = bytes.split_at(bytes.len() / 2);
    file.write_all(first)?;
    at(Step::WrittenInPart)?;
    file.write_all(second)?;
    at(Step::Written)?;
    file.sync_all()?;
    at(Step::Synced)?;
    std::fs::rename(&new, &path)?;
    at(Step::Renamed)?;
    File::open(directory)?.sync_all()?;
    at(Step::Durable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 6] = [
        Step::Created,
        Step::WrittenInPart,
        Step::Written,
        Step::Synced,
        Step::Renamed,
        Step::Durable,
    ];

    fn key(byte: u8) -> Key {
        Key::new([byte; 32])
    }

    #[test]
    fn is_opened_with_its_master_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(!KeyStore::exists(path).unwrap());
        let missing = KeyStore::open(path, &key(1)).unwrap_err();
        assert!(matches!(missing, Error::NoKeyStore(_)), "{missing}");
        let made = KeyStore::create(path, &key(1)).unwrap();
        assert!(KeyStore::exists(path).unwrap());
        let opened = KeyStore::open(path, &key(1)).unwrap();
        assert_eq!(opened.keys().set().keys, made.keys().set().keys);
        assert_eq!((opened.version(), opened.name()), (1, made.name()));
        let wrong = KeyStore::open(path, &key(2)).unwrap_err();
        assert!(matches!(wrong, Error::WrongMasterKey(_)), "{wrong}");
        let again = KeyStore::create(path, &key(1)).unwrap_err();
        assert!(matches!(again, Error::KeyStore(..)), "{again}");
    }

    #[test]
    fn content_that_is_not_encrypted_is_accepted_until_it_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let accepts = |master| {
            KeyStore::open(path, &key(master))
                .unwrap()
                .keys
                .accepts_plain()
        };
        let mut store = KeyStore::create_for_plain(path, &key(1)).unwrap();
        assert!(store.keys().accepts_plain() && accepts(1));
        store.rotate(&key(2), true).unwrap();
        assert!(accepts(2));
        let error = store.refuse_plain(&key(1)).unwrap_err();
        assert!(matches!(error, Error::WrongMasterKey(_)), "{error}");
        assert!(store.keys().accepts_plain() && accepts(2));
        store.refuse_plain(&key(2)).unwrap();
        assert!(!store.keys().accepts_plain() && !accepts(2));
        store.rotate(&key(3), true).unwrap();
        assert!(!accepts(3));
    }

    #[test]
    fn damage_is_no_wrong_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        KeyStore::create(path, &key(1)).unwrap();
        let file = path.join(KEY_STORE_FILE);
        let sound = std::fs::read(&file).unwrap();
        for bit in 0..sound.len() * 8 {
            let mut changed = sound.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, &changed).unwrap();
            let error = KeyStore::open(path, &key(1)).unwrap_err();
            assert!(matches!(error, Error::KeyStore(..)), "bit {bit}: {error}");
            // With a checksum that matches it is not what the owner of the master key wrote.
            let split = changed.len() - SUM_BYTES;
            let sum = digest(&SHA256, &changed[..split]);
            changed[split..].copy_from_slice(sum.as_ref());
            std::fs::write(&file, &changed).unwrap();
            let opened = KeyStore::open(path, &key(1));
            assert_eq!(opened.is_ok(), bit / 8 >= split, "bit {bit}");
        }
        for len in 0..sound.len() {
            std::fs::write(&file, &sound[..len]).unwrap();
            let error = KeyStore::open(path, &key(1)).unwrap_err();
            assert!(matches!(error, Error::KeyStore(..)), "{len} bytes: {error}");
        }
    }

    #[test]
    fn a_rotation_keeps_the_old_store_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut store = KeyStore::create(path, &key(1)).unwrap();
        let (keys, before) = (store.keys().clone(), store.keys().set());
        for (round, master) in [(2, key(2)), (3, key(3))] {
            store.rotate(&master, true).unwrap();
            assert_eq!((keys.current(), keys.count()), (round, round as usize));
        }
        let old = KeyStore::open(path, &key(1)).unwrap_err();
        assert!(matches!(old, Error::WrongMasterKey(_)), "{old}");
        let opened = KeyStore::open(path, &key(3)).unwrap();
        assert_eq!(opened.keys().set().keys, keys.set().keys);
        assert_eq!(opened.keys().key(1).unwrap(), before.keys[&1]);
        assert_eq!(opened.version(), 3);
    }

    #[test]
    fn a_rotation_that_stops_at_a_step_leaves_the_old_or_the_new_keys() {
        for (stop, adds_key) in STEPS
            .iter()
            .flat_map(|stop| [(*stop, false), (*stop, true)])
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            let mut store = KeyStore::create(path, &key(1)).unwrap();
            let before = store.keys().set();
            let stopped = store.rotate_with(&key(2), adds_key, &mut |step| match step {
                step if step == stop => Err(io::Error::other("stopped")),
                _ => Ok(()),
            });
            assert!(stopped.is_err(), "{stop:?}");
            assert_eq!(store.keys().current(), 1, "{stop:?}: not durable");
            let is_new = matches!(stop, Step::Renamed | Step::Durable);
            let (right, wrong) = if is_new { (2, 1) } else { (1, 2) };
            let error = KeyStore::open(path, &key(wrong)).unwrap_err();
            assert!(matches!(error, Error::WrongMasterKey(_)), "{stop:?}");
            let mut opened = KeyStore::open(path, &key(right)).unwrap();
            assert_eq!(opened.keys().key(1).unwrap(), before.keys[&1]);
            // Nothing is in the way of the next one.
            opened.rotate(&key(3), adds_key).unwrap();
            KeyStore::open(path, &key(3)).unwrap();
        }
    }
}
