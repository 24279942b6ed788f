//! Servers that speak MongoDB's wire protocol, of every age.

mod counters;
mod everyday;
mod retention;
mod setup;
mod status;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, doc};
use frond_client::uri::Uri;
use frond_client::{Client, Collection, Error, Find as Request, Result, WriteTarget};

use crate::documents::manykeys::Documents;
use crate::documents::updates::Update;
use crate::system::{
    Batch, Defaults, Find, Finds, From, Group, Grouping, Groups, Inserts, KeyUpdates, Scheme,
    Session, Setup, System, WriteConcern,
};

/// `mongodb://`
pub struct MongoDb;

impl Scheme for MongoDb {
    fn prefix(&self) -> &'static str {
        "mongodb://"
    }

    fn open(&self, uri: &str) -> Result<Box<dyn System>> {
        Ok(Box::new(Server { uri: uri.parse()? }))
    }
}

struct Server {
    uri: Uri,
}

impl System for Server {
    fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        Ok(Box::new(Connection {
            client: Client::connect(&self.uri, Arc::clone(stop))?,
            inserts: None,
            encoded: EncodedUpdates::default(),
        }))
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            database: self.uri.database.clone(),
            write_concern: self.uri.write_concern,
            journal: self.uri.journal,
        }
    }
}

/// A session with such a server.
struct Connection {
    client: Client,
    inserts: Option<Inserting>,
    encoded: EncodedUpdates,
}

struct Inserting {
    target: WriteTarget,
    message: Vec<u8>,
    ready: Option<Insert>,
    sent: Option<Insert>,
}

#[derive(Clone, Copy)]
struct Insert {
    id: i32,
    documents: usize,
}

impl Inserts for Connection {
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()> {
        self.inserts = Some(Inserting {
            target: self.client.write_target(collection, concern),
            message: Vec::new(),
            ready: None,
            sent: None,
        });
        Ok(())
    }

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        let id = self.client.build_insert(
            &inserting.target,
            batch.bytes,
            batch.each,
            &mut inserting.message,
        )?;
        inserting.ready = Some(Insert {
            id,
            documents: batch.len(),
        });
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        inserting.sent = Some(inserting.ready.take().ok_or_else(out_of_order)?);
        self.client.send(&inserting.message)
    }

    fn finish(&mut self) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        let sent = inserting.sent.take().ok_or_else(out_of_order)?;
        self.client
            .insert_reply(&inserting.target, sent.id, sent.documents)
    }
}

fn out_of_order() -> Error {
    Error::Settings("inserts were asked for out of their order".to_owned())
}

/// The messages of a round, ready to send.
#[derive(Default)]
struct EncodedUpdates {
    target: Option<WriteTarget>,
    bytes: Vec<u8>,
    /// The end of each message, and the request that it answers.
    messages: Vec<(usize, i32)>,
}

impl KeyUpdates for Connection {
    fn encode(
        &mut self,
        collection: &Collection,
        concern: WriteConcern,
        documents: &Documents,
        updates: &mut dyn Iterator<Item = &Update>,
    ) -> Result<()> {
        let target = self.client.write_target(collection, concern);
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.bytes.clear();
        encoded.messages.clear();
        for update in updates {
            let (filter, change) = (update.filter(documents), update.change(documents));
            let id = self
                .client
                .build_update(&target, &filter, &change, &mut encoded.bytes)?;
            encoded.messages.push((encoded.bytes.len(), id));
        }
        encoded.target = Some(target);
        self.encoded = encoded;
        Ok(())
    }

    fn execute(&mut self, done: &mut dyn FnMut(Duration) -> bool) -> Result<()> {
        let mut from = 0;
        if let Some(target) = &self.encoded.target {
            for (to, id) in &self.encoded.messages {
                let start = Instant::now();
                self.client
                    .send_built(self.encoded.bytes.get(from..*to).unwrap_or_default())?;
                self.client.update_reply(target, *id)?;
                if !done(start.elapsed()) {
                    break;
                }
                from = *to;
            }
        }
        self.drain()
    }

    fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)> {
        self.client.find_by_id(collection, id, field)
    }
}

/// Groups in a reply: all that there may be.
const GROUPS_MAX: i32 = 100_000;

impl Finds for Connection {
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64> {
        let filter = |filter: &mut DocBuf| match &find.from {
            From::Equal(value) => filter.push_value(find.field, value),
            From::AtLeast(value) => {
                filter.push_doc(find.field, |range| range.push_value("$gte", value));
            }
        };
        let ascending = |sort: &mut DocBuf| sort.push(find.field, 1);
        let request = Request {
            filter: &filter,
            projection: None,
            sort: matches!(find.from, From::AtLeast(_)).then_some(&ascending),
            limit: find.limit,
        };
        self.client.find(collection, &request, &mut |_| Ok(()))
    }
}

impl Grouping for Connection {
    fn group(&mut self, collection: &Collection, group: &Group<'_>) -> Result<Groups> {
        let cursors = self.client.has_aggregation_cursors();
        let field = |name: &str| format!("${name}");
        let reply = self.client.ask(&collection.database, |command| {
            command.push("aggregate", collection.name.as_str());
            command.push_array("pipeline", |stages| {
                if let Some(below) = group.below {
                    stages.push(&doc! { "$match": { (group.sum): { "$lt": below } } });
                }
                stages.push(&doc! { "$group": {
                    "_id": field(group.by).as_str(),
                    "n": { "$sum": 1 },
                    "total": { "$sum": field(group.sum).as_str() },
                } });
            });
            if cursors {
                command.push("cursor", &doc! { "batchSize": GROUPS_MAX });
            }
        })?;
        let batch = results(reply);
        let mut groups = Groups::default();
        for one in batch.into_iter().flat_map(|batch| batch.values()) {
            let figure = |name| one.as_doc().and_then(|one| one.get_i64(name));
            let (Some(n), Some(total)) = (figure("n"), figure("total")) else {
                return Err(Error::Protocol("aggregate answered no sum".to_owned()));
            };
            groups.groups += 1;
            groups.documents += n;
            groups.total += total;
        }
        Ok(groups)
    }
}

/// The results of an aggregation, with a cursor or without.
fn results(reply: &Doc) -> Option<&Doc> {
    match reply.get_doc("cursor") {
        Some(cursor) => cursor.get_array("firstBatch"),
        None => reply.get_array("result"),
    }
}
