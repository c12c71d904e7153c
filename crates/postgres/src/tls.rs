//! What `sslmode` means: whether a connection is encrypted, and what is asked of the server's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use statehold_core::{Error, Result};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How connections are encrypted.
#[derive(Clone)]
pub(crate) struct Tls {
    name: &'static str,
    /// What is tried, in order, until the server does not refuse it.
    pub(crate) tries: &'static [SslMode],
    pub(crate) connector: MakeRustlsConnect,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Tls {
    /// What `sslmode` and `sslrootcert` ask for.
    pub(crate) fn new(mode: Option<&str>, authorities: Option<&str>) -> Result<Self> {
        use SslMode::{Disable, Prefer, Require};
        type Mode = (&'static str, &'static [SslMode], Option<Names>);
        // As in libpq, whoever names authorities and requires encryption wants them to be asked.
        let asked = authorities.map(|_| Names::Any);
        let (name, tries, names): Mode = match mode.unwrap_or("prefer") {
            "disable" => ("disable", &[Disable], None),
            "allow" => ("allow", &[Disable, Require], None),
            "prefer" => ("prefer", &[Prefer], None),
            "require" => ("require", &[Require], asked),
            "verify-ca" => ("verify-ca", &[Require], Some(Names::Any)),
            "verify-full" => ("verify-full", &[Require], Some(Names::OfHost)),
            _ => {
                return Err(Error::invalid("store", "parameter `sslmode` has a value that nobody knows")
                    .hint("known are disable, allow, prefer, require, verify-ca, verify-full"));
            }
        };
        let trust = names.map(|names| Ok((roots(authorities)?, names))).transpose()?;
        Ok(Self { name, tries, connector: MakeRustlsConnect::new(client(trust)?) })
    }
}

/// Which names a certificate may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Any,
    OfHost,
}

/// The authorities in a file, or those of this machine.
fn roots(file: Option<&str>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file.filter(|path| *path != "system") else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let wrong = |problem: Box<dyn std::error::Error + Send + Sync>| {
        Error::invalid("store", format!("`{path}` cannot be read as certificates of authorities"))
            .hint("sslrootcert names a file in the PEM format")
            .caused_by(std::io::Error::other(problem))
    };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.into()))? {
        roots.add(certificate.map_err(|e| wrong(e.into()))?).map_err(|e| wrong(e.into()))?;
    }
    if roots.is_empty() { Err(wrong("there is no certificate in it".into())) } else { Ok(roots) }
}

fn client(trust: Option<(RootCertStore, Names)>) -> Result<ClientConfig> {
    let failed = |problem: rustls::Error| Error::unavailable("TLS is not available").caused_by(problem);
    let provider = Arc::new(ring::default_provider());
    let trusted = match trust {
        None => None,
        Some((roots, names)) => {
            let made = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            let chain = made.build().map_err(|problem| {
                Error::invalid("store", "there are no authorities to trust")
                    .hint("install ca-certificates, or name a file with sslrootcert")
                    .caused_by(problem)
            })?;
            Some((chain, names))
        }
    };
    let judge = Arc::new(Judge { trusted, provider: Arc::clone(&provider) });
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(failed)?.dangerous().with_custom_certificate_verifier(judge);
    Ok(builder.with_no_client_auth())
}

/// Judges the certificate of a server.
#[derive(Debug)]
struct Judge {
    /// Who vouches for it, and for which names; nobody has to if there is none.
    trusted: Option<(Arc<WebPkiServerVerifier>, Names)>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some((chain, names)) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, between, host, ocsp, now) {
            // The name is judged after the chain.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if *names == Names::Any => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
