//! Payloads of the engine's files.

use frond_tree::fuzzing::DECODERS;

use super::tree_store;

/// The number of a decoder, then bytes for it: those of a real store, whatever they are.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for payload in tree_store::payloads() {
        for number in 0..DECODERS.len() {
            let mut seed = vec![number as u8];
            seed.extend_from_slice(&payload);
            seeds.push(seed);
        }
    }
    seeds
}

/// The first byte chooses the decoder.
pub fn run(input: &[u8]) {
    if let [number, bytes @ ..] = input {
        let (_, decode) = DECODERS[usize::from(*number) % DECODERS.len()];
        decode(bytes);
    }
}
