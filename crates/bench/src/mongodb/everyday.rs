//! The operations of a run of everyday operations, by the commands of MongoDB 3.6 and later.

use frond_bson::{Doc, DocBuf, doc};
use frond_client::{Collection, Error, Find, Result, check};

use super::Connection;
use crate::system::{Condition, Everyday, Ids, Task};

impl Everyday for Connection {
    fn loaded(&mut self, _: &Collection) -> Result<()> {
        Ok(())
    }

    fn perform(&mut self, collection: &Collection, task: &Task<'_>) -> Result<u64> {
        let name = collection.name.as_str();
        match task {
            Task::Count(conditions) => {
                let reply = self.client.ask(&collection.database, |command| {
                    command.push("count", name);
                    command.push_doc("query", |filter| all_of(filter, conditions));
                })?;
                check::count(reply, "count")
            }
            Task::Match(conditions) => {
                let mut command = doc! { "aggregate": name };
                command.push_array("pipeline", |stages| {
                    stages.push_doc(|stage| {
                        stage.push_doc("$match", |filter| all_of(filter, conditions));
                    });
                });
                command.push_doc("cursor", |_| ());
                self.rows(collection, &command, &mut |_| Ok(1))
            }
            Task::Top { by, limit } => {
                let mut command = doc! { "find": name };
                command.push_doc("sort", |sort| sort.push(by, -1));
                command.push("limit", i64::from(*limit));
                self.rows(collection, &command, &mut |document| integer(document, by))
            }
            Task::Lookup { ids, other, by } => self.lookup(collection, ids, other, by),
            Task::Distinct(field) => {
                let reply = self.client.ask(&collection.database, |command| {
                    command.push("distinct", name);
                    command.push("key", *field);
                })?;
                let values = reply
                    .get_array("values")
                    .ok_or_else(|| Error::Protocol("distinct answered no values".to_owned()))?;
                Ok(values.count() as u64)
            }
            Task::Point(id) => self.find_by(collection, 1, &|filter| filter.push("_id", *id)),
            Task::Range(ids) => self.find_by(collection, 0, &|filter| within(filter, ids)),
            Task::In(ids) => self.find_by(collection, 0, &|filter| {
                filter.push_doc("_id", |list| {
                    list.push_array("$in", |list| ids.iter().for_each(|id| list.push(*id)));
                });
            }),
            Task::Skip { skip, limit } => {
                let mut command = doc! { "find": name };
                command.push_doc("sort", |sort| sort.push("_id", 1));
                command.push("skip", i64::from(*skip));
                command.push("limit", i64::from(*limit));
                self.rows(collection, &command, &mut |document| {
                    integer(document, "_id")
                })
            }
            Task::UpdateOne(id) => {
                self.increment(collection, false, |filter| filter.push("_id", *id))
            }
            Task::UpdateMany(condition) => self.increment(collection, true, |filter| {
                all_of(filter, std::slice::from_ref(condition));
            }),
            Task::FindAndUpdate(id) => {
                let reply = self.client.ask(&collection.database, |command| {
                    command.push("findAndModify", name);
                    command.push_doc("query", |filter| filter.push("_id", *id));
                    command.push_doc("update", add_one);
                    command.push("new", true);
                })?;
                Ok(u64::from(reply.get_doc("value").is_some()))
            }
            Task::DeleteOne(id) => self.remove(collection, 1, |filter| filter.push("_id", *id)),
            Task::DeleteMany(condition) => self.remove(collection, 0, |filter| {
                all_of(filter, std::slice::from_ref(condition));
            }),
            Task::InsertOne(document) => {
                let reply = (self.client).write_command(
                    collection,
                    "insert",
                    "documents",
                    |statement| {
                        statement.push_all(document);
                    },
                )?;
                check::inserted(reply)
            }
        }
    }
}

impl Connection {
    /// Runs a command that answers with a cursor, fetches all documents, and adds up what `each` makes of them.
    fn rows(
        &mut self,
        collection: &Collection,
        command: &Doc,
        each: &mut dyn FnMut(&Doc) -> Result<u64>,
    ) -> Result<u64> {
        let mut sum = 0;
        let each = &mut |document: &Doc| {
            sum += each(document)?;
            Ok(())
        };
        let client = &mut self.client;
        let mut cursor = client.open_command(&collection.database, command, 0, each)?;
        while cursor.is_open() {
            client.more(&mut cursor, None, each)?;
        }
        Ok(sum)
    }

    fn find_by(
        &mut self,
        collection: &Collection,
        limit: u32,
        filter: &dyn Fn(&mut DocBuf),
    ) -> Result<u64> {
        let find = Find {
            filter,
            projection: None,
            sort: None,
            limit,
        };
        self.client.find(collection, &find, &mut |_| Ok(()))
    }

    fn lookup(
        &mut self,
        collection: &Collection,
        ids: &Ids,
        other: &Collection,
        by: &str,
    ) -> Result<u64> {
        let mut command = doc! { "aggregate": collection.name.as_str() };
        command.push_array("pipeline", |stages| {
            stages.push_doc(|stage| {
                stage.push_doc("$match", |filter| within(filter, ids));
            });
            stages.push(&doc! { "$lookup": {
                "from": other.name.as_str(),
                "localField": by,
                "foreignField": "_id",
                "as": "others",
            } });
        });
        command.push_doc("cursor", |_| ());
        self.rows(collection, &command, &mut |document| {
            let others = document.get_array("others");
            others
                .map(|others| others.values().count() as u64)
                .ok_or_else(|| Error::Wrong("a document came without others".to_owned()))
        })
    }

    fn increment(
        &mut self,
        collection: &Collection,
        multi: bool,
        filter: impl FnOnce(&mut DocBuf),
    ) -> Result<u64> {
        let reply = (self.client).write_command(collection, "update", "updates", |statement| {
            statement.push_doc("q", filter);
            statement.push_doc("u", add_one);
            statement.push("multi", multi);
        })?;
        check::found(reply, "update")
    }

    fn remove(
        &mut self,
        collection: &Collection,
        limit: i32,
        filter: impl FnOnce(&mut DocBuf),
    ) -> Result<u64> {
        let reply = (self.client).write_command(collection, "delete", "deletes", |statement| {
            statement.push_doc("q", filter);
            statement.push("limit", limit);
        })?;
        check::found(reply, "delete")
    }
}

fn add_one(change: &mut DocBuf) {
    change.push_doc("$inc", |inc| inc.push("w", 1));
}

fn all_of(filter: &mut DocBuf, conditions: &[Condition]) {
    for Condition { field, from, below } in conditions {
        if *below == from + 1 {
            filter.push(field, *from);
        } else {
            filter.push_doc(field, |range| {
                range.push("$gte", *from);
                range.push("$lt", *below);
            });
        }
    }
}

fn within(filter: &mut DocBuf, ids: &Ids) {
    filter.push_doc("_id", |range| {
        range.push("$gte", *ids.start());
        range.push("$lte", *ids.end());
    });
}

fn integer(document: &Doc, field: &str) -> Result<u64> {
    let value = document.get_i64(field).and_then(|n| n.try_into().ok());
    value.ok_or_else(|| Error::Wrong(format!("a document came without {field}")))
}
