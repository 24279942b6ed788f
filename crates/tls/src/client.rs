//! The client's side, with the options of a connection string.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::error::{Error, Result};
use crate::key;
use crate::password::Password;
use crate::protocol;
use crate::server::{Authorities, provider};

/// The files and choices of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// The authorities that the server's certificate is checked with.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate and key.
    pub certificate_key_file: Option<PathBuf>,
    /// The password of the key, if it is encrypted.
    pub password: Option<Password>,
    /// Accepts any certificate: then the identity of the server is unknown.
    pub allow_invalid_certificates: bool,
    /// Accepts a certificate of another host.
    pub allow_invalid_hostnames: bool,
}

impl ClientOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read or used, or there is nothing to check the server's certificate with.
    pub fn load(&self) -> Result<Arc<ClientConfig>> {
        let provider = provider();
        let roots = match &self.ca_file {
            Some(path) => Some(Authorities::read(path)?.valid_at(SystemTime::now())),
            None if self.allow_invalid_certificates => None,
            None => {
                return Err(Error::Options(
                    "TLS needs tlsCAFile, to check the server's certificate with".into(),
                ));
            }
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&protocol::enabled(&[])?)
            .map_err(|error| Error::Options(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::new(self, roots, &provider)?));
        let config = match &self.certificate_key_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let pair = key::load(path, self.password.as_ref())?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
            }
        };
        Ok(Arc::new(config))
    }

    /// The name of a host, as `rustls` takes it.
    ///
    /// # Errors
    /// If it is neither a host name nor an address.
    pub fn server_name(host: &str) -> Result<ServerName<'static>> {
        ServerName::try_from(host.to_owned()).map_err(|_| Error::ServerName(host.to_owned()))
    }
}

/// Checks the certificate of a server as far as the options ask for.
#[derive(Debug)]
struct Verifier {
    /// None accepts any certificate.
    strict: Option<Arc<WebPkiServerVerifier>>,
    any_host: bool,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        options: &ClientOptions,
        roots: Option<RootCertStore>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier> {
        let strict = match roots {
            Some(roots) if !options.allow_invalid_certificates => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
                Some(
                    builder
                        .build()
                        .map_err(|error| Error::Options(error.to_string()))?,
                )
            }
            _ => None,
        };
        Ok(Verifier {
            strict,
            any_host: options.allow_invalid_hostnames,
            provider: provider.clone(),
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(strict) = &self.strict else {
            return Ok(ServerCertVerified::assertion());
        };
        match strict.verify_server_cert(own, between, name, ocsp, now) {
            // The name is checked last, after the chain.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_host => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
