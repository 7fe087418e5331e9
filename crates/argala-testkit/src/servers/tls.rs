//! Certificates, and servers made to speak TLS that do not by themselves.

use std::{net::Ipv4Addr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// Somebody who signs certificates.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// One whom nobody trusts yet.
    ///
    /// # Panics
    /// Where no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// What those have to have who are to trust it, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a host's name or address, and its key, both as PEM.
    ///
    /// # Panics
    /// Where the name cannot stand in a certificate.
    #[must_use]
    pub fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// Speaks TLS before a server that does not. Needs the runtime it was started on.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Opens one to a port of `127.0.0.1`, with a certificate for that address.
    ///
    /// # Panics
    /// Where there is no port left.
    pub async fn to(port: u16, authority: &Authority) -> Self {
        let (certificate, key) = authority.sign("127.0.0.1");
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a key that fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // Whoever does not trust us hangs up.
                    let Ok(mut near) = acceptor.accept(near).await else {
                        return;
                    };
                    let Ok(mut far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                        return;
                    };
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { port: own, task }
    }

    /// The port of `127.0.0.1` to connect to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}
