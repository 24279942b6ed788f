//! Finds by one field, and groups by one field.

use frond_bson::Value;
use frond_client::{Collection, Result};

/// Which documents are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Find<'a> {
    pub field: &'a str,
    pub from: From<'a>,
    /// Documents at most; 0 is all.
    pub limit: u32,
}

/// Values wanted. In a field with an array, any of its elements may be one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From<'a> {
    Equal(Value<'a>),
    /// This one and greater ones of its type, in ascending order.
    AtLeast(Value<'a>),
}

/// Finds, all of whose documents are fetched.
pub trait Finds {
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64>;
}

/// A sum for each value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The field with a group for each of its values.
    pub by: &'a str,
    /// The field whose integers are added.
    pub sum: &'a str,
    /// Only documents whose `sum` field is below this.
    pub below: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The number of groups.
    pub groups: u64,
    pub documents: i64,
    /// The sum of their sums.
    pub total: i64,
}

/// Aggregations over a whole collection.
pub trait Grouping {
    /// Counts the documents of each group, and adds up a field of theirs. All groups are fetched.
    fn group(&mut self, collection: &Collection, group: &Group<'_>) -> Result<Groups>;
}
