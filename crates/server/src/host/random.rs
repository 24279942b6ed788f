//! Random identifiers. They are no secrets: those are made by `frond_auth`.

/// A new UUID, version 4 (random).
pub fn uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_differ_and_say_that_they_are_random() {
        let (first, second) = (uuid(), uuid());
        assert_ne!(first, second);
        assert_eq!((first[6] >> 4, first[8] >> 6), (4, 2));
    }
}
