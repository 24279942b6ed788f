//! Settings of earlier versions, which are refused with the way to do the same now.

/// A setting that this version does not have any more.
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

pub static REPLACED: &[Replaced] = &[
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
