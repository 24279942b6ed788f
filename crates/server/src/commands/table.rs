//! The table of all commands, and `listCommands`, the only command that reads it.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::{
    administration, catalog, crud, diagnostics, legacy, replication, sessions, users,
};
use crate::context::Context;
use crate::state::Server;

/// Every command, in the order of their proper names. Metrics are indexed by the position.
pub static COMMANDS: LazyLock<Vec<&'static dyn Command>> = LazyLock::new(|| {
    let families = [
        administration::COMMANDS,
        catalog::COMMANDS,
        crud::COMMANDS,
        diagnostics::COMMANDS,
        legacy::COMMANDS,
        replication::COMMANDS,
        sessions::COMMANDS,
        users::COMMANDS,
        &[&ListCommands],
    ];
    let mut all = families.concat();
    all.sort_by_key(|command| command.spec().name());
    all
});

/// A command and its index in the table, by any of its names.
pub fn find(name: &str) -> Option<(usize, &'static dyn Command)> {
    static BY_NAME: LazyLock<HashMap<&'static str, (usize, &'static dyn Command)>> =
        LazyLock::new(|| {
            let mut by_name = HashMap::new();
            for (at, command) in COMMANDS.iter().enumerate() {
                for name in command.spec().names {
                    by_name.insert(*name, (at, *command));
                }
            }
            by_name
        });
    BY_NAME.get(name).copied()
}

/// Whether a command, by its index in the table, is refused to those who are not logged in.
pub fn requires_login(server: &Server, index: usize) -> bool {
    // Whether a command is open to anyone does not depend on its fields.
    static OPEN: OnceLock<Vec<bool>> = OnceLock::new();
    let is_open = |command: &&dyn Command| {
        let name = command.spec().name();
        let mut body = DocBuf::new();
        body.push(name, 1);
        let request = Requested {
            server,
            name,
            db: "admin",
            body: &body,
            sequences: &[],
            user: None,
        };
        matches!(command.needs(&request), Ok(Needs::Anyone))
    };
    let open = OPEN.get_or_init(|| COMMANDS.iter().map(is_open).collect());
    open.get(index) != Some(&true)
}

pub struct ListCommands;

const SPEC: Spec = Spec {
    names: &["listCommands"],
    doc: "Lists the commands.",
    ..Spec::CHEAP
};

impl Command for ListCommands {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut reply = DocBuf::new();
        reply.push_doc("commands", |list| {
            for (index, command) in COMMANDS.iter().enumerate() {
                let spec = command.spec();
                list.push_doc(spec.name(), |entry| {
                    entry.push("help", spec.doc);
                    entry.push("requiresAuth", requires_login(cx.server, index));
                    entry.push("secondaryOk", true);
                    entry.push("adminOnly", spec.admin_only);
                    entry.push_array("apiVersions", |versions| {
                        if spec.stable_api {
                            versions.push("1");
                        }
                    });
                    entry.push_array("aliases", |aliases| {
                        for alias in spec.names.iter().skip(1) {
                            aliases.push(*alias);
                        }
                    });
                });
            }
        });
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use frond_bson::doc;

    use super::*;
    use crate::commands::spec::InTransactions;
    use crate::observability::metrics::Class;
    use crate::testing::TestServer;

    #[test]
    fn every_command_is_named_once_and_described() {
        let mut seen = HashSet::new();
        for command in COMMANDS.iter() {
            let spec = command.spec();
            assert!(!spec.names.is_empty());
            assert!(
                !spec.doc.is_empty() && spec.doc.ends_with('.'),
                "{}",
                spec.doc
            );
            for name in spec.names {
                assert!(seen.insert(*name), "{name} is there twice");
                assert!(find(name).is_some());
            }
            for field in spec.unsupported_fields {
                assert!(!spec.has_field(field), "{field}");
            }
        }
        assert!(find("Ping").is_none(), "names are compared exactly");
    }

    #[test]
    fn facts_about_writes_fit_together() {
        for command in COMMANDS.iter() {
            let spec = command.spec();
            let name = spec.name();
            if spec.class == Class::Write {
                assert!(spec.writes && spec.retryable, "{name}");
                assert_eq!(spec.in_transactions, InTransactions::Always, "{name}");
            } else {
                assert!(!spec.retryable && !spec.profiles_statements, "{name}");
            }
            if spec.counts_shapes {
                assert_eq!((spec.class, spec.writes), (Class::Read, false), "{name}");
            }
            // Only commands on documents have a kind of their own.
            if spec.kind != "command" {
                assert!(matches!(spec.class, Class::Read | Class::Write), "{name}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_command_is_listed() {
        let reply = TestServer::new().run("admin", doc! {"listCommands": 1});
        let commands = reply.get_doc("commands").unwrap();
        assert_eq!(commands.count(), COMMANDS.len());
        let ping = commands.get_doc("ping").unwrap();
        assert!(ping.get_str("help").unwrap().starts_with("Replies"));
    }
}
