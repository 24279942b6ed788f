//! Parts of pieces of the log.

use super::group::{HEADER_BYTES, Header};

/// The groups of a piece from the one on that begins at a position: what a restore takes of a piece whose beginning it has already.
/// `None` if no group begins there, or if the bytes before it are no groups.
pub fn groups_after(mut groups: &[u8], position: u64) -> Option<&[u8]> {
    loop {
        let header = Header::decode(groups)?;
        if header.position >= position {
            return (header.position == position).then_some(groups);
        }
        groups = groups.get(HEADER_BYTES + header.stored_bytes as usize..)?;
    }
}
