//! Finds by one field.

use frond_bson::Value;

use crate::collection::Collection;
use crate::error::Result;

/// Which documents are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Find<'a> {
    /// The field.
    pub field: &'a str,
    /// Its value.
    pub from: From<'a>,
    /// Documents at most; 0 is all.
    pub limit: u32,
}

/// Values wanted. In a field with an array, any of its elements may be one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From<'a> {
    /// This one.
    Equal(Value<'a>),
    /// This one and greater ones of its type, in ascending order.
    AtLeast(Value<'a>),
}

/// Finds, all of whose documents are fetched.
pub trait Finds {
    /// Documents found.
    fn find(&mut self, collection: &Collection, find: &Find<'_>) -> Result<u64>;
}
