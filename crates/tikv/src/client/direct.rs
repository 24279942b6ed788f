//! The newest committed values of a key or of a short range, with one request to the node that has them.
//!
//! TiKV answers a read of the greatest timestamp with what is committed last, so it needs no timestamp of PD. The client cannot send
//! that timestamp, so the request is made here. A range is read at one moment, since it is in one region. Whatever is in the way (a lock, a region that has moved, a node that does not
//! answer) is left to an ordinary read.

use std::time::Duration;

use frond_kv::{Direction, Result};
use tonic::transport::Channel;

use crate::client::connection::Kind;
use crate::client::pd::{Failure, call, connect};
use crate::client::shared::Shared;
use crate::client::snapshot::Pairs;

/// After this time an ordinary read is tried.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The pauses after a scan has met a lock. Most are of commits that are acknowledged already, whose other keys follow at once.
const LOCK_PAUSES: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
];

/// The messages of TiKV's protocol, with the fields that are used here.
mod message {
    use crate::client::pd::{Peer, RegionEpoch};

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Context {
        #[prost(uint64, tag = "1")]
        pub region_id: u64,
        #[prost(message, optional, tag = "2")]
        pub region_epoch: Option<RegionEpoch>,
        #[prost(message, optional, tag = "3")]
        pub peer: Option<Peer>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetRequest {
        #[prost(message, optional, tag = "1")]
        pub context: Option<Context>,
        #[prost(bytes = "vec", tag = "2")]
        pub key: Vec<u8>,
        #[prost(uint64, tag = "3")]
        pub version: u64,
    }

    /// An error: only whether there is one matters.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Error {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetResponse {
        #[prost(message, optional, tag = "1")]
        pub region_error: Option<Error>,
        #[prost(message, optional, tag = "2")]
        pub error: Option<Error>,
        #[prost(bytes = "vec", tag = "3")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScanRequest {
        #[prost(message, optional, tag = "1")]
        pub context: Option<Context>,
        #[prost(bytes = "vec", tag = "2")]
        pub start_key: Vec<u8>,
        #[prost(uint32, tag = "3")]
        pub limit: u32,
        #[prost(uint64, tag = "4")]
        pub version: u64,
        #[prost(bytes = "vec", tag = "7")]
        pub end_key: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Pair {
        #[prost(message, optional, tag = "1")]
        pub error: Option<Error>,
        #[prost(bytes = "vec", tag = "2")]
        pub key: Vec<u8>,
        #[prost(bytes = "vec", tag = "3")]
        pub value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScanResponse {
        #[prost(message, optional, tag = "1")]
        pub region_error: Option<Error>,
        #[prost(message, repeated, tag = "2")]
        pub pairs: Vec<Pair>,
        #[prost(message, optional, tag = "3")]
        pub error: Option<Error>,
    }
}

use message::{Context, GetRequest, GetResponse, ScanRequest, ScanResponse};

/// The newest value of a stored key. The outer `None` is for an ordinary read.
pub(crate) fn get(shared: &Shared, key: Vec<u8>) -> Result<Option<Option<Vec<u8>>>> {
    let request = |context| GetRequest {
        context: Some(context),
        key: key.clone(),
        version: u64::MAX,
    };
    let answer: Option<GetResponse> = ask(shared, &key, Kind::Get, "/tikvpb.Tikv/KvGet", request)?;
    let Some(answer) = answer else {
        return Ok(None);
    };
    if answer.region_error.is_some() {
        shared.regions.forget(&key);
        return Ok(None);
    }
    // A lock: the ordinary read waits for it, or resolves it.
    if answer.error.is_some() {
        return Ok(None);
    }
    // No stored value is empty.
    Ok(Some(Some(answer.value).filter(|value| !value.is_empty())))
}

/// The newest values of a range of stored keys. `None` is for an ordinary read, also of a range that has `limit` keys or more, or is not
/// in one region.
pub(crate) fn scan(
    shared: &Shared,
    lower: Vec<u8>,
    upper: Vec<u8>,
    limit: u32,
) -> Result<Option<Pairs>> {
    let range = (lower.clone(), upper.clone());
    let in_region = (shared.regions).clip(&shared.connection, range, Direction::Forward)?;
    if in_region.1 != upper {
        return Ok(None);
    }
    let request = |context| ScanRequest {
        context: Some(context),
        start_key: lower.clone(),
        limit,
        version: u64::MAX,
        end_key: upper.clone(),
    };
    for pause in LOCK_PAUSES {
        let answer: Option<ScanResponse> =
            ask(shared, &lower, Kind::Scan, "/tikvpb.Tikv/KvScan", request)?;
        let Some(answer) = answer else {
            return Ok(None);
        };
        if answer.region_error.is_some() {
            shared.regions.forget(&lower);
            return Ok(None);
        }
        let is_locked = answer.pairs.iter().any(|pair| pair.error.is_some());
        if answer.error.is_none() && !is_locked {
            let is_whole = answer.pairs.len() < limit as usize;
            let pairs = answer.pairs.into_iter().map(|pair| (pair.key, pair.value));
            return Ok(is_whole.then(|| pairs.collect()));
        }
        std::thread::sleep(pause);
    }
    Ok(None)
}

/// Sends a request to the node that leads the region of a key. `None` if it does not answer.
fn ask<Q, A>(
    shared: &Shared,
    key: &[u8],
    kind: Kind,
    path: &'static str,
    request: impl FnOnce(Context) -> Q,
) -> Result<Option<A>>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let connection = &shared.connection;
    let Some(place) = shared.regions.place(connection, key)? else {
        return Ok(None);
    };
    let tls = connection.pd().tls().clone();
    let known = shared.nodes.channels.lock().get(&place.address).cloned();
    let is_new = known.is_none();
    let address = place.address.clone();
    let request = request(Context {
        region_id: place.id,
        region_epoch: Some(place.epoch),
        peer: Some(place.leader),
    });
    let asked = connection.wait(kind, async move {
        let work = async move {
            let channel = match known {
                Some(channel) => channel,
                None => connect(&tls, &address).await?,
            };
            let answer = call(channel.clone(), path, request).await?;
            Ok::<(A, Channel), Failure>((answer, channel))
        };
        match tokio::time::timeout(TIMEOUT, work).await {
            Ok(done) => done,
            Err(_) => Err("the node did not answer in time".to_owned()),
        }
    })?;
    let Ok((answer, channel)) = asked else {
        shared.nodes.channels.lock().remove(&place.address);
        shared.regions.forget(key);
        return Ok(None);
    };
    if is_new {
        let mut channels = shared.nodes.channels.lock();
        channels.insert(place.address, channel);
    }
    Ok(Some(answer))
}
