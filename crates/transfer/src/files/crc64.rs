//! The CRC-64 of ECMA-182, reflected, which archives carry.

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

/// A checksum that grows.
#[derive(Clone, Copy, Debug)]
pub struct Crc64(u64);

impl Default for Crc64 {
    fn default() -> Self {
        Crc64(!0)
    }
}

impl Crc64 {
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let at = (self.0 as u8) ^ byte;
            self.0 = TABLE.get(usize::from(at)).copied().unwrap_or(0) ^ (self.0 >> 8);
        }
    }

    /// The checksum of all bytes.
    pub fn sum(self) -> u64 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        let mut crc = Crc64::default();
        assert_eq!(crc.sum(), 0);
        // The check value of CRC-64/XZ.
        crc.add(b"1234");
        crc.add(b"56789");
        assert_eq!(crc.sum(), 0x995D_C9BB_DF19_39FA);
    }
}
