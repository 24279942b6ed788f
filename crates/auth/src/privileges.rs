//! Privileges: actions on resources, and a set of them that is fast to ask.

use std::collections::HashMap;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::action::{Action, ActionSet};
use crate::resource::{Kind, Resource, Target, is_normal_database, kind};

/// Actions that are allowed on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privilege {
    pub resource: Resource,
    pub actions: ActionSet,
}

impl Privilege {
    /// Actions on a resource.
    pub fn new(resource: Resource, actions: impl Into<ActionSet>) -> Privilege {
        Privilege {
            resource,
            actions: actions.into(),
        }
    }

    /// Reads a privilege that a command names.
    ///
    /// # Errors
    /// `BadValue` (2) and others if it is none, or names actions that do not exist.
    pub fn parse(doc: &Doc) -> Result<Privilege> {
        let (privilege, unknown) = read(doc)?;
        if unknown.is_empty() {
            return Ok(privilege);
        }
        let many = if unknown.len() > 1 { "s" } else { "" };
        let names: Vec<_> = unknown.iter().map(|name| format!("'{name}'")).collect();
        Err(Error::bad_value(format!(
            "Unknown action type{many} in privilege set: {}",
            names.join(", ")
        )))
    }

    /// Reads a privilege of a stored role. Actions of other versions are left out: they grant nothing.
    ///
    /// # Errors
    /// If the document does not describe a privilege.
    pub fn parse_stored(doc: &Doc) -> Result<Privilege> {
        Ok(read(doc)?.0)
    }

    /// The document that describes the privilege.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = doc! {"resource": &self.resource.to_doc()};
        doc.push_array("actions", |actions| {
            for name in self.actions.names() {
                actions.push(name);
            }
        });
        doc
    }
}

/// A privilege, and the names in it that are no actions.
fn read(doc: &Doc) -> Result<(Privilege, Vec<&str>)> {
    let missing = |field: &str| {
        Error::new(
            ErrorCode::IDLFailedToParse,
            format!("BSON field 'privilege.{field}' is missing but a required field"),
        )
    };
    let wrong = |field: &str, value: &Value<'_>, wanted: &str| {
        Error::type_mismatch(format!(
            "BSON field 'privilege.{field}' is the wrong type '{}', expected type '{wanted}'",
            value.type_name()
        ))
    };
    let resource = match doc.get("resource") {
        Some(Value::Document(resource)) => Resource::parse(resource)?,
        Some(other) => return Err(wrong("resource", &other, "object")),
        None => return Err(missing("resource")),
    };
    let names = match doc.get("actions") {
        Some(Value::Array(names)) => names,
        Some(other) => return Err(wrong("actions", &other, "array")),
        None => return Err(missing("actions")),
    };
    if names.is_empty() {
        return Err(Error::bad_value(
            "'actions' field of privilege resource must not be empty",
        ));
    }
    let mut actions = ActionSet::new();
    let mut unknown = Vec::new();
    for (at, value) in names.values().enumerate() {
        let Value::String(name) = value else {
            return Err(wrong(&format!("actions.{at}"), &value, "string"));
        };
        match Action::parse(name) {
            Some(action) => actions.insert(action),
            None => unknown.push(name),
        }
    }
    Ok((Privilege { resource, actions }, unknown))
}

/// Privileges, compiled so that a question costs a few look-ups in hash tables.
#[derive(Clone, Debug, Default)]
pub struct Privileges {
    any_resource: ActionSet,
    any_normal: ActionSet,
    cluster: ActionSet,
    databases: HashMap<String, ActionSet>,
    in_any_database: HashMap<String, ActionSet>,
    collections: HashMap<String, HashMap<String, ActionSet>>,
    /// By database and time series; an empty name stands for all.
    buckets: HashMap<String, HashMap<String, ActionSet>>,
    /// One for each resource.
    list: Vec<Privilege>,
}

impl Privileges {
    /// Compiles privileges. Those of the same resource are united.
    pub fn new(privileges: impl IntoIterator<Item = Privilege>) -> Privileges {
        let mut compiled = Privileges::default();
        let list = merge(privileges);
        for privilege in &list {
            compiled.add(privilege);
        }
        compiled.list = list;
        compiled
    }

    fn add(&mut self, privilege: &Privilege) {
        let actions = match &privilege.resource {
            Resource::AnyResource => &mut self.any_resource,
            Resource::AnyNormal => &mut self.any_normal,
            Resource::Cluster => &mut self.cluster,
            Resource::Database(db) => self.databases.entry(db.clone()).or_default(),
            Resource::CollectionInAny(name) => {
                self.in_any_database.entry(name.clone()).or_default()
            }
            Resource::Collection(db, name) => {
                let of_db = self.collections.entry(db.clone()).or_default();
                of_db.entry(name.clone()).or_default()
            }
            Resource::SystemBuckets { db, collection } => {
                let of_db = self.buckets.entry(db.clone()).or_default();
                of_db.entry(collection.clone()).or_default()
            }
        };
        *actions = actions.union(privilege.actions);
    }

