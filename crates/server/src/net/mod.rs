//! Sockets: listening, reading whole messages, answering them.

pub mod frames;
pub mod listen;
pub mod message;
pub mod serve;
