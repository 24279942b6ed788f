//! Encryption at rest.
//!
//! A **master key** comes from outside of the data directory. It encrypts the **store keys**, which a file in the data directory holds
//! ([`KeyStore`]). The keys of ciphers ([`Cipher`]) are derived from a store key.
#![forbid(unsafe_code)]

mod cipher;
mod error;
mod key;
mod key_store;
mod master;

pub use cipher::{Cipher, Ciphers, Purpose, SEAL_BYTES};
pub use error::{Error, Result};
pub use key::{Key, StoreKeys};
pub use key_store::{KEY_STORE_FILE, KeyStore};
pub use master::{KeySource, read_master_key};
