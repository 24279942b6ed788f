use frond_bson::DocBuf;
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::settings::{PASSWORD_PLACEHOLDER, SettingValue, Settings};

pub struct GetCmdLineOpts;

const SPEC: Spec = Spec {
    names: &["getCmdLineOpts"],
    doc: "Shows the settings that the operator gave.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetCmdLineOpts {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::GetCmdLineOpts))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let mut reply = DocBuf::new();
        reply.push_array("argv", |argv| {
            for argument in &cx.server.instance.arguments {
                argv.push(argument);
            }
        });
        reply.push("parsed", &parsed(&cx.server.settings));
        Ok(reply)
    }
}

/// The settings that the operator made, as a document.
pub fn parsed(settings: &Settings) -> DocBuf {
    let mut parsed = DocBuf::new();
    if let Some(file) = &settings.config_file {
        parsed.push("config", &*file.to_string_lossy());
    }
    // The keys are sorted, so the keys of a section are adjacent.
    let values = settings.explicit.iter();
    let values: Vec<(&str, &SettingValue)> =
        values.map(|(key, value)| (key.as_str(), value)).collect();
    nest(&values, &mut parsed);
    parsed
}

/// Writes dotted keys as nested documents. The depth is that of the table of settings.
fn nest(mut values: &[(&str, &SettingValue)], out: &mut DocBuf) {
    while let Some(((key, value), rest)) = values.split_first() {
        match key.split_once('.') {
            None => {
                match value {
                    SettingValue::Switch(on) => out.push(key, *on),
                    SettingValue::Text(text) => out.push(key, text),
                    SettingValue::Secret(_) => out.push(key, PASSWORD_PLACEHOLDER),
                    SettingValue::List(parts) => out.push_array(key, |list| {
                        parts.iter().for_each(|part| list.push(part));
                    }),
                    SettingValue::Integer(n) => out.push(key, *n),
                    SettingValue::Number(n) => out.push(key, *n),
                }
                values = rest;
            }
            Some((section, _)) => {
                let inside = |key: &&str| {
                    key.strip_prefix(section)
                        .is_some_and(|rest| rest.starts_with('.'))
                };
                let n = values.iter().take_while(|(key, _)| inside(key)).count();
                let (same, rest) = values.split_at(n);
                let inner: Vec<(&str, &SettingValue)> = same
                    .iter()
                    .map(|(key, value)| (key.split_once('.').map_or(*key, |(_, k)| k), *value))
                    .collect();
                out.push_doc(section, |doc| nest(&inner, doc));
                values = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_shows_the_arguments() {
        let arguments = ["frond".to_owned(), "serve".to_owned()];
        let mut server = TestServer::with(|settings| settings.arguments = arguments.to_vec());
        let reply = server.run("admin", doc! {"getCmdLineOpts": 1});
        assert_eq!(reply.get_array("argv").unwrap().count(), 2);
        assert!(reply.get_doc("parsed").is_some());
    }

    #[test]
    fn keys_are_nested() {
        let (port, path, on) = (
            SettingValue::Integer(1),
            SettingValue::Text("/x".into()),
            SettingValue::Switch(true),
        );
        let values = [
            ("net.port", &port),
            ("net.unix.enabled", &on),
            ("net.unix.path", &path),
            ("storage.dbPath", &path),
        ];
        let mut out = DocBuf::new();
        nest(&values, &mut out);
        let expected = doc! {
            "net": {"port": 1i64, "unix": {"enabled": true, "path": "/x"}},
            "storage": {"dbPath": "/x"},
        };
        assert_eq!(out, expected);
    }
}
