//! Tests of commands from their request to their answer.

mod audit;
mod gate;
mod ownership;
mod request_times;
