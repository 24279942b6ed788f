//! Finds by one field, and groups by one field.

use frond_bson::doc;
use frond_client::{Collection, Error, Find as Request, Result};

use super::Connection;
use crate::system::{Find, Finds, From, Group, Grouping, Groups};

/// Groups in a reply: all that there may be.
const GROUPS_MAX: i32 = 100_000;

impl Finds for Connection {
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64> {
        let filter = |filter: &mut frond_bson::DocBuf| match &find.from {
            From::Equal(value) => filter.push_value(find.field, value),
            From::AtLeast(value) => {
                filter.push_doc(find.field, |range| range.push_value("$gte", value));
            }
        };
        let ascending = |sort: &mut frond_bson::DocBuf| sort.push(find.field, 1);
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
        let batch = match reply.get_doc("cursor") {
            Some(cursor) => cursor.get_array("firstBatch"),
            None => reply.get_array("result"),
        };
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
