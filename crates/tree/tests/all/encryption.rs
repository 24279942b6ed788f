//! Encrypted stores: what is in their files, and what is noticed when someone changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;

use frond_encryption::{Ciphers, Key, KeyStore, StoreKeys};
use frond_tree::disk::{Disk, EncryptedDisk, FsDisk};
use frond_tree::fuzzing::Sealed;
use frond_tree::{
    Compression, Direction, Durability, Error, Options, Reencryption, RestorePoint, Store, TreeId,
    TreeOptions, VerifyReport, WriteSet, encrypt_log,
};

use crate::support::copies::Copied;

const TREE: TreeId = TreeId(1);
const SECRET: &[u8] = b"the quick brown secret";

/// Options of a store in a directory, whose store key has this byte; 0 is no encryption.
fn options(directory: &Path, key: u8) -> Options {
    match key {
        0 => options_with(directory, None),
        key => options_with(directory, Some(&StoreKeys::single(Key::new([key; 32])))),
    }
}

fn options_with(directory: &Path, keys: Option<&Arc<StoreKeys>>) -> Options {
    let files = Arc::new(FsDisk::new(directory.to_owned(), false));
    let disk: Arc<dyn Disk> = match keys {
        None => files,
        Some(keys) => {
            let ciphers = Ciphers::new(keys).unwrap();
            Arc::new(EncryptedDisk::new(files, Arc::new(ciphers)))
        }
    };
    let mut options = Options::with_disk(disk);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options
}

fn value(number: u32) -> Vec<u8> {
    let mut value = SECRET.to_vec();
    value.extend_from_slice(format!(" of {number}").repeat(4).as_bytes());
    value
}

fn put(store: &Store, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut set = WriteSet::new();
        if !store.has_tree(TREE) {
            let options = TreeOptions {
                compression: Compression::None,
                ..TreeOptions::default()
            };
            set.create_tree(TREE, &options);
        }
        let key = [SECRET, &number.to_be_bytes()].concat();
        set.put(TREE, &key, &value(number));
        store.commit(set, Durability::Logged).unwrap();
    }
}

/// The number of entries, all of which must have their values.
fn count(store: &Store) -> Result<u32, Error> {
    let snapshot = store.snapshot();
    let mut cursor = snapshot.cursor(TREE, Unbounded, Unbounded, Direction::Forward)?;
    let mut count = 0;
    while let Some((key, found)) = cursor.next()? {
        let number = u32::from_be_bytes(key[SECRET.len()..].try_into().unwrap());
        assert_eq!(found, value(number), "{number}");
        count += 1;
    }
    Ok(count)
}

fn verify(directory: &Path, key: u8) -> VerifyReport {
    Store::verify(&options(directory, key), &mut |_| {}).unwrap()
}

/// The files of a directory that have the secret.
fn leaks(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(SECRET.len()).any(|part| part == SECRET) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// A copy of the files, as they are on the disk now.
fn copy_files(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[test]
fn known_plaintext_is_in_no_file() {
    for key in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let store = Store::open(options(path, key)).unwrap();
        put(&store, 0..50);
        let in_buffer = leaks(path);
        store.flush_log().unwrap();
        put(&store, 50..2000);
        store.checkpoint().unwrap();
        put(&store, 2000..2100);
        let in_all = leaks(path);
        store.close().unwrap();
        if key == 0 {
            let buffer = "log-buffer.frond".to_owned();
            assert!(in_buffer.contains(&buffer), "the test finds it");
            assert!(in_all.contains(&"data.frond".to_owned()), "{in_all:?}");
            assert!(in_all.iter().any(|name| name.starts_with("log-0")));
        } else {
            assert_eq!((in_buffer, in_all), (vec![], vec![]));
        }
    }
}

#[test]
fn what_a_killed_process_left_is_found_with_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path(), 1)).unwrap();
    put(&store, 0..1000);
    store.checkpoint().unwrap();
    put(&store, 1000..1010);
    // The log is not synced, so the last frames are in the buffer only.
    let killed = copy_files(directory.path());
    for round in 0..3 {
        let again = Store::open(options(killed.path(), 1)).unwrap();
        assert_eq!(count(&again).unwrap(), 1010 + round * 10);
        put(&again, 1010 + round * 10..1020 + round * 10);
        again.close().unwrap();
        assert_eq!(verify(killed.path(), 1).problems, []);
    }
    store.close().unwrap();
}

