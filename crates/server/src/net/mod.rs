//! Sockets: listening, reading whole messages, sending replies.

pub mod frames;
pub mod listen;
pub mod secure;
pub mod serve;

#[cfg(test)]
mod login_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod waiting_tests;
