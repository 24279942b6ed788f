//! Whole stores whose files were changed below valid checksums: what bugs and malicious copies do, and no disk.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frond_store::merge_operator;
use frond_tree::fuzzing::Sealed;
use frond_tree::{
    Compression, Direction, Durability, Options, Stamps, Store, TreeId, TreeOptions, WriteSet,
};

use crate::memory_disk::MemoryDisk;

/// The files of a store, and the parts of them that have checksums.
struct Image {
    files: BTreeMap<String, Vec<u8>>,
    parts: Vec<(String, Sealed)>,
}

/// The bytes of an input that make one change: two for the part, two for the place, what is done, the value.
const CHANGE_BYTES: usize = 6;
/// More changes than this are not made.
const CHANGES_MAX: usize = 24;

/// A source of stamps.
struct Counter(AtomicU64);

impl Stamps for Counter {
    fn take(&self, count: u32) -> Option<u64> {
        Some(self.0.fetch_add(count.into(), Ordering::Relaxed))
    }
}

fn images() -> &'static [Image] {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        [Compression::None, Compression::Lz4]
            .into_iter()
            .map(image)
            .collect()
    })
}

/// A store of two trees, with nodes, pending runs, range deletes, a segment of the log and frames in the log's buffer.
fn image(compression: Compression) -> Image {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut options = Options::new(directory.path());
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(16 << 10);
    options.fanout = 4;
    options.merge = merge_operator();
    options.stamps = Some(Arc::new(Counter(AtomicU64::new(1))));
    let store = Store::open(options).expect("a new store");
    let trees = [store.allocate_tree(), store.allocate_tree()];
    let tree_options = TreeOptions {
        compression,
        node_bytes: 4 << 10,
        page_bytes: 1 << 10,
    };
    let mut set = WriteSet::new();
    trees
        .iter()
        .for_each(|tree| set.create_tree(*tree, &tree_options));
    commit(&store, set);
    for round in 0..24u32 {
        let mut set = WriteSet::new();
        for entry in 0..12u32 {
            let key = entry
                .wrapping_mul(0x9E37_79B9)
                .wrapping_add(round)
                .to_be_bytes();
            let value = vec![entry as u8; 20 + (round as usize * 7 + entry as usize * 13) % 150];
            set.put(trees[entry as usize % 2], &key, &value);
        }
        set.put_stamped(trees[1], round % 3, b"", b"stamped");
        if round % 7 == 3 {
            set.delete_range(trees[1], &[round as u8 * 8], Some(&[round as u8 * 8 + 4]));
        }
        commit(&store, set);
        if round % 6 == 5 {
            store.checkpoint().expect("a checkpoint");
        }
    }
    let files = read_files(directory.path());
    store.close().expect("a clean end");
    let parts = files.iter().flat_map(|(name, bytes)| {
        Sealed::find(name, bytes)
            .into_iter()
            .map(|part| (name.clone(), part))
    });
    let parts: Vec<_> = parts.collect();
    assert!(parts.len() > 20, "the store has {} parts", parts.len());
    Image { files, parts }
}

fn commit(store: &Store, set: WriteSet) {
    store.commit(set, Durability::Logged).expect("a commit");
}

/// The files as a killed process leaves them.
fn read_files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(directory).expect("a readable directory");
    files
        .flatten()
        .filter(|file| file.file_name() != "reserve.frond")
        .filter_map(|file| {
            let bytes = std::fs::read(file.path()).ok()?;
            Some((file.file_name().into_string().ok()?, bytes))
        })
        .collect()
}

/// The bytes of all parts, with and without the header of a block.
pub fn payloads() -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    for image in images() {
        for (name, part) in &image.parts {
            let bytes = &image.files[name][part.range()];
            if bytes.len() < 4096 {
                found.push(bytes[8.min(bytes.len())..].to_vec());
                found.push(bytes[16.min(bytes.len())..].to_vec());
            }
        }
    }
    found.sort();
    found.dedup();
    // Parts of a kind are alike.
    found.into_iter().step_by(3).collect()
}