#[test]
fn is_opened_with_its_key_only() {
    for checkpointed in [false, true] {
        let (plain, encrypted) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (directory, key) in [(&plain, 0), (&encrypted, 1)] {
            let store = Store::open(options(directory.path(), key)).unwrap();
            put(&store, 0..100);
            store.flush_log().unwrap();
            if checkpointed {
                store.checkpoint().unwrap();
            }
            std::mem::drop(store);
        }
        let open = |directory: &tempfile::TempDir, key| {
            // A refused store is left as it is, so each try has the same files.
            let copy = copy_files(directory.path());
            let error = Store::open(options(copy.path(), key)).err();
            error.map(|error| error.to_string())
        };
        assert_eq!(open(&plain, 0), None);
        assert_eq!(open(&encrypted, 1), None);
        let without = open(&encrypted, 0).unwrap();
        assert!(without.contains("is encrypted"), "{without}");
        let with = open(&plain, 1).unwrap();
        assert!(with.contains("not encrypted"), "{with}");
        let other = open(&encrypted, 2).unwrap();
        assert!(
            other.contains("another key") || other.contains("was changed"),
            "{other}"
        );
        assert_eq!(open(&encrypted, 1), None);
    }
}

/// The extents of `new` whose place had another content at an older checkpoint, with that content.
fn reused<'a>(
    old: &'a [Copied],
    new: &'a Copied,
) -> impl Iterator<Item = (frond_tree::ExtentId, &'a [u8])> {
    let older = old.iter().flat_map(|copied| &copied.extents);
    older.filter_map(|(old, content)| {
        let same_place =
            |new: &&frond_tree::ExtentId| (new.offset, new.len) == (old.offset, old.len);
        let new = new.extents.keys().find(same_place)?;
        (new.birth != old.birth).then_some((*new, &content[..]))
    })
}

/// A copy of the files with one change of the data file, and the report on it.
fn changed(directory: &Path, change: &dyn Fn(&mut Vec<u8>)) -> (VerifyReport, tempfile::TempDir) {
    let copy = copy_files(directory);
    let path = copy.path().join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    (verify(copy.path(), 1), copy)
}

