//! The certificate authority of one container, made at its boot: it signs the certificates that HTTPS is opened with.
//!
//! Invariant: the key never leaves this process and is used by no other container; the certificate is trusted only
//! inside the container it was made for. Gone with the container.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{CipherSuite, ServerConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Names whose certificates are kept; beyond it they are made anew.
pub const MAX_LEAVES: usize = 1024;
/// Longer than any container lives.
const VALIDITY: Duration = Duration::from_secs(7 * 24 * 3600);
/// A container's clock may be behind.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl Authority {
    pub fn new() -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Ringfence sandbox CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params);
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
        })
    }

    /// What a container is to trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's side of TLS for a name or an address, HTTP/1.1 only.
    pub fn server(&self, name: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = leaves.get(name) {
            return Ok(config.clone());
        }
        let config = Arc::new(self.sign(name)?);
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        leaves.insert(name.to_owned(), config.clone());
        Ok(config)
    }

    fn sign(&self, name: &str) -> Result<ServerConfig, AuthorityError> {
        // An address becomes an address of the certificate, anything else a DNS name.
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        // Its order is ours: see [`provider`].
        config.ignore_client_order = true;
        Ok(config)
    }
}

/// The cheapest cipher first: what it hides from, on the way from a container to its own engine, is nobody.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    provider
}

fn set_validity(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + VALIDITY).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_signed_once_and_two_containers_have_two_authorities() {
        let (a, b) = (Authority::new().unwrap(), Authority::new().unwrap());
        assert_ne!(a.pem(), b.pem());
        assert!(Arc::ptr_eq(&a.server("example.test").unwrap(), &a.server("example.test").unwrap()));
        assert!(!Arc::ptr_eq(&a.server("example.test").unwrap(), &a.server("192.0.2.1").unwrap()));
    }

    #[test]
    fn at_the_bound_names_are_signed_anew() {
        let authority = Authority::new().unwrap();
        let first = authority.server("0.test").unwrap();
        for index in 1..=MAX_LEAVES {
            authority.server(&format!("{index}.test")).unwrap();
        }
        assert!(!Arc::ptr_eq(&first, &authority.server("0.test").unwrap()));
    }
}
