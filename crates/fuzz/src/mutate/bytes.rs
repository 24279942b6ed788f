//! Changes of bytes.

use rand::RngExt;
use rand::rngs::SmallRng;

/// Numbers at which code often goes wrong.
const NUMBERS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// Changes an input in one place.
pub fn change(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut SmallRng) {
    if input.is_empty() {
        input.push(random.random());
        return;
    }
    let at = random.random_range(0..input.len());
    match random.random_range(0..10) {
        0 | 1 => input[at] ^= 1 << random.random_range(0..8),
        2 => input[at] = random.random(),
        3 => {
            input[at] = input[at]
                .wrapping_add(random.random_range(0..9) as u8)
                .wrapping_sub(4)
        }
        4 | 5 => number(input, at, random),
        6 => {
            let end = (at + random.random_range(1..=16)).min(input.len());
            input.drain(at..end);
        }
        7 => {
            // A part of the input again, somewhere else.
            let end = (at + random.random_range(1..=64)).min(input.len());
            let part = input[at..end].to_vec();
            let to = random.random_range(0..=input.len());
            input.splice(to..to, part);
        }
        8 => {
            // The end of another input.
            if let Some(other) = others.get(random.random_range(0..others.len().max(1))) {
                let from = random.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
        _ => input.truncate(at),
    }
}

/// Writes a number of one to eight bytes at `at`: an interesting one, or one near what is there.
fn number(input: &mut [u8], at: usize, random: &mut SmallRng) {
    let bytes = 1usize << random.random_range(0..4u32);
    let Some(place) = input.get_mut(at..at + bytes) else {
        return;
    };
    let mut old = [0; 8];
    old[..bytes].copy_from_slice(place);
    let new = if random.random_bool(0.5) {
        NUMBERS[random.random_range(0..NUMBERS.len())]
    } else {
        i64::from_le_bytes(old).wrapping_add(random.random_range(-16..=16))
    };
    place.copy_from_slice(&new.to_le_bytes()[..bytes]);
}
