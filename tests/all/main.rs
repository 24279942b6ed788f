//! Tests of the built program, of the pages, and of the rules of the house.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../support/memory_group.rs"]
mod memory_group;
#[allow(unused_imports, reason = "each test uses a part of it")]
#[path = "../support/mod.rs"]
mod support;

mod bench;
mod change_streams;
mod client_memory;
mod damage;
mod data_directories;
mod docs;
mod file_handles;
mod full_disk;
mod offline;
mod pages;
mod retryable;
mod serve_life;
mod serve_limits;
mod serve_messages;
mod serve_network;
mod serve_replies;
mod serve_text;
mod tidy;
mod tls;
