//! Settings of earlier versions and of other servers, which are refused with the way to do the same now.

/// A setting that this version does not have.
pub struct Replaced {
    /// The long option of the command line.
    pub option: &'static str,
    /// The path in the configuration file.
    pub key: &'static str,
    /// The advice in the error.
    pub instead: &'static str,
}

const MEMBER: &str = "members of replica sets have replaced standbys. Start this server with --replSet and an empty data directory, and run \
     rs.add({host: \"HOST:PORT\", votes: 0, priority: 0}) on the primary; see docs/replica-set.md";

const KMIP: &str = "this server does not speak KMIP; --encryptionKeyCommand (security.encryptionKeyCommand) runs a program that prints \
                    the master key";
const VAULT: &str = "this server does not speak with Vault; --encryptionKeyCommand (security.encryptionKeyCommand) runs a program that \
                     prints the master key, such as `vault kv get -field=key secret/frond`";

pub static REPLACED: &[Replaced] = &[
    Replaced {
        option: "kmipServerName",
        key: "security.kmip.serverName",
        instead: KMIP,
    },
    Replaced {
        option: "kmipRotateMasterKey",
        key: "security.kmip.rotateMasterKey",
        instead: "the command rotateMasterKey and `frond rotate-master-key` do that",
    },
    Replaced {
        option: "vaultServerName",
        key: "security.vault.serverName",
        instead: VAULT,
    },
    Replaced {
        option: "follow",
        key: "replication.follow",
        instead: MEMBER,
    },
    Replaced {
        option: "followAnew",
        key: "replication.followAnew",
        instead: MEMBER,
    },
];