#[test]
fn swapped_stale_changed_and_missing_blocks_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path(), 1)).unwrap();
    let mut copies = Vec::new();
    // A block of the same length has a checksum that matches, so only its authentication shows that it is
    // older. Background compaction decides when one is written at the place of another.
    let (new, files) = (0..50)
        .find_map(|_| {
            put(&store, 0..3000);
            let new = Copied::take(&store, None).unwrap();
            let files = copy_files(directory.path());
            assert_eq!(verify(files.path(), 1).problems, []);
            let mut is_found = false;
            for (extent, content) in reused(&copies, &new) {
                let at = extent.offset as usize;
                let (report, copy) = changed(files.path(), &|bytes| {
                    bytes[at..at + content.len()].copy_from_slice(content);
                });
                assert!(!report.problems.is_empty(), "{extent:?}");
                let is_older =
                    |it: &frond_tree::Problem| it.what.contains("replaced by an older one");
                is_found |= report.problems.iter().any(is_older);
                // A reader notices it too, unless it is the first of two copies.
                if let Ok(store) = Store::open(options(copy.path(), 1)) {
                    match count(&store) {
                        Ok(count) => assert_eq!(count, 3000),
                        Err(Error::Corrupt { file, .. }) => assert_eq!(file, "data.frond"),
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            copies.push(new.clone());
            is_found.then_some((new, files))
        })
        .expect("a block replaces one of its length");
    store.close().unwrap();
    let change = |change: &dyn Fn(&mut Vec<u8>)| changed(files.path(), change);

    let mut swapped = 0;
    let extents: Vec<_> = new.extents.keys().collect();
    for pair in extents.windows(2).filter(|pair| pair[0].len == pair[1].len) {
        let (first, second) = (pair[0].offset as usize, pair[1].offset as usize);
        let len = pair[0].len as usize;
        let (report, _) = change(&|bytes| {
            for at in 0..len {
                bytes.swap(first + at, second + at);
            }
        });
        assert!(report.problems.len() >= 2, "{pair:?}: {report:?}");
        swapped += 1;
    }
    assert!(swapped > 0);

    for extent in &extents {
        let (report, _) = change(&|bytes| bytes[extent.offset as usize + 100] ^= 4);
        assert!(!report.problems.is_empty(), "{extent:?}");
        assert_eq!(report.problems[0].file, "data.frond");
    }
    let end = extents.last().unwrap();
    let (report, _) = change(&|bytes| bytes.truncate(end.offset as usize));
    assert!(!report.problems.is_empty());
}

#[test]
fn a_changed_group_of_the_log_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path(), 1)).unwrap();
    for round in 0..5 {
        put(&store, round * 10..round * 10 + 10);
        store.flush_log().unwrap();
    }
    let killed = copy_files(directory.path());
    store.close().unwrap();
    let name = "log-0000000000000000.frond";
    let sound = std::fs::read(killed.path().join(name)).unwrap();
    let groups = Sealed::find(name, &sound);
    assert!(groups.len() >= 5);
    for (index, group) in groups.iter().enumerate() {
        let range = group.range();
        // The header, the seal, and what is encrypted; with checksums that match.
        for at in [range.start + 24, range.start + 60, range.end - 1] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            let flipped = copy_files(killed.path());
            std::fs::write(flipped.path().join(name), &bytes).unwrap();
            group.seal(&mut bytes);
            std::fs::write(killed.path().join(name), &bytes).unwrap();
            let forged = Store::open(options(killed.path(), 1)).err();
            let forged = forged.map(|error| error.to_string()).unwrap_or_default();
            let is_durable_claim = forged.contains("missing or damaged");
            assert!(
                forged.contains("was changed or moved")
                    || is_durable_claim
                    || forged.contains("encrypted"),
                "group {index}, byte {at}: {forged:?}"
            );
            // Without them it is damage, as in any log: an error unless it is the end.
            let opened = Store::open(options(flipped.path(), 1));
            if index + 1 < groups.len() {
                let error = opened.err().expect("damage in the middle").to_string();
                assert!(error.contains("missing or damaged"), "{error}");
            }
        }
    }
}

#[test]
fn a_copy_is_encrypted_and_is_restored_with_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path(), 1)).unwrap();
    put(&store, 0..2000);
    let first = Copied::take(&store, None).unwrap();
    put(&store, 2000..2500);
    let second = Copied::take(&store, Some(&first)).unwrap();
    put(&store, 2500..2600);
    for (copied, expected) in [(&first, 2000), (&second, 2500)] {
        let target = tempfile::tempdir().unwrap();
        let restored = copied.restore(options(target.path(), 1), RestorePoint::End);
        restored.unwrap();
        assert_eq!(leaks(target.path()), Vec::<String>::new());
        assert_eq!(verify(target.path(), 1).problems, []);
        // Two stores go on from the same files.
        let there = Store::open(options(target.path(), 1)).unwrap();
        assert_eq!(count(&there).unwrap(), expected);
        put(&there, expected..expected + 100);
        there.close().unwrap();
        for key in [0, 2] {
            let target = tempfile::tempdir().unwrap();
            let refused = copied.restore(options(target.path(), key), RestorePoint::End);
            assert!(refused.is_err(), "key {key}");
        }
    }
    store.close().unwrap();
}

