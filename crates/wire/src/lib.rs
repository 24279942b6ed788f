//! MongoDB's wire protocol: message framing, opcodes and compression.
//!
//! Pure functions from bytes to bytes, for a server and for a client: no sockets, and of a document
//! nothing but its length prefix. No input makes them panic, and none makes them allocate more than
//! the given size limit.

mod compression;
mod error;
mod frames;
mod header;
mod legacy;
mod msg;
mod reader;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use compression::{Compressor, compress, decompress};
pub use error::Error;
pub use frames::{Frames, Message, read_message};
pub use header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, OpCode, TLS_HANDSHAKE};
pub use legacy::{
    Delete, GetMore, Insert, KillCursors, Query, Update, op_delete, op_get_more, op_insert,
    op_kill_cursors, op_query, op_update,
};
pub use msg::{Flags, Msg, MsgBuilder, msg, msg_around, peek_flags};
pub use reader::DocIter;
pub use reply::{OpReply, Reply, op_reply};
pub use request::Request;
