//! Update messages that the store sends to the engine.

use frond_bson::doc;
use frond_store::keyspace::{CATALOG_TREE, TreeId};
use frond_store::merge_operator;

/// Bytes of a length in front of each part of an input.
const LENGTH_BYTES: usize = 2;

fn join(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u16).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// The tree and key, a base and deltas.
pub fn seeds() -> Vec<Vec<u8>> {
    let counts = [[1u8; 16], [255; 16]];
    let document = doc! {"_id": 1, "a": {"b": 1, "c": "text"}, "n": 5}.into_vec();
    // To a segment: set `a` to 7, increment it. See the table of `record/message.rs`.
    let segment = [&[2u8][..], &[0, 2, b'a', 0, 16, 7, 0, 0, 0]].concat();
    let header = [&[1u8][..], &[0; 14], &[0, 2, b'n', 0, 16, 7, 0, 0, 0]].concat();
    // Fast updates: `$inc` of `n` and `$set` of `a.b`, as an upsert and as an update. See the table of `record/fast_update/group.rs`.
    let operations = b"\x02\x03n\x00\x01a.b\x00";
    let upsert = [
        &[3u8, 1, 1, 16, 0, 1, 0, 0, 0][..],
        operations,
        &[1, 2, 16, 0, 1, 0, 0, 0, 16, 0, 7, 0, 0, 0],
    ]
    .concat();
    let update = [
        &[3u8, 1, 0][..],
        operations,
        &[2, 1, 18, 0, 255, 255, 255, 255, 255, 255, 255, 127, 8, 0, 1],
        &[3, 16, 0, 9, 0, 0, 0, 10, 0],
    ]
    .concat();
    vec![
        join(&[&[1, 9], &document, &upsert, &update, &update]),
        join(&[&[1, 9], &[], &upsert, &upsert, &update]),
        join(&[&[1, 9], &[], &update, &header, &upsert]),
        join(&[&[0, 4, 1], &counts[0], &counts[1], &counts[0]]),
        join(&[
            &[0, 5, 1],
            &[1, 1, 0, 0, 0],
            &[1, 2, 0, 0, 0, 3, 0, 0, 0],
            &[1, 0, 0, 0],
        ]),
        join(&[&[1, 9], &document, &header, &header]),
        join(&[&[1, 9], &[], &segment, &segment]),
    ]
}

/// Applying deltas one after another is the same as applying their combination, whenever both can be done.
pub fn run(input: &[u8]) {
    let mut parts = Vec::new();
    let mut rest = input;
    while let Some((len, after)) = rest.split_at_checked(LENGTH_BYTES) {
        let len = usize::from(u16::from_le_bytes([len[0], len[1]])).min(after.len());
        let (part, after) = after.split_at(len);
        parts.push(part);
        rest = after;
    }
    let [name, base, deltas @ ..] = &parts[..] else {
        return;
    };
    let Some((tree, key)) = name.split_first() else {
        return;
    };
    let tree = match tree {
        0 => CATALOG_TREE,
        _ => TreeId(77),
    };
    let operator = merge_operator();
    let sound = deltas
        .iter()
        .all(|delta| operator.check(tree, key, delta).is_ok());
    let mut state = Ok((!base.is_empty()).then(|| base.to_vec()));
    for delta in deltas.iter().take(16) {
        state = state.and_then(|state| operator.apply(tree, key, state.as_deref(), delta));
    }
    let deltas = &deltas[..deltas.len().min(16)];
    if deltas.is_empty() {
        return;
    }
    let base = (!base.is_empty()).then_some(*base);
    let all = operator.apply_all(tree, key, base, deltas);
    let combined = operator.combine_all(tree, key, deltas);
    if let (true, Err(error)) = (sound, &combined) {
        panic!("deltas that can be read are not combined: {error}");
    }
    if let (Ok(state), Ok(all)) = (&state, &all) {
        assert_eq!(state, all, "apply_all");
    }
    if let (Ok(all), Ok(combined)) = (&all, &combined) {
        let once = operator.apply(tree, key, base, combined);
        assert_eq!(once.as_ref(), Ok(all), "combine_all");
    }
}
