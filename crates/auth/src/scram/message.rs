//! The messages of a conversation.

use super::ScramError;

/// A longer message is refused: names, nonces and proofs are short.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// The fewest characters of a nonce; MongoDB requires as many.
const NONCE_CHARS_MIN: usize = 4;

const BAD_NONCE: ScramError = ScramError::Message("the nonce is missing or not printable");

/// The client's first message.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientFirst {
    /// The name of the user, without escapes.
    pub user: String,
    /// `gs2-header`, which the final message repeats.
    pub(super) header: String,
    /// `client-first-message-bare`
    pub(super) bare: String,
    pub(super) nonce: String,
}

impl ClientFirst {
    /// Reads it.
    ///
    /// # Errors
    /// If it is not as RFC 5802 has it, asks for channel binding or a mandatory extension, or wants to act for another
    /// user.
    pub fn parse(payload: &[u8]) -> Result<ClientFirst, ScramError> {
        let message = text(payload)?;
        let mut parts = message.splitn(3, ',');
        let binding = parts.next().unwrap_or_default();
        let (Some(authzid), Some(bare)) = (parts.next(), parts.next()) else {
            return Err(ScramError::Message("the first message has too few fields"));
        };
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => {
                return Err(ScramError::Message(
                    "the server does not support channel binding",
                ));
            }
            _ => {
                return Err(ScramError::Message(
                    "the first message begins with an unknown flag",
                ));
            }
        }
        let acts_for = match authzid {
            "" => None,
            _ => {
                let encoded = authzid.strip_prefix("a=");
                let name = encoded.and_then(unescape);
                Some(name.ok_or(ScramError::Message(
                    "the authorization identity is malformed",
                ))?)
            }
        };
        if bare.starts_with("m=") {
            return Err(ScramError::Message(
                "mandatory extensions are not supported",
            ));
        }
        // Fields after the nonce are extensions, which may be ignored.
        let mut fields = bare.split(',');
        let user = fields.next().and_then(|field| field.strip_prefix("n="));
        let user = user.and_then(unescape).filter(|user| !user.is_empty());
        let user = user.ok_or(ScramError::Message("the name of the user is malformed"))?;
        if acts_for.is_some_and(|other| other != user) {
            return Err(ScramError::Message(
                "the authorization identity is not the user",
            ));
        }
        let nonce = nonce(fields.next())?;
        let header = message.get(..message.len() - bare.len());
        Ok(ClientFirst {
            header: header.unwrap_or_default().to_owned(),
            bare: bare.to_owned(),
            nonce: nonce.to_owned(),
            user,
        })
    }
}

impl std::fmt::Debug for ClientFirst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientFirst")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The server's first message.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerFirst<'a> {
    /// The nonce of both sides.
    pub nonce: &'a str,
    /// The salt, in base64.
    pub salt: &'a str,
    pub iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<ServerFirst<'a>, ScramError> {
        let message = text(payload)?;
        let mut fields = message.split(',');
        let nonce = nonce(fields.next())?;
        let salt = fields.next().and_then(|field| field.strip_prefix("s="));
        let count = fields.next().and_then(|field| field.strip_prefix("i="));
        Ok(ServerFirst {
            nonce,
            salt: salt.ok_or(ScramError::Message("the salt is missing"))?,
            iterations: count
                .and_then(|count| count.parse().ok())
                .ok_or(ScramError::Message("the iteration count is malformed"))?,
        })
    }
}

/// The client's final message.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientFinal<'a> {
    /// `client-final-message-without-proof`
    pub without_proof: &'a str,
    /// The header and the channel binding, in base64.
    pub binding: &'a str,
    /// The nonce of both sides.
    pub nonce: &'a str,
    /// The proof, in base64.
    pub proof: &'a str,
}

impl<'a> ClientFinal<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<ClientFinal<'a>, ScramError> {
        let message = text(payload)?;
        let (without_proof, proof) = message
            .rsplit_once(',')
            .and_then(|(rest, proof)| Some((rest, proof.strip_prefix("p=")?)))
            .ok_or(ScramError::Message("the proof is missing"))?;
        let mut fields = without_proof.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c="));
        Ok(ClientFinal {
            without_proof,
            binding: binding.ok_or(ScramError::Message("the channel binding is missing"))?,
            nonce: nonce(fields.next())?,
            proof,
        })
    }
}

/// The signature in the server's final message, in base64.
pub fn server_final(payload: &[u8]) -> Result<&str, ScramError> {
    let message = text(payload)?;
    match message.split(',').next().and_then(|v| v.strip_prefix("v=")) {
        Some(signature) => Ok(signature),
        None => Err(ScramError::Message("the server's signature is missing")),
    }
}

fn text(payload: &[u8]) -> Result<&str, ScramError> {
    if payload.len() > MESSAGE_BYTES_MAX {
        return Err(ScramError::Message("the message is too long"));
    }
    std::str::from_utf8(payload).map_err(|_| ScramError::Message("the message is not UTF-8"))
}

fn nonce(field: Option<&str>) -> Result<&str, ScramError> {
    field
        .and_then(|field| field.strip_prefix("r="))
        .filter(|nonce| {
            nonce.len() >= NONCE_CHARS_MIN && nonce.bytes().all(|byte| byte.is_ascii_graphic())
        })
        .ok_or(BAD_NONCE)
}

/// A name for a message: `=` and `,` are escaped.
pub fn escape(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// The name in a message. None if it has an escape that RFC 5802 does not know.
pub fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, escaped)) = rest.split_once('=') {
        out.push_str(before);
        let (code, after) = escaped.split_at_checked(2)?;
        out.push(match code {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}
