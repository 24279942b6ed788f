//! The types that consensus works with.

use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use openraft::impls::{BoxedErrorSource, InlineBatch, ProgressResponder};
use openraft::{OptionalSend, RaftTypeConfig};

use crate::Runtime;
use crate::entry::{Entry, Group, Payload};
use crate::ids::{LeaderId, Vote};
use crate::members::Peer;

/// The configuration of `openraft`, over a runtime.
pub(crate) struct Types<R>(PhantomData<fn() -> R>);

impl<R: Runtime> RaftTypeConfig for Types<R> {
    type D = Group;
    type R = ();
    type NodeId = u64;
    type Node = Peer;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = Vote;
    type Payload = Payload;
    type Entry = Entry;
    type AsyncRuntime = R;
    type Responder<T>
        = ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

// `derive` would require the same of the runtime.
impl<R> fmt::Debug for Types<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}

impl<R> Clone for Types<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Types<R> {}

impl<R> Default for Types<R> {
    fn default() -> Self {
        Types(PhantomData)
    }
}

impl<R> PartialEq for Types<R> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<R> Eq for Types<R> {}

impl<R> PartialOrd for Types<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Types<R> {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}