#[test]
fn salvage_changes_the_key_of_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path(), 0)).unwrap();
    put(&store, 0..2000);
    store.close().unwrap();
    let mut source = directory;
    // Not encrypted, encrypted, with another key, not encrypted.
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let target = tempfile::tempdir().unwrap();
        let report = Store::salvage(
            &options(source.path(), from),
            options(target.path(), to),
            &mut |_| {},
        );
        assert!(report.unwrap().problems.is_empty());
        assert_eq!(leaks(target.path()).is_empty(), to != 0);
        let store = Store::open(options(target.path(), to)).unwrap();
        assert_eq!(count(&store).unwrap(), 2000);
        store.close().unwrap();
        source = target;
    }
}

/// A store whose key is about to be replaced.
struct Rotated {
    directory: tempfile::TempDir,
    keys: KeyStore,
    /// Whether it has no key yet.
    is_plain: bool,
    /// The values of each tree.
    model: BTreeMap<TreeId, BTreeMap<u32, Vec<u8>>>,
}

impl Rotated {
    const TREES: u32 = 300;

    fn new() -> Rotated {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyStore::create(directory.path(), &Key::new([9; 32])).unwrap();
        Rotated {
            directory,
            keys,
            is_plain: false,
            model: BTreeMap::new(),
        }
    }

    /// Makes a store that is not encrypted yet.
    fn plain() -> Rotated {
        let directory = tempfile::tempdir().unwrap();
        let keys = KeyStore::create_for_plain(directory.path(), &Key::new([9; 32])).unwrap();
        Rotated {
            directory,
            keys,
            is_plain: true,
            model: BTreeMap::new(),
        }
    }

    fn keys(&self) -> Option<&Arc<StoreKeys>> {
        (!self.is_plain).then_some(self.keys.keys())
    }

    fn open(&self) -> Store {
        self.open_copy(self.directory.path()).unwrap()
    }

    fn open_copy(&self, directory: &Path) -> Result<Store, Error> {
        Store::open(options_with(directory, self.keys()))
    }

    fn verify(&self, directory: &Path) -> VerifyReport {
        let options = options_with(directory, self.keys());
        Store::verify(&options, &mut |_| {}).unwrap()
    }

    /// Commits puts and deletes in an order without a pattern, so that buffers at all heights have some of them.
    fn write(&mut self, store: &Store, rounds: std::ops::Range<u32>) {
        for round in rounds {
            let mut set = WriteSet::new();
            for at in 0..60 {
                let number = (round * 60 + at).wrapping_mul(2_654_435_761) % 20_000;
                // Most of it belongs to one tree, and a little to many.
                let tree = TreeId(match number % 8 {
                    0 => 2 + number / 8 % Rotated::TREES,
                    _ => 1,
                });
                if !store.has_tree(tree) && !self.model.contains_key(&tree) {
                    let options = TreeOptions {
                        compression: Compression::None,
                        node_bytes: 32 << 10,
                        page_bytes: 2 << 10,
                    };
                    set.create_tree(tree, &options);
                }
                let model = self.model.entry(tree).or_default();
                let key = number.to_be_bytes();
                if round % 3 == 2 {
                    set.delete(tree, &key);
                    model.remove(&number);
                } else {
                    let value = [&value(number)[..], &round.to_le_bytes()].concat();
                    set.put(tree, &key, &value);
                    model.insert(number, value);
                }
            }
            if round % 50 == 49 {
                set.delete_range(
                    TreeId(1),
                    &100_u32.to_be_bytes(),
                    Some(&200_u32.to_be_bytes()),
                );
                let model = self.model.entry(TreeId(1)).or_default();
                model.retain(|number, _| !(100..200).contains(number));
            }
            store.commit(set, Durability::Logged).unwrap();
        }
    }

    fn check(&self, store: &Store) {
        let snapshot = store.snapshot();
        for (tree, model) in &self.model {
            let cursor = snapshot.cursor(*tree, Unbounded, Unbounded, Direction::Forward);
            let (mut cursor, mut found) = (cursor.unwrap(), BTreeMap::new());
            while let Some((key, value)) = cursor.next().unwrap() {
                let number = u32::from_be_bytes(key.try_into().unwrap());
                found.insert(number, value.to_vec());
            }
            assert!(found == *model, "{tree:?}");
        }
    }

