//! The server's side.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::certificate::CertificateInfo;
use crate::error::{Error, Result};
use crate::key;
use crate::password::Password;
use crate::pem;
use crate::protocol::{self, Protocol};
use crate::revocation::{self, RevocationInfo};

/// The files and choices of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The certificate, the certificates between it and its authority, and the private key.
    pub certificate_key_file: PathBuf,
    /// The password of the key, if it is encrypted.
    pub password: Option<Password>,
    /// The authorities that certificates of clients are checked with.
    pub ca_file: PathBuf,
    /// Lists of certificates that their authority has revoked.
    pub crl_file: Option<PathBuf>,
    /// Whether a client may have no certificate. One that it has is checked.
    pub allow_connections_without_certificates: bool,
    /// Whether a client may have a certificate that is not valid. Such a certificate is no identity.
    pub allow_invalid_certificates: bool,
    /// Versions of the protocol that are not spoken.
    pub disabled_protocols: Vec<Protocol>,
}

impl ServerOptions {
    /// Reads the files and checks them.
    ///
    /// # Errors
    /// If a file cannot be read or used, or the certificate is expired or not yet valid.
    pub fn load(&self) -> Result<ServerTls> {
        let provider = provider();
        let pair = key::load(&self.certificate_key_file, self.password.as_ref())?;
        let certificate = own_certificate(&self.certificate_key_file, pair.cert.first())?;
        let (crls, revocations) = match &self.crl_file {
            Some(path) => revocation::load(path)?,
            None => Default::default(),
        };
        let roots = Arc::new(authorities(&self.ca_file)?);
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(crls)
            // As in MongoDB: the list of the authority that issued the client's certificate must be there, and not be expired.
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
        if self.allow_connections_without_certificates {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|error| {
            let path = self.crl_file.as_ref().unwrap_or(&self.ca_file);
            Error::file(path, error)
        })?;
        let offered: Arc<dyn ClientCertVerifier> = match self.allow_invalid_certificates {
            true => Arc::new(AcceptInvalid(verifier.clone())),
            false => verifier.clone(),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&protocol::enabled(&self.disabled_protocols)?)
            .map_err(|error| Error::Options(error.to_string()))?
            .with_client_cert_verifier(offered)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
        // Keys of tickets belong to this configuration: a new one resumes no session of an older one.
        config.ticketer = ring::Ticketer::new()
            .map_err(|error| Error::Options(format!("no keys for session tickets: {error}")))?;
        Ok(ServerTls {
            config: Arc::new(config),
            verifier,
            accepts_invalid: self.allow_invalid_certificates,
            certificate,
            revocations,
        })
    }
}

/// The facts of the server's own certificate, which must be valid now.
fn own_certificate(path: &Path, der: Option<&CertificateDer<'_>>) -> Result<CertificateInfo> {
    let der = der.ok_or_else(|| Error::file(path, "it holds no certificate"))?;
    let certificate = CertificateInfo::read(der).map_err(|what| Error::file(path, what))?;
    if !certificate.is_valid_at(SystemTime::now()) {
        return Err(Error::file(
            path,
            "The provided SSL certificate is expired or not yet valid.",
        ));
    }
    Ok(certificate)
}

/// The authorities of a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for section in pem::read(path)? {
        if section.label == "CERTIFICATE" || section.label == "TRUSTED CERTIFICATE" {
            let der = CertificateDer::from(section.der.to_vec());
            roots.add(der).map_err(|error| {
                Error::file(path, format!("a certificate cannot be used: {error}"))
            })?;
        }
    }
    match roots.is_empty() {
        true => Err(Error::file(path, "it holds no certificate")),
        false => Ok(roots),
    }
}

/// What a server needs for its connections. It does not change: a rotation makes a new one.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Decides what certificate is an identity.
    verifier: Arc<dyn ClientCertVerifier>,
    accepts_invalid: bool,
    /// The server's certificate.
    pub certificate: CertificateInfo,
    /// The revocation lists.
    pub revocations: Vec<RevocationInfo>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The version of the protocol.
    pub protocol: Option<Protocol>,
    /// The client's certificate, if it has one that is valid.
    pub certificate: Option<CertificateInfo>,
    /// Why the client's certificate is not valid, if invalid ones are allowed.
    pub invalid: Option<String>,
}

impl ServerTls {
    /// The configuration of `rustls`.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Who is at the other end, after the handshake.
    ///
    /// # Errors
    /// If the client must not be served: its session was resumed, and its certificate is not valid any more.
    pub fn peer(&self, connection: &ServerConnection) -> std::result::Result<Peer, String> {
        let mut peer = Peer {
            protocol: connection.protocol_version().and_then(Protocol::of),
            certificate: None,
            invalid: None,
        };
        let Some((own, between)) = connection
            .peer_certificates()
            .and_then(<[CertificateDer<'_>]>::split_first)
        else {
            return Ok(peer);
        };
        // A resumed session has the certificate of its first handshake, which may have expired since.
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        if self.accepts_invalid || is_resumed {
            let now = UnixTime::now();
            if let Err(error) = self.verifier.verify_client_cert(own, between, now) {
                if !self.accepts_invalid {
                    return Err(error.to_string());
                }
                peer.invalid = Some(error.to_string());
                return Ok(peer);
            }
        }
        // A subject that cannot be read is no identity.
        match CertificateInfo::read(own) {
            Ok(certificate) => peer.certificate = Some(certificate),
            Err(what) => peer.invalid = Some(what),
        }
        Ok(peer)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("certificate", &self.certificate)
            .field("revocations", &self.revocations)
            .finish_non_exhaustive()
    }
}

/// Accepts certificates that are not valid. A client must still own the key of its certificate.
#[derive(Debug)]
struct AcceptInvalid(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AcceptInvalid {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// The primitives, for both sides.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
