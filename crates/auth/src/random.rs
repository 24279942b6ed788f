//! Random bytes for secrets, from the operating system.

use std::fmt;

use rand::TryRng;
use rand::rngs::SysRng;

/// The operating system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operating system gives no random bytes")
    }
}

impl std::error::Error for NoRandomness {}

/// Fills an array with unpredictable random bytes.
///
/// # Errors
/// If the operating system gives none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_equal() {
        let first: [u8; 24] = random_bytes().unwrap_or_default();
        let second: [u8; 24] = random_bytes().unwrap_or_default();
        assert_ne!(first, second);
        assert_ne!(first, [0; 24]);
    }
}
