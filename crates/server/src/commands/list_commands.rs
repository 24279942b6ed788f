//! `listCommands`

use frond_bson::DocBuf;
use frond_error::Result;

use super::{COMMANDS, proper_name, requires_login};
use super::{Command, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;

/// Lists the commands.
pub struct ListCommands;

impl Command for ListCommands {
    fn names(&self) -> &'static [&'static str] {
        &["listCommands"]
    }

    fn doc(&self) -> &'static str {
        "Lists the commands."
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut commands: Vec<(usize, &dyn Command)> =
            COMMANDS.iter().copied().enumerate().collect();
        commands.sort_by_key(|(_, command)| proper_name(*command));
        let mut reply = DocBuf::new();
        reply.push_doc("commands", |list| {
            for (index, command) in commands {
                let traits = command.traits();
                list.push_doc(proper_name(command), |entry| {
                    entry.push("help", command.doc());
                    entry.push("requiresAuth", requires_login(cx.server, index));
                    entry.push("secondaryOk", true);
                    entry.push("adminOnly", traits.admin_only);
                    entry.push_array("apiVersions", |versions| {
                        if traits.stable_api {
                            versions.push("1");
                        }
                    });
                    entry.push_array("aliases", |aliases| {
                        for alias in command.names().iter().skip(1) {
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

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_command_is_listed() {
        let reply = TestServer::new().run("admin", doc! {"listCommands": 1});
        let commands = reply.get_doc("commands").unwrap();
        assert_eq!(commands.count(), crate::commands::COMMANDS.len());
        let ping = commands.get_doc("ping").unwrap();
        assert!(ping.get_str("help").unwrap().starts_with("Replies"));
    }
}
