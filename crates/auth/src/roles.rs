//! Roles that inherit: what a user or a role has through them.

use std::collections::BTreeSet;

use frond_error::Result;

use crate::builtin_roles::builtin;
use crate::name::UserName;
use crate::privileges::{Privilege, merge};
use crate::restrictions::Restrictions;

/// A role that was created: what its document grants by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// The roles that it inherits from.
    pub roles: Vec<UserName>,
    pub privileges: Vec<Privilege>,
    /// Its own restrictions, if it has any.
    pub restrictions: Option<Restrictions>,
}

/// Looks up user-defined roles.
pub trait RoleSource {
    /// A role; `None` if there is no such role.
    ///
    /// # Errors
    /// If it cannot be read. A role that cannot be read must not count as missing.
    fn role(&self, name: &UserName) -> Result<Option<Role>>;
}

/// The effective roles, privileges and restrictions of a set of roles, with inherited ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The roles that they inherit from, directly and through others.
    pub inherited: BTreeSet<UserName>,
    /// The privileges of all of them, one for each resource.
    pub privileges: Vec<Privilege>,
    /// The restrictions of each role that has some. All of them must be met.
    pub restrictions: Vec<Restrictions>,
}

/// Resolves roles. A role that does not exist grants nothing, and one that was visited is not visited again, so that roles
/// that inherit from each other, which only a direct write can make, do no harm.
///
/// # Errors
/// Errors of the source.
pub fn resolve(roles: &[UserName], source: &impl RoleSource) -> Result<Resolved> {
    let mut resolved = Resolved::default();
    let mut privileges = Vec::new();
    let mut known: BTreeSet<UserName> = roles.iter().cloned().collect();
    let mut waiting: Vec<UserName> = roles.to_vec();
    while let Some(name) = waiting.pop() {
        if let Some(own) = builtin(&name) {
            privileges.extend(own);
            continue;
        }
        let Some(role) = source.role(&name)? else {
            continue;
        };
        privileges.extend(role.privileges);
        resolved.restrictions.extend(role.restrictions);
        for inherited in role.roles {
            if known.insert(inherited.clone()) {
                waiting.push(inherited.clone());
            }
            resolved.inherited.insert(inherited);
        }
    }
    resolved.privileges = merge(privileges);
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;
    use std::collections::HashMap;

    use frond_bson::array;
    use frond_error::Error;

    use super::*;
    use crate::action::{Action, ActionSet};
    use crate::resource::Resource;

    #[derive(Default)]
    struct Table {
        roles: HashMap<UserName, Role>,
        asked: Cell<usize>,
    }

    impl Table {
        fn with(mut self, name: &str, inherits: &[&str], privilege: Option<Privilege>) -> Table {
            let role = Role {
                roles: inherits
                    .iter()
                    .map(|name| UserName::new(*name, "a"))
                    .collect(),
                privileges: privilege.into_iter().collect(),
                restrictions: None,
            };
            self.roles.insert(UserName::new(name, "a"), role);
            self
        }
    }

    impl RoleSource for Table {
        fn role(&self, name: &UserName) -> Result<Option<Role>> {
            self.asked.set(self.asked.get() + 1);
            if name.name == "broken" {
                return Err(Error::bad_value("broken"));
            }
            Ok(self.roles.get(name).cloned())
        }
    }

    fn on(collection: &str, action: Action) -> Option<Privilege> {
        let resource = Resource::Collection("a".into(), collection.into());
        Some(Privilege::new(resource, ActionSet::from_actions(&[action])))
    }

    fn names(resolved: &Resolved) -> Vec<&str> {
        resolved.inherited.iter().map(|name| &*name.name).collect()
    }

    #[test]
    fn privileges_are_inherited_and_merged() {
        let table = Table::default()
            .with("top", &["left", "right", "missing"], on("c", Action::Find))
            .with("left", &["bottom", "read"], on("c", Action::Insert))
            .with("right", &["bottom"], on("d", Action::Find))
            .with("bottom", &[], on("c", Action::Remove));
        let resolved = resolve(&[UserName::new("top", "a")], &table).unwrap();
        assert_eq!(
            names(&resolved),
            ["bottom", "left", "missing", "read", "right"]
        );
        let of = |collection: &str| {
            let resource = Resource::Collection("a".into(), collection.into());
            let mut found = resolved
                .privileges
                .iter()
                .filter(|one| one.resource == resource);
            let names = found.next().unwrap().actions.names();
            assert!(found.next().is_none());
            names
        };
        assert_eq!(of("c"), ["find", "insert", "remove"]);
        assert_eq!(of("d"), ["find"]);
        // Each role is read once: top, left, right, bottom and the missing one.
        assert_eq!(table.asked.get(), 5);
        let read = Resource::Database("a".into());
        assert!(resolved.privileges.iter().any(|one| one.resource == read));
    }

    #[test]
    fn cycles_and_long_chains_end() {
        let table = Table::default()
            .with("a", &["b"], on("c", Action::Find))
            .with("b", &["a", "b"], on("c", Action::Insert));
        let resolved = resolve(&[UserName::new("a", "a")], &table).unwrap();
        assert_eq!(names(&resolved), ["a", "b"]);
        assert_eq!(resolved.privileges.len(), 1);
        let mut table = Table::default();
        for n in 0..20_000 {
            table = table.with(&n.to_string(), &[&*(n + 1).to_string()], None);
        }
        let resolved = resolve(&[UserName::new("0", "a")], &table).unwrap();
        assert_eq!(resolved.inherited.len(), 20_000);
    }

    #[test]
    fn restrictions_of_all_roles_are_kept_and_errors_are_told() {
        let mut table = Table::default()
            .with("a", &["b"], None)
            .with("b", &[], None);
        for (role, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
            let restrictions = array![{"clientSource": [address]}];
            let role = table.roles.get_mut(&UserName::new(role, "a")).unwrap();
            role.restrictions = Some(Restrictions::parse(restrictions.as_doc()).unwrap());
        }
        let resolved = resolve(&[UserName::new("a", "a")], &table).unwrap();
        assert_eq!(resolved.restrictions.len(), 2);
        let table = Table::default().with("a", &["broken"], None);
        assert!(resolve(&[UserName::new("a", "a")], &table).is_err());
        let nothing = resolve(&[UserName::new("missing", "a")], &table).unwrap();
        assert_eq!(nothing, Resolved::default());
    }
}
