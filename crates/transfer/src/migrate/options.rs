//! The command line.

/// Source of the changes that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FollowMode {
    /// The oplog if the source has one, else a change stream, else passes
    Auto,
    /// The oplog of a replica set
    Oplog,
    /// A change stream over all databases
    ChangeStream,
    /// Compare both sides again and again, and repair what differs
    Passes,
    /// Copy once, and do not follow
    None,
}

/// Options of `frond migrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The server to copy from: mongodb://[user:password@]host[:port]/[?options]
    #[arg(long, value_name = "URI")]
    pub from: String,
    /// The server to copy to
    #[arg(long, value_name = "URI")]
    pub to: String,
    /// Move only these: database, database.collection, or with * for any text
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include: Vec<String>,
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Ranges of documents that are copied at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Drop the collections at the target first, if they are there
    #[arg(long)]
    pub drop: bool,
    /// Say what would be done, how much it is, and what the target does not take; write nothing but a scratch
    /// database of the target, which is dropped
    #[arg(long, conflicts_with_all = ["verify", "drop"])]
    pub dry_run: bool,
    /// Only compare both sides, by hashes of ranges
    #[arg(long, conflicts_with_all = ["drop", "cutover"])]
    pub verify: bool,
    /// The way to follow changes at the source
    #[arg(long, value_enum, default_value_t = FollowMode::Auto)]
    pub follow: FollowMode,
    /// End as soon as the target has caught up. Without it Ctrl-C ends it, and before that it follows
    #[arg(long)]
    pub cutover: bool,
    /// Do not compare both sides at the end
    #[arg(long)]
    pub no_verify: bool,
    /// Leave out users and roles
    #[arg(long)]
    pub no_users: bool,
    /// Go on without the indexes, options and views that the target refuses
    #[arg(long)]
    pub allow_refused: bool,
    /// Forget how far an interrupted migration came, and begin again
    #[arg(long)]
    pub restart: bool,
    /// Speak to the source as to MongoDB 2.4, for servers that announce more than they know
    #[arg(long)]
    pub oldest_protocol: bool,
    #[arg(long, short)]
    pub quiet: bool,
}
