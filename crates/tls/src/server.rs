//! The server's side.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, HandshakeKind, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
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
        let authorities = Arc::new(Authorities::read(&self.ca_file)?);
        let roots = Arc::new(authorities.roots(|_| true));
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(crls)
            // As in MongoDB: the list of the authority that issued the client's certificate must be there, and not be expired.
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
        if self.allow_connections_without_certificates {
            builder = builder.allow_unauthenticated();
        }
        let chains = builder.build().map_err(|error| {
            let path = self.crl_file.as_ref().unwrap_or(&self.ca_file);
            Error::file(path, error)
        })?;
        let verifier = Verifier {
            chains,
            authorities: authorities.clone(),
            provider: provider.clone(),
            accepts_invalid: false,
        };
        let offered = Arc::new(Verifier {
            accepts_invalid: self.allow_invalid_certificates,
            ..verifier.clone()
        });
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
            authorities: authorities.all().cloned().collect(),
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

/// The authorities of a file. At least one of them was valid when it was read.
#[derive(Debug)]
pub(crate) struct Authorities(Vec<(TrustAnchor<'static>, CertificateInfo)>);

impl Authorities {
    pub(crate) fn read(path: &Path) -> Result<Authorities> {
        let unusable = |what: &dyn fmt::Display| {
            Error::file(path, format!("a certificate cannot be used: {what}"))
        };
        let mut found = Vec::new();
        for section in pem::read(path)? {
            if section.label == "CERTIFICATE" || section.label == "TRUSTED CERTIFICATE" {
                let der = CertificateDer::from(section.der.to_vec());
                let mut roots = RootCertStore::empty();
                let facts =
                    CertificateInfo::read_authority(&der).map_err(|what| unusable(&what))?;
                roots.add(der).map_err(|error| unusable(&error))?;
                found.extend(roots.roots.into_iter().map(|root| (root, facts.clone())));
            }
        }
        let now = SystemTime::now();
        let is_valid = |(_, facts): &(_, CertificateInfo)| facts.is_valid_at(now);
        if found.iter().any(is_valid) {
            Ok(Authorities(found))
        } else if found.is_empty() {
            Err(Error::file(path, "it holds no certificate"))
        } else {
            Err(Error::file(
                path,
                "the certificates of its authorities are expired or not yet valid",
            ))
        }
    }

    /// Those that are valid at a time. The verifier of certificates does not look at the dates of authorities.
    pub(crate) fn valid_at(&self, time: SystemTime) -> RootCertStore {
        self.roots(|facts| facts.is_valid_at(time))
    }

    fn roots(&self, wanted: impl Fn(&CertificateInfo) -> bool) -> RootCertStore {
        let wanted = self.0.iter().filter(|(_, facts)| wanted(facts));
        RootCertStore::from_iter(wanted.map(|(root, _)| root.clone()))
    }

    fn all(&self) -> impl Iterator<Item = &CertificateInfo> {
        self.0.iter().map(|(_, facts)| facts)
    }
}

/// The TLS configuration for the connections of a server. It does not change: a rotation makes a new one.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// Decides what certificate is an identity.
    verifier: Verifier,
    accepts_invalid: bool,
    pub certificate: CertificateInfo,
    /// The authorities that certificates of clients are checked with, also those that are not valid now.
    pub authorities: Vec<CertificateInfo>,
    pub revocations: Vec<RevocationInfo>,
}

/// The peer of a connection.
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

    /// The peer of a connection, after the handshake.
    ///
    /// # Errors
    /// If the client must not be served: its session was resumed, and its certificate is not valid any more.
    pub fn peer(&self, connection: &ServerConnection) -> std::result::Result<Peer, String> {
        let mut peer = Peer {
            protocol: connection
                .protocol_version()
                .and_then(Protocol::from_version),
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

/// Checks certificates of clients, also the dates of their authorities, which may expire while the server runs.
#[derive(Clone, Debug)]
struct Verifier {
    /// Checks the chain up to an authority, valid or not.
    chains: Arc<dyn ClientCertVerifier>,
    authorities: Arc<Authorities>,
    provider: Arc<CryptoProvider>,
    /// Whether certificates that are not valid are accepted. A client must still own the key of its certificate.
    accepts_invalid: bool,
}

impl Verifier {
    /// Checks that a certificate leads to an authority that is valid at a time.
    fn check_authority(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<(), rustls::Error> {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        if self.authorities.all().all(|facts| facts.is_valid_at(time)) {
            return Ok(());
        }
        let valid = self.authorities.valid_at(time);
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        if valid.is_empty() {
            return Err(expired);
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(valid), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_client_cert(own, between, now)
            // It leads to an authority, so this one is not valid.
            .map_err(|_| expired)?;
        Ok(())
    }
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.chains.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chains.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        if self.accepts_invalid {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = self.chains.verify_client_cert(own, between, now)?;
        self.check_authority(own, between, now)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.chains
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// The primitives, for both sides.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
