//! Sizes of trees.

use frond_tikv::WriteSet;

use super::{new_tree, servers};

#[test]
fn trees_have_about_the_size_of_their_rows() {
    let Some(open) = servers() else {
        return;
    };
    let engine = open();
    let (empty, small, large) = (new_tree(&engine), new_tree(&engine), new_tree(&engine));
    assert_eq!(engine.tree_size(empty, 5).unwrap().bytes, 0);
    let mut set = WriteSet::new();
    set.put(small, b"0123456789", &[1; 100]);
    engine.commit(set).unwrap();
    let size = engine.tree_size(small, 1000).unwrap();
    // All rows of it are known, whatever the caller has counted.
    assert_eq!((size.bytes, size.key_bytes), (111, 10));
    let rows = 3000;
    for some in (0..rows).collect::<Vec<i32>>().chunks(1000) {
        let mut set = WriteSet::new();
        for n in some {
            set.put(large, format!("{n:010}").as_bytes(), &[1; 990]);
        }
        engine.commit(set).unwrap();
    }
    let size = engine.tree_size(large, rows as u64).unwrap();
    let written = 1001 * rows as u64;
    assert!(
        (written / 4..written * 4).contains(&size.bytes),
        "{size:?}, not about {written}"
    );
    assert!(
        size.key_bytes > 0 && size.key_bytes < size.bytes / 20,
        "{size:?}"
    );
}
