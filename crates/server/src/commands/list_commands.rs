//! `listCommands`

use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::commands::{COMMANDS, requires_login};
use crate::context::Context;

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
        let mut commands: Vec<(usize, &dyn Command)> =
            COMMANDS.iter().copied().enumerate().collect();
        commands.sort_by_key(|(_, command)| command.spec().name());
        let mut reply = DocBuf::new();
        reply.push_doc("commands", |list| {
            for (index, command) in commands {
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
