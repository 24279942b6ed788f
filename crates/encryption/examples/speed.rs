//! Measures sealing and opening of pages and of short frames.

use std::hint::black_box;
use std::time::Instant;

use frond_encryption::{Cipher, Key, Purpose, StoreKeys};

fn main() -> Result<(), frond_encryption::Error> {
    let keys = StoreKeys::single(Key::random()?);
    let cipher = Cipher::new(&keys, Purpose::Data)?;
    for (bytes, rounds) in [(100, 1_000_000_u32), (4 << 10, 200_000), (8 << 10, 100_000)] {
        let mut data = vec![7; bytes];
        let began = Instant::now();
        for _ in 0..rounds {
            black_box(cipher.seal(b"a place of a block in a file", &mut data));
        }
        let sealed = began.elapsed() / rounds;
        let content = data.clone();
        let seal = cipher.seal(b"a place of a block in a file", &mut data);
        let stored = data.clone();
        let began = Instant::now();
        for _ in 0..rounds {
            data.copy_from_slice(&stored);
            cipher.open(&seal, b"a place of a block in a file", &mut data)?;
        }
        let opened = began.elapsed() / rounds;
        assert_eq!(data, content);
        println!("{bytes} bytes: sealed in {sealed:?}, copied and opened in {opened:?}");
    }
    Ok(())
}