    /// The numbers of the keys that the first blocks of all extents have.
    fn keys_in_use(store: &Store) -> BTreeSet<u32> {
        let copied = Copied::take(store, None).unwrap();
        let number = |bytes: &[u8]| u32::from_le_bytes(*bytes[16..].first_chunk().unwrap());
        let blocks = copied.extents.values().map(|bytes| number(bytes));
        // The seal of a superblock follows 48 bytes.
        let superblocks = [0, 4096].map(|at| number(&copied.head[at + 32..]));
        blocks.chain(superblocks).collect()
    }
}

#[test]
fn all_data_gets_the_new_store_key_while_it_is_read_and_written() {
    let mut rotated = Rotated::new();
    let mut store = rotated.open();
    for rotation in 2..5 {
        let rounds = rotation * 1000;
        rotated.write(&store, rounds..rounds + 300);
        if rotation == 3 {
            // After a restart the store has to find the old runs on the disk.
            store.close().unwrap();
            store = rotated.open();
        }
        assert_eq!(Rotated::keys_in_use(&store), BTreeSet::from([rotation - 1]));
        rotated.keys.rotate(&Key::new([9; 32]), true).unwrap();
        // Some of it is written with the new key already.
        rotated.write(&store, rounds + 300..rounds + 350);
        let mut round = rounds + 350;
        let mut steps = 0;
        let outcome = store.reencrypt(|| {
            steps += 1;
            if steps % 8 == 0 && round < rounds + 500 {
                rotated.write(&store, round..round + 1);
                round += 1;
            }
            if steps % 64 == 0 {
                rotated.check(&store);
                let killed = copy_files(rotated.directory.path());
                let again = rotated.open_copy(killed.path()).unwrap();
                rotated.check(&again);
                again.close().unwrap();
            }
            true
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.is_done, outcome.skipped), (true, 0));
        assert_eq!(Rotated::keys_in_use(&store), BTreeSet::from([rotation]));
        rotated.check(&store);
        // There is nothing left to write but checkpoints.
        let again = store.reencrypt(|| true).unwrap();
        assert!(
            again.bytes < outcome.bytes / 2,
            "{again:?} after {outcome:?}"
        );
    }
    store.close().unwrap();
    let report = rotated.verify(rotated.directory.path());
    assert_eq!(report.problems, []);
}

#[test]
fn a_reencryption_that_is_interrupted_goes_on_later() {
    let mut rotated = Rotated::new();
    let mut store = rotated.open();
    rotated.write(&store, 0..300);
    rotated.keys.rotate(&Key::new([9; 32]), true).unwrap();
    let mut attempts = 1;
    loop {
        let mut steps = 0;
        let outcome = store.reencrypt(|| {
            steps += 1;
            steps < 100 * attempts
        });
        let outcome: Reencryption = outcome.unwrap();
        rotated.check(&store);
        if outcome.is_done {
            break;
        }
        store.close().unwrap();
        store = rotated.open();
        attempts += 1;
    }
    assert!(attempts > 2, "it is interrupted");
    assert_eq!(Rotated::keys_in_use(&store), BTreeSet::from([2]));
    store.close().unwrap();
}

#[test]
fn a_reencryption_skips_what_is_damaged() {
    let mut rotated = Rotated::new();
    let store = rotated.open();
    rotated.write(&store, 0..300);
    store.compact().unwrap();
    let copied = Copied::take(&store, None).unwrap();
    store.close().unwrap();
    rotated.keys.rotate(&Key::new([9; 32]), true).unwrap();
    // The largest extent is a leaf.
    let leaf = copied.extents.keys().max_by_key(|extent| extent.len);
    let at = leaf.unwrap().offset as usize + 100;
    let path = rotated.directory.path().join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = rotated.open();
    for _ in 0..2 {
        let outcome = store.reencrypt(|| true).unwrap();
        assert_eq!((outcome.is_done, outcome.skipped), (true, 1));
    }
    assert_eq!(store.damage().len(), 1);
    store.close().unwrap();
    assert_eq!(rotated.verify(rotated.directory.path()).problems.len(), 1);
}

