//! Documents expire by a TTL index, by partitions, or by deletes of the client.

use frond_bson::{DocBuf, Value, doc};
use frond_client::{Collection, Error, Result, check};

use super::Connection;
use crate::system::{Expire, Retain, Retention};

/// The field of the TTL index, if documents expire by one.
pub fn ttl_index(retain: &Retain) -> Option<&'static str> {
    (retain.by == Expire::Ttl).then_some(retain.field)
}

fn date(ms: u64) -> Value<'static> {
    Value::DateTime(i64::try_from(ms).unwrap_or(i64::MAX))
}

fn before(field: &str, ms: u64) -> DocBuf {
    let mut filter = DocBuf::new();
    filter.push_doc(field, |range| range.push_value("$lt", &date(ms)));
    filter
}

/// The options of a collection whose documents are in partitions by time.
fn partitioned(retain: &Retain) -> DocBuf {
    doc! {
        "primaryKey": { (retain.field): 1, "_id": 1 },
        "partitioned": { "by": retain.field, "every": format!("{}s", retain.every).as_str() },
        "expireAfterSeconds": i64::from(retain.seconds),
    }
}

/// Adds the name of the requested feature to an error, because servers without the feature only report an unknown field.
fn refused(by: &str, error: Error) -> Error {
    match error {
        Error::Server { .. } => Error::Settings(format!("the server refuses {by}: {error}")),
        error => error,
    }
}

impl Connection {
    fn set_ttl_sleep(&mut self, retain: &Retain) -> Result<()> {
        if retain.ttl_sleep > 0 {
            let seconds = i64::from(retain.ttl_sleep);
            let command = doc! { "setParameter": 1, "ttlMonitorSleepSecs": seconds };
            self.client
                .command("admin", &command)
                .map_err(|error| refused("--ttl-sleep (0 leaves it out)", error))?;
        }
        Ok(())
    }

    /// Makes what the removal of documents needs.
    pub fn create_with_retention(
        &mut self,
        collection: &Collection,
        retain: &Retain,
    ) -> Result<()> {
        match retain.by {
            Expire::Delete => Ok(()),
            Expire::Ttl => {
                self.set_ttl_sleep(retain)?;
                let options = doc! { "expireAfterSeconds": i64::from(retain.seconds) };
                let fields: &[&[&str]] = &[&[retain.field]];
                self.client
                    .create_indexes(collection, fields, &options)
                    .map_err(|error| refused("a TTL index", error))
            }
            Expire::Partitions => {
                // The monitor drops them, too.
                self.set_ttl_sleep(retain)?;
                let mut command = doc! { "create": collection.name.as_str() };
                command.push_all(&partitioned(retain));
                self.client
                    .command(&collection.database, &command)
                    .map_err(|error| refused("a partitioned collection", error))?;
                Ok(())
            }
        }
    }
}

impl Retention for Connection {
    fn expire(&mut self, collection: &Collection, retain: &Retain, now_ms: u64) -> Result<bool> {
        // Otherwise the server does it.
        if retain.by == Expire::Delete {
            let until = now_ms.saturating_sub(u64::from(retain.seconds) * 1000);
            let filter = before(retain.field, until);
            let reply =
                self.client
                    .write_command(collection, "delete", "deletes", |statement| {
                        statement.push("q", &filter);
                        statement.push("limit", 0);
                    })?;
            check::found(reply, "delete")?;
        }
        Ok(false)
    }

    fn count_before(
        &mut self,
        collection: &Collection,
        field: &'static str,
        before_ms: u64,
    ) -> Result<u64> {
        let command = doc! {
            "count": collection.name.as_str(), "query": &before(field, before_ms),
        };
        let reply = self.client.command(&collection.database, &command)?;
        check::count(&reply, "count")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partitioned_collection_has_the_date_first_in_its_primary_key() {
        let retain = Retain {
            field: "creation",
            seconds: 60,
            by: Expire::Partitions,
            every: 10,
            ttl_sleep: 1,
        };
        let expected = doc! {
            "primaryKey": { "creation": 1, "_id": 1 },
            "partitioned": { "by": "creation", "every": "10s" },
            "expireAfterSeconds": 60i64,
        };
        assert_eq!(partitioned(&retain), expected);
        assert_eq!(ttl_index(&retain), None);
        let by_ttl = Retain {
            by: Expire::Ttl,
            ..retain
        };
        assert_eq!(ttl_index(&by_ttl), Some("creation"));
    }
}
