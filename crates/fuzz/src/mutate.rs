//! Changes of inputs, for runs without libFuzzer: bytes, and documents in extended JSON.

mod bytes;
mod tree;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::target::Format;

/// The longest input that is made, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// Makes new inputs from known ones. Its seed decides all of them.
pub struct Mutator {
    format: Format,
    random: SmallRng,
    inputs: Vec<Vec<u8>>,
    words: tree::Words,
}

impl Mutator {
    /// A mutator of these inputs.
    pub fn new(format: Format, inputs: Vec<Vec<u8>>, seed: u64) -> Mutator {
        let words = match format {
            Format::Json => tree::Words::collect(&inputs),
            Format::Bytes => tree::Words::default(),
        };
        Mutator {
            format,
            random: SmallRng::seed_from_u64(seed),
            inputs,
            words,
        }
    }

    pub fn input(&mut self) -> Vec<u8> {
        let pick = self.random.random_range(0..self.inputs.len().max(1));
        let mut input = self.inputs.get(pick).cloned().unwrap_or_default();
        self.change(&mut input);
        input
    }

    /// Changes an input a few times.
    pub fn change(&mut self, input: &mut Vec<u8>) {
        let changes = 1 << self.random.random_range(0..4u32);
        for _ in 0..changes {
            let by_tree = matches!(self.format, Format::Json) && self.random.random_bool(0.97);
            let changed = by_tree
                .then(|| tree::change(input, &self.words, &mut self.random))
                .flatten();
            match changed {
                Some(changed) => *input = changed,
                None => bytes::change(input, &self.inputs, &mut self.random),
            }
        }
        input.truncate(BYTES_MAX);
    }
}
