//! The newest committed value of a key, with one request to the node that has it.
//!
//! TiKV answers a read of the greatest timestamp with what is committed last, so it needs no timestamp of PD. The client cannot send
//! that timestamp, so the request is made here. Whatever is in the way (a lock, a region that has moved, a node that does not
//! answer) is left to an ordinary read.

use std::time::Duration;

use frond_kv::Result;
use tonic::transport::Channel;

use crate::client::connection::Kind;
use crate::client::pd::{Failure, call, connect};
use crate::client::shared::Shared;

/// After this time an ordinary read is tried.
const TIMEOUT: Duration = Duration::from_secs(2);

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
}

use message::{Context, GetRequest, GetResponse};

/// The newest value of a stored key. The outer `None` is for an ordinary read.
pub(crate) fn get(shared: &Shared, key: Vec<u8>) -> Result<Option<Option<Vec<u8>>>> {
    let connection = &shared.connection;
    let Some(place) = shared.regions.place(connection, &key)? else {
        return Ok(None);
    };
    if shared.nodes.is_silent(&place.address) {
        // PD may name another node as soon as the region has another leader.
        shared.regions.forget(&key);
        return Ok(None);
    }
    let tls = connection.pd().tls().clone();
    let known = shared.nodes.channels.lock().get(&place.address).cloned();
    let is_new = known.is_none();
    let address = place.address.clone();
    let request = GetRequest {
        context: Some(Context {
            region_id: place.id,
            region_epoch: Some(place.epoch),
            peer: Some(place.leader),
        }),
        key: key.clone(),
        version: u64::MAX,
    };
    let asked = connection.wait(Kind::Get, async move {
        let work = async move {
            let channel = match known {
                Some(channel) => channel,
                None => connect(&tls, &address).await?,
            };
            let answer = call(channel.clone(), "/tikvpb.Tikv/KvGet", request).await?;
            Ok::<(GetResponse, Channel), Failure>((answer, channel))
        };
        match tokio::time::timeout(TIMEOUT, work).await {
            Ok(done) => done,
            Err(_) => Err("the node did not answer in time".to_owned()),
        }
    })?;
    let Ok((answer, channel)) = asked else {
        shared.nodes.note_silent(&place.address);
        shared.regions.forget(&key);
        return Ok(None);
    };
    if is_new {
        let mut channels = shared.nodes.channels.lock();
        channels.insert(place.address, channel);
    }
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
