//! Documents that events are shown with: as they were before a change, after it, or as they are now.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use super::event::{Change, Event, Subject};
use super::spec::{BeforeChange, FullDocument, Spec};
use crate::find::FindRequest;
use crate::store::DocumentStore;
use frond_oplog::diff;
use frond_oplog::entry::Kind;
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command};
use frond_storage::namespace::Namespace;

/// Adds the documents to an event that its stream asks for. Returns whether one was looked up: that may not be durable.
///
/// # Errors
/// `NoMatchingDocument` (47) if a document is required and not there; errors of reading it.
pub fn add(
    event: &mut Event,
    change: &Change<'_>,
    subject: &Subject<'_>,
    spec: &Spec,
    store: &DocumentStore,
    context: &OpContext,
) -> Result<bool> {
    let kind = change.entry.kind();
    if subject.is_view || !matches!(kind, Kind::Update | Kind::Replace | Kind::Delete) {
        return Ok(false);
    }
    let shows_before = spec.before_change != BeforeChange::Off;
    let is_made = matches!(
        spec.full_document,
        FullDocument::WhenAvailable | FullDocument::Required
    );
    let is_update = kind == Kind::Update;
    let before = if shows_before || (is_made && is_update) {
        pre_image(change, store)?
    } else {
        None
    };
    if before.is_none() && spec.before_change == BeforeChange::Required {
        return Err(not_found(
            "a pre-image for all update, delete and replace events",
            "pre-image",
            event,
        ));
    }
    if is_update && spec.full_document != FullDocument::Default {
        let after = match (spec.full_document, &before) {
            (FullDocument::UpdateLookup, _) => look_up(change, subject, spec, store, context)?,
            (_, Some(before)) => Some(diff::apply(change.entry.o(), before)?),
            (_, None) => None,
        };
        if after.is_none() && spec.full_document == FullDocument::Required {
            return Err(not_found(
                "a post-image for all update events",
                "post-image",
                event,
            ));
        }
        push(&mut event.doc, "fullDocument", after.as_deref());
    }
    if shows_before {
        push(
            &mut event.doc,
            "fullDocumentBeforeChange",
            before.as_deref(),
        );
    }
    Ok(is_update && spec.full_document == FullDocument::UpdateLookup)
}

fn push(out: &mut DocBuf, name: &str, found: Option<&Doc>) {
    match found {
        Some(found) => out.push(name, found),
        None => out.push(name, Value::Null),
    }
}

/// The document before the change, if it is stored.
fn pre_image(change: &Change<'_>, store: &DocumentStore) -> Result<Option<DocBuf>> {
    let Some(uuid) = change.entry.uuid().filter(|_| change.entry.has_pre_image()) else {
        return Ok(None);
    };
    let (time, position) = change.stored;
    store.oplog().pre_image(time, position, uuid)
}

/// The document as it is now, if there is one with this `_id`.
fn look_up(
    change: &Change<'_>,
    subject: &Subject<'_>,
    spec: &Spec,
    store: &DocumentStore,
    context: &OpContext,
) -> Result<Option<DocBuf>> {
    let (Some(id), Some(coll)) = (change.entry.id(), subject.coll) else {
        return Ok(None);
    };
    let ns = Namespace::new(subject.db, coll)?;
    if spec.match_uuid_for_look_up && store.uuid_of(&ns).as_ref() != change.entry.uuid() {
        return Ok(None);
    }
    let filter = doc! {"_id": {"$eq": id}};
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    store.find_in_collection(&ns, &request, context)?.next()
}

fn not_found(what: &str, image: &str, event: &Event) -> Error {
    let mut shown = DocBuf::new();
    for name in ["_id", "operationType", "clusterTime", "ns", "documentKey"] {
        if let Some(field) = event.doc.get_raw(name) {
            shown.push_raw(&field);
        }
    }
    command(
        ErrorCode::NoMatchingDocument,
        format!(
            "Change stream was configured to require {what}, but the {image} was not found for event: {}",
            frond_bson::extjson::to_relaxed(&shown)
        ),
    )
}
