//! Finds by one field.

use super::Connection;
use crate::client::Find as Request;
use crate::collection::Collection;
use crate::error::Result;
use crate::system::{Find, Finds, From};

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
