//! A target, and how it is run on an input.

use std::time::{Duration, Instant};

use crate::panics;

/// Structure of the inputs, which decides how they are mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Bytes,
    /// A value in extended JSON.
    Json,
}

/// Something that takes any bytes.
pub struct Target {
    pub name: &'static str,
    /// A description of the code that it tests.
    pub about: &'static str,
    pub format: Format,
    /// Inputs that the code makes, besides those of the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Runs it on an input. It panics if something is wrong.
    pub run: fn(&[u8]),
    /// The most bytes of memory that an input may take at a time, on its thread.
    pub memory_bytes: u64,
}

/// The longest time that one input may take. Builds for tests are slow.
const TIME_MAX: Duration = Duration::from_secs(10);

impl Target {
    /// Runs it on an input.
    ///
    /// # Panics
    /// If something is wrong: a panic, also one that was contained, or too much time or memory.
    pub fn check(&self, input: &[u8]) {
        let began = Instant::now();
        let used = allocation_counter::measure(|| (self.run)(input));
        let took = began.elapsed();
        assert!(!panics::were_met(), "{}: a panic was contained", self.name);
        assert!(took < TIME_MAX, "{}: {took:?}", self.name);
        assert!(
            used.bytes_max <= self.memory_bytes,
            "{}: {} bytes of memory for {} bytes of input",
            self.name,
            used.bytes_max,
            input.len()
        );
    }
}
