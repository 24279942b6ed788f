//! The statistics of regions, which PD has at its interface for HTTP only: at the same address as the other one.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::pd::{Failure, Pd, Tls, encode_key, host};

/// Statistics are not worth a longer wait.
const TIMEOUT: Duration = Duration::from_secs(2);
/// An answer has a few figures for each node.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// PD's statistics of the regions of a range, also of their parts beyond it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RegionStats {
    pub(crate) regions: u64,
    /// One copy of each. PD counts in MiB, and at least one for each region.
    pub(crate) bytes: u64,
}

/// The statistics of the regions with keys between two stored keys.
pub(crate) async fn region_stats(
    pd: Arc<Pd>,
    lower: Vec<u8>,
    upper: Vec<u8>,
) -> Result<RegionStats, Failure> {
    let encoded = |key: &[u8]| percent_encode(&encode_key(key), NON_ALPHANUMERIC).to_string();
    let path = format!(
        "/pd/api/v1/stats/region?start_key={}&end_key={}",
        encoded(&lower),
        encoded(&upper)
    );
    let mut failure = "there is no address of PD".to_owned();
    for address in pd.addresses() {
        let answer = tokio::time::timeout(TIMEOUT, get(pd.tls(), host(address), &path));
        match answer.await {
            Ok(Ok(answer)) => {
                return read(&answer).ok_or_else(|| "PD's answer has no sizes".to_owned());
            }
            Ok(Err(text)) => failure = text,
            Err(_) => failure = "PD did not answer in time".to_owned(),
        }
    }
    Err(failure)
}

/// Reads the figures of an answer.
fn read(answer: &str) -> Option<RegionStats> {
    Some(RegionStats {
        regions: figure(answer, "count")?,
        bytes: figure(answer, "storage_size")?.checked_mul(1 << 20)?,
    })
}

/// The number behind a name. Names of nodes are numbers, so that none is taken for it.
fn figure(answer: &str, name: &str) -> Option<u64> {
    let (_, rest) = answer.split_once(&format!("\"{name}\""))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|digit: char| !digit.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

async fn get(tls: &Tls, host: &str, path: &str) -> Result<String, Failure> {
    let text = |error: std::io::Error| error.to_string();
    let stream = TcpStream::connect(host).await.map_err(text)?;
    let Some([ca, certificate, key]) = tls.files() else {
        return exchange(stream, host, path).await;
    };
    let pem = |error: rustls::pki_types::pem::Error| error.to_string();
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(ca).map_err(pem)? {
        let added = roots.add(root.map_err(pem)?);
        added.map_err(|error| error.to_string())?;
    }
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(pem)?
        .collect();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            chain.map_err(pem)?,
            PrivateKeyDer::from_pem_file(key).map_err(pem)?,
        )
        .map_err(|error| error.to_string())?;
    let (name, _) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await.map_err(text)?;
    exchange(stream, host, path).await
}

/// Sends one request. Returns the body of the answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    host: &str,
    path: &str,
) -> Result<String, Failure> {
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    // It ends with the sender.
    tokio::spawn(connection);
    let request = Request::get(path)
        .header(HOST, host)
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(text)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
    let body = body.await.map_err(|error| error.to_string())?.to_bytes();
    if !status.is_success() {
        return Err(format!("PD answered with {status}"));
    }
    String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_an_answer_of_pd() {
        let answer = r#"{
  "count": 3,
  "empty_count": 1,
  "storage_size": 292,
  "user_storage_size": 17,
  "storage_keys": 100000,
  "store_leader_count": {"1": 3},
  "store_peer_size": {"1": 292}
}"#;
        let stats = RegionStats {
            regions: 3,
            bytes: 292 << 20,
        };
        assert_eq!(read(answer), Some(stats));
        assert_eq!(
            read(r#"{"count":0,"storage_size":0}"#),
            Some(RegionStats::default())
        );
        for malformed in ["", "null", "{}", r#"{"count": "x", "storage_size": 1}"#] {
            assert_eq!(read(malformed), None);
        }
    }
}
