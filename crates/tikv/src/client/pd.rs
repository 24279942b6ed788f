//! The calls to PD that the client has no function for: where regions are, and the safepoints of services.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use crate::options::ClusterOptions;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections are given up when a ping is not answered. TiKV's own clients ping as often, and PD refuses more.
const PING_PAUSE: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// A member of PD that runs answers within this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a call has failed.
pub(crate) type Failure = String;

/// The messages of PD's protocol, with the fields that are used here.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct RequestHeader {
        #[prost(uint64, tag = "1")]
        pub cluster_id: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Error {
        #[prost(int32, tag = "1")]
        pub kind: i32,
        #[prost(string, tag = "2")]
        pub message: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResponseHeader {
        #[prost(uint64, tag = "1")]
        pub cluster_id: u64,
        #[prost(message, optional, tag = "2")]
        pub error: Option<Error>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Member {
        #[prost(string, repeated, tag = "4")]
        pub client_urls: Vec<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetMembersRequest {
        #[prost(message, optional, tag = "1")]
        pub header: Option<RequestHeader>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetMembersResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(message, optional, tag = "3")]
        pub leader: Option<Member>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetRegionRequest {
        #[prost(message, optional, tag = "1")]
        pub header: Option<RequestHeader>,
        #[prost(bytes = "vec", tag = "2")]
        pub region_key: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct RegionEpoch {
        #[prost(uint64, tag = "1")]
        pub conf_ver: u64,
        #[prost(uint64, tag = "2")]
        pub version: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Peer {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub store_id: u64,
        #[prost(int32, tag = "3")]
        pub role: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Region {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(bytes = "vec", tag = "2")]
        pub start_key: Vec<u8>,
        #[prost(bytes = "vec", tag = "3")]
        pub end_key: Vec<u8>,
        #[prost(message, optional, tag = "4")]
        pub region_epoch: Option<RegionEpoch>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetStoreRequest {
        #[prost(message, optional, tag = "1")]
        pub header: Option<RequestHeader>,
        #[prost(uint64, tag = "2")]
        pub store_id: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Store {
        #[prost(string, tag = "2")]
        pub address: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetStoreResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(message, optional, tag = "2")]
        pub store: Option<Store>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetRegionResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(message, optional, tag = "2")]
        pub region: Option<Region>,
        #[prost(message, optional, tag = "3")]
        pub leader: Option<Peer>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetGcSafePointRequest {
        #[prost(message, optional, tag = "1")]
        pub header: Option<RequestHeader>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct GetGcSafePointResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(uint64, tag = "2")]
        pub safe_point: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct UpdateServiceGcSafePointRequest {
        #[prost(message, optional, tag = "1")]
        pub header: Option<RequestHeader>,
        #[prost(bytes = "vec", tag = "2")]
        pub service_id: Vec<u8>,
        #[prost(int64, tag = "3")]
        pub ttl: i64,
        #[prost(uint64, tag = "4")]
        pub safe_point: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct UpdateServiceGcSafePointResponse {
        #[prost(message, optional, tag = "1")]
        pub header: Option<ResponseHeader>,
        #[prost(uint64, tag = "4")]
        pub min_safe_point: u64,
    }
}

use message::{
    GetGcSafePointRequest, GetGcSafePointResponse, GetMembersRequest, GetMembersResponse,
    GetRegionRequest, GetRegionResponse, GetStoreRequest, GetStoreResponse, RequestHeader,
    ResponseHeader, UpdateServiceGcSafePointRequest, UpdateServiceGcSafePointResponse,
};
pub(crate) use message::{Peer, RegionEpoch};

/// A client of PD. It connects at its first request, and again after a failure.
pub(crate) struct Pd {
    addresses: Vec<String>,
    tls: Tls,
    timeout: Duration,
    leader: Mutex<Option<Leader>>,
}

/// The files of the authority, the certificate and its key; without them connections are plain.
#[derive(Clone, Default)]
pub(crate) struct Tls(Option<[PathBuf; 3]>);

impl Tls {
    /// The files of the authority, the certificate and its key.
    pub(crate) fn files(&self) -> Option<&[PathBuf; 3]> {
        self.0.as_ref()
    }
}

/// A region, as PD knows it. Keys are encoded.
pub(crate) struct Region {
    pub(crate) id: u64,
    pub(crate) epoch: RegionEpoch,
    /// The first key, and the first one beyond it, which is empty for the last region.
    pub(crate) borders: (Vec<u8>, Vec<u8>),
    /// The copy that answers, and the address of its node.
    pub(crate) leader: Option<(Peer, String)>,
}

/// The member of PD that answers.
#[derive(Clone)]
struct Leader {
    channel: Channel,
    header: RequestHeader,
}

impl Pd {
    pub(crate) fn new(options: &ClusterOptions) -> Pd {
        Pd {
            addresses: options.pd.clone(),
            tls: Tls(options.tls_files()),
            timeout: options.request_timeout,
            leader: Mutex::new(None),
        }
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The addresses of PD that answer now and know a leader.
    pub(crate) async fn answering(&self) -> Vec<String> {
        let mut answering = Vec::new();
        for address in &self.addresses {
            let asked = tokio::time::timeout(PROBE_TIMEOUT, self.ask_for_leader(address));
            if let Ok(Ok(_)) = asked.await {
                answering.push(address.clone());
            }
        }
        answering
    }

    /// The region with a key, or the one before that. The key is encoded.
    pub(crate) async fn region(&self, key: Vec<u8>, before: bool) -> Result<Region, Failure> {
        let name = if before { "GetPrevRegion" } else { "GetRegion" };
        let found: GetRegionResponse = self
            .call(name, |header| GetRegionRequest {
                header: Some(header),
                region_key: key,
            })
            .await?;
        self.check(found.header)?;
        let region = found.region.ok_or("PD knows no region")?;
        let leader = match found.leader {
            None => None,
            Some(peer) => {
                let found: GetStoreResponse = self
                    .call("GetStore", |header| GetStoreRequest {
                        header: Some(header),
                        store_id: peer.store_id,
                    })
                    .await?;
                self.check(found.header)?;
                found.store.map(|store| (peer, store.address))
            }
        };
        Ok(Region {
            id: region.id,
            epoch: region.region_epoch.unwrap_or_default(),
            borders: (region.start_key, region.end_key),
            leader,
        })
    }

    /// Registers with PD that a service needs the versions from a timestamp on, for some seconds. Returns the least timestamp that any
    /// service needs.
    pub(crate) async fn need(&self, service: &[u8], seconds: i64, at: u64) -> Result<u64, Failure> {
        let reply: UpdateServiceGcSafePointResponse = self
            .call("UpdateServiceGCSafePoint", |header| {
                UpdateServiceGcSafePointRequest {
                    header: Some(header),
                    service_id: service.to_vec(),
                    ttl: seconds,
                    safe_point: at,
                }
            })
            .await?;
        self.check(reply.header)?;
        Ok(reply.min_safe_point)
    }

    /// Removes the registration of a service with PD.
    pub(crate) async fn release(&self, service: &[u8]) -> Result<(), Failure> {
        self.need(service, 0, 0).await.map(drop)
    }

    /// The safepoint that TiKV uses.
    pub(crate) async fn safepoint(&self) -> Result<u64, Failure> {
        let reply: GetGcSafePointResponse = self
            .call("GetGCSafePoint", |header| GetGcSafePointRequest {
                header: Some(header),
            })
            .await?;
        self.check(reply.header)?;
        Ok(reply.safe_point)
    }

    /// The error in an answer. Another leader is looked for then.
    fn check(&self, header: Option<ResponseHeader>) -> Result<(), Failure> {
        match header.and_then(|header| header.error) {
            Some(error) if error.kind != 0 => {
                *self.leader.lock() = None;
                Err(error.message)
            }
            _ => Ok(()),
        }
    }

    async fn call<Q, A>(
        &self,
        name: &'static str,
        request: impl FnOnce(RequestHeader) -> Q,
    ) -> Result<A, Failure>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let known = self.leader.lock().clone();
        let leader = match known {
            Some(leader) => leader,
            None => {
                let found = self.find_leader().await?;
                *self.leader.lock() = Some(found.clone());
                found
            }
        };
        let request = request(leader.header);
        let answer = self
            .in_time(unary(leader.channel.clone(), name, request))
            .await;
        if answer.is_err() {
            *self.leader.lock() = None;
        }
        answer
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(done) => done,
            Err(_) => Err("PD did not answer in time".to_owned()),
        }
    }

    async fn find_leader(&self) -> Result<Leader, Failure> {
        let mut failure = "there is no address of PD".to_owned();
        for address in &self.addresses {
            match self.in_time(self.ask_for_leader(address)).await {
                Ok(leader) => return Ok(leader),
                Err(text) => failure = text,
            }
        }
        Err(failure)
    }

    async fn ask_for_leader(&self, address: &str) -> Result<Leader, Failure> {
        let channel = connect(&self.tls, address).await?;
        let request = GetMembersRequest { header: None };
        let members: GetMembersResponse = unary(channel.clone(), "GetMembers", request).await?;
        let header = RequestHeader {
            cluster_id: members.header.map_or(0, |header| header.cluster_id),
        };
        let urls = members
            .leader
            .ok_or("PD has no leader at present")?
            .client_urls;
        let is_this = |url: &String| host(url) == host(address);
        let channel = match urls.first() {
            Some(url) if !urls.iter().any(is_this) => connect(&self.tls, url).await?,
            _ => channel,
        };
        Ok(Leader { channel, header })
    }
}

/// Connects to PD or to a node.
pub(crate) async fn connect(tls: &Tls, address: &str) -> Result<Channel, Failure> {
    let text = |error: tonic::transport::Error| error.to_string();
    let host = host(address);
    let endpoint = match &tls.0 {
        None => Endpoint::from_shared(format!("http://{host}")).map_err(text)?,
        Some([ca, certificate, key]) => {
            let read = |path: &PathBuf| {
                std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
            };
            let tls = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(read(ca)?))
                .identity(Identity::from_pem(read(certificate)?, read(key)?));
            let endpoint = Endpoint::from_shared(format!("https://{host}")).map_err(text)?;
            endpoint.tls_config(tls).map_err(text)?
        }
    };
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_PAUSE)
        .keep_alive_timeout(PING_TIMEOUT);
    endpoint.connect().await.map_err(text)
}

/// An address without its scheme.
pub(crate) fn host(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.trim_end_matches('/')
}

/// Calls a function of PD.
async fn unary<Q, A>(channel: Channel, name: &'static str, request: Q) -> Result<A, Failure>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    call(channel, &format!("/pdpb.PD/{name}"), request).await
}

/// Calls a function of a service.
pub(crate) async fn call<Q, A>(channel: Channel, path: &str, request: Q) -> Result<A, Failure>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| error.to_string())?;
    let path = PathAndQuery::try_from(path);
    let path = path.map_err(|error| error.to_string())?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = client
        .unary(tonic::Request::new(request), path, codec)
        .await;
    Ok(answer.map_err(|status| status.to_string())?.into_inner())
}

/// A key as PD and the regions know it: groups of eight bytes, each followed by a byte with the number of its bytes that count, so that
/// encoded keys compare like keys.
pub(crate) fn encode_key(key: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity((key.len() / 8 + 1) * 9);
    let mut groups = key.chunks_exact(8);
    for group in groups.by_ref() {
        encoded.extend_from_slice(group);
        encoded.push(0xff);
    }
    let rest = groups.remainder();
    encoded.extend_from_slice(rest);
    let padding = 8 - rest.len();
    encoded.resize(encoded.len() + padding, 0);
    encoded.push(0xff - padding as u8);
    encoded
}

/// Reads [`encode_key`]; `None` if it is malformed.
pub(crate) fn decode_key(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(encoded.len());
    for group in encoded.chunks(9) {
        let (marker, bytes) = group.split_last().filter(|(_, bytes)| bytes.len() == 8)?;
        let padding = usize::from(0xff - *marker);
        key.extend_from_slice(bytes.get(..8usize.checked_sub(padding)?)?);
        if padding > 0 {
            return Some(key);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_keys_are_in_order_and_are_read_as_they_were() {
        let long = [7u8; 17];
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"a",
            b"a\0",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefgh\0",
            b"b",
            &long,
        ];
        for key in &keys {
            assert_eq!(decode_key(&encode_key(key)).as_deref(), Some(*key));
        }
        keys.sort_unstable();
        assert!(keys.is_sorted_by_key(|key| encode_key(key)));
        assert_eq!(encode_key(b"abc"), b"abc\0\0\0\0\0\xfa");
        for malformed in [&b""[..], b"abc", &[1; 9], b"abcdefgh\xff"] {
            assert_eq!(decode_key(malformed), None);
        }
    }

    #[test]
    fn addresses_are_compared_without_their_schemes() {
        assert_eq!(host("http://10.0.0.1:2379/"), "10.0.0.1:2379");
        assert_eq!(host("pd:2379"), "pd:2379");
    }
}
