//! Configurations of replica sets, and what follows from them: which change is permitted, which write concern holds, the
//! documents that describe a member, and which member may lead. Without consensus, sockets, clocks and storage.
#![forbid(unsafe_code)]

mod commit_quorum;
mod config;
mod election;
mod fields;
mod hello;
mod host;
mod member;
mod position;
mod read_concern;
mod reconfig;
mod refusal;
mod settings;
mod state;
mod status;
mod takeover;
mod write_concern;

pub use commit_quorum::CommitQuorum;
pub use config::{MEMBERS_MAX, SetConfig, VOTERS_MAX};
pub use election::{Candidate, Obstacle, Standing, caught_up_majority, obstacles, successor};
pub use hello::{Hello, IDLE_WRITE_SECONDS, LastWrite, describe_absent, needs_idle_write};
pub use host::{is_localhost, with_port};
pub use member::Member;
pub use position::{OpTime, Position, election_id};
pub use read_concern::{ReadLevel, ReadRequest, Serving, Waits};
pub use reconfig::{Change, HostChange, Reconfig, config_reply, initiate, reconfigure};
pub use refusal::{
    Access, check_access, interrupted, is_refusal, no_successor, not_yet_initialized,
    oplog_unreadable, stepped_down,
};
pub use settings::{Mode, Settings};
pub use state::State;
pub use status::{
    CandidateMetrics, Heard, InitialSync, MemberStatus, OpTimes, ParticipantMetrics, SelfStatus,
    Status,
};
pub use takeover::{Takeover, priority_rank, takeover};
pub use write_concern::{Acknowledged, Outcome, Wanted};
