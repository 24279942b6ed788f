//! Counters: upserts with `$inc`.

use frond_bson::{Doc, doc};
use frond_client::{Collection, Error, Find, Result, check};

use super::{Connection, results};
use crate::mongodb::status::ServerFacts;
use crate::system::{Counters, WriteConcern};

impl Counters for Connection {
    fn create_counters(&mut self, collection: &Collection, fast: bool) -> Result<()> {
        // Others have no such option.
        if fast && !ServerFacts::ask(&mut self.client).name.starts_with("Frond") {
            return Ok(());
        }
        let mut command = doc! { "create": collection.name.as_str() };
        if fast {
            command.push("fastUpdates", true);
        }
        self.client.command(&collection.database, &command)?;
        Ok(())
    }

    fn insert_counters(&mut self, collection: &Collection, keys: &[i64]) -> Result<()> {
        let mut bytes = Vec::new();
        let mut each = 0;
        for key in keys {
            let counter = doc! { "_id": *key, "n": 0i64 };
            each = counter.len_bytes();
            bytes.extend_from_slice(counter.as_bytes());
        }
        let target = self
            .client
            .write_target(collection, WriteConcern::ACKNOWLEDGED);
        let mut message = Vec::new();
        let id = self
            .client
            .build_insert(&target, &bytes, each, &mut message)?;
        self.client.send(&message)?;
        self.client.insert_reply(&target, id, keys.len())
    }

    fn increment(&mut self, collection: &Collection, keys: &[i64]) -> Result<()> {
        let reply = self.client.ask(&collection.database, |command| {
            command.push("update", collection.name.as_str());
            command.push("ordered", true);
            command.push_array("updates", |updates| {
                for key in keys {
                    updates.push_doc(|update| {
                        update.push_doc("q", |filter| filter.push("_id", *key));
                        update.push_doc("u", |change| {
                            change.push_doc("$inc", |inc| inc.push("n", 1i64));
                        });
                        update.push("upsert", true);
                    });
                }
            });
        })?;
        check_updated(reply, keys.len())
    }

    fn counter(&mut self, collection: &Collection, key: i64) -> Result<Option<i64>> {
        let find = Find {
            filter: &|filter| filter.push("_id", key),
            projection: None,
            sort: None,
            limit: 1,
        };
        let mut value = None;
        self.client.find(collection, &find, &mut |counter| {
            value = counter.get_i64("n");
            match value {
                Some(_) => Ok(()),
                None => Err(Error::Wrong(format!("counter {key} has no n"))),
            }
        })?;
        Ok(value)
    }

    fn total(&mut self, collection: &Collection) -> Result<(u64, i64)> {
        let cursors = self.client.has_aggregation_cursors();
        let reply = self.client.ask(&collection.database, |command| {
            command.push("aggregate", collection.name.as_str());
            command.push_array("pipeline", |stages| {
                stages.push(&doc! { "$group": {
                    "_id": frond_bson::Value::Null,
                    "counters": { "$sum": 1 },
                    "sum": { "$sum": "$n" },
                } });
            });
            if cursors {
                command.push_doc("cursor", |_| ());
            }
        })?;
        let Some(group) = results(reply).and_then(|batch| batch.values().next()) else {
            return Ok((0, 0));
        };
        let figure = |name| group.as_doc().and_then(|group| group.get_i64(name));
        match (figure("counters"), figure("sum")) {
            (Some(counters), Some(sum)) => Ok((counters.try_into().unwrap_or(0), sum)),
            _ => Err(Error::Protocol("aggregate answered no sum".to_owned())),
        }
    }
}

/// Checks that all of `count` updates found or made their counter.
fn check_updated(reply: &Doc, count: usize) -> Result<()> {
    if let Some(error) = reply
        .get_array("writeErrors")
        .and_then(|errors| errors.values().next())
    {
        let message = error.as_doc().and_then(|error| error.get_str("errmsg"));
        let message = message.unwrap_or("a write error without a message");
        return Err(Error::Wrong(format!("an update failed: {message}")));
    }
    match check::count(reply, "update")? {
        found if found == count as u64 => Ok(()),
        found => Err(Error::Wrong(format!(
            "{found} of {count} counters were updated"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_update_must_have_found_or_made_its_counter() {
        for (reply, message) in [
            (doc! {"n": 2, "nModified": 1, "ok": 1}, ""),
            (doc! {"n": 1, "ok": 1}, "1 of 2 counters"),
            (doc! {"ok": 1}, "no n"),
            (
                doc! {"n": 2, "writeErrors": [{"index": 0, "code": 1, "errmsg": "bad"}]},
                "bad",
            ),
        ] {
            let error = check_updated(&reply, 2)
                .err()
                .map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(
                error.contains(message) && error.is_empty() == message.is_empty(),
                "{reply:?}: {error}"
            );
        }
    }
}