/// No change, and one change of each part.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for (number, image) in images().iter().enumerate() {
        for part in 0..image.parts.len() as u16 {
            let mut seed = vec![number as u8];
            seed.extend_from_slice(&part.to_le_bytes());
            seed.extend_from_slice(&[20, 0, 0, 1]);
            seeds.push(seed);
        }
    }
    seeds
}

/// The first byte chooses the image, and each further group of bytes changes a byte of a part.
pub fn run(input: &[u8]) {
    let Some((number, changes)) = input.split_first() else {
        return;
    };
    let image = &images()[usize::from(*number) % images().len()];
    let mut files = image.files.clone();
    let mut changed = Vec::new();
    for change in changes.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX) {
        let part = usize::from(u16::from_le_bytes([change[0], change[1]])) % image.parts.len();
        let (name, sealed) = &image.parts[part];
        let bytes = files.get_mut(name).expect("a file of the image");
        let range = sealed.range();
        let at =
            range.start + usize::from(u16::from_le_bytes([change[2], change[3]])) % range.len();
        match change[4] % 4 {
            0 => bytes[at] = change[5],
            1 => bytes[at] ^= 1 << (change[5] % 8),
            2 => bytes[at] = bytes[at].wrapping_add(change[5]),
            _ => {
                let from = range.start + usize::from(change[5]) % range.len();
                bytes[at] = bytes[from];
            }
        }
        changed.push(part);
    }
    changed.sort_unstable();
    changed.dedup();
    for part in changed {
        let (name, sealed) = &image.parts[part];
        sealed.seal(files.get_mut(name).expect("a file of the image"));
    }
    use_store(&files);
}

fn options(disk: MemoryDisk) -> Options {
    let mut options = Options::with_disk(Arc::new(disk));
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(16 << 10);
    options.fanout = 4;
    options.flush_threads = 1;
    options.inline = true;
    options.merge = merge_operator();
    options
}

/// Opens the store and does everything with it. Errors are expected, and nothing else.
fn use_store(files: &BTreeMap<String, Vec<u8>>) {
    let verified = Store::verify(&options(MemoryDisk::with(files)), &mut |_| {});
    let salvaged = options(MemoryDisk::default());
    let _ = Store::salvage(&options(MemoryDisk::with(files)), salvaged, &mut |_| {});
    let opened = Store::open(options(MemoryDisk::with(files)));
    if verified.is_ok_and(|report| report.is_sound()) {
        assert!(opened.is_ok(), "{:?}", opened.err());
    }
    let Ok(store) = opened else {
        return;
    };
    let trees: Vec<TreeId> = store.trees().into_iter().take(8).collect();
    for tree in &trees {
        read(&store, *tree);
        store.tree_stats(*tree);
    }
    for tree in &trees {
        for batch in 0..6u32 {
            let mut set = WriteSet::new();
            for key in 0..32u32 {
                let key = (batch * 32 + key).wrapping_mul(0x85EB_CA6B).to_be_bytes();
                set.put(*tree, &key, &[1; 100]);
            }
            let _ = store.commit(set, Durability::Logged);
        }
    }
    let _ = store.checkpoint();
    let _ = store.compact();
    trees.iter().for_each(|tree| read(&store, *tree));
    let mut set = WriteSet::new();
    trees.iter().for_each(|tree| set.drop_tree(*tree));
    let _ = store.commit(set, Durability::Synced);
    let _ = store.checkpoint();
    store.damage();
    store.stats();
    let _ = store.close();
}

fn read(store: &Store, tree: TreeId) {
    let snapshot = store.snapshot();
    for direction in [Direction::Forward, Direction::Backward] {
        if let Ok(mut cursor) = snapshot.cursor(tree, Unbounded, Unbounded, direction) {
            // More keys than the image has, whatever the damage makes of them.
            for _ in 0..5000 {
                if !matches!(cursor.next(), Ok(Some(_))) {
                    break;
                }
            }
        }
    }
    for key in 0..40u32 {
        let _ = snapshot.get(tree, &key.wrapping_mul(0x9E37_79B9).to_be_bytes());
    }
    let _ = snapshot.check_blocks(tree);
}