#[test]
fn a_store_is_encrypted_while_it_is_read_and_written() {
    let mut rotated = Rotated::plain();
    let path = rotated.directory.path().to_owned();
    let store = rotated.open();
    rotated.write(&store, 0..300);
    store.checkpoint().unwrap();
    rotated.write(&store, 300..310);
    // A killed process: the last frames are in the buffer of the log only.
    let killed = copy_files(&path);
    store.close().unwrap();
    assert!(!leaks(&path).is_empty() && !leaks(killed.path()).is_empty());
    rotated.is_plain = false;
    for encrypts_log in [false, true] {
        let copy = copy_files(killed.path());
        if encrypts_log {
            // The second call has nothing left to do.
            for _ in 0..2 {
                encrypt_log(&*options_with(copy.path(), rotated.keys()).disk).unwrap();
            }
            let files = leaks(copy.path());
            assert!(
                !files.iter().any(|name| name.starts_with("log-0")),
                "{files:?}"
            );
        }
        let again = rotated.open_copy(copy.path()).unwrap();
        rotated.check(&again);
        again.close().unwrap();
    }

    let mut store = rotated.open();
    rotated.check(&store);
    let (mut round, mut steps) = (310, 0);
    let outcome = store.reencrypt(|| {
        steps += 1;
        if steps % 8 == 0 && round < 400 {
            rotated.write(&store, round..round + 1);
            round += 1;
        }
        if steps % 64 == 0 {
            let killed = copy_files(&path);
            assert_eq!(rotated.verify(killed.path()).problems, []);
            let again = rotated.open_copy(killed.path()).unwrap();
            rotated.check(&again);
            again.close().unwrap();
            // A copy has both encrypted and unencrypted blocks.
            let target = tempfile::tempdir().unwrap();
            let copied = Copied::take(&store, None).unwrap();
            let options = options_with(target.path(), rotated.keys());
            copied.restore(options, RestorePoint::End).unwrap();
            let restored = rotated.open_copy(target.path()).unwrap();
            rotated.check(&restored);
            restored.close().unwrap();
        }
        true
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.is_done, outcome.skipped), (true, 0));
    assert_eq!(Rotated::keys_in_use(&store), BTreeSet::from([1]));
    rotated.check(&store);
    // The log of the last but one checkpoint is kept for a while.
    while !store.is_log_encrypted().unwrap() {
        store.compact().unwrap();
    }
    assert_eq!(leaks(&path), Vec::<String>::new());
    rotated.keys.refuse_plain(&Key::new([9; 32])).unwrap();
    for _ in 0..2 {
        rotated.check(&store);
        store.close().unwrap();
        store = rotated.open();
    }
    store.close().unwrap();
    assert_eq!(rotated.verify(&path).problems, []);
}

#[test]
fn what_is_not_encrypted_is_refused_once_all_is() {
    let mut rotated = Rotated::plain();
    let store = rotated.open();
    rotated.write(&store, 0..100);
    store.close().unwrap();
    rotated.is_plain = false;
    let plain = copy_files(rotated.directory.path());
    rotated.keys.refuse_plain(&Key::new([9; 32])).unwrap();
    let error = rotated.open_copy(plain.path()).err().unwrap().to_string();
    assert!(error.contains("not encrypted"), "{error}");
    // The log alone, and the log with its buffer.
    for kept in ["log-", "log-b"] {
        let copy = copy_files(plain.path());
        for entry in std::fs::read_dir(copy.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with(kept) {
                std::fs::remove_file(path).unwrap();
            }
        }
        if let Err(error) = rotated.open_copy(copy.path()) {
            assert!(error.to_string().contains("not encrypted"), "{error}");
        } else {
            panic!("{kept} is accepted");
        }
    }
}
