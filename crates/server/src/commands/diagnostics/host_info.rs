//! `hostInfo`: the machine.

use frond_bson::{DocBuf, Value, doc};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use crate::host::memory::{machine_bytes, usable_bytes};

pub struct HostInfo;

const SPEC: Spec = Spec {
    names: &["hostInfo", "hostinfo"],
    doc: "Describes the machine that the server runs on.",
    ..Spec::CHEAP
};

impl Command for HostInfo {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::HostInfo))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let system = rustix::system::uname();
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(doc! {
            "system": {
                "currentTime": Value::DateTime(now_ms()),
                "hostname": cx.server.host_and_port(),
                "cpuAddrSize": i32::try_from(usize::BITS).unwrap_or(64),
                "memSizeMB": megabytes(machine_bytes()),
                "memLimitMB": megabytes(usable_bytes()),
                "numCores": cores as i32,
                "numCoresAvailableToProcess": cores as i32,
                "cpuArch": system.machine().to_string_lossy().into_owned(),
                "numaEnabled": false,
            },
            "os": {
                "type": "Linux",
                "name": os_release(&release, "NAME").unwrap_or("Linux"),
                "version": os_release(&release, "VERSION_ID").unwrap_or(""),
            },
            "extra": {
                "versionString": system.version().to_string_lossy().into_owned(),
                "kernelVersion": system.release().to_string_lossy().into_owned(),
                "pageSize": rustix::param::page_size() as i64,
            },
        })
    }
}

fn megabytes(bytes: u64) -> i64 {
    i64::try_from(bytes >> 20).unwrap_or(i64::MAX)
}

/// A value of `/etc/os-release`, without quotes.
fn os_release<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .map(|value| value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_machine_has_memory() {
        let reply = TestServer::new().run("admin", doc! {"hostInfo": 1});
        let system = reply.get_doc("system").unwrap();
        assert!(system.get_i64("memSizeMB").unwrap() > 0);
        assert!(system.get_i64("memLimitMB") <= system.get_i64("memSizeMB"));
        assert_eq!(
            reply.get_doc("os").and_then(|os| os.get_str("type")),
            Some("Linux")
        );
    }

    #[test]
    fn release_files_are_read() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=12\n";
        assert_eq!(os_release(text, "NAME"), Some("Debian GNU/Linux"));
        assert_eq!(
            (os_release(text, "VERSION_ID"), os_release(text, "X")),
            (Some("12"), None)
        );
    }
}