    /// Whether an action is allowed on a target.
    pub fn allows(&self, target: &Target<'_>, action: Action) -> bool {
        self.actions_on(target).contains(action)
    }

    /// Every action that is allowed on a target, by all privileges together.
    pub fn actions_on(&self, target: &Target<'_>) -> ActionSet {
        let mut actions = self.any_resource;
        let mut add = |more: Option<&ActionSet>| {
            actions = actions.union(more.copied().unwrap_or_default());
        };
        match *target {
            Target::AnyResource => {}
            Target::AnyNormal => add(Some(&self.any_normal)),
            Target::Cluster => add(Some(&self.cluster)),
            Target::Database(db) => {
                add(is_normal_database(db).then_some(&self.any_normal));
                add(self.databases.get(db));
            }
            Target::Collection(db, collection) => {
                match kind(db, collection) {
                    Kind::System => {}
                    Kind::Normal => {
                        add(is_normal_database(db).then_some(&self.any_normal));
                        add(self.databases.get(db));
                    }
                    Kind::Buckets(series) => {
                        for of_db in ["", db].iter().filter_map(|db| self.buckets.get(*db)) {
                            add(of_db.get(""));
                            add(of_db.get(series));
                        }
                    }
                }
                add(self.in_any_database.get(collection));
                add(self.collections.get(db).and_then(|it| it.get(collection)));
            }
        }
        actions
    }

    /// Whether there is any privilege on a database or on something in it.
    pub fn allows_any_on(&self, db: &str) -> bool {
        let has = |actions: Option<&ActionSet>| actions.is_some_and(|it| !it.is_empty());
        has(Some(&self.any_resource))
            || has(is_normal_database(db).then_some(&self.any_normal))
            || has(self.databases.get(db))
            || self.in_any_database.values().any(|it| !it.is_empty())
            || self.collections.get(db).is_some_and(has_one)
            || self.buckets.get("").is_some_and(has_one)
            || self.buckets.get(db).is_some_and(has_one)
    }

    /// The privileges, one for each resource.
    pub fn iter(&self) -> impl Iterator<Item = &Privilege> {
        self.list.iter()
    }
}

/// Merges privileges on the same resource. Resources keep the order of their first privilege.
pub fn merge(privileges: impl IntoIterator<Item = Privilege>) -> Vec<Privilege> {
    let mut merged: Vec<Privilege> = Vec::new();
    let mut places: HashMap<Resource, usize> = HashMap::new();
    for privilege in privileges {
        match places
            .get(&privilege.resource)
            .and_then(|at| merged.get_mut(*at))
        {
            Some(known) => known.actions = known.actions.union(privilege.actions),
            None => {
                places.insert(privilege.resource.clone(), merged.len());
                merged.push(privilege);
            }
        }
    }
    merged
}

fn has_one(actions: &HashMap<String, ActionSet>) -> bool {
    actions.values().any(|it| !it.is_empty())
}

