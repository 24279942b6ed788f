//! The reason for not using the client's asynchronous commit, as a test: it loses what it has acknowledged.
//!
//! A transaction that commits asynchronously is committed as soon as all of its keys are locked, and acknowledged then. Its locks are
//! removed later. If its client ends before, another client that meets a lock has to look at all of them, and finds the transaction committed.
//! The client rolls back the first key instead, once its lock has expired. It does the same to transactions of other clients, so
//! servers of versions with and without a better way could not run side by side.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tikv::TransactionClient;
use tokio::runtime::Builder;

use crate::client::connection::options;

/// Commits two keys, and ends before anything else is done: the runtime is dropped with the task that would remove the locks.
fn commit_and_end(pd: &str, keys: &[Vec<u8>; 2], is_asynchronous: bool) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = TransactionClient::new(vec![pd]).await.unwrap();
        let options = if is_asynchronous {
            options().use_async_commit()
        } else {
            options()
        };
        let mut transaction = client.begin_with_options(options).await.unwrap();
        for key in keys {
            transaction
                .put(key.clone(), b"acknowledged".to_vec())
                .await
                .unwrap();
        }
        transaction.commit().await.unwrap();
    });
}

/// The number of the keys that another client finds, once it may resolve their locks.
fn found(pd: &str, keys: &[Vec<u8>; 2]) -> usize {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = TransactionClient::new(vec![pd]).await.unwrap();
        loop {
            let now = client.current_timestamp().await.unwrap();
            let mut snapshot = client.snapshot(now, options());
            // Until the locks have expired it may fail.
            if let Ok(pairs) = snapshot.batch_get(keys.iter().cloned()).await {
                return pairs.count();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

#[test]
fn the_asynchronous_commit_of_the_client_loses_acknowledged_writes() {
    let Ok(pd) = std::env::var("FROND_TEST_PD") else {
        return;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (is_asynchronous, expected) in [(false, 2), (true, 0)] {
        let keys = ["a", "b"].map(|name| {
            format!("test/async/{}/{is_asynchronous}/{name}", now.as_nanos()).into_bytes()
        });
        commit_and_end(&pd, &keys, is_asynchronous);
        assert_eq!(found(&pd, &keys), expected, "{is_asynchronous}");
    }
}
