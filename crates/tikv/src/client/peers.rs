//! Whether a node answers at all.
//!
//! A request without an answer says little: its node may be slow, hung or gone, or only the request is in trouble. So the node gets
//! a request that costs it nothing, over a new connection.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::client::pd::{Tls, connect};

/// A node that runs answers within this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// An answer counts for this time.
const PROBE_AGE_MAX: Duration = Duration::from_millis(500);
/// The most nodes that are remembered.
const PEERS_MAX: usize = 4096;

/// The request and the answer of the probe, whose content does not matter.
#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

/// The outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Answers,
    /// It takes connections, and does not answer: it hangs.
    Silent,
    /// It takes no connections: it has ended, or its machine is gone.
    Unreachable,
}

/// The nodes that were probed.
pub(crate) struct Peers {
    tls: Tls,
    probed: Mutex<HashMap<String, (Instant, Answer)>>,
}

impl Peers {
    pub(crate) fn new(tls: Tls) -> Peers {
        let probed = Mutex::default();
        Peers { tls, probed }
    }

    /// Whether a node answers now.
    pub(crate) async fn probe(&self, address: &str) -> Answer {
        let known = self.probed.lock().get(address).copied();
        if let Some((at, answer)) = known
            && at.elapsed() < PROBE_AGE_MAX
        {
            return answer;
        }
        let answer = probe(&self.tls, address).await;
        let mut probed = self.probed.lock();
        if probed.len() >= PEERS_MAX {
            probed.clear();
        }
        probed.insert(address.to_owned(), (Instant::now(), answer));
        answer
    }
}

async fn probe(tls: &Tls, address: &str) -> Answer {
    let connecting = tokio::time::timeout(PROBE_TIMEOUT, connect(tls, address));
    let Ok(Ok(channel)) = connecting.await else {
        return Answer::Unreachable;
    };
    match tokio::time::timeout(PROBE_TIMEOUT, ask(channel)).await {
        Ok(true) => Answer::Answers,
        Ok(false) | Err(_) => Answer::Silent,
    }
}

/// Any answer counts, also that the node does not know the call.
async fn ask(channel: Channel) -> bool {
    let mut client = Grpc::new(channel);
    if client.ready().await.is_err() {
        return false;
    }
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<Empty, Empty>::default();
    let answer = client.unary(tonic::Request::new(Empty {}), path, codec);
    match answer.await {
        Ok(_) => true,
        // A status that was made here, because of the connection, has a cause.
        Err(status) => status.source().is_none(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    fn probed(address: &str) -> (Answer, usize) {
        let peers = Peers::new(Tls::default());
        let answer = runtime().block_on(peers.probe(address));
        let remembered = peers.probed.lock().len();
        (answer, remembered)
    }

    #[test]
    fn a_port_without_a_server_cannot_be_reached() {
        // Bound without being listened on: connections are refused, and no other process gets the port.
        let runtime = runtime();
        let socket = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
            socket
        });
        let address = socket.local_addr().unwrap().to_string();
        assert_eq!(probed(&address), (Answer::Unreachable, 1));
    }

    #[test]
    fn a_server_that_takes_connections_and_does_not_answer_is_silent() {
        // As a hung process: its kernel accepts connections.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(probed(&address), (Answer::Silent, 1));
    }
}
