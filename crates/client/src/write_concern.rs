//! Write concerns.

use frond_bson::{DocBuf, doc};

/// The condition under which a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteConcern {
    /// False is w: 0, nothing is answered. A system that always answers may do so.
    pub acknowledged: bool,
    /// True is j: true, the answer comes after the journal is on disk.
    pub journal: bool,
    /// True is w: "majority".
    pub majority: bool,
}

impl WriteConcern {
    /// Acknowledged and not journaled.
    pub const ACKNOWLEDGED: WriteConcern = WriteConcern {
        acknowledged: true,
        journal: false,
        majority: false,
    };

    /// The document that goes into a command.
    #[must_use]
    pub fn to_document(self) -> DocBuf {
        let mut concern = if self.majority {
            doc! { "w": "majority" }
        } else {
            doc! { "w": i32::from(self.acknowledged) }
        };
        if self.journal {
            concern.push("j", true);
        }
        concern
    }
}
