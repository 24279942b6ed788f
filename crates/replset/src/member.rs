//! A member of a configuration.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};

use crate::fields::{flag, integer, invalid, object, only, whole};
use crate::host::with_port;

const FIELDS: &[&str] = &[
    "_id",
    "host",
    "arbiterOnly",
    "buildIndexes",
    "hidden",
    "priority",
    "tags",
    "secondaryDelaySecs",
    "slaveDelay",
    "votes",
];

const ID_MAX: i64 = 255;

const PRIORITY_MAX: f64 = 1000.0;

/// The longest delay: 366 days, as in MongoDB.
const DELAY_MAX_SECS: i64 = 366 * 24 * 3600;

/// A member, as the configuration describes it. Every member has the data and all indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Stays with the member when its host changes.
    pub id: i32,
    /// `name:port`, under which the other members and the clients reach it.
    pub host: String,
    /// Whether `hello` leaves it out, so that no driver finds it.
    pub hidden: bool,
    /// From 0, which is never elected, to 1000.
    pub priority: f64,
    /// Tags of read preferences and write concerns.
    pub tags: Vec<(String, String)>,
    /// It applies each write as late as this.
    pub delay_secs: i64,
    /// Whether it votes: a voter of the consensus, otherwise a learner.
    pub is_voter: bool,
}

impl Member {
    /// Reads one, with MongoDB's rules for a single member. `at` is its place in the list.
    pub(crate) fn parse(given: &Doc, at: usize) -> Result<Member> {
        only(given, FIELDS, "a member of the replica set")?;
        let id = integer(given, "_id")?.ok_or_else(|| invalid("a member needs an _id"))?;
        let id = i32::try_from(id)
            .ok()
            .filter(|id| (0..=ID_MAX).contains(&i64::from(*id)))
            .ok_or_else(|| {
                invalid(format!(
                    "_id field value of {id} is out of range: it must be from 0 to {ID_MAX}"
                ))
            })?;
        let Some(Value::String(host)) = given.get("host") else {
            return Err(invalid("a member needs a host"));
        };
        let host = with_port(host)?;
        if flag(given, "arbiterOnly", false)? {
            return Err(invalid(format!(
                "members.{at}.arbiterOnly of {host}: arbiters are not supported, because a member that votes must \
                 also hold the log. Use a member with data that never becomes the primary instead: \
                 {{_id: {id}, host: \"{host}\", priority: 0, hidden: true}}"
            )));
        }
        let votes = integer(given, "votes")?.unwrap_or(1);
        if !(0..=1).contains(&votes) {
            return Err(invalid(format!(
                "votes field value is {votes} but must be 0 or 1"
            )));
        }
        let is_voter = votes == 1;
        let priority = priority(given)?;
        let hidden = flag(given, "hidden", false)?;
        let build_indexes = flag(given, "buildIndexes", true)?;
        let delay_secs = delay(given)?;
        if priority != 0.0 {
            for (is_broken, message) in [
                (!is_voter, "priority must be 0 when non-voting (votes:0)"),
                (
                    delay_secs > 0,
                    "priority must be 0 when secondaryDelaySecs is used",
                ),
                (hidden, "priority must be 0 when hidden=true"),
                (!build_indexes, "priority must be 0 when buildIndexes=false"),
            ] {
                if is_broken {
                    return Err(invalid(message));
                }
            }
        }
        if !build_indexes {
            return Err(invalid(format!(
                "members.{at}.buildIndexes of {host}: a member without indexes is not supported, because members \
                 receive the entries of indexes with the documents; leave the field out"
            )));
        }
        Ok(Member {
            id,
            host,
            hidden,
            priority,
            tags: tags(given)?,
            delay_secs,
            is_voter,
        })
    }