impl FromIterator<Privilege> for Privileges {
    fn from_iter<I: IntoIterator<Item = Privilege>>(privileges: I) -> Privileges {
        Privileges::new(privileges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(db: &str, collection: &str) -> Resource {
        Resource::SystemBuckets {
            db: db.into(),
            collection: collection.into(),
        }
    }

    fn resources() -> Vec<Resource> {
        let mut all = vec![
            Resource::AnyResource,
            Resource::AnyNormal,
            Resource::Cluster,
        ];
        for db in ["a", "b", "admin", "local", "config"] {
            all.push(Resource::Database(db.into()));
            all.push(buckets(db, ""));
            for name in ["c", "system.js", "oplog.rs", "system.buckets.c"] {
                all.push(Resource::Collection(db.into(), name.into()));
            }
            all.push(buckets(db, "c"));
        }
        for name in ["c", "system.js", "oplog.rs", "system.buckets.c"] {
            all.push(Resource::CollectionInAny(name.into()));
        }
        all.extend([buckets("", ""), buckets("", "c")]);
        all
    }

    fn targets() -> Vec<Target<'static>> {
        let mut all = vec![Target::Cluster, Target::AnyNormal, Target::AnyResource];
        for db in ["a", "b", "admin", "local", "config", "$external"] {
            all.push(Target::Database(db));
            for name in [
                "c",
                "d",
                "system.js",
                "system.users",
                "oplog.rs",
                "replset.election",
                "system.buckets.c",
                "system.buckets.d",
                "system.buckets.",
            ] {
                all.push(Target::Collection(db, name));
            }
        }
        all
    }

    #[test]
    fn compiled_privileges_answer_as_each_resource_does() {
        let all = resources();
        for resource in &all {
            let one = Privileges::new([Privilege::new(
                resource.clone(),
                ActionSet::from_actions(&[Action::Find]),
            )]);
            for target in targets() {
                let covers = resource.covers(&target);
                assert_eq!(
                    one.allows(&target, Action::Find),
                    covers,
                    "{resource:?} {target:?}"
                );
                assert!(!one.allows(&target, Action::Insert));
            }
        }
        // Together, each with an action of its own.
        let each: Vec<Privilege> = all
            .iter()
            .zip(Action::ALL.iter().filter(|it| **it != Action::AnyAction))
            .map(|(resource, action)| {
                Privilege::new(resource.clone(), ActionSet::from_actions(&[*action]))
            })
            .collect();
        assert_eq!(each.len(), all.len());
        let together = Privileges::new(each.clone());
        for target in targets() {
            let expected = each
                .iter()
                .filter(|it| it.resource.covers(&target))
                .fold(ActionSet::new(), |sum, it| sum.union(it.actions));
            assert_eq!(together.actions_on(&target), expected, "{target:?}");
        }
    }

    #[test]
    fn privileges_of_one_resource_are_united() {
        let on_a = || Resource::Database("a".into());
        let all = Privileges::new([
            Privilege::new(on_a(), ActionSet::from_actions(&[Action::Find])),
            Privilege::new(
                Resource::Cluster,
                ActionSet::from_actions(&[Action::Inprog]),
            ),
            Privilege::new(on_a(), ActionSet::from_actions(&[Action::Insert])),
        ]);
        let list: Vec<&Privilege> = all.iter().collect();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].actions.names(), ["find", "insert"]);
        assert!(all.allows(&Target::Collection("a", "c"), Action::Insert));
    }

    #[test]
    fn a_database_is_seen_with_any_privilege_in_it() {
        let find = ActionSet::from_actions(&[Action::Find]);
        for (resource, seen) in [
            (Resource::AnyResource, vec!["a", "b", "local", "config"]),
            (Resource::AnyNormal, vec!["a", "b"]),
            (Resource::Database("a".into()), vec!["a"]),
            (Resource::Collection("a".into(), "c".into()), vec!["a"]),
            (
                Resource::CollectionInAny("c".into()),
                vec!["a", "b", "local", "config"],
            ),
            (buckets("a", "c"), vec!["a"]),
            (buckets("", "c"), vec!["a", "b", "local", "config"]),
            (Resource::Cluster, vec![]),
        ] {
            let one = Privileges::new([Privilege::new(resource.clone(), find)]);
            for db in ["a", "b", "local", "config"] {
                assert_eq!(
                    one.allows_any_on(db),
                    seen.contains(&db),
                    "{resource:?} {db}"
                );
            }
            let none = Privileges::new([Privilege::new(resource, ActionSet::new())]);
            assert!(!none.allows_any_on("a"));
        }
    }

    #[test]
    fn documents_are_read_back() {
        for resource in resources() {
            let privilege = Privilege::new(
                resource,
                ActionSet::from_actions(&[Action::Find, Action::Remove]),
            );
            assert_eq!(Privilege::parse(&privilege.to_doc()), Ok(privilege));
        }
        let any = doc! {"resource": {"anyResource": true}, "actions": ["anyAction"]};
        let privilege = Privilege::parse(&any).expect("a privilege");
        assert!(privilege.actions.contains(Action::Shutdown));
        assert_eq!(privilege.to_doc(), any);
    }

    #[test]
    fn unknown_actions_are_refused_but_ignored_when_stored() {
        let doc = doc! {
            "resource": {"db": "a", "collection": ""}, "actions": ["find", "fly", "swim"],
        };
        let failure = Privilege::parse(&doc).expect_err("unknown actions");
        assert_eq!(failure.code(), ErrorCode::BadValue);
        assert_eq!(
            failure.message(),
            "Unknown action types in privilege set: 'fly', 'swim'"
        );
        let stored = Privilege::parse_stored(&doc).expect("a privilege");
        assert_eq!(stored.actions.names(), ["find"]);
    }

    #[test]
    fn what_is_no_privilege_is_refused() {
        for doc in [
            doc! {},
            doc! {"resource": {"cluster": true}},
            doc! {"actions": ["find"]},
            doc! {"resource": 1, "actions": ["find"]},
            doc! {"resource": {"cluster": true}, "actions": []},
            doc! {"resource": {"cluster": true}, "actions": "find"},
            doc! {"resource": {"cluster": true}, "actions": [1]},
        ] {
            assert!(Privilege::parse(&doc).is_err(), "{doc:?}");
            assert!(Privilege::parse_stored(&doc).is_err());
        }
    }
}
