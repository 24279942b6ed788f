//! The operations of a Sysbench transaction, as drivers of each time sent them.

use frond_bson::{Doc, DocBuf, doc};
use frond_client::{Collection, Error, Find, Result, check};
use frond_wire::{Delete, Update};

use super::{Connection, results};
use crate::system::{Ids, Operation, Transactions};

impl Transactions for Connection {
    fn operate(&mut self, collection: &Collection, operation: &Operation<'_>) -> Result<u64> {
        match operation {
            Operation::Point(id) => {
                let find = Find {
                    filter: &|filter| filter.push("_id", *id),
                    projection: Some(&only_c),
                    sort: None,
                    limit: 1,
                };
                self.client.find(collection, &find, &mut has_c)
            }
            Operation::Range(ids) => {
                let filter = |filter: &mut DocBuf| within(filter, ids);
                self.client.find(collection, &range(&filter), &mut has_c)
            }
            Operation::Sum(ids) => self.sum(collection, ids),
            Operation::Ordered(ids) => self.ordered(collection, ids),
            Operation::Distinct(ids) => self.distinct(collection, ids),
            Operation::UpdateK(id) => self.update_one(collection, *id, |change| {
                change.push_doc("$inc", |inc| inc.push("k", 1));
            }),
            Operation::UpdateC(id, c) => self.update_one(collection, *id, |change| {
                change.push_doc("$set", |set| set.push("c", *c));
            }),
            Operation::Delete(id) => self.delete(collection, *id),
            Operation::Insert(document) => self.insert(collection, document),
        }
    }
}

/// A find of `c` by a filter.
fn range(filter: &dyn Fn(&mut DocBuf)) -> Find<'_> {
    Find {
        filter,
        projection: Some(&only_c),
        sort: None,
        limit: 0,
    }
}

impl Connection {
    fn sum(&mut self, collection: &Collection, ids: &Ids) -> Result<u64> {
        let cursors = self.client.has_aggregation_cursors();
        let reply = self.client.ask(&collection.database, |command| {
            command.push("aggregate", collection.name.as_str());
            command.push_array("pipeline", |stages| {
                stages.push_doc(|stage| {
                    stage.push_doc("$match", |filter| within(filter, ids));
                });
                stages.push(&doc! { "$project": { "k": 1, "_id": 0 } });
                stages.push(
                    &doc! { "$group": { "_id": frond_bson::Value::Null, "sum": { "$sum": "$k" } } },
                );
            });
            if cursors {
                command.push_doc("cursor", |_| ());
            }
        })?;
        // Without a document there is no group.
        let group = results(reply).and_then(|batch| batch.values().next());
        match group {
            None => Ok(0),
            Some(group) => group
                .as_doc()
                .and_then(|group| group.get_i64("sum")?.try_into().ok())
                .ok_or_else(|| Error::Protocol("aggregate answered no sum".to_owned())),
        }
    }

    fn ordered(&mut self, collection: &Collection, ids: &Ids) -> Result<u64> {
        let filter = |filter: &mut DocBuf| within(filter, ids);
        let find = Find {
            sort: Some(&|sort| sort.push("c", 1)),
            ..range(&filter)
        };
        // An order that is not there would be an answer that cost less.
        let mut last = String::new();
        let found = self.client.find(collection, &find, &mut |document| {
            let c = c_of(document)?;
            if c < last.as_str() {
                return Err(Error::Wrong("a range is not in the order of c".to_owned()));
            }
            last.clear();
            last.push_str(c);
            Ok(())
        })?;
        Ok(found)
    }

    fn distinct(&mut self, collection: &Collection, ids: &Ids) -> Result<u64> {
        let reply = self.client.ask(&collection.database, |command| {
            command.push("distinct", collection.name.as_str());
            command.push("key", "c");
            command.push_doc("query", |filter| within(filter, ids));
        })?;
        let values = reply
            .get_array("values")
            .ok_or_else(|| Error::Protocol("distinct answered no values".to_owned()))?;
        Ok(values.count() as u64)
    }

    fn delete(&mut self, collection: &Collection, id: i32) -> Result<u64> {
        if self.client.has_write_commands() {
            let reply =
                self.client
                    .write_command(collection, "delete", "deletes", |statement| {
                        statement.push_doc("q", |filter| filter.push("_id", id));
                        statement.push("limit", 1);
                    })?;
            return check::found(reply, "delete");
        }
        let filter = doc! { "_id": id };
        let reply = self.client.write_by_opcode(collection, |id, namespace| {
            let delete = Delete {
                namespace,
                flags: Delete::SINGLE_REMOVE,
                filter: filter.as_bytes(),
            };
            frond_wire::op_delete(id, &delete)
        })?;
        check::last_error(reply, "OP_DELETE")?;
        check::count(reply, "OP_DELETE")
    }

    fn insert(&mut self, collection: &Collection, document: &Doc) -> Result<u64> {
        if self.client.has_write_commands() {
            let reply =
                self.client
                    .write_command(collection, "insert", "documents", |statement| {
                        statement.push_all(document);
                    })?;
            return check::inserted(reply);
        }
        let reply = self.client.write_by_opcode(collection, |id, namespace| {
            frond_wire::op_insert(id, 0, namespace, [document.as_bytes()])
        })?;
        check::last_insert(reply)
    }

    fn update_one(
        &mut self,
        collection: &Collection,
        id: i32,
        change: impl Fn(&mut DocBuf),
    ) -> Result<u64> {
        if self.client.has_write_commands() {
            let reply =
                self.client
                    .write_command(collection, "update", "updates", |statement| {
                        statement.push_doc("q", |filter| filter.push("_id", id));
                        statement.push_doc("u", &change);
                    })?;
            return check::found(reply, "update");
        }
        let filter = doc! { "_id": id };
        let mut update = DocBuf::new();
        change(&mut update);
        let reply = self.client.write_by_opcode(collection, |id, namespace| {
            let update = Update {
                namespace,
                flags: 0,
                filter: filter.as_bytes(),
                update: update.as_bytes(),
            };
            frond_wire::op_update(id, &update)
        })?;
        check::last_error(reply, "OP_UPDATE")?;
        check::count(reply, "OP_UPDATE")
    }
}

fn within(filter: &mut DocBuf, ids: &Ids) {
    filter.push_doc("_id", |range| {
        range.push("$gte", *ids.start());
        range.push("$lte", *ids.end());
    });
}

fn only_c(projection: &mut DocBuf) {
    projection.push("c", 1);
    projection.push("_id", 0);
}

fn c_of(document: &Doc) -> Result<&str> {
    document
        .get_str("c")
        .ok_or_else(|| Error::Wrong("a document came without c".to_owned()))
}

fn has_c(document: &Doc) -> Result<()> {
    c_of(document).map(|_| ())
}
