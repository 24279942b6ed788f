//! The content of a member's store.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::sync::Arc;

use frond_encryption::{Ciphers, Key, StoreKeys};
use frond_tree::disk::{Disk, EncryptedDisk};
use frond_tree::{Direction, Error, Options, Store, TreeId};

use crate::support::SimDisk;
use frond_kv_testing::Appends;

pub type Content = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

/// The trees that exist and what they have.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Model {
    pub trees: Vec<TreeId>,
    pub content: Content,
}

/// The options of a member. Those of an encrypted set have a common store key.
pub fn options(disk: &SimDisk, encrypted: bool) -> Options {
    let mut disk: Arc<dyn Disk> = Arc::new(disk.clone());
    if encrypted {
        let keys = StoreKeys::single(Key::new([7; 32]));
        let ciphers = Ciphers::simulated(&keys, disk.unique_name()).unwrap();
        disk = Arc::new(EncryptedDisk::new(disk, Arc::new(ciphers)));
    }
    let mut options = Options::with_disk(disk);
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(32 << 10);
    options.fanout = 4;
    options.inline = true;
    options.flush_threads = 1;
    options.merge = Arc::new(Appends);
    options.member = true;
    options
}

/// Reads all trees of a store.
pub fn content_of(store: &Store) -> Result<Model, Error> {
    let snapshot = store.snapshot();
    let mut model = Model::default();
    for tree in store.trees() {
        model.trees.push(tree);
        let mut cursor = snapshot.cursor(tree, Unbounded, Unbounded, Direction::Forward)?;
        while let Some((key, value)) = cursor.next()? {
            model.content.insert((tree, key.to_vec()), value.to_vec());
        }
    }
    model.trees.sort_unstable();
    Ok(model)
}
