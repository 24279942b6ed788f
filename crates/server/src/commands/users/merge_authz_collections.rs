//! `_mergeAuthzCollections`: how `mongorestore` restores users and roles.

use std::collections::BTreeSet;

use frond_auth::UserName;
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};
use frond_store::{FindRequest, Namespace};

use crate::access::change::Changing;
use crate::access::stored::{self, Place, ROLES, USERS};
use crate::audit::Audited;
use crate::authorization::{Action, ActionSet, Needs, Place as On, Requested, split};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::access_fields::CHANGES;
use crate::context::Context;
use crate::observability::log::{Component, Severity};

/// The fields that name such collections, and what is in them.
const SOURCES: [(&str, &Place); 2] = [
    ("tempUsersCollection", &USERS),
    ("tempRolesCollection", &ROLES),
];

pub struct MergeAuthzCollections;

const SPEC: Spec = Spec {
    names: &["_mergeAuthzCollections"],
    audits: Audited::Itself,
    doc: "Copies users and roles out of collections into which mongorestore has put them.",
    fields: &["db", "drop", "tempRolesCollection", "tempUsersCollection"],
    admin_only: true,
    ..CHANGES
};

impl Command for MergeAuthzCollections {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let args = request.args();
        let mut actions = ActionSet::from_actions(&[
            Action::CreateUser,
            Action::CreateRole,
            Action::GrantRole,
            Action::RevokeRole,
        ]);
        if args.bool("drop")?.unwrap_or(false) {
            actions = actions.with(Action::DropUser).with(Action::DropRole);
        }
        let mut needs = Needs::on(On::AnyNormal, actions);
        for (field, _) in SOURCES {
            if let Some(source) = args.str(field)?.filter(|source| !source.is_empty()) {
                let (db, collection) = split(source)?;
                needs = needs.and(Needs::on(On::collection(db, collection), Action::Find));
            }
        }
        Ok(needs)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let db = args.str("db")?.ok_or_else(|| args.missing("db"))?;
        let drops = args.bool("drop")?.unwrap_or(false);
        let mut sources = Vec::new();
        for (field, place) in SOURCES {
            if let Some(source) = args.str(field)?.filter(|source| !source.is_empty()) {
                sources.push((Namespace::parse(source)?, place));
            }
        }
        if sources.is_empty() {
            return Err(Error::bad_value(
                "Must provide at least one of \"tempUsersCollection\" and \"tempRolescollection\"",
            ));
        }
        let changing = cx.server.clients.access.change(cx.store(), &cx.limits)?;
        for (source, place) in sources {
            merge(cx, &changing, &source, place, db, drops)?;
        }
        Ok(DocBuf::new())
    }
}

/// Copies the users or the roles of one database, or of all. With `drops` those that are there already are replaced, and
/// those that are not in the source are removed at the end, so that there are always some who can log in.
fn merge(
    cx: &Context<'_>,
    changing: &Changing<'_>,
    source: &Namespace,
    place: &Place,
    db: &str,
    drops: bool,
) -> Result<()> {
    let filter = match db {
        "" => DocBuf::new(),
        db => doc! {"db": db},
    };
    let mut before = BTreeSet::new();
    if drops {
        for document in changing.stored().find(place, &filter, None)? {
            before.insert(name_of(place, &document)?);
        }
    }
    let request = FindRequest {
        filter: Some(&filter),
        ..FindRequest::default()
    };
    let mut documents = cx.server.store.find(source, &request, &cx.limits)?;
    while let Some(document) = documents.next()? {
        let name = name_of(place, &document)?;
        check(place, &document)?;
        let copied = if before.remove(&name) {
            changing.replace(place, &name, &document)
        } else {
            changing.insert(place, &name, &document)
        };
        // As in MongoDB: one that exists already, or cannot be stored, does not keep back the others.
        if let Err(failure) = copied {
            let key = place.key;
            let attributes = doc! {key: name.to_string(), "error": failure.message()};
            cx.server.log.line(
                Severity::Warning,
                Component::Access,
                20511,
                &cx.connection.name,
                "Could not copy a document during _mergeAuthzCollections command",
                &attributes,
            );
        }
    }
    for name in before {
        changing.remove(place, &place.named(&name))?;
    }
    Ok(())
}

fn name_of(place: &Place, document: &Doc) -> Result<UserName> {
    let text = |field: &str| match document.get(field) {
        Some(Value::String(text)) => Ok(text),
        None => Err(Error::new(
            frond_error::ErrorCode::NoSuchKey,
            format!("Missing expected field \"{field}\""),
        )),
        Some(other) => Err(Error::type_mismatch(format!(
            "\"{field}\" had the wrong type. Expected string, found {}",
            other.type_name()
        ))),
    };
    Ok(UserName::new(text(place.key)?, text("db")?))
}

/// Refuses a document that cannot be read as a user or as a role.
fn check(place: &Place, document: &Doc) -> Result<()> {
    match place.key {
        "user" => {
            stored::role_names(document)?;
            stored::restrictions(document)?;
        }
        _ => {
            stored::parse_role(document)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
