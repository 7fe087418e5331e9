//! Encrypted connections: rustls on aws-lc-rs, whatever the process has as its default.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    OpenError,
    address::{Address, Certificate},
};

/// What encrypts the connections to an address.
pub(crate) fn connector(address: &Address) -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Tls(error.to_string()))?;
    let verifier: Arc<dyn ServerCertVerifier> = match address.certificate {
        Certificate::Any => Arc::new(Whoever(provider)),
        Certificate::Signed => Arc::new(WhateverName(verifier(address, provider)?)),
        Certificate::Named => verifier(address, provider)?,
    };
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    address: &Address,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, OpenError> {
    let roots = match &address.roots {
        Some(file) => from_file(file)?,
        None => from_system()?,
    };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| OpenError::Tls(error.to_string()))
}

fn from_file(file: &Path) -> Result<RootCertStore, OpenError> {
    let refused = |why: String| OpenError::Tls(format!("{}: {why}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| refused(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refused("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

fn from_system() -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(OpenError::Tls(
            "the system has no certificates to trust; sslrootcert names a file of them".to_owned(),
        ));
    }
    Ok(roots)
}

/// Takes any certificate. Signatures are verified all the same: they cost nothing to get right.
#[derive(Debug)]
struct Whoever(Arc<CryptoProvider>);

impl ServerCertVerifier for Whoever {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes any certificate that somebody we trust has signed, whatever name it has.
#[derive(Debug)]
struct WhateverName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for WhateverName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        // The name is looked at last: all else is in order where it is what is wrong.
        match self
            .0
            .verify_server_cert(certificate, others, name, ocsp, now)
        {
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
