//! How requests leave the process: one set of rules for every HTTP client of a payments program.
//!
//! Promise: TLS trusts the root certificates that are compiled in, so it works the same on every
//! machine and in an image without certificates. Nothing is sent anywhere but to the host that was
//! named, and nothing is sent twice unless the caller sends it twice.

use std::{error::Error, sync::Arc};

pub use rustls::{ClientConfig as TlsConfig, Error as TlsError};

/// How every connection is encrypted: rustls on ring with Mozilla's root certificates. It fails if
/// the TLS library refuses its own default protocol versions, which is a defect.
pub fn tls_config() -> Result<TlsConfig, TlsError> {
    let roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// A builder of HTTP clients: TLS as in [`tls_config`], no redirects, no proxy from the
/// environment, and no retries of the library's own. Time limits are the caller's. It
/// fails as [`tls_config`] does.
pub fn http_client_builder() -> Result<reqwest::ClientBuilder, TlsError> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config()?)
        // A redirect would take an API key or an instruction to a host that was never named.
        .redirect(reqwest::redirect::Policy::none())
        // So would a proxy.
        .no_proxy()
        // Every attempt is counted, and announced, where it is known what sending again means.
        .retry(reqwest::retry::never()))
}

/// An error, and what caused it, and what caused that.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + 'a {
    std::iter::successors(Some(error), |&error| error.source())
}
