//! Identifiers of collections.

use frond_bson::Value;

/// Identifies a collection for its whole life, also when it is renamed.
pub type Uuid = [u8; 16];

/// Binary subtype of a UUID.
const SUBTYPE: u8 = 4;

/// A new UUID of version 4.
pub(super) fn random() -> Uuid {
    let mut uuid: Uuid = rand::random();
    // Version 4 (random), variant 1, by RFC 9562.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The UUID in documents.
pub(super) fn value(uuid: &Uuid) -> Value<'_> {
    Value::Binary {
        subtype: SUBTYPE,
        bytes: uuid,
    }
}
