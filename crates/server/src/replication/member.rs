//! This server's knowledge of its set: the configuration, its own part, and the primary. A change makes a new value.

use std::sync::Arc;

use frond_bson::{DocBuf, Timestamp};
use frond_replset::{
    Access, Hello, LastWrite, Member as Configured, OpTime, Position, SetConfig, State,
    check_access,
};

/// The election that has made this server the primary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Election {
    /// The cluster time at which it took over.
    pub time: Timestamp,
    /// The wall clock at that moment, in milliseconds since 1970.
    pub date_ms: i64,
}

/// The member that this server is, once the set is initiated.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub config: Arc<SetConfig>,
    /// Its `_id`. `None` if the configuration does not have it any more.
    pub own: Option<i32>,
    pub state: State,
    pub term: i64,
    /// The `_id` of the primary, if one is known.
    pub primary: Option<i32>,
    /// `None` while it is not the primary.
    pub election: Option<Election>,
}

impl Member {
    /// Its entry of the configuration.
    pub fn configured(&self) -> Option<&Configured> {
        self.own.and_then(|id| self.config.member(id))
    }

    /// Whether it accepts writes.
    pub fn is_primary(&self) -> bool {
        self.state == State::Primary
    }

    /// Refuses a request that a member in this state does not serve.
    ///
    /// # Errors
    /// As [`check_access`].
    pub fn check(&self, access: Access) -> frond_error::Result<()> {
        check_access(self.state, self.is_primary(), access)
    }

    /// The position of an operation.
    pub fn position(&self, ts: Timestamp) -> Position {
        Position {
            op: OpTime {
                term: self.term,
                ts,
            },
            wall_ms: i64::from(ts.time) * 1000,
        }
    }

    /// The fields of `hello` and `serverStatus`. `last` is the time of the last write, `majority` of the last one that a majority has.
    pub fn describe(
        &self,
        last: Timestamp,
        majority: Timestamp,
        is_legacy: bool,
        reply: &mut DocBuf,
    ) {
        Hello {
            config: &self.config,
            own: self.own,
            state: self.state,
            takes_writes: self.is_primary(),
            primary: self.primary,
            election_term: Some(self.term).filter(|_| self.is_primary()),
            last_write: LastWrite {
                applied: self.position(last),
                majority: self.position(majority),
            },
            is_legacy,
        }
        .describe(reply);
    }
}

/// The primary of a set that consists of one server to clients.
pub fn alone(config: SetConfig) -> Member {
    let first = config.members.first().map(|member| member.id);
    Member {
        own: first,
        primary: first,
        term: config.term.unwrap_or(0),
        config: Arc::new(config),
        state: State::Primary,
        election: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    #[test]
    fn a_primary_shows_its_election_and_others_do_not() {
        let config = SetConfig::parse(&SetConfig::default_doc("rs0", "a:1")).unwrap();
        let mut member = alone(config);
        member.term = 3;
        let at = Timestamp {
            time: 5,
            increment: 1,
        };
        let describe = |member: &Member| {
            let mut reply = DocBuf::new();
            member.describe(at, at, false, &mut reply);
            reply
        };
        let primary = describe(&member);
        assert!(primary.contains_key("electionId"));
        assert_eq!(
            primary.get_doc("lastWrite").unwrap().get_doc("opTime"),
            Some(&*doc! {"ts": at, "t": 3i64})
        );
        member.state = State::Secondary;
        let secondary = describe(&member);
        assert!(!secondary.contains_key("electionId"));
        assert_eq!(secondary.get_bool("secondary"), Some(true));
        assert!(member.check(Access::Write).is_err());
    }
}
