//! `$changeStreamSplitLargeEvent`: large events in several fragments.

use std::collections::VecDeque;

use frond_bson::{DocBuf, doc};
use frond_error::ErrorCode;

use frond_oplog::token::Token;
use frond_storage::error::{Error, Result, command};

/// The largest event that fits into a reply, with the resume token of the batch beside it.
pub const EVENT_BYTES_MAX: usize = (16 << 20) + (8 << 10);

/// Splits an event into fragments, as MongoDB does: its fields by their size, then by their name, as many in each fragment
/// as fit. So an event is always split at the same places.
///
/// # Errors
/// 7182500 if a field does not fit into a fragment, 7182502 if there are no fields.
pub fn split(event: &DocBuf, token: &Token) -> Result<VecDeque<(DocBuf, Token)>> {
    let mut fields: Vec<_> = event
        .iter_raw()
        .filter(|field| field.name() != "_id")
        .collect();
    if fields.is_empty() {
        return Err(command(
            ErrorCode::Location(7_182_502),
            "Cannot split an empty event or an event containing solely '_id' field",
        ));
    }
    fields.sort_by(|a, b| {
        let size = |field: &frond_bson::RawElement<'_>| field.as_bytes().len();
        size(a).cmp(&size(b)).then_with(|| a.name().cmp(b.name()))
    });
    // The token of a fragment is in the batch twice: in the fragment, and beside it.
    let room = EVENT_BYTES_MAX.saturating_sub(token.to_doc().len_bytes());
    // The size of a fragment without fields. All have the same, since their numbers have the same type.
    let mut parts: Vec<(usize, Vec<_>)> = Vec::new();
    for field in fields {
        let bytes = field.as_bytes().len();
        match parts.last_mut() {
            Some((size, part)) if *size + bytes <= room => {
                *size += bytes;
                part.push(field);
            }
            _ => {
                let head = head(&token.of_fragment(parts.len() as u32), 1, 1);
                parts.push((head.len_bytes() + bytes, vec![field]));
            }
        }
    }
    let of = parts.len() as i32;
    let mut fragments = VecDeque::new();
    for (number, (size, part)) in parts.into_iter().enumerate() {
        if size > room {
            return Err(command(
                ErrorCode::Location(7_182_500),
                format!(
                    "Splitting change event failed: fragment size {size} is greater than maximum allowed fragment size {room}"
                ),
            ));
        }
        let token = token.of_fragment(number as u32);
        let mut fragment = head(&token, number as i32 + 1, of);
        part.iter().for_each(|field| fragment.push_raw(field));
        fragments.push_back((fragment, token));
    }
    Ok(fragments)
}

fn head(token: &Token, number: i32, of: i32) -> DocBuf {
    doc! {"_id": token.to_doc(), "splitEvent": {"fragment": number, "of": of}}
}

/// The error of an event that does not fit into a reply.
pub fn too_large(bytes: usize) -> Error {
    command(
        ErrorCode::BSONObjectTooLarge,
        format!(
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {EVENT_BYTES_MAX}(16MB); the change \
             stream's pipeline can leave fields out, or end with $changeStreamSplitLargeEvent"
        ),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_split_at_its_fields() {
        let text = "x".repeat(9 << 20);
        let token = Token::of_event(1 << 32, 0, Some([1; 16]), "update", None);
        let event = doc! {
            "_id": token.to_doc(),
            "fullDocument": text.as_str(),
            "operationType": "update",
            "fullDocumentBeforeChange": text.as_str(),
            "a": 1,
        };
        let fragments = split(&event, &token).unwrap();
        let names = |doc: &DocBuf| {
            let names: Vec<String> = doc.iter().map(|(name, _)| name.to_owned()).collect();
            names.join(" ")
        };
        let shown: Vec<String> = fragments.iter().map(|(doc, _)| names(doc)).collect();
        assert_eq!(
            shown,
            [
                "_id splitEvent a operationType fullDocument",
                "_id splitEvent fullDocumentBeforeChange"
            ]
        );
        for (number, (doc, token)) in fragments.iter().enumerate() {
            let of = doc! {"fragment": number as i32 + 1, "of": 2};
            assert_eq!(doc.get_doc("splitEvent").unwrap(), &*of);
            assert_eq!(token.fragment, Some(number as u32));
            assert_eq!(doc.get_doc("_id").unwrap(), &*token.to_doc());
            assert!(doc.len_bytes() <= EVENT_BYTES_MAX);
        }
        let text = "x".repeat(17 << 20);
        let event = doc! {"_id": token.to_doc(), "fullDocument": text.as_str()};
        assert_eq!(
            split(&event, &token).unwrap_err().code(),
            ErrorCode::Location(7_182_500)
        );
        // The definition of a view can be as large as a document, and is in the token in hexadecimal.
        let view = doc! {"pipeline": &text[..9 << 20]};
        let identity = Some(("operationDescription", &*view));
        let large = Token::of_event(1 << 32, 0, Some([1; 16]), "create", identity);
        let event = doc! {"_id": large.to_doc(), "operationDescription": view};
        assert_eq!(
            split(&event, &large).unwrap_err().code(),
            ErrorCode::Location(7_182_500)
        );
        let event = doc! {"_id": token.to_doc()};
        assert_eq!(
            split(&event, &token).unwrap_err().code(),
            ErrorCode::Location(7_182_502)
        );
    }
}
