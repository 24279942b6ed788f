//! The identity of a session: the client's UUID, and its user.

use std::fmt;
use std::hash::{Hash, Hasher};

use frond_auth::UserName;
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256};

/// The binary subtype of a UUID.
const SUBTYPE_UUID: u8 = 4;

/// The owner of a session: the digest of the user's name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionOwner([u8; 32]);

impl SessionOwner {
    /// The owner of the sessions of a user.
    pub fn for_user(user: &UserName) -> SessionOwner {
        // The name of a database has no dot.
        SessionOwner(Sha256::digest(format!("{}.{}", user.db, user.name)).into())
    }

    fn parse(bytes: &[u8]) -> Result<SessionOwner> {
        bytes.try_into().map(SessionOwner).map_err(|_| {
            Error::bad_value("BSON field 'uid' of a session must have the 32 bytes of a digest")
        })
    }

    /// The field `uid` of a pattern of sessions, if there is one.
    ///
    /// # Errors
    /// If it is no digest.
    pub fn of_field(doc: &Doc) -> Result<Option<SessionOwner>> {
        match doc.get("uid") {
            None => Ok(None),
            Some(Value::Binary { bytes, .. }) => SessionOwner::parse(bytes).map(Some),
            Some(other) => Err(Error::type_mismatch(format!(
                "BSON field 'LogicalSessionFromClient.uid' is the wrong type '{}', expected type 'binData'",
                other.type_name()
            ))),
        }
    }
}

impl fmt::Debug for SessionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&frond_bson::hex(&self.0))
    }
}

/// The identity of a session. With authorization on, the same UUID names a separate session for each user.
#[derive(Clone, Copy)]
pub struct SessionId {
    /// The key: the UUID, or a digest of the UUID and the owner.
    key: [u8; 16],
    id: [u8; 16],
    owner: Option<SessionOwner>,
}

impl SessionId {
    /// The session with a key that is stored. If it has an owner, the owner is not known.
    pub const fn of_key(key: [u8; 16]) -> SessionId {
        SessionId {
            key,
            id: key,
            owner: None,
        }
    }

    /// Reads an `lsid` or an element of `endSessions`: `{id: UUID}`, perhaps with the digest of the owner.
    pub fn parse(doc: &Doc) -> Result<SessionId> {
        let id = match doc.get("id") {
            Some(Value::Binary {
                subtype: SUBTYPE_UUID,
                bytes,
            }) => match bytes.try_into() {
                Ok(id) => SessionId::of_key(id),
                Err(_) => {
                    return Err(Error::new(
                        ErrorCode::InvalidUUID,
                        "uuid must be a 16-byte binary field with UUID (4) subtype",
                    ));
                }
            },
            Some(other) => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    format!(
                        "BSON field 'LogicalSessionFromClient.id' is the wrong type '{}', expected type 'binData'",
                        other.type_name()
                    ),
                ));
            }
            None => {
                return Err(Error::new(
                    ErrorCode::IDLFailedToParse,
                    "BSON field 'LogicalSessionFromClient.id' is missing but a required field",
                ));
            }
        };
        Ok(match SessionOwner::of_field(doc)? {
            Some(owner) => id.owned_by(owner),
            None => id,
        })
    }

    /// A random UUID (version 4).
    pub fn random() -> SessionId {
        let mut id: [u8; 16] = rand::random();
        id[6] = (id[6] & 0x0f) | 0x40;
        id[8] = (id[8] & 0x3f) | 0x80;
        SessionId::of_key(id)
    }

    /// The session with the same UUID of this user.
    #[must_use]
    pub fn owned_by(self, owner: SessionOwner) -> SessionId {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(self.id)
            .chain_update(owner.0)
            .finalize()
            .into();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        SessionId {
            key,
            id: self.id,
            owner: Some(owner),
        }
    }

    /// The anonymous session with the same UUID.
    #[must_use]
    pub fn of_nobody(self) -> SessionId {
        SessionId::of_key(self.id)
    }

    pub fn owner(self) -> Option<SessionOwner> {
        self.owner
    }

    /// The key of its stored records.
    pub fn key(self) -> [u8; 16] {
        self.key
    }

    /// The hexadecimal digits of the UUID.
    pub fn digits(self) -> String {
        frond_bson::hex(&self.id)
    }

    /// `{id: UUID}`, as a client names it.
    pub fn to_client_doc(self) -> DocBuf {
        doc! {"id": Value::Binary { subtype: SUBTYPE_UUID, bytes: &self.id }}
    }

    /// `{id: UUID, uid: digest}`; without an owner only the UUID.
    pub fn to_doc(self) -> DocBuf {
        let mut out = self.to_client_doc();
        if let Some(owner) = &self.owner {
            let (subtype, bytes) = (0, owner.0.as_slice());
            out.push("uid", Value::Binary { subtype, bytes });
        }
        out
    }
}

impl PartialEq for SessionId {
    fn eq(&self, other: &SessionId) -> bool {
        self.key == other.key
    }
}

impl Eq for SessionId {}

impl PartialOrd for SessionId {
    fn partial_cmp(&self, other: &SessionId) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SessionId {
    fn cmp(&self, other: &SessionId) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Hash for SessionId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.digits())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn ids_are_read() {
        let id = SessionId::random();
        assert_eq!(SessionId::parse(&id.to_doc()).unwrap(), id);
        assert_ne!(SessionId::random(), id);
        let cases = [
            (doc! {}, 40414),
            (doc! {"id": 1}, 14),
            (
                doc! {"id": Value::Binary { subtype: 4, bytes: &[1; 15] }},
                207,
            ),
            (
                doc! {"id": Value::Binary { subtype: 0, bytes: &[1; 16] }},
                14,
            ),
        ];
        for (doc, code) in cases {
            assert_eq!(
                SessionId::parse(&doc).unwrap_err().code().code(),
                code,
                "{doc:?}"
            );
        }
    }

    #[test]
    fn each_user_has_sessions_of_its_own() {
        let id = SessionId::random();
        let ann = SessionOwner::for_user(&UserName::new("ann", "admin"));
        let bob = SessionOwner::for_user(&UserName::new("bob", "admin"));
        assert_ne!(ann, SessionOwner::for_user(&UserName::new("ann", "test")));
        let (hers, his) = (id.owned_by(ann), id.owned_by(bob));
        assert!(hers != id && hers != his && hers.key() != his.key());
        assert_eq!(hers.owned_by(bob), his);
        assert_eq!(hers.of_nobody(), id);
        assert_eq!(SessionId::parse(&hers.to_doc()).unwrap(), hers);
        assert_eq!(hers.to_client_doc(), id.to_doc());
        assert_eq!(hers.digits(), id.digits());
        let mut wrong = id.to_doc();
        wrong.push(
            "uid",
            Value::Binary {
                subtype: 0,
                bytes: &[1; 20],
            },
        );
        assert_eq!(SessionId::parse(&wrong).unwrap_err().code().code(), 2);
    }
}