    /// The member with all fields.
    pub fn to_doc(&self) -> DocBuf {
        let mut doc = doc! {
            "_id": self.id,
            "host": &*self.host,
            "arbiterOnly": false,
            "buildIndexes": true,
            "hidden": self.hidden,
        };
        if self.priority.fract() == 0.0 {
            doc.push("priority", self.priority as i32);
        } else {
            doc.push("priority", self.priority);
        }
        doc.push("tags", &self.tags_doc());
        doc.push("secondaryDelaySecs", self.delay_secs);
        doc.push("votes", i32::from(self.is_voter));
        doc
    }

    /// The tags as a document.
    pub fn tags_doc(&self) -> DocBuf {
        let mut tags = DocBuf::new();
        for (tag, value) in &self.tags {
            tags.push(tag, &**value);
        }
        tags
    }

    /// The value of a tag.
    pub fn tag(&self, tag: &str) -> Option<&str> {
        let found = self.tags.iter().find(|(name, _)| name == tag);
        found.map(|(_, value)| &**value)
    }

    /// Whether it can become the primary.
    pub fn is_electable(&self) -> bool {
        self.priority > 0.0
    }
}

fn priority(given: &Doc) -> Result<f64> {
    let priority = match given.get("priority") {
        None => return Ok(1.0),
        Some(value) => value
            .as_f64()
            .ok_or_else(|| invalid("priority must be a number"))?,
    };
    if !(0.0..=PRIORITY_MAX).contains(&priority) {
        return Err(invalid(format!(
            "priority field value of {priority} is out of range"
        )));
    }
    // So that -0.0 is written as 0.
    Ok(priority + 0.0)
}

/// The delay, also under the name that it had before MongoDB 5.
fn delay(given: &Doc) -> Result<i64> {
    if given.contains_key("slaveDelay") && given.contains_key("secondaryDelaySecs") {
        return Err(invalid(
            "Cannot have both slaveDelay and secondaryDelaySecs; use secondaryDelaySecs",
        ));
    }
    let name = if given.contains_key("slaveDelay") {
        "slaveDelay"
    } else {
        "secondaryDelaySecs"
    };
    let delay = integer(given, name)?.unwrap_or(0);
    if !(0..=DELAY_MAX_SECS).contains(&delay) {
        return Err(invalid(format!(
            "{name} field value of {delay} seconds is out of range"
        )));
    }
    Ok(delay)
}

fn tags(given: &Doc) -> Result<Vec<(String, String)>> {
    let mut tags: Vec<(String, String)> = Vec::new();
    for (tag, value) in object(given, "tags")?.unwrap_or(Doc::empty()).iter() {
        let Value::String(value) = value else {
            return Err(Error::type_mismatch(format!(
                "tags.{tag} field has non-string value of type {}",
                value.type_name()
            )));
        };
        tags.push((tag.to_owned(), value.to_owned()));
    }
    let mut names: Vec<&str> = tags.iter().map(|(tag, _)| &**tag).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(format!("The field {} is twice in tags", pair[0])));
    }
    Ok(tags)
}

/// The documents of the list of members.
pub(crate) fn parse_list(config: &Doc, members_max: usize) -> Result<Vec<Member>> {
    let Some(Value::Array(given)) = config.get("members") else {
        return Err(invalid(
            "the replica set configuration needs a list of members",
        ));
    };
    let count = given.count();
    if !(1..=members_max).contains(&count) {
        return Err(invalid(format!(
            "Replica set configuration contains {count} members, but must have at least 1 and no more than {members_max}"
        )));
    }
    let parse = |(at, value): (usize, Value<'_>)| match value {
        Value::Document(member) => Member::parse(member, at),
        other => Err(Error::type_mismatch(format!(
            "Expected type of members.{at} to be an object, but found {}",
            other.type_name()
        ))),
    };
    given.values().enumerate().map(parse).collect()
}

/// A count in a map from tags to numbers of their values.
pub(crate) fn tag_count(count: &Value<'_>) -> Option<i64> {
    count.is_number().then(|| whole(count)).filter(|n| *n >= 1)
}
