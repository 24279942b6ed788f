//! The threads that run the tasks of connections ([`Pool`]), and the admission of commands to them ([`Executor`]).
#![forbid(unsafe_code)]

mod admission;
mod pool;
#[cfg(test)]
#[path = "../../../tests/support/waiting.rs"]
mod waiting;

pub use admission::{
    AdmissionClass, Executor, HeldTicket, MEMORY_WAITS_MAX, Owner, Sharing, Ticket, UserTickets,
    Waiting, Work, panic_text, set_held,
};
pub use pool::{Pool, Socket, yield_to_queued_tasks};
